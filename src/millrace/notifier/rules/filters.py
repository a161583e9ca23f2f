"""Which events a subscription wants: the five levels, and an index that finds them without a scan.

A filter is an address, an identifier, both, or neither, with or without topics. An event looks itself up under
the four combinations of its own address and identifier; each holds the filters with those and no other demands,
and, by the first topic that is not a wildcard, those with topics.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from millrace.chain import address
from millrace.chain.proto.hub_pb2 import SubscribeEvent

LEVELS = ("All", "Address", "AddressIdentifier", "Identifier", "Topics")
_MAX_TOPICS = 64
_MAX_TEXT = 4096

Owner = TypeVar("Owner", bound=Hashable)


class FilterError(ValueError):
    """A subscription does not say what it wants; the text tells the consumer."""


class Filter(msgspec.Struct, frozen=True):
    """A subscription's demand. Absent parts accept anything; all absent is everything, events or not."""

    address: bytes | None = None
    identifier: bytes | None = None
    topics: tuple[bytes, ...] = ()
    """A prefix of the event's topics; an empty one accepts anything in its place."""


ALL = Filter()


class EventKey(NamedTuple):
    """What filters look at in an event."""

    address: bytes
    identifier: bytes
    topics: Sequence[bytes]


def parse(wish: SubscribeEvent) -> Filter:
    """The filter a consumer asks for. Raises `FilterError`.

    Every level takes exactly the fields of its name; `Topics` takes topics and, if given, an address and an
    identifier too. A field that the level does not use is refused rather than ignored.
    """
    level = wish.event_type or "All"
    if level not in LEVELS:
        raise FilterError(f"unknown event_type {level[:64]!r}: one of {', '.join(LEVELS)}")
    _check_fields(level, wish)
    where = None
    if wish.address:
        try:
            where = address.decode(wish.address)
        except address.AddressError as error:
            raise FilterError(f"invalid address: {error}") from None
    topics = tuple(_topic(text) for text in wish.topics)
    return Filter(where, wish.identifier.encode() or None, topics)


def _check_fields(level: str, wish: SubscribeEvent) -> None:
    length = len(wish.identifier) + sum(map(len, wish.topics))
    if len(wish.topics) > _MAX_TOPICS or length > _MAX_TEXT:
        raise FilterError(f"at most {_MAX_TOPICS} topics, and {_MAX_TEXT} characters in all")
    needed = {
        "All": (),
        "Address": ("address",),
        "AddressIdentifier": ("address", "identifier"),
        "Identifier": ("identifier",),
        "Topics": ("topics",),
    }[level]
    allowed = needed if level != "Topics" else ("address", "identifier", "topics")
    for name in ("address", "identifier", "topics"):
        given = bool(getattr(wish, name))
        if given and name not in allowed:
            raise FilterError(f"{level} takes no {name}")
        if not given and name in needed:
            raise FilterError(f"{level} needs {name}")


def _topic(text: str) -> bytes:
    """A topic is text as it is, or bytes written as `hex:…` or `base64:…`."""
    try:
        if text.startswith("hex:"):
            return bytes.fromhex(text[4:])
        if text.startswith("base64:"):
            return base64.b64decode(text[7:], validate=True)
    except (ValueError, binascii.Error):
        raise FilterError(f"unreadable topic {text[:64]!r}") from None
    return text.encode()


class _Bucket:
    """The filters with one address and one identifier (either may be absent)."""

    def __init__(self) -> None:
        self.plain: Filter | None = None
        self.by_topic: dict[int, dict[bytes, list[Filter]]] = {}
        self.by_count: dict[int, Filter] = {}  # only wildcards: how many topics there must be

    def place(self, wanted: Filter) -> None:
        first = _first_concrete(wanted)
        if not wanted.topics:
            self.plain = wanted
        elif first is None:
            self.by_count[len(wanted.topics)] = wanted
        else:
            self.by_topic.setdefault(first, {}).setdefault(wanted.topics[first], []).append(wanted)

    def remove(self, wanted: Filter) -> None:
        first = _first_concrete(wanted)
        if not wanted.topics:
            self.plain = None
        elif first is None:
            del self.by_count[len(wanted.topics)]
        else:
            values = self.by_topic[first]
            values[wanted.topics[first]].remove(wanted)
            if not values[wanted.topics[first]]:
                del values[wanted.topics[first]]
            if not values:
                del self.by_topic[first]

    @property
    def empty(self) -> bool:
        return self.plain is None and not self.by_topic and not self.by_count

    def find(self, topics: Sequence[bytes], found: list[Filter]) -> None:
        if self.plain is not None:
            found.append(self.plain)
        count = len(topics)
        for needed, wanted in self.by_count.items():
            if needed <= count:
                found.append(wanted)
        for position, values in self.by_topic.items():
            if position < count:
                found += [wanted for wanted in values.get(topics[position], ()) if _prefix(wanted, topics)]


def _first_concrete(wanted: Filter) -> int | None:
    return next((position for position, topic in enumerate(wanted.topics) if topic), None)


def _prefix(wanted: Filter, topics: Sequence[bytes]) -> bool:
    return len(wanted.topics) <= len(topics) and all(
        not mine or mine == theirs for mine, theirs in zip(wanted.topics, topics, strict=False)
    )


class FilterIndex(Generic[Owner]):
    """Filters and who wants them. Looking an event up does not depend on how many filters there are."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[bytes | None, bytes | None], _Bucket] = {}
        self._owners: dict[Filter, dict[Owner, None]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, wanted: Filter, owner: Owner) -> None:
        """`owner` wants what `wanted` says; `ALL` is not an event filter and does not belong here."""
        owners = self._owners.get(wanted)
        if owners is None:
            owners = self._owners[wanted] = {}
            self._buckets.setdefault((wanted.address, wanted.identifier), _Bucket()).place(wanted)
        owners[owner] = None

    def remove(self, wanted: Filter, owner: Owner) -> None:
        """`owner` does not want it any more; nothing happens if it never did."""
        owners = self._owners.get(wanted)
        if owners is None or owner not in owners:
            return
        del owners[owner]
        if not owners:
            del self._owners[wanted]
            bucket = self._buckets[wanted.address, wanted.identifier]
            bucket.remove(wanted)
            if bucket.empty:
                del self._buckets[wanted.address, wanted.identifier]

    def owners(self, wanted: Filter) -> Sequence[Owner]:
        """Who wants it."""
        return tuple(self._owners.get(wanted, ()))

    def match(self, events: Sequence[EventKey]) -> dict[Filter, list[int]]:
        """Filters that accept some of the events, each with the positions of those, ascending."""
        result: dict[Filter, list[int]] = {}
        buckets = self._buckets
        found: list[Filter] = []
        for position, (where, identifier, topics) in enumerate(events):
            for key in ((where, None), (where, identifier), (None, identifier), (None, None)):
                bucket = buckets.get(key)
                if bucket is not None:
                    bucket.find(topics, found)
            if found:
                for wanted in found:
                    result.setdefault(wanted, []).append(position)
                found.clear()
        return result
