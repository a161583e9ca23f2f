"""What the notifier counts. Labels come from bounded sets only."""

from __future__ import annotations

import functools

from prometheus_client import Counter, Gauge, Histogram

from millrace.chain import outport
from millrace.chain.shard import METACHAIN
from millrace.runtime.measures import Measure, registry_of
from millrace.runtime.tracing import Tracer

_MAX_SHARDS = 16
_LATENCIES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Metrics:
    """All metrics, in a registry of their own."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self.registry = registry_of("notifier", tracer)
        self.declared: list[Measure] = []
        """All of them; those of the process apart."""
        self._shards: set[int] = set()
        r = self.registry

        def counter(name: str, text: str, *labels: str) -> Counter:
            self.declared.append(Measure("counter", f"notifier_{name}_total", text, labels))
            return Counter(f"notifier_{name}", text, labels, registry=r)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            self.declared.append(Measure("gauge", f"notifier_{name}", text, labels))
            return Gauge(f"notifier_{name}", text, labels, registry=r)

        def histogram(name: str, text: str, buckets: tuple[float, ...] = _LATENCIES) -> Histogram:
            self.declared.append(Measure("histogram", f"notifier_{name}", text))
            return Histogram(f"notifier_{name}", text, buckets=buckets, registry=r)

        self.messages = counter("node_messages", "payloads received from nodes", "topic")
        self.received_bytes = counter("node_received_bytes", "payload bytes received from nodes")
        self.nodes = gauge("nodes", "nodes connected")
        self.frames_refused = counter("node_frames_refused", "frames of nodes that are no envelope")
        self.queued_bytes = gauge("queued_bytes", "payload bytes waiting for the disk")
        self.events = counter("events", "events written to the journal", "topic", "shard")
        self.duplicates = counter("duplicates", "messages that told nothing new", "topic")
        self.conflicts = counter("conflicts", "events on which nodes disagree", "shard")
        self.historical = counter("historical", "blocks replayed from before the newest", "shard")
        self.missing_blocks = counter("missing_blocks", "nonces skipped by the blocks of a shard", "shard")
        self.missing_executions = counter(
            "missing_executions", "headers of a shard skipped by the executions that came", "shard"
        )
        self.incomplete = counter("incomplete", "events before which something is missing", "shard")
        self.irregular = counter("irregular_blocks", "blocks that break a rule and were passed on as they came", "kind")
        self.forks = counter("duplicate_nonces", "blocks whose nonce another live block has", "shard")
        self.reverts = counter("reverts", "blocks taken back", "shard")
        self.unjoined = counter("unjoined", "finalised marks delivered without their block", "shard")
        self.dead_letters = counter("dead_letters", "payloads that could not be decoded")
        self.unknown_topics = counter("unknown_topics", "payloads of unknown topics")
        self.commit_seconds = histogram("commit_seconds", "one group commit")
        self.batch_messages = histogram("commit_messages", "messages in a group commit", (1, 2, 4, 8, 16, 64, 256))
        self.commit_failures = counter("commit_failures", "commits the disk refused")
        self.corrupt = counter("corrupt_events", "events of the journal that fail their checksum or cannot be read")
        self.head = gauge("journal_head", "newest sequence")
        self.oldest = gauge("journal_oldest", "oldest sequence")
        self.journal_bytes = gauge("journal_bytes", "payload bytes in the journal")
        self.journal_disk = gauge("journal_disk_bytes", "bytes of the journal's log on disk; 0 with PostgreSQL")
        self.failing = gauge("journal_failing", "1 while the journal cannot be written")
        self.disk_free = gauge("disk_free_bytes", "room on the disk of the data directory")
        self.pruned = counter("journal_pruned", "events that left the journal by age or size")
        self.block_age = gauge("last_block_age_seconds", "seconds since the newest block", "shard")
        self.lag = histogram("lag_seconds", "node's frame to consumers' frames")
        self.consumers = gauge("hub_consumers", "consumers connected")
        self.subscriptions = gauge("hub_filters", "distinct filters in use")
        self.frames_sent = counter("hub_frames", "event frames sent to consumers")
        self.bytes_sent = counter("hub_bytes", "bytes of event frames sent to consumers")
        self.consumers_cut = counter("hub_consumers_cut", "consumers cut off for being slow")
        self.consumer_lag = gauge("hub_lag_events", "sequences between the journal's head and the slowest consumer")
        self.gaps = counter("hub_gaps", "gaps told to consumers")
        self.amqp_unroutable = counter("amqp_unroutable", "messages that no queue was bound for")
        self.amqp_streams = gauge("amqp_streams", "streams declared on the present connection")
        self.sink_connected = gauge("sink_connected", "1 while the broker takes messages", "sink")
        self.sink_queue = gauge("sink_queue", "messages sent and not confirmed", "sink")
        self.sink_lag = gauge("sink_lag_events", "sequences between the journal's head and the sink's cursor", "sink")
        self.sink_cursor = gauge("sink_cursor", "every event up to this sequence is confirmed", "sink")
        self.sink_confirmed = counter("sink_confirmed", "messages the broker confirmed", "sink")
        self.sink_refused = counter("sink_refused", "refusals of the broker; what it refused is sent again", "sink")
        self.sink_reconnects = counter("sink_reconnects", "attempts to connect after the first", "sink")
        self.sink_leading = gauge("sink_leading", "1 while this notifier is the one that publishes", "sink")
        self.sink_passed = counter("sink_passed", "events that another notifier had published", "sink")
        self.sink_claim_failures = counter("sink_claim_failures", "times Redis could not be asked", "sink")
        self.sink_gaps = counter("sink_gaps", "gaps published", "sink")
        self.service_bus_messages = counter("service_bus_messages", "messages the service bus accepted")
        self.service_bus_omitted = counter("service_bus_omitted", "messages too large for the service bus")

    def shard(self, shard: int) -> str:
        """The label of a shard; whatever nodes claim, there are never more than a few labels."""
        if shard == METACHAIN:
            return "meta"
        if shard not in self._shards:
            if len(self._shards) >= _MAX_SHARDS:
                return "other"
            self._shards.add(shard)
        return str(shard)

    @staticmethod
    def topic(topic: str) -> str:
        """The label of a topic."""
        return topic if topic in outport.PAYLOADS else "unknown"


@functools.lru_cache(maxsize=256)
def one_of(counters: Counter, *labels: str) -> Counter:
    """The counter with these labels, which takes three times as long as counting when it is looked up each time."""
    return counters.labels(*labels)


class Tally:
    """Counts of a transaction: they show only once it is on disk."""

    def __init__(self) -> None:
        self._counts: list[tuple[Counter, float]] = []

    def add(self, counter: Counter, amount: float = 1) -> None:
        self._counts.append((counter, amount))

    def mark(self) -> int:
        """A point to go back to."""
        return len(self._counts)

    def back_to(self, mark: int) -> None:
        """Forget what was added since; 0 forgets everything."""
        del self._counts[mark:]

    def publish(self) -> None:
        """The transaction is on disk."""
        for counter, amount in self._counts:
            counter.inc(amount)
        self._counts.clear()


class SinkMetrics:
    """What is counted for one sink."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self.connected = metrics.sink_connected.labels(name)
        self.queue = metrics.sink_queue.labels(name)
        self.lag = metrics.sink_lag.labels(name)
        self.cursor = metrics.sink_cursor.labels(name)
        self.confirmed = metrics.sink_confirmed.labels(name)
        self.refused = metrics.sink_refused.labels(name)
        self.reconnects = metrics.sink_reconnects.labels(name)
        self.leading = metrics.sink_leading.labels(name)
        self.passed = metrics.sink_passed.labels(name)
        self.claim_failures = metrics.sink_claim_failures.labels(name)
        self.gaps = metrics.sink_gaps.labels(name)
