"""A relayer's part of a policy whose keys several use: all parts together are no more than the whole."""

from __future__ import annotations

import pytest

from millrace.relayer.rules.policy import loads
from millrace.relayer.rules.seats import least, part_of, read_sums, sums_of, too_small


@pytest.mark.parametrize("seats", [1, 2, 3, 7])
def test_parts_are_no_more_than_the_whole(seats: int) -> None:
    """Every sum is divided, rounded down; who is alone has all of it."""
    whole = loads("[budget]\nper_minute = 100\nat_risk = 10\n[people.alice]\nper_day = 20\n")
    part = part_of(whole, seats, 60.0, 8, 8 * seats)
    for sums, of_part in (
        (whole.budget, part.budget),
        (whole.quotas, part.quotas),
        (whole.people["alice"], part.people["alice"]),
    ):
        for name in ("per_minute", "per_hour", "per_day", "at_risk", "loss_per_hour", "sender_per_hour", "ip_per_hour"):
            if hasattr(sums, name):
                assert getattr(of_part, name) == getattr(sums, name) // seats
    assert part.caps == whole.caps and part.lists == whole.lists
    others = 10 - 10 // seats + 2 * (100 - 100 // seats)
    assert part.budget.floor_balance == others, "what the others may have signed, and sign before it is heard of"


def test_budgets_follow_portions_and_quotas_do_not() -> None:
    """Who holds three quarters has so much of every sum of a budget, and leaves what the other quarter may sign."""
    whole = loads("[budget]\nper_minute = 100\nat_risk = 10\n[people.alice]\nper_day = 20\n")
    large, small = (part_of(whole, 2, 60.0, held, 128) for held in (96, 32))
    assert (large.budget.per_minute, small.budget.per_minute) == (75, 25)
    assert (large.budget.at_risk, small.budget.at_risk) == (7, 2)
    assert (large.people["alice"].per_day, small.people["alice"].per_day) == (15, 5)
    assert large.quotas == small.quotas and large.quotas.sender_per_hour == whole.quotas.sender_per_hour // 2
    assert large.budget.floor_balance == 10 - 7 + 2 * 25


@pytest.mark.parametrize("seats", [2, 3, 7])
def test_a_part_of_a_quota_is_enough_for_one_transaction(seats: int) -> None:
    """However few a policy allows at once or an hour, who may have one has it, wherever they ask; 0 is nobody's."""
    names = ("sender_per_hour", "ip_per_hour", "receiver_per_hour", "sender_at_risk_sign_only", "ip_at_risk_sign_only")
    numbers = ("sender_in_flight", "ip_in_flight")
    for whole in (0, 1, 9, 10, 11, 11 * seats):
        text = "[caps]\nfee = 10\n[quotas]\n" + "".join(f"{name} = {whole}\n" for name in (*names, *numbers))
        part = part_of(loads(text), seats, 60.0, 64, 64 * seats).quotas
        assert {getattr(part, name) for name in names} == {max(min(whole, 10), whole // seats)}
        assert {getattr(part, name) for name in numbers} == {max(min(whole, 1), whole // seats)}


def test_sums_whose_parts_pay_for_too_little() -> None:
    """Of a budget no part may be more than its part: which sums are too small for so many seats is told."""
    policy = loads(
        "[caps]\nfee = 10\n[budget]\nper_minute = 39\nat_risk = 40\nloss_per_hour = 9\n[people.alice]\nper_day = 10\n"
    )
    assert too_small(policy, 4) == ["budget.per_minute", "people.alice.per_day"]
    assert too_small(policy, 1) == []


def test_of_policies_that_differ_the_smallest_sum_holds() -> None:
    """Whichever policy is whose: else all parts together are more than any of them allows."""
    texts = (
        "[budget]\nper_minute = 100\nat_risk = 10\n[people.alice]\nper_day = 20\n[people.bob]\nper_day = 9\n",
        "[budget]\nper_minute = 70\nat_risk = 12\n[people.alice]\nper_day = 30\n",
    )
    first, second = map(loads, texts)
    for mine, other in ((first, second), (second, first)):
        both = least(mine, [read_sums(sums_of(other)), read_sums(sums_of(mine))])
        assert (both.budget.per_minute, both.budget.at_risk, both.people["alice"].per_day) == (70, 10, 20)
        assert both.caps == mine.caps and both.people.keys() == mine.people.keys()
    assert least(first, [read_sums(sums_of(second))]).people["bob"].per_day == 9, "only one knows bob"
    large = loads("[budget]\nper_day = 1000000000000000000000000000000\n")
    assert least(large, [read_sums(sums_of(large))]) == large
    with pytest.raises(ValueError, match="malformed"):
        read_sums("no json")


def test_programmes_are_not_divided() -> None:
    """All relayers of a key count together what a programme paid: each has the whole of it."""
    whole = loads('[programmes.p]\nuntil = 2030-01-01T00:00:00Z\nbudget = 9\nper_user = 5\nfunctions = ["swap"]\n')
    assert part_of(whole, 2, 60.0, 64, 128).programmes == whole.programmes
