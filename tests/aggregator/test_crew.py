"""Several workers answer as one: the same market, the same bytes, limits and numbers of all, and nothing lost when one
ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from millrace.aggregator.crew import MOST_SILENT, MOST_TAKING, Process, listeners
from millrace.dex.document import Block, encode
from servers.aggregator_service import MARKET, Service, end, start
from synthetic import WRAPPED

QUOTE = {"from": WRAPPED, "to": "USDC-c76f1f", "amountIn": "1000000000000000000"}
CONNECTIONS = 24


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made, stop, task, server = await start(workers=2, requests_per_second=10_000, trusted_proxies=("127.0.0.0/8",))
    await until(made, lambda health: health["workers"] == 2 and health["status"] == "ok")
    yield made
    await end(made, stop, task, server)


async def health_of(service: Service) -> Any:
    async with service.session.get(service.operators + "/health") as answer:
        return msgspec.json.decode(await answer.read())


async def until(service: Service, holds: Callable[[Any], bool]) -> Any:
    """Ask for the health of the whole until it is as it should be (at most 20 s)."""
    async with asyncio.timeout(20):
        while not holds(found := await health_of(service)):
            await asyncio.sleep(0.02)
    return found


async def metrics(service: Service) -> str:
    async with service.session.get(service.operators + "/metrics") as answer:
        return await answer.text()


def value(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


async def on_many(
    service: Service, path: str, query: dict[str, str], client: str = "10.0.0.1"
) -> list[tuple[int, bytes, str]]:
    """Status, body and snapshot id of one question over many connections, which two workers share."""

    async def ask() -> tuple[int, bytes, str]:
        headers = {"X-Forwarded-For": client}
        async with (
            aiohttp.ClientSession() as session,
            session.get(service.base + path, params=query, headers=headers) as answer,
        ):
            return answer.status, await answer.read(), answer.headers.get("X-Snapshot-Id", "")

    return list(await asyncio.gather(*(ask() for _ in range(CONNECTIONS))))


def workers_of() -> list[int]:
    """Process ids of this process's workers."""
    me = os.getpid()
    pids = [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if "millrace.aggregator.worker" in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
    return found


async def test_all_answer_alike_and_one_scrape_tells_of_all(service: Service) -> None:
    """One fetch for all, one snapshot id, equal bytes; every request is in the metrics, whoever answered it."""
    answers = await on_many(service, "/api/v1/quote", QUOTE)
    assert {status for status, _, _ in answers} == {200}
    assert len({(body, identifier) for _, body, identifier in answers}) == 1
    text = await metrics(service)
    assert value(text, 'aggregator_requests_total{route="quote",status="200"}') == CONNECTIONS
    # Two workers have computed it, one each: the rest was remembered.
    assert value(text, "aggregator_quotes_reused_total") == CONNECTIONS - 2
    assert value(text, "aggregator_workers") == 2
    assert value(text, "aggregator_pools") == len(MARKET.pools)
    assert value(text, "process_resident_memory_bytes") > 0
    before = service.upstream.served
    refreshes = value(text, "aggregator_refreshes_total")
    await until_metric(service, "aggregator_refreshes_total", refreshes + 3)
    assert service.upstream.served - before <= 6  # of one process, not of three


async def until_metric(service: Service, name: str, least: float) -> str:
    async with asyncio.timeout(20):
        while value(text := await metrics(service), name) < least:
            await asyncio.sleep(0.02)
    return text


async def test_a_new_market_reaches_all(service: Service) -> None:
    """Both workers answer from the next document soon, and from no other one."""
    first = {identifier for _, _, identifier in await on_many(service, "/api/v1/quote", QUOTE)}
    service.upstream.body = encode(msgspec.structs.replace(MARKET, block=Block(9, 9, 9)))
    async with asyncio.timeout(20):
        for number in itertools.count():  # one client's rate would be used up by the second question
            answers = await on_many(service, "/api/v1/quote", QUOTE, f"10.1.{number // 250}.{number % 250}")
            seen = {identifier for _, _, identifier in answers}
            if len(seen) == 1 and seen != first:
                break
            assert len(seen | first) <= 2
    assert (await health_of(service))["snapshotId"] in seen


async def test_a_shrunk_market_is_judged_once_for_all(service: Service) -> None:
    """A worker that is new takes what the others have, not what is being held back from them."""
    now = await health_of(service)
    service.upstream.body = encode(msgspec.structs.replace(MARKET, pools=MARKET.pools[:10]))
    service.upstream.delay = 600.0  # no three fetches agree, however long this test runs
    os.kill(workers_of()[0], signal.SIGKILL)
    await until(service, lambda health: health["workers"] < 2)
    await until(service, lambda health: health["workers"] == 2)
    answers = await on_many(service, "/api/v1/quote", QUOTE)
    assert {identifier for _, _, identifier in answers} == {now["snapshotId"]}


async def test_the_rate_limit_counts_what_all_workers_admit() -> None:
    """However a client's requests are spread: so many a second as one worker would admit, and not one less."""
    made, stop, task, server = await start(workers=2, requests_per_second=30, trusted_proxies=("127.0.0.0/8",))
    try:
        await until(made, lambda health: health["workers"] == 2 and health["status"] == "ok")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(20):
            for number in range(1_000):
                begun, client = loop.time(), f"10.0.{number}.1"
                answers = [answer for _ in range(3) for answer in await on_many(made, "/api/v1/config", {}, client)]
                if loop.time() - begun < 1.0:  # all of them in one window
                    break
        statuses = [status for status, _, _ in answers]
        assert statuses.count(200) == 30
        assert statuses.count(429) == 3 * CONNECTIONS - 30
    finally:
        await end(made, stop, task, server)


async def test_a_worker_that_dies_is_replaced_and_its_counts_stay(service: Service) -> None:
    """The service goes on; the death is counted; what was reported is not lost from the counters."""
    await on_many(service, "/api/v1/quote", QUOTE)
    before = await metrics(service)
    name = 'aggregator_requests_total{route="quote",status="200"}'
    os.kill(workers_of()[0], signal.SIGKILL)
    text = await until_metric(service, "aggregator_worker_restarts_total", 1)
    assert value(text, name) >= value(before, name) == CONNECTIONS
    await until(service, lambda health: health["workers"] == 2)
    assert {status for status, _, _ in await on_many(service, "/api/v1/quote", QUOTE)} == {200}


async def asking(service: Service, over: Callable[[], bool]) -> int:
    """Requests of some clients on kept connections, one after the other, until `over`; every one has to be answered.

    One client alone would be refused once those that came before an answer could be given at once are his whole share.
    """

    async def ask(client: int) -> int:
        count = 0
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(connector=connector) as session:
            while not over():
                query = {**QUOTE, "amountIn": str(10**18 + count)}
                headers = {"X-Forwarded-For": f"10.0.{client}.{count % 250}"}
                async with session.get(service.base + "/api/v1/quote", params=query, headers=headers) as answer:
                    assert answer.status == 200, await answer.text()
                    await answer.read()
                count += 1
        return count

    return sum(await asyncio.gather(*map(ask, range(8))))


async def test_replacing_all_workers_loses_no_request(service: Service) -> None:
    """Under load each is replaced by another one; whoever asks is answered all the time."""
    before = set(workers_of())
    done = False
    load = asyncio.create_task(asking(service, lambda: done))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGHUP)
    async with asyncio.timeout(30):
        while len(set(workers_of()) - before) < 2 or set(workers_of()) & before:
            await asyncio.sleep(0.05)
    done = True
    assert await load > 0
    assert value(await metrics(service), "aggregator_worker_restarts_total") == 0


