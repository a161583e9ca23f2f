"""Sponsoring programmes: what a policy pays for until a date, with a budget of its own and a count for each user."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from millrace.chain import address

MAX_PROGRAMMES = 64
"""Each transaction is compared with all of them."""
_NAME = re.compile("[A-Za-z0-9_-]{1,64}")


Until = Annotated[datetime, msgspec.Meta(tz=True)]


class Programme(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What it pays for, for whom, until when and how much. An empty list means all."""

    until: Until
    """After it the programme pays nothing."""
    budget: int
    """In all, in atomic units: worst-case fees, real fees once known."""
    per_user: int
    """Transactions of one sender in all."""
    receivers: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    """A plain transfer is the empty function ""."""
    senders: tuple[str, ...] = ()

    @property
    def until_ms(self) -> int:
        """Its end as the wall clock counts."""
        return int(self.until.timestamp() * 1000)


class Matcher(msgspec.Struct, frozen=True):
    """A programme in the form in which transactions are compared with it."""

    name: str
    programme: Programme
    until_ms: int
    receivers: frozenset[bytes]
    functions: frozenset[str]
    senders: frozenset[bytes]

    def matches(self, sender: bytes, receiver: bytes, function: str) -> bool:
        """Whether it is for such a transaction; `receiver` is who really receives."""
        return (
            (not self.receivers or receiver in self.receivers)
            and (not self.functions or function in self.functions)
            and (not self.senders or sender in self.senders)
        )


def matchers(programmes: Mapping[str, Programme]) -> tuple[Matcher, ...]:
    """All programmes of a policy, in the order of the file."""
    return tuple(
        Matcher(
            name,
            programme,
            programme.until_ms,
            frozenset(map(address.decode, programme.receivers)),
            frozenset(programme.functions),
            frozenset(map(address.decode, programme.senders)),
        )
        for name, programme in programmes.items()
    )


def mistakes(programmes: Mapping[str, Any], most: int) -> Iterator[str]:
    """What cannot be meant in the file's table `programmes`, entry by entry; no number is above `most`."""
    if len(programmes) > MAX_PROGRAMMES:
        yield f"programmes: {len(programmes)} of them, at most {MAX_PROGRAMMES}"
    for name, entries in programmes.items():
        if not _NAME.fullmatch(name):
            yield f"programmes.{name}: names have letters, digits, - and _, at most 64"
        try:
            if isinstance(entries, dict) and "until" in entries:
                msgspec.convert(entries["until"], Until)  # the reader below would take a number for a time
        except msgspec.ValidationError as error:
            yield f"programmes.{name}.until: {error}; a date, a time and a zone are written 2027-01-31T18:00:00Z"
            continue
        try:
            programme = msgspec.convert(entries, Programme, strict=False)
        except msgspec.ValidationError as error:
            what, _, path = str(error).partition(" - at ")
            yield f"programmes.{name}{path.strip('`').removeprefix('$')}: {what}"
            continue
        yield from _mistakes_of(name, programme, most)


def _mistakes_of(name: str, programme: Programme, most: int) -> Iterator[str]:
    for field in ("budget", "per_user"):
        if not 0 <= getattr(programme, field) <= most:
            yield f"programmes.{name}.{field}: negative, or more than 10^30"
    if not (programme.receivers or programme.functions or programme.senders):
        yield f"programmes.{name}: it pays for everything: name receivers, functions or senders"
    for field in ("receivers", "senders"):
        for entry in getattr(programme, field):
            try:
                address.decode(entry)
            except address.AddressError as error:
                yield f"programmes.{name}.{field}: {entry!r}: {error}"
