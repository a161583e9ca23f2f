"""What becomes of the special fee of an xExchange swap, and of the reserves that later trades meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millrace.chain.call import TokenPayment
from millrace.dex import aggregator_contract as contract
from millrace.dex.aggregator_contract import Action, Program
from millrace.dex.constant_product import FeeDestination, FeeUse, JexPool, TrustedPair, XExchangePool
from millrace.dex.pool import InvalidAmount, Pool, PoolError, PoolState, Slice, SwapsDisabled, Unsupported
from millrace.dex.run import Asset, Forwarded, sell_slices
from millrace.dex.vault import DictMarket, VaultError, VaultResult, execute

A, B, C, D, LP = "AAA-000001", "BBB-000002", "CCC-000003", "DDD-000004", "LPT-000005"
HERE, THERE = b"h" * 32, b"t" * 32
BASE = 100_000


def pair(**fields: Any) -> XExchangePool:
    """A pair of A and B that keeps nothing for a collector."""
    values: dict[str, Any] = {
        "id": "here",
        "address": HERE,
        "tokens": (A, B),
        "reserves": (10**9, 4 * 10**9),
        "lp_token": LP,
        "lp_supply": 10**9,
        "total_fee": 1_000,
        "special_fee": 500,
        "fees_collector": b"",
        "fee_destinations": (),
        "trusted_pairs": (),
    }
    return XExchangePool(**values | fields)


def to(*tokens: str) -> tuple[FeeDestination, ...]:
    return tuple(FeeDestination(b"d" * 32, token) for token in tokens)


def other(**fields: Any) -> XExchangePool:
    """The pair of B and C that is trusted."""
    return pair(id="there", address=THERE, tokens=(B, C), reserves=(5 * 10**8, 10**12), special_fee=0, **fields)


TRUSTED = (TrustedPair((B, C), THERE),)
POOLS = st.builds(
    pair,
    reserves=st.tuples(st.integers(1, 10**24), st.integers(1, 10**24)),
    total_fee=st.just(5_000),
    special_fee=st.integers(0, 5_000),
    fees_collector=st.sampled_from((b"", b"c" * 32)),
    fees_collector_cut=st.integers(0, BASE),
    fee_destinations=st.lists(st.sampled_from((A, B, C)), max_size=4).map(lambda tokens: to(*tokens)),
    trusted_pairs=st.just(TRUSTED),
)


def by_hand(pool: XExchangePool, i: int, amount: int) -> tuple[int, list[int], list[tuple[str, int]]] | None:
    """Output, reserves and slices as the contract goes through them, one step after the other; None: it reverts."""
    j, reserves = 1 - i, list(pool.reserves)
    weighted = amount * (BASE - pool.total_fee)
    out = weighted * reserves[j] // (reserves[i] * BASE + weighted)
    if not 0 < out < reserves[j]:
        return None
    fee = amount * pool.special_fee // BASE
    reserves[i] += amount - fee
    reserves[j] -= out
    left = fee - fee * pool.fees_collector_cut // BASE if pool.fees_collector else fee
    wanted = [token for _, token in pool.fee_destinations or ()]
    slices: list[tuple[str, int]] = []
    part = left // len(wanted) if wanted else 0
    for token in wanted if part else ():
        if token == pool.tokens[i] or (token == C and pool.tokens[i] == B):
            slices.append((pool.tokens[i], part))
            continue
        bought = part * reserves[j] // (reserves[i] + part)
        if bought == 0:
            return None
        reserves[i] += part
        reserves[j] -= bought
        slices.append((pool.tokens[j], bought))
    return out, reserves, slices


@given(POOLS, st.integers(0, 1), st.integers(1, 10**26))
def test_a_swap_is_what_the_contract_does_step_by_step(pool: XExchangePool, i: int, amount: int) -> None:
    """Output, reserves and slices are equal to the unit, and it fails where the contract reverts."""
    expected = by_hand(pool, i, amount)
    if expected is None:
        with pytest.raises(InvalidAmount):
            pool.swap(i, 1 - i, amount)
        with pytest.raises(InvalidAmount):
            pool.amount_out(i, 1 - i, amount)
        return
    swap = pool.swap(i, 1 - i, amount)
    assert pool.amount_out(i, 1 - i, amount) == swap.amount_out
    assert (swap.amount_out, list(swap.pool.reserves)) == expected[:2]
    assert [(token, part) for token, part, _, _ in swap.slices] == expected[2]


@given(POOLS, st.integers(0, 1), st.integers(1, 10**26))
def test_nothing_leaves_a_pair_that_did_not_come(pool: XExchangePool, i: int, amount: int) -> None:
    """Reserves, output, slices and the collector's cut are together no more than what was there and came in."""
    assume(by_hand(pool, i, amount) is not None)
    swap = pool.swap(i, 1 - i, amount)
    left = [pool.reserves[k] + (amount if k == i else 0) - swap.pool.reserves[k] for k in range(2)]
    left[i] -= pool.collector_fee(amount)
    left[1 - i] -= swap.amount_out
    for token, part, _, _ in swap.slices:
        left[pool.index(token)] -= part
    assert left[1 - i] == 0
    assert left[i] >= 0


