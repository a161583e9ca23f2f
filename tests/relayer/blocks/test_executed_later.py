"""Proposals and results as real nodes made them, and such as no node should make."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from relayer_later import Executed, LaterMaker, results_of
from relayer_support import NETWORK, BlockMaker, transfer, wallet

from millrace.chain import outport
from millrace.chain.outport import OutportError
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import chain_hash
from millrace.relayer.blocks.facts import BlockFacts, TxFact, join, judge
from millrace.relayer.blocks.reader import read_block, read_result
from millrace.relayer.blocks.tracker import Tracker

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "supernova.json").read_text())
KINDS: dict[str, str] = VECTORS["txKinds"]


def vector(name: str) -> pb.OutportBlock:
    (found,) = [item for item in VECTORS["vectors"] if item["name"] == name]
    return pb.OutportBlock.FromString(bytes.fromhex(found["payload"]))


def read_results(block: pb.OutportBlock) -> list[BlockFacts]:
    return [read_result(item, NETWORK) for item in results_of(block)]


def by_kind(results: Iterable[BlockFacts]) -> dict[str, TxFact]:
    """What results together say of each kind of transaction; of the synthetic ones nobody says which they are."""
    joined: dict[bytes, TxFact] = {}
    for fact in [fact for result in results for fact in result.transactions]:
        joined[fact.tx_hash] = join(joined.get(fact.tx_hash, TxFact(fact.tx_hash)), fact)
    return {KINDS.get(tx_hash.hex(), "synthetic"): fact for tx_hash, fact in joined.items()}


def test_a_proposal_says_nothing_of_execution() -> None:
    """Of what it proposes it names its own accounts' transactions alone, and of others' results which they are."""
    block = read_block(vector("real-shard0-58"), NETWORK)
    assert block.proposes and (block.nonce, block.last_executed, len(block.lists)) == (58, 57, 1)
    assert {KINDS[tx_hash.hex()] for tx_hash in block.sent} == {
        "transfer-intra", "transfer-cross", "transfer-extra-gas", "transfer-to-meta",
    }  # fmt: skip
    assert block.transactions == block.accounts == block.gas_prices == () and block.executed == 0
    assert block.header is not None and (block.header.tx_count, block.header.accumulated_fees) == (4, "0")
    assert block.timestamp_ms == 1_795_343_141_800 and block.signers > 0
    arriving = read_block(vector("real-shard1-61"), NETWORK)
    assert arriving.sent == frozenset(), "what arrives was executed by its sender's shard"


def test_results_say_what_was_executed() -> None:
    """Transfers, calls, relayed calls and call-backs end as in the earlier formats, by their results alone."""
    names = ("real-shard1-62", "real-shard0-101", "real-shard0-104", "real-shard0-107")
    facts = by_kind(result for name in names for result in read_results(vector(name)))
    assert {kind: judge(fact) for kind, fact in facts.items()} == {
        "transfer-cross": "success", "call-intra": "success", "call-nofunc-intra": "fail", "relayed-intra": "success",
        "async-cross": "fail", "async-cross-fail": "fail", "call-cross": "success", "call-nofunc-cross": "fail",
        "relayed-call-fail-cross": "fail", "call-oog-cross": "fail", "call-notpayable-cross": "success",
    }  # fmt: skip
    (result,) = read_results(vector("real-shard0-101"))
    assert (result.nonce, result.carrier, result.order) == (100, 101, (101, 100))
    assert result.settled == {fact.tx_hash for fact in result.transactions} and len(result.gas_prices) == 5
    assert len(result.absent) == 1, "the relayer paid, and is not among the accounts"
    first = by_kind([result])
    assert first["async-cross"].results_out and judge(first["async-cross"]) is None, "its call is elsewhere"


def test_several_results_in_one_header() -> None:
    """Each is its own block with its own time; invalid is failed with its nonce used, unexecutable is neither."""
    results = read_results(vector("synthetic-three-results-104"))
    assert [(item.nonce, item.carrier, item.timestamp_ms) for item in results] == [
        (100, 104, 1_789_064_100_000), (101, 104, 1_789_064_100_600), (102, 104, 1_789_064_101_800),
    ]  # fmt: skip
    (missed,) = results[0].unexecutable
    assert missed.timestamp_ms == results[0].timestamp_ms
    assert missed.tx_hash not in {fact.tx_hash for fact in results[0].transactions}
    (invalid,) = [fact for fact in results[2].transactions if fact.failed]
    assert invalid.included and not invalid.executed and "insufficient funds" in invalid.failed


def test_vectors_of_a_replaced_header() -> None:
    """What a reverted header brought counts when another brings it again; what that one leaves out still waits."""
    first, second = vector("synthetic-three-results-104"), vector("synthetic-replacement-104b")
    tracker = Tracker()
    tracker.save(read_block(first, NETWORK), 1, 0.0)
    for sequence, result in enumerate(read_results(first), 2):
        tracker.execute(result, sequence, 0.0)
    assert tracker.revert(1, first.blockData.headerHash)
    tracker.save(read_block(second, NETWORK), 5, 0.0)
    release = tracker.finalise(1, second.blockData.headerHash, 0.0)
    assert [(block.nonce, block.accounts) for block in release.blocks] == [(100, ()), (101, ())]
    assert [item.tx_hash for item in release.unexecutable] == [read_results(first)[0].unexecutable[0].tx_hash]
    assert release.outcomes == (), "one goes on elsewhere, the others are of block 102"
    assert tracker.low_water == 2, "the results of 100 and 101 have no proposal here, that of 102 no header"


def test_the_change_over() -> None:
    """The last block of the earlier format tells its own execution, the first of the present one brings none."""
    last, first = vector("real-shard0-44"), vector("real-shard0-45")
    tracker = Tracker()
    for sequence, (block, sent) in enumerate(((last, 1), (first, 0)), 1):
        facts = read_block(block, NETWORK)
        assert facts.proposes != bool(sent) and facts.timestamp_ms > 1_795_343_000_000, "in milliseconds"
        tracker.save(facts, sequence, 0.0)
    assert read_block(first, NETWORK).prev_hash == last.blockData.headerHash
    release = tracker.finalise(0, first.blockData.headerHash, 0.0)
    assert [block.nonce for block in release.blocks] == [44]
    assert tracker.low_water == 2, "the first one's own result is still to come"


def test_an_earlier_transaction_ends_in_a_result() -> None:
    """A transaction that left its shard in the earlier format arrives in the present one, and ends once."""
    tx = transfer(wallet(1), receiver=wallet(2, 20).public)
    before = BlockMaker(1).block([tx])
    maker = LaterMaker(2, nonce=44)
    arrives = maker.propose([tx], last_executed=44)
    brings = maker.propose([], [maker.execute(arrives, [tx])])
    tracker = Tracker()
    tracker.save(read_block(before, NETWORK), 1, 0.0)
    assert [item.tx_hash for item in tracker.finalise(1, before.blockData.headerHash, 0.0).included] == [chain_hash(tx)]
    for sequence, block in enumerate((arrives, brings), 2):
        tracker.save(read_block(block, NETWORK), sequence, 0.0)
    (result,) = read_results(brings)
    assert tracker.execute(result, 4, 0.0).outcomes == ()
    (outcome,) = tracker.finalise(2, brings.blockData.headerHash, 0.0).outcomes
    assert (outcome.tx_hash, outcome.status) == (chain_hash(tx), "success")


def test_row_41_proposals_that_prove_nothing() -> None:
    """What the header's hash does not stand for is not believed: no list of results, no proposed transaction."""
    maker, tx = LaterMaker(1), transfer(wallet(1))
    block = maker.propose([tx], [maker.execute(maker.propose())])
    assert read_block(block, NETWORK).sent == {chain_hash(tx)}
    made_up = pb.OutportBlock.FromString(block.SerializeToString())
    made_up.blockData.body.miniBlocks[0].txHashes.append(b"\7" * 32)
    assert read_block(made_up, NETWORK).sent == frozenset()
    made_up.blockData.headerBytes += b"\x08\x01"
    with pytest.raises(OutportError, match="hash"):
        read_block(made_up, NETWORK)


