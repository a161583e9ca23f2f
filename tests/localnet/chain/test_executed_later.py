"""Blocks that are proposed first and executed later: what headers tell, when, and what never happens twice."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pytest

from millrace.chain import outport
from millrace.chain.address import decode, encode
from millrace.chain.call import TokenPayment
from millrace.chain.fees import initially_paid_fee
from millrace.chain.headers import Header, read_header
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.token import NATIVE
from millrace.localnet.chain.processor import Processor
from millrace.localnet.chain.shard import MAX_PROPOSED

EGLD = 10**18
TOKEN = "USDC-c76f1f"
META = 0xFFFFFFFF


def header_of(block: pb.OutportBlock) -> Header:
    """The header of a block whose bytes hash to its hash."""
    header = read_header(block.blockData)
    assert header is not None
    return header


def told_nonces(blocks: list[pb.OutportBlock]) -> list[list[int]]:
    """The numbers of the executions that each header tells."""
    return [[execution.nonce for execution in header_of(block).executions] for block in blocks]


def test_a_header_proposes_and_tells_the_execution_of_the_one_before(make_present: Any, wallet: Any) -> None:
    """One outgoing miniblock is proposed, the execution splits it by receiver; nothing stands at the top level."""
    bench = make_present()
    key = wallet(0)
    bench.give(key)
    sent = [bench.chain.submit(bench.tx(key, wallet(to, 1).public, 5, nonce=to)) for to in range(3)]
    first, second = bench.saved(bench.rounds(2), shard=0)
    for block in (first, second):
        assert block.transactionPool == pb.TransactionPool() and block.HasField("transactionPool")
        assert not block.HasField("headerGasConsumption") and not block.signersIndexes and not block.alteredAccounts
        assert not block.blockData.intraShardMiniBlocks
        assert block.blockData.headerType == "HeaderV3"
        assert blake2b(block.blockData.headerBytes, digest_size=32).digest() == block.blockData.headerHash
        proof, header = block.blockData.proof, header_of(block)
        assert (proof.headerHash, proof.headerNonce) == (block.blockData.headerHash, header.nonce)
        assert (proof.headerRound, proof.headerEpoch, proof.headerShardId) == (header.round, header.epoch, 0)
        assert proof.pubKeysBitmap and proof.aggregatedSignature
        assert header.timestamp_ms == block.blockData.timestampMs
    header = header_of(first)
    (proposed,) = header.miniblocks
    assert (proposed.senderShardID, proposed.receiverShardID, proposed.txCount) == (0, 0, 3)
    assert proposed.reserved == b"\x10\x01" and header.tx_count == 3
    assert [list(mini.txHashes) for mini in first.blockData.body.miniBlocks] == [sent]
    (execution,) = header_of(second).executions
    assert (execution.block_hash, execution.nonce, execution.round) == (
        first.blockData.headerHash,
        header.nonce,
        header.round,
    )
    result = second.blockData.results[first.blockData.headerHash.hex()]
    assert (result.headerNonce, result.timestampMs) == (header.nonce, header.timestamp_ms)
    assert {(mini.senderShardID, mini.receiverShardID) for mini in result.body.miniBlocks} == {(0, 0), (0, 1), (0, 2)}
    assert [mini.hash for mini in execution.miniblocks] == [_digest(mini) for mini in result.body.miniBlocks]
    assert set(result.transactionPool.transactions) == {tx_hash.hex() for tx_hash in sent}
    assert execution.tx_count == 3 and execution.accumulated_fees > 0
    assert result.headerGasConsumption.gasProvided == 150_000
    assert header_of(second).last_executed_nonce == header.nonce


def _digest(mini: pb.MiniBlock) -> bytes:
    return blake2b(mini.SerializeToString(), digest_size=32).digest()


def test_events_are_those_of_live_nodes(make_present: Any, wallet: Any) -> None:
    """A header is final before it is saved, and every event is canonical, the first header telling nothing."""
    bench = make_present()
    bench.give(wallet(0))
    for shard in (0, 1, 2, META):
        own = [event for event in bench.events if event.shard == shard]
        assert [event.topic for event in own[:3]] == ["FinalizedBlock", "SaveBlock", "SaveRoundsInfo"]
        for final, saved in zip(own[0::3], own[1::3], strict=True):
            block = pb.OutportBlock.FromString(saved.payload)
            assert pb.FinalizedBlock.FromString(final.payload).headerHash == block.blockData.headerHash
            assert outport.serialize(pb.OutportBlock.FromString(saved.payload)) == saved.payload
        blocks = bench.saved(shard=shard)
        assert told_nonces(blocks) == [[], *([number] for number in range(1, len(blocks)))]
        assert [header_of(block).last_executed_nonce for block in blocks] == list(range(len(blocks)))


def test_between_shards_it_takes_three_blocks_to_the_next_proposal(make_present: Any, wallet: Any) -> None:
    """Proposed in N, executed in N+1, named by the metachain in N+2, proposed again in N+3, executed in N+4."""
    bench = make_present()
    bench.give(wallet(0))
    tx_hash = bench.chain.submit(bench.tx(wallet(0), wallet(2).public, 5))
    start = bench.chain.round
    bench.rounds(5)
    proposed = {
        (block.shardID, header_of(block).round - start)
        for block in bench.saved()
        if any(tx_hash in mini.txHashes for mini in block.blockData.body.miniBlocks)
    }
    told = {
        (block.shardID, header_of(block).round - start)
        for block in bench.saved()
        if any(tx_hash.hex() in result.transactionPool.transactions for result in block.blockData.results.values())
    }
    assert proposed == {(0, 1), (2, 4)} and told == {(0, 2), (2, 5)}
    named = [
        header_of(block).round - start
        for block in bench.saved(shard=META)
        for data in pb.MetaBlockV3.FromString(block.blockData.headerBytes).shardInfo
        if data.shardID == 0 and any(mini.receiverShardID == 2 for mini in data.shardMiniBlockHeaders)
    ]
    assert named == [3]


@pytest.mark.parametrize("delay", [1, 2, 5, 20])
def test_results_come_so_many_blocks_later(make_present: Any, wallet: Any, delay: int) -> None:
    """The execution of N is told in N + delay; account and status are as executed, the virtual nonce as proposed."""
    bench = make_present(execution_delay=delay)
    key = wallet(0)
    bench.give(key)
    tx_hash = bench.chain.submit(bench.tx(key, wallet(0, 1).public, 5))
    nonce = bench.chain.shards[0].next_nonce
    for _ in range(delay):
        bench.rounds()
        assert bench.status(tx_hash) == ("pending", "")
        assert (bench.chain.account(key.public).nonce, bench.chain.virtual_nonce(key.public)) == (0, 1)
        assert bench.balance(wallet(0, 1)) == 0
    (block,) = bench.saved(bench.rounds(), shard=0)
    assert bench.status(tx_hash) == ("success", "") and bench.balance(wallet(0, 1)) == 5
    assert told_nonces([block]) == [[nonce]] and header_of(block).nonce == nonce + delay


def test_a_pause_of_execution_is_caught_up_in_order(make_present: Any, wallet: Any) -> None:
    """Meanwhile headers tell nothing; then each tells as many as may be, in order and without a hole."""
    bench = make_present()
    key = wallet(0)
    bench.give(key)
    last = bench.chain.executed_nonce(0)
    bench.chain.shards[0].executes = False
    sent = []
    for nonce in range(26):
        sent.append(bench.chain.submit(bench.tx(key, wallet(0, 1).public, 1, nonce=nonce)))
        (block,) = bench.saved(bench.rounds(), shard=0)
        assert told_nonces([block]) == [[]] and not block.blockData.results
        assert header_of(block).last_executed_nonce == last
    assert {bench.status(tx_hash)[0] for tx_hash in sent} == {"pending"}
    bench.chain.shards[0].executes = True
    told = told_nonces(bench.saved(bench.rounds(3), shard=0))
    assert [len(nonces) for nonces in told] == [20, 8, 1]
    assert [nonce for nonces in told for nonce in nonces] == list(range(last + 1, last + 30))
    assert {bench.status(tx_hash)[0] for tx_hash in sent} == {"success"}
    assert bench.balance(wallet(0, 1)) == 26


def test_a_pause_without_end_stops_the_shard_and_loses_nothing(make_present: Any, wallet: Any) -> None:
    """So many blocks are proposed and no more; what was sent meanwhile is executed once it goes on."""
    bench = make_present()
    bench.give(wallet(0))
    bench.chain.shards[0].executes = False
    tx_hash = bench.chain.submit(bench.tx(wallet(1, 9), wallet(0, 1).public, 7))
    before = bench.chain.executed_nonce(0)
    bench.rounds(MAX_PROPOSED + 50)
    assert bench.chain.block_nonce(0) == before + MAX_PROPOSED
    bench.chain.shards[0].executes = True
    bench.rounds(20)
    assert bench.status(tx_hash) == ("success", "") and bench.balance(wallet(0, 1)) == 7
    assert len(bench.chain.shards[0].blocks) < 70


def spend_inside_the_data(bench: Any, wallet: Any) -> tuple[Any, bytes, bytes, bytes]:
    """A sender whose first transaction takes nearly all its EGLD in its data, where the selection does not look."""
    key = wallet(0)
    bench.give(key)
    draft = bench.multi(key, wallet(0, 1).public, [TokenPayment(NATIVE, 0, EGLD)], gas_limit=1_000_000)
    amount = EGLD - initially_paid_fee(draft, bench.chain.network.gas) - 10
    first = bench.multi(key, wallet(0, 1).public, [TokenPayment(NATIVE, 0, amount)], gas_limit=1_000_000)
    hashes = [bench.chain.submit(first)]
    hashes += [bench.chain.submit(bench.tx(key, wallet(0, 1).public, 0, nonce=nonce)) for nonce in (1, 2)]
    return key, *hashes


def test_what_cannot_be_executed_costs_nothing(make_present: Any, wallet: Any) -> None:
    """It and what follows its nonce are proposed, then told as unexecutable: no fee, no nonce; it may come again."""
    bench = make_present()
    key, first, poor, following = spend_inside_the_data(bench, wallet)
    block = bench.step(0)
    assert set(block.transactionPool.transactions) == {first.hex()}
    told = block.transactionPool.unexecutableTransactions
    assert set(told) == {poor.hex(), following.hex()} and told[poor.hex()].nonce == 1
    assert not block.transactionPool.invalidTxs
    assert [list(mini.txHashes) for mini in block.blockData.body.miniBlocks] == [[first]]
    assert bench.chain.account(key.public).nonce == 1 == bench.chain.virtual_nonce(key.public)
    assert bench.balance(key) <= 10 + 10**16
    assert bench.status(poor) == bench.status(following) == ("fail", "not executable in block")
    bench.give(key)
    again = bench.chain.index.find(poor).tx
    assert bench.chain.submit(again) == poor and bench.status(poor) == ("pending", "")
    bench.rounds(bench.here)
    assert bench.status(poor) == ("success", "") and bench.chain.account(key.public).nonce == 2


def test_a_proposed_transaction_may_be_sent_again_and_runs_once(make_present: Any, wallet: Any) -> None:
    """Sent again while its block waits for execution, it is known; another of the same nonce is passed over."""
    bench = make_present(execution_delay=3)
    key = wallet(0)
    bench.give(key)
    tx, other = bench.tx(key, wallet(0, 1).public, 5), bench.tx(key, wallet(0, 1).public, 6)
    tx_hash = bench.chain.submit(tx)
    bench.rounds()
    assert bench.chain.submit(tx) == tx_hash and len(bench.chain.shards[0].mempool) == 0
    passed = bench.chain.submit(other)
    bench.rounds(8)
    assert bench.balance(wallet(0, 1)) == 5 and bench.status(tx_hash)[0] == "success"
    assert bench.chain.index.find(passed) is None


def test_a_second_overspending_transfer_is_never_proposed(make_present: Any, wallet: Any) -> None:
    """The first one leaves too little for it: it and those after it wait, and run when there is enough."""
    bench = make_present()
    key = wallet(0)
    bench.give(key)
    sent = [
        bench.chain.submit(bench.tx(key, wallet(0, 1).public, value, nonce=nonce))
        for nonce, value in enumerate((6 * EGLD // 10, 6 * EGLD // 10, 1))
    ]
    first, second = bench.saved(bench.rounds(2), shard=0)
    assert (header_of(first).tx_count, header_of(second).tx_count) == (1, 1)
    # In the second round nothing was under way: the second went out alone, is invalid, and costs fee and nonce.
    bench.rounds(4)
    assert [bench.status(tx_hash) for tx_hash in sent] == [
        ("success", ""),
        ("fail", "insufficient funds"),
        ("success", ""),
    ]


def test_an_invalid_transaction_stays_in_its_shard(make_present: Any, wallet: Any) -> None:
    """It is in a miniblock of its own beside the body and in one map only; fee and nonce are used, a log says why."""
    bench = make_present()
    key = wallet(0)
    bench.give(key)
    tx_hash = bench.chain.submit(bench.tx(key, wallet(1, 1).public, 10 * EGLD))
    block = bench.step(0)
    assert set(block.transactionPool.invalidTxs) == {tx_hash.hex()} and not block.transactionPool.transactions
    assert not block.blockData.body.miniBlocks
    (mini,) = block.blockData.intraShardMiniBlocks
    assert (mini.type, mini.senderShardID, mini.receiverShardID) == (pb.InvalidBlock, 0, 0)
    (log,) = block.transactionPool.logs
    assert log.txHash == tx_hash.hex() and not block.transactionPool.receipts
    assert [(event.identifier, event.topics[1]) for event in log.log.events] == [
        (b"signalError", b"insufficient funds")
    ]
    assert bench.chain.account(key.public).nonce == 1


def test_a_replacement_header_tells_the_same_executions_again(make_present: Any, wallet: Any) -> None:
    """After a revert of the header that told it, an execution is told again: the same hash, the same content."""
    bench = make_present(finality_rounds=6, execution_delay=2)
    key = wallet(0)
    bench.chain.give(key.public, NATIVE, EGLD)
    bench.rounds(40)
    tx_hash = bench.chain.submit(bench.tx(key, wallet(1, 1).public, 5))
    bench.rounds(2)
    proposing = bench.saved(shard=0)[-2]
    (carrier,) = bench.saved(bench.rounds(), shard=0)
    assert [e.block_hash for e in header_of(carrier).executions] == [proposing.blockData.headerHash]
    balance = bench.balance(key)
    events = bench.revert(0, 1)
    data = pb.BlockData.FromString(events[0].payload)
    assert data.headerHash == carrier.blockData.headerHash and data.headerBytes == carrier.blockData.headerBytes
    assert not data.results and not data.HasField("proof")
    assert bench.balance(key) == balance and bench.chain.account(key.public).nonce == 1
    (replacement,) = bench.saved(bench.rounds(), shard=0)
    assert replacement.blockData.headerHash != carrier.blockData.headerHash
    assert header_of(replacement).executions == header_of(carrier).executions
    first, second = (block.blockData.results[proposing.blockData.headerHash.hex()] for block in (carrier, replacement))
    assert first.transactionPool == second.transactionPool and first.body == second.body
    assert first.headerGasConsumption == second.headerGasConsumption
    assert bench.status(tx_hash)[0] == "pending" and bench.balance(key) == balance
    bench.rounds(40)
    assert bench.status(tx_hash) == ("success", "") and bench.balance(wallet(1, 1)) == 5


def test_a_reverted_proposal_is_executed_in_another_block(make_present: Any, wallet: Any) -> None:
    """Its execution is undone with it; its transactions wait again and are told under the new block's hash."""
    bench = make_present(finality_rounds=6)
    key = wallet(0)
    bench.chain.give(key.public, NATIVE, EGLD)
    bench.rounds(40)
    tx_hash = bench.chain.submit(bench.tx(key, wallet(0, 1).public, 5))
    bench.rounds(3)
    assert bench.balance(wallet(0, 1)) == 5
    bench.revert(0, 3)
    assert bench.balance(wallet(0, 1)) == 0 and len(bench.chain.shards[0].mempool) == 1
    bench.rounds(20)
    carrying = [block for block in bench.executed(shard=0) if tx_hash.hex() in block.transactionPool.transactions]
    assert len({block.blockData.headerHash for block in carrying}) == 2
    assert bench.balance(wallet(0, 1)) == 5 and bench.status(tx_hash) == ("success", "")


