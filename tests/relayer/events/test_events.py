"""From events to words: each final block's accounts are told, whatever is known of them otherwise."""

from __future__ import annotations

import contextlib
import os
import time
from random import Random
from typing import Any

import msgspec
import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from relayer_later import LaterMaker, results_of
from relayer_quiet import quiet_events
from relayer_support import BlockMaker, Chain, connected, entry_of, start, submit, transfer, wallet

from millrace.chain import address, outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import METACHAIN
from millrace.chain.transaction import Transaction, chain_hash, early_hashes
from millrace.relayer.events.events import Events

EXAMPLES = int(os.environ.get("MILLRACE_MODEL_EXAMPLES", "250"))

ALICE, BOB = wallet(1), wallet(2)
CONTRACT = bytes(8) + b"\5\0" + b"c" * 20 + b"\0\1"  # in the shard of the former


async def nonces(client: Any, count: int) -> list[int]:
    return [(await client.push())["data"]["nonce"] for _ in range(count)]


async def test_updates_while_the_chain_api_is_ahead(world: Any) -> None:
    """The chain API speaks of blocks not yet final: those that become final are told all the same."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(ALICE.public)}")
        world.api.set(ALICE.public, 3, 10**18)
        assert await submit(world, transfer(ALICE, 3)) == ["ok"]
        for nonce in (1, 2, 3):
            chain.final(accounts={ALICE.public: (nonce, 10**18)})
        assert await nonces(client, 3) == [1, 2, 3]
    assert (await world.service.accounts.know(ALICE.public)).nonce == 3, "what is signed for follows the newest"


async def test_updates_of_blocks_that_become_final_together(world: Any) -> None:
    """Each of several blocks that one mark makes final is told, also of a sender whose transactions all have."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    sent = [transfer(ALICE, nonce) for nonce in range(3)]
    assert await submit(world, *sent) == ["ok"] * 3
    signed = [entry.tx for entry in world.service.lifecycle.inflight.entries()]
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(ALICE.public)}")
        blocks = [chain.save([tx], accounts={ALICE.public: (tx.nonce + 1, 10**18)}) for tx in signed]
        chain.finalise(blocks[-1])
        assert await nonces(client, 3) == [1, 2, 3]
    assert len(world.service.lifecycle.inflight) == 0


async def test_announcements_that_are_older_are_not_told(world: Any) -> None:
    """Accounts announced without their block, later than newer ones, are old news."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    await world.service.accounts.know(ALICE.public)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(ALICE.public)}")
        block = chain.final(accounts={ALICE.public: (5, 10**18)})
        for nonce in (4, 6):
            message = pb.Accounts(shardID=1, blockTimestampMs=block.blockData.timestampMs)
            text = address.encode(ALICE.public)
            message.alteredAccounts[text].CopyFrom(pb.AlteredAccount(address=text, nonce=nonce, balance="1"))
            chain.tell(outport.SAVE_ACCOUNTS, message)
        assert await nonces(client, 2) == [5, 6]


async def test_announcements_of_before_a_block_are_not_told(world: Any) -> None:
    """A block's word on an account holds against what is announced of a time before, also at the same nonce."""
    await start(world, hub_url="")
    chain, text = Chain(world, 1), address.encode(ALICE.public)
    await world.service.accounts.know(ALICE.public)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{text}")
        at = chain.final(accounts={ALICE.public: (5, 77)}).blockData.timestampMs
        chain.final()
        for stamp, balance in ((at - 6_000, "1"), (at + 1, "78")):
            message = pb.Accounts(shardID=1, blockTimestampMs=stamp)
            message.alteredAccounts[text].CopyFrom(pb.AlteredAccount(address=text, nonce=5, balance=balance))
            chain.tell(outport.SAVE_ACCOUNTS, message)
            known = (await world.service.accounts.know(ALICE.public)).balance
            assert known == (77 if stamp < at else 78)
        told = [(await client.push())["data"]["balances"]["EGLD"] for _ in range(2)]
    assert told == ["77", "78"]


