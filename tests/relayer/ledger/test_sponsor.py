"""What of all portions of a policy's sums a relayer needs for what it used."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from relayer_support import NETWORK

from millrace.relayer.journal.portions import Need, Portions
from millrace.relayer.ledger.budget import Spender
from millrace.relayer.ledger.sponsor import SHORT_SECONDS, Sponsor
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules import policy
from millrace.relayer.rules.policy import loads
from millrace.relayer.rules.seats import part_of

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


@pytest.mark.parametrize("person", ["", "alice"])
@pytest.mark.parametrize("name", policy.SUMS)
def test_what_was_used_of_each_sum_is_covered(name: str, person: str) -> None:
    """What is at risk, what was spent, and what is lost or may be: nothing of it is given to another relayer."""
    journal: Any = None
    sponsor = Sponsor(NETWORK, journal, lambda: 0.0, lambda: 0)
    sums = "".join(f"{each} = {1280 if each == name else 10**24}\n" for each in policy.SUMS)
    large = "".join(f"{each} = {10**24}\n" for each in policy.SUMS)
    whole = loads(f"[budget]\n{large}[people.alice]\n{sums}" if person else f"[budget]\n{sums}")
    who = Spender(b"key", b"sender", "ip")
    if person:
        who = Spender(b"key", b"sender", person=person, own=whole.people[person].budget)
    budgets, sign_only = sponsor.budgets, name == "at_risk_sign_only"

    def used(failed: bool) -> list[int]:
        reservation = budgets.reserve(who, 55, 0.0, whole.budget, whole.quotas, sign_only=sign_only)
        needs = [sponsor.need(whole, 128).portions]
        undecided = budgets.settle(reservation, 41, 0.0)
        needs.append(sponsor.need(whole, 128).portions)
        budgets.decide(undecided, 0.0, failed=failed)
        return [*needs, sponsor.need(whole, 128).portions]

    spent, risked = name.startswith("per_"), name.startswith("at_risk")
    # Of 1280, 10 for each portion, 55 need six, 41 need five, and 82 nine; of the sums that are large one covers all.
    undecided = 1 if risked or (person and name == "loss_per_hour") else 5  # of a person only what failed is lost
    assert used(failed=True) == [6, undecided, 1 if risked else 5]
    assert used(failed=False)[-1] == (9 if spent else 1 if risked else 5)


def test_what_was_used_of_a_sum_that_is_nothing_now_keeps_all() -> None:
    """An operator may give it back: what covers what was used must not be another relayer's by then."""
    journal: Any = None
    sponsor = Sponsor(NETWORK, journal, lambda: 0.0, lambda: 0)
    before, now = (loads(f"[budget]\n{SUMS}loss_per_hour = {sum_}\n") for sum_ in (1280, 0))
    assert sponsor.need(now, 128) == Need(0, 5)
    sponsor.budgets.reserve(Spender(b"key", b"sender"), 11, 0.0, before.budget, before.quotas)
    assert sponsor.need(now, 128) == Need(2, 5, keeps=True)


def test_who_refused_a_stranger_wants_more() -> None:
    """Strangers may use a part of what is held: once that is gone more is wanted for a while, though some is free."""
    journal: Any = None
    times = [0.0]
    sponsor = Sponsor(NETWORK, journal, lambda: times[0], lambda: 0)
    whole = loads(f"[budget]\n{SUMS}loss_per_hour = 1280\n[people.alice]\nper_day = 256\n")
    held = msgspec.structs.replace(whole, budget=part_of(whole, 2, 60.0, 64, 128).budget)
    strangers = msgspec.structs.replace(whole.strangers, together_percent=whole.together_percent)
    portions = Portions()
    portions.begin(64)
    portions.need = lambda: sponsor.need(whole, 128)
    with pytest.raises(Refused, match="budget exhausted"):
        for number in range(200):
            who = Spender(b"key", b"%d" % number, f"ip{number}", strangers=strangers, least=10)
            assert not portions.settle()
            sponsor.budgets.reserve(who, 10, 0.0, held.budget, whole.quotas)
    assert sponsor.need(whole, 128).portions <= 48 and portions.settle()
    times[0] = SHORT_SECONDS
    assert not portions.settle()
