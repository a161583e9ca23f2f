"""What /metrics shows. Requests are counted in plain dictionaries: it happens in every one of them."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from millrace.aggregator.answering import Answering
from millrace.aggregator.errors import ApiError, OverShare
from millrace.aggregator.feed import Feed
from millrace.aggregator.health import SHOWN_FAULTS
from millrace.aggregator.nonces import Nonces
from millrace.aggregator.referrals import Referrals
from millrace.aggregator.simulation import Simulations
from millrace.aggregator.snapshot import Snapshot
from millrace.runtime.doors import Doors
from millrace.runtime.measures import SPANS_LOST, TRACES_BEGUN, TRACES_LEFT_OUT, Measure, Timings, histogram
from millrace.runtime.tracing import Tracer

BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0)
"""Upper ends (s) of the histogram of quotes."""

LONGEST_REASON = 200
"""Characters of a reason that a label shows."""

REQUESTS = Measure("counter", "aggregator_requests_total", "requests by route and status", ("route", "status"))
LEFT_OUT = Measure(
    "gauge", "aggregator_quarantined_pool", "1 for each of the first hundred left out, and why", ("name", "reason")
)
QUOTES = Measure("histogram", "aggregator_quote_seconds", "time from a question to its computed answer")


class Report(msgspec.Struct, array_like=True):
    """What one process of the service has counted, for `/metrics` of the whole."""

    values: dict[str, float] = {}
    """Of those without labels, by name."""
    requests: list[tuple[str, int, int]] = []
    """Route, status, and how many."""
    quotes: list[int] = []
    """How many quotes took as long as each bucket says."""
    quote_seconds: float = 0.0
    left_out: list[tuple[str, str]] = []
    """Names and reasons of what is not in the market, of the process that fetches."""


def together(reports: Iterable[Report]) -> Report:
    """What several processes have counted in all."""
    values: dict[str, float] = {}
    requests: Counter[tuple[str, int]] = Counter()
    quotes, seconds = [0] * (len(BUCKETS) + 1), 0.0
    left_out: list[tuple[str, str]] = []
    for report in reports:
        left_out += report.left_out
        for name, value in report.values.items():
            join = _largest if name in LARGEST else operator.add
            values[name] = join(values[name], value) if name in values else value
        for route, status, count in report.requests:
            requests[route, status] += count
        if report.quotes:
            quotes = list(map(operator.add, quotes, report.quotes))
            seconds += report.quote_seconds
    return Report(values, [(*key, count) for key, count in requests.items()], quotes, seconds, left_out)


LARGEST = ("aggregator_snapshot_age_seconds", "aggregator_snapshot_build_seconds")
"""Of these the service shows the largest of its processes; of others their sum, or what the one knows that fetches."""


def _largest(one: float, other: float) -> float:
    """The larger of two numbers, of which one may be none (NaN)."""
    return other if math.isnan(one) or other > one else one


def counters_of(report: Report) -> Report:
    """What stays of a process that has ended: counters, and nothing of its present state."""
    values = {name: value for name, value in report.values.items() if name.endswith("_total")}
    return msgspec.structs.replace(report, values=values)


def of_market(feed: Feed[Any]) -> Report:
    """What the process knows that fetches."""
    left_out = () if feed.snapshot is None else feed.snapshot.document.quarantined[:SHOWN_FAULTS]
    named = {item.name: item.reason[:LONGEST_REASON] for item in left_out}
    return Report({measure.name: read(feed) for measure, read in OF_MARKET}, left_out=list(named.items()))


class Shown(Collector):
    """What `/metrics` shows: a report, made when somebody looks."""

    def __init__(self, report: Callable[[], Report]) -> None:
        self._report = report

    def describe(self) -> Iterator[Metric]:
        """Families without values, for the registry."""
        return (measure.described() for measure in DECLARED)

    def collect(self) -> Iterator[Metric]:
        """What there is now."""
        report = self._report()
        for measure in PLAIN:
            yield measure.single(report.values.get(measure.name, 0.0))
        requests = REQUESTS.family()
        for route, status, count in report.requests:
            requests.add_metric([route, str(status)], count)
        yield requests
        faults = LEFT_OUT.family()
        for name, reason in report.left_out:
            faults.add_metric([name, reason], 1.0)
        yield faults
        yield histogram(QUOTES, BUCKETS, report.quotes or [0] * (len(BUCKETS) + 1), report.quote_seconds)


class Metrics:
    """Counters and gauges of one process."""

    def __init__(
        self,
        feed: Feed[Snapshot],
        answering: Answering,
        doors: Doors,
        nonces: Nonces,
        simulations: Simulations,
        referrals: Referrals,
        tracer: Tracer,
    ) -> None:
        self.feed, self.answering, self.doors, self.nonces = feed, answering, doors, nonces
        self.simulations = simulations
        self.referrals = referrals
        self.tracer = tracer
        self.requests: Counter[tuple[str, int]] = Counter()
        """Answered requests by route and status."""
        self.over_share = 0
        """Requests refused (503) as their own client had asked for too much: the service fails nobody else."""
        self.reused = 0
        """Quotes answered with what the same question has been answered on the same snapshot."""
        self._quotes = Timings(BUCKETS)

    def refused(self, error: ApiError) -> None:
        """Count why a request was refused; by route and status it is counted apart."""
        if isinstance(error, OverShare):
            self.over_share += 1

    def quote_took(self, seconds: float) -> None:
        """Count one quote."""
        self._quotes.observe(seconds)

    def report(self) -> Report:
        """What there is now."""
        requests = [(*key, count) for key, count in self.requests.items()]
        values = {measure.name: read(self) for measure, read in OF_ANSWERS}
        values |= {measure.name: read(self.feed) for measure, read in OF_MARKET if measure.name in LARGEST}
        return Report(values, requests, self._quotes.counts, self._quotes.total)


def _age(feed: Feed[Any]) -> float:
    age = feed.age()
    return math.nan if age is None else age


def _pools(feed: Feed[Any]) -> float:
    return 0.0 if feed.snapshot is None else float(len(feed.snapshot.document.pools))


def _quarantined(feed: Feed[Any]) -> float:
    return 0.0 if feed.snapshot is None else float(len(feed.snapshot.document.quarantined))


T = TypeVar("T")
Read = tuple[Measure, Callable[[T], float]]


def _counter(name: str, text: str, read: Callable[[T], float]) -> Read[T]:
    return Measure("counter", f"aggregator_{name}_total", text), read


def _gauge(name: str, text: str, read: Callable[[T], float]) -> Read[T]:
    return Measure("gauge", f"aggregator_{name}", text), read


OF_MARKET: tuple[Read[Feed[Any]], ...] = (
    _gauge("snapshot_age_seconds", "age of the market snapshot, of workers the oldest; NaN before the first", _age),
    _gauge("pools", "pools in the snapshot", _pools),
    _gauge("quarantined", "pools and tokens left out of the snapshot", _quarantined),
    _gauge("snapshot_build_seconds", "CPU time it took to build the last snapshot", lambda feed: feed.build_seconds),
    _counter("documents_held_back", "documents that lost too much", lambda feed: feed.losses.held_back),
    _counter("losses_taken", "losses of pools believed after all: look into each", lambda feed: feed.losses.taken),
    _counter("refreshes", "snapshots taken in", lambda feed: feed.refreshes),
    _counter("refresh_failures", "refreshes that failed", lambda feed: feed.failures),
)
"""Of the one process that fetches; age and build of all."""
OF_ANSWERS: tuple[Read[Metrics], ...] = (
    _counter("quotes_reused", "quotes asked before on the same snapshot", lambda m: m.reused),
    _gauge("quotes_waiting", "long questions in the thread or before it", lambda m: m.answering.waiting),
    _counter("quotes_refused", "long questions turned away", lambda m: m.answering.refused),
    _counter(
        "requests_over_share",
        "of the requests with status 503: refused for their own client's share",
        lambda m: m.over_share,
    ),
    _counter("quotes_cut", "long questions cut short by their client's share of time", lambda m: m.answering.cut),
    _counter(
        "turns_aside",
        "long questions answered while another client's search stepped aside",
        lambda m: sum(turns.stepped for turns in m.answering.threads),
    ),
    _counter(
        "turns_aside_refused",
        "times a search would have stepped aside, but as many had as may",
        lambda m: sum(turns.kept for turns in m.answering.threads),
    ),
    _counter(
        "turns_rested",
        "times the thread for long questions rested while a quick one was answered",
        lambda m: sum(turns.rests for turns in m.answering.threads),
    ),
    _counter(
        "turns_forgotten",
        "clients of whom it was forgotten, for want of room, what they had taken of late",
        lambda m: sum(turns.forgotten for turns in m.answering.threads),
    ),
    _gauge("connections", "open connections", lambda m: m.doors.open),
    _counter("connections_refused", "connections closed for want of room", lambda m: m.doors.refused),
    _counter("simulations_missed", "simulations without a result", lambda m: m.simulations.missed),
    _counter("referrals_missed", "readings of referrals that told nothing", lambda m: m.referrals.failures),
    _counter("nonces_missed", "senders whose nonce the chain API did not tell", lambda m: m.nonces.missed),
    (TRACES_BEGUN, lambda m: m.tracer.begun),
    (TRACES_LEFT_OUT, lambda m: m.tracer.left_out),
    (SPANS_LOST, lambda m: m.tracer.lost),
)
WORKERS = Measure("gauge", "aggregator_workers", "processes that answer")
RESTARTS = Measure("counter", "aggregator_worker_restarts_total", "workers that ended unasked, or stood still")
APART = Measure("gauge", "aggregator_limits_apart", "1 while Redis cannot be asked and each machine limits for itself")
SYNCS_FAILED = Measure("counter", "aggregator_limit_failures_total", "exchanges with Redis that failed")
SERVICE = (WORKERS, RESTARTS, APART, SYNCS_FAILED)
"""Of the service, whatever its processes count."""
PLAIN = (*(measure for measure, _ in OF_MARKET), *(measure for measure, _ in OF_ANSWERS), *SERVICE)
"""All without labels."""
DECLARED = (*PLAIN, REQUESTS, LEFT_OUT, QUOTES)
"""All of them; those of the process apart."""
