"""Accounts on demand: when what is known is asked for again."""

from __future__ import annotations

from typing import Any

import pytest
from relayer_support import Chain, start, submit, transfer, wallet

from millrace.chain import address
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import chain_hash
from millrace.relayer.ledger.accounts import AccountBook
from millrace.relayer.network.account_source import (
    GUARDED_SECONDS,
    LAG_SECONDS,
    MAX_SILENT,
    PAYER_SECONDS,
    SILENT_SECONDS,
    AccountSource,
)
from millrace.relayer.network.chain_api import ChainAccount, ChainApiError, NotToldError
from millrace.relayer.protocol.reasons import Refused

ALICE, BOB, GUARDIAN = wallet(1), wallet(1, 1), wallet(0, 30)
NAME = address.encode(ALICE.public)


class Clock:
    """The relayer's clock for accounts and events, set by hand."""

    def __init__(self, world: Any) -> None:
        self.now = 1e9
        world.service.accounts._clock = world.service.events._clock = lambda: self.now


async def known(world: Any) -> Clock:
    """A relayer that knows of two accounts that they have no guardian."""
    await start(world, hub_url="")
    clock = Clock(world)
    world.api.guardians |= dict.fromkeys((NAME, address.encode(BOB.public)), b"")
    for pair in (ALICE, BOB):
        assert await submit(world, transfer(pair)) == ["ok"]
    world.api.asked.clear()
    clock.now += 3600.0
    return clock


def block(world: Any, name: bytes, *, by: str, final: bool = True) -> None:
    """A block in which Alice calls a built-in function, told by its transaction or by the event alone."""
    chain = Chain(world, 1)
    call = transfer(ALICE, 7, receiver=ALICE.public, relayed=False, data=name + b"@aa", gas_limit=500_000)
    made = chain.maker.block([call] if by == "transaction" else [transfer(BOB, 7, relayed=False)])
    if by == "event":
        event = pb.Event(address=ALICE.public, identifier=name)
        item = next(iter(made.transactionPool.transactions))
        made.transactionPool.logs.append(pb.LogData(txHash=item, log=pb.Log(events=[event])))
    assert chain_hash(call)
    chain.tell("SaveBlock", made)
    if final:
        chain.finalise(made)


@pytest.mark.parametrize("name", [b"SetGuardian", b"GuardAccount", b"UnGuardAccount"])
@pytest.mark.parametrize("by", ["transaction", "event"])
async def test_row_11_a_changed_guardian_is_asked_for_at_once(world: Any, name: bytes, by: str) -> None:
    """After a final block that changes a guardian the chain API is asked before anything is signed for that account."""
    await known(world)
    world.api.guardians[NAME] = GUARDIAN.public
    block(world, name, by=by)
    assert await submit(world, transfer(ALICE, 1), transfer(BOB, 1)) == ["invalid guardian", "ok"]
    assert world.api.asked == [NAME]


async def test_a_block_that_is_not_final_changes_nothing(world: Any) -> None:
    """What may still be reverted asks nothing."""
    await known(world)
    block(world, b"GuardAccount", by="transaction", final=False)
    assert await submit(world, transfer(ALICE, 1)) == ["ok"]
    assert world.api.asked == []


async def test_an_api_that_lags_is_asked_again(world: Any) -> None:
    """An answer so soon after the block may be older than it: it is asked for again until one is late enough."""
    clock = await known(world)
    block(world, b"GuardAccount", by="transaction")
    assert await submit(world, transfer(ALICE, 1)) == ["ok"]
    world.api.guardians[NAME] = GUARDIAN.public
    clock.now += 1.0
    assert await submit(world, transfer(ALICE, 2)) == ["invalid guardian"]
    world.api.guardians[NAME] = b""
    clock.now += LAG_SECONDS
    assert await submit(world, transfer(ALICE, 2)) == ["ok"]
    asked = len(world.api.asked)
    clock.now += 1.0
    assert await submit(world, transfer(ALICE, 3)) == ["ok"] and len(world.api.asked) == asked


async def test_an_api_that_is_silent_settles_nothing(world: Any) -> None:
    """While nobody says who the new guardian is nothing is signed for the account; others are served."""
    clock = await known(world)
    block(world, b"GuardAccount", by="transaction")
    world.api.down = True
    assert await submit(world, transfer(ALICE, 1), transfer(BOB, 1)) == ["account state unavailable", "ok"]
    world.api.down = False
    clock.now += 1.0
    assert await submit(world, transfer(ALICE, 1)) == ["ok"]