@given(POOLS, st.integers(0, 1), st.integers(1, 10**20))
def test_the_smallest_input_is_one_that_does_not_revert(pool: XExchangePool, i: int, wanted: int) -> None:
    """It pays what is wanted, and a unit less pays less or reverts."""
    try:
        amount = pool.amount_in(i, 1 - i, wanted)
    except PoolError:
        return
    assert pool.amount_out(i, 1 - i, amount) >= wanted
    less = by_hand(pool, i, amount - 1) if amount > 1 else None
    assert less is None or less[0] < wanted


@pytest.mark.parametrize(
    ("i", "wanted", "expected"),
    [
        (0, A, Slice(A, 500)),
        (0, B, Slice(B, 1_995)),  # sold in the pair, at nearly four for one
        (1, B, Slice(B, 500)),
        (0, C, Slice(B, 1_995, THERE, C)),  # sold in the pair, then in the other one
        (1, C, Slice(B, 500, THERE, C)),
    ],
)
def test_a_slice_goes_the_first_way_that_there_is(i: int, wanted: str, expected: Slice) -> None:
    """Burned as it is, sold here, sold elsewhere, or sold here and then elsewhere."""
    pool = pair(fee_destinations=to(wanted), trusted_pairs=TRUSTED)
    found = pool.swap(i, 1 - i, 100_000).slices[0]
    assert found._replace(amount=expected.amount) == expected
    assert abs(found.amount - expected.amount) <= 5


def test_the_direct_order_of_a_trusted_pair_comes_first() -> None:
    """The contract asks for (sold, wanted) before (wanted, sold), and for the fee's token before the other one."""
    trusted = [TrustedPair(tokens, bytes([k]) * 32) for k, tokens in enumerate([(C, B), (A, C), (C, A), (B, C)], 1)]
    found = []
    while trusted:
        outlet = pair(fee_destinations=to(C), trusted_pairs=tuple(trusted)).outlets[0][0]
        assert outlet is not None
        found.append(outlet.address[0])
        trusted = [known for known in trusted if known.address != outlet.address]
    assert found == [2, 3, 4, 1]


def test_a_slice_that_can_be_sold_nowhere_ends_the_swap() -> None:
    """As the published pair does it; a swap too small for a slice passes."""
    pool = pair(fee_destinations=to(A, D), trusted_pairs=TRUSTED)
    assert pool.stuck
    assert pool.fee_use == FeeUse(here=1)
    assert pool.swap(0, 1, 399).slices == ()
    with pytest.raises(SwapsDisabled, match="nothing to do with fee slice"):
        pool.swap(0, 1, 400)


@pytest.mark.parametrize(
    "fields",
    [
        {"fees_collector": None, "fee_destinations": to(B)},
        {"fee_destinations": None},
        {"fee_destinations": to(B, C), "trusted_pairs": None},
        {"fees_collector": b"c" * 32, "fees_collector_cut": BASE, "fee_destinations": to(B)},
        {"fee_enabled": False, "fee_destinations": to(B)},
    ],
)
def test_without_slices_or_knowledge_of_them_the_fee_just_leaves(fields: dict[str, Any]) -> None:
    """The reserves then are those of the plain formula."""
    pool = pair(**fields)
    swap = pool.swap(0, 1, 10**6)
    assert swap.slices == ()
    kept = 10**6 - (5_000 if pool.fee_enabled else 0)
    assert swap.pool.reserves == (10**9 + kept, 4 * 10**9 - swap.amount_out)


