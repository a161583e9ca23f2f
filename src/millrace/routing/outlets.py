"""What swaps in xExchange pairs do to other pools: slices of their special fee may be sold there.

A swap reverts where a slice would sell for nothing, which small amounts can do, and one that sells a slice in another
pair moves that one. `Outlets` is what has to be known of a market for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from millrace.dex.constant_product import XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolError, Slice
from millrace.dex.run import sell_slices

DEEP = 1_000  # units: with less in reserve no amount is said to be enough
# A swap of at most the reserve leaves more than 0.45 of what there is to buy and at most 2.05 of what is sold, and each
# bound is rounded: this many times the ratio of the reserves sells for at least one unit.
MARGIN = 6


class Outlets(NamedTuple):
    """The pairs that slices of a market's pairs are sold in: by address, and by the id of the pair that sells there."""

    pairs: Mapping[bytes, XExchangePool]
    of: Mapping[str, tuple[XExchangePool, ...]]

    def used(self, names: Sequence[str], moved: Container[str] = ()) -> dict[str, int]:
        """How often those of these pools are met that are met more than once, and one more for each that sells there.

        `names` are the ids of a plan's pools, one for each trade; `moved` were met before.
        """
        if not moved and len(set(names)) == len(names) and self.of.keys().isdisjoint(names):
            return {}  # the usual case, and walks are many
        counts = Counter(names)
        for name in counts:
            counts[name] += name in moved
        for name in self.of.keys() & counts.keys():
            for pool in self.of[name]:
                counts[pool.id] += 1
            counts[name] += 1  # never the last one: how a seller's trade leaves the pools is of interest
        return {name: count for name, count in counts.items() if count > 1}

    def moved(self, pools: Mapping[str, Pool]) -> Outlets:
        """The same with these pools, by id, in place of those known."""

        def now(pair: XExchangePool) -> XExchangePool:
            other = pools.get(pair.id, pair)
            return other if isinstance(other, XExchangePool) else pair

        pairs = {address: now(pair) for address, pair in self.pairs.items()}
        return Outlets(pairs, {name: tuple(map(now, buyers)) for name, buyers in self.of.items()})

    def sell(self, slices: Sequence[Slice], moved: dict[str, Pool]) -> bool:
        """Sell slices of a swap; False where one sells for nothing. `moved` are the pools that have changed so far."""
        try:
            sell_slices(slices, self.pairs.get, moved)
        except PoolError:
            return False
        return True


NONE = Outlets({}, {})


def find_outlets(pools: Iterable[Pool], market: DictMarket) -> Outlets:
    """The outlets of the market's pairs among `pools`."""
    pairs: dict[bytes, XExchangePool] = {}
    of: dict[str, tuple[XExchangePool, ...]] = {}
    for pool in pools:
        addresses = _addresses(pool) if isinstance(pool, XExchangePool) else ()
        found = [(address, market.at(address)) for address in addresses]
        buyers = {address: buyer for address, buyer in found if isinstance(buyer, XExchangePool)}
        if buyers:
            pairs |= buyers
            of[pool.id] = tuple(buyers.values())
    return Outlets(pairs, of)


def _addresses(pool: XExchangePool) -> tuple[bytes, ...]:
    """Of the pairs that slices are sold in."""
    outlets = [outlet for side in pool.outlets for outlet in side]
    return tuple(dict.fromkeys([outlet.address for outlet in outlets if outlet is not None and outlet.address]))


def enough(pool: Pool, i: int, outlets: Outlets = NONE) -> int | None:
    """From which amount of token `i` on, up to the reserve, a swap never fails for a slice that sells for nothing.

    0 where swaps of more than the reserve do not either; None where no amount is enough.
    """
    if not isinstance(pool, XExchangePool) or not pool.outlets[i]:
        return 0
    if min(pool.reserves) < DEEP or pool.stuck:
        return None
    sold, bought = pool.reserves[i], pool.reserves[1 - i]
    least = 0
    for outlet in pool.outlets[i]:
        if outlet is None or not (outlet.here or outlet.address):
            continue  # burned as it is
        wanted = 1
        buyer = outlets.pairs.get(outlet.address)
        if buyer is not None:
            if min(buyer.reserves) < DEEP:
                return None
            own = pool.tokens[1 - i if outlet.here else i]
            k = buyer.tokens.index(own) if own in buyer.tokens else 0
            wanted = _times(1, buyer.reserves[k], buyer.reserves[1 - k])
        least = max(least, _times(wanted, sold, bought) if outlet.here else wanted)
    if least <= 1:
        return least
    parts, base = len(pool.outlets[i]), pool.fee_base
    kept = base - pool.fees_collector_cut if pool.fees_collector else base
    return ((least + 1) * parts * base // kept + 2) * base // pool.special_fee + 1


def _times(wanted: int, sold: int, bought: int) -> int:
    """What sells for `wanted` in a pair with these reserves, and more."""
    return MARGIN * wanted * sold // bought + 1
