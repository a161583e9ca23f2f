"""What clients, lifecycle and statistics make of blocks that are proposed first and executed later."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import msgspec
import pytest
from relayer_later import ROUND_MS, LaterChain, LaterMaker, results_of
from relayer_quiet import quiet_events
from relayer_support import (
    RELAYERS,
    Chain,
    as_json,
    connected,
    entry_of,
    start,
    submit,
    transfer,
    wallet,
)

from millrace.chain import address, outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import Transaction, chain_hash, client_hash
from millrace.relayer.events.events import INCOMPLETE, NOT_EXECUTABLE
from waiting import until

ALICE = wallet(1)
EGLD = 10**18


def chain_of(world: Any, shard: int = 1, **start_at: Any) -> LaterChain:
    """Blocks of this moment: what is proposed in them was sent before."""
    return LaterChain(world.service.events, shard, start_ms=time.time_ns() // 1_000_000 + 1_000, **start_at)


def signed(world: Any) -> list[Transaction]:
    return [entry.tx for entry in world.service.lifecycle.inflight.entries()]


async def subscribe(client: Any, tx_hash: bytes) -> None:
    assert (await client.ask(action="subscribe", topic=f"tx-status/{tx_hash.hex()}"))["status"] == "ok"


async def status(client: Any) -> tuple[str, str]:
    data = (await client.push())["data"]
    return data["status"], data.get("reason", "")


@pytest.mark.parametrize("name", [outport.EXECUTED_BLOCK, outport.SAVE_BLOCK])
async def test_pending_until_executed_and_final(world: Any, name: str) -> None:
    """Neither a final proposal nor a result under a header that is not final is an end; finality of that header is.
    It is so under either name that the notifier may give to executions."""
    await start(world, hub_url="")
    chain = chain_of(world)
    chain.executed_topic = name
    tx = transfer(ALICE)
    assert await submit(world, tx) == ["ok"]
    (whole,) = signed(world)
    async with connected(world.ws) as client:
        await subscribe(client, client_hash(tx))
        block = chain.propose([whole])
        carrier = chain.save(chain.maker.propose([], [chain.maker.execute(block, [whole])]))
        assert world.service.events.statuses_told == 0 and len(world.service.lifecycle.inflight) == 1
        chain.finalise(carrier)
        pushed = await client.push()
        assert pushed["data"] == {
            "hash": client_hash(tx).hex(), "status": "success", "chainHash": chain_hash(whole).hex(),
        }  # fmt: skip
    assert len(world.service.lifecycle.inflight) == 0
    assert world.service.events.execution.blocks == {1: 1}


async def test_not_executable_and_then_executed(world: Any) -> None:
    """It fails once for who asked, keeps its nonce and its fee at risk, is sent no more until its client sends it
    again, and ends as what it is when it is executed after all."""
    await start(world, hub_url="")
    service, ledger = world.service, world.service.lifecycle.sponsor.budgets
    chain = chain_of(world)
    tx = transfer(ALICE)
    assert await submit(world, tx) == ["ok"]
    (whole,) = signed(world)
    entry = entry_of(world, tx)
    at_risk, left = ledger.at_risk(tx.relayer), entry.fee
    assert at_risk == left > 0
    async with connected(world.ws) as client:
        await subscribe(client, client_hash(tx))
        carrier = chain.execute(chain.propose([whole]))  # it is in neither map: nodes forget to name it
        assert await status(client) == ("fail", NOT_EXECUTABLE)
        assert ledger.at_risk(tx.relayer) == at_risk and entry.state == "expired"
        assert not service.lifecycle.is_wanted(entry)
        other = transfer(ALICE, data=b"other", gas_limit=200_000)
        assert await submit(world, other) == ["conflicting transaction"]
        async with connected(world.ws) as second:
            answer = await second.ask(action="relay", tx=as_json(tx), autoSubscribe=True)
            assert answer["hashes"] == [chain_hash(whole).hex()]
            assert service.lifecycle.is_wanted(entry) and entry.state == "signed"
            chain.maker.start_ms = time.time_ns() // 1_000_000
            block = chain.propose([whole])
            chain.execute(block, [whole])
            assert (await second.push())["data"]["status"] == "success"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.next()
                raise AssertionError("who was told of a failure hears no second end")
    assert ledger.at_risk(tx.relayer) == 0 and len(service.lifecycle.inflight) == 0
    assert carrier.blockData.headerHash != block.blockData.headerHash


async def test_a_chain_whose_clock_is_late(world: Any) -> None:
    """News are news whatever the chain's clock says: it is told, and nothing is sent any more."""
    await start(world, hub_url="")
    chain = LaterChain(world.service.events, 1, start_ms=time.time_ns() // 1_000_000 - 10_000)
    tx = transfer(ALICE)
    assert await submit(world, tx) == ["ok"]
    (whole,) = signed(world)
    async with connected(world.ws) as client:
        await subscribe(client, client_hash(tx))
        chain.execute(chain.propose([whole]), unexecutable=[whole])
        assert await status(client) == ("fail", NOT_EXECUTABLE)
    assert entry_of(world, tx).state == "expired"


async def test_who_sends_again_hears_the_second_end(world: Any) -> None:
    """Who was told that it was not executable, and sends it again by the same connection, hears what becomes of it."""
    await start(world, hub_url="")
    chain, tx = chain_of(world), transfer(ALICE)
    async with connected(world.ws) as client:
        for number, end in enumerate([("fail", NOT_EXECUTABLE), ("success", "")]):
            answer = await client.ask(action="relay", tx=as_json(tx), autoSubscribe=True)
            (whole,) = signed(world)
            assert answer["results"][0]["topic"] == f"tx-status/{chain_hash(whole).hex()}"
            chain.maker.start_ms = time.time_ns() // 1_000_000 + 1_000 * (1 - number)
            chain.execute(chain.propose([whole]), [whole] * number)
            assert await status(client) == end


async def test_what_is_read_again_of_a_transaction_that_has_ended(world: Any) -> None:
    """It could not be executed once, and then it was: read again after a restart, the first is no end any more."""
    await start(world, hub_url="")
    chain = chain_of(world)
    tx = transfer(ALICE)
    assert await submit(world, tx) == ["ok"]
    (whole,) = signed(world)
    chain.execute(chain.propose([whole]), unexecutable=[whole])
    assert await submit(world, tx) == ["ok"]
    chain.maker.start_ms = time.time_ns() // 1_000_000
    chain.execute(chain.propose([whole]), [whole])
    assert len(world.service.lifecycle.inflight) == 0
    world.service.events.head = lambda: 10**9
    again = chain_of(world)
    told = world.service.events.statuses_told
    async with connected(world.ws) as client:
        await subscribe(client, client_hash(tx))
        again.execute(again.propose([whole]), unexecutable=[whole])
    assert world.service.events.statuses_told == told


async def test_old_news_of_what_was_sent_again(world: Any) -> None:
    """A block from before the client sent it again, as it is read again after a restart, stops nothing."""
    await start(world, hub_url="")
    world.service.events.head = lambda: 10**9
    chain = chain_of(world)
    tx = transfer(ALICE)
    assert await submit(world, tx) == ["ok"]
    (whole,) = signed(world)
    chain.maker.start_ms -= 2 * ROUND_MS + 3_000
    async with connected(world.ws) as client:
        await subscribe(client, client_hash(tx))
        chain.execute(chain.propose([whole]), unexecutable=[whole])
        assert entry_of(world, tx).state == "signed" and world.service.events.statuses_told == 0


async def test_a_block_that_began_before_its_transaction_came(world: Any) -> None:
    """What comes during a round may be in its block, which bears the time when it began."""
    await start(world, hub_url="")
    chain = chain_of(world)
    tx = transfer(ALICE)
    assert await submit(world, tx) == ["ok"]
    chain.maker.start_ms -= 2 * ROUND_MS
    chain.execute(chain.propose(signed(world)), unexecutable=signed(world))
    assert entry_of(world, tx).state == "expired"


async def test_a_clock_a_little_ahead_hides_no_end(world: Any) -> None:
    """What is read again counts also where ours is ahead of the chain's by a second or two."""
    await start(world, hub_url="")
    world.service.events.head = lambda: 10**9
    chain = chain_of(world)
    tx = transfer(ALICE)
    assert await submit(world, tx) == ["ok"]
    chain.maker.start_ms -= 2 * ROUND_MS + 1_500
    chain.execute(chain.propose(signed(world)), unexecutable=signed(world))
    assert entry_of(world, tx).state == "expired"


async def test_not_executable_for_a_stranger(world: Any) -> None:
    """Of transactions that the relayer never saw subscribers hear the same, by either hash when nodes name it."""
    await start(world, hub_url="")
    chain = chain_of(world)
    tx = msgspec.structs.replace(transfer(ALICE), relayer_signature=b"\7" * 64)
    async with connected(world.ws) as client:
        await subscribe(client, client_hash(tx))
        await subscribe(client, chain_hash(tx))
        chain.execute(chain.propose([tx]), unexecutable=[tx])
        assert {await status(client), await status(client)} == {("fail", NOT_EXECUTABLE)}


async def test_a_broadcast_keeps_its_nonce_for_its_lifetime(world: Any) -> None:
    """What nobody here signed is let go when its time is over; until then other bytes are refused."""
    await start(world, hub_url="")
    lifecycle, chain = world.service.lifecycle, chain_of(world)
    tx = transfer(ALICE, relayed=False)
    assert await submit(world, tx, kind="broadcast") == ["ok"]
    chain.execute(chain.propose([tx]), unexecutable=[tx])
    other = transfer(ALICE, relayed=False, data=b"other", gas_limit=200_000)
    assert await submit(world, other, kind="broadcast") == ["conflicting transaction"]
    entry = entry_of(world, tx)
    lifecycle.drop_given_up(entry.created_ms)
    assert len(lifecycle.inflight) == 1
    lifecycle.drop_given_up(entry.created_ms + 1)
    assert len(lifecycle.inflight) == 0
    assert await submit(world, other, kind="broadcast") == ["ok"]


async def test_given_up_after_a_restart(world: Any) -> None:
    """A transaction that was not executable is taken over as such: it is not sent by itself, and keeps its nonce."""
    service = await world.start(hub_url="")
    chain = chain_of(world)
    tx = transfer(ALICE)
    assert await submit(world, tx) == ["ok"]
    await world.api.wait_submitted(1)
    (whole,) = signed(world)
    chain.execute(chain.propose([whole]), unexecutable=[whole])
    await world.stop()
    service = await world.start(hub_url="")
    assert entry_of(world, tx).state == "expired" and service.broadcaster.queued == 0
    assert await submit(world, transfer(ALICE, data=b"x", gas_limit=200_000)) == ["conflicting transaction"]
    assert await submit(world, tx) == ["ok"]
    assert entry_of(world, tx).state == "signed"


async def test_a_restart_before_a_result_is_final(world: Any) -> None:
    """Proposal and result are read again from where they are needed, so a transaction still ends as it should."""
    service = await world.start()
    txs = [transfer(ALICE), transfer(ALICE, 1)]
    assert await submit(world, *txs) == ["ok", "ok"]
    ran, missed = signed(world)
    maker = LaterMaker(1, start_ms=time.time_ns() // 1_000_000 + 1_000)
    block = maker.propose([ran, missed])
    carrier = maker.propose([], [maker.execute(block, [ran])])
    world.hub.save(block)
    world.hub.save(carrier, final=False)
    for result in results_of(carrier):
        world.hub.push(outport.EXECUTED_BLOCK, result)
    await until(lambda: service.events.taken >= 4)
    assert len(service.lifecycle.inflight) == 2
    await world.stop()
    service = await world.start()
    assert world.hub.resumed_after[-1] == 0
    async with connected(world.ws) as client:
        for tx in txs:
            await subscribe(client, client_hash(tx))
        world.hub.finalise(carrier)
        assert {await status(client), await status(client)} == {("success", ""), ("fail", NOT_EXECUTABLE)}
    assert [entry.state for entry in service.lifecycle.inflight.entries()] == ["expired"]


async def test_accounts_that_run_ahead(world: Any) -> None:
    """A nonce that is ahead of its result supersedes nothing until the header that brought it has been executed."""
    await start(world, hub_url="")
    lifecycle, chain = world.service.lifecycle, chain_of(world)
    first, second = transfer(ALICE), transfer(ALICE, 1)
    assert await submit(world, first, second) == ["ok", "ok"]
    whole, other = signed(world)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(ALICE.public)}")
        below = chain.propose([whole])
        ran = chain.maker.execute(below, [whole], accounts={ALICE.public: (2, EGLD)})
        above = chain.save(chain.maker.propose([other], [ran]))
        chain.finalise(above)
        data = (await client.push())["data"]
        assert (data["nonce"], data["blockHash"]) == (2, below.blockData.headerHash.hex())
        assert data["timestamp"] == below.blockData.timestampMs
    assert [entry.tx.nonce for entry in lifecycle.inflight.entries()] == [1], (
        "it may have been executed, and not told yet"
    )
    assert (await world.service.accounts.know(ALICE.public)).nonce == 2
    spent = lifecycle.sponsor.budgets.at_risk(second.relayer)
    chain.execute(above, [other], accounts={ALICE.public: (2, EGLD)})
    assert len(lifecycle.inflight) == 0 and spent > 0
    await world.service.journal.flush()
    record = world.service.journal.find(ALICE.public, 1, client_hash(second))
    assert record is not None and record.cost == 50_000 * second.gas_price, "at its real fee"


async def test_what_was_superseded_ahead_of_time(world: Any) -> None:
    """When the header's own execution has been told and does not have it, other bytes have used the nonce."""
    await start(world, hub_url="")
    lifecycle, chain = world.service.lifecycle, chain_of(world)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    below = chain.propose()
    above = chain.execute(below, accounts={ALICE.public: (1, EGLD)})
    assert len(lifecycle.inflight) == 1
    chain.execute(above)
    assert len(lifecycle.inflight) == 0


async def test_a_revert_takes_back_nothing_that_a_final_header_knew(world: Any) -> None:
    """What was superseded ahead of its result ends with that, whatever is rolled back beside the final headers."""
    await start(world, hub_url="")
    lifecycle, chain = world.service.lifecycle, chain_of(world)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    above = chain.execute(chain.propose(), accounts={ALICE.public: (1, EGLD)})
    chain.revert(chain.save(chain.maker.propose(fork=1)))
    assert len(lifecycle.inflight) == 1
    chain.execute(above)
    assert len(lifecycle.inflight) == 0


async def test_relayers_are_asked_for(world: Any) -> None:
    """Who paid for others is in no result's accounts: subscribers hear what the chain API says, once a turn."""
    await start(world, hub_url="")
    chain, absent = chain_of(world), world.service.absent_accounts
    key = RELAYERS[1].public
    world.api.set(key, 0, 7 * EGLD)
    txs = [transfer(ALICE, nonce) for nonce in range(3)]
    assert await submit(world, *txs) == ["ok"] * 3
    whole = signed(world)
    async with connected(world.ws) as client:
        first = chain.propose(whole[:1])
        chain.execute(first, whole[:1])
        assert len(absent) == 0, "nobody asks for it"
        await client.ask(action="subscribe", topic=f"address/{address.encode(key)}")
        for tx in whole[1:]:
            block = chain.propose([tx])
            chain.execute(block, [tx])
        asked = len(world.api.asked)
        await absent.turn()
        data = (await client.push())["data"]
        assert data["balances"] == {"EGLD": str(7 * EGLD)} and data["blockHash"] == block.blockData.headerHash.hex()
        assert len(world.api.asked) == asked + 1 and len(absent) == 0


async def test_nonces_never_go_back(world: Any) -> None:
    """Where the chain API is ahead of the stream, what blocks say of the time before its answer is not told; and an
    answer of before what a block has said is not told either. What was rolled back is no answer any more."""
    await start(world, hub_url="")
    chain, absent = chain_of(world), world.service.absent_accounts
    key = RELAYERS[1].public
    world.api.set(key, 9, 7 * EGLD)
    assert await submit(world, *(transfer(ALICE, nonce) for nonce in range(2))) == ["ok"] * 2
    whole = signed(world)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(key)}")

        async def nonces(count: int) -> list[int]:
            return [(await client.push())["data"]["nonce"] for _ in range(count)]

        chain.execute(chain.propose(whole[:1]), whole[:1])
        await absent.turn()
        for nonce in (8, 9, 10):
            chain.execute(chain.propose(), accounts={key: (nonce, EGLD)})
        assert await nonces(3) == [9, 9, 10]
        world.service.book.forget_all()
        chain.execute(chain.propose(whole[1:]), whole[1:])
        await absent.turn()
        chain.execute(chain.propose(), accounts={key: (11, EGLD)})
        assert await nonces(1) == [11]
        chain.revert(chain.save(chain.maker.propose(fork=1)))
        chain.execute(chain.propose(), accounts={key: (10, EGLD)})
        assert await nonces(1) == [10]


