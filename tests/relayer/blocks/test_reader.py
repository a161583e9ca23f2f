"""What a saved block says of transactions: every row of the feed's status rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from relayer_later import hash_of
from relayer_support import NETWORK, BlockMaker, transfer, tx_message, wallet

from millrace.chain import address, bigint, outport
from millrace.chain.fees import initially_paid_fee
from millrace.chain.network import profile
from millrace.chain.outport import OutportError
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import ALL_SHARDS
from millrace.chain.transaction import chain_hash, client_hash, early_hashes
from millrace.relayer.blocks.facts import TxFact, join, judge
from millrace.relayer.blocks.reader import read_block

FEES = json.loads((Path(__file__).parents[2] / "vectors" / "node_fees.json").read_text())["transactions"]
CONTRACT = bytes(8) + b"\5\0" + b"c" * 20 + b"\0\1"  # shard 1
SENDER = wallet(1)
ELSEWHERE = wallet(2).public
SCR = b"\x5c" * 32
ORIGIN = b"the transaction itself"


def call_of(receiver: bytes = CONTRACT) -> Any:
    return transfer(SENDER, receiver=receiver, data=b"buy@01", gas_limit=300_000)


def facts(block: pb.OutportBlock) -> dict[bytes, TxFact]:
    return {fact.tx_hash: fact for fact in read_block(block, NETWORK).transactions}


def add_log(block: pb.OutportBlock, tx_hash: bytes, *events: pb.Event) -> None:
    block.transactionPool.logs.append(pb.LogData(txHash=tx_hash.hex(), log=pb.Log(events=events)))


def add_result(block: pb.OutportBlock, origin: bytes, receiver: bytes, scr: bytes = SCR, **fields: Any) -> None:
    result = pb.SmartContractResult(
        originalTxHash=origin, receiver=receiver, value=bigint.encode(fields.pop("value", 0)), **fields
    )
    block.transactionPool.smartContractResults[scr.hex()].smartContractResult.CopyFrom(result)


def arrive(block: pb.OutportBlock, origin: bytes, receiver: bytes, scr: bytes = SCR, **fields: Any) -> None:
    """A result that another shard sent is executed in the block."""
    here = block.shardID
    block.blockData.body.miniBlocks.append(
        pb.MiniBlock(txHashes=[scr], senderShardID=3 - here if here else 1, receiverShardID=here, type=90)  # type: ignore[arg-type]
    )
    add_result(block, origin, receiver, scr, **fields)


def event(identifier: str, *topics: bytes, data: bytes = b"") -> pb.Event:
    return pb.Event(identifier=identifier.encode(), topics=topics, data=data)


def status(tx: Any, *blocks: pb.OutportBlock) -> str | None:
    """The status of a transaction after these blocks are final."""
    whole = TxFact(chain_hash(tx))
    for block in blocks:
        fact = facts(block).get(chain_hash(tx))
        whole = join(whole, fact) if fact else whole
    return judge(whole)


def test_plain_transfer_in_one_shard() -> None:
    """Executed at its destination, no contract: success, and its fee is known."""
    tx = transfer(SENDER)
    block = BlockMaker(1).block([tx])
    (fact,) = facts(block).values()
    assert judge(fact) == "success" and fact.included and fact.fee == 50_000 * 10**9
    assert fact.client_hash == b"", "not co-signed, so there is one hash"


def test_client_hash_of_a_cosigned_transaction() -> None:
    """A co-signed transaction is known by the hash its sender could compute, too."""
    tx = msgspec.structs.replace(transfer(SENDER), relayer_signature=b"\7" * 64)
    (fact,) = facts(BlockMaker(1).block([tx])).values()
    assert fact.client_hash == client_hash(tx) != fact.tx_hash == chain_hash(tx)
    assert (fact.client_hash, fact.sdk_hash) == early_hashes(tx)


def test_cross_shard_transfer_waits_for_its_destination() -> None:
    """The source's block alone ends nothing."""
    tx = transfer(SENDER, receiver=ELSEWHERE)
    source, destination = BlockMaker(1).block([tx]), BlockMaker(2).block([tx])
    assert status(tx, source) is None
    assert status(tx, source, destination) == status(tx, destination, source) == "success"
    assert facts(source)[chain_hash(tx)].included and not facts(destination)[chain_hash(tx)].included