async def test_accounts_of_a_block_that_comes_behind_a_later_one(world: Any) -> None:
    """What a missing block changed is told when it comes, unless a later one spoke of the account; where nobody knows
    what did, the chain API is asked."""
    await start(world, hub_url="")
    chain, absent = Chain(world, 1), world.service.absent_accounts
    world.api.set(BOB.public, 4, 44)
    async with connected(world.ws) as client:
        for wallet in (ALICE, BOB):
            await client.ask(action="subscribe", topic=f"address/{address.encode(wallet.public)}")
        chain.final(accounts={ALICE.public: (1, 10)})
        late = chain.maker.block(accounts={ALICE.public: (2, 20), BOB.public: (3, 33)})
        chain.final()
        chain.tell(outport.SAVE_BLOCK, late)
        chain.final(accounts={ALICE.public: (3, 30)})
        assert await nonces(client, 3) == [1, 2, 3]
        await absent.turn()
        data = (await client.push())["data"]
        assert (data["address"], data["nonce"], data["balances"]) == (address.encode(BOB.public), 4, {"EGLD": "44"})


async def test_a_late_word_on_an_account_that_is_old(world: Any) -> None:
    """A block that comes behind a later one which spoke of the same account tells nothing of it."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(ALICE.public)}")
        chain.final(accounts={ALICE.public: (5, 1)})
        late = chain.maker.block(accounts={ALICE.public: (5, 2)})
        chain.final(accounts={ALICE.public: (5, 3)})
        chain.tell(outport.SAVE_BLOCK, late)
        chain.final(accounts={ALICE.public: (5, 4)})
        told = [(await client.push())["data"]["balances"]["EGLD"] for _ in range(3)]
    assert told == ["1", "3", "4"] and len(world.service.absent_accounts) == 0


async def test_a_block_without_a_height_names_none(world: Any) -> None:
    """Of a block whose header cannot be read the height is left out."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(ALICE.public)}")
        block = chain.maker.block(accounts={ALICE.public: (1, 5)})
        block.blockData.headerBytes = b"\xff"
        chain.tell(outport.SAVE_BLOCK, block)
        chain.finalise(block)
        assert "blockNonce" not in (await client.push())["data"]


def test_the_first_block_after_an_outage_is_not_late() -> None:
    """How long clients wait for a block counts from its coming: one that was made in an outage, and read after it, says
    nothing of that, and the next one does."""
    events, _ = quiet_events()
    events.head = lambda: 1
    numbers, maker = events._observer.numbers, BlockMaker(1)  # type: ignore[attr-defined]
    told(events, 1, maker, 5 * MINUTE)
    assert numbers.lag_ms is None
    told(events, 3, maker, 0.0)
    assert numbers.lag_ms is not None and numbers.lag_ms < 60_000


MINUTE = 60.0


def told(events: Events, sequence: int, maker: BlockMaker, ago: float, *args: Any, **options: Any) -> None:
    """A block of so many seconds ago and, as the next event, that it is final."""
    block = maker.block(*args, **options)
    block.blockData.timestampMs = int((time.time() - ago) * 1000)
    events.on_event(outport.SAVE_BLOCK, block.SerializeToString(), sequence)
    final = pb.FinalizedBlock(shardID=maker.shard, headerHash=block.blockData.headerHash)
    events.on_event(outport.FINALIZED_BLOCK, final.SerializeToString(), sequence + 1)


def test_a_shard_never_heard_of_is_silent_since_the_start() -> None:
    """Once any shard is heard of, all that the network has are counted; without a hub none is."""
    events, _ = quiet_events()
    assert events.silence() == {}
    told(events, 1, BlockMaker(1), 0.0)
    silence = events.silence()
    assert set(silence) == {0, 1, 2} and silence[2] == silence[0] >= silence[1]


def test_what_never_ends_is_not_read_again_for_ever() -> None:
    """A transaction that has no end for a quarter of an hour is forgotten, however late its block is read."""
    events, _ = quiet_events()
    events.head = lambda: 2
    source = BlockMaker(1)
    told(events, 1, source, 20 * MINUTE, [transfer(ALICE, receiver=BOB.public)])
    assert events._tracker.low_water == 1
    told(events, 3, source, 0.0)
    assert events._tracker.low_water is None and events._tracker.forgotten == 1


@pytest.mark.parametrize(("shard", "losses"), [(1, 0), (2, 1)])
def test_what_never_ends_is_a_loss_only_unless_its_senders_block_was_heard(shard: int, losses: int) -> None:
    """A call can wait for other shards for ever, and anybody can make one: its nonce is known to be used. Of one that
    was heard elsewhere alone that may be what was lost."""
    events, _ = quiet_events()
    events.head = lambda: 2
    maker, tx = BlockMaker(shard), transfer(ALICE, receiver=CONTRACT[:-1] + b"\2", data=b"buy@01", gas_limit=300_000)
    told(events, 1, maker, 20 * MINUTE, [tx], at_destination=shard == 2)
    assert events._tracker.sizes["pending"] == 1
    told(events, 3, maker, 0.0)
    assert events._tracker.sizes["pending"] == 0 and events._lifecycle._losses == losses


