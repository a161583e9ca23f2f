"""What an event becomes on the service bus."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.brokers.bus_messages import messages
from millrace.notifier.brokers.item import Item
from millrace.notifier.settings import BUS_KINDS

from ..helpers import add_log, save_block

TOPICS = {kind: kind for kind in BUS_KINDS}
SHARDS = st.integers(0, 2**32 - 1)
EVENTS = st.builds(
    pb.Event,
    address=st.binary(max_size=40) | st.binary(min_size=32, max_size=32) | st.just(bytes(500)),
    identifier=st.binary(max_size=12) | st.just(b"\xff" * 3000) | st.text(max_size=9).map(str.encode),
    topics=st.lists(st.binary(max_size=5), max_size=3),
    data=st.binary(max_size=9),
)
LOGS = st.lists(st.tuples(st.text("0123456789abcdef", max_size=70), st.lists(EVENTS, max_size=5)), max_size=5)


def item(block: pb.OutportBlock, sequence: int = 7, marks: int = 0) -> Item:
    """The block as the journal holds it."""
    identity = f"SaveBlock:{block.shardID}:{block.blockData.headerHash.hex()}:1"
    return Item(sequence, outport.SAVE_BLOCK, block.shardID, marks, identity, block.SerializeToString())


@given(SHARDS, LOGS, st.integers(0, 7))
def test_blocks(shard: int, logs: list[tuple[str, list[pb.Event]]], marks: int) -> None:
    """A block and each of its events is one message: whole, in order, with its own id, within the bus's limits."""
    block = save_block(shard, 1)
    for transaction, events in logs:
        add_log(block, transaction, events)
    whole, *parts = messages(item(block, marks=marks), TOPICS)
    assert (whole.topic, whole.session_id) == ("SaveBlock", str(shard))
    assert pb.OutportBlock.FromString(whole.body) == block
    told = [(transaction, event) for transaction, events in logs for event in events]
    assert [(one.properties["OriginalTxHash"], pb.Event.FromString(one.body)) for one in parts] == told
    everything = [whole, *parts]
    assert len({one.message_id for one in everything}) == len(everything)
    for one in everything:
        assert 0 < len(one.session_id) <= 128 and 0 < len(one.message_id) <= 128
        assert sum(map(len, one.properties.values())) < 16 * 1024
        assert one.properties["Sequence"] == "7" and one.properties.get("Marks", "0") == str(marks)


@given(st.lists(EVENTS, min_size=2, max_size=9))
def test_sessions(events: list[pb.Event]) -> None:
    """Events share a session exactly when they are of one account."""
    block = save_block(1, 1)
    add_log(block, "aa", events)
    parts = list(messages(item(block), {"Event": "Event"}))
    accounts = {(event.address, one.session_id) for event, one in zip(events, parts, strict=True)}
    assert len(accounts) == len({account for account, _ in accounts}) == len({session for _, session in accounts})


@given(st.sampled_from(sorted(outport.PAYLOADS)), st.sets(st.sampled_from(BUS_KINDS), min_size=1))
def test_wanted_kinds(topic: str, wanted: set[str]) -> None:
    """Only the kinds that have a topic become messages, each on its own."""
    payload = save_block(0, 1).SerializeToString() if topic == outport.SAVE_BLOCK else b"x"
    event = Item(1, topic, 0, 0, f"{topic}:0:aa:1", payload)
    sent = list(messages(event, {kind: f"{kind}-topic" for kind in wanted}))
    assert [one.topic for one in sent] == ([f"{topic}-topic"] if topic in wanted else [])


def test_gap() -> None:
    """A gap goes to every topic once, in a session of its own."""
    gap = Item(9, "gap", None, 0, "gap:5:9", b"body")
    sent = list(messages(gap, {"SaveBlock": "b", "Event": "a", "Settings": "b"}))
    assert [(one.topic, one.session_id, one.message_id, one.body) for one in sent] == [
        (topic, "gap", "gap:5:9", b"body") for topic in ("a", "b")
    ]


def test_without_body() -> None:
    """What stands in for a message that is too large has its session, its id and the reason."""
    (whole, *_) = messages(item(save_block(0, 1)), TOPICS)
    short = whole.without_body("too large")
    assert (short.session_id, short.message_id) == (whole.session_id, whole.message_id)
    assert short.body == b"" and short.properties == {**whole.properties, "Omitted": "too large"}
