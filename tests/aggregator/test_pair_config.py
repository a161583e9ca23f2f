"""Records of pairs: those with LP tokens take long, so they take turns, and are made once a snapshot."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import msgspec
import pytest

from millrace.aggregator import quote
from millrace.aggregator.responses import PairConfig, encode
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.shares import MOST_SAVED, TimeShares
from millrace.aggregator.snapshot import Snapshot
from millrace.routing.planner import Planner
from servers.aggregator_alone import Alone, alone
from synthetic import WRAPPED, make_market

MARKET = make_market(60, seed=23, curved=0.3)
LP_TOKENS = [pool.lp_token for pool in MARKET.pools if pool.kind == "stable" and pool.lp_token][:3]
PAIRS = [(LP_TOKENS[0], LP_TOKENS[1]), (LP_TOKENS[1], "EGLD"), ("EGLD", LP_TOKENS[2])]
PLAIN = ("EGLD", "USDC-c76f1f")
MADE = quote.pair_config


@pytest.fixture
async def service() -> AsyncIterator[Alone]:
    async with alone(MARKET) as running:
        yield running


async def config(service: Alone, pair: tuple[str, str]) -> object:
    status, body = await service.get("/api/v1/pair-config", **{"from": pair[0], "to": pair[1]})
    assert status == 200
    return body


async def test_pairs_with_lp_tokens_are_worked_out_in_the_thread_and_once(
    service: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop does none of it, who asks again has it for nothing, and it is what it would be there."""
    threads: list[str] = []

    def recorded(
        held: Snapshot, token_in: str, token_out: str, most: int, planner: Planner | None = None
    ) -> PairConfig:
        threads.append(threading.current_thread().name)
        assert planner is not held.main, "one thread at a time"
        return MADE(held, token_in, token_out, most, planner)

    monkeypatch.setattr(quote, "pair_config", recorded)
    snapshot, most = service.api.usable(), AggregatorSettings().max_hops
    for pair in PAIRS:
        expected = msgspec.json.decode(encode(MADE(snapshot, *pair, most)))
        assert expected["supported"] is True
        assert [await config(service, pair) for _ in range(3)] == [expected] * 3
    assert len(threads) == len(PAIRS)
    assert threading.current_thread().name not in threads
    await config(service, PLAIN)
    assert threads[-1] == threading.current_thread().name


async def test_who_has_no_time_left_asks_for_pairs_in_vain(service: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they take is the client's own: past its share a new pair is a 503, known and plain ones are answered."""
    known = await config(service, PAIRS[0])
    slot = service.api.answering.shares._clients.peek("127.0.0.1")
    assert slot is not None and 0.0 < slot.spent < MOST_SAVED
    monkeypatch.setattr(TimeShares, "wait", lambda *_: 5.0)
    asked = dict(zip(("from", "to"), PAIRS[1], strict=True))
    async with service.session.get(service.base + "/api/v1/pair-config", params=asked) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
    assert await config(service, PAIRS[0]) == known
    await config(service, PLAIN)
    await config(service, ("EGLD", WRAPPED))


async def test_who_asks_at_the_same_time_waits_for_the_same(service: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair is made once a snapshot also for those who ask while it is made."""
    begun, made = threading.Event(), []

    def late(held: Snapshot, token_in: str, token_out: str, most: int, planner: Planner | None = None) -> PairConfig:
        made.append(token_in)
        begun.wait(20)
        return MADE(held, token_in, token_out, most, planner)

    monkeypatch.setattr(quote, "pair_config", late)
    asked = asyncio.gather(*(config(service, PAIRS[0]) for _ in range(5)))
    async with service.session.get(service.base + "/health"):  # they are under way
        begun.set()
    first, *others = await asked
    assert others == [first] * 4
    assert made == [PAIRS[0][0]]


@pytest.mark.parametrize(("named", "known"), [(0, "unknown tokenOut"), (1, "unknown tokenIn")])
async def test_a_token_that_nobody_knows_is_said_at_once(
    service: Alone, monkeypatch: pytest.MonkeyPatch, named: int, known: str
) -> None:
    """Beside an LP token, too: nothing has to be worked out for it, so no queue and no share matter."""
    monkeypatch.setattr(TimeShares, "wait", lambda *_: 5.0)
    for unknown in ("NOPE-123456", "A\nB"):
        pair = (LP_TOKENS[0], unknown) if named == 0 else (unknown, LP_TOKENS[0])
        body = await config(service, pair)
        assert body == {"from": pair[0], "to": pair[1], "supported": False, "error": known}
