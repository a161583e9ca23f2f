"""The file of what became of transactions: found by each hash, never ahead of the question, bounded, made anew."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from relayer_support import start, submit, transfer, wallet

from millrace.chain.transaction import client_hash
from millrace.relayer.journal import fates as module
from millrace.relayer.journal.fates import Fate, Fates, FatesUnavailable, Place
from millrace.relayer.signing.handle import SignerError
from waiting import until

ALICE = wallet(1)


def fate(number: int, **changes: Any) -> Fate:
    def name(kind: int) -> bytes:
        return bytes([kind]) + number.to_bytes(31, "big")

    made = Fate(name(1), name(2), name(3), ALICE.public, number, "relay", b"r" * 32, "7", "success", time_ms=number)
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
async def journal(world: Any) -> Path:
    """The file of a journal with nothing in it."""
    await start(world, hub_url="")
    path: Path = world.service.journal.path
    await world.stop()
    (path.parent / "fates.sqlite").unlink()
    return path


@pytest.fixture
async def store(journal: Path) -> AsyncIterator[Fates]:
    made = Fates(journal.with_name("fates.sqlite"))
    assert await made.open(journal) == []
    yield made
    await made.close()


async def until_written(store: Fates) -> None:
    await until(lambda: not store.unwritten and store._writing is None)


async def test_found_by_each_hash_before_and_after_it_is_written(store: Fates) -> None:
    """What was put is found at once and later, the newest word of it, whatever its amounts; others are not."""
    first = fate(1, state="included", max_fee=str(10**40), place=Place(1, 5, b"h" * 32, 6))
    last = msgspec.structs.replace(first, state="fail", reason="no", fee="5", time_ms=9)
    plain = fate(2, sdk_hash=b"", chain_hash=fate(2).client_hash)
    for item in (first, last, plain):
        store.put(item)
    for _ in range(2):
        for known in (last, plain):
            for name in {known.client_hash, known.sdk_hash, known.chain_hash} - {b""}:
                assert await store.find(name) == known
        assert await store.find(b"x" * 32) is None and await store.find(fate(2).sdk_hash) is None
        await until_written(store)
    assert store.left_out == 0


async def test_indices_of_whole_hashes_give_way(journal: Path) -> None:
    """A file with those of an earlier version gets shorter ones, which find each hash, also those that begin alike."""
    store = Fates(journal.with_name("fates.sqlite"))
    await store.open(journal)
    for number in (1, 2):
        store.put(fate(number))
    await store.close()
    with contextlib.closing(sqlite3.connect(store.path)) as connection:
        for name in ("sdk", "chain"):
            connection.execute(f"DROP INDEX fates_by_{name}")
            connection.execute(
                f"CREATE INDEX fates_by_{name}_hash ON fates ({name}_hash) WHERE {name}_hash IS NOT NULL"
            )
        connection.commit()
    again = Fates(store.path)
    await again.open(journal)
    assert again._connection is not None
    plan = again._connection.execute(f"EXPLAIN QUERY PLAN {module._FIND}", {"hash": b""}).fetchall()
    assert [row[3].partition("USING ")[2] for row in plan if row[3].startswith("S")] == [
        "INDEX sqlite_autoindex_fates_1 (client_hash=?)",
        "INDEX fates_by_chain (<expr>=?)",
        "INDEX fates_by_sdk (<expr>=?)",
    ]
    assert not again._connection.execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'fates_by_%_hash'").fetchall()
    for number in (1, 2):
        for name in (fate(number).client_hash, fate(number).sdk_hash, fate(number).chain_hash):
            assert await again.find(name) == fate(number)
    assert again.damaged == 0
    await again.close()


async def test_open_ones_are_taken_up_again(journal: Path) -> None:
    """A new start hears of what was open, oldest first, and what waited when the service stopped is written."""
    store = Fates(journal.with_name("fates.sqlite"))
    await store.open(journal)
    for number in (3, 1, 2):
        store.put(fate(number, state="success" if number == 2 else "included"))
    await store.close()
    again = Fates(store.path)
    assert [item.nonce for item in await again.open(journal)] == [1, 3]
    assert (await again.find(fate(2).chain_hash)) == fate(2)
    await again.close()


async def test_forgotten_after_a_time(store: Fates, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended before the time is forgotten, in steps; the rest stays."""
    monkeypatch.setattr(module, "PRUNED_AT_ONCE", 2)
    for number in range(9):
        store.put(fate(number))
    await until_written(store)
    await store.prune(7)
    found = [await store.find(fate(number).sdk_hash) for number in range(9)]
    assert [item is not None for item in found] == [False] * 7 + [True] * 2


