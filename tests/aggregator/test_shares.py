"""Time for long questions: what is spent comes back at the share's pace, and never more than a second of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.aggregator.clients import WAYS, Clients
from millrace.aggregator.shares import MOST_SAVED, TimeShares
from servers.aggregator_service import Service
from synthetic import WRAPPED


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


STEPS = st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.0, 2.0)), max_size=20)


@given(STEPS, st.floats(0.1, 2.0))
def test_time_spent_comes_back_at_the_share(steps: list[tuple[float, float]], share: float) -> None:
    """Whatever is spent when: what is left never exceeds what can be saved up, and grows by the share a second."""
    clock = Clock()
    shares, left = TimeShares(share, Clients(10, 1), clock), MOST_SAVED
    for passed, spent in steps:
        clock.now += passed
        left = min(MOST_SAVED, left + passed * share)
        assert shares.left("a") == pytest.approx(left)
        shares.spend("a", spent)
        left -= spent
    assert shares.left("b") == MOST_SAVED


@given(st.floats(0.0, 5.0), st.floats(0.1, 2.0))
def test_who_waits_as_told_has_no_debt(spent: float, share: float) -> None:
    """Up to a second's share of debt there is no wait; past it, it is as long as the debt takes."""
    clock = Clock()
    shares = TimeShares(share, Clients(10, 1), clock)
    shares.spend("a", spent)
    wait = shares.wait("a")
    assert (wait > 0.0) == (shares.left("a") <= -share)
    clock.now += wait
    assert shares.wait("a") == 0.0


def test_clients_are_bounded() -> None:
    """Beyond the bound the one idle for longest is forgotten: it has all of its share again."""
    clock, clients = Clock(), Clients(WAYS, 1)
    shares = TimeShares(1.0, clients, clock)
    names = [f"10.0.0.{number}" for number in range(WAYS + 1)]
    for client in names:
        clock.now += 0.001
        shares.spend(client, 0.5)
    assert len(clients) == WAYS
    assert shares.left(names[0]) == MOST_SAVED
    assert shares.left(names[1]) == pytest.approx(0.5, abs=0.01)


async def test_what_one_client_asks_too_much_is_counted_apart(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client over its share is no failure of the service: its refusals have a counter, other errors are not in it."""
    monkeypatch.setattr(TimeShares, "wait", lambda *_: 5.0)
    pair = {"from": WRAPPED, "to": "USDC-c76f1f"}
    for path, query, expected in (
        ("quote", {**pair, "amountOut": "1000000"}, 503),
        ("price-ladder", {**pair, "amounts": "1000000000000000000"}, 503),
        ("quote", {"from": "NONE-123456", "to": WRAPPED, "amountIn": "1"}, 400),
    ):
        status, body = await service.get(f"/api/v1/{path}", **query)
        assert status == expected, body
    async with service.session.get(service.operators + "/metrics") as answer:
        text = await answer.text()
    assert "aggregator_requests_over_share_total 2.0" in text
    assert 'aggregator_requests_total{route="quote",status="503"} 1.0' in text
