"""Nodes on `/save`: frames in, acknowledgements out once what they carried is on disk."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import logging
import random

from millrace.chain import outport, outport_json
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.journal.journal import Journal
from millrace.notifier.journal.processor import Arrival
from millrace.notifier.metrics import Metrics, one_of
from millrace.notifier.occasional import OccasionalLog
from millrace.notifier.rules.dedup import Observer
from millrace.notifier.rules.entry import now_ms
from millrace.notifier.settings import NotifierSettings
from millrace.runtime import websocket

log = logging.getLogger(__name__)
_log_connected = OccasionalLog(log, logging.INFO, "node connected")
_log_gone = OccasionalLog(log, logging.INFO, "node gone")
_log_refused = OccasionalLog(log, logging.WARNING, "frame refused")

PATH = "/save"
_ENVELOPE_BYTES = 1024  # around the payload, the topic included
_NODE_FRAMES = 16  # a node may have under way before it is read no further; real ones have one
_HINT = 'nodes must send binary frames, with MarshallerType = "json" or "gogo protobuf" as node_marshaller says'
_AS_JSON = {"auto": None, "json": True, "protobuf": False}
_RECONNECT = 0.5, 30.0  # seconds between attempts to reach a node: first, longest


class NodeSession(websocket.Session):
    """One node's connection."""

    def __init__(self, ingest: Ingest, name: str) -> None:
        super().__init__()
        self.max_message_size = ingest.settings.max_frame_bytes + _ENVELOPE_BYTES
        self._ingest = ingest
        self._name = name
        self._observer = Observer(0)
        self._as_json = _AS_JSON[ingest.settings.node_marshaller]  # None: the first message will tell
        self._frames = 0
        self._bytes = 0

    def on_open(self) -> None:
        self._observer = Observer(self._ingest.journal.head + 1)
        self._ingest.joined(self)
        _log_connected(remote=self.remote, node=self._name)

    def on_close(self) -> None:
        self._ingest.left(self)
        _log_gone(remote=self.remote, node=self._name, code=self.close_code)

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        try:
            if kind == "text":
                raise outport.OutportError("not a binary frame")
            envelope, payload = self._decode(data)
        except outport.OutportError as error:
            self._ingest.metrics.frames_refused.inc()
            _log_refused(remote=self.remote, why=str(error), hint=_HINT)
            self.close(websocket.UNSUPPORTED_DATA if kind == "text" else 1007, f"{error}: {_HINT}", abort=True)
            return
        if envelope.type != outport.PAYLOAD:
            return  # the protocol has them ignored, and never acknowledged
        metrics = self._ingest.metrics
        one_of(metrics.messages, metrics.topic(envelope.topic)).inc()
        metrics.received_bytes.inc(len(payload))
        arrival = Arrival(
            self._observer, self._name or self.remote, envelope.topic, envelope.version, payload, now_ms()
        )
        self._frames += 1
        self._bytes += len(payload)
        self._ingest.queued(len(payload))
        counter = envelope.counter if envelope.withAcknowledge else None
        on_disk = functools.partial(self._on_disk, counter, len(payload))
        self._ingest.journal.submit(arrival, on_disk, as_json=bool(self._as_json))
        self._regulate()

    def _decode(self, data: bytes) -> tuple[pb.WsMessage, bytes]:
        """The envelope and its payload, which is in base64 when the node writes JSON. Raises `OutportError`."""
        if self._as_json is None:
            self._as_json = outport_json.is_json(data)
        if self._as_json:
            return outport_json.decode_envelope(data)
        envelope = outport.decode_envelope(data)
        return envelope, envelope.payload

    def _on_disk(self, counter: int | None, size: int) -> None:
        self._frames -= 1
        self._bytes -= size
        if counter is not None:
            self._ingest.answered.set()
            acknowledge = outport_json.ack_envelope if self._as_json else outport.ack_envelope
            self.send_binary(acknowledge(counter))
        self._regulate()
        self._ingest.queued(-size)

    def _regulate(self) -> None:
        """Stop reading this node while it, or all together, have too much under way."""
        settings = self._ingest.settings
        too_much = self._frames >= _NODE_FRAMES or self._bytes >= settings.max_frame_bytes
        self.pause(too_much or self._ingest.full)

    def reconsider(self) -> None:
        """The common queue has room again."""
        self._regulate()


class Ingest:
    """All nodes of this notifier."""

    def __init__(self, settings: NotifierSettings, journal: Journal, metrics: Metrics) -> None:
        self.settings = settings
        self.journal = journal
        self.metrics = metrics
        self.nodes: set[NodeSession] = set()
        self.answered = asyncio.Event()
        """Whether any node was."""
        self._queued = 0

    async def wait_answered(self, seconds: float) -> None:
        """Return once a node was answered, or when that takes longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.answered.wait()

    def accept(self, request: websocket.Request) -> NodeSession:
        """The session of a node that connects to us. Raises `websocket.Refuse`."""
        if len(self.nodes) >= self.settings.max_nodes:
            raise websocket.Refuse(503, "too many nodes: raise max_nodes")
        return NodeSession(self, self._identify(request))

    def _identify(self, request: websocket.Request) -> str:
        if not self.settings.node_secrets:
            return ""
        shown = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        known = ""
        for name, secret in self.settings.node_secrets.items():
            # All are compared, so that the time taken tells nothing.
            if hmac.compare_digest(shown, secret.reveal().encode()):
                known = name
        if not known:
            raise websocket.Refuse(401, "send the node's secret as Authorization: Bearer <secret>")
        return known

    def joined(self, node: NodeSession) -> None:
        self.nodes.add(node)
        self.metrics.nodes.set(len(self.nodes))

    def left(self, node: NodeSession) -> None:
        self.nodes.discard(node)
        self.metrics.nodes.set(len(self.nodes))

    @property
    def full(self) -> bool:
        """Whether all nodes together have too much waiting for the disk."""
        return self._queued >= self.settings.max_queued_bytes

    def queued(self, size: int) -> None:
        """Count payload bytes that begin (or, negative, cease) to wait for the disk."""
        was_full = self.full
        self._queued += size
        self.metrics.queued_bytes.set(self._queued)
        if was_full != self.full:
            for node in list(self.nodes):
                node.reconsider()

    async def follow(self, url: str) -> None:
        """Keep a connection to a node in server mode, for ever."""
        target = url.rstrip("/").removesuffix(PATH) + PATH
        delay = _RECONNECT[0]
        while True:
            session = NodeSession(self, target)
            try:
                await websocket.connect(target, session, ping_interval=self.settings.ping_interval)
            except websocket.CONNECT_ERRORS as error:
                log.warning("node not reachable", extra={"url": target, "why": str(error)[:200]})
            else:
                delay = _RECONNECT[0]
                await session.wait_closed()
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, _RECONNECT[1])
