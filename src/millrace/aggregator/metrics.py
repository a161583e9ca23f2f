"""What /metrics shows. Requests are counted in plain dictionaries: it happens in every one of them."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate

import prometheus_client
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from millrace.aggregator.answering import Answering
from millrace.aggregator.feed import Feed
from millrace.aggregator.nonces import Nonces
from millrace.aggregator.simulation import Simulations
from millrace.aggregator.snapshot import Snapshot
from millrace.runtime.doors import Doors

BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0)
"""Upper ends (s) of the histogram of quotes."""


class Metrics(Collector):
    """Counters and gauges of one process."""

    def __init__(
        self, feed: Feed, answering: Answering, doors: Doors, nonces: Nonces, simulations: Simulations
    ) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.requests: Counter[tuple[str, int]] = Counter()
        """Answered requests by route and status."""
        self.reused = 0
        """Quotes answered with what the same question has been answered on the same snapshot."""
        self._quotes = [0] * (len(BUCKETS) + 1)
        self._quote_seconds = 0.0
        self.registry.register(self)
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "aggregator_snapshot_age_seconds": (
                "Age of the market snapshot; NaN before the first",
                lambda: math.nan if (age := feed.age()) is None else age,
            ),
            "aggregator_pools": ("Pools in the snapshot", lambda: _pools(feed.snapshot)),
            "aggregator_quarantined": (
                "Pools and tokens left out of the snapshot",
                lambda: 0.0 if feed.snapshot is None else len(feed.snapshot.document.quarantined),
            ),
            "aggregator_documents_held_back": ("Documents that lost too much", lambda: feed.losses.held_back),
            "aggregator_losses_taken": (
                "Losses of pools believed after all: look into each",
                lambda: feed.losses.taken,
            ),
            "aggregator_refreshes": ("Snapshots taken in", lambda: feed.refreshes),
            "aggregator_refresh_failures": ("Refreshes that failed", lambda: feed.failures),
            "aggregator_quotes_reused": ("Quotes asked before on the same snapshot", lambda: self.reused),
            "aggregator_quotes_waiting": ("Long questions in the threads or before them", lambda: answering.waiting),
            "aggregator_quotes_refused": ("Long questions turned away", lambda: answering.refused),
            "aggregator_quotes_cut": ("Long questions cut short by their client's share", lambda: answering.cut),
            "aggregator_connections": ("Open connections", lambda: doors.open),
            "aggregator_connections_refused": ("Connections closed for want of room", lambda: doors.refused),
            "aggregator_nonces_missed": ("Senders whose nonce the chain API did not tell", lambda: nonces.missed),
            "aggregator_simulations_missed": ("Simulations without a result", lambda: simulations.missed),
            "aggregator_build_seconds": ("CPU time it took to build the last snapshot", lambda: feed.build_seconds),
        }
        for name, (text, read) in gauges.items():
            prometheus_client.Gauge(name, text, registry=self.registry).set_function(read)

    def quote_took(self, seconds: float) -> None:
        """Count one quote."""
        self._quotes[bisect_left(BUCKETS, seconds)] += 1
        self._quote_seconds += seconds

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks for the two that are counted here."""
        text = "Requests by route and status"
        requests = CounterMetricFamily("aggregator_requests", text, labels=["route", "status"])
        for (route, status), count in self.requests.items():
            requests.add_metric([route, str(status)], count)
        yield requests
        counts = zip((*map(str, BUCKETS), "+Inf"), accumulate(self._quotes), strict=True)
        buckets: list[tuple[str, float]] = list(counts)
        yield HistogramMetricFamily(
            "aggregator_quote_seconds", "Time to compute a quote", buckets=buckets, sum_value=self._quote_seconds
        )


def _pools(snapshot: Snapshot | None) -> float:
    return 0.0 if snapshot is None else float(len(snapshot.document.pools))
