"""What takes OpenTelemetry's spans over HTTP (OTLP) and decodes them by the official protobuf definitions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import decompress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue


class Received(NamedTuple):
    """A span as it came."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    attributes: dict[str, str]


class Receiver:
    """It listens in threads of its own: services that end wait for it in the event loop."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.url = ""

    def take(self, body: bytes) -> None:
        """One request. Raises `DecodeError`."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _texts(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                for span in scope.spans:
                    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                    times = span.start_time_unix_nano, span.end_time_unix_nano
                    self.spans.append(Received(service, span.name, *ids, *times, _texts(span.attributes)))


def _texts(pairs: object) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:  # type: ignore[attr-defined]
        assert isinstance(pair, KeyValue)
        kind = pair.value.WhichOneof("value")
        found[pair.key] = str(getattr(pair.value, kind)) if kind else ""
    return found


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver that listens."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_right = self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
            if is_right:
                receiver.take(decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200 if is_right else 400)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nothing is said."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            serving.join()