def test_row_41_results_that_prove_nothing() -> None:
    """A result that leaves out part of what its header names does not say what was not executed."""
    maker, tx = LaterMaker(1), transfer(wallet(1))
    proposed = maker.propose([tx])
    (whole,) = results_of(maker.propose([], [maker.execute(proposed, [tx])]))
    assert read_result(whole, NETWORK).settled == {chain_hash(tx)}
    whole.blockData.body.ClearField("miniBlocks")
    assert read_result(whole, NETWORK).settled is None
    whole.carryingHeaderNonce = 1
    with pytest.raises(OutportError, match="in header 1"):
        read_result(whole, NETWORK)
    whole.blockData.headerType = "HeaderV3"
    with pytest.raises(OutportError, match="without the header"):
        read_result(whole, NETWORK)


def test_row_41_results_that_leave_something_out() -> None:
    """What is left of a result's miniblocks is executed as the header says; one that comes twice is no other one."""
    maker, txs = LaterMaker(1), [transfer(wallet(1)), transfer(wallet(1), 1, receiver=wallet(2, 20).public)]
    made = maker.execute(maker.propose(txs), txs)
    for named, last in zip(made.listed.miniBlockHeaders, (0, 0), strict=True):
        named.reserved = pb.MiniBlockHeaderReserved(indexOfLastTxProcessed=last).SerializeToString()
    made.listed.miniBlockHeaders[0].reserved = pb.MiniBlockHeaderReserved(
        indexOfFirstTxProcessed=1, indexOfLastTxProcessed=1
    ).SerializeToString()
    (told,) = results_of(maker.propose([], [made]))
    miniblocks = told.blockData.body.miniBlocks
    del miniblocks[0]
    result = read_result(told, NETWORK)
    assert [fact.tx_hash for fact in result.transactions] == [chain_hash(txs[1])] and result.settled is None
    miniblocks.add().CopyFrom(miniblocks[0])
    assert read_result(told, NETWORK).settled is None


