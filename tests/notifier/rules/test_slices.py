"""Blocks cut into parts that are passed on, and the digests that nodes agree on."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.slices_pb2 import SlicedBlock
from millrace.notifier.rules import slices

from ..helpers import event, proposal, ran, save_block


def _vectors(name: str) -> dict[str, Any]:
    return json.loads((Path(__file__).parents[2] / "vectors" / name).read_text())  # type: ignore[no-any-return]


BLOCKS: dict[str, str] = {
    vector["name"]: vector["protobufHex"]
    for vector in _vectors("outport.json")["messages"]
    if vector["message"] == "OutportBlock"
} | {
    vector["name"]: vector["payload"]
    for vector in _vectors("supernova.json")["vectors"]
    if vector["topic"] == outport.SAVE_BLOCK
}
"""What real nodes wrote, in hex."""


def full_block() -> pb.OutportBlock:
    block = save_block(1, 5, events=[event(b"\1" * 32, "swap", b"x")])
    block.highestFinalBlockNonce, block.highestFinalBlockHash = 4, b"f" * 32
    block.signersIndexes.extend((1, 2, 3))
    block.blockData.proof.aggregatedSignature = b"s" * 48
    for name in ("b", "a"):
        block.alteredAccounts[name].balance = "1"
    return block


def cut(block: pb.OutportBlock) -> SlicedBlock:
    return slices.cut(block.SerializeToString(), block)[0]


def digest_of(block: pb.OutportBlock) -> bytes:
    return slices.block_digest(*slices.cut(block.SerializeToString(), block)[:2])


HONEST: list[Callable[[pb.OutportBlock], object]] = [
    lambda block: setattr(block, "highestFinalBlockNonce", 3),
    lambda block: block.ClearField("highestFinalBlockHash"),
    lambda block: block.signersIndexes.append(9),
    lambda block: setattr(block.blockData.proof, "pubKeysBitmap", b"\xff"),
    lambda block: block.blockData.ClearField("proof"),
]
REAL: list[Callable[[pb.OutportBlock], object]] = [
    lambda block: setattr(block.alteredAccounts["a"], "balance", "2"),
    lambda block: block.transactionPool.logs[0].log.events[0].topics.append(b"y"),
    lambda block: setattr(block.blockData, "timestampMs", 1),
    lambda block: setattr(block, "leaderIndex", 8),
]


@pytest.mark.parametrize("change", HONEST)
def test_honest_differences_do_not_count(change: Callable[[pb.OutportBlock], object]) -> None:
    """Two nodes that differ in how far finality had come or whose signatures they had tell the same."""
    mine, theirs = full_block(), full_block()
    change(theirs)
    sliced, payload, _ = slices.cut(theirs.SerializeToString(), theirs)
    assert digest_of(mine) == slices.block_digest(sliced, payload)
    assert sliced.SerializeToString() == outport.canonical(theirs), "the block is as it was"


@pytest.mark.parametrize("name", BLOCKS)
def test_the_digest_is_that_of_the_block_encoded_without_what_differs(name: str) -> None:
    """What is hashed as it came is what the block encodes to, so journals of earlier versions know a block again."""
    block = pb.OutportBlock.FromString(bytes.fromhex(BLOCKS[name]))
    told = digest_of(block)
    for field in ("highestFinalBlockNonce", "highestFinalBlockHash", "signersIndexes"):
        block.ClearField(field)  # type: ignore[arg-type]
    block.blockData.ClearField("proof")
    assert told == slices.digest(outport.canonical(block))


@pytest.mark.parametrize("name", BLOCKS)
def test_no_two_contents_have_one_digest(name: str) -> None:
    """Whatever is changed in a block, left out of it or put into it: where what counts differs, the digest does."""
    payload, chance, contents = bytes.fromhex(BLOCKS[name]), random.Random(name), dict[bytes, bytes]()
    for _ in range(500):
        first, last = sorted(chance.choices(range(len(payload) + 1), k=2))
        at = chance.choice([0, first, len(payload)])
        odd = chance.choice([
            payload[:first] + chance.randbytes(1) + payload[first + 1 :],
            payload[:at] + bytes((chance.randrange(15) << 3,)) + chance.randbytes(1) + payload[at:],
            payload[:at] + payload[first:last] + payload[at:],
            payload[:first] + payload[last:],
        ])  # fmt: skip
        try:
            block = pb.OutportBlock.FromString(odd)
            told = slices.block_digest(*slices.cut(odd, block)[:2])
        except DecodeError:
            continue
        for field in ("highestFinalBlockNonce", "highestFinalBlockHash", "signersIndexes"):
            block.ClearField(field)  # type: ignore[arg-type]
        block.blockData.ClearField("proof")
        content = outport.canonical(block)
        assert contents.setdefault(told, content) == content
    assert len(contents) > 10


def test_fields_in_another_order_are_compared_too() -> None:
    """A block whose first field stands at the end is the same block."""
    block = full_block()
    payload = outport.canonical(block)
    late = pb.OutportBlock(shardID=block.shardID).SerializeToString()
    turned = payload[len(late) :] + late
    assert turned != payload and pb.OutportBlock.FromString(turned) == block
    assert slices.block_digest(*slices.cut(turned, block)[:2]) == digest_of(block)


@pytest.mark.parametrize("change", REAL)
def test_real_differences_count(change: Callable[[pb.OutportBlock], object]) -> None:
    """Any other difference is a disagreement."""
    mine, theirs = full_block(), full_block()
    change(theirs)
    assert digest_of(mine) != digest_of(theirs)


def test_order_of_map_entries_does_not_count() -> None:
    """The order in which a node writes a map says nothing."""
    one, other = pb.OutportBlock(), pb.OutportBlock()
    for block, names in ((one, "abc"), (other, "cba")):
        for name in names:
            block.alteredAccounts[name].nonce = ord(name)
    assert digest_of(one) == digest_of(other)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_nodes_block_is_put_together_byte_for_byte(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node wrote is cut as it came, without being encoded again, and is the same behind it."""
    payload = bytes.fromhex(BLOCKS[name])
    block = pb.OutportBlock.FromString(payload)
    monkeypatch.setattr(outport, "canonical", lambda _: b"")
    assert slices.cut(payload, block)[0].SerializeToString() == payload


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (1, 1)])
def test_a_key_that_comes_twice_leaves_once(order: tuple[int, int]) -> None:
    """Of two entries of a map with one key the later one counts, for whoever decodes the block after us, too."""
    payload = b""
    for nonce in order:
        block = pb.OutportBlock()
        block.alteredAccounts["ab"].nonce = nonce
        payload += block.SerializeToString()
    told = slices.cut(payload, pb.OutportBlock.FromString(payload))
    assert told.block.SerializeToString() == told.payload == outport.canonical(block)


