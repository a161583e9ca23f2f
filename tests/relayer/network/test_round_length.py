"""The chain API is asked how long a round is: never by whom a client waits for, and what fails changes nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import aiohttp
import pytest
from relayer_later import LaterChain
from relayer_support import start, submit, transfer, wallet

from millrace.relayer.blocks.rounds import Rounds
from millrace.relayer.network import round_length
from millrace.relayer.network.chain_api import ChainApiError
from millrace.relayer.network.round_length import RoundLength
from waiting import until


class Api:
    """Says what the test wants it to."""

    def __init__(self) -> None:
        self.answer: int | None = 6_000
        self.asked = 0

    async def round_ms(self) -> int:
        self.asked += 1
        if self.answer is None:
            raise ChainApiError("down")
        return self.answer


def show(rounds: Rounds, first: int, length: int, epoch: int = 1) -> None:
    for number in range(first, first + 4):
        rounds.header(0, number, epoch, 10**12 + first * 10**5 + (number - first) * length)


async def test_a_failure_changes_nothing_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The default stays, then what was said last; while it stays so the log has it once."""
    api: Any = Api()
    rounds = Rounds()
    asking = RoundLength(api, rounds)
    api.answer = None
    assert [await asking.ask(), await asking.ask()] == [False, False]
    assert (rounds.ms, rounds.source) == (600, "default") and "down" in asking.problem
    api.answer = 6_000
    assert await asking.ask() and asking.problem == ""
    api.answer = 2**40
    assert not await asking.ask() and (rounds.ms, rounds.source) == (6_000, "network")
    warnings = [item.message for item in caplog.records if item.levelno == logging.WARNING]
    assert warnings == ["the length of a round is not confirmed"] * 2


async def test_headers_against_the_network() -> None:
    """While it says something else than they show they are believed, that is told, and it is asked again."""
    api: Any = Api()
    rounds = Rounds()
    asking = RoundLength(api, rounds)
    assert await asking.ask() and rounds.ms == 6_000
    show(rounds, 1, 600)
    assert not await asking.ask() and rounds.ms == 600 and "headers show" in asking.problem
    api.answer = 600
    assert await asking.ask() and (rounds.source, asking.problem) == ("network", "")


async def test_asked_again_with_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once answered it is asked when an epoch begins, and not before; unanswered again and again."""
    monkeypatch.setattr(round_length, "RETRY_SECONDS", 0.0)
    api: Any = Api()
    rounds = Rounds()
    running = asyncio.create_task(RoundLength(api, rounds).run())
    await until(lambda: rounds.ms == 6_000)
    asked = api.asked
    api.answer = 3_000
    for _ in range(20):
        await asyncio.sleep(0)
    assert api.asked == asked
    rounds.header(0, 1, 7, 10**12)
    rounds.header(0, 2, 8, 10**12 + 6_000)
    await until(lambda: rounds.ms == 3_000)
    api.answer, asked = None, api.asked
    rounds.header(0, 3, 9, 10**12 + 12_000)
    await until(lambda: api.asked > asked + 2)
    assert rounds.ms == 3_000
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def health(world: Any) -> dict[str, Any]:
    async with aiohttp.ClientSession(world.http) as asking, asking.get("/health") as response:
        told: dict[str, Any] = (await response.json())["round"]
        return told


async def test_a_relayer_learns_it(world: Any) -> None:
    """From the chain API, and at a change-over from its blocks; `/health` and the metrics say so."""
    world.api.round_ms = 6_000
    await start(world, hub_url="")
    await until(lambda: world.service.rounds.ms == 6_000)
    assert await health(world) == {"ms": 6_000, "source": "network"}
    chain = LaterChain(world.service.events, 1)
    for _ in range(4):
        chain.propose()
    assert await health(world) == {"ms": 600, "source": "blocks"}
    async with aiohttp.ClientSession(world.operators) as asking, asking.get("/metrics") as response:
        assert "relayer_round_seconds 0.6" in await response.text()


async def test_without_a_word_of_the_chain_api(world: Any) -> None:
    """A chain API that knows no configuration, or is away, holds nobody up: the default holds, and that is told."""
    world.api.round_ms = None
    await start(world, hub_url="")
    await until(lambda: bool(world.service.round_length.problem))
    told = await health(world)
    assert (told["ms"], told["source"]) == (600, "default") and "404" in told["problem"]
    asked = world.api.config_asked
    assert await submit(world, transfer(wallet(1))) == ["ok"] and world.api.config_asked == asked


async def test_a_length_that_is_set(world: Any) -> None:
    """Then nobody is asked, and blocks are not believed."""
    await start(world, hub_url="", round_ms=6_000)
    chain = LaterChain(world.service.events, 1)
    for _ in range(4):
        chain.propose()
    assert await health(world) == {"ms": 6_000, "source": "setting"} and world.api.config_asked == 0
