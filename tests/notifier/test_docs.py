"""The page about the notifier names everything an operator can set or see."""

from __future__ import annotations

import re
from pathlib import Path

from millrace.notifier.metrics import Metrics
from millrace.notifier.settings import NotifierSettings

PAGE = (Path(__file__).parents[2] / "docs" / "notifier.md").read_text()
NAMES = set(re.findall(r"`([a-z_]+)(?:\{[a-z,]+\})?`", PAGE))


def test_every_setting() -> None:
    """Every setting stands in the page."""
    assert set(NotifierSettings.__struct_fields__) <= NAMES


def test_every_metric() -> None:
    """Every metric stands in the page."""
    names = {measure.name.removeprefix("notifier_").removesuffix("_total") for measure in Metrics().declared}
    assert names <= NAMES