def run(market: DictMarket, *instructions: contract.Instruction, amount: int = 10**6) -> VaultResult:
    """Sell A for B, or whatever the instructions do."""
    program = Program((A, B, C, LP), (), (), instructions, 0, 1)
    return execute(program, [TokenPayment(A, 0, amount)], market)


def swap_of(sold: int, bought: int, mode: int = contract.ALL) -> contract.Instruction:
    return contract.swap(Action.XEXCHANGE_SWAP, sold, bought, mode)


def test_the_contract_meets_the_pair_that_a_slice_was_sold_in_as_that_left_it() -> None:
    """A later trade there is made at the moved reserves, to the unit."""
    first, second = pair(fee_destinations=to(C), trusted_pairs=TRUSTED), other()
    market = DictMarket((first, second), A)
    done = run(market, swap_of(0, 1), swap_of(1, 2), swap_of(2, 1))
    there = first.swap(0, 1, 10**6)
    (part,) = there.slices
    bought, moved = second.sell_slice(0, 1, part.amount)
    assert done.steps[0].forwarded == (Forwarded(Asset(B, part.amount), "there", Asset(C, bought)),)
    onward = moved.swap(0, 1, there.amount_out)
    back = onward.pool.swap(1, 0, onward.amount_out)
    assert done.amount_out == back.amount_out
    assert done.pools == {"here": there.pool, "there": back.pool}


@pytest.mark.parametrize("reserves", [(10**12, 1), (10**15, 10**6)])
def test_the_contract_reverts_where_the_trusted_pair_pays_nothing(reserves: tuple[int, int]) -> None:
    """A slice that buys nothing there reverts the whole call."""
    market = DictMarket((pair(fee_destinations=to(C), trusted_pairs=TRUSTED), other().with_reserves(reserves)), A)
    with pytest.raises(VaultError, match="Zero amount"):
        run(market, swap_of(0, 1))


def lookup(*pools: Pool) -> Callable[[bytes], Pool | None]:
    return {pool.address: pool for pool in pools}.get


def test_a_trusted_pair_that_is_closed_takes_nothing_and_an_unknown_one_everything() -> None:
    """A slice for a pair without swaps reverts; of a pair outside the market nothing is known."""
    part = (Slice(B, 100, THERE, C),)
    with pytest.raises(SwapsDisabled):
        sell_slices(part, lookup(other(state=PoolState.INACTIVE)), {})
    moved: dict[str, Pool] = {}
    assert sell_slices(part, lookup(), moved) == (Forwarded(Asset(B, 100)),)
    assert moved == {}


def test_only_xexchange_pairs_buy_slices() -> None:
    """An address with another kind of pool behind it is a mistake that the chain would refuse, too."""
    jex = JexPool(id="j", address=THERE, tokens=(B, C), reserves=(10**9, 10**9), lp_fee=20, platform_fee=10)
    with pytest.raises(Unsupported):
        sell_slices((Slice(B, 100, THERE, C),), lookup(jex), {})


def test_a_deposit_counts_with_the_reserves_that_its_balancing_swap_leaves() -> None:
    """The slices of the swap inside a deposit are sold before anything is deposited."""
    first, second = pair(fee_destinations=to(B, C), trusted_pairs=TRUSTED), other()
    market = DictMarket((first, second), A)
    add = contract.add(Action.XEXCHANGE_ADD, (0, 1), contract.ALL)
    program = Program((A, B, C, LP), (), (10**5,), (swap_of(0, 1, contract.fixed(0)), add), 0, 3)
    done = execute(program, [TokenPayment(A, 0, 10**6)], market)
    assert [len(step.forwarded) for step in done.steps] == [2, 2]
    assert done.steps[1].balancing is not None
    sold = done.steps[1].balancing.sold
    assert sold is not None
    halfway = first.swap(0, 1, 10**5).pool
    swap = halfway.swap(halfway.index(sold.token), 1 - halfway.index(sold.token), sold.amount)
    minted = swap.pool.mint(
        tuple(
            done.steps[1].inputs[k].amount + (-sold.amount if token == sold.token else swap.amount_out)
            for k, token in enumerate((A, B))
        )
    )
    assert done.amount_out == minted.lp
