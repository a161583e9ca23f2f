"""What metrics are: declared in tables, so that a reference is printed from them without a service that runs.

A service's registry is made by `registry_of`, which adds the process and the build. Labels come from bounded sets only;
units stand in names (`_seconds`, `_bytes`, `_egld`), counters end in `_total`.
"""

from __future__ import annotations

import os
import platform
import resource
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from millrace.runtime.tracing import Tracer

Family = CounterMetricFamily | GaugeMetricFamily

ANSWER_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends (s) of what people wait for on a connection: from a local answer to what a client gives up at."""
CHAIN_BUCKETS = (0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 4.5, 6.0, 9.0, 12.0, 18.0, 30.0, 60.0, 120.0, 600.0)
"""Upper ends (s) of what takes blocks: rounds of 0.6 s and 6 s, up to the time a transaction is sent for."""


class Measure(NamedTuple):
    """One metric as it is declared."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    """As on `/metrics`: a counter with `_total`, a histogram without `_bucket`."""
    text: str
    labels: tuple[str, ...] = ()

    def family(self) -> Family:
        """An empty family of a counter or gauge, for values with labels."""
        if self.kind == "counter":
            return CounterMetricFamily(self.name.removesuffix("_total"), self.text, labels=self.labels)
        return GaugeMetricFamily(self.name, self.text, labels=self.labels)

    def single(self, value: float) -> Family:
        """The family of a counter or gauge without labels."""
        if self.kind == "counter":
            return CounterMetricFamily(self.name.removesuffix("_total"), self.text, value=value)
        return GaugeMetricFamily(self.name, self.text, value=value)

    def described(self) -> Metric:
        """A family without values of any kind, by which a registry knows the name."""
        return HistogramMetricFamily(self.name, self.text) if self.kind == "histogram" else self.family()

    def series(self) -> tuple[str, ...]:
        """The names that its series bear."""
        ends = ("_bucket", "_count", "_sum") if self.kind == "histogram" else ("",)
        return tuple(self.name + end for end in ends)


class Timings:
    """A histogram that is counted in a plain list: it happens in every request."""

    __slots__ = ("_buckets", "_counts", "_total")

    def __init__(self, buckets: Sequence[float]) -> None:
        self._buckets = tuple(buckets)
        self._counts = [0] * (len(buckets) + 1)
        self._total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._buckets, seconds)] += 1
        self._total += seconds

    @property
    def count(self) -> int:
        """How many were counted."""
        return sum(self._counts)

    @property
    def counts(self) -> list[int]:
        """How many were counted in each bucket, and beyond the last."""
        return list(self._counts)

    @property
    def total(self) -> float:
        """Seconds of all."""
        return self._total

    def family(self, measure: Measure) -> HistogramMetricFamily:
        """What is shown of it."""
        return histogram(measure, self._buckets, self._counts, self._total)


def histogram(measure: Measure, ends: Sequence[float], counts: Sequence[int], total: float) -> HistogramMetricFamily:
    """A histogram of what was counted up to each end, and beyond the last."""
    names = (*map(str, ends), "+Inf")
    buckets: list[tuple[str, float]] = list(zip(names, accumulate(counts), strict=True))
    return HistogramMetricFamily(measure.name, measure.text, buckets=buckets, sum_value=total)


BUILD = Measure("gauge", "millrace_build_info", "1; what runs", ("service", "version", "python"))
CPU = Measure("counter", "process_cpu_seconds_total", "user and system CPU time")
START = Measure("gauge", "process_start_time_seconds", "when the process started, seconds since 1970")
PROCESS = (
    CPU,
    START,
    Measure("gauge", "process_resident_memory_bytes", "memory in use"),
    Measure("gauge", "process_virtual_memory_bytes", "address space"),
    Measure("gauge", "process_open_fds", "open files and sockets"),
    Measure("gauge", "process_max_fds", "how many there may be"),
    BUILD,
)
"""On every service; the signing process and the gossip process are not in them."""
TRACES_BEGUN = Measure("counter", "millrace_traces_begun_total", "requests that were traced")
TRACES_LEFT_OUT = Measure("counter", "millrace_traces_left_out_total", "those that were not: beyond trace_rate")
SPANS_LOST = Measure("counter", "millrace_spans_lost_total", "parts of traces that could not be recorded")
TRACES = (TRACES_BEGUN, TRACES_LEFT_OUT, SPANS_LOST)
"""On every service that traces."""


def registry_of(
    service: str, tracer: Tracer | None = None, children: Callable[[], Iterable[int]] | None = None
) -> prometheus_client.CollectorRegistry:
    """A registry with the process and the build in it, and with the traces where there can be any.

    With `children` (their ids) it shows this process and all of them together.
    """
    # They are a second series for each counter that nobody reads.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = prometheus_client.CollectorRegistry()
    registry.register(_Family(children) if children else prometheus_client.ProcessCollector(registry=None))
    registry.register(_Build(service))
    if tracer is not None:
        registry.register(_Traces(tracer))
    return registry


class _Traces(Collector):
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def describe(self) -> Iterator[Metric]:
        """The families without values."""
        return (measure.described() for measure in TRACES)

    def collect(self) -> Iterator[Metric]:
        """One series each."""
        yield SPANS_LOST.single(self._tracer.lost)
        yield TRACES_BEGUN.single(self._tracer.begun)
        yield TRACES_LEFT_OUT.single(self._tracer.left_out)


class _Build(Collector):
    """What runs. Its version is looked up when it is asked for: to load what reads it would delay a start by 10 ms."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._version = ""

    def describe(self) -> Iterator[Metric]:
        """The family without values."""
        yield BUILD.family()

    def collect(self) -> Iterator[Metric]:
        """One series."""
        if not self._version:
            from importlib.metadata import version

            self._version = version("millrace")
        family = BUILD.family()
        family.add_metric([self._service, self._version, platform.python_version()], 1)
        yield family


class _Family(Collector):
    """This process with its children in all; the start is this one's. Of children that have ended their time counts."""

    def __init__(self, children: Callable[[], Iterable[int]]) -> None:
        self._children = children

    def describe(self) -> Iterator[Metric]:
        """The families without values."""
        return (measure.family() for measure in PROCESS if measure is not BUILD)

    def collect(self) -> Iterator[Metric]:
        """The sum of what the system says of each."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        found: dict[str, float] = {CPU.name: ended.ru_utime + ended.ru_stime}
        for pid in (os.getpid(), *self._children()):
            for family in prometheus_client.ProcessCollector(pid=_always(pid), registry=None).collect():
                for sample in family.samples:
                    if sample.name != START.name:
                        found[sample.name] = found.get(sample.name, 0.0) + sample.value
                    else:
                        found.setdefault(sample.name, sample.value)
        for measure in PROCESS:
            if measure.name in found:
                yield measure.single(found[measure.name])


def _always(pid: int) -> Callable[[], int]:
    return lambda: pid


def free_bytes(directory: Path) -> float:
    """Room that a service without privileges has on the disk of a directory; 0 where it cannot be asked."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return 0.0
    return float(status.f_bavail * status.f_frsize)