def test_row_41_invalid_without_a_miniblock() -> None:
    """What stands among the invalid transactions has failed, whether or not a miniblock names it, too."""
    maker, tx = LaterMaker(1), transfer(wallet(1))
    (told,) = results_of(maker.propose([], [maker.execute(maker.propose([tx]), invalid=[tx])]))
    whole = read_result(told, NETWORK)
    told.blockData.ClearField("intraShardMiniBlocks")
    assert read_result(told, NETWORK) == whole and judge(whole.transactions[0]) == "fail"
    assert whole.transactions[0].included


@pytest.mark.parametrize("part", ["message", "data", "header"])
def test_row_41_results_of_two_shards(part: str) -> None:
    """A proposal, or a result, whose parts are not of one shard says nothing."""
    maker = LaterMaker(1)
    proposed = maker.propose(fork=1)
    for shards in ((2, 1), (1, 2), (2, 2)):
        proposed.shardID, proposed.blockData.shardID = shards
        with pytest.raises(OutportError, match="a block of shard"):
            read_block(proposed, NETWORK)
    (told,) = results_of(maker.propose([], [maker.execute(maker.propose())]))
    if part == "header":
        header = pb.HeaderV2.FromString(told.blockData.headerBytes)
        header.header.shardID = 2
        told.blockData.headerBytes = header.SerializeToString()
    else:
        (told if part == "message" else told.blockData).shardID = 2
    with pytest.raises(OutportError, match="shard"):
        read_result(told, NETWORK)


def test_row_41_what_no_header_can_list() -> None:
    """Of what a header lists only so much is held as the notifier looks at: possible executions, 1,024 of them."""
    maker = LaterMaker(1, nonce=9)
    good = maker.execute(maker.propose())
    impossible = [
        pb.ExecutionResult(baseExecutionResult=pb.BaseExecutionResult(headerHash=name, headerNonce=nonce))
        for name, nonce in ((b"short", 3), (b"\7" * 32, 11), (b"\7" * 32, 12))
    ]
    many = [
        pb.ExecutionResult(baseExecutionResult=pb.BaseExecutionResult(headerHash=number.to_bytes(32), headerNonce=3))
        for number in range(6_000)
    ]
    for listed, expected in (((*impossible, good.listed), 1), (many, 1_024)):
        block = maker.propose([], [Executed(each, good.data) for each in listed], fork=1)
        lists = read_block(block, NETWORK).lists
        assert len(lists) == expected
    assert read_block(maker.propose([], [good]), NETWORK).lists == (good.listed.baseExecutionResult.headerHash,)


def test_row_41_named_unexecutable_and_executed() -> None:
    """A transaction that a result names both ways was executed."""
    maker, tx = LaterMaker(1), transfer(wallet(1))
    (told,) = results_of(maker.propose([], [maker.execute(maker.propose([tx]), [tx], unexecutable=[tx])]))
    result = read_result(told, NETWORK)
    assert result.unexecutable == () and result.executed == 1
    told.transactionPool.unexecutableTransactions["no hash"].nonce = 1
    assert read_result(told, NETWORK).unexecutable == ()


def test_the_made_up_header_is_no_ancestor() -> None:
    """The header in a result is made from what a later one says, so it links to nothing and hashes to nothing."""
    (told,) = results_of(vector("real-shard1-62"))
    assert outport.decode_header(told.blockData.headerType, told.blockData.headerBytes) is not None
    assert read_result(told, NETWORK).prev_hash == b""