def test_what_ended_in_time_is_told_however_late_it_is_read() -> None:
    """Reading begins an hour back: each transaction has its quarter of an hour by the blocks, not by our clock."""
    events, _ = quiet_events()
    events.head = lambda: 100
    source, destination, tx = BlockMaker(1), BlockMaker(2), transfer(ALICE, receiver=BOB.public)
    told(events, 1, source, 60 * MINUTE, [tx])
    told(events, 3, source, 50 * MINUTE)
    told(events, 5, destination, 46 * MINUTE, [tx], at_destination=True)
    assert events._tracker.sizes["ended"] == 1 and events._tracker.forgotten == 0


def failing_step(chain: Chain, tx: Transaction) -> pb.OutportBlock:
    """A block that executes what a contract sent on for a transaction of another shard, and fails in it."""
    block, item, shard = chain.maker.block(), b"\x5c" * 32, chain.maker.shard
    result = pb.SmartContractResult(originalTxHash=chain_hash(tx), receiver=BOB.public, value=b"\0\0")
    block.transactionPool.smartContractResults[item.hex()].smartContractResult.CopyFrom(result)
    mini = pb.MiniBlock(txHashes=[item], senderShardID=1, receiverShardID=shard, type=90)  # type: ignore[arg-type]
    block.blockData.body.miniBlocks.append(mini)
    failed = pb.Event(identifier=b"signalError", topics=[b"c", b"no"])
    block.transactionPool.logs.append(pb.LogData(txHash=item.hex(), log=pb.Log(events=[failed])))
    return block


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_step_that_fails_before_its_block_is_heard(world: Any, *, is_ours: bool) -> None:
    """Whichever block comes first, each of the three hashes is told, once: of what is in flight here at once, of any
    other when its own block is heard."""
    await start(world, hub_url="")
    here, there = Chain(world, 1), Chain(world, 2)
    tx = whole = transfer(ALICE, receiver=CONTRACT, data=b"buy@01", gas_limit=300_000)
    if is_ours:
        assert await submit(world, tx) == ["ok"]
        whole = entry_of(world, tx).tx
    else:
        whole = msgspec.structs.replace(tx, relayer_signature=b"\7" * 64)
    early = list(early_hashes(whole))
    async with connected(world.ws) as client:
        for tx_hash in (chain_hash(whole), *early):
            await client.ask(action="subscribe", topic=f"tx-status/{tx_hash.hex()}")
        step = failing_step(there, whole)
        there.tell(outport.SAVE_BLOCK, step)
        there.finalise(step)
        assert world.service.events.statuses_told == (3 if is_ours else 1)
        here.final([whole])
        told = [(await client.push())["data"] for _ in range(3)]
    assert {data["hash"] for data in told} == {item.hex() for item in (chain_hash(whole), *early)}
    assert {(data["status"], data["reason"]) for data in told} == {("fail", "execution failed: no")}
    assert world.service.events.statuses_told == 3


async def test_who_waits_for_what_another_relayer_has_hears_of_a_step_that_failed(world: Any) -> None:
    """Such a transaction is known here by its client hash alone, which only its own block has."""
    await start(world, hub_url="")
    here, there, fates = Chain(world, 1), Chain(world, 2), world.service.lifecycle.fates
    tx = transfer(ALICE, receiver=CONTRACT, data=b"buy@01", gas_limit=300_000)
    assert await submit(world, tx) == ["ok"]
    entry = entry_of(world, tx)
    world.service.lifecycle.inflight.remove(entry)
    entry.state = "over"  # another relayer has it
    waiting = fates.wait(entry, "ip")
    step = failing_step(there, entry.tx)
    there.tell(outport.SAVE_BLOCK, step)
    there.finalise(step)
    assert not waiting.done()
    here.final([entry.tx])
    assert (waiting.result().state, waiting.result().reason) == ("fail", "execution failed: no")
    fates.forget(entry.client_hash, "ip", waiting)