async def test_guarded_accounts_are_asked_for_now_and_then(world: Any) -> None:
    """A guardian that becomes active with an epoch is told by no event: what is known of guarded accounts grows old."""
    clock = await known(world)
    world.api.guardians[NAME] = GUARDIAN.public
    block(world, b"GuardAccount", by="transaction")
    assert await submit(world, transfer(ALICE, 1)) == ["invalid guardian"]
    clock.now += LAG_SECONDS
    assert await submit(world, transfer(ALICE, 1)) == ["invalid guardian"]
    asked = len(world.api.asked)
    world.api.guardians[NAME] = b""
    clock.now += GUARDED_SECONDS
    assert (await world.service.accounts.know(ALICE.public)).guardian == b""
    assert len(world.api.asked) == asked + 1
    clock.now += GUARDED_SECONDS
    await world.service.accounts.know(ALICE.public)
    assert len(world.api.asked) == asked + 1, "without a guardian nothing can change unnoticed"


async def test_where_a_guardian_is_pending_the_account_is_asked_for_each_time(world: Any) -> None:
    """Nobody tells when the epoch comes that makes him the active one: what the old one signs then is not sponsored."""
    clock = await known(world)
    world.api.guardians[NAME], world.api.pending[NAME] = GUARDIAN.public, BOB.public
    block(world, b"SetGuardian", by="transaction")
    clock.now += LAG_SECONDS
    assert (await world.service.accounts.know(ALICE.public)).guardian == GUARDIAN.public
    clock.now += LAG_SECONDS
    world.api.guardians[NAME] = world.api.pending.pop(NAME)
    assert (await world.service.accounts.know(ALICE.public)).guardian == BOB.public


class Api:
    """A chain API by itself: counts its questions, and fails while it is `down`."""

    def __init__(self) -> None:
        self.asked = 0
        self.down = False
        self.unknown: set[bytes] = set()

    async def account(self, pubkey: bytes) -> ChainAccount:
        self.asked += 1
        if pubkey in self.unknown:
            raise NotToldError("500")
        if self.down:
            raise ChainApiError("down")
        return ChainAccount(1, 10**18, b"")


async def test_a_payers_balance_is_asked_for_again() -> None:
    """What a foreign relayer has is asked for when it is ten seconds old, as no event tells of fees it pays."""
    api, now = Api(), 100.0
    source = AccountSource(AccountBook(), api, lambda: now)  # type: ignore[arg-type]
    for after, asked in ((0.0, 1), (PAYER_SECONDS - 0.1, 1), (PAYER_SECONDS, 2), (PAYER_SECONDS, 2)):
        now = 100.0 + after
        assert (await source.know_payer(ALICE.public)).nonce == 1
        assert api.asked == asked


async def test_one_account_that_the_api_cannot_tell_of_silences_no_other() -> None:
    """A quick answer that says nothing of one account keeps questions for that account back, and for nobody else."""
    api, now = Api(), 100.0
    source = AccountSource(AccountBook(), api, lambda: now)  # type: ignore[arg-type]
    api.unknown = {BOB.public, GUARDIAN.public}
    for pubkey in (BOB.public, BOB.public, GUARDIAN.public):
        with pytest.raises(Refused, match="account state unavailable"):
            await source.know(pubkey)
    assert (api.asked, source.is_silent) == (2, False)
    assert (await source.know(ALICE.public)).nonce == 1
    now += SILENT_SECONDS
    api.unknown.clear()
    assert (await source.know(BOB.public)).nonce == 1


async def test_accounts_that_are_left_alone_are_bounded() -> None:
    """Beyond so many, the account that failed first may be asked for again."""
    api = Api()
    source = AccountSource(AccountBook(), api, lambda: 100.0)  # type: ignore[arg-type]
    api.unknown = {bytes([0, *number.to_bytes(31, "big")]) for number in range(MAX_SILENT + 1)}
    for pubkey in sorted(api.unknown):
        await source.refresh(pubkey)
    first, second, *_ = sorted(api.unknown)
    assert api.asked == MAX_SILENT + 1
    await source.refresh(second)
    assert api.asked == MAX_SILENT + 1
    await source.refresh(first)
    assert api.asked == MAX_SILENT + 2


async def test_a_slow_answer_that_says_nothing_silences_all() -> None:
    """An answer as late as a timeout is one: whole batches would wait for each of them."""
    now = 100.0

    class Slow(Api):
        async def account(self, pubkey: bytes) -> ChainAccount:
            nonlocal now
            now += SILENT_SECONDS
            return await super().account(pubkey)

    api = Slow()
    api.unknown = {ALICE.public}
    source = AccountSource(AccountBook(), api, lambda: now)  # type: ignore[arg-type]
    await source.refresh(ALICE.public)
    assert source.is_silent


async def test_an_api_that_failed_is_left_alone_for_a_moment() -> None:
    """After a failure nobody waits for another: for half a second unknown accounts are refused without a question."""
    api, now = Api(), 100.0
    source = AccountSource(AccountBook(), api, lambda: now)  # type: ignore[arg-type]
    api.down = True
    for number in range(3):
        with pytest.raises(Refused, match="account state unavailable"):
            await source.know(wallet(1, number).public)
    assert api.asked == source.failures == 1 and source.is_silent
    now += SILENT_SECONDS
    api.down = False
    assert (await source.know(ALICE.public)).nonce == 1