async def test_a_result_that_leaves_something_out(world: Any) -> None:
    """What a result does not show may have ended something: it counts as missing for good."""
    await start(world, hub_url="")
    chain = chain_of(world)
    block = chain.propose([transfer(ALICE)])
    carrier = chain.maker.propose([], [chain.maker.execute(block, [transfer(ALICE)])])
    (result,) = results_of(carrier)
    result.blockData.body.ClearField("miniBlocks")
    chain.tell(outport.SAVE_BLOCK, carrier)
    assert world.service.events.incomplete == 0
    chain.tell(outport.EXECUTED_BLOCK, result)
    assert world.service.events.incomplete == 1


async def test_results_that_are_missing(world: Any) -> None:
    """A mark of missing results is counted and makes the relayer forget what it knew of accounts."""
    await start(world, hub_url="")
    chain = chain_of(world)
    await world.service.accounts.know(ALICE.public)
    chain.tell(outport.SAVE_BLOCK, chain.maker.propose(), marks=1)
    assert len(world.service.book) == 1
    chain.tell(outport.SAVE_BLOCK, chain.maker.propose(), marks=INCOMPLETE | 1)
    assert len(world.service.book) == 0 and world.service.events.incomplete == 1


async def test_the_change_over_in_one_stream(world: Any) -> None:
    """A transaction in a last block of the earlier format and one in the first of the present one both end."""
    await start(world, hub_url="")
    earlier = Chain(world, 1)
    txs = [transfer(ALICE), transfer(ALICE, 1)]
    assert await submit(world, *txs) == ["ok", "ok"]
    first, second = signed(world)
    last = earlier.final([first], accounts={ALICE.public: (1, EGLD)})
    assert len(world.service.lifecycle.inflight) == 1
    chain = chain_of(world, nonce=earlier.maker.nonce, previous=last.blockData.headerHash)
    chain.execute(chain.propose([second]), [second], accounts={ALICE.public: (2, EGLD)})
    assert len(world.service.lifecycle.inflight) == 0
    assert world.service.tracker.low_water == 3, "the header that brought the result waits for its own"


