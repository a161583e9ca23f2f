"""The five filter levels and the index against a plain scan."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain import address
from millrace.chain.proto.hub_pb2 import SubscribeEvent
from millrace.notifier.rules.filters import ALL, EventKey, Filter, FilterError, FilterIndex, parse

ALICE = b"\x01" * 32
ALICE_TEXT = address.encode(ALICE)

parts = st.sampled_from((b"a", b"b", b"c"))
topics = st.lists(st.sampled_from((b"", b"a", b"b")), max_size=3).map(tuple)
filters = st.builds(Filter, st.none() | parts, st.none() | parts, topics).filter(lambda wanted: wanted != ALL)
events = st.lists(st.builds(EventKey, parts, parts, topics), max_size=6)


def accepts(wanted: Filter, event: EventKey) -> bool:
    """The rule in its plainest form."""
    return (
        wanted.address in (None, event.address)
        and wanted.identifier in (None, event.identifier)
        and len(wanted.topics) <= len(event.topics)
        and all(mine in (b"", theirs) for mine, theirs in zip(wanted.topics, event.topics, strict=False))
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(filters, max_size=12), st.lists(filters, max_size=6), events)
def test_index_is_a_scan(wanted: list[Filter], gone: list[Filter], seen: list[EventKey]) -> None:
    """The index finds exactly the filters that accept an event, and their events, also after removals."""
    index: FilterIndex[int] = FilterIndex()
    for owner, item in enumerate(wanted):
        index.add(item, owner)
    for item in gone:
        for owner in range(len(wanted)):
            index.remove(item, owner)
    left = {item for item in wanted if item not in gone}
    scan = {item: [p for p, event in enumerate(seen) if accepts(item, event)] for item in left}
    assert index.match(seen) == {item: found for item, found in scan.items() if found}
    assert len(index) == len(left)
    for item in left:
        assert set(index.owners(item)) == {owner for owner, other in enumerate(wanted) if other == item}


def test_empty_index_settles() -> None:
    """After every owner has left nothing remains."""
    index: FilterIndex[str] = FilterIndex()
    kinds = [Filter(ALICE), Filter(ALICE, b"x", (b"t",)), Filter(None, None, (b"", b"")), Filter(None, b"x")]
    for item in kinds:
        index.add(item, "one")
        index.add(item, "two")
    for item in kinds:
        index.remove(item, "one")
        index.remove(item, "two")
    assert (index._buckets, index._owners) == ({}, {})


@pytest.mark.parametrize(
    ("wish", "wanted"),
    [
        ({}, ALL),
        ({"event_type": "All"}, ALL),
        ({"event_type": "Address", "address": ALICE_TEXT}, Filter(ALICE)),
        (
            {"event_type": "AddressIdentifier", "address": ALICE_TEXT, "identifier": "swap"},
            Filter(ALICE, b"swap"),
        ),
        ({"event_type": "Identifier", "identifier": "swap"}, Filter(None, b"swap")),
        ({"event_type": "Topics", "topics": ["WEGLD-bd4d79"]}, Filter(None, None, (b"WEGLD-bd4d79",))),
        (
            {
                "event_type": "Topics",
                "address": ALICE_TEXT,
                "identifier": "x",
                "topics": ["", "hex:00ff", "base64:AP8="],
            },
            Filter(ALICE, b"x", (b"", b"\x00\xff", b"\x00\xff")),
        ),
    ],
)
def test_levels(wish: dict[str, object], wanted: Filter) -> None:
    """Each level takes the fields of its name."""
    assert parse(SubscribeEvent(**wish)) == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"event_type": "all"}, "unknown event_type 'all': one of All, Address,"),
        ({"address": ALICE_TEXT}, "All takes no address"),
        ({"event_type": "Address"}, "Address needs address"),
        ({"event_type": "Address", "address": "erd1x"}, "invalid address"),
        ({"event_type": "Address", "address": ALICE_TEXT, "topics": ["x"]}, "Address takes no topics"),
        ({"event_type": "AddressIdentifier", "address": ALICE_TEXT}, "needs identifier"),
        ({"event_type": "Identifier", "identifier": "x" * 5000}, "at most"),
        ({"event_type": "Topics", "identifier": "x"}, "Topics needs topics"),
        ({"event_type": "Topics", "topics": ["x"] * 65}, "at most"),
        ({"event_type": "Topics", "topics": ["x" * 4097]}, "at most"),
        ({"event_type": "Topics", "topics": ["x" * 1000] * 4, "identifier": "x" * 97}, "at most"),
        ({"event_type": "Topics", "topics": ["hex:0"]}, "unreadable topic"),
        ({"event_type": "Topics", "topics": ["base64:!"]}, "unreadable topic"),
    ],
)
def test_refusals(wish: dict[str, object], words: str) -> None:
    """A wish that its level cannot mean is refused with words that say why."""
    with pytest.raises(FilterError, match=words):
        parse(SubscribeEvent(**wish))  # type: ignore[arg-type]
