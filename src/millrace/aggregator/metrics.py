"""What /metrics shows. Requests are counted in plain dictionaries: it happens in every one of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from millrace.aggregator.answering import Answering
from millrace.aggregator.errors import ApiError, OverShare
from millrace.aggregator.feed import Feed
from millrace.aggregator.nonces import Nonces
from millrace.aggregator.simulation import Simulations
from millrace.runtime.doors import Doors
from millrace.runtime.measures import Measure, Timings, registry_of
from millrace.runtime.tracing import Tracer

BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0)
"""Upper ends (s) of the histogram of quotes."""

REQUESTS = Measure("counter", "aggregator_requests_total", "requests by route and status", ("route", "status"))
QUOTES = Measure("histogram", "aggregator_quote_seconds", "time from a question to its computed answer")


class Metrics(Collector):
    """Counters and gauges of one process."""

    def __init__(
        self,
        feed: Feed,
        answering: Answering,
        doors: Doors,
        nonces: Nonces,
        simulations: Simulations,
        tracer: Tracer,
    ) -> None:
        self.feed, self.answering, self.doors, self.nonces = feed, answering, doors, nonces
        self.simulations = simulations
        self.requests: Counter[tuple[str, int]] = Counter()
        """Answered requests by route and status."""
        self.over_share = 0
        """Requests refused (503) as their own client had asked for too much: the service fails nobody else."""
        self.reused = 0
        """Quotes answered with what the same question has been answered on the same snapshot."""
        self._quotes = Timings(BUCKETS)
        self.registry = registry_of("aggregator", tracer)
        self.registry.register(self)

    def refused(self, error: ApiError) -> None:
        """Count why a request was refused; by route and status it is counted apart."""
        if isinstance(error, OverShare):
            self.over_share += 1

    def quote_took(self, seconds: float) -> None:
        """Count one quote."""
        self._quotes.observe(seconds)

    def describe(self) -> Iterator[Metric]:
        """Families without values, for the registry."""
        return (measure.described() for measure in DECLARED)

    def collect(self) -> Iterator[Metric]:
        """What there is now."""
        for measure, read in PLAIN:
            yield measure.single(read(self))
        requests = REQUESTS.family()
        for (route, status), count in self.requests.items():
            requests.add_metric([route, str(status)], count)
        yield requests
        yield self._quotes.family(QUOTES)


def _age(metrics: Metrics) -> float:
    age = metrics.feed.age()
    return math.nan if age is None else age


def _pools(metrics: Metrics) -> float:
    snapshot = metrics.feed.snapshot
    return 0.0 if snapshot is None else float(len(snapshot.document.pools))


def _quarantined(metrics: Metrics) -> float:
    snapshot = metrics.feed.snapshot
    return 0.0 if snapshot is None else float(len(snapshot.document.quarantined))


def _counter(name: str, text: str, read: Callable[[Metrics], float]) -> tuple[Measure, Callable[[Metrics], float]]:
    return Measure("counter", f"aggregator_{name}_total", text), read


def _gauge(name: str, text: str, read: Callable[[Metrics], float]) -> tuple[Measure, Callable[[Metrics], float]]:
    return Measure("gauge", f"aggregator_{name}", text), read


PLAIN = (
    _gauge("snapshot_age_seconds", "age of the market snapshot; NaN before the first", _age),
    _gauge("snapshot_build_seconds", "CPU time it took to build the last snapshot", lambda m: m.feed.build_seconds),
    _gauge("pools", "pools in the snapshot", _pools),
    _gauge("quarantined", "pools and tokens left out of the snapshot", _quarantined),
    _counter("documents_held_back", "documents that lost too much", lambda m: m.feed.losses.held_back),
    _counter("losses_taken", "losses of pools believed after all: look into each", lambda m: m.feed.losses.taken),
    _counter("refreshes", "snapshots taken in", lambda m: m.feed.refreshes),
    _counter("refresh_failures", "refreshes that failed", lambda m: m.feed.failures),
    _counter("quotes_reused", "quotes asked before on the same snapshot", lambda m: m.reused),
    _gauge("quotes_waiting", "long questions in the thread or before it", lambda m: m.answering.waiting),
    _counter("quotes_refused", "long questions turned away", lambda m: m.answering.refused),
    _counter(
        "requests_over_share",
        "of the requests with status 503: refused for their own client's share",
        lambda m: m.over_share,
    ),
    _counter("quotes_cut", "long questions cut short by their client's share of time", lambda m: m.answering.cut),
    _gauge("connections", "open connections", lambda m: m.doors.open),
    _counter("connections_refused", "connections closed for want of room", lambda m: m.doors.refused),
    _counter("simulations_missed", "simulations without a result", lambda m: m.simulations.missed),
    _counter("nonces_missed", "senders whose nonce the chain API did not tell", lambda m: m.nonces.missed),
)
DECLARED = (*(measure for measure, _ in PLAIN), REQUESTS, QUOTES)
"""All of them; those of the process apart."""
