"""Many inputs to one output, of which none may move its pools further than `maxPriceImpact`."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from millrace.aggregator.batch import Sold, sell
from millrace.aggregator.batch_requests import BatchItem, MultiSwapRequest, multi_swap_order
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import build
from millrace.dex.constant_product import JexPool
from millrace.dex.document import Block, PoolDocument, TokenInfo, encode
from synthetic import WRAPPED

MIDDLE = "MID-aaaaaa"
NAMES = [f"TK{number}-{number:06x}" for number in range(1, 9)]
UNIT = 10**18
DEEP = 10**7
KEPT = Fraction(997, 1000) ** 2  # of what is sold, after the fees of two pools


def pool(number: int, token: str, other: str, held: int) -> JexPool:
    """A pool in balance that holds `held` whole tokens of each."""
    address = bytes(8) + b"\x05\x00" + bytes(21) + bytes([number])
    lp_token, reserves = f"LP{number}-{number:06x}", (held * UNIT, held * UNIT)
    return JexPool(
        id=f"jex:{number}", address=address, tokens=(token, other), reserves=reserves,
        lp_token=lp_token, lp_supply=10**24, lp_fee=20, platform_fee=10,
    )  # fmt: skip


def sold(depths: list[int], parts: list[int], most: float | None) -> Sold:
    """Parts of eight tokens that have a deep pool each to one that all of them go through, and pools behind it."""
    pools = [pool(number, name, MIDDLE, DEEP) for number, name in enumerate(NAMES, 1)]
    pools += [pool(100 + number, MIDDLE, WRAPPED, depth) for number, depth in enumerate(depths)]
    tokens = [TokenInfo(token, 18) for token in (WRAPPED, MIDDLE, *NAMES)]
    tokens += [TokenInfo(one.lp_token, 18, is_lp=True, lp_of=one.id) for one in pools]
    document = PoolDocument(
        block=Block(1, 1, 1_700_000_000), native_token="EGLD", wrapped_native_token=WRAPPED,
        tokens=tuple(tokens), pools=tuple(pools), main_pair_tokens=(),
    )  # fmt: skip
    snapshot, settings = build(encode(document), 0.0), AggregatorSettings()
    inputs = [BatchItem(token=name, amount=str(part * UNIT)) for name, part in zip(NAMES, parts, strict=True)]
    order = multi_swap_order(MultiSwapRequest(inputs=inputs, to=WRAPPED, max_price_impact=most), settings)
    selling = sell(snapshot, snapshot.main, order, settings, math.inf)
    while True:
        try:
            next(selling)
        except StopIteration as end:
            done: Sold = end.value
            return done


@pytest.mark.parametrize("depths", [[1000], [600, 500, 400]])
def test_no_input_is_sold_further_from_the_market_than_allowed(depths: list[int]) -> None:
    """The limit holds against the prices before the order, however many transactions it is divided into."""
    without = sold(depths, [40] * 8, None)
    assert (len(without.sales), without.failures) == (1, [])
    done = sold(depths, [40] * 8, 0.05)
    inputs = [one for sale in done.sales for one in sale.inputs]
    assert inputs and done.failures
    assert {failure.reason for failure in done.failures} == {"price_impact"}
    assert all(one.paid >= one.amount * KEPT * 19 / 20 for one in inputs)


@pytest.mark.parametrize("large", [1, 3])
def test_inputs_over_the_limit_leave_the_transaction_of_the_others_whole(large: int) -> None:
    """Those that move their pools too far are taken out of it; the rest goes in one, as it would without them."""
    parts = [10**7] * large + [1] * (8 - large)
    done = sold([10**10], parts, 0.05)
    assert [[one.token for one in sale.inputs] for sale in done.sales] == [NAMES[large:]]
    assert [failure.item.token for failure in done.failures] == NAMES[:large]
