"""Hashes of transfers: equal for what two shards tell of one, whoever wrote the bytes."""

from __future__ import annotations

import random

from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.slices_pb2 import SlicedLog, SlicedLogData
from millrace.notifier.rules.raw_events import TRANSFERS, hash_of, identifier_of, transfers_of

NAMES = [*sorted(TRANSFERS), b"", b"transfer", b"swap"]


def parts_of(rng: random.Random) -> list[bytes]:
    """The fields of an event, each encoded by itself."""
    event = pb.Event(address=rng.randbytes(2), identifier=rng.choice(NAMES), data=rng.randbytes(3))
    topics = [pb.Event(topics=[rng.randbytes(rng.randrange(3))]).SerializeToString() for _ in range(rng.randrange(4))]
    return [
        pb.Event(address=event.address).SerializeToString(),
        pb.Event(identifier=event.identifier).SerializeToString(),
        *topics,
        pb.Event(data=event.data).SerializeToString(),
    ]


def test_all_logs_at_once() -> None:
    """Of many logs, with events that are empty, of strange names or with fields twice, each has its own transfers."""
    rng = random.Random(3)
    for _ in range(50):
        told = [
            [b"".join(parts_of(rng) * rng.choice((1, 1, 2))) if rng.random() < 0.9 else b"" for _ in range(count)]
            for count in rng.choices(range(5), k=6)
        ]
        logs = [SlicedLogData(txHash="a", log=SlicedLog(events=events)).SerializeToString() for events in told]
        assert transfers_of(logs) == [
            [hash_of(event) for event in events if identifier_of(event) in TRANSFERS] for events in told
        ]


def test_what_a_hash_is_of() -> None:
    """Address, identifier and topics in their order; not data, fields of later versions, or the order of the fields."""
    event = pb.Event(address=b"a", identifier=b"ESDTTransfer", topics=[b"x", b"", b"y"], data=b"1")
    raw = event.SerializeToString()
    same = [
        pb.Event(address=b"a", identifier=b"ESDTTransfer", topics=[b"x", b"", b"y"], additionalData=[b"2"]),
        pb.Event.FromString(raw + b"\x4a\x01z"),
    ]
    other = [
        pb.Event(address=b"b", identifier=b"ESDTTransfer", topics=[b"x", b"", b"y"]),
        pb.Event(address=b"a", identifier=b"ESDTTransfer", topics=[b"x", b"y"]),
        pb.Event(address=b"a", identifier=b"ESDTTransfer", topics=[b"", b"x", b"y"]),
        pb.Event(address=b"a", identifier=b"ESDTNFTTransfer", topics=[b"x", b"", b"y"]),
    ]
    assert {hash_of(one.SerializeToString()) for one in same} == {hash_of(raw)}
    topics, rest = pb.Event(topics=event.topics), pb.Event(address=b"a", identifier=b"ESDTTransfer")
    assert hash_of(topics.SerializeToString() + rest.SerializeToString()) == hash_of(raw)
    assert len({hash_of(one.SerializeToString()) for one in (event, *other)}) == 1 + len(other)
