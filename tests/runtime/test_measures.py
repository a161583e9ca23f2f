"""Metrics are what their declarations say."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from millrace.runtime.measures import BUILD, PROCESS, Measure, Timings, free_bytes, registry_of


def test_every_service_shows_its_process_and_what_it_is() -> None:
    """A registry has the process's own numbers and the build from the start, and no second series of counters."""
    text = generate_latest(registry_of("relayer")).decode()
    families = list(text_string_to_metric_families(text))
    samples = {sample.name: sample for family in families for sample in family.samples}
    assert set(samples) == {measure.name for measure in PROCESS}
    build = samples[BUILD.name]
    assert build.value == 1 and build.labels["service"] == "relayer"
    assert build.labels["version"] and build.labels["python"].startswith("3.")
    assert samples["process_resident_memory_bytes"].value > 1e6


def test_a_histogram_counts_at_the_upper_end() -> None:
    """What is as long as a bucket's end belongs to it; what is longer than all only to the last; the sum is of all."""
    timings = Timings((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 3.0):
        timings.observe(seconds)
    family = timings.family(Measure("histogram", "x_seconds", "text"))
    values = {(sample.name, sample.labels.get("le", "")): sample.value for sample in family.samples}
    assert values[("x_seconds_bucket", "0.1")] == 2
    assert values[("x_seconds_bucket", "1.0")] == 3
    assert values[("x_seconds_bucket", "+Inf")] == values[("x_seconds_count", "")] == timings.count == 4
    assert abs(values[("x_seconds_sum", "")] - 3.65) < 1e-9


def test_series_of_a_measure() -> None:
    """A counter's name is that of its series, a histogram has three."""
    assert Measure("counter", "a_total", "").series() == ("a_total",)
    assert Measure("counter", "a_total", "").single(2).samples[0].name == "a_total"
    assert Measure("histogram", "a_seconds", "").series() == ("a_seconds_bucket", "a_seconds_count", "a_seconds_sum")


def test_room_on_a_disk(tmp_path: Path) -> None:
    """A folder's disk has some room; of one that is not there nothing is known, which reads as none."""
    assert free_bytes(tmp_path) > 0
    assert free_bytes(tmp_path / "gone") == 0
