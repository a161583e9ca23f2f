"""`millrace config`: every setting with its value, where that comes from, its type and its meaning."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from millrace.cli.ask import Ended
from millrace.cli.masked import is_masked, masked
from millrace.runtime.settings import SettingsError, load_with_sources, parse_overrides, struct_of
from millrace.runtime.terminal import say

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT = "default"
_WIDTH = 100  # of comments in a written file


class Setting(NamedTuple):
    """One setting of a service."""

    name: str
    value: object
    source: str
    kind: str
    meaning: str


@click.command()
@click.argument("service", required=False)
@click.option("--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="TOML file with the settings.")
@click.option("--set", "pairs", multiple=True, metavar="FIELD=VALUE", help="One setting of SERVICE; repeatable.")
@click.option("--changed", is_flag=True, help="Only those that are no defaults.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option(
    "--write",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a commented file with all of them; it must not exist.",
)
def config(
    service: str | None, file: Path | None, pairs: tuple[str, ...], changed: bool, as_json: bool, target: Path | None
) -> None:
    """Show the settings that would hold: of SERVICE, or of all services.

    Values come from the file, then the environment, then --set. Secrets,
    and addresses with a user or a query, are masked and not written.

    \b
    millrace config relayer --config millrace.toml --changed
    millrace config --write millrace.toml
    Exit codes: 0 all of it is right; 1 something is not; 2 wrong use.
    """
    from millrace.cli.services import SERVICES

    if service is not None and service not in SERVICES:
        raise click.UsageError(f"{service} is no service; services are {', '.join(SERVICES)}")
    if pairs and service is None:
        raise click.UsageError("--set needs the SERVICE whose setting it is")
    names = [service] if service else list(SERVICES)
    try:
        found = {name: list(settings_of(name, file, pairs)) for name in names}
    except SettingsError as error:
        raise Ended(str(error)) from None
    if target is not None:
        _write(target, found)
    elif as_json:
        _print_json(found)
    else:
        _print(found, changed)


def settings_of(service: str, file: Path | None, pairs: tuple[str, ...]) -> Iterator[Setting]:
    """The settings of a service in the order of their struct. Raises `SettingsError`."""
    from millrace.runtime import settings_reference

    struct = struct_of(service)
    settings, sources = load_with_sources(service, struct, file=file, overrides=parse_overrides(pairs))
    for described in settings_reference.settings_of(struct):
        name = described.name
        value = masked(name, getattr(settings, name))
        yield Setting(name, value, sources.get(name, DEFAULT), described.type, described.meaning)


def _print(found: dict[str, list[Setting]], changed: bool) -> None:
    from millrace.cli.shown import console, table

    for service, settings in found.items():
        rows = [
            (setting.name, _short(setting.value), setting.source, setting.kind, setting.meaning)
            for setting in settings
            if not changed or setting.source != DEFAULT
        ]
        click.echo(f"[{service}]")
        if rows:
            console().print(table(("SETTING", "VALUE", "SOURCE", "TYPE", "MEANING"), rows))


def _short(value: object) -> str:
    return value if isinstance(value, str) and value else repr(value)


def _print_json(found: dict[str, list[Setting]]) -> None:
    import msgspec

    body = {
        service: {setting.name: setting._asdict() | {"value": setting.value} for setting in settings}
        for service, settings in found.items()
    }
    click.echo(msgspec.json.format(msgspec.json.encode(body), indent=2))


def _write(target: Path, found: dict[str, list[Setting]]) -> None:
    """A file that holds what holds: defaults as comments, so that a later version's are followed."""
    lines = ["# What is commented out is a default, or says that it was left out.", ""]
    left_out = []
    for service, settings in found.items():
        lines.append(f"[{service}]")
        for setting in settings:
            lines += [f"# {line}" for line in textwrap.wrap(setting.meaning, _WIDTH)]
            text = _toml(setting.value)
            is_secret = is_masked(setting.value)
            if is_secret and setting.source != DEFAULT:
                left_out.append(f"{service}.{setting.name}")
                lines.append(f"# {setting.name} = …  # LEFT OUT, as it holds a secret: set it again ({setting.kind})")
            elif text is None or is_secret or setting.source == DEFAULT:
                shown = "…" if text is None or is_secret else text
                lines.append(f"# {setting.name} = {shown}  # {setting.kind}")
            else:
                lines.append(f"{setting.name} = {text}  # {setting.kind}, from {setting.source}")
        lines.append("")
    try:
        with target.open("x", encoding="utf-8") as out:
            out.write("\n".join(lines))
    except FileExistsError:
        raise Ended(f"{target} exists: name another file") from None
    except OSError as error:
        raise Ended(f"{target} cannot be written: {error.strerror}") from None
    missing = f": set {', '.join(left_out)} again" if left_out else ""
    say(f"{target} is written; secrets are left out{missing}.")


def _toml(value: object) -> str | None:
    """A value in TOML; None: it has no form there."""
    import msgspec

    if value is None:
        return None
    if isinstance(value, dict):
        parts = {name: _toml(item) for name, item in value.items()}
        inner = ", ".join(f"{msgspec.json.encode(str(name)).decode()} = {text}" for name, text in parts.items() if text)
        return f"{{{inner}}}"
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, msgspec.EncodeError):
        return None
