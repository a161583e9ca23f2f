"""What nodes of two versions tell is compared by what both know."""

from __future__ import annotations

import random

import pytest
from google.protobuf.message import Message

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.rules import comparing, slices
from millrace.notifier.rules.comparing import Comparing, Digests
from millrace.notifier.rules.messages import content_digest

from .test_slices import BLOCKS, full_block

UNKNOWN = b"\xfa\x3e\x01x"
"""A field 1007, which no message has."""


def digests(comparing_: Comparing, block: pb.OutportBlock) -> Digests:
    sliced, payload, _ = slices.cut(block.SerializeToString(), block)
    return comparing_.digests(block, sliced, payload)


def parts_of(message: Message) -> list[Message]:
    """A message and all messages in it."""
    found = [message]
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            values = value.values() if field.message_type.fields_by_name["value"].message_type else ()
        else:
            values = value if field.is_repeated else (value,)
        for item in values:
            found += parts_of(item)
    return found


@pytest.mark.parametrize("name", BLOCKS)
def test_a_field_nobody_knows_anywhere(name: str) -> None:
    """Wherever a newer node writes one field more, a closer look finds the digests that the older one has."""
    chance, plain = random.Random(name), pb.OutportBlock.FromString(bytes.fromhex(BLOCKS[name]))
    told = digests(Comparing(), plain)
    for _ in range(20):
        block = pb.OutportBlock.FromString(bytes.fromhex(BLOCKS[name]))
        chance.choice(parts_of(block)).MergeFromString(UNKNOWN)
        newer = digests(Comparing(), block)
        assert newer.closer() == told.whole == told.closer()
        assert {key: newer.closer(key) for key in newer.results} == told.results
        assert UNKNOWN in block.SerializeToString(), "the block is as it was"


def test_what_is_known_still_counts() -> None:
    """A closer look at blocks that differ in what is known finds that they do."""
    mine, theirs = full_block(), full_block()
    theirs.transactionPool.logs[0].log.events[0].topics.append(b"y")
    theirs.transactionPool.logs[0].MergeFromString(UNKNOWN)
    assert digests(Comparing(), mine).closer() != digests(Comparing(), theirs).closer()


def test_how_long_it_is_looked_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of nodes that agree are never looked at closely; after a reason for it a bounded number is."""
    monkeypatch.setattr(comparing, "_CLOSELY", 3)
    looks: list[Digests] = []
    look = Digests.look
    monkeypatch.setattr(Digests, "look", lambda self: (looks.append(self), look(self))[1])
    one, plain, newer = Comparing(), full_block(), full_block()
    newer.transactionPool.logs[0].MergeFromString(UNKNOWN)
    for block in (plain, newer, plain):
        digests(one, block)
    assert not looks
    digests(one, newer).closer()
    assert len(looks) == 1
    for block, expected in ((plain, 2), (newer, 3), (plain, 4), (plain, 5), (plain, 6), (plain, 6)):
        digests(one, block)
        assert len(looks) == expected, "what was found puts the end off"


def test_messages_of_no_block() -> None:
    """Two nodes' rounds, settings and the like are compared by what is known, too."""
    rounds = pb.RoundsInfo(shardID=1, roundsInfo=[pb.RoundInfo(round=5)])
    newer = pb.RoundsInfo.FromString(rounds.SerializeToString() + UNKNOWN)
    newer.roundsInfo[0].MergeFromString(UNKNOWN)
    assert content_digest(newer) == content_digest(rounds)
    assert UNKNOWN in outport.canonical(newer)
