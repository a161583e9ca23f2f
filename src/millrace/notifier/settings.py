"""Settings of the notifier."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from millrace.chain import outport
from millrace.runtime.settings import FOREVER, Seconds, Secret
from millrace.runtime.tracing import TracingSettings

Port = Annotated[int, Meta(ge=0, le=65535)]
Positive = Annotated[int, Meta(gt=0)]

MEBIBYTE = 1024 * 1024
EVENT = "Event"
BUS_KINDS = (*outport.PAYLOADS, outport.EXECUTED_BLOCK, EVENT)
"""What has a topic of its own on the service bus: the nodes' topics, executions, and the events in blocks."""


class NotifierSettings(TracingSettings, frozen=True, forbid_unknown_fields=True):
    """Everything an operator may choose; times are in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    """Address that the public ports listen on."""
    port: Port = 8300
    """WebSocket port: nodes on `/save`, consumers on `/hub/ws`. 0: any free port."""
    http_port: Port = 8301
    """Port of `/health` and `/ready`. 0: any free port."""
    metrics_host: str = "127.0.0.1"
    """Address that the operators' port listens on."""
    metrics_port: Port = 8302
    """For operators: `/metrics`, and `/health` and `/ready` again. 0: any free port."""
    operators_token: Secret = Secret()
    """Token that actions on the operators' port want (`Authorization: Bearer …`), 16 characters at least; empty: there
    are no actions."""
    data_dir: Path = Path("data/notifier")
    """Directory of the journal and the dead letters. One notifier owns it at a time."""

    journal_url: Secret = Secret()
    """PostgreSQL server of the journal, `postgresql://user:password@host:port/database`; empty: files in `data_dir`.
    The password may also stand in a file that the URL names: `?passfile=/etc/millrace/pgpass`."""
    journal_schema: str = "notifier"
    """Schema of the journal in that database. One notifier owns it at a time."""

    max_frame_bytes: Positive = 64 * MEBIBYTE
    """Largest frame taken from a node."""
    max_connections: Positive = 4096
    """WebSocket connections at once, nodes and consumers together; more are answered with 503."""
    max_nodes: Positive = 64
    """Node connections at once; more are answered with 503."""
    node_secrets: dict[str, Secret] = msgspec.field(default_factory=dict)
    """Name of a node -> the secret it sends as `Authorization: Bearer <secret>`. Empty: every node is welcome."""
    node_urls: tuple[str, ...] = ()
    """Nodes in server mode that the notifier connects to, such as `ws://10.0.0.5:22111`; `/save` is added."""
    max_queued_bytes: Positive = 512 * MEBIBYTE
    """Node frames waiting for the disk; beyond it no node is read until some are written."""
    node_marshaller: Literal["auto", "protobuf", "json"] = "auto"
    """What nodes write, as their `MarshallerType`; `auto`: what the first message of a connection is written in."""
    shards: Positive = 16
    """Shards of the network, the metachain not counted. What a node tells of any other is kept as a dead letter."""

    finalized_wait: Seconds = 5.0
    """How long a finalised mark waits for its block before it is delivered alone, marked as unjoined. Both come of one
    node within moments, in rounds of any length. Time in which nodes are not answered does not count."""
    retention_seconds: Seconds = 24 * 3600.0
    """Age at which events leave the journal."""
    retention_bytes: Positive = 10 * 1024 * MEBIBYTE
    """Payload bytes the journal keeps; the oldest events leave first."""
    dedup_window: Positive = 1_000_000
    """Events over which a repeated message is recognised; an older one coming again is delivered again. By room, not by
    time: half a day of four shards in rounds of 600 ms, five days in those of 6 s."""
    dead_letter_bytes: Positive = 64 * MEBIBYTE
    """Size at which the dead-letter file is rotated, between two commits; one old file is kept."""

    executed_topic: Literal["ExecutedBlock", "SaveBlock"] = "ExecutedBlock"
    """Topic of blocks made of executions. `SaveBlock`: for consumers that know blocks of the earlier format only."""
    tail_bytes: Positive = 16 * MEBIBYTE
    """Newest events kept in memory, with their frames and 1.1 KB for each, so that consumers who keep up are never
    served from disk."""
    window_frames: Positive = 1024
    """Frames a consumer may leave unacknowledged before delivery to it pauses."""
    window_bytes: Positive = 64 * MEBIBYTE
    """Bytes a consumer may leave unacknowledged before delivery to it pauses."""
    consumer_timeout: Seconds = 60.0
    """How long delivery to a consumer may stay paused before it is cut off with code 4008."""
    max_subscriptions: Positive = 256
    """Subscriptions per consumer connection."""

    amqp_url: Secret = Secret()
    """RabbitMQ to publish to, `amqp://user:password@host:port/vhost` or `amqps://…`; empty: none. Never shown."""
    amqp_exchange: Annotated[str, Meta(min_length=1, max_length=127)] = "millrace"
    """Topic exchange, declared as durable when it does not exist."""
    amqp_prefix: Annotated[str, Meta(max_length=127)] = ""
    """Put before the routing keys, with a dot; empty: nothing."""
    amqp_window: Positive = 1024
    """Messages on their way to the broker, not confirmed, at once."""
    amqp_window_bytes: Positive = 64 * MEBIBYTE
    """Payload bytes of these messages; a larger one goes alone."""
    amqp_confirm_timeout: Seconds = 10.0
    """Without any confirm for so long, while some are due, the notifier connects again."""
    amqp_max_message_bytes: Positive = 128 * MEBIBYTE
    """Largest payload published, as the broker's `max_message_size`; a larger one is told as a gap."""

    amqp_streams: Annotated[str, Meta(max_length=127)] = ""
    """Name of streams: `<name>.<shard>`, declared when a shard's first event is published; empty: none."""
    amqp_stream_bytes: Positive = 20 * 1024 * MEBIBYTE
    """Bytes that each stream keeps; its oldest segments leave first."""

    service_bus_connection: Secret = Secret()
    """Connection string of the service bus to publish to. Empty, and no file named: none."""
    service_bus_connection_file: Path | None = None
    """File that holds the connection string, instead of `service_bus_connection`."""
    service_bus_topics: dict[str, str] = msgspec.field(default_factory=lambda: {kind: kind for kind in BUS_KINDS})
    """Kind of event -> topic of the bus. Kinds that are not named are not published."""
    service_bus_partitioned: bool = False
    """The topics are partitioned: a batch then holds one session only."""
    service_bus_timeout: Seconds = 10.0
    """How long the bus may take to accept a batch before the notifier connects again."""
    redis_url: Secret = Secret()
    """Redis by which several notifiers publish each event once together, such as `redis://:password@host:6379/0`.
    Empty: this one is alone."""
    claim_group: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")] = "notifier"
    """Notifiers of one group share their brokers."""
    claim_lease: Annotated[float, Meta(ge=0.1, le=FOREVER)] = 3.0
    """How long after the death of the one that publishes another goes on."""
    claim_patience: Seconds = 10.0
    """How far the one that publishes must be past an event before another publishes what it does not have."""
    claim_keep: Annotated[float, Meta(ge=60, le=FOREVER)] = 3600.0
    """How long it is remembered in Redis that an event was published."""

    ping_interval: Seconds = 30.0
    """Seconds between pings on every connection."""
    pong_timeout: Seconds = 20.0
    """Seconds a peer has to answer a ping before it is closed with code 4012."""
    ready_max_age: Seconds = 60.0
    """`/ready` answers 503 when a known shard has had no block for so long. A time: nodes start again within less, in
    rounds of any length."""

    def __post_init__(self) -> None:
        empty = next((name for name, secret in self.node_secrets.items() if not secret), None)
        if empty is not None:
            raise ValueError(f"node_secrets: {empty!r} has an empty secret, with which everybody would be welcome")
        unknown = sorted(set(self.service_bus_topics) - set(BUS_KINDS))
        if unknown:
            raise ValueError(f"service_bus_topics: no kind {unknown[0]!r}; kinds are {', '.join(BUS_KINDS)}")
        if not self.service_bus_topics or not all(self.service_bus_topics.values()):
            raise ValueError("service_bus_topics: every topic needs a name, and one there must be")
        if self.service_bus_connection and self.service_bus_connection_file:
            raise ValueError("give service_bus_connection or service_bus_connection_file, not both")

    def reveal_service_bus_connection(self) -> str:
        """The connection string, from wherever it is. Raises `OSError` with a text for the operator."""
        if self.service_bus_connection_file is None:
            return self.service_bus_connection.reveal()
        try:
            return self.service_bus_connection_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise OSError(
                f"service_bus_connection_file: {self.service_bus_connection_file} cannot be read: {error}"
            ) from error
