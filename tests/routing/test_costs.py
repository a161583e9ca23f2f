"""What plans take of a transaction, against what a real node has counted and charged."""

from __future__ import annotations

import statistics
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.dex.constant_product import FeeDestination, JexPool, OneDexPool, TrustedPair, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.pool import Pool
from millrace.dex.stable import AshStablePool, JexStablePool
from millrace.routing.costs import (
    CALLS_PER_TRANSACTION,
    GAS_PER_TRANSACTION,
    READS_PER_TRANSACTION,
    ROWS,
    TRANSFERS_PER_TRANSACTION,
    Cost,
    M,
    Table,
)
from millrace.routing.plan import AnyLeg, Leg, LpLeg, cost_of
from millrace.routing.venue import Trade

NETWORK = Cost(1 << 30, CALLS_PER_TRANSACTION, TRANSFERS_PER_TRANSACTION, READS_PER_TRANSACTION, GAS_PER_TRANSACTION)
TABLE = Table()
BYTES = 300  # of a short plan's data

OFF: dict[str, Any] = {"fee_enabled": False}
COLLECTOR: dict[str, Any] = {"fees_collector": b"c" * 32, "fees_collector_cut": 100_000, "fee_destinations": ()}
HERE: dict[str, Any] = {
    "fees_collector": b"c" * 32,
    "fees_collector_cut": 50_000,
    "fee_destinations": (FeeDestination(bytes(32), "A-000000"),),
    "trusted_pairs": (),
}
ELSEWHERE: dict[str, Any] = HERE | {
    "fee_destinations": (FeeDestination(bytes(32), "MEX-455c57"),),
    "trusted_pairs": (TrustedPair(("A-000000", "MEX-455c57"), b"t" * 32),),
}


def common(number: int, tokens: int = 2) -> dict[str, Any]:
    names = ("A-000000", "B-000000", "C-000000", "D-000000")[:tokens]
    return {
        "id": str(number),
        "address": number.to_bytes(32, "big"),
        "tokens": names,
        "reserves": (10**24,) * tokens,
        "lp_token": f"LP-{number:06x}",
        "lp_supply": 10**24,
    }


def xexchange(number: int, **setup: Any) -> XExchangePool:
    return XExchangePool(**common(number), total_fee=300, special_fee=50, **setup)


def onedex(number: int) -> OneDexPool:
    return OneDexPool(
        **common(number), pair_id=number, total_fee=40, special_fee=10, staking_fee=10, main=(True, False)
    )


def jex(number: int) -> JexPool:
    return JexPool(**common(number), lp_fee=20, platform_fee=10)


def curved(number: int, tokens: int) -> dict[str, Any]:
    return common(number, tokens) | {"decimals": (18,) * tokens, "prices": (10**18,) * tokens, "amp": 100}


def jex_stable(number: int, tokens: int = 2) -> JexStablePool:
    return JexStablePool(**curved(number, tokens), swap_fee=400, liquidity_fee=200)


def ash_stable(number: int, tokens: int = 2) -> AshStablePool:
    return AshStablePool(**curved(number, tokens), swap_fee=40, admin_fee=33_000)


def ash_crypto(number: int) -> AshCryptoPool:
    return AshCryptoPool(
        **common(number), decimals=(18, 18), ann=400_000, gamma=145 * 10**12, d=2 * 10**24, price_scale=10**18,
        mid_fee=26 * 10**6, out_fee=45 * 10**6, fee_gamma=230 * 10**12,
    )  # fmt: skip


def off(number: int) -> XExchangePool:
    return xexchange(number, **OFF)


def to_collector(number: int) -> XExchangePool:
    return xexchange(number, **COLLECTOR)


def sold_here(number: int) -> XExchangePool:
    return xexchange(number, **HERE)


def sold_elsewhere(number: int) -> XExchangePool:
    return xexchange(number, **ELSEWHERE)


def swap(pool: Pool) -> Leg:
    return Leg(Trade(pool, 0, 1), 0, 0)


def deposit(pool: Pool) -> LpLeg:
    return LpLeg(pool, pool.tokens)


def withdraw(pool: Pool) -> LpLeg:
    return LpLeg(pool, None)


