"""Gas prices of the last 30 minutes per shard, in buckets of 10 seconds. Pure; time comes in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from millrace.relayer.statistics.ranks import Ranks

WINDOW_SECONDS, BUCKET_SECONDS = 1800.0, 10.0
MAX_DISTINCT = 4096
"""Different prices one bucket keeps apart for percentiles; beyond it further ones count by their first three digits."""


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


class _Bucket(msgspec.Struct):
    """Ten seconds of values, as every sum needs them: no question walks the values themselves."""

    count: int
    total: int
    low: int
    high: int


class _Series:
    """Values in buckets of time."""

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        """By their number; what is read late comes after others."""

    def add(self, values: Sequence[int], number: int) -> None:
        """Values, at least one, of the bucket with this number."""
        known = self._buckets.get(number)
        if known is None:
            self._buckets[number] = _Bucket(len(values), sum(values), min(values), max(values))
            return
        known.count += len(values)
        known.total += sum(values)
        known.low, known.high = min(known.low, min(values)), max(known.high, max(values))

    def forget(self, oldest: int) -> list[int]:
        """Drop buckets up to this one; the numbers of those that were there."""
        dropped = [number for number in self._buckets if number <= oldest]
        for number in dropped:
            del self._buckets[number]
        return dropped

    def summary(self) -> tuple[int | None, int | None, int | None, int | None]:
        """Minimum, maximum, average and the mean of the buckets' averages."""
        buckets = self._buckets.values()
        if not buckets:
            return None, None, None, None
        return (
            min(bucket.low for bucket in buckets),
            max(bucket.high for bucket in buckets),
            sum(bucket.total for bucket in buckets) // sum(bucket.count for bucket in buckets),
            sum(bucket.total // bucket.count for bucket in buckets) // len(buckets),
        )


class _Ranked(_Series):
    """Values with percentiles, for which they are kept."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[int, Counter[int]] = {}
        """Those of each bucket."""
        self._ranks = Ranks()

    def add(self, values: Sequence[int], number: int) -> None:
        super().add(values, number)
        kept = self._kept.setdefault(number, Counter())
        for value, count in Counter(values).items():
            if len(kept) >= MAX_DISTINCT and value not in kept:
                value -= value % max(1, 10 ** (len(str(value)) - 3))
            kept[value] += count
            self._ranks.add(value, count)

    def forget(self, oldest: int) -> list[int]:
        dropped = super().forget(oldest)
        for number in dropped:
            for value, count in self._kept.pop(number).items():
                self._ranks.add(value, -count)
        return dropped

    def percentile(self, percent: int) -> int | None:
        """The nearest-rank percentile."""
        total = self._ranks.total
        return self._ranks.at(-(-total * percent // 100)) if total else None


class GasStats:
    """The windows of all shards."""

    def __init__(self, shards: int) -> None:
        self._prices = [_Ranked() for _ in range(shards)]
        self._ppus = [_Series() for _ in range(shards)]
        self._cache: list[GasStatsMessage | None] = [None] * shards
        self.version = 0
        """Changes whenever some shard's numbers do."""

    def add(self, shard: int, pairs: Sequence[tuple[int, int]], at: float) -> None:
        """The (gas price, price per unit) of transactions that `shard` took in at that time."""
        if not 0 <= shard < len(self._prices) or not pairs:
            return
        number = int(at // BUCKET_SECONDS)
        self._prices[shard].add([price for price, _ in pairs], number)
        self._ppus[shard].add([ppu for _, ppu in pairs], number)
        self._changed(shard)

    def forget(self, now: float) -> None:
        """Let what has left the window go."""
        oldest = int((now - WINDOW_SECONDS) // BUCKET_SECONDS)
        for shard, series in enumerate(self._prices):
            self._ppus[shard].forget(oldest)
            if series.forget(oldest):
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
            percentiles = Percentiles(*map(prices.percentile, (50, 75, 90)))
            gas_price = GasPrice(*prices.summary(), percentiles=percentiles)
            cached = GasStatsMessage(GasStatsData(shard, gas_price, Summary(*self._ppus[shard].summary())))
            self._cache[shard] = cached
        return cached

    def _changed(self, shard: int) -> None:
        self._cache[shard] = None
        self.version += 1
