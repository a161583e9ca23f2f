"""Writes the types of the sync face, `sync.pyi`, from the async classes: run it after their methods have changed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import millrace_client.sync
from millrace_client.portal import FACES, HOMES, face_named

TARGET = Path(__file__).parent / "src" / "millrace_client" / "sync.pyi"
_CONTEXTS = ("Aggregator", "Hub", "Millrace", "Relayer", "Subscription")
_HEAD = """\
# Written by clients/python/sync_types.py from the async classes; do not edit.
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Generic, Self, TypeVar

from millrace_client.aggregator import Option
from millrace_client.errors import Refused
from millrace_client.http import Patience, Traceparent
from millrace_client.hub import Event, Level
from millrace_client.mailbox import Policy
from millrace_client.messages import (
    AccountDelta,
    GasStats,
    History,
    Missed,
    NetworkStats,
    Outcome,
    Push,
    Readiness,
    RelayerKey,
    Relayers,
    Signed,
    Submission,
)
from millrace_client.quotes import (
    AggregatorConfig,
    AggregatorHealth,
    BatchQuote,
    Ladder,
    MultiSwap,
    PairConfig,
    Pools,
    Prices,
    Quote,
    Tokens,
)
from millrace_client.transaction import Transaction
from millrace_client.wallet import Signer

T = TypeVar("T")

class Submitted:
    handles: list[Handle]
    refused: list[Refused]
"""
_ATTRIBUTES = {
    "Handle": ("hash: str", "client_hash: str", "accepted: bool | None", "last: Outcome", "transaction: Transaction"),
    "Hub": ("last: int | None", "head: int"),
    "Millrace": ("aggregator: Aggregator", "relayer: Relayer"),
}
_HIDDEN = {"heard", "lost", "ended", "listen", "leave_later"}
"""What classes tell each other."""


def _signature(function: object) -> str:
    """Parameters and result, as they stand in the source; defaults as `...`."""
    made = inspect.signature(function)  # type: ignore[arg-type]
    parts, starred = [], False
    for parameter in made.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        starred = starred or prefix == "*"
        kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
        default = "" if parameter.default is parameter.empty else (" = ..." if kind else "=...")
        parts.append(f"{prefix}{parameter.name}{kind}{default}")
    result = str(made.return_annotation).replace("AsyncIterator[", "Iterator[")
    return f"({', '.join(parts)}) -> {result}"


def _lines() -> Iterator[str]:
    yield _HEAD
    for name in HOMES:
        face_named(name)
    for of in sorted(FACES, key=lambda of: of.__name__):
        name = of.__name__
        yield f"class {name}(Generic[T]):" if name == "Subscription" else f"class {name}:"
        yield from (f"    {attribute}" for attribute in _ATTRIBUTES.get(name, ()))
        if name not in ("Handle", "Subscription"):
            yield f"    def __init__{_signature(of.__init__)}: ..."
        if name in _CONTEXTS:
            yield "    def __enter__(self) -> Self: ..."
            yield "    def __exit__(self, *error: object) -> None: ..."
        for method, member in inspect.getmembers(of, inspect.isfunction):
            if not method.startswith("_") and method not in _HIDDEN:
                yield f"    def {method}{_signature(member)}: ..."
        if hasattr(of, "__anext__"):
            yield f"    def __iter__(self) -> Iterator[{inspect.signature(of.__anext__).return_annotation}]: ..."
        yield ""


def text() -> str:
    """The whole file."""
    return re.sub(r"\n+\Z", "\n", "\n".join(_lines()))


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(f"{TARGET} is written from {len(FACES)} classes of {millrace_client.sync.__name__}")
