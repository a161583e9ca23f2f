"""What is traced, what becomes of it, and that nothing of it is there while it is off."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest
from multidict import CIMultiDict
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from millrace.runtime import extras, logs, otlp
from millrace.runtime.measures import registry_of
from millrace.runtime.spans import Span
from millrace.runtime.tracing import UNTRACED, Tracer, TracingSettings, headers_of, stage, tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = PARENT[:-2] + "00"


@pytest.fixture(autouse=True)
def restore_root_logger() -> Iterator[None]:
    """Give the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_off_is_off() -> None:
    """Without the setting nothing is followed, whoever asks; a stage of nothing does nothing."""
    tracer = Tracer(TracingSettings(trace_share=1.0))
    assert not tracer.on and tracer.begin("relay", (PARENT,), sample=True) is None
    assert stage(None, "verify") is UNTRACED


def test_nothing_is_loaded_that_is_not_used() -> None:
    """Neither the settings of a service nor tracing into the log loads OpenTelemetry, or even Prometheus."""
    code = """
import sys
import threading
from millrace.aggregator.settings import AggregatorSettings
from millrace.relayer.settings import RelayerSettings
from millrace.runtime.tracing import tracing
with tracing("relayer", RelayerSettings(tracing="log")) as tracer:
    assert tracer.on
print([name for name in sys.modules if name.startswith(("opentelemetry", "prometheus_client"))])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_sampled_flag_decides() -> None:
    """A traced request names its caller's trace and span; one that its caller does not trace is not traced here."""
    spans: list[Span] = []
    tracer = Tracer(TracingSettings(tracing="log", trace_share=1.0), spans.append)
    trace = tracer.begin("relay", (PARENT,))
    assert trace is not None
    with stage(trace, "journal"):
        pass
    trace.end({"transactions": 1})
    inner, outer = spans
    assert (outer.trace_id, outer.parent_id) == (PARENT[3:35], PARENT[36:52])
    assert (inner.name, inner.trace_id, inner.parent_id) == ("journal", outer.trace_id, outer.span_id)
    assert outer.began_ns <= inner.began_ns <= inner.ended_ns <= outer.ended_ns
    assert tracer.begin("relay", (UNSAMPLED,), sample=True) is None


@pytest.mark.parametrize("lines", [(), ("nonsense",), (PARENT, PARENT), (PARENT + "-x",)])
def test_what_is_no_context_is_as_if_it_were_not_there(lines: tuple[str, ...]) -> None:
    """Such a request begins a trace of its own if it is sampled, and none otherwise."""
    tracer = Tracer(TracingSettings(tracing="log", trace_share=1.0))
    assert tracer.begin("quote", lines) is None
    trace = tracer.begin("relay", lines, sample=True)
    assert trace is not None and trace.context.trace_id != PARENT[3:35]
    assert Tracer(TracingSettings(tracing="log")).begin("relay", lines, sample=True) is None


def test_the_rate_is_bounded_and_what_is_left_out_is_counted() -> None:
    """A client that asks for traces without end gets as many as the setting allows, and its answers all the same."""
    tracer = Tracer(TracingSettings(tracing="log", trace_rate=0.001))
    assert [tracer.begin("relay", (PARENT,)) is not None for _ in range(3)] == [True, False, False]
    tracer = Tracer(TracingSettings(tracing="log", trace_rate=2.0))
    begun = [tracer.begin("relay", (PARENT,)) for _ in range(1_000)]
    assert 10 <= tracer.begun == sum(trace is not None for trace in begun) < 500
    assert tracer.left_out == 1_000 - tracer.begun
    shown = {
        sample.name: sample.value for family in registry_of("relayer", tracer).collect() for sample in family.samples
    }
    assert shown["millrace_traces_begun_total"] == tracer.begun
    assert shown["millrace_traces_left_out_total"] == tracer.left_out