def test_contract_call_needs_its_end() -> None:
    """A call is over with completedTxEvent, SCDeploy or writeLog, not by being executed."""
    tx = call_of()
    for name, data, expected in (
        ("ESDTTransfer", b"", None),
        ("writeLog", b"@6f6b@01", "success"),
        ("writeLog", b"@75736572206572726f72", None),
        ("completedTxEvent", b"", "success"),
        ("SCDeploy", b"", "success"),
    ):
        block = BlockMaker(1).block([tx])
        add_log(block, chain_hash(tx), event(name, chain_hash(tx), data=data))
        assert status(tx, block) == expected, name
    assert status(tx, BlockMaker(1).block([tx])) is None


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (event("signalError", b"c", b"too\nlate", data=b"@04"), "execution failed: too late"),
        (event("signalError", b"c", data=b"@75736572"), "execution failed: @75736572"),
        (
            event("internalVMErrors", data=b"\n\truntime.go [out of gas]\n more"),
            "execution failed: runtime.go [out of gas]",
        ),
    ],
)
def test_failures_in_logs(made: pb.Event, reason: str) -> None:
    """signalError and internalVMErrors fail the transaction with the contract's words, on one line."""
    tx = call_of()
    block = BlockMaker(1).block([tx])
    add_log(block, chain_hash(tx), event("writeLog", data=b"@6f6b"), made)
    assert status(tx, block) == "fail"
    assert facts(block)[chain_hash(tx)].failed == reason


def test_invalid_transactions_fail_with_their_receipt() -> None:
    """A transaction in an invalid miniblock fails with its receipt's words, and its nonce is used up."""
    tx = transfer(SENDER)
    block = BlockMaker(1).block([])
    block.blockData.body.miniBlocks.append(pb.MiniBlock(txHashes=[chain_hash(tx)], senderShardID=1, type=120))  # type: ignore[arg-type]
    block.transactionPool.receipts["00"].CopyFrom(pb.Receipt(txHash=chain_hash(tx), data=b"insufficient funds"))
    (fact,) = facts(block).values()
    assert (fact.failed, fact.included, judge(fact)) == ("insufficient funds", True, "fail")
    assert (fact.fee, fact.client_hash) == (None, b"")
    signed = msgspec.structs.replace(tx, relayer_signature=b"\7" * 64)
    info = block.transactionPool.invalidTxs[chain_hash(tx).hex()]
    info.transaction.CopyFrom(tx_message(signed))
    info.feeInfo.fee = bigint.encode(7)
    (fact,) = facts(block).values()
    assert (fact.fee, fact.client_hash) == (7, client_hash(signed)), "both its hashes are told, its fee is spent"


def test_asynchronous_call_waits_for_its_callback() -> None:
    """A result for another shard keeps the transaction open until that shard has executed it."""
    tx = call_of()
    first = BlockMaker(1).block([tx])
    add_log(first, chain_hash(tx), event("writeLog", data=b"@6f6b"))
    add_result(first, chain_hash(tx), ELSEWHERE)
    assert status(tx, first) is None
    assert facts(first)[chain_hash(tx)].results_out == {SCR}
    second = BlockMaker(2).block([])
    second.blockData.body.miniBlocks.append(
        pb.MiniBlock(txHashes=[SCR], senderShardID=1, receiverShardID=2, type=90)  # type: ignore[arg-type]
    )
    add_result(second, chain_hash(tx), ELSEWHERE)
    assert status(tx, first, second) == status(tx, second, first) == "success"


def test_a_result_that_leaves_is_not_executed_by_leaving() -> None:
    """The miniblock with which a result sets out for another shard does not end anything."""
    tx = call_of()
    block = BlockMaker(1).block([tx])
    add_log(block, chain_hash(tx), event("writeLog", data=b"@6f6b"))
    add_result(block, chain_hash(tx), ELSEWHERE)
    block.blockData.body.miniBlocks.append(
        pb.MiniBlock(txHashes=[SCR], senderShardID=1, receiverShardID=2, type=90)  # type: ignore[arg-type]
    )
    assert status(tx, block) is None
    assert facts(block)[chain_hash(tx)].results_in == frozenset()


@pytest.mark.parametrize(
    ("receiver", "fields"),
    [
        (ELSEWHERE, {"callType": 1}),
        (ELSEWHERE, {"callType": 2}),
        (bytes(8) + b"\5\0" + b"d" * 20 + b"\0\2", {"gasLimit": 1}),
        (bytes(8) + b"\5\0" + b"d" * 20 + b"\0\2", {}),
        (ELSEWHERE, {"gasLimit": 1}),
        (ELSEWHERE, {"callType": 3}),
    ],
)
def test_results_of_any_kind_elsewhere(receiver: bytes, fields: dict[str, int]) -> None:
    """What another shard has yet to execute keeps a transaction open, whatever it is and whatever a log says."""
    tx = call_of()
    block, there = BlockMaker(1).block([tx]), BlockMaker(2).block([])
    add_log(block, chain_hash(tx), event("completedTxEvent", chain_hash(tx)))
    add_result(block, chain_hash(tx), receiver, **fields)
    assert status(tx, block) is None
    arrive(there, chain_hash(tx), receiver, **fields)
    assert status(tx, block, there) == "success"