def taken(*legs: AnyLeg, egld_in: bool = False, egld_out: bool = False) -> Cost:
    """What a whole call takes."""
    return TABLE.ends(egld_in=egld_in, egld_out=egld_out).plus(cost_of(legs, TABLE))


# The table "Per action" of what was measured: calls, transfers and gas in millions, base (1, 1, 4.5) not included.
ACTIONS = [
    ("xExchange, fee off", swap(off(1)), 2, 2, 18, 7.9),
    ("xExchange, collector", swap(to_collector(1)), 3, 3, 23, 12.0),
    ("xExchange, sold in the pair", swap(sold_here(1)), 4, 3, 27, 12.8),
    ("xExchange, sold elsewhere", swap(sold_elsewhere(1)), 5, 4, 44, 20.0),
    ("xExchange, not known", swap(xexchange(1)), 5, 4, 44, 20.0),
    ("OneDex", swap(onedex(1)), 4, 4, 20, 6.6),
    ("JEX", swap(jex(1)), 3, 3, 11, 5.0),
    ("JEX stable", swap(jex_stable(1)), 3, 3, 17, 7.6),
    ("xExchange deposit, collector", deposit(to_collector(1)), 6, 7, 31, 29.0),
    ("xExchange deposit, sold in the pair", deposit(sold_here(1)), 7, 7, 35, 29.0),
    ("xExchange deposit, sold elsewhere", deposit(sold_elsewhere(1)), 8, 8, 52, 34.0),
    ("OneDex deposit", deposit(onedex(1)), 8, 8, 30, 23.0),
    ("JEX deposit", deposit(jex(1)), 7, 7, 21, 19.0),
    ("JEX stable deposit", deposit(jex_stable(1)), 3, 3, 20, 7.0),
    ("xExchange withdraw", withdraw(to_collector(1)), 3, 3, 11, 9.0),
    ("OneDex withdraw", withdraw(onedex(1)), 4, 3, 13, 7.0),
    ("JEX withdraw", withdraw(jex(1)), 4, 3, 6, 5.0),
    ("JEX stable withdraw", withdraw(jex_stable(1)), 3, 3, 7, 7.0),
]

# "Largest plans that pass": makers in turn, pools, calls, transfers, reads, and gas in millions on the node.
LARGEST = [
    ([off], 49, 99, 99, 882, 413),
    ([to_collector], 33, 100, 100, 760, 411),
    ([sold_here], 24, 97, 73, 649, 317),
    ([sold_elsewhere], 19, 96, 77, 837, 389),
    ([onedex], 24, 97, 97, 227, 163),
    ([jex], 33, 100, 100, 363, 170),
    ([jex_stable], 33, 100, 100, 561, 256),
    ([to_collector, onedex, jex], 29, 98, 98, 431, 239),
    ([sold_here, onedex, jex], 27, 100, 91, 435, 227),
    ([sold_here, onedex, jex, jex_stable], 28, 99, 92, 460, 231),
]


@pytest.mark.parametrize(
    ("leg", "calls", "transfers", "reads"), [row[1:5] for row in ACTIONS], ids=[a[0] for a in ACTIONS]
)
def test_each_action_takes_the_calls_and_transfers_that_a_node_counted(
    leg: AnyLeg, calls: int, transfers: int, reads: int
) -> None:
    """Calls and transfers are exact, and no fewer reads are planned than there were."""
    cost = taken(leg)
    assert (cost.calls - 1, cost.transfers - 1) == (calls, transfers)
    assert cost.reads >= reads


@pytest.mark.parametrize(("makers", "pools", "calls", "transfers"), [row[:4] for row in LARGEST])
def test_the_largest_plan_that_passes_and_the_next_one_are_told_apart(
    makers: list[Any], pools: int, calls: int, transfers: int
) -> None:
    """As many pools as a node executed hold the network's limits, one more does not."""
    legs = [swap(makers[k % len(makers)](k)) for k in range(pools + 1)]
    largest, next_one = taken(*legs[:-1]), taken(*legs)
    assert (largest.calls, largest.transfers) == (calls, transfers)
    assert largest.within(NETWORK)
    assert next_one.calls > CALLS_PER_TRANSACTION


