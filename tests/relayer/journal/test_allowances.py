"""What is asked of the claims' server for programmes: nothing that it has just refused, and nothing beyond a budget."""

from __future__ import annotations

import pytest

from millrace.relayer.journal import allowances
from millrace.relayer.journal.allowances import FULL_SECONDS, Allowances
from millrace.relayer.journal.common_programmes import Limits, Total

LIMITS = Limits(100, 2)


def test_who_was_refused_is_asked_about_again_later() -> None:
    """For a minute the sender is a stranger to that programme, others and other programmes are not concerned."""
    now = 0.0
    told = Allowances(lambda: now)
    told.refuse("launch", b"a")
    assert not told.has_room("launch", LIMITS, b"a", 10)
    assert told.has_room("launch", LIMITS, b"b", 10) and told.has_room("other", LIMITS, b"a", 10)
    now = FULL_SECONDS
    assert told.has_room("launch", LIMITS, b"a", 10) and not told.full


def test_a_budget_that_others_have_spent_is_spent() -> None:
    """What the server told of all counts; of a programme it told nothing of nothing is spent."""
    told = Allowances()
    told.hear([Total("launch", 91, 5)])
    assert told.has_room("launch", LIMITS, b"a", 9) and not told.has_room("launch", LIMITS, b"a", 10)
    assert told.has_room("other", LIMITS, b"a", 100) and not told.has_room("other", Limits(100, 0), b"a", 1)


def test_few_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the bound the one refused first is asked about again."""
    monkeypatch.setattr(allowances, "MAX_FULL", 2)
    told = Allowances()
    for sender in (b"a", b"b", b"a", b"c"):
        told.refuse("launch", sender)
    assert told.full == 2 and told.has_room("launch", LIMITS, b"b", 1) and not told.has_room("launch", LIMITS, b"a", 1)