def test_results_of_no_transaction() -> None:
    """A result that says of no transaction where it comes from belongs to none."""
    block = BlockMaker(1).block([])
    block.blockData.body.miniBlocks.append(
        pb.MiniBlock(txHashes=[SCR], senderShardID=2, receiverShardID=1, type=90)  # type: ignore[arg-type]
    )
    add_result(block, b"", SENDER.public, returnMessage=b"error")
    assert facts(block) == {}


def test_miniblocks_within_the_shard() -> None:
    """Miniblocks that do not travel count like those of the body."""
    tx = transfer(SENDER)
    block = BlockMaker(1).block([tx])
    block.blockData.intraShardMiniBlocks.append(block.blockData.body.miniBlocks.pop())
    assert status(tx, block) == "success"


@pytest.mark.parametrize("data", [b"", b"@01", b"thanks@for all", b"buy@1"])
def test_a_payment_to_a_contract_is_no_call(data: bytes) -> None:
    """Nodes only move the value where no function is named: without a word it is over where it is executed, and a
    contract that takes no payments refuses it with one."""
    for tx in (
        transfer(SENDER, receiver=CONTRACT, data=data, gas_limit=200_000),
        transfer(wallet(2), receiver=CONTRACT, data=data, gas_limit=200_000),
    ):
        block, source = BlockMaker(1).block([tx]), BlockMaker(2).block([tx])
        assert status(tx, source) is None
        assert status(tx, block) == status(tx, source, block) == "success"
        add_log(block, chain_hash(tx), event("signalError", b"c", b"sending value to non payable contract"))
        assert status(tx, block) == status(tx, source, block) == "fail"


@pytest.mark.parametrize("data", [b"buy", b"buy@", b"buy@01@aF"])
def test_data_that_names_a_function_is_a_call(data: bytes) -> None:
    """Whatever the function and its arguments are, only the contract's own end ends the transaction."""
    tx = transfer(SENDER, receiver=CONTRACT, data=data, gas_limit=200_000)
    block = BlockMaker(1).block([tx])
    assert status(tx, block) is None
    add_log(block, chain_hash(tx), event("completedTxEvent", chain_hash(tx)))
    assert status(tx, block) == "success"


def test_a_scheduled_payment_to_a_contract_may_still_be_refused() -> None:
    """What a block only schedules is executed, and maybe refused, with the next one: it is not over."""
    tx = transfer(SENDER, receiver=CONTRACT)
    block = BlockMaker(1).block([tx])
    block.blockData.body.miniBlocks.pop()
    assert status(tx, with_miniblock(block, tx, 1)) is None
    following = with_miniblock(BlockMaker(1).block([]), tx, 2)
    add_log(following, chain_hash(tx), event("signalError", b"c", b"sending value to non payable contract"))
    assert status(tx, block, following) == "fail"


def test_a_scheduled_payment_to_a_contract_ends_with_the_next_block() -> None:
    """Which names it as processed and says nothing of a refusal; of what was not heard of that says nothing."""
    tx = transfer(SENDER, receiver=CONTRACT)
    block = BlockMaker(1).block([tx])
    block.blockData.body.miniBlocks.pop()
    first, following = with_miniblock(block, tx, 1), with_miniblock(BlockMaker(1).block([]), tx, 2)
    assert status(tx, first) is None and status(tx, following) is None
    assert status(tx, first, following) == "success"
    following.transactionPool.scheduledExecutedInvalidTxsHashesPrevBlock.append(chain_hash(tx).hex())
    assert status(tx, first, following) == "fail"


def test_the_destination_knows_no_fee() -> None:
    """Fee and gas price are told by the sender's shard alone, or they would count twice."""
    tx = transfer(SENDER, receiver=ELSEWHERE)
    source, destination = (read_block(BlockMaker(shard).block([tx]), NETWORK) for shard in (1, 2))
    assert (source.transactions[0].fee, len(source.gas_prices)) == (50_000 * 10**9, 1)
    assert (destination.transactions[0].fee, destination.gas_prices) == (None, ())


def test_the_time_of_a_block() -> None:
    """A block's time is in milliseconds where the node tells them, else that of its header."""
    block = BlockMaker(1).block([])
    block.blockData.timestampMs = 1_700_000_006_789
    assert read_block(block, NETWORK).timestamp_ms == 1_700_000_006_789
    block.blockData.timestampMs = 0
    assert read_block(block, NETWORK).timestamp_ms == 1_700_000_006_000