async def test_latest_shard_is_one_block(world: Any) -> None:
    """The newest block whose execution is final: proposed transactions and leader from it, fees from its result."""
    await start(world, hub_url="")
    chain = chain_of(world)
    txs = [transfer(ALICE, nonce, relayed=False) for nonce in range(3)]
    block = chain.propose(txs)
    chain.execute(block, txs[:2], unexecutable=txs[2:], failing=txs[1:2])
    payload = world.service.statistics.payload(0)
    assert payload["blocks"]["latestShard"] == {
        "shardId": 1, "nonce": 1, "round": 8, "epoch": 3, "txCount": 3, "executedTxCount": 1,
        "timestampMs": block.blockData.timestampMs, "leaderSignatureHex": "0a0b", "accumulatedFees": "9",
        "developerFees": "2",
    }  # fmt: skip
    assert payload["blocks"]["blockTimeMsP50ByShard"]["1"] == 600
    prices = world.service.statistics.gas.message(1).data.gas_price
    assert prices.percentiles.p50 == 10**9


@pytest.mark.parametrize("told_ms", [0, 1_234])
async def test_times_are_those_of_the_proposal(world: Any, told_ms: int) -> None:
    """When a block was made its header says, whatever a node tells with its result."""
    await start(world, hub_url="")
    chain = chain_of(world)
    tx = transfer(ALICE, relayed=False)
    assert await submit(world, tx, kind="broadcast") == ["ok"]
    block = chain.propose([tx])
    made = chain.maker.execute(block, unexecutable=[tx], accounts={ALICE.public: (1, EGLD)})
    made.data.timestampMs = told_ms
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(ALICE.public)}")
        chain.finalise(chain.save(chain.maker.propose([], [made])))
        assert (await client.push())["data"]["timestamp"] == block.blockData.timestampMs
    latest = world.service.statistics.payload(0)["blocks"]["latestShard"]
    assert latest["timestampMs"] == block.blockData.timestampMs
    assert [each.timestamp_ms for each in world.service.statistics.numbers.final_blocks(0).blocks["1"]] == [
        block.blockData.timestampMs
    ]