@given(st.lists(st.text(max_size=130), min_size=2, max_size=6, unique=True), st.sampled_from(range(5)))
def test_maps_leave_in_the_order_of_their_keys(keys: list[str], place: int) -> None:
    """In whatever order the entries of whichever map come, they leave in Go's, as the block encoded again has them."""
    block = full_block()
    result = block.blockData.results["ee" * 32]
    pools = block.transactionPool, result.transactionPool
    maps: list[Any] = [block.alteredAccounts, result.alteredAccounts, block.blockData.results]
    maps += [pools[0].smartContractResults, pools[1].unexecutableTransactions]
    for key in keys:
        maps[place][key].SetInParent()
    for payload in (block.SerializeToString(), outport.canonical(block)):
        assert slices.cut(payload, block)[0].SerializeToString() == outport.canonical(block)


def test_honest_differences_of_proposals_do_not_count() -> None:
    """Accounts of results, transactions that were not executable and storage accesses differ among honest nodes."""
    executed = proposal(1, 5)
    mine, theirs, liar = (proposal(1, 6, ran=[ran(executed, event(b"\1" * 32, "swap"))]) for _ in range(3))
    (key,) = mine.blockData.results
    theirs.blockData.results[key].alteredAccounts["a"].balance = "2"
    theirs.blockData.results[key].transactionPool.unexecutableTransactions["bb"].nonce = 1
    theirs.stateAccessesForBlock.append(b"\0")
    theirs.signersIndexes.append(3)
    liar.blockData.results[key].transactionPool.logs[0].log.events[0].data = b"another"
    sliced = cut(theirs)
    assert slices.proposal_digests(cut(mine)) == slices.proposal_digests(sliced)
    assert sliced.SerializeToString() == outport.canonical(theirs), "the block is as it was"
    whole, results = slices.proposal_digests(cut(liar))
    assert whole != slices.proposal_digests(sliced)[0] and results != slices.proposal_digests(sliced)[1]
