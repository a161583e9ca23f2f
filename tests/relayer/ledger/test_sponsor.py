"""What of all portions of a policy's sums a relayer needs for what it used."""

from __future__ import annotations

from typing import Any

from relayer_support import NETWORK

from millrace.relayer.journal.portions import Need
from millrace.relayer.ledger.budget import Spender
from millrace.relayer.ledger.sponsor import Sponsor
from millrace.relayer.rules.policy import loads

SUMS = "per_minute = 1280\nper_hour = 12800\nper_day = 128000\nat_risk = 1280\nat_risk_sign_only = 640\n"


def test_fees_that_surely_need_one_portion_more_are_those_of_the_smallest_sum() -> None:
    """Also before any key has used something: its first fees may come at once, and be its last."""
    journal: Any = None
    sponsor = Sponsor(NETWORK, journal, lambda: 0.0, lambda: 0)
    whole = loads(f"[budget]\n{SUMS}loss_per_hour = 1280\n")
    assert sponsor.need(whole, 128) == Need(0, 5)
    sponsor.budgets.reserve(Spender(b"key", b"sender"), 11, 0.0, whole.budget, whole.quotas)
    assert sponsor.need(whole, 128) == Need(2, 5)
    with_people = loads(f"[budget]\n{SUMS}[people.alice]\nper_day = 256\n")
    assert sponsor.need(with_people, 128) == Need(2, 2)
