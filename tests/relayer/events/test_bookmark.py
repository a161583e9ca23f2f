"""Where reading the events goes on after a kill: known before anything depends on it, and never ahead of the rest."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from relayer_later import LaterMaker, results_of
from relayer_support import BlockMaker, entry_of, killed_now, knows_its_place, start, submit, transfer, wallet

from millrace.chain import outport
from millrace.relayer.events import bookmark as module
from millrace.relayer.events.bookmark import Bookmark
from millrace_client.places import Place
from waiting import until

ALICE, BOB = wallet(1), wallet(2)


async def start_killed(world: Any, killed: Path) -> None:
    """A start on what `kill -9` left, once the service that goes on has stopped."""
    await world.stop()
    world.service = None
    await start(world, data_dir=str(killed / "relayer"))


async def state_of(world: Any, chain_hash: bytes) -> str | None:
    found = await world.service.lifecycle.fates.find(chain_hash)
    return None if found is None else found[0].state


async def test_a_kill_before_an_end_is_in_its_file(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place does not pass the end of a transaction before that is on disk: who starts again hears of it."""
    monkeypatch.setattr(module, "SECONDS", 0.001)
    await start(world)
    service, hub = world.service, world.hub
    sent = transfer(ALICE, receiver=BOB.public)
    assert await submit(world, sent) == ["ok"]
    tx, chain_hash = entry_of(world, sent).tx, entry_of(world, sent).chain_hash
    hub.save(BlockMaker(1).block([tx], accounts={ALICE.public: (1, 10**18)}))
    await hub.acknowledged(2)
    assert await state_of(world, chain_hash) == "included"
    await until(lambda: not service.fates.unwritten and service.fates.has(service.fates.puts))
    disk = threading.Event()
    service.fates._thread.submit(disk.wait)
    try:
        hub.save(BlockMaker(2).block([tx], at_destination=True))
        await hub.acknowledged(4)
        for _ in range(3):
            service.bookmark.keep()
        killed = await killed_now(world, Path(service.settings.data_dir))
    finally:
        disk.set()
    await start_killed(world, killed)
    await hub.acknowledged(4)
    assert await state_of(world, chain_hash) == "success"
    await world.stop()
    await start(world, data_dir=str(killed / "relayer"))
    assert hub.resumed_after[-1] == 4, "what is on disk need not be read again"


async def test_an_end_that_only_memory_has(world: Any) -> None:
    """An end that is heard before the block of its sender's shard is read again by who starts before that one came."""
    await start(world)
    service, hub = world.service, world.hub
    sent = transfer(ALICE, receiver=BOB.public)
    assert await submit(world, sent) == ["ok"]
    tx, chain_hash = entry_of(world, sent).tx, entry_of(world, sent).chain_hash
    hub.save(BlockMaker(2).block([tx], at_destination=True))
    await hub.acknowledged(2)
    service.bookmark.keep()
    killed = await killed_now(world, Path(service.settings.data_dir))
    await world.stop()
    hub.save(BlockMaker(1).block([tx], accounts={ALICE.public: (1, 10**18)}))
    await start_killed(world, killed)
    await hub.acknowledged(4)
    assert await state_of(world, chain_hash) == "success"
    await world.stop()
    await start(world, data_dir=str(killed / "relayer"))
    assert hub.resumed_after[-1] == 4, "what is on disk need not be read again"