def test_what_failed_is_not_counted_as_executed() -> None:
    """`executed` counts transactions of the block's own shard that did not fail."""
    good, bad = transfer(SENDER), transfer(SENDER, 1)
    from_elsewhere = transfer(wallet(2), receiver=SENDER.public)
    block = BlockMaker(1).block([good, bad, from_elsewhere], failing={chain_hash(bad): "no"})
    assert read_block(block, NETWORK).executed == 1


def test_the_contracts_words_go_before_the_machines() -> None:
    """With both a contract's error and the machine's trace in a log the contract's words are the reason."""
    tx = call_of()
    said, trace = event("signalError", b"c", b"too late"), event("internalVMErrors", data=b"runtime.go")
    for order in ((said, trace), (trace, said)):
        block = BlockMaker(1).block([tx])
        add_log(block, chain_hash(tx), *order)
        assert facts(block)[chain_hash(tx)].failed == "execution failed: too late"


def test_failure_of_a_result_elsewhere_fails_the_transaction() -> None:
    """A log of a result belongs to the transaction that caused it."""
    tx = call_of()
    first, second = BlockMaker(1).block([tx]), BlockMaker(2).block([])
    add_log(first, chain_hash(tx), event("writeLog", data=b"@6f6b"))
    add_result(first, chain_hash(tx), ELSEWHERE)
    second.blockData.body.miniBlocks.append(
        pb.MiniBlock(txHashes=[SCR], senderShardID=1, receiverShardID=2, type=90)  # type: ignore[arg-type]
    )
    add_result(second, chain_hash(tx), ELSEWHERE)
    add_log(second, SCR, event("signalError", b"c", b"no"))
    assert status(tx, first, second) == "fail"


def test_error_returns_and_refunds() -> None:
    """A result that returns an error without value is a failure; a gas refund is not."""
    tx = call_of()
    for message, value, expected in (
        (b"out of luck", 0, "fail"),
        (b"out of luck", 5, "success"),
        (b"gas refund for relayer", 0, "success"),
    ):
        block = BlockMaker(1).block([tx])
        add_log(block, chain_hash(tx), event("completedTxEvent", chain_hash(tx)))
        add_result(block, chain_hash(tx), SENDER.public, returnMessage=message, value=value)
        assert status(tx, block) == expected


def test_partly_executed_and_processed_miniblocks() -> None:
    """Only the executed range of a miniblock counts; one processed before counts for nothing."""
    txs = [transfer(SENDER, nonce) for nonce in range(3)]
    for reserved, expected in (
        (pb.MiniBlockHeaderReserved(indexOfFirstTxProcessed=1, indexOfLastTxProcessed=1), [txs[1]]),
        (pb.MiniBlockHeaderReserved(executionType=2, indexOfLastTxProcessed=2), []),  # type: ignore[arg-type]
    ):
        block = BlockMaker(1).block([])
        block.blockData.body.miniBlocks.append(
            pb.MiniBlock(txHashes=[chain_hash(tx) for tx in txs], senderShardID=1, receiverShardID=1)
        )
        header = outport.decode_header("HeaderV2", block.blockData.headerBytes)
        assert isinstance(header, pb.HeaderV2)
        header.header.miniBlockHeaders.append(pb.MiniBlockHeader(txCount=3, reserved=reserved.SerializeToString()))
        block.blockData.headerBytes = header.SerializeToString()
        assert {name for name, fact in facts(block).items() if not fact.only_confirms} == set(map(chain_hash, expected))


def with_miniblock(block: pb.OutportBlock, tx: Any, execution: int) -> pb.OutportBlock:
    """The block with one more miniblock, whose header says how it is executed."""
    block.blockData.body.miniBlocks.append(
        pb.MiniBlock(txHashes=[chain_hash(tx)], senderShardID=1, receiverShardID=1, type=0)  # type: ignore[arg-type]
    )
    header = outport.decode_header("HeaderV2", block.blockData.headerBytes)
    assert isinstance(header, pb.HeaderV2)
    reserved = pb.MiniBlockHeaderReserved(executionType=execution)  # type: ignore[arg-type]
    header.header.miniBlockHeaders.append(pb.MiniBlockHeader(txCount=1, reserved=reserved.SerializeToString()))
    block.blockData.headerBytes = header.SerializeToString()
    return block


@pytest.mark.parametrize(
    ("said", "expected"),
    [(event("writeLog", data=b"@6f6b"), "success"), (event("signalError", b"c", b"no", data=b"@04"), "fail")],
)
def test_what_was_scheduled_ends_in_the_next_block(said: pb.Event, expected: str) -> None:
    """A call that one block schedules has its log in the next, which names it as processed before."""
    tx, maker = call_of(), BlockMaker(1)
    first = with_miniblock(maker.block([]), tx, 1)
    first.transactionPool.transactions[chain_hash(tx).hex()].transaction.receiver = CONTRACT
    assert status(tx, first) is None
    second = with_miniblock(maker.block([]), tx, 2)
    add_log(second, chain_hash(tx), said)
    add_log(second, b"\x99" * 32, said)
    assert status(tx, first, second) == expected
    assert set(facts(second)) == {chain_hash(tx)}, "a log of what nothing else names belongs to nobody"


