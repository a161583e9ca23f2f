"""Pools with one rate, whatever the amount: rounding, direction, stock, and their form in the document."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from millrace.dex.constant_product import JexPool
from millrace.dex.document import Block, DocumentError, PoolDocument, TokenInfo, decode, encode
from millrace.dex.market import DictMarket
from millrace.dex.pool import InsufficientLiquidity, InvalidAmount, PoolError, PoolState, SwapsDisabled, Unsupported
from millrace.dex.rate import RATE_POOLS, HatomSupply, RatePool
from millrace.routing.venue import find_dust

TOKENS = ("WEGLD-bd4d79", "SEGLD-3ad2d0")


def made(kind: type[RatePool] = HatomSupply, **changes: object) -> RatePool:
    fields = {"id": "r", "address": b"\1" * 32, "tokens": TOKENS, "reserves": (10**6, 10**24), "rate": (19, 20)}
    return kind(**{**fields, **changes})  # type: ignore[arg-type]


@given(some.integers(1, 10**23), some.integers(1, 10**9), some.integers(1, 10**9))
def test_what_is_paid_is_the_rate_rounded_down(amount: int, num: int, den: int) -> None:
    """To the unit, or refused where that is nothing or more than there is; the stock is less by it."""
    pool, paid = made(rate=(num, den)), amount * num // den
    if paid == 0 or paid >= pool.reserves[1]:
        with pytest.raises(InsufficientLiquidity if paid else InvalidAmount):
            pool.swap(0, 1, amount)
        return
    swap = pool.swap(0, 1, amount)
    assert (swap.amount_out, swap.fee_amount, swap.pool.reserves) == (paid, 0, (10**6, 10**24 - paid))


@given(some.integers(1, 10**20), some.integers(1, 10**6), some.integers(1, 10**6))
def test_the_input_for_an_output_is_the_smallest(wanted: int, num: int, den: int) -> None:
    """It pays at least what is wanted, and one unit less does not."""
    pool = made(rate=(num, den))
    try:
        needed = pool.amount_in(0, 1, wanted)
    except InsufficientLiquidity:
        return
    assert pool.amount_out(0, 1, needed) >= wanted
    assert (needed - 1) * num // den < wanted


def test_one_direction_only() -> None:
    """What is staked does not come back this way; nor does a pool that is closed take anything."""
    with pytest.raises(Unsupported):
        made().amount_out(1, 0, 5)
    with pytest.raises(SwapsDisabled):
        made(state=PoolState.NO_SWAPS).amount_out(0, 1, 5)


@pytest.mark.parametrize("kind", RATE_POOLS.values())
@pytest.mark.parametrize("native", [True, False])
def test_the_document_has_them_in_whole(kind: type[RatePool], native: bool) -> None:
    """What is written is read again as it was, and the contract finds it by what it takes."""
    document = PoolDocument(
        block=Block(1, 1, 1),
        wrapped_native_token=TOKENS[0],
        tokens=tuple([TokenInfo(token, 18) for token in TOKENS]),
        pools=(made(kind, native=native),),
    )
    read = decode(encode(document))
    assert read.pools == document.pools
    market = DictMarket(read.pools, TOKENS[0])
    assert market.rated(kind.exchange, kind.kind, TOKENS[0]) == document.pools[0]
    assert market.reaches(document.pools[0])


@pytest.mark.parametrize("rate", [{"num": "0", "den": "1"}, {"num": "1", "den": "0"}, {"num": "x", "den": "1"}, {}])
def test_a_rate_that_is_none_is_named(rate: dict[str, str]) -> None:
    """The document says which field is wrong."""
    document = PoolDocument(
        block=Block(1, 1, 1),
        wrapped_native_token=TOKENS[0],
        tokens=tuple([TokenInfo(token, 18) for token in TOKENS]),
        pools=(made(),),
    )
    data = msgspec.json.decode(encode(document))
    data["pools"][0]["rate"] = rate
    with pytest.raises(DocumentError, match=r"rate"):
        decode(msgspec.json.encode(data))


def test_what_it_holds_makes_no_other_pool_dust() -> None:
    """Stocks are no depth to measure other pools by, nor is one left out for a small one."""
    small = JexPool(id="j", address=b"\2" * 32, tokens=TOKENS, reserves=(10**12, 10**12), lp_fee=20, platform_fee=10)
    pools = [small, made(reserves=(10**30, 10**30)), made(id="s", reserves=(5, 5))]
    assert find_dust(pools) == set()


def test_no_amount_is_an_error_of_its_own() -> None:
    """Nothing, less than nothing and far too much are refused, and never anything else."""
    for amount in (0, -1, 10**60):
        with pytest.raises(PoolError):
            made().amount_out(0, 1, amount)
        with pytest.raises(PoolError):
            made().amount_in(0, 1, amount)


def test_one_that_takes_egld_has_the_wrapped_token_first() -> None:
    """Its input is unwrapped for it, which nothing else can be: such an entry is left out, with its reason."""
    infos = tuple(TokenInfo(token, 18) for token in TOKENS)
    sound = made(id="sound", native=True)
    wrong = made(id="wrong", address=b"\2" * 32, native=True, tokens=TOKENS[::-1])
    market = PoolDocument(
        block=Block(1, 1, 1), wrapped_native_token=TOKENS[0], tokens=infos, pools=(sound, wrong)
    )  # fmt: skip
    found = decode(encode(market), quarantine=True)
    assert found.pools == (sound,)
    (left_out,) = found.quarantined
    assert (left_out.name, left_out.reason) == (
        "wrong", f"$.pools[1].native: takes EGLD, and its first token is {TOKENS[1]}"
    )  # fmt: skip
