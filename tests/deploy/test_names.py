"""Alerts and dashboards name what running services show, and the services show what their tables declare."""

from __future__ import annotations

import io
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from deploy.queries import GIVEN, TARGET, Asked, dashboards, queries, wrong
from millrace.client import Aggregator, Relayer
from millrace.system.demo import Scene, start
from millrace.system.local_chain import LocalChain
from millrace.system.plan import Plan, Ports
from millrace.system.processes import Processes
from millrace.system.reference import measures
from millrace.system.story import Story


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, str]]:
    """`/metrics` of each service of a small system through which a swap has gone."""
    folder = tmp_path_factory.mktemp("system")
    plan = Plan(Ports.free(), folder, poll_seconds=0.5)
    story = Story(Console(file=io.StringIO()))
    async with Processes(folder / "logs") as processes:
        await start(plan, processes, story)
        async with (
            LocalChain(plan.chain_url) as chain,
            Aggregator(plan.aggregator_url) as aggregator,
            Relayer(plan.relayer_url, plan.relayer_ws_url) as relayer,
        ):
            scene = Scene(plan, story, chain, aggregator, relayer)
            await scene.prepare()
            await scene.good_swap()
        ports = plan.ports
        texts = {}
        async with aiohttp.ClientSession() as http:
            for name, port in (
                ("aggregator", ports.aggregator_metrics),
                ("relayer", ports.relayer_metrics),
                ("notifier", ports.notifier_metrics),
                ("console", ports.console_metrics),
            ):
                async with http.get(f"http://127.0.0.1:{port}/metrics") as response:
                    texts[name] = await response.text()
        yield texts


def seen(text: str) -> dict[str, set[str]]:
    """Names of series to their labels; of a family without samples there are none."""
    names: dict[str, set[str]] = {name: set() for name in re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE)}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(sample.labels)
    return names


@pytest.mark.asyncio(loop_scope="module")
async def test_services_show_what_is_declared(shown: dict[str, str]) -> None:
    """Each metric of a service's table is on its /metrics with the labels of the table, and nothing else is."""
    tables = measures()
    for service, text in shown.items():
        declared = {
            name: set(measure.labels) | ({"le"} if name.endswith("_bucket") else set())
            for measure in (*tables["every service"], *tables[service])
            for name in measure.series()
        }
        there = seen(text)
        missing = set(declared) - set(there)
        assert not missing, (service, missing)
        for name, labels in there.items():
            if name in declared and labels:
                assert labels == declared[name], name
        bare = {measure.name for measure in (*tables["every service"], *tables[service])}
        assert set(there) <= set(declared) | bare, service


@pytest.mark.asyncio(loop_scope="module")
async def test_queries_name_what_there_is(shown: dict[str, str]) -> None:
    """Every metric in an alert or dashboard is on a running service's /metrics, every label is one of its labels."""
    labels_of = {name: set(labels) for name, labels in GIVEN.items()}
    tables = measures()
    for text in shown.values():
        for name in seen(text):
            labels_of.setdefault(name, set(TARGET))
    for declared in tables.values():
        for measure in declared:
            for name in measure.series():
                assert name in labels_of, f"{name} is on no service"
                labels_of[name] |= set(measure.labels) | ({"le"} if name.endswith("_bucket") else set())
    asked = list(queries())
    assert len(asked) > 100
    assert [fault for each in asked for fault in wrong(each, labels_of)] == []


def test_the_check_finds_what_is_wrong() -> None:
    """A metric that nobody has is found, and a label that its metric does not have, in matchers and behind `by`."""
    there = {"relayer_ready": {"instance"}}
    assert wrong(Asked("a", "relayer_raedy == 0"), there) == ["a: no service has relayer_raedy"]
    assert wrong(Asked("a", 'relayer_ready{shard="1"}'), there) == ["a: relayer_ready has no label shard"]
    assert wrong(Asked("a", "sum by (shard) (relayer_ready)"), there) == ["a: no metric of it has a label shard"]
    assert wrong(Asked("a", "max_over_time(relayer_raedy[5m])"), there) == ["a: no service has relayer_raedy"]


def test_dashboards_are_whole() -> None:
    """Four dashboards, each with a name of its own, of panels that every Grafana has, none over another."""
    found = dashboards()
    assert {f"millrace-{name}.json" for name in ("overview", "aggregator", "relayer", "notifier")} == set(found)
    for name, dashboard in found.items():
        assert dashboard["uid"] == Path(name).stem
        assert dashboard["schemaVersion"] == 39
        ids = [panel["id"] for panel in dashboard["panels"]]
        assert len(set(ids)) == len(ids)
        taken: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            assert panel["type"] in ("row", "stat", "timeseries", "table")
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            cells = {
                (place["x"] + column, place["y"] + line) for column in range(place["w"]) for line in range(place["h"])
            }
            assert not cells & taken, (name, panel["title"])
            taken |= cells
            assert panel["type"] == "row" or panel["targets"], panel["title"]