def test_what_was_scheduled_and_is_invalid_fails() -> None:
    """A scheduled transaction that the next block names as invalid has failed."""
    tx, maker = call_of(), BlockMaker(1)
    first = with_miniblock(maker.block([]), tx, 1)
    first.transactionPool.transactions[chain_hash(tx).hex()].transaction.receiver = CONTRACT
    second = maker.block([])
    second.transactionPool.scheduledExecutedInvalidTxsHashesPrevBlock.extend([chain_hash(tx).hex(), "no hash"])
    second.transactionPool.receipts["00"].CopyFrom(pb.Receipt(txHash=chain_hash(tx), data=b"insufficient funds"))
    assert status(tx, first, second) == "fail"
    assert facts(second)[chain_hash(tx)].failed == "insufficient funds"


def test_row_41_a_block_that_does_not_show_its_transaction() -> None:
    """Of a transaction that is named and not shown it is not known whether it calls a contract: it is not over."""
    tx = call_of()
    block = BlockMaker(1).block([tx])
    del block.transactionPool.transactions[chain_hash(tx).hex()]
    assert status(tx, block) is None
    assert facts(block)[chain_hash(tx)].included, "its nonce is used up"


def test_row_41_a_block_of_a_type_nobody_knows() -> None:
    """Whether it was executed cannot be told, so it says nothing; of a known type unreadable bytes hide no more than
    the header."""
    block = BlockMaker(1).block([transfer(SENDER)])
    block.blockData.headerBytes = b"\xff"
    read = read_block(block, NETWORK)
    assert read.header is None and len(read.transactions) == 1
    block.blockData.headerType = "HeaderV9"
    with pytest.raises(OutportError, match="HeaderV9"):
        read_block(block, NETWORK)


def test_accounts() -> None:
    """Accounts carry balance, nonce and the tokens this block touched; impossible entries are left out."""
    block = BlockMaker(1).block(accounts={SENDER.public: (3, 7)})
    account = block.alteredAccounts[address.encode(SENDER.public)]
    account.tokens.append(pb.AccountTokenData(identifier=b"USDC-c76f1f", balance="5"))
    account.tokens.append(pb.AccountTokenData(identifier=b"NFT-123456", nonce=10, balance="1"))
    block.alteredAccounts["bad"].CopyFrom(pb.AlteredAccount(address="bad", balance="1"))
    block.alteredAccounts["worse"].CopyFrom(pb.AlteredAccount(address=address.encode(ELSEWHERE), balance="x"))
    (fact,) = read_block(block, NETWORK).accounts
    assert (fact.pubkey, fact.nonce, fact.balance) == (SENDER.public, 3, 7)
    assert fact.tokens == {"USDC-c76f1f": "5", "NFT-123456-0a": "1"}


@pytest.mark.parametrize("balance", ["-5", "1_000", " 5", "\u0663", "5.0", "9" * 5000])
def test_row_41_balances_that_are_none(balance: str) -> None:
    """An account whose balance is no unsigned number of digits is left out, the others stay."""
    block = BlockMaker(1).block(accounts={SENDER.public: (3, 7), ELSEWHERE: (1, 1)})
    block.alteredAccounts[address.encode(ELSEWHERE)].balance = balance
    assert [fact.pubkey for fact in read_block(block, NETWORK).accounts] == [SENDER.public]
    tokens = block.alteredAccounts[address.encode(SENDER.public)].tokens
    tokens.append(pb.AccountTokenData(identifier=b"LIE-123456", balance=balance))
    tokens.append(pb.AccountTokenData(identifier=b"USDC-c76f1f", balance="5"))
    tokens.append(pb.AccountTokenData(identifier=b"GONE-123456"))
    assert read_block(block, NETWORK).accounts[0].tokens == {"USDC-c76f1f": "5", "GONE-123456": "0"}


@pytest.mark.parametrize("fee", [0, -1, -(10**30)])
def test_row_41_fees_that_are_none(fee: int) -> None:
    """A fee of nothing or less is not known: it would be given back to the budget."""
    tx = transfer(SENDER)
    block = BlockMaker(1).block([tx])
    block.transactionPool.transactions[chain_hash(tx).hex()].feeInfo.fee = bigint.encode(fee)
    assert facts(block)[chain_hash(tx)].fee is None