async def test_whatever_a_token_is_called(world: Any) -> None:
    """Names that owners of tokens choose may be any bytes, or the coin's: the block that has one says as much as any
    other, and what a node told in JSON is the same."""
    await start(world, hub_url="")
    chain = Chain(world, 1)
    block = chain.maker.block([transfer(ALICE)], accounts={ALICE.public: (1, 10**18)})
    account = block.alteredAccounts[address.encode(ALICE.public)]
    account.additionalAccountData.userName = b"\xff\xfe"
    account.tokens.add(identifier=b"A-123456", nonce=1, balance="1").metaData.name = b"\xff\xfe"
    account.tokens.add(identifier=b"\xe2\x82-123456", balance="2")
    account.tokens.add(identifier=b"EGLD", balance="3")
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(ALICE.public)}")
        chain.tell(outport.SAVE_BLOCK, block)
        chain.finalise(block)
        told = (await client.push())["data"]
    assert told["balances"] == {"EGLD": str(10**18), "A-123456-01": "1", "\ufffd\ufffd-123456": "2"}
    assert world.service.events.unreadable == 0


NUMBERS = (0, 1, 5, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1, -1)
BYTES = (b"", b"\0", b"\1\5", b"\2", b"x" * 31, b"\xff" * 32, b"SetGuardian", b"\1" + b"\xff" * 600)
TEXTS = ("", "x", "\0", "é" * 50, "9" * 5000, "-5", "1e9")


def spoil(message: Message, chance: Random) -> None:
    """Set some fields of a message, and of those in it, to values no node would send."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() > 0.1:
            continue
        kind = field.cpp_type
        if kind == field.CPPTYPE_MESSAGE:
            if field.is_repeated and not field.message_type.GetOptions().map_entry:
                getattr(message, field.name).add()
            continue
        binary = field.type == field.TYPE_BYTES
        value = chance.choice(BYTES if binary else TEXTS if kind == field.CPPTYPE_STRING else NUMBERS)
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # does not fit into the field
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
    for field, value in message.ListFields():
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            many = field.is_repeated
            inner = value.values() if many and field.message_type.GetOptions().map_entry else value if many else [value]
            for item in list(inner):
                if isinstance(item, Message):
                    spoil(item, chance)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**32))
def test_row_41_whatever_a_node_tells(seed: int) -> None:
    """Events of impossible values are understood or counted as unreadable: none raises, none stops what comes next."""
    chance = Random(seed)
    events, published = quiet_events()
    maker, good = BlockMaker(1), transfer(ALICE)
    for _ in range(4):
        block = maker.block([good, transfer(ALICE, 1, relayed=False)], accounts={ALICE.public: (1, 5)})
        result = pb.SmartContractResult(originalTxHash=chain_hash(good), receiver=ALICE.public, value=b"\0\0")
        block.transactionPool.smartContractResults["ab" * 32].smartContractResult.CopyFrom(result)
        log = pb.Log(events=[pb.Event(identifier=b"signalError", topics=[b"a", b"b"])])
        block.transactionPool.logs.append(pb.LogData(txHash="ab" * 32, log=log))
        header = pb.HeaderV2.FromString(block.blockData.headerBytes)
        spoil(header, chance)
        if chance.random() < 0.3:
            block.blockData.headerBytes = header.SerializeToString()
        spoil(block, chance)
        data, shard = block.blockData, block.blockData.shardID
        accounts = pb.Accounts(shardID=shard, alteredAccounts=block.alteredAccounts)
        final = pb.FinalizedBlock(shardID=shard, headerHash=data.headerHash)
        for topic, message in (
            (outport.SAVE_BLOCK, block),
            (outport.SAVE_ACCOUNTS, accounts),
            (outport.FINALIZED_BLOCK, final),
            (outport.REVERT_INDEXED_BLOCK, data),
        ):
            events.on_event(topic, message.SerializeToString(), events.taken + 1)
    later = LaterMaker(1, nonce=4)
    for _ in range(4):
        proposed = later.propose([good])
        brings = later.propose([], [later.execute(proposed, [good], accounts={ALICE.public: (1, 5)})])
        results = results_of(brings)
        for topic, message in (
            (outport.SAVE_BLOCK, proposed),
            (outport.SAVE_BLOCK, brings),
            *((outport.EXECUTED_BLOCK, result) for result in results),
            (outport.REVERT_INDEXED_BLOCK, proposed.blockData),
        ):
            spoil(message, chance)
            events.on_event(topic, message.SerializeToString(), events.taken + 1)
    told = len(published)
    block = BlockMaker(2).block(accounts={wallet(2).public: (1, 6)})
    events.on_event(outport.SAVE_BLOCK, block.SerializeToString(), 99)
    final = pb.FinalizedBlock(shardID=2, headerHash=block.blockData.headerHash)
    events.on_event(outport.FINALIZED_BLOCK, final.SerializeToString(), 100)
    assert len(published) == told + 1
    assert set(events.block_at) <= {0, 1, 2, METACHAIN}
