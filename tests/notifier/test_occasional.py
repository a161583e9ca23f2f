"""Log lines that peers provoke."""

from __future__ import annotations

import logging

import pytest

from millrace.notifier import occasional


def test_one_a_second(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a second a line is written once; the next one tells how many were left out."""
    now = 100.0
    monkeypatch.setattr(occasional.time, "monotonic", lambda: now)
    tell = occasional.OccasionalLog(logging.getLogger("x"), logging.WARNING, "node gone")
    for _ in range(1000):
        tell(code=1)
    now = 101.5
    tell(code=2)
    first, second = caplog.records
    assert (first.code, second.code, second.left_out) == (1, 2, 999)  # type: ignore[attr-defined]
    assert not hasattr(first, "left_out")
