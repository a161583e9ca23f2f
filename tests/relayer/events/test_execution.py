"""Execution that lags: who is told, and what goes on meanwhile."""

from __future__ import annotations

import logging
import time
from typing import Any

import aiohttp
import pytest
from relayer_later import LaterChain
from relayer_support import start, submit, transfer, wallet

from millrace.relayer.events.execution import ExecutionLag

ALICE = wallet(1)


def test_told_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    """Beyond the bound it is told once; half of it ends that, so that a lag about the bound wakes nobody again."""
    caplog.set_level(logging.INFO)
    lag = ExecutionLag(20)
    for executed in (80, 79, 78, 81, 79, 89):
        lag.header(1, 100, executed, at_ms=0, is_live=True)
    assert [(item.levelname, item.blocks) for item in caplog.records] == [("ERROR", 21)]  # type: ignore[attr-defined]
    assert lag.late == {1} and lag.problem() == "behind what is proposed: shard 1 by 11 blocks"
    lag.header(1, 100, 90, at_ms=0, is_live=True)
    assert lag.late == set() and lag.problem() == "" and caplog.records[-1].levelname == "INFO"


def test_what_is_read_again_wakes_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """How it was before the relayer started is no news; the newest is known all the same."""
    lag = ExecutionLag(20)
    lag.header(0, 100, 10, at_ms=0, is_live=False)
    assert (lag.late, lag.blocks, caplog.records) == (set(), {0: 90}, [])
    lag.header(0, 101, 102, at_ms=0, is_live=True)
    assert lag.blocks == {0: 0}


def test_old_headers_among_new_ones_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A node that catches up tells headers of long ago, whose execution was where it should be, or was late itself."""
    lag = ExecutionLag(20)
    for step in range(3):
        lag.header(1, 1000 + step, 900, at_ms=600_000 + step, is_live=True)
        lag.header(1, 500 + step, 499 + step, at_ms=300_000 + step, is_live=True)
    assert (lag.blocks, lag.late, len(caplog.records)) == ({1: 102}, {1}, 1)
    lag.header(1, 990, 989, at_ms=700_000, is_live=True)  # heights that were taken back, proposed anew
    assert (lag.blocks, lag.late) == ({1: 1}, set())


async def told(base: str, path: str) -> Any:
    async with aiohttp.ClientSession(base) as asking, asking.get(path) as response:
        return await (response.text() if path == "/metrics" else response.json())


async def test_alarm_first_and_later_no_sponsoring(world: Any) -> None:
    """Beyond `execution_lag` blocks operators are told and sponsoring goes on, in other shards whatever happens; beyond
    `stale_seconds` of rounds it ends in this one until the execution has caught up."""
    await start(world, execution_lag=20, stale_seconds=30.0)
    service = world.service
    service.events.block_at = dict.fromkeys(range(3), time.monotonic())
    chain = LaterChain(service.events, 1)

    def propose(count: int) -> None:
        for _ in range(count):
            chain.save(chain.maker.propose([], last_executed=1))

    propose(21)
    assert (await told(world.http, "/health"))["execution"] == "ok"
    assert 'relayer_execution_late{shard="1"} 0' in await told(world.operators, "/metrics")
    propose(1)
    health = await told(world.http, "/health")
    assert (health["execution"], health["status"]) == ("behind what is proposed: shard 1 by 21 blocks", "degraded")
    metrics = await told(world.operators, "/metrics")
    assert 'relayer_execution_late{shard="1"} 1' in metrics and 'relayer_execution_lag_blocks{shard="1"} 21' in metrics
    assert await submit(world, transfer(ALICE)) == ["ok"]
    propose(28)
    assert await submit(world, transfer(ALICE, 1)) == ["ok"], "50 rounds of 600 ms are 30 s"
    propose(1)
    assert await submit(world, transfer(ALICE, 2)) == ["not ready"]
    assert service.lifecycle.sponsor.untold(1) == "shard 1 executes 50 blocks (30 s) behind what it proposes"
    assert await submit(world, transfer(wallet(2))) == ["ok"]
    chain.save(chain.maker.propose([], last_executed=chain.maker.nonce))
    assert await submit(world, transfer(ALICE, 2)) == ["ok"]
    assert (await told(world.http, "/health"))["status"] == "ok"
