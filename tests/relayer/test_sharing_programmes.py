"""Programmes of several relayers with the same keys: one count for a user, one budget, whoever of them is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from relayer_support import start, submit, wallet

from millrace.chain.transaction import Transaction
from millrace.relayer.journal.common_programmes import Total
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.rules.policy_file import seal
from relayer.test_money import FEE, programme, shopping
from relayer.test_sharing import Relayer, Several
from relayer.test_sharing import several as several


def policy_of(several: Several, **entries: object) -> str:
    """A file with a programme for transfers to the shop; a budget that does not run out when it is divided."""
    file = several.folder / "policy.toml"
    file.write_text(seal(programme(**entries).replace(f"per_minute = {40 * FEE}", f"per_minute = {400 * FEE}")))
    return str(file)


async def bought(relayer: Relayer, tx: Transaction) -> str:
    """What is said of it, in the end: who is told to send the same bytes again does."""
    (answer,) = await submit(relayer, tx)
    if answer == "relayer busy":
        (answer,) = await submit(relayer, tx)
    return answer


async def heard(relayer: Relayer, spent: int, users: int) -> None:
    """Wait until a relayer has heard that of the programme."""
    sharing = relayer.service.sharing
    assert sharing is not None
    async with asyncio.timeout(10):
        while sharing.allowances.total("launch") != Total("launch", spent, users):
            await asyncio.sleep(0.02)


async def test_the_count_of_a_user_is_one_over_all_relayers(several: Several) -> None:
    """Three of a user's are paid for, whichever relayers they go to; a further one is a stranger's at each."""
    file = policy_of(several, per_user=3)
    relayers = [await several.start(name, policy_file=file) for name in ("one", "two")]
    assert [await bought(relayers[nonce % 2], shopping(0, nonce)) for nonce in range(3)] == ["ok"] * 3
    for relayer in relayers:
        assert await submit(relayer, shopping(0, 3)) == ["relayer busy"], "its own count was not full"
        assert await submit(relayer, shopping(0, 3)) == ["sender not allowed"]
        assert await bought(relayer, shopping(1 + relayers.index(relayer))) == "ok"
        await heard(relayer, (4 + relayers.index(relayer)) * FEE, 2 + relayers.index(relayer))


async def test_the_budget_of_a_programme_is_one_over_all_relayers(several: Several) -> None:
    """All are asked at the same moment: as many are paid for as the budget has fees."""
    file = policy_of(several, budget=5 * FEE)
    relayers = [await several.start(name, policy_file=file) for name in ("one", "two")]
    answers = await asyncio.gather(*(bought(relayers[number % 2], shopping(number)) for number in range(16)))
    assert answers.count("ok") == 5 and answers.count("sender not allowed") == 11
    for relayer in relayers:
        await heard(relayer, 5 * FEE, 5)
        sponsor = relayer.service.lifecycle.sponsor
        assert sponsor.programmes.left("launch", sponsor.policy.programmes["launch"], 0) == 0
        assert await submit(relayer, shopping(20)) == ["sender not allowed"], "it is not even asked for"


async def test_one_of_a_batch_that_is_not_paid_for_does_not_hold_the_others_up(several: Several) -> None:
    """Each of a batch is judged alone, and nothing of what was refused is claimed."""
    one = await several.start("one", policy_file=policy_of(several, per_user=2))
    txs = [shopping(0, 0), shopping(0, 1), shopping(0, 2), shopping(1)]
    assert await submit(one, *txs) == ["ok", "ok", "relayer busy", "ok"]
    await heard(one, 3 * FEE, 2)
    sharing = one.service.sharing
    assert sharing is not None and sharing.open == 3 and sharing.allowances.full == 1


async def test_counts_outlive_who_counted(several: Several) -> None:
    """A relayer dies; who takes its seat with an empty folder keeps its counts, and gives back what cost nothing."""
    file = policy_of(several, per_user=2)
    one = await several.start("one", policy_file=file, claims_seats=1)
    assert await submit(one, shopping(0, 0), shopping(0, 1), shopping(1)) == ["ok"] * 3
    await one.die()
    two = await several.start("two", policy_file=file, claims_seats=1)
    assert await bought(two, shopping(0, 2)) == "sender not allowed"
    await heard(two, 3 * FEE, 2)
    two.service.lifecycle.nonce_moved(wallet(1, 0).public, 1)
    two.service.lifecycle.nonce_moved(wallet(1, 1).public, 1)
    await heard(two, FEE, 1)
    await two.end()
    three = await several.start("three", policy_file=file, claims_seats=1)
    await heard(three, FEE, 1)
    several.world.api.set(wallet(1, 1).public, 1, 10**18)
    assert await submit(three, shopping(1, 1)) == ["ok"]


async def test_what_did_not_get_to_the_disk_is_given_back(several: Several, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that is let go takes neither budget nor count, also where the same bytes come again at once."""
    one = await several.start("one", policy_file=policy_of(several, per_user=1, budget=FEE))

    async def full(*_: Any) -> None:
        raise JournalError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(one.service.journal._open_writer(), "commit", full)
        assert await submit(one, shopping(0)) == ["not ready"]
    async with asyncio.timeout(10):
        while await submit(one, shopping(0)) != ["ok"]:
            one.service.sharing.allowances._full.clear()  # type: ignore[union-attr]
            await asyncio.sleep(0.05)
    await heard(one, FEE, 1)


async def test_what_was_paid_alone_counts_when_claims_are_shared(several: Several, tmp_path: Path) -> None:
    """Counts and charges of a folder are brought once, however often it starts; open ones end as any others."""
    world, file = several.world, policy_of(several, per_user=2)
    await start(world, await asyncio.to_thread(Path(file).read_text))
    assert await submit(world, shopping(0, 0), shopping(0, 1), shopping(1)) == ["ok"] * 3
    world.service.lifecycle.nonce_moved(wallet(1, 1).public, 1)
    await world.service.journal.flush()
    folder = Path(world.service.settings.data_dir)
    await world.stop()
    for _ in range(2):
        alone = await several.start("alone", data_dir=folder, policy_file=file)
        await heard(alone, 2 * FEE, 1)
        assert await bought(alone, shopping(0, 2)) == "sender not allowed"
        await alone.end()
