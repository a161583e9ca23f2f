"""The references of all settings and all metrics, written from the code: `python -m millrace.system.reference docs`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from millrace.aggregator import metrics as aggregator
from millrace.aggregator.settings import AggregatorSettings
from millrace.collector.settings import CollectorSettings
from millrace.console import metrics as console
from millrace.console.settings import ConsoleSettings
from millrace.localnet.settings import LocalnetSettings
from millrace.notifier.metrics import Metrics as NotifierMetrics
from millrace.notifier.settings import NotifierSettings
from millrace.relayer import metrics as relayer
from millrace.relayer.settings import RelayerSettings
from millrace.runtime.measures import PROCESS, TRACES, Measure
from millrace.runtime.settings_reference import settings_of

SETTINGS: dict[str, type[msgspec.Struct]] = {
    "aggregator": AggregatorSettings,
    "relayer": RelayerSettings,
    "notifier": NotifierSettings,
    "pools": CollectorSettings,
    "localnet": LocalnetSettings,
    "console": ConsoleSettings,
}
"""By table of the settings file."""
SETTINGS_START = """\
# All settings

Written from the code by `./run reference`. They come from a TOML file (`--config`, a table per service, and `[common]`
for what several know), from the environment (`MILLRACE_<TABLE>__<NAME>`) and from flags (`--set name=value`), the
later winning. `millrace SERVICE --show-settings` prints what holds."""
METRICS_START = """\
# All metrics

Written from the code by `./run reference`. They are on the operators' port of each service (`metrics_host`,
`metrics_port`) under `/metrics`. Units stand in the names; a histogram has `_bucket`, `_count` and `_sum`. No label
takes a value that a client can choose, but `receiver`: there are 20 of them at a time, for which a key must have paid
the most. What to do when one of them is wrong: [runbooks.md](runbooks.md)."""


def measures() -> dict[str, tuple[Measure, ...]]:
    """All metrics, by service; `every service` are those of the process."""
    return {
        "every service": PROCESS,
        "aggregator": aggregator.DECLARED,
        "relayer": (*relayer.DECLARED, *TRACES),
        "notifier": (*NotifierMetrics().declared, *TRACES),
        "console": console.DECLARED,
    }


def settings_page() -> str:
    """docs/reference-settings.md."""
    lines = [SETTINGS_START]
    for table, kind in SETTINGS.items():
        lines += ["", f"## `[{table}]`", "", "| Setting | Type | Default | Meaning |", "|---|---|---|---|"]
        for setting in settings_of(kind):
            default = f"`{setting.default}`" if setting.default else ""
            lines.append(_row(f"`{setting.name}`", setting.type, default, setting.meaning))
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """docs/reference-metrics.md."""
    lines = [METRICS_START]
    for service, declared in measures().items():
        lines += ["", f"## {service.capitalize()}", "", "| Metric | Type | Labels | Meaning |", "|---|---|---|---|"]
        for measure in declared:
            labels = ", ".join(f"`{label}`" for label in measure.labels)
            lines.append(_row(f"`{measure.name}`", measure.kind, labels, measure.text))
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


PAGES = {"reference-settings.md": settings_page, "reference-metrics.md": metrics_page}


def main(arguments: Iterable[str]) -> None:
    """Write the pages into a folder."""
    (folder,) = arguments
    for name, page in PAGES.items():
        (Path(folder) / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
