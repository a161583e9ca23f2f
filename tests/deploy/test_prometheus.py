"""What pages an operator: alerts fire at their faults, stay silent otherwise, and say what to do."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import yaml

from deploy.debian import DEPLOY, check

HERE = Path(__file__).parent
FOLDER = DEPLOY / "prometheus"
RULES: dict[str, Any] = yaml.safe_load((FOLDER / "rules.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
RUNBOOKS = (HERE.parents[1] / "docs" / "runbooks.md").read_text()


def test_rules_and_scrapes_are_valid(tmp_path: Path) -> None:
    """promtool takes the rules and the configuration as they are."""
    shutil.copy(FOLDER / "rules.yml", tmp_path)
    text = (FOLDER / "prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(text.replace("/etc/prometheus/millrace/rules.yml", "rules.yml"))
    check("promtool", "check", "config", "prometheus.yml", folder=tmp_path)


def test_alerts_fire_at_recorded_faults(tmp_path: Path) -> None:
    """Each alert fires at its fault and not before it; an ordinary hour has none."""
    shutil.copy(FOLDER / "rules.yml", tmp_path)
    shutil.copy(HERE / "alerts.yml", tmp_path)
    check("promtool", "test", "rules", "alerts.yml", folder=tmp_path)


def test_losses_are_told_under_the_first_policy() -> None:
    """`relayer_lost_egld` stays within `loss_per_hour`: the alert's bar and fault lie below the first policy's."""
    most = tomllib.loads((DEPLOY / "policy.toml").read_text())["budget"]["loss_per_hour"] / 10**18
    (rule,) = (rule for rule in ALERTS if rule["alert"] == "RelayerLosesOnFailures")
    assert float(rule["expr"].removeprefix("relayer_lost_egld > ")) < most
    (fault,) = (
        test for test in yaml.safe_load((HERE / "alerts.yml").read_text())["tests"] if test["name"] == rule["alert"]
    )
    for first, step, count in re.findall(r"([\d.]+)(?:\+([\d.]+))?x(\d+)", fault["input_series"][0]["values"]):
        assert float(first) + float(step or 0) * int(count) < most


def test_no_alert_is_without_a_fault() -> None:
    """Every alert has a recorded fault of its name, silent first and firing then."""
    tests = {test["name"]: test for test in yaml.safe_load((HERE / "alerts.yml").read_text())["tests"]}
    assert set(tests) == {rule["alert"] for rule in ALERTS} | {"all is well"}
    for rule in ALERTS:
        before, after = tests[rule["alert"]]["promql_expr_test"]
        assert rule["alert"] in before["expr"] and before["exp_samples"] == []
        assert rule["alert"] in after["expr"] and after["exp_samples"]


def test_every_alert_says_what_to_do() -> None:
    """Each has a severity, a summary, and a section among the run-books with meaning, looks and deeds; none has two."""
    names = [rule["alert"] for rule in ALERTS]
    assert len(set(names)) == len(names)
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", RUNBOOKS, re.MULTILINE | re.DOTALL))
    assert list(sections) == names
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"
        for part in ("**Means.**", "**Look.**", "**Do.**"):
            assert part in sections[rule["alert"]], (rule["alert"], part)
