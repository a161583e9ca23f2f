"""Spans to an OpenTelemetry collector. Loaded only where that is asked for: it takes 0.2 s and 40 MB."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from millrace.runtime.spans import Span

QUEUE, BATCH, EVERY_MS = 2_048, 512, 2_000
"""Spans that wait, at most; the oldest make room. So many go together, at the latest after so many milliseconds."""
TIMEOUT_SECONDS = 5.0
"""Of one export."""
STOP_SECONDS = 2.0
"""That a service waits at its end for the last spans to go."""
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


@contextlib.contextmanager
def exporting(service: str, url: str) -> Iterator[Callable[[Span], None]]:
    """What takes spans for the collector at `url`. A collector that is away costs spans, and a line now and then."""
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    with processing(service, OTLPSpanExporter(endpoint=url, timeout=TIMEOUT_SECONDS)) as export:
        yield export


@contextlib.contextmanager
def processing(service: str, exporter: SpanExporter) -> Iterator[Callable[[Span], None]]:
    """The same for any exporter, which works in a thread of its own."""
    processor: SpanProcessor = BatchSpanProcessor(
        exporter, max_queue_size=QUEUE, max_export_batch_size=BATCH, schedule_delay_millis=EVERY_MS
    )
    resource = Resource({"service.name": f"millrace-{service}", "host.name": socket.gethostname()})
    try:
        yield lambda span: processor.on_end(_readable(span, resource))
    finally:
        stopping = threading.Thread(target=processor.shutdown, daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    """A span as OpenTelemetry has it."""
    trace_id = int(span.trace_id, 16)
    parent = SpanContext(trace_id, int(span.parent_id, 16), True, _SAMPLED) if span.parent_id else None
    return ReadableSpan(
        span.name,
        context=SpanContext(trace_id, int(span.span_id, 16), False, _SAMPLED),
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        kind=SpanKind.INTERNAL,
        start_time=span.began_ns,
        end_time=span.ended_ns,
    )
