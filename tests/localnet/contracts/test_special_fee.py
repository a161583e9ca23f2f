"""What a pair does with the special fee of a swap, in integers."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.dex.constant_product import FeeDestination, TrustedPair, XExchangePool
from millrace.localnet.contracts import special_fee
from millrace.localnet.contracts.meter import Meter, Usage

A, B, C, D = "AAA-000001", "BBB-000002", "CCC-000003", "DDD-000004"
NOTHING = Usage()
CUT = Usage(1, 1, 6)  # the collector's own key included
HERE, SOLD = (1, 0, 4), (2, 1, 21)


def pair(**fields: Any) -> XExchangePool:
    """A pair of A and B with a special fee of a thousandth, half of it for the collector."""
    values: dict[str, Any] = {
        "id": "x",
        "address": b"x" * 32,
        "tokens": (A, B),
        "reserves": (10**24, 10**24),
        "total_fee": 300,
        "special_fee": 100,
        "fees_collector": b"c" * 32,
        "fees_collector_cut": 50_000,
        "fee_destinations": (),
        "trusted_pairs": (),
    }
    return XExchangePool(**values | fields)


def sent(pool: XExchangePool, amount: int = 10**9, token: str = A) -> Usage:
    meter = Meter(10**12)
    special_fee.send(meter, pool, token, amount)
    return meter.usage


def plus(usage: Usage, *more: tuple[int, int, int]) -> Usage:
    calls, transfers, reads = (sum(column) for column in zip(*more, strict=True))
    return Usage(usage.builtin_calls + calls, usage.transfers + transfers, usage.reads + reads)


def to(*tokens: str) -> tuple[FeeDestination, ...]:
    return tuple(FeeDestination(b"d" * 32, token) for token in tokens)


TRUSTED = (TrustedPair((C, B), b"t" * 32), TrustedPair((D, A), b"u" * 32))


@pytest.mark.parametrize(
    ("fields", "amount", "expected"),
    [
        ({}, 999, NOTHING),  # the special fee rounds to zero
        ({"fee_enabled": False}, 10**9, NOTHING),
        ({"special_fee": 0, "fees_collector": None}, 10**9, NOTHING),
        ({}, 10**9, CUT),
        ({}, 1_000, NOTHING),  # a special fee of one: the cut rounds to zero
        ({"fees_collector": b""}, 10**9, NOTHING),
        ({"fees_collector_cut": 100_000, "fee_destinations": to(A)}, 10**9, CUT),
        ({"fee_destinations": to(A, B)}, 10**9, plus(CUT, HERE, HERE)),
        ({"fee_destinations": to(A, B)}, 2_000, CUT),  # a slice of one half
        ({"fee_destinations": to(A), "fees_collector": b""}, 10**9, plus(NOTHING, HERE)),
        ({"fee_destinations": to(C), "trusted_pairs": TRUSTED}, 10**9, plus(CUT, SOLD)),
        ({"fee_destinations": to(C, D, A), "trusted_pairs": TRUSTED}, 10**9, plus(CUT, SOLD, SOLD, HERE)),
        ({"fee_destinations": to(C)}, 10**9, CUT),  # sold nowhere: the swap reverts
    ],
)
def test_each_part_of_the_fee_goes_where_the_pairs_settings_say(
    fields: dict[str, Any], amount: int, expected: Usage
) -> None:
    """The cut is one transfer; a slice is burned here, or sold and burned elsewhere, or ends the swap."""
    assert sent(pair(**fields), amount) == expected


@pytest.mark.parametrize(
    "unknown",
    [{"fees_collector": None}, {"fee_destinations": None}, {"fee_destinations": to(C), "trusted_pairs": None}],
)
def test_what_is_not_known_is_taken_for_the_dear_case(unknown: dict[str, Any]) -> None:
    """Then the cut is sent and a slice sold in a pair that nobody else uses."""
    assert sent(pair(**unknown)) == plus(CUT, SOLD)


@pytest.mark.parametrize(("token", "sold_in"), [(A, b"a" * 32), (B, b"b" * 32)])
def test_the_fees_own_token_is_sold_first(token: str, sold_in: bytes) -> None:
    """Where both of the pair's tokens can be sold for the wanted one, that of the fee is."""
    trusted = (TrustedPair((C, A), b"a" * 32), TrustedPair((B, C), b"b" * 32))
    pool, meter = pair(fee_destinations=to(C), trusted_pairs=trusted), Meter(10**12)
    meter.read(sold_in, special_fee.SOLD_KEYS)
    before = meter.usage.reads
    special_fee.send(meter, pool, token, 10**9)
    assert meter.usage.reads - before == CUT.reads + 4
