"""Snapshots: built in steps between which other work goes on, and gone with their last user."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import msgspec
import pytest

from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Filter, build
from millrace.dex.document import encode
from millrace.dex.pool import Burn, Pool
from millrace.dex.stable import AshStablePool
from millrace.routing import venue
from millrace.routing.lpedges import BurnTrade, lp_edges
from synthetic import make_market

MARKET = make_market(40, seed=19, traded_lp=2)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """No garbage is collected."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_a_snapshot_is_freed_with_its_last_user() -> None:
    """Nothing in a snapshot holds itself, whatever it was asked: its memory is free as soon as nobody uses it."""
    snapshot = build(encode(MARKET), 0.0)
    first, last = MARKET.pools[0].tokens[0], MARKET.pools[-1].tokens[1]
    question = QuoteRequest(token_in=first, token_out=last, amount_in=10**15)
    answer(snapshot, question, AggregatorSettings())
    chosen = Filter(without_pools=(MARKET.pools[0].id,))
    snapshot.keep(chosen, snapshot.make(chosen))
    snapshot.twin(snapshot.main)
    left = [weakref.ref(thing) for thing in (snapshot, snapshot.main, snapshot.main.router, snapshot.market)]
    left += [
        weakref.ref(planner.router) for planner in (snapshot.find(chosen), snapshot.twin(snapshot.main)) if planner
    ]
    assert len(left) == 6
    del snapshot
    assert [reference() for reference in left] == [None] * 6


def test_building_can_rest_at_every_step() -> None:
    """The pause is called at every pool, as it is read and as its trades are listed, and between all other steps."""
    calls = 0

    def pause() -> None:
        nonlocal calls
        calls += 1

    build(encode(MARKET), 0.0, pause=pause)
    assert calls > 2 * len(MARKET.pools) + 8


def test_a_market_with_pools_moved_is_made_without_rests() -> None:
    """A batch makes one for each of its transactions, in the thread in which other long questions wait."""
    rests: list[None] = []
    made = build(encode(MARKET), 0.0, lambda: rests.append(None))
    before = len(rests)
    pool = MARKET.pools[0]
    made.plan_on(made.main, Filter(), {pool.id: pool.swap(0, 1, pool.reserves[0] // 10).pool}, lambda _: True)
    assert len(rests) == before > 0


def test_a_pool_whose_numbers_come_to_nothing_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever arithmetic no check has foreseen costs the pool that brings it, and not the market."""
    bad = next(pool for pool in MARKET.pools if pool.kind == "constant_product")
    curve = venue.constant_product_curve

    def divides(pool: Pool, i: int, j: int) -> tuple[float, float, float]:
        if pool.id == bad.id:
            raise ZeroDivisionError("float division by zero")
        return curve(pool, i, j)

    monkeypatch.setattr(venue, "constant_product_curve", divides)
    snapshot = build(encode(MARKET), 0.0)
    assert [item.name for item in snapshot.document.quarantined] == [bad.id]
    assert "float division by zero" in snapshot.document.quarantined[0].reason
    assert bad.id not in {pool.id for pool in (*snapshot.document.pools, *snapshot.usable)}
    assert len(snapshot.document.pools) == len(MARKET.pools) - 1
    first, *_, last = sorted({token for pool in snapshot.usable for token in pool.tokens if snapshot.worth.get(token)})
    question = QuoteRequest(token_in=first, token_out=last, amount_in=10**15)
    assert int(answer(snapshot, question, AggregatorSettings()).amount_out) > 0


def test_a_pool_without_a_curve_in_any_direction_is_left_out_and_named() -> None:
    """Nothing can be traded with it, so it is not among the pools that routes may use; the others are."""
    decimals = {info.identifier: info.decimals for info in MARKET.tokens}
    tokens = next(pool.tokens for pool in MARKET.pools if decimals[pool.tokens[0]] == 18)
    bad = AshStablePool(
        id="flat", address=b"\x07" * 32, tokens=tokens, reserves=(10**17, 10 ** (decimals[tokens[1]] + 6)),
        decimals=(18, decimals[tokens[1]]), prices=(1, 10**18), amp=100, swap_fee=10, admin_fee=0, fee_base=10**5,
    )  # fmt: skip
    snapshot = build(encode(msgspec.structs.replace(MARKET, pools=(*MARKET.pools, bad))), 0.0)
    (left_out,) = snapshot.document.quarantined
    assert left_out.name == "flat"
    assert left_out.reason.startswith(f"no curve from {tokens[0]} to {tokens[1]}: ")
    assert "flat" not in {pool.id for pool in (*snapshot.document.pools, *snapshot.usable)}
    assert len(snapshot.document.pools) == len(MARKET.pools)


def test_lp_units_whose_numbers_come_to_nothing_end_no_market(monkeypatch: pytest.MonkeyPatch) -> None:
    """A withdrawal that divides by zero is no trade; those of other pools are."""
    traded = {token for pool in MARKET.pools for token in pool.tokens}
    bad, other = [pool for pool in MARKET.pools if pool.lp_token in traded][:2]
    burn = type(bad).burn

    def divides(pool: Pool, units: int) -> Burn:
        if pool.id == bad.id:
            raise ZeroDivisionError("float division by zero")
        return burn(pool, units)

    monkeypatch.setattr(type(bad), "burn", divides)
    snapshot = build(encode(MARKET), 0.0)
    for pool, expected in ((bad, False), (other, True)):
        trades = lp_edges([pool], snapshot.market, traded)
        assert any(isinstance(trade, BurnTrade) for trade, _ in trades) is expected
