"""What alerts and dashboards ask Prometheus for, taken apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import promql_parser as promql
import yaml

from deploy.debian import DEPLOY

GIVEN = {"up": {"job", "instance"}, "ALERTS": {"alertname", "alertstate", "severity"}}
"""Series that Prometheus makes itself."""
TARGET = {"job", "instance"}
"""Labels that every scrape adds."""


class Asked(NamedTuple):
    """One query, and where it stands."""

    place: str
    text: str


def dashboards() -> dict[str, dict[str, Any]]:
    """Every dashboard, by its file's name."""
    return {path.name: json.loads(path.read_text()) for path in sorted((DEPLOY / "grafana/dashboards").iterdir())}


def queries() -> Iterator[Asked]:
    """All of them; Grafana's variables have values."""
    for group in yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text())["groups"]:
        for rule in group["rules"]:
            yield Asked(rule["alert"], rule["expr"])
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                text = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
                yield Asked(f"{name}: {panel['title']}", text)


def wrong(asked: Asked, labels_of: dict[str, set[str]]) -> list[str]:
    """What a query names that no service has: metrics, and labels of its metrics."""
    faults: list[str] = []
    known: set[str] = set()
    wanted: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, promql.VectorSelector):
            labels = labels_of.get(node.name)
            if labels is None:
                faults.append(f"{asked.place}: no service has {node.name}")
                return
            known.update(labels)
            odd = [matcher.name for matcher in node.matchers.matchers if matcher.name not in labels]
            faults.extend(f"{asked.place}: {node.name} has no label {name}" for name in odd)
        elif isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            wanted.update(node.modifier.labels)
        elif isinstance(node, promql.BinaryExpr) and node.modifier and node.modifier.matching:
            wanted.update(node.modifier.matching.labels)

    promql.walk(promql.parse(asked.text), visit)
    return faults + [f"{asked.place}: no metric of it has a label {label}" for label in sorted(wanted - known)]
