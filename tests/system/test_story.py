"""The story of a demonstration: lines as things happen, and a failed check that ends it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from millrace.system.story import CheckFailed, Story


def test_steps_and_checks_are_lines() -> None:
    """A step prints its text, its notes and its time; a check prints what holds."""
    out = io.StringIO()
    story = Story(Console(file=out, width=200))
    story.title("First")
    with story.step("do something") as notes:
        notes.append("it went well")
    story.check("two is two", True)
    text = out.getvalue()
    assert "First" in text
    assert "do something  it went well" in text
    assert "✓ two is two" in text


def test_a_failed_check_ends_the_story() -> None:
    """A check that does not hold is printed as such and raised with its text."""
    out = io.StringIO()
    with pytest.raises(CheckFailed, match="two is three"):
        Story(Console(file=out, width=200)).check("two is three", False)
    assert "✗ two is three" in out.getvalue()
