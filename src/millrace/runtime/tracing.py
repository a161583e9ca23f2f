"""One transaction followed through the services: W3C trace context in, one record (span) for each thing done out.

What is traced is sampled and bounded, and nothing waits for it: a record is a line of the log and, with the extra
`otel`, an entry in the queue of a thread that exports it. While tracing is off nothing of that is loaded, and `begin`
says `None`.
"""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from millrace.runtime import extras, logs
from millrace.runtime.settings import Rate
from millrace.runtime.spans import Context, Export, Span, parse

log = logging.getLogger(__name__)

HEADER = "traceparent"
BURST_SECONDS = 5.0
"""Traces that may be begun at once after a pause: as many as in so many seconds."""


class TracingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What each service that traces can be told."""

    tracing: Literal["off", "log", "otlp"] = "off"
    """What becomes of traces: nothing, lines in the log, or these and a collector of OpenTelemetry (needs the extra
    `otel`)."""
    trace_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the submissions without a `traceparent` that are traced all the same; with one its sampled flag says."""
    trace_rate: Rate = 20.0
    """Traces begun a second, at most; what is beyond is served like all else, and not traced."""
    otlp_url: str = "http://127.0.0.1:4318/v1/traces"
    """Collector that `tracing = "otlp"` sends to (HTTP, protobuf); headers by `OTEL_EXPORTER_OTLP_HEADERS`."""


class Trace:
    """What one request makes this service do: a span that `end` records, and those within it.

    As a context manager it has its id in all lines that are logged within.
    """

    __slots__ = ("_began_ns", "_name", "_parent_id", "_record", "context", "followed")

    def __init__(self, name: str, parent: Context | None, record: Export, began_ns: int = 0) -> None:
        trace_id = secrets.token_hex(16) if parent is None else parent.trace_id
        self.context = Context(trace_id, secrets.token_hex(8), True)
        """What others name as theirs who go on with it."""
        self.followed = 0
        """How much of what it brought is followed by itself, for whoever bounds that."""
        self._name = name
        self._parent_id = "" if parent is None else parent.span_id
        self._record = record
        self._began_ns = began_ns or time.time_ns()

    def __enter__(self) -> None:
        logs.trace_id.set(self.context.trace_id)

    def __exit__(self, *_: object) -> None:
        logs.trace_id.set("")

    def span(self, name: str, began_ns: int, **attributes: str | int) -> None:
        """Something within it that began then has ended."""
        trace_id, parent_id, _ = self.context
        self._record(Span(name, trace_id, secrets.token_hex(8), parent_id, began_ns, time.time_ns(), attributes))

    def end(self, attributes: Mapping[str, str | int], ended_ns: int = 0) -> None:
        """All that was asked for is done; now, if no other time is given."""
        trace_id, span_id, _ = self.context
        ended_ns = ended_ns or time.time_ns()
        self._record(Span(self._name, trace_id, span_id, self._parent_id, self._began_ns, ended_ns, dict(attributes)))


class _Stage:
    """A part of a trace, as long as its `with` lasts."""

    __slots__ = ("_began_ns", "_name", "_trace")

    def __init__(self, trace: Trace, name: str) -> None:
        self._trace = trace
        self._name = name

    def __enter__(self) -> None:
        self._began_ns = time.time_ns()

    def __exit__(self, *_: object) -> None:
        self._trace.span(self._name, self._began_ns)


UNTRACED: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
"""Where there is no trace to enter."""


def stage(trace: Trace | None, name: str) -> contextlib.AbstractContextManager[None]:
    """Record how long a block of code takes, if it is traced."""
    return UNTRACED if trace is None else _Stage(trace, name)


class Tracer:
    """Decides what is traced, and takes what is recorded. One in each service."""

    def __init__(self, settings: TracingSettings, export: Export | None = None) -> None:
        """`export` gets each span, beside the log."""
        self.on = settings.tracing != "off"
        self._share = settings.trace_share
        self._rate = settings.trace_rate
        self._most = self._room = max(1.0, self._rate * BURST_SECONDS)
        self._seen = time.monotonic()
        self._export = export
        self.begun = 0
        self.left_out = 0
        """What was more than `trace_rate`."""
        self.lost = 0
        """Spans that could not be recorded."""

    def begin(
        self, name: str, traceparents: Sequence[str], *, waited: float = 0.0, sample: bool = False
    ) -> Trace | None:
        """Follow a request with these `traceparent` headers, if it is one that is followed; two of them are none.

        It came `waited` seconds ago. With `sample` a share of those without one is followed, too.
        """
        if not self.on:
            return None
        parent = parse(traceparents[0]) if len(traceparents) == 1 else None
        if parent is None:
            if not sample or not self._share or random.random() >= self._share:
                return None
        elif not parent.sampled:
            return None
        if not self._has_room():
            self.left_out += 1
            return None
        self.begun += 1
        return Trace(name, parent, self._record, time.time_ns() - int(waited * 1e9))

    def _has_room(self) -> bool:
        now = time.monotonic()
        self._room = min(self._most, self._room + (now - self._seen) * self._rate)
        self._seen = now
        if self._room < 1:
            return False
        self._room -= 1
        return True

    def _record(self, span: Span) -> None:
        """Whatever goes wrong here must not be in the way of what is recorded: that is money."""
        try:
            _tell(span)
            if self._export is not None:
                self._export(span)
        except Exception:
            self.lost += 1


def _tell(span: Span) -> None:
    took = round((span.ended_ns - span.began_ns) / 1e6, 3)
    facts = {"span": span.name, "trace_id": span.trace_id, "span_id": span.span_id, "took_ms": took}
    log.info("span", extra={**facts, **span.attributes})


def check(settings: TracingSettings) -> None:
    """Raises `OSError` where the extra `otel` is wanted and missing."""
    if settings.tracing == "otlp" and not extras.is_installed("otel"):
        raise OSError(f'tracing = "otlp" needs packages that are not installed: {extras.remedy("otel")}')


@contextlib.contextmanager
def tracing(service: str, settings: TracingSettings) -> Iterator[Tracer]:
    """The tracer of a service, and whatever exports its spans, until the service ends.

    Raises `OSError` where the extra `otel` is wanted and missing.
    """
    check(settings)
    if settings.tracing != "otlp":
        yield Tracer(settings)
        return
    from millrace.runtime.otlp import exporting

    with exporting(service, settings.otlp_url) as export:
        yield Tracer(settings, export)


def headers_of(headers: Any) -> Sequence[str]:
    """The `traceparent` lines of a request's headers."""
    found: Sequence[str] = headers.getall(HEADER, ())
    return found