async def test_at_the_bound_the_oldest_are_left_out(store: Fates, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk takes nothing the newest wait, as many as there is room for; the rest are counted."""
    monkeypatch.setattr(module, "MAX_UNWRITTEN", 3)

    def full(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("disk is full")

    monkeypatch.setattr(store, "_write", full)
    for number in range(5):
        store.put(fate(number))
    assert (store.left_out, store.unwritten) == (2, 3)
    async with asyncio.timeout(10):
        while not store._failing:  # a write was tried
            await asyncio.sleep(0.01)
    store.put(fate(5))
    monkeypatch.undo()
    await until_written(store)
    assert store.left_out == 3
    found = [await store.find(fate(number).client_hash) for number in range(6)]
    assert [item is not None for item in found] == [False] * 3 + [True] * 3


async def test_on_disk_is_only_what_outlives_a_loss_of_power(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of reading passes what the file has: each commit is synced, and what failed is not there."""
    store = Fates(journal.with_name("fates.sqlite"))
    await store.open(journal)
    assert store._connection is not None
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    store.put(fate(1))
    assert not store.has(store.puts)
    await until_written(store)
    assert store.has(store.puts)

    def full(*_: Any, **__: Any) -> None:
        raise sqlite3.OperationalError("disk is full")

    monkeypatch.setattr(store, "_write", full)
    store.put(fate(2))
    await until(lambda: store._failing)
    assert not store.has(store.puts)
    await store.close()
    assert not store.has(store.puts)


async def test_too_many_questions(store: Fates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound of questions under way the next are told to come again, and those are answered."""
    monkeypatch.setattr(module, "MAX_QUESTIONS", 2)
    answers = await asyncio.gather(*(store.find(b"x" * 32) for _ in range(3)), return_exceptions=True)
    assert answers[:2] == [None, None] and isinstance(answers[2], FatesUnavailable)
    assert await store.find(b"x" * 32) is None


async def test_a_damaged_file_is_made_anew(journal: Path) -> None:
    """Damage loses nothing that matters: the file begins anew and works."""
    file = journal.with_name("fates.sqlite")
    file.write_bytes(b"no database" * 1000)
    again = Fates(file)
    assert await again.open(journal) == []
    again.put(fate(2))
    assert await again.find(fate(2).client_hash) == fate(2)
    await again.close()
    assert again.put_aside == 1 and file.with_name("fates.sqlite.damaged").read_bytes().startswith(b"no database")


async def ended(world: Any, count: int = 1) -> list[Fate]:
    """A folder in which so many transactions have ended; what is told of them."""
    await start(world, hub_url="")
    await world.service.fates.filling
    assert await submit(world, *(transfer(wallet(1, number)) for number in range(count))) == ["ok"] * count
    for entry in world.service.lifecycle.inflight.entries():
        world.service.lifecycle.included(entry.chain_hash, 5)
    names = [client_hash(transfer(wallet(1, number))) for number in range(count)]
    found = [(await world.service.lifecycle.fates.find(name))[0] for name in names]
    await world.stop()
    return found


async def test_row_53_a_row_with_a_bit_turned_over(world: Any) -> None:
    """It is never told: what the journal knows is, by each hash, also to who waits for it, and the loss is counted."""
    (known,) = await ended(world)
    file = world.folder / "relayer" / "fates.sqlite"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        (body,) = connection.execute("SELECT body FROM fates").fetchone()
    for place in range(0, len(body), 7):
        changed = body[:place] + bytes([body[place] ^ 1 << place % 8]) + body[place + 1 :]
        for is_open in (True, False):
            with contextlib.closing(sqlite3.connect(file)) as connection, connection:
                connection.execute("UPDATE fates SET body = ?, is_open = ?", (changed, is_open))
            store = Fates(file)
            opened = await store.open(file.with_name("journal.sqlite"))
            assert [item.client_hash for item in opened] == [known.client_hash] * is_open
            for name in (known.client_hash, known.sdk_hash, known.chain_hash):
                found = await store.find(name)
                assert found is not None and (found.state, found.fee, found.nonce) == ("included", "5", 0)
            assert (store.damaged, store.put_aside) == (1, 0)
            await store.close()


async def test_row_53_a_row_under_the_name_of_another(journal: Path) -> None:
    """What is found by a hash that is not its own is not told."""
    store = Fates(journal.with_name("fates.sqlite"))
    await store.open(journal)
    store.put(fate(1))
    await until_written(store)
    assert store._connection is not None
    store._connection.execute("UPDATE fates SET sdk_hash = ?", (fate(2).sdk_hash,))
    assert await store.find(fate(2).sdk_hash) is None and store.damaged == 1
    await store.close()


async def test_row_53_a_file_that_turns_out_damaged_while_it_is_used(world: Any) -> None:
    """It is put aside at once, filled from the journal, and takes what comes."""
    known = await ended(world, 3)
    file = world.folder / "relayer" / "fates.sqlite"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'fates_by_sdk'").fetchone()
    data = bytearray(file.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    file.write_bytes(data)
    await start(world, hub_url="")
    store = world.service.fates
    assert store.put_aside == 0
    await store.find(known[0].sdk_hash)
    assert store.put_aside == 1
    await store.filling
    for item in known:
        found = await store.find(item.sdk_hash)
        assert found is not None and found.state == "included"
    store.put(fate(9))
    await until_written(store)
    assert await store.find(fate(9).sdk_hash) == fate(9)
    assert file.with_name("fates.sqlite.damaged").exists()


async def test_row_53_a_folder_in_its_place(journal: Path) -> None:
    """That will not pass: it is put aside."""
    file = journal.with_name("fates.sqlite")
    file.mkdir()
    (file / "something").touch()
    store = Fates(file)
    assert await store.open(journal) == [] and store.put_aside == 1
    store.put(fate(1))
    await until_written(store)
    assert await store.find(fate(1).sdk_hash) == fate(1)
    await store.close()
    assert (journal.with_name("fates.sqlite.damaged") / "something").exists()


@pytest.mark.parametrize("code", ["SQLITE_FULL", "SQLITE_BUSY", "SQLITE_IOERR_WRITE"])
async def test_a_fault_that_passes_leaves_the_file(journal: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """The service starts without the file, answers what is new, and finds all that was in it at the next start."""
    store = Fates(journal.with_name("fates.sqlite"))
    await store.open(journal)
    store.put(fate(1))
    await store.close()

    def fails(*_: Any) -> None:
        error = sqlite3.OperationalError("it passes")
        error.sqlite_errorcode = getattr(sqlite3, code)
        raise error

    with monkeypatch.context() as failing:
        failing.setattr(Fates, "_load", fails)
        store = Fates(store.path)
        assert await store.open(journal) == []
        store.put(fate(2))
        assert await store.find(fate(2).sdk_hash) == fate(2) and store.unwritten == 1
        with pytest.raises(FatesUnavailable):
            await store.find(fate(1).sdk_hash)
        await store.prune(10)
        await store.close()
    store = Fates(store.path)
    await store.open(journal)
    assert await store.find(fate(1).sdk_hash) == fate(1)
    await store.close()


async def test_a_damaged_file_that_cannot_be_made_anew(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room for another file the service starts without one."""
    file = journal.with_name("fates.sqlite")
    file.write_bytes(b"no database" * 1000)
    real = Fates._open_file

    def once(self: Fates, source: Path) -> list[Fate]:
        if not file.exists():
            raise sqlite3.OperationalError("database or disk is full")
        return real(self, source)

    monkeypatch.setattr(Fates, "_open_file", once)
    store = Fates(file)
    assert await store.open(journal) == []
    store.put(fate(2))
    assert await store.find(fate(2).client_hash) == fate(2)
    await store.close()


async def test_what_is_missing_comes_from_the_journal(world: Any) -> None:
    """Without its file, or with one that a kill cut short, what ended is told as far as the journal knows it."""
    await start(world, hub_url="")
    gone, given_up = transfer(ALICE), transfer(wallet(1, 2))
    assert await submit(world, gone, given_up) == ["ok", "ok"]
    service = world.service
    entries = {entry.tx.sender: entry for entry in service.lifecycle.inflight.entries()}
    names = [entries[tx.sender].chain_hash for tx in (gone, given_up)]
    service.lifecycle.included(names[0], 5)
    service.lifecycle.write_off(entries[given_up.sender].client_hash)
    for cut in (True, False):
        await world.stop()
        file = service.fates.path
        if cut:
            with sqlite3.connect(file) as connection:
                connection.execute("DELETE FROM fates WHERE id = (SELECT MAX(id) FROM fates)")
            connection.close()
        else:
            file.unlink()
        await start(world, hub_url="")
        service = world.service
        assert (service.fates.filling is None) == cut
        if not cut:
            await service.fates.filling
        found = [await service.lifecycle.fates.find(name) for name in names]
        states = [item[0].state if item is not None else None for item in found]
        assert states == ["included", "written off"], cut
        assert found[0] is not None and found[0][0].fee == "5"


async def test_a_kill_before_anything_is_in_the_file(world: Any) -> None:
    """The first that ends is known after a kill as any other is, though the file has nothing to go on from."""
    await start(world, hub_url="")
    await world.service.fates.filling
    assert await submit(world, transfer(ALICE)) == ["ok"]
    (entry,) = world.service.lifecycle.inflight.entries()
    world.service.lifecycle.included(entry.chain_hash, 5)
    await world.stop()
    with sqlite3.connect(world.folder / "relayer" / "fates.sqlite") as connection:
        connection.execute("DELETE FROM fates")
    connection.close()
    await start(world, hub_url="")
    found = await world.service.lifecycle.fates.find(entry.chain_hash)
    assert found is not None and found[0].state == "included"


async def test_what_ended_unsigned_comes_from_the_journal(world: Any) -> None:
    """What was accepted and ended unsigned is known without the file; what was only to be signed never was."""
    await start(world, hub_url="", sign_wait=0)

    async def lost(_: list[bytes]) -> list[Any]:
        raise SignerError("lost")

    world.service.signer.sign = lost
    tx, only_signed = transfer(ALICE), transfer(wallet(1, 2))
    await submit(world, tx)
    await submit(world, only_signed, kind="sign")
    for sender in (ALICE, wallet(1, 2)):
        assert len(world.service.lifecycle.inflight.of_sender(sender.public)) == 1
        world.service.lifecycle.nonce_moved(sender.public, 1)
    found = await world.service.lifecycle.fates.find(client_hash(tx))
    assert found is not None and (found[0].state, found[0].reason) == ("superseded", "nonce too low")
    file = world.service.fates.path
    await world.stop()
    file.unlink()
    await start(world, hub_url="")
    await world.service.fates.filling
    found = await world.service.lifecycle.fates.find(client_hash(tx))
    assert found is not None and found[0].state == "dropped"
    assert await world.service.lifecycle.fates.find(client_hash(only_signed)) is None


async def test_filling_goes_on_where_it_was_cut(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop waits for one part only; the next start takes what is missing, and the one after that nothing."""
    await start(world, hub_url="")
    txs = [transfer(wallet(1, number)) for number in range(5)]
    assert await submit(world, *txs) == ["ok"] * 5
    for entry in world.service.lifecycle.inflight.entries():
        world.service.lifecycle.included(entry.chain_hash, 5)
    journal: Path = world.service.journal.path
    await world.stop()
    (journal.parent / "fates.sqlite").unlink()
    monkeypatch.setattr(module, "LOADED_AT_ONCE", 2)
    taken: list[int] = []
    real = Fates._fill

    def fill(self: Fates, source: Path, after: int) -> int | None:
        taken.append(after)
        self._ends = self._ends or len(taken) == 1
        return real(self, source, after)

    monkeypatch.setattr(Fates, "_fill", fill)
    for begun in ([0], [0, 2, 4, 5], [0, 2, 4, 5]):
        store = Fates(journal.with_name("fates.sqlite"))
        await store.open(journal)
        store.fill(journal)
        if store.filling is not None:
            await store.filling
        known = [await store.find(client_hash(tx)) is not None for tx in txs]
        assert sum(known) == (2 if len(begun) == 1 else 5) and taken == begun
        await store.close()


async def test_row_44_a_clock_that_was_set_back(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kill cuts off is taken from the journal, also where what the file has bears later times."""
    await start(world, hub_url="")
    await world.service.fates.filling
    real, names = time.time_ns, []
    for number, hours in ((0, 1), (1, 0), (2, 0)):
        monkeypatch.setattr(time, "time_ns", lambda hours=hours: real() + hours * 3600 * 10**9)
        monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)
        assert await submit(world, transfer(wallet(1, number))) == ["ok"]
        (entry,) = world.service.lifecycle.inflight.entries()
        world.service.lifecycle.included(entry.chain_hash, 5)
        names.append(entry.chain_hash)
        await until_written(world.service.fates)
    await world.stop()
    with sqlite3.connect(world.folder / "relayer" / "fates.sqlite") as connection:
        connection.execute("DELETE FROM fates WHERE id = (SELECT MAX(id) FROM fates)")
    connection.close()
    await start(world, hub_url="")
    found = [await world.service.lifecycle.fates.find(name) for name in names]
    assert all(item is not None and item[0].state == "included" for item in found)
