"""Simulations: bounded at once, for each client, and in what is kept of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from relayer_support import transfer, wallet

from millrace.chain.transaction import Transaction
from millrace.relayer.blocks.rounds import Rounds
from millrace.relayer.network import simulator
from millrace.relayer.network.simulator import Simulator
from millrace.relayer.rules.stages import Origin, Parsed

ALICE = wallet(1)


class Api:
    """A chain API that answers when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: asyncio.Event = asyncio.Event()

    async def simulate(self, tx: Transaction) -> bool:
        """Say yes, in the end."""
        self.asked += 1
        await self.answer.wait()
        return True


def parsed(nonce: int, ip: str = "ip") -> Parsed:
    return Parsed.of(transfer(ALICE, nonce), Origin("relay", ip))


async def test_questions_under_way_are_bounded() -> None:
    """Of one client, and of all: whoever comes then is not waited for, and nothing is said of theirs."""
    api: Any = Api()
    asking = Simulator(api, 10.0)
    tasks = [asyncio.create_task(asking.would_run(parsed(n, f"ip{n // 2}"), 10.0)) for n in range(simulator.AT_ONCE)]
    await asyncio.sleep(0)
    assert api.asked == simulator.AT_ONCE
    assert not await asking.would_run(parsed(100, "another"), 10.0)
    api.answer.set()
    assert all(await asyncio.gather(*tasks))
    api.answer.clear()
    more = [asyncio.create_task(asking.would_run(parsed(200 + n), 10.0)) for n in range(3)]
    await asyncio.sleep(0)
    api.answer.set()
    assert await asyncio.gather(*more) == [True, True, False]
    assert asking.counts == {"success": simulator.AT_ONCE + 2, "busy": 2}


@pytest.mark.parametrize("round_ms", [600, 6_000])
async def test_an_answer_is_good_for_a_round(monkeypatch: Any, round_ms: int) -> None:
    """What was said holds for the same bytes and a round, beside the time of one submission's questions; the oldest
    answers are forgotten first."""
    now = [100.0]
    api: Any = Api()
    api.answer.set()
    rounds = Rounds(round_ms)
    asking = Simulator(api, 1.0, clock=lambda: now[0], rounds=rounds)
    first = parsed(0)
    assert not asking.said_so(first.client_hash)
    assert await asking.would_run(first, 1.0) and await asking.would_run(first, 1.0) and api.asked == 1
    assert asking.said_so(first.client_hash) and not asking.said_so(parsed(1).client_hash)
    now[0] += round_ms / 1000 + 0.999
    assert asking.said_so(first.client_hash)
    now[0] += 0.001
    assert not asking.said_so(first.client_hash)
    assert await asking.would_run(first, 1.0) and api.asked == 2
    monkeypatch.setattr(simulator, "KEPT", 2)
    for nonce in (1, 2):
        assert await asking.would_run(parsed(nonce), 1.0)
    assert not asking.said_so(first.client_hash) and asking.said_so(parsed(1).client_hash)


async def test_no_time_is_no_answer() -> None:
    """A question that takes too long is given up, and none is asked without time."""
    now = [100.0]
    api: Any = Api()
    asking = Simulator(api, 1.0, clock=lambda: now[0])
    assert not await asking.would_run(parsed(0), 0.0) and api.asked == 0
    assert not await asking.would_run(parsed(0), 1e-6) and api.asked == 1
    api.answer.set()
    assert not await asking.would_run(parsed(0), 1.0), "it is left alone for a moment"
    now[0] += simulator.SILENT_SECONDS
    assert await asking.would_run(parsed(0), 1.0)