def test_no_gas_limit_is_below_what_was_needed_and_the_surplus_is_small() -> None:
    """Of every measured action and plan; in the median a quarter more than the need at most."""
    needs = [(taken(leg), BYTES, 4.5 + gas) for _, leg, _, _, _, gas in ACTIONS]
    for makers, pools, _, _, _, gas in LARGEST:
        legs = [swap(makers[k % len(makers)](k)) for k in range(pools)]
        needs.append((taken(*legs), BYTES + 60 * pools, gas))
    needs.append((taken(swap(jex(1)), egld_in=True), BYTES, 4.5 + 2.3 + 5.0))
    needs.append((taken(swap(jex(1)), egld_out=True), BYTES, 4.0 + 2.7 + 5.0))
    surplus = [TABLE.gas_limit(cost, length) / (need * M) - 1.0 for cost, length, need in needs]
    assert min(surplus) >= 0.0
    assert statistics.median(surplus) <= 0.25


def test_egld_costs_two_calls_on_the_way_in_and_one_on_the_way_out() -> None:
    """Wrapping mints and sends; unwrapping sends and burns, and saves the last send."""
    plain = taken(swap(jex(1)))
    assert taken(swap(jex(1)), egld_in=True).calls == plain.calls + 2
    assert taken(swap(jex(1)), egld_out=True).calls == plain.calls + 1
    assert TABLE.ends(egld_in=True, egld_out=True).calls == 4


@pytest.mark.parametrize("pool", [off(1), sold_elsewhere(1), jex(1), jex_stable(1), ash_crypto(1)])
def test_a_pool_used_again_is_not_read_again(pool: Pool) -> None:
    """Calls, transfers and gas count each time, storage the first time only."""
    once, twice = cost_of([swap(pool)], TABLE), cost_of([swap(pool), swap(pool)], TABLE)
    assert twice.reads == once.reads
    assert twice.calls == 2 * once.calls
    assert twice.gas == 2 * once.gas


def test_onedex_reads_its_own_settings_once_and_its_roles_each_time() -> None:
    """Eleven keys in a transaction, one at each further use of a pair."""
    one, two = cost_of([swap(onedex(1))], TABLE), cost_of([swap(onedex(1)), swap(onedex(2))], TABLE)
    assert two.reads == 2 * one.reads - 11
    assert cost_of([swap(onedex(1)), swap(onedex(1))], TABLE).reads == one.reads + 1


@pytest.mark.parametrize(("make", "kind"), [(jex_stable, "jex_stable"), (ash_stable, "ash_stable")])
def test_pools_of_more_tokens_take_more(make: Any, kind: str) -> None:
    """Each token beyond two adds its row."""
    two, four = TABLE.deposit(make(1, 2)), TABLE.deposit(make(1, 4))
    assert four == two.plus(TABLE.cost(f"{kind}_deposit_token"), 2)
    assert TABLE.swap(make(1, 4)).gas > TABLE.swap(make(1, 2)).gas
    assert TABLE.withdrawal(make(1, 3)).transfers == TABLE.withdrawal(make(1, 2)).transfers + 1


@given(here=st.integers(0, 5), elsewhere=st.integers(0, 5), collector=st.booleans())
def test_every_destination_of_a_fee_counts(here: int, elsewhere: int, collector: bool) -> None:
    """One call for a slice burned or sold in the pair, two for one sold in another pair, one for the collector."""
    to = [FeeDestination(bytes([k]) * 32, "A-000000") for k in range(here)]
    to += [FeeDestination(bytes([k]) * 32, "MEX-455c57") for k in range(10, 10 + elsewhere)]
    setup = ELSEWHERE | {"fees_collector": b"c" * 32 if collector else b"", "fee_destinations": tuple(to)}
    assert TABLE.swap(xexchange(1, **setup)).calls == 2 + collector + here + 2 * elsewhere


