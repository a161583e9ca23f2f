"""What the console counts. Labels come from the table of services only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from millrace.runtime.measures import ANSWER_BUCKETS, Measure, Timings, registry_of

REQUESTS = Measure("counter", "console_requests_total", "requests passed on, by class of status", ("service", "status"))
SECONDS = Measure("histogram", "console_request_seconds", "from a request to the head of the service's answer")
FAILURES = Measure("counter", "console_service_failures_total", "requests that a service did not answer", ("service",))
SOCKETS = Measure("gauge", "console_sockets", "WebSockets and streams that are passed on", ("service",))
REFUSED = Measure("counter", "console_refused_total", "requests refused by the console itself", ("reason",))
CONNECTIONS = Measure("gauge", "console_connections", "connections of browsers")
TURNED_AWAY = Measure("counter", "console_connections_refused_total", "connections closed as one too many")
DECLARED = (REQUESTS, SECONDS, FAILURES, SOCKETS, REFUSED, CONNECTIONS, TURNED_AWAY)


class Counts(Collector):
    """All of them, counted in plain dictionaries."""

    def __init__(self, connections: Callable[[], tuple[int, int]]) -> None:
        self._connections = connections
        self.requests: Counter[tuple[str, str]] = Counter()
        self.failures: Counter[str] = Counter()
        self.sockets: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.seconds = Timings(ANSWER_BUCKETS)

    def registry(self) -> CollectorRegistry:
        """A registry with these, the process and the build."""
        registry = registry_of("console")
        registry.register(self)
        return registry

    def describe(self) -> Iterator[Metric]:
        """The families without values."""
        return (measure.described() for measure in DECLARED)

    def collect(self) -> Iterator[Metric]:
        """The families as they stand."""
        requests = REQUESTS.family()
        for labels, count in self.requests.items():
            requests.add_metric(list(labels), count)
        yield requests
        yield self.seconds.family(SECONDS)
        for measure, counts in ((FAILURES, self.failures), (SOCKETS, self.sockets), (REFUSED, self.refused)):
            family = measure.family()
            for label, count in counts.items():
                family.add_metric([label], count)
            yield family
        connections, turned_away = self._connections()
        yield CONNECTIONS.single(connections)
        yield TURNED_AWAY.single(turned_away)
