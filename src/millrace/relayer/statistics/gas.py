"""Gas prices of the last 30 minutes per shard, in buckets of 10 seconds. Pure; time comes in."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

import msgspec

WINDOW_SECONDS, BUCKET_SECONDS = 1800.0, 10.0
MAX_DISTINCT = 4096
"""Different prices one bucket keeps apart; beyond it further ones are counted in steps of a thousandth."""


class Percentiles(msgspec.Struct, frozen=True):
    """Nearest rank: the smallest price that so many percent of the transactions do not exceed."""

    p50: int | None
    p75: int | None
    p90: int | None


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    """Prices of a window; null while nothing was seen."""

    min: int | None
    max: int | None
    avg: int | None
    """Over all transactions of the window."""
    bucket_avg: int | None
    """Mean of the buckets' averages: a burst counts no more than a calm time of equal length."""


class GasPrice(Summary, frozen=True, kw_only=True):
    """Gas prices, with percentiles."""

    percentiles: Percentiles


class GasStatsData(msgspec.Struct, frozen=True, rename="camel"):
    """`ppu` is the price per gas unit that the chain's pool sorts by."""

    shard: int
    gas_price: GasPrice
    ppu: Summary


class GasStatsMessage(msgspec.Struct, frozen=True, tag_field="type", tag="gasStats"):
    """Pushed to subscribers of gasStats, one for each shard."""

    data: GasStatsData


class AllGasStatsData(msgspec.Struct, frozen=True):
    """Every shard's, in their order."""

    shards: list[GasStatsData]


class AllGasStatsMessage(msgspec.Struct, frozen=True, tag_field="type", tag="gasStats/all"):
    """Pushed to subscribers of gasStats/all, and packed to those of gasStats/all/deflate."""

    data: AllGasStatsData


class _Series:
    """Weighted values in buckets of time."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[int, Counter[int]]] = deque()
        self._all: Counter[int] = Counter()

    def add(self, values: Iterable[int], now: float) -> None:
        number = int(now // BUCKET_SECONDS)
        if not self._buckets or self._buckets[-1][0] != number:
            self._buckets.append((number, Counter()))
        bucket = self._buckets[-1][1]
        for value in values:
            if len(bucket) >= MAX_DISTINCT and value not in bucket:
                step = max(1, 10 ** (len(str(value)) - 3))
                value -= value % step
            bucket[value] += 1
            self._all[value] += 1

    def forget(self, now: float) -> bool:
        """Drop buckets that have left the window; whether there were any."""
        oldest = int((now - WINDOW_SECONDS) // BUCKET_SECONDS)
        dropped = False
        while self._buckets and self._buckets[0][0] <= oldest:
            self._all -= self._buckets.popleft()[1]
            dropped = True
        return dropped

    def summary(self) -> tuple[int | None, int | None, int | None, int | None]:
        """Minimum, maximum, average and the mean of the buckets' averages."""
        if not self._all:
            return None, None, None, None
        averages = [_average(bucket) for _, bucket in self._buckets if bucket]
        return min(self._all), max(self._all), _average(self._all), sum(averages) // len(averages)

    def percentiles(self, percents: Sequence[int]) -> list[int | None]:
        """The nearest-rank percentiles, in ascending order of `percents`."""
        total = self._all.total()
        if not total:
            return [None for _ in percents]
        found: list[int | None] = []
        seen = 0
        values = iter(sorted(self._all.items()))
        value = 0
        for percent in percents:
            rank = -(-total * percent // 100)
            while seen < rank:
                value, count = next(values)
                seen += count
            found.append(value)
        return found


def _average(counts: Counter[int]) -> int:
    return sum(value * count for value, count in counts.items()) // counts.total()


class GasStats:
    """The windows of all shards."""

    def __init__(self, shards: int) -> None:
        self._prices = [_Series() for _ in range(shards)]
        self._ppus = [_Series() for _ in range(shards)]
        self._cache: list[GasStatsMessage | None] = [None] * shards
        self.version = 0
        """Changes whenever some shard's numbers do."""

    def add(self, shard: int, pairs: Sequence[tuple[int, int]], now: float) -> None:
        """The (gas price, price per unit) of transactions a block of `shard` has taken in."""
        if not 0 <= shard < len(self._prices) or not pairs:
            return
        self._prices[shard].add((price for price, _ in pairs), now)
        self._ppus[shard].add((ppu for _, ppu in pairs), now)
        self._changed(shard)

    def forget(self, now: float) -> None:
        """Let what has left the window go."""
        for shard, series in enumerate(self._prices):
            self._ppus[shard].forget(now)
            if series.forget(now):
                self._changed(shard)

    def p50(self, shard: int) -> int | None:
        """The gas price that half of the transactions of a shard do not exceed."""
        return self.message(shard).data.gas_price.percentiles.p50

    def p90(self, shard: int) -> int | None:
        """The gas price that nine in ten transactions of a shard do not exceed."""
        return self.message(shard).data.gas_price.percentiles.p90

    def message(self, shard: int) -> GasStatsMessage:
        """The numbers of a shard."""
        cached = self._cache[shard]
        if cached is None:
            prices = self._prices[shard]
            percentiles = Percentiles(*prices.percentiles((50, 75, 90)))
            gas_price = GasPrice(*prices.summary(), percentiles=percentiles)
            cached = GasStatsMessage(GasStatsData(shard, gas_price, Summary(*self._ppus[shard].summary())))
            self._cache[shard] = cached
        return cached

    def _changed(self, shard: int) -> None:
        self._cache[shard] = None
        self.version += 1