@pytest.mark.parametrize("told", FEES, ids=[told["name"] for told in FEES])
def test_fees_of_real_nodes(told: dict[str, Any]) -> None:
    """The block of the sender's shard says the whole fee, or none: of a call for another shard nodes write there what
    moving it costs, though all its gas was paid."""
    info = pb.TxInfo.FromString(bytes.fromhex(told["info"]))
    block = BlockMaker(told["sender"]).block([])
    block.transactionPool.transactions[told["hash"]].CopyFrom(info)
    block.blockData.body.miniBlocks.add(
        txHashes=[bytes.fromhex(told["hash"])], senderShardID=told["sender"], receiverShardID=told["receiver"]
    )
    (fact,) = read_block(block, profile("mainnet", chain_id="chain")).transactions
    assert (fact.tx_hash.hex(), fact.fee) == (told["hash"], told["fee"])


def test_fee_of_a_call_that_is_only_scheduled() -> None:
    """A call that a block of the earlier format schedules has not run: its fee there is that of moving it."""
    tx = call_of()
    block = BlockMaker(1).block([tx])
    header = outport.decode_header("HeaderV2", block.blockData.headerBytes)
    scheduled = pb.MiniBlockHeaderReserved(executionType=1, indexOfLastTxProcessed=0)
    mini_hash = hash_of(block.blockData.body.miniBlocks[0])
    header.header.miniBlockHeaders.add(hash=mini_hash, txCount=1, reserved=scheduled.SerializeToString())
    block.blockData.headerBytes = header.SerializeToString()
    charge, moving = block.transactionPool.transactions[chain_hash(tx).hex()].feeInfo, 50_000 + 1_500 * len(tx.data)
    charge.gasUsed, charge.fee = moving, bigint.encode(moving * tx.gas_price)
    charge.initialPaidFee = bigint.encode(initially_paid_fee(tx, NETWORK.gas))
    assert facts(block)[chain_hash(tx)].fee is None


@pytest.mark.parametrize("shard", [3, 77, 2**32 - 2])
@pytest.mark.parametrize("where", ["data", "message"])
def test_row_41_row_49_blocks_of_no_shard(shard: int, where: str) -> None:
    """Blocks of shards that there are not are refused, or each would leave a table and a series behind."""
    block = BlockMaker(0).block()
    (block.blockData if where == "data" else block).shardID = shard
    with pytest.raises(OutportError, match=f"shard {shard}"):
        read_block(block, NETWORK)


@pytest.mark.parametrize("part", ["message", "data", "header"])
def test_row_41_blocks_of_two_shards(part: str) -> None:
    """A block is of the shard that its message, its data and its header name; where they differ it says nothing."""
    tx = transfer(SENDER, receiver=ELSEWHERE)
    block, other = BlockMaker(1).block([tx]), BlockMaker(2).block([tx])
    block.shardID = block.blockData.shardID = 2
    block.blockData.headerBytes = other.blockData.headerBytes
    assert status(tx, block) == "success", "as the block of shard 2 that it is"
    if part == "message":
        block.shardID = 1
    elif part == "data":
        block.blockData.shardID = 1
    else:
        block.blockData.headerBytes = BlockMaker(1).block([tx]).blockData.headerBytes
    with pytest.raises(OutportError, match="shard"):
        read_block(block, NETWORK)


def test_row_41_what_a_body_leaves_out() -> None:
    """Of a body without some of its header's miniblocks each one is still executed as the header says of it."""
    txs = [transfer(SENDER, nonce) for nonce in range(4)]
    hashes = [chain_hash(tx) for tx in txs]
    block = BlockMaker(1).block([])
    header = outport.decode_header("HeaderV2", block.blockData.headerBytes)
    assert isinstance(header, pb.HeaderV2)
    for some, last in ((hashes[:1], 0), (hashes[1:], 1)):
        miniblock = block.blockData.body.miniBlocks.add(txHashes=some, senderShardID=1, receiverShardID=1)
        ran = pb.MiniBlockHeaderReserved(indexOfLastTxProcessed=last)
        header.header.miniBlockHeaders.add(hash=hash_of(miniblock), txCount=3, reserved=ran.SerializeToString())
    block.blockData.headerBytes = header.SerializeToString()
    assert set(facts(block)) == set(hashes[:3])
    del block.blockData.body.miniBlocks[0]
    assert set(facts(block)) == set(hashes[1:3])
    block.blockData.body.miniBlocks[0].txHashes.append(hashes[0])
    assert facts(block) == {}, "what the header does not name could be made up"


def test_a_result_to_nobody_is_only_a_note() -> None:
    """A contract result without a receiver, which every chain has, hides nothing else of its block."""
    tx = call_of()
    block = BlockMaker(1).block([tx])
    add_result(block, chain_hash(tx), b"")
    add_log(block, chain_hash(tx), event("writeLog", data=b"@6f6b"))
    assert status(tx, block) == "success"