async def test_streams_go_on_when_workers_are_replaced(service: Service) -> None:
    """A stream ends with its worker, and who comes back with what he has is told nothing twice."""
    async with service.session.get(service.base + "/api/v1/quote/stream", params=QUOTE) as stream:
        event = (await stream.content.readuntil(b"\n\n")).decode()
        name = re.search(r"^id: (\w+)$", event, re.MULTILINE)
        assert name is not None
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(120):
            while await stream.content.readany():
                pass
    headers = {"Last-Event-ID": name[1]}
    async with service.session.get(service.base + "/api/v1/quote/stream", params=QUOTE, headers=headers) as stream:
        again = (await stream.content.readuntil(b"\n\n")).decode()
    assert again.startswith(": unchanged") or name[1] not in again


@pytest.mark.parametrize(("taking", "after"), [(False, MOST_SILENT), (True, MOST_TAKING)])
def test_a_worker_that_gets_nowhere_is_found_out(taking: bool, after: int) -> None:
    """Who says nothing, and who reports while a market is never taken in; who does neither is left alone."""
    nobody: Any = None
    worker = Process(0, nobody, nobody)
    worker.taking = taking
    found = []
    for _ in range(after):
        worker.silent *= not taking  # one that takes a market in still reports
        found.append(worker.stuck())
    assert found[-1]
    assert not any(found[:-1])
    worker.taking, worker.silent = False, 0
    assert not worker.stuck()
    assert worker.taking_for == 0


async def test_the_port_is_shared_with_no_other_service() -> None:
    """A second service at the same port is refused, as it would take half of the connections."""
    taken = listeners("127.0.0.1", 0, 2)
    port = taken[0][0].getsockname()[1]
    assert [each[0].getsockname()[1] for each in taken] == [port, port]
    with pytest.raises(OSError, match="cannot listen"):
        listeners("127.0.0.1", port, 2)
    for sockets in taken:
        for each in sockets:
            each.close()