def test_ashswap_is_estimated_and_says_so() -> None:
    """Nobody has measured it: it is planned no cheaper than the stable pools that were, and the row says estimated."""
    assert all(row.origin.startswith("estimated") for name, row in ROWS.items() if name.startswith("ash_"))
    assert all(row.origin for row in ROWS.values())
    for pool in (ash_stable(1), ash_crypto(1)):
        assert TABLE.swap(jex_stable(1)).within(TABLE.swap(pool))
        assert TABLE.deposit(jex_stable(1)).within(TABLE.deposit(pool))
        assert TABLE.withdrawal(jex_stable(1)).within(TABLE.withdrawal(pool))


def test_an_operator_replaces_single_numbers_of_a_row() -> None:
    """The others stay; code that is larger than the measured one takes 100 gas a byte more."""
    table = Table(
        {"onedex_swap": {"gas": 9 * M, "calls": 6}, "jex_swap": {"code_bytes": ROWS["jex_swap"].code_bytes + 1000}}
    )
    assert table.swap(onedex(1)) == TABLE.swap(onedex(1))._replace(gas=9 * M, calls=6)
    assert table.swap(jex(1)).gas == TABLE.swap(jex(1)).gas + 100_000
    assert table.swap(off(1)) == TABLE.swap(off(1))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"onedex_swop": {"gas": 1}}, "costs: there is no row 'onedex_swop'; rows are base,"),
        ({"onedex_swap": {"gass": 1}}, "costs.onedex_swap: there is no column 'gass'; columns are calls,"),
        ({"onedex_swap": {"origin": 1}}, "costs.onedex_swap: there is no column 'origin'"),
        ({"jex_swap": {"calls": -1}}, "costs.jex_swap.calls: -1 is no whole number from 0 to 600000000"),
        ({"jex_swap": {"gas": 600_000_001}}, "costs.jex_swap.gas: 600000001 is no whole number"),
        ({"jex_swap": {"gas": True}}, "costs.jex_swap.gas: True is no whole number"),
        ({"jex_swap": {"gas": 1.5}}, "costs.jex_swap.gas: 1.5 is no whole number"),
    ],
)
def test_wrong_overrides_are_refused_by_name(overrides: Any, words: str) -> None:
    """The error names row, column and value, and what there is instead."""
    with pytest.raises(ValueError, match="costs") as refused:
        Table(overrides)
    assert str(refused.value).startswith(words)


def test_the_reserve_for_deeper_tries_is_per_read() -> None:
    """The gas limit is a tenth above the sum with the data, rounded up, and so much for each key read."""
    cost = Cost(1, 3, 3, 11, 9_500_001)
    assert Table(per_read=0).gas_limit(cost, 100) == 10_670_002  # 1.1 x (9 500 001 + 50 000 + 150 000), rounded up
    assert Table(per_read=50_000).gas_limit(cost, 100) == 10_670_002 + 11 * 50_000


@given(st.lists(st.sampled_from([off, to_collector, sold_here, sold_elsewhere, onedex, jex, jex_stable, ash_crypto])))
def test_what_is_planned_leg_by_leg_is_enough_for_the_whole(makers: list[Any]) -> None:
    """Room for pools taken off one by one never leaves a plan above the gas limit, or any other."""
    legs = [swap(make(k)) for k, make in enumerate(makers)]
    ends = TABLE.ends(egld_in=True, egld_out=True, referral=True)
    planned = Cost(gas=0)
    for leg in legs:
        planned = planned.plus(TABLE.planned(leg.trade.cost(TABLE)))
    most = NETWORK._replace(gas=3_000 * M)
    spent = most.plus(TABLE.room(most, ends).plus(planned, -1), -1)
    whole = ends.plus(cost_of(legs, TABLE))
    assert whole._replace(gas=TABLE.gas_limit(whole, 400 + 240 * len(legs))).within(spent)


def test_a_fee_setup_that_is_known_is_never_dearer_than_one_that_is_not() -> None:
    """With one destination at the most, as pairs have it."""
    unknown = TABLE.swap(xexchange(1))
    for setup in (OFF, COLLECTOR, HERE, ELSEWHERE):
        assert TABLE.swap(xexchange(1, **setup)).within(unknown)
    no_fee = msgspec.structs.replace(xexchange(1), special_fee=0)
    assert TABLE.swap(no_fee) == TABLE.swap(off(1))
