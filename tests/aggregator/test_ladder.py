"""The price ladder: what its steps say, and what is said where there was no time; and ages of ladders and pictures."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.aggregator import errors, ladder
from millrace.aggregator.answering import Answering
from millrace.aggregator.errors import Busy, OverShare
from millrace.aggregator.ladder import price_ladder
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.responses import LadderResponse, QuoteResponse, encode
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot, build
from millrace.aggregator.until import Until
from millrace.dex.document import encode as written
from servers.aggregator_alone import Alone, alone
from synthetic import WRAPPED, make_market

SETTINGS = AggregatorSettings()
QUESTION = QuoteRequest(token_in=WRAPPED, token_out="USDC-c76f1f")
AMOUNTS = [10**17, 10**18, 10**19]


@cache
def snapshot() -> Snapshot:
    return build(written(make_market(60, seed=17, noise=0.02, curved=0.2)), 0.0)


def answered(deadline: float) -> LadderResponse:
    """The ladder, all its parts done."""
    parts = price_ladder(snapshot(), snapshot().main, QUESTION, AMOUNTS, SETTINGS, deadline)
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found: LadderResponse = end.value
            return found


def at_looks(monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
    """What the ladder sees whenever it looks at the clock; the searches have their own."""
    told = iter(times)
    monkeypatch.setattr(ladder, "time", SimpleNamespace(monotonic=lambda: next(told)))
    plain = ladder.answer
    monkeypatch.setattr(ladder, "answer", lambda *asked: plain(*asked[:3], math.inf, asked[4]))


def test_a_ladder_says_which_steps_were_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step whose search the deadline cut short says so, one that it left no time for has the error of a quote."""
    found = answered(math.inf)
    assert not any(step.search_cut or step.error for step in found.steps)
    assert b'"searchCut":false' not in encode(found)
    at_looks(monkeypatch, 0.0, 1.0, 1.0, 3.0, 3.0)  # before each step, and after what was done
    cut = answered(2.0)
    assert [step.search_cut for step in cut.steps] == [False, True, False]
    assert [step.error for step in cut.steps] == [None, None, errors.busy().text]


def test_a_step_that_came_to_no_plan_in_time_has_no_other_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more time it may have one: only what failed in time is told that its amount is at fault."""
    at_looks(monkeypatch, 0.0, 1.0, 1.0, 1.5, 1.5, 3.0)
    plain = ladder.answer

    def late(held: Snapshot, asked: QuoteRequest, *rest: Any) -> QuoteResponse:
        if asked.amount_in != AMOUNTS[0]:
            raise errors.simulation_failed()
        return plain(held, asked, *rest)

    monkeypatch.setattr(ladder, "answer", late)
    found = [step.error for step in answered(2.0).steps]
    assert found == [None, "simulation failed", errors.busy().text]


@pytest.mark.parametrize(("by_share", "kind"), [(False, Busy), (True, OverShare)])
def test_a_ladder_without_time_is_refused_as_a_quote_is(by_share: bool, kind: type[Busy]) -> None:
    """No step has an answer and time is the reason: 503 with Retry-After, also for whoever has used his share up."""
    deadline = Until(math.inf if by_share else 0.0, lambda: by_share)
    with pytest.raises(Busy) as refused:
        answered(deadline)
    assert (type(refused.value), refused.value.status, refused.value.retry_after) == (kind, 503, 1.0)


@pytest.fixture
async def service() -> AsyncIterator[Alone]:
    async with alone(make_market(40, seed=19)) as running:
        yield running


@pytest.mark.parametrize(
    ("route", "amounts", "method"),
    [
        ("price-ladder", {"amounts": "1000000000000000000"}, "run_in_turns"),
        ("quote.svg", {"amountIn": "1000000000000000000"}, "answer"),
    ],
)
async def test_a_market_that_became_too_old_meanwhile_is_refused(
    service: Alone,
    monkeypatch: pytest.MonkeyPatch,
    route: str,
    amounts: dict[str, str],
    method: str,
) -> None:
    """Ladders and pictures look at the age when they are answered, too, as their header tells it."""
    feed = service.feed
    plain: Callable[..., Any] = getattr(Answering, method)

    async def late(self: Answering, *asked: Any) -> Any:
        found = await plain(self, *asked)
        assert feed.snapshot is not None
        feed.snapshot.received -= 30.0
        return found

    monkeypatch.setattr(Answering, method, late)
    url, asked = f"{service.base}/api/v1/{route}", {"from": "EGLD", "to": "USDC-c76f1f", **amounts}
    async with service.session.get(url, params=asked | {"maxAgeMs": "20000"}) as answer:
        assert answer.status == 503
        assert "more than maxAgeMs 20000" in (await answer.json())["error"]
    async with service.session.get(url, params=asked) as answer:
        assert answer.status == 200