async def test_what_is_not_executable_waits_no_more(world: Any) -> None:
    """A transaction leaves the waiting ones when it is executed at its source, or cannot be."""
    await start(world, hub_url="")
    chain = chain_of(world)
    txs = [transfer(ALICE, nonce) for nonce in range(3)]
    assert await submit(world, *txs) == ["ok"] * 3
    whole = signed(world)
    block = chain.propose(whole)
    assert world.service.statistics.payload(0)["mempool"]["estimatedQueue"] == 3
    chain.execute(block, whole[:1], unexecutable=whole[1:2])
    assert world.service.statistics.payload(0)["mempool"]["estimatedQueue"] == 0


def test_row_41_whatever_comes_as_a_result() -> None:
    """Results of no header, of headers nobody saw, of other shards and of nonsense are counted or held, no more."""
    events, published = quiet_events()
    maker = LaterMaker(1)
    tx = transfer(ALICE)
    (good,) = results_of(maker.propose([], [maker.execute(maker.propose([tx]), [tx], accounts={ALICE.public: (1, 1)})]))
    spoiled = []
    for change in ({"shardID": 9}, {"headerBytes": b"\xff"}, {"headerType": "HeaderV9"}, {"headerHash": b""}):
        bad = pb.OutportBlock.FromString(good.SerializeToString())
        for field, value in change.items():
            setattr(bad.blockData, field, value)
        spoiled.append(bad)
    for number, message in enumerate([*spoiled, good, good], 1):
        events.on_event(outport.EXECUTED_BLOCK, message.SerializeToString(), number)
    assert events.unreadable == 3 and events.statuses_told == 0 and published == []


def test_what_cannot_be_read_is_named_once(caplog: Any) -> None:
    """Blocks of a type nobody knows are counted each, and logged once."""
    events, _ = quiet_events()
    block = LaterMaker(1).propose()
    block.blockData.headerType = "HeaderV4"
    for number in range(1, 6):
        events.on_event(outport.SAVE_BLOCK, block.SerializeToString(), number)
    assert events.unreadable == 5
    assert len([item for item in caplog.records if item.message == "unreadable event"]) == 1