@pytest.mark.parametrize("ahead", [False, True])
def test_accounts_may_be_told_ahead_of_their_blocks(make_present: Any, wallet: Any, ahead: bool) -> None:
    """Values are those of the last execution when the block is told, never behind the execution that names them."""
    bench = make_present(executes_ahead=ahead, execution_delay=2)
    key = wallet(0)
    bench.give(key)
    leads = []
    for nonce in range(6):
        bench.chain.submit(bench.tx(key, wallet(0, 1).public, 1, nonce=nonce))
        for block in bench.executed(bench.rounds(), shard=0):
            account = block.alteredAccounts.get(encode(key.public))
            nonces = [info.transaction.nonce for info in block.transactionPool.transactions.values()]
            if account is not None and nonces:
                assert account.nonce == bench.chain.account(decode(account.address)).nonce
                leads.append(account.nonce - max(nonces) - 1)
    assert set(leads) == ({2} if ahead else {0})


def test_the_metachain_names_what_was_executed(make_present: Any, wallet: Any) -> None:
    """Its header lists the executed blocks, the headers that told them, and the execution of its own predecessor."""
    bench = make_present()
    bench.give(wallet(0))
    block = bench.saved(shard=META)[-1]
    header = pb.MetaBlockV3.FromString(block.blockData.headerBytes)
    assert block.blockData.headerType == "MetaBlockV3" and header.softwareVersion == b"3"
    assert [proposal.headerHash.hex() for proposal in header.shardInfoProposal] == list(block.notarizedHeadersHashes)
    assert [data.nonce + 1 for data in header.shardInfo] == [proposal.nonce for proposal in header.shardInfoProposal]
    assert header.nonce == header.shardInfoProposal[0].nonce + 1
    (execution,) = header_of(block).executions
    assert execution.nonce == header.nonce - 1
    assert set(block.blockData.results) == {execution.block_hash.hex()}


