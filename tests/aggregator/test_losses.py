"""Documents that lose much of the market at one blow."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from millrace.aggregator.losses import HeldBack, Losses
from millrace.dex.document import PoolDocument
from millrace.dex.pool import Pool
from millrace.dex.rate import HatomSupply
from synthetic import make_market

MARKET = make_market(100, seed=3)


def without(unwanted: Callable[[int, Pool], bool]) -> PoolDocument:
    left = tuple(pool for number, pool in enumerate(MARKET.pools) if not unwanted(number, pool))
    return msgspec.structs.replace(MARKET, pools=left)


def exchange_of_most() -> str:
    names = [pool.exchange for pool in MARKET.pools]
    return max(set(names), key=names.count)


def first_of_most(count: int) -> PoolDocument:
    """The market without so many pools of the exchange that has most: no exchange vanishes."""
    positions = [n for n, pool in enumerate(MARKET.pools) if pool.exchange == exchange_of_most()][:count]
    return without(lambda number, _: number in positions)


def test_a_fifth_of_all_pools_has_to_be_said_three_times() -> None:
    """The share counts from itself on; the third fetch that lost the same pools is believed, with an alarm."""
    losses, fifth = Losses(0.2, 3), len(MARKET.pools) // 5
    losses.check(first_of_most(fifth - 1), MARKET)
    for _ in range(2):
        with pytest.raises(HeldBack, match=f"{fifth} of {len(MARKET.pools)} pools are gone"):
            losses.check(first_of_most(fifth), MARKET)
    losses.check(first_of_most(fifth), MARKET)
    assert (losses.held_back, losses.taken) == (2, 1)


def test_a_whole_exchange_counts_however_small() -> None:
    """No pool of an exchange is left: held back, whatever its share."""
    rarest = min({pool.exchange for pool in MARKET.pools}, key=[pool.exchange for pool in MARKET.pools].count)
    with pytest.raises(HeldBack, match=f"all pools of {rarest} are gone"):
        Losses(1.0, 3).check(without(lambda _, pool: pool.exchange == rarest), MARKET)


def with_rates(*addresses: int) -> PoolDocument:
    """The market, and contracts of one exchange that take a token at a rate."""
    tokens = MARKET.pools[0].tokens
    rated = [
        HatomSupply(
            id=f"h{number}", address=bytes([*bytes(31), number]), tokens=tokens, reserves=(1, 10**9), rate=(1, 2)
        )
        for number in addresses
    ]
    return msgspec.structs.replace(MARKET, pools=(*MARKET.pools, *rated))


def test_a_single_contract_at_a_rate_is_no_exchange() -> None:
    """One bad entry holds nothing back; several contracts of an exchange that vanish together do."""
    losses = Losses(0.2, 3)
    losses.check(MARKET, with_rates(1))
    losses.check(MARKET, with_rates(1, 1))  # both of its directions
    losses.check(with_rates(1), with_rates(1, 2))
    assert (losses.held_back, losses.taken) == (0, 0)
    with pytest.raises(HeldBack, match="all pools of Hatom are gone"):
        losses.check(MARKET, with_rates(1, 2))


def test_fetches_that_disagree_start_again() -> None:
    """Another loss, or a whole document in between, is a new story."""
    losses, fifth = Losses(0.2, 3), len(MARKET.pools) // 5
    for document in (first_of_most(fifth), first_of_most(fifth + 1), first_of_most(fifth + 1)):
        with pytest.raises(HeldBack):
            losses.check(document, MARKET)
    losses.check(MARKET, MARKET)
    with pytest.raises(HeldBack, match="1 so far"):
        losses.check(first_of_most(fifth + 1), MARKET)


def test_the_first_document_and_gains_are_taken() -> None:
    """There is nothing to compare the first one with, and more pools are no loss."""
    losses = Losses(0.2, 3)
    losses.check(first_of_most(30), None)
    losses.check(MARKET, first_of_most(30))
    assert (losses.held_back, losses.taken) == (0, 0)
