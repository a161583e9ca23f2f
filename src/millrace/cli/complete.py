"""What a shell offers for tokens, exchanges and event identifiers: from a small file, or a quick aggregator.

Somebody waits at a prompt: nothing here takes longer than `_SECONDS`, and whatever goes wrong offers nothing.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

_SECONDS = 0.3
"""To ask an aggregator in: names, connection, answer and file together."""
_FRESH = 600.0
"""Seconds for which the file is believed without asking; tokens come and go by the day."""
_MOST_TOKENS, _MOST_EXCHANGES, _MOST_AGGREGATORS = 1_000, 100, 4
_MAX_BODY, _MAX_FILE = 2 * 1024 * 1024, 512 * 1024
_LONGEST = 64
_NATIVE = ("EGLD", "the chain's own")
IDENTIFIERS = (
    *("ESDTTransfer", "MultiESDTNFTTransfer", "ESDTNFTTransfer", "ESDTLocalMint", "ESDTLocalBurn", "writeLog"),
    *("completedTxEvent", "signalError", "internalVMErrors", "transferValueOnly", "SCDeploy", "swapTokensFixedInput"),
)
"""Of events that every network has, and of the commonest swap."""

Names = list[tuple[str, str]]


def tokens(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tokens that begin so, with their names."""
    return _fitting(_known(ctx).get("tokens", ()), incomplete)


def exchanges(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Exchanges, the last one of a list."""
    before, comma, last = incomplete.rpartition(",")
    found = _fitting(_known(ctx).get("exchanges", ()), last)
    return [CompletionItem(before + comma + item.value, help=item.help) for item in found]


def identifiers(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Identifiers of events."""
    return _fitting(((name, "") for name in IDENTIFIERS), incomplete)


def _fitting(names: Iterable[Any], incomplete: str) -> list[CompletionItem]:
    start = incomplete.casefold()
    return [CompletionItem(name, help=text or None) for name, text in names if name.casefold().startswith(start)]


def _known(ctx: click.Context) -> dict[str, Any]:
    """What is known of the aggregator that the command would ask; empty where nothing is."""
    url = ctx.params.get("aggregator")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        return {}
    kept = _read()
    mine = kept.get(url, {})
    if 0 <= time.time() - mine.get("at", 0.0) < _FRESH:
        return mine
    return _asked_soon(url, kept) or mine


def _asked_soon(url: str, kept: dict[str, Any]) -> dict[str, Any] | None:
    """What the aggregator says, if it does in time; kept for the next question then."""
    import threading

    found: list[dict[str, Any]] = []

    def ask() -> None:
        try:
            told = _ask(url)
            found.append(told)
            _write({url: told | {"at": time.time()}, **{name: kept[name] for name in kept if name != url}})
        except Exception:  # at a prompt there is nobody to tell
            return

    # A thread bounds all of it: a name that is not resolved and an answer that drips have no time limit of their own.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_SECONDS)
    return found[0] if found else None


def _ask(url: str) -> dict[str, Any]:
    import urllib.request

    def get(path: str) -> Any:
        with urllib.request.urlopen(url.rstrip("/") + path, timeout=_SECONDS) as response:
            return json.loads(response.read(_MAX_BODY))

    listed = get(f"/api/v1/tokens?limit={_MOST_TOKENS}")["tokens"]
    names = [_NATIVE, *((token["identifier"], token["name"]) for token in listed)]
    return {"tokens": _clean(names)[:_MOST_TOKENS], "exchanges": _exchanges(get("/api/v1/config"))}


def _exchanges(config: Any) -> Names:
    return _clean((name, "") for name in config["exchanges"])[:_MOST_EXCHANGES]


def _clean(names: Iterable[tuple[Any, Any]]) -> Names:
    """Names that a shell can take, each once: a service does not choose what a prompt shows or runs."""
    seen: dict[str, str] = {}
    for name, text in names:
        if isinstance(name, str) and 0 < len(name) <= _LONGEST and name.isascii() and name.replace("-", "").isalnum():
            shown = "".join(letter for letter in str(text)[:_LONGEST] if letter.isalnum() or letter == " ")
            seen.setdefault(name, shown)
    return list(seen.items())


def _file() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(home) / "millrace" / "completion.json"


def _read() -> dict[str, dict[str, Any]]:
    """What was kept, by aggregator; nothing where the file is none of ours."""
    try:
        with _file().open("rb") as file:
            kept = json.loads(file.read(_MAX_FILE))
        return {
            url: {"at": float(mine["at"]), "tokens": _clean(mine["tokens"]), "exchanges": _clean(mine["exchanges"])}
            for url, mine in kept.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError):
        return {}


def _write(kept: dict[str, Any]) -> None:
    """Keep it, whole or not at all; the newest few aggregators."""
    file = _file()
    body = json.dumps(dict(list(kept.items())[:_MOST_AGGREGATORS]))
    if len(body) > _MAX_FILE:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    scratch = file.with_name(f"{file.name}.{os.getpid()}")
    scratch.write_text(body, encoding="utf-8")
    scratch.replace(file)