def test_an_epoch_is_closed_and_begun_by_the_metachain(make_present: Any) -> None:
    """The last block of an epoch says so; the first of the next lists the shards' final headers."""
    bench = make_present(rounds_per_epoch=5)
    bench.rounds(12)
    headers = [pb.MetaBlockV3.FromString(block.blockData.headerBytes) for block in bench.saved(shard=META)]
    assert [header.round for header in headers if header.epochChangeProposed] == [4, 9]
    starts = [header for header in headers if header.epochStart.lastFinalizedHeaders]
    assert [(header.round, header.epoch) for header in starts] == [(5, 1), (10, 2)]
    assert {data.shardID for data in starts[0].epochStart.lastFinalizedHeaders} == {0, 1, 2}
    keys = [event for event in bench.events if event.topic == "SaveValidatorsPubKeys"]
    assert [pb.ValidatorsPubKeys.FromString(event.payload).epoch for event in keys] == [1, 2]


def test_the_change_over(make_present: Any, wallet: Any) -> None:
    """In its epoch headers first carry milliseconds, then propose; what is on its way arrives, once."""
    bench = make_present(rounds_per_epoch=10, supernova_epoch=1, supernova_lead_rounds=5)
    for shard in range(3):
        bench.chain.give(wallet(shard).public, NATIVE, EGLD)
    bench.rounds(5)
    sent = []
    for _ in range(15):
        for shard in range(3):
            nonce = bench.chain.virtual_nonce(wallet(shard).public)
            sent.append(bench.chain.submit(bench.tx(wallet(shard), wallet((shard + 1) % 3, 1).public, 1, nonce=nonce)))
        bench.rounds()
    bench.rounds(8)
    assert {bench.status(tx_hash)[0] for tx_hash in sent} == {"success"}
    assert [bench.balance(wallet(shard, 1)) for shard in range(3)] == [15, 15, 15]
    assert bench.held() + bench.fees() == bench.initial + 3 * EGLD
    for shard in (0, 1, 2, META):
        blocks = bench.saved(shard=shard)
        types = [block.blockData.headerType for block in blocks]
        assert [kind.endswith("V3") for kind in types] == [False] * 14 + [True] * (len(blocks) - 14)
        for block in blocks[:14]:
            header = outport.decode_header(block.blockData.headerType, block.blockData.headerBytes)
            stamp = header.header.timeStamp if isinstance(header, pb.HeaderV2) else header.timeStamp
            round_ = header_of(block).round
            assert stamp == (block.blockData.timestampMs if round_ >= 10 else block.blockData.timestampMs // 1000)
            assert header_of(block).timestamp_ms // 1000 == block.blockData.timestampMs // 1000
        assert told_nonces(blocks[14:16]) == [[], [15]]
        assert header_of(blocks[14]).last_executed_nonce == 14


def test_a_defect_in_what_arrived_stops_execution_and_not_the_proposals(
    make_present: Any, wallet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While something that came from elsewhere cannot be executed the shard lags; then it is executed, once."""
    bench = make_present()
    bench.give(wallet(0))
    tx_hash = bench.chain.submit(bench.tx(wallet(0), wallet(2).public, 5))

    def faulty(*_: Any) -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(Processor, "execute_transaction", faulty)
        bench.rounds(8)
        lag = bench.chain.block_nonce(2) - bench.chain.executed_nonce(2)
        assert lag > 1 and bench.status(tx_hash)[0] == "pending"
    bench.rounds()
    assert bench.status(tx_hash) == ("success", "") and bench.balance(wallet(2)) == 5