def test_what_cannot_be_recorded_is_in_nobodys_way() -> None:
    """An exporter that fails, or an attribute that no line can have, costs spans, which are counted."""

    def broken(_: Span) -> None:
        raise RuntimeError("the exporter has ended")

    tracer = Tracer(TracingSettings(tracing="log"), broken)
    trace = tracer.begin("relay", (PARENT,))
    assert trace is not None
    with trace, stage(trace, "journal"):
        pass
    trace.end({"message": "which a record of a log has already"})
    assert tracer.lost == 2


def test_lines_bear_the_id() -> None:
    """Whatever is logged within a trace has its id, and so has the line of each span; outside there is none."""
    stream = io.StringIO()
    logs.configure("relayer", stream=stream)
    trace = Tracer(TracingSettings(tracing="log")).begin("relay", (PARENT,))
    assert trace is not None
    with trace:
        logging.getLogger("millrace.test").warning("within")
    trace.end({"refused": 0})
    logging.getLogger("millrace.test").warning("after")
    within, span, after = map(json.loads, stream.getvalue().splitlines())
    assert within["trace_id"] == span["trace_id"] == PARENT[3:35] and "trace_id" not in after
    assert span["event"] == "span" and span["span"] == "relay" and span["refused"] == 0 and span["took_ms"] >= 0


def test_headers_are_read_whatever_their_case() -> None:
    """A header's name has no case; each of its lines is seen."""
    assert headers_of(CIMultiDict([("TraceParent", "a"), ("traceparent", "b")])) == ["a", "b"]


def test_spans_reach_an_exporter() -> None:
    """OpenTelemetry is told ids, parents, times and attributes as they are, and of which service."""
    memory = InMemorySpanExporter()
    with otlp.processing("relayer", memory) as export:
        trace = Tracer(TracingSettings(tracing="otlp"), export).begin("relay", (PARENT,))
        assert trace is not None
        trace.span("journal", 5)
        trace.end({"transactions": 2}, ended_ns=7)
    inner, outer = memory.get_finished_spans()
    assert outer.context is not None and outer.parent is not None and inner.parent is not None
    assert f"{outer.context.trace_id:032x}" == PARENT[3:35] and f"{outer.parent.span_id:016x}" == PARENT[36:52]
    assert inner.parent.span_id == outer.context.span_id and inner.start_time == 5 and outer.end_time == 7
    assert outer.attributes == {"transactions": 2}
    assert outer.resource.attributes["service.name"] == "millrace-relayer"


def test_a_collector_that_stands_still_holds_up_nobody() -> None:
    """Beyond the queue spans are lost; neither who records nor who stops waits for the collector."""
    asked, go_on = threading.Event(), threading.Event()

    class Stuck(SpanExporter):
        """An exporter whose collector does not answer."""

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            asked.set()
            go_on.wait()
            return SpanExportResult.SUCCESS

    with otlp.processing("relayer", Stuck()) as export:
        for number in range(2 * otlp.QUEUE):
            export(Span("span", PARENT[3:35], f"{number + 1:016x}", "", 1, 2, {}))
        assert asked.wait(30)
    assert not go_on.is_set()
    go_on.set()


def test_the_extra_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is missing a service that is to export does not start, and says how it comes."""
    monkeypatch.setitem(extras.MODULES, "otel", ("no_such_package",))
    with (
        pytest.raises(OSError, match=re.escape(extras.remedy("otel"))),
        tracing("relayer", TracingSettings(tracing="otlp")),
    ):
        pass


def test_a_collector_that_is_away_does_not_stop_a_service() -> None:
    """A service starts and ends without its collector."""
    settings = TracingSettings(tracing="otlp", otlp_url="http://127.0.0.1:9/v1/traces")
    before = set(threading.enumerate())
    with tracing("notifier", settings) as tracer:
        trace = tracer.begin("block", (PARENT,))
        assert trace is not None
        trace.end({})
    for thread in set(threading.enumerate()) - before:
        thread.join(60)  # while it tries again it throws dice, in the middle of another test
        assert not thread.is_alive()
