"""Several machines, one Redis: a client is counted once, wherever he asks, and each machine goes on without Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from time import monotonic

import pytest
from redis.asyncio import Redis

from millrace.aggregator.clients import Clients
from millrace.aggregator.fleet import Fleet
from millrace.aggregator.limiter import RateLimiter
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.shares import MOST_SAVED, TimeShares
from millrace.runtime.settings import Secret
from servers.aggregator_service import end, start
from servers.redis_server import RedisServer

from ..notifier.helpers import unique_name

LIMIT = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One Redis for the module; a test may kill it, and it comes back empty."""
    made = RedisServer(tmp_path_factory.mktemp("redis"))
    try:
        yield made
    finally:
        made.kill()


class Machine:
    """A table with its limits, and its part in the fleet; the clock is the real one's, as Redis' is."""

    def __init__(self, url: str, group: str) -> None:
        settings = AggregatorSettings(redis_url=Secret(url), limit_group=group, requests_per_second=LIMIT)
        self.clients = Clients(64, LIMIT)
        self.limiter = RateLimiter(LIMIT, self.clients)
        self.shares = TimeShares(settings.client_search_seconds, self.clients)
        self.fleet = Fleet(settings, self.clients)


@pytest.fixture
async def machines(server: RedisServer) -> AsyncIterator[list[Machine]]:
    server.ensure()
    group = unique_name()
    made = [Machine(server.url, group) for _ in range(3)]
    yield made
    for machine in made:
        await machine.fleet.close()


async def hear(machine: Machine, least: int, now: float) -> None:
    """Exchange until the machine has heard of so many requests of `a` in the last second: Redis tells of periods that
    are over."""
    while True:
        machine.clients.tell(machine.clients.enter("a"))
        machine.clients.leave()
        await machine.fleet.exchange()
        at = machine.clients.enter("a")
        known = sum(moment > now - 5.0 for moment in machine.clients.moments(at))
        machine.clients.leave()
        if known >= least:
            return


async def test_what_one_machine_admits_the_others_count(machines: list[Machine]) -> None:
    """Once they have heard of each other, a client has one limit on all machines; another client has his own."""
    now = monotonic()
    first, second, third = machines
    assert [first.limiter.admit("a", now) for _ in range(LIMIT - 5)] == [0.0] * (LIMIT - 5)
    await first.fleet.exchange()
    await hear(second, LIMIT - 5, now)
    # Told moments are up to some tenths of a second early: ask as of the moment they were admitted at.
    admitted = sum(second.limiter.admit("a", now) == 0.0 for _ in range(LIMIT))
    assert admitted == 5
    await second.fleet.exchange()
    await hear(third, LIMIT, now)
    assert third.limiter.admit("a", now) > 0.0
    assert third.limiter.admit("b", now) == 0.0


async def test_nobody_below_the_limit_is_refused(machines: list[Machine]) -> None:
    """What others have told is out of the window no later than it would be where it was admitted."""
    now = monotonic()
    first, second, _ = machines
    for _ in range(LIMIT):
        assert first.limiter.admit("a", now) == 0.0
    await first.fleet.exchange()
    await hear(second, LIMIT, now)
    assert second.limiter.admit("a", now + 1.0) == 0.0


async def test_time_spent_anywhere_is_taken_off_one_share(machines: list[Machine]) -> None:
    """Who has used his share up on one machine has none on the others."""
    first, second, _ = machines
    first.shares.spend("a", MOST_SAVED + 2.0)
    await first.fleet.exchange()
    second.shares.spend("a", 0.0)
    await second.fleet.exchange()
    assert second.shares.left("a") < -1.0
    assert second.shares.wait("a") > 0.0
    assert second.shares.left("b") == MOST_SAVED


async def test_a_clock_set_back_takes_nothing_off_a_share(server: RedisServer, machines: list[Machine]) -> None:
    """What was spent was so in the future, by the clock that Redis has now: nobody owes the time in between."""
    first, second, _ = machines
    first.shares.spend("a", 0.5)
    await first.fleet.exchange()
    redis = Redis.from_url(server.url)
    for key in await redis.keys("*:a"):
        await redis.hincrby(key, "at", 3_600_000)
    await redis.aclose()
    second.shares.spend("a", 0.1)
    await second.fleet.exchange()
    assert second.shares.left("a") > 0.0


async def test_without_redis_every_machine_counts_for_itself(server: RedisServer, machines: list[Machine]) -> None:
    """A limit holds on each; the failure shows; when Redis is back they count together again."""
    now = monotonic()
    first, second, _ = machines
    server.kill()
    assert [first.limiter.admit("a", now) for _ in range(LIMIT)] == [0.0] * LIMIT
    with pytest.raises(Exception, match=r"."):
        await first.fleet.exchange()
    assert first.limiter.admit("a", now) > 0.0
    assert second.limiter.admit("a", now) == 0.0
    await server.restart()
    for _ in range(LIMIT - 5):
        first.limiter.admit("b", now)
    await first.fleet.exchange()


async def test_the_service_says_that_it_counts_apart(server: RedisServer) -> None:
    """A Redis that is away is in the metrics, and stops nobody."""
    server.kill()
    made, stop, task, upstream = await start(redis_url=Secret(server.url))
    try:
        await made.until("/health", 200)
        assert (await made.get("/api/v1/config"))[0] == 200
        text = ""
        while "aggregator_limits_apart 1.0" not in text:
            async with made.session.get(made.operators + "/metrics") as answer:
                text = await answer.text()
            assert (await made.get("/api/v1/config"))[0] == 200
        assert "aggregator_limit_failures_total 0.0" not in text
        await server.restart()
        while "aggregator_limits_apart 0.0" not in text:
            async with made.session.get(made.operators + "/metrics") as answer:
                text = await answer.text()
    finally:
        await end(made, stop, task, upstream)


@pytest.mark.parametrize("url", ["http://x", "redis//"])
def test_a_url_that_is_none_is_refused_without_showing_it(url: str) -> None:
    """The text is for the operator, and holds no password."""
    with pytest.raises(OSError, match="redis_url cannot be used"):
        Machine(url, "x")
