"""The two references in docs/ are what the code says today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millrace.runtime.settings_reference import settings_of
from millrace.system.reference import PAGES, SETTINGS, main, measures

DOCS = Path(__file__).parents[2] / "docs"
UNITS = ("_seconds", "_bytes", "_egld", "_events", "_blocks", "_messages")


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_is_up_to_date(name: str) -> None:
    """Who changes a setting or a metric runs `./run reference`."""
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run ./run reference"


def test_pages_are_written(tmp_path: Path) -> None:
    """The command writes each page into the folder it is told."""
    main([str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == set(PAGES)


@pytest.mark.parametrize("table", SETTINGS)
def test_no_setting_is_without_a_meaning(table: str) -> None:
    """Each setting says what it is for, in the line below it."""
    assert [setting.name for setting in settings_of(SETTINGS[table]) if not setting.meaning] == []


def test_names_of_metrics() -> None:
    """A metric bears its service's name; counters end in _total, histograms in a unit, nothing in milliseconds."""
    for service, declared in measures().items():
        names = [measure.name for measure in declared]
        assert len(names) == len(set(names))
        for measure in declared:
            assert re.fullmatch(r"[a-z][a-z0-9_]*", measure.name)
            assert measure.name.startswith("process_" if service == "every service" else service) or (
                measure.name.startswith("millrace_")
            )
            assert measure.name.endswith("_total") == (measure.kind == "counter")
            assert measure.kind != "histogram" or measure.name.endswith(UNITS)
            assert not re.search(r"_ms\b|millisecond", measure.name + measure.text, re.IGNORECASE)
            assert ("EGLD" in measure.text) == ("_egld" in measure.name), measure.name