@pytest.mark.parametrize(
    ("address_", "topics"),
    [
        (b"e" * 32, None),  # another contract that the transaction called
        (CONTRACT, [b"t" * 32]),  # names something else
        (CONTRACT, []),
        (CONTRACT, [b"", b""]),
    ],
)
def test_row_41_contracts_that_imitate_the_end(address_: bytes, topics: list[bytes] | None) -> None:
    """`completedTxEvent` counts only in the receiver's name and about this transaction; else the call is still open."""
    tx = call_of()
    block = BlockMaker(1).block([tx])
    forged = event("completedTxEvent", *([chain_hash(tx)] if topics is None else topics))
    forged.address = address_
    add_log(block, chain_hash(tx), forged)
    assert status(tx, block) is None
    genuine = event("completedTxEvent", chain_hash(tx))
    genuine.address = CONTRACT
    add_log(block, chain_hash(tx), genuine)
    assert status(tx, block) == "success"


def test_row_41_no_end_while_a_call_is_under_way() -> None:
    """Whoever says that all is done: a call that another shard has yet to execute keeps the transaction open."""
    tx = call_of()
    first = BlockMaker(1).block([tx])
    done = event("completedTxEvent", chain_hash(tx))
    done.address = CONTRACT
    add_log(first, chain_hash(tx), event("writeLog", data=b"@6f6b"), done)
    add_result(first, chain_hash(tx), ELSEWHERE, callType=1)
    assert status(tx, first) is None
    second = BlockMaker(2).block([])
    second.blockData.body.miniBlocks.append(
        pb.MiniBlock(txHashes=[SCR], senderShardID=1, receiverShardID=2, type=90)  # type: ignore[arg-type]
    )
    add_result(second, chain_hash(tx), ELSEWHERE, callType=1)
    assert status(tx, first, second) == "success"


def test_a_refund_elsewhere_holds_up_the_end() -> None:
    """Nodes call nothing complete while a refund is on its way: a contract that does is not believed."""
    tx = call_of()
    first, last = BlockMaker(1).block([tx]), BlockMaker(2).block([])
    refund = {"value": 5, "data": b"@6f6b", "prevTxHash": chain_hash(tx)}
    forged = pb.Event(identifier=b"completedTxEvent", address=CONTRACT, topics=[chain_hash(tx)])
    add_log(first, chain_hash(tx), forged)
    add_result(first, chain_hash(tx), ELSEWHERE, **refund)
    assert status(tx, first) is None
    arrive(last, chain_hash(tx), ELSEWHERE, **refund)
    assert status(tx, first, last) == status(tx, last, first) == "success"


def test_a_result_to_all_shards_is_executed_by_any() -> None:
    """What the metachain tells all shards, as that a token is paused, has arrived with the first of them."""
    tx = call_of(bytes(8) + b"\0\1" + b"e" * 20 + b"\0\0")
    made, here = BlockMaker(0).block([tx], at_destination=True), BlockMaker(1).block([])
    add_log(made, chain_hash(tx), event("writeLog", data=b"@6f6b"))
    for block in made, here:
        add_result(block, chain_hash(tx), b"\xff" * 31 + b"\2", prevTxHash=chain_hash(tx), data=b"ESDTPause@41")
        told = pb.MiniBlock(txHashes=[SCR], senderShardID=0, receiverShardID=ALL_SHARDS, type=90)  # type: ignore[arg-type]
        block.blockData.body.miniBlocks.append(told)
    assert status(tx, made) is None
    assert status(tx, made, here) == "success"


def test_the_end_of_a_callback_names_what_it_came_from() -> None:
    """In the log of a result `completedTxEvent` names what the result came from, directly or at first."""
    tx = call_of()
    for named, expected in ((b"p" * 32, True), (chain_hash(tx), True), (SCR, True), (b"x" * 32, False)):
        block = BlockMaker(1).block([])
        block.blockData.body.miniBlocks.append(
            pb.MiniBlock(txHashes=[SCR], senderShardID=2, receiverShardID=1, type=90)  # type: ignore[arg-type]
        )
        add_result(block, chain_hash(tx), CONTRACT, prevTxHash=b"p" * 32, callType=2)
        done = event("completedTxEvent", named)
        done.address = CONTRACT
        add_log(block, SCR, done)
        assert facts(block)[chain_hash(tx)].completed == expected
        done.address = b"l" * 32
        block.transactionPool.logs[0].log.CopyFrom(pb.Log(address=done.address, events=[done]))
        assert facts(block)[chain_hash(tx)].completed == expected, "in the name the chain wrote the log in"