async def test_a_nonce_that_only_memory_has(world: Any) -> None:
    """A nonce that came before the execution that led to it is heard again by who starts before that one came."""
    await start(world)
    hub, maker = world.hub, LaterMaker(1, start_ms=time.time_ns() // 1_000_000 + 1_000)
    assert await submit(world, transfer(ALICE)) == ["ok"]

    def save(*results: Any) -> Any:
        block = maker.propose([], results)
        hub.save(block, final=False)
        for result in results_of(block):
            hub.push(outport.EXECUTED_BLOCK, result)
        hub.finalise(block)
        return block

    below = save()
    above = save(maker.execute(below, [], accounts={ALICE.public: (1, 10**18)}))
    await hub.acknowledged(len(hub.events))
    assert world.service.lifecycle.inflight.entries(), "it may be in the execution to come"
    world.service.bookmark.keep()
    killed = await killed_now(world, Path(world.service.settings.data_dir))
    await world.stop()
    hub.acked = 0
    save(maker.execute(above, []))
    await start_killed(world, killed)
    await hub.acknowledged(len(hub.events))
    assert not world.service.lifecycle.inflight.entries(), "other bytes have used the nonce"


async def test_nothing_is_accepted_before_it_is_known(world: Any) -> None:
    """Before the notifier has said where its events are nothing is signed; from then on a kill leaves the place."""
    await world.hub.start()
    port = world.hub.server.port
    await world.hub.stop()
    world.urls = {"hub_url": f"ws://127.0.0.1:{port}/hub/ws", "chain_api_url": await world.api.start()}
    await start(world)
    assert await submit(world, transfer(ALICE)) != ["ok"]
    await world.hub.start(port)
    await asyncio.wait_for(world.hub.subscribed.wait(), 10)
    await knows_its_place(world.service)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    tx = entry_of(world, transfer(ALICE)).tx
    killed = await killed_now(world, Path(world.service.settings.data_dir))
    await world.stop()
    world.hub.save(BlockMaker(1).block([tx], accounts={ALICE.public: (1, 10**18)}))
    await start_killed(world, killed)
    await world.hub.acknowledged(2)
    assert world.hub.resumed_after[-1] == 0 and not world.service.lifecycle.inflight.entries()


@pytest.mark.parametrize("is_kept", [True, False])
async def test_without_a_place_events_count_as_lost(world: Any, is_kept: bool) -> None:
    """What is open where nobody knows how far the events were read may have ended unheard."""
    await start(world)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    if not is_kept:
        world.service.journal.forget_cursor()
        world.service.journal.keep_cursor = lambda *_: None  # type: ignore[method-assign]
    killed = await killed_now(world, Path(world.service.settings.data_dir))
    await start_killed(world, killed)
    assert world.service.events.gaps == (0 if is_kept else 1)
    assert msgspec.json.encode(world.hub.resumed_after[-1]) == (b"0" if is_kept else b"null")


async def test_of_several_notifiers_without_ids_no_place_is_waited_for(world: Any) -> None:
    """They are of an earlier version: no place can be told by what they say, and what is open counts as lost then."""
    await start(world, more_hub_urls=("ws://127.0.0.1:1/hub/ws",))
    assert await submit(world, transfer(ALICE)) != ["ok"]
    world.hub.save(BlockMaker(1).block())
    await world.hub.acknowledged(2)
    assert await submit(world, transfer(ALICE)) == ["ok"]
    assert not world.service.bookmark.is_known


class Parts:
    """A bookmark, and what it looks at."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.now, self.puts, self.on_disk = 0.0, 0, 0
        self.journal = SimpleNamespace(keep_cursor=lambda after, text: self.kept.append(after))
        self.tracker = SimpleNamespace(low_water=None)
        self.book = SimpleNamespace(low_water=None)
        self.hub = SimpleNamespace(last=9, place=lambda number: Place(number, "id", ()) if number >= 7 else None)
        parts: list[Any] = [self.journal, self, self.book, self.tracker]
        self.bookmark = Bookmark(*parts, has_one=False, clock=lambda: self.now)
        self.bookmark.follow(cast(Any, self.hub))

    def has(self, puts: int) -> bool:
        return puts <= self.on_disk


def test_of_several_notifiers_the_first_place_waits_for_nobody_elses_end() -> None:
    """What had begun before reading did may take a quarter of an hour: nobody waits for it. It counts later."""
    parts = Parts()
    parts.tracker.low_water = 7
    parts.bookmark.keep()
    assert parts.kept == [7] and parts.bookmark.is_known
    parts.hub.last = 10
    parts.bookmark.keep()
    assert parts.kept == [7], "no further before that has ended"
    parts.tracker.low_water = 9
    parts.bookmark.keep()
    assert parts.kept == [7, 8]


def test_a_disk_that_takes_nothing_is_waited_for_as_long_as_that_loses_nothing() -> None:
    """What is not on disk is read again, unless the notifier may not have that much any more."""
    parts = Parts()
    parts.bookmark.keep()
    parts.puts, parts.hub.last = 1, 10
    parts.bookmark.keep()
    parts.puts, parts.hub.last, parts.now = 2, 20, module.PATIENCE
    parts.bookmark.keep()
    assert parts.kept == [9]
    parts.now += 1.0
    parts.bookmark.keep()
    assert parts.kept == [9, 10], "given up, and the next place waits as long"
    parts.bookmark.keep()
    assert parts.kept == [9, 10]
    parts.on_disk = 2
    parts.bookmark.keep()
    assert parts.kept[-1] == 20
