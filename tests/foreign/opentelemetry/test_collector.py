"""What services send of a trace, taken by the OpenTelemetry collector itself."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace.runtime import otlp
from millrace.runtime.tracing import Tracer, TracingSettings

pytestmark = pytest.mark.foreign
HERE = Path(__file__).parent
TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONFIG = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters: {{debug: {{verbosity: detailed}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{traces: {{receivers: [otlp], exporters: [debug]}}}}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collector with one receiver and one exporter, built with Go."""
    go = shutil.which("go")
    assert go, "Go is needed, and the module proxy the first time"
    built = tmp_path_factory.mktemp("collector") / "collector"
    subprocess.run([go, "build", "-o", built, "."], cwd=HERE, check=True)
    return built


@pytest.fixture
def collector(program: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Its address, and the file that it writes what came into."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "config.yaml").write_text(CONFIG.format(port=port))
    said = tmp_path / "said"
    with said.open("wb") as output:
        running = subprocess.Popen([program, "--config", tmp_path / "config.yaml"], stdout=output, stderr=output)
    try:
        until(lambda: "Everything is ready" in said.read_text(), running, said)
        yield f"http://127.0.0.1:{port}/v1/traces", said
    finally:
        running.terminate()
        running.wait()


def until(holds: Callable[[], bool], running: subprocess.Popen[bytes] | None, said: Path) -> None:
    """Wait until this holds; what the collector said where that never comes."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline and (running is None or running.poll() is None), said.read_text()
        time.sleep(0.05)


def test_the_collector_takes_what_services_send(collector: tuple[str, Path]) -> None:
    """Every span arrives once, with its service, its trace, its parent and its attributes."""
    url, said = collector
    for service in ("aggregator", "relayer", "notifier"):
        with otlp.exporting(service, url) as export:
            trace = Tracer(TracingSettings(tracing="otlp"), export).begin(service, (f"00-{TRACE}-{CLIENT}-01",))
            assert trace is not None
            trace.end({"status": 200})
    until(lambda: said.read_text().count("Span #") == 3, None, said)
    text = said.read_text()
    assert set(re.findall(r"service.name: Str\((.*)\)", text)) == {
        "millrace-aggregator", "millrace-relayer", "millrace-notifier"
    }  # fmt: skip
    assert re.findall(r"Trace ID +: (\w+)", text) == 3 * [TRACE]
    assert re.findall(r"Parent ID +: (\w+)", text) == 3 * [CLIENT]
    assert re.findall(r"    Name +: (\w+)", text) == ["aggregator", "relayer", "notifier"]
    assert text.count("status: Int(200)") == 3