@pytest.mark.parametrize("named", [b"p" * 32, ORIGIN])
def test_the_end_of_a_hop_under_the_hash_of_its_transaction(named: bytes) -> None:
    """As the hub tells it a log has the original transaction's hash: the end of a hop names what that hop came from."""
    tx = call_of()
    tx_hash = chain_hash(tx)
    named = tx_hash if named == ORIGIN else named
    first, second = BlockMaker(1).block([tx]), BlockMaker(2).block([])
    add_result(first, tx_hash, ELSEWHERE, value=5)
    arrive(second, tx_hash, ELSEWHERE, prevTxHash=named, value=5)
    for topic, address_, expected in (
        (named, ELSEWHERE, "success"),
        (b"x" * 32, ELSEWHERE, None),  # of another hop, or another transaction
        (named, b"e" * 32, None),  # in the name of somebody who got nothing
    ):
        del second.transactionPool.logs[:]
        add_log(second, tx_hash, pb.Event(identifier=b"completedTxEvent", address=address_, topics=[topic]))
        second.transactionPool.logs[0].log.address = ELSEWHERE
        assert status(tx, first, second) == status(tx, second, first) == expected


def test_the_end_of_another_transactions_hop() -> None:
    """What one transaction's hop came from ends no other transaction of the block."""
    one, other = call_of(), msgspec.structs.replace(call_of(), nonce=1)
    first, second = BlockMaker(1).block([one, other]), BlockMaker(2).block([])
    arrive(second, chain_hash(one), ELSEWHERE, prevTxHash=b"p" * 32)
    arrive(second, chain_hash(other), ELSEWHERE, scr=b"\x5d" * 32, prevTxHash=b"q" * 32)
    done = pb.Event(identifier=b"completedTxEvent", address=ELSEWHERE, topics=[b"p" * 32])
    add_log(second, chain_hash(other), done)
    assert status(one, first, second) is status(other, first, second) is None
    add_log(second, chain_hash(one), done)
    assert (status(one, first, second), status(other, first, second)) == ("success", None)


def test_one_branch_that_ends_is_not_the_whole_tree() -> None:
    """The end of one hop says nothing of the others: what they sent to other shards keeps the transaction open."""
    tx = call_of()
    tx_hash, payment = chain_hash(tx), b"\x5e" * 32
    source, far, last = BlockMaker(1).block([tx]), BlockMaker(2).block([]), BlockMaker(0).block([])
    add_result(source, tx_hash, ELSEWHERE, callType=1)
    add_result(source, tx_hash, wallet(0).public, scr=payment, data=b"ESDTTransfer@41@05")
    arrive(far, tx_hash, ELSEWHERE, prevTxHash=tx_hash, callType=1)
    add_log(far, tx_hash, pb.Event(identifier=b"completedTxEvent", address=ELSEWHERE, topics=[tx_hash]))
    far.transactionPool.logs[0].log.address = ELSEWHERE
    assert status(tx, source, far) is None, "the payment is still under way, and may be refused"
    arrive(last, tx_hash, wallet(0).public, scr=payment, prevTxHash=tx_hash, data=b"ESDTTransfer@41@05")
    assert status(tx, source, far, last) == "success"
    add_log(last, tx_hash, event("signalError", b"c", b"account is frozen"))
    assert status(tx, source, far, last) == "fail"


def test_deploying_a_child_ends_nothing_else() -> None:
    """A contract that deploys another writes SCDeploy; with a call still under way nothing is complete."""
    tx = call_of()
    block = BlockMaker(1).block([tx])
    add_log(block, chain_hash(tx), event("SCDeploy", b"child", b"deployer", b"hash"))
    add_result(block, chain_hash(tx), ELSEWHERE)
    assert status(tx, block) is None


def test_what_watched_accounts_get() -> None:
    """A watched account gets transfers that succeeded here, and results of other shards: no refund made here."""
    key = wallet(1, 50).public
    refill = transfer(SENDER, receiver=key, value=7)
    elsewhere = transfer(wallet(2), receiver=key, value=5)
    failed = transfer(SENDER, 1, receiver=key, value=100)
    to_other = transfer(SENDER, 2, receiver=ELSEWHERE, value=1000)
    block = BlockMaker(1).block([refill, elsewhere, failed, to_other], failing={chain_hash(failed): "no"})
    assert read_block(block, NETWORK, frozenset((key,))).credits == ((key, 7), (key, 5))
    assert read_block(block, NETWORK).credits == ()
    for sender_shard, got in ((2, ((key, 30),)), (1, ())):
        refund = BlockMaker(1).block()
        refund.blockData.body.miniBlocks.append(
            pb.MiniBlock(
                txHashes=[SCR], senderShardID=sender_shard, receiverShardID=1, type=pb.SmartContractResultBlock
            )
        )
        add_result(refund, b"t" * 32, key, value=30)
        assert read_block(refund, NETWORK, frozenset((key,))).credits == got
