"""The counter of one call: prices of the network's schedule, and its limits in its words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millrace.localnet.contracts.meter import (
    TOO_MANY_CALLS,
    TOO_MANY_READS,
    TOO_MANY_TRANSFERS,
    Keys,
    LimitReached,
    Meter,
    OutOfGas,
    Usage,
    first_load,
)

PLENTY = 10**12


@pytest.mark.parametrize(
    ("work", "most", "words"),
    [
        (lambda meter: meter.send(1), 100, TOO_MANY_CALLS),
        (lambda meter: meter.mint(), 100, TOO_MANY_CALLS),
        (lambda meter: meter.burn(), 100, TOO_MANY_CALLS),
        (lambda meter: meter.send(5), 50, TOO_MANY_TRANSFERS),
        (lambda meter: meter.read_uncached(10), 150, TOO_MANY_READS),
    ],
)
def test_exactly_the_limit_passes_and_one_more_fails_in_the_networks_words(
    work: Callable[[Meter], None], most: int, words: str
) -> None:
    """100 built-in calls, 250 transfers and 1 500 reads, whatever the gas."""
    meter = Meter(PLENTY)
    for _ in range(most):
        work(meter)
    with pytest.raises(LimitReached) as error:
        work(meter)
    assert str(error.value) == words
    assert words.startswith("max calls reached: ")


def test_a_key_is_counted_at_its_first_read_only() -> None:
    """Again it costs the cached price; another contract, or another part of it, has keys of its own."""
    meter = Meter(PLENTY)
    keys = (Keys("reserve", 3),)
    meter.read(b"a", keys)
    assert (meter.usage.reads, meter.gas_used) == (3, 3 * first_load(2))
    meter.read(b"a", keys)
    assert (meter.usage.reads, meter.gas_used) == (3, 3 * first_load(2) + 3_000)
    meter.read(b"b", keys)
    meter.read(b"a", keys, "part")
    assert meter.usage.reads == 9


def test_a_transfer_of_several_tokens_is_one_call() -> None:
    """Each token is a transfer and pays for it; mint and burn are calls alone; nothing sent is nothing."""
    meter = Meter(PLENTY)
    meter.send(2)
    meter.send(0)
    meter.mint()
    meter.burn()
    assert meter.usage == Usage(3, 2, 0)
    assert meter.gas_used == 2 * 200_000 + 2 * 50_000


def test_first_reads_follow_the_schedules_parabola() -> None:
    """688 d² + 31 858 d + 15 287 at depth d."""
    assert [first_load(depth) for depth in (0, 1, 2, 5)] == [15_287, 47_833, 81_755, 191_777]


def test_running_contracts_costs_their_code() -> None:
    """100 a byte of code, 100 000 more when one contract runs another, 50 a byte of arguments."""
    meter = Meter(PLENTY)
    meter.prepare(1_000)
    assert meter.gas_used == 100_000
    meter.enter(1_000)
    assert meter.gas_used == 300_000
    meter.arguments([b"abc", b"", b"d"])
    assert meter.gas_used == 300_200


def test_gas_runs_out_with_what_was_needed() -> None:
    """The last unit may be used; the next one is missing and named."""
    meter = Meter(100)
    meter.use(100)
    with pytest.raises(OutOfGas) as error:
        meter.use(1)
    assert error.value.needed == 101
