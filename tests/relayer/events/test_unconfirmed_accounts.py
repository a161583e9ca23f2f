"""Accounts that are announced: believed when a final block is as late, never after a revert."""

from __future__ import annotations

from typing import Any

from relayer_support import Chain, connected, start, submit, transfer, wallet

from millrace.chain import address, outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.relayer.blocks.facts import AccountFact
from millrace.relayer.events.unconfirmed_accounts import MAX_REVERTED, UnconfirmedAccounts

ALICE = wallet(1)


def fact(nonce: int) -> AccountFact:
    return AccountFact(ALICE.public, nonce, 0, {})


def announce(chain: Chain, time_ms: int, nonce: int, balance: int = 10**18) -> None:
    """SaveAccounts with the state of one account."""
    message = pb.Accounts(shardID=chain.maker.shard, blockTimestampMs=time_ms)
    name = address.encode(ALICE.public)
    message.alteredAccounts[name].CopyFrom(pb.AlteredAccount(address=name, nonce=nonce, balance=str(balance)))
    chain.tell(outport.SAVE_ACCOUNTS, message)


async def test_row_42_accounts_wait_for_finality(world: Any) -> None:
    """What SaveAccounts says of a block that is not final moves nobody's nonce; its finality does."""
    await start(world)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    chain, inflight = Chain(world, 1), world.service.lifecycle.inflight
    chain.final()
    block = chain.save()
    announce(chain, block.blockData.timestampMs, 5)
    assert len(inflight) == 1 and world.service.book.get(ALICE.public).nonce == 0
    chain.finalise(block)
    assert len(inflight) == 0 and world.service.book.get(ALICE.public).nonce == 5


async def test_row_42_accounts_of_a_reverted_block(world: Any) -> None:
    """What SaveAccounts says of a block that is rolled back is undone, whether it comes before the revert or after."""
    await start(world)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    chain, inflight = Chain(world, 1), world.service.lifecycle.inflight
    chain.final()
    block = chain.save()
    stamp = block.blockData.timestampMs
    announce(chain, stamp, 5)
    chain.revert(block)
    announce(chain, stamp, 6)
    chain.final()
    assert len(inflight) == 1 and world.service.book.get(ALICE.public).nonce == 0


async def test_accounts_before_any_block_are_believed(world: Any) -> None:
    """At genesis, and from a source that sends accounts alone, SaveAccounts is told at once."""
    await start(world)
    chain = Chain(world, 1)
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic=f"address/{address.encode(ALICE.public)}")
        announce(chain, 1_700_000_000_000, 3, 77)
        data = (await client.push())["data"]
        assert (data["nonce"], data["balances"]["EGLD"], data["timestamp"]) == (3, "77", 1_700_000_000_000)


def test_what_is_believed_when() -> None:
    """Up to the last final block at once, beyond it when a block as late is final; of one shard and no other."""
    held = UnconfirmedAccounts()
    assert held.announce(0, 10, (fact(1),), unfinished=False) == (fact(1),)
    assert held.announce(0, 10, (fact(1),), unfinished=True) == ()
    assert held.finalise(0, 9) == [] and held.finalise(0, 10) == [(10, (fact(1),))]
    assert held.announce(0, 10, (fact(2),), unfinished=True) == (fact(2),)
    for at, nonce in ((30, 4), (20, 3), (20, 3), (40, 5)):
        assert held.announce(0, at, (fact(nonce),), unfinished=False) == ()
    assert held.finalise(1, 50) == []
    assert held.finalise(0, 30) == [(20, (fact(3), fact(3))), (30, (fact(4),))]
    assert len(held) == 1
    assert held.finalise(0, 25) == []
    assert held.announce(0, 30, (fact(6),), unfinished=True) == (fact(6),), "a late word of an older block"


async def test_announcements_without_milliseconds(world: Any) -> None:
    """A time in seconds alone is as good."""
    await start(world)
    chain = Chain(world, 1)
    block = chain.final()
    message = pb.Accounts(shardID=1, blockTimestamp=block.blockData.timestampMs // 1000 + 6)
    name = address.encode(ALICE.public)
    message.alteredAccounts[name].CopyFrom(pb.AlteredAccount(address=name, nonce=5, balance="1"))
    assert await submit(world, transfer(ALICE)) == ["ok"]
    chain.tell(outport.SAVE_ACCOUNTS, message)
    assert world.service.book.get(ALICE.public).nonce == 0, "it is of the next block"
    chain.final()
    assert world.service.book.get(ALICE.public).nonce == 5


async def test_announcements_whose_seconds_are_milliseconds(world: Any) -> None:
    """Once nodes count milliseconds in the field of seconds, that is what the time is."""
    await start(world)
    chain = Chain(world, 1)
    block = chain.final()
    message = pb.Accounts(shardID=1, blockTimestamp=block.blockData.timestampMs)
    name = address.encode(ALICE.public)
    message.alteredAccounts[name].CopyFrom(pb.AlteredAccount(address=name, nonce=5, balance="1"))
    assert await submit(world, transfer(ALICE)) == ["ok"]
    chain.tell(outport.SAVE_ACCOUNTS, message)
    assert world.service.book.get(ALICE.public).nonce == 5


def test_tables_are_bounded() -> None:
    """Beyond its bound the oldest announcement is forgotten and counted; so are the oldest reverts."""
    held = UnconfirmedAccounts(capacity=3)
    held.finalise(0, 1)
    for at in range(2, 7):
        held.announce(0, at, (fact(at),), unfinished=True)
    assert len(held) == 3 and held.forgotten == 2
    assert [at for at, _ in held.finalise(0, 100)] == [4, 5, 6] and len(held) == 0
    for at in range(MAX_REVERTED + 10):
        held.revert(0, 1000 + at)
    assert len(held._reverted) == MAX_REVERTED
