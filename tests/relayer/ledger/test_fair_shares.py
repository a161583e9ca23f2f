"""Shares of pools: strangers together, each address, and known people beside them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.relayer.ledger.budget import UNDECIDED_SECONDS, Budgets, Reservation, Spender
from millrace.relayer.ledger.windows import DAY, HOUR, MINUTE
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.policy import Budget, Person, Quotas, Strangers
from millrace.relayer.rules.strangers import Part

KEY = b"k"
WIDE = Quotas(**{name: 10**12 for name in Quotas.__struct_fields__ if "per_hour" in name or "sign_only" in name})
POOLS = ("per_minute", "per_hour", "per_day", "at_risk", "at_risk_sign_only", "loss_per_hour")
PERSON = Person(**dict.fromkeys(POOLS, 10**12))


def budget_of(pool: str, size: int) -> Budget:
    return Budget(**dict.fromkeys(POOLS, 10**15) | {pool: size})


class Desk:
    """Budgets of one key with one small pool, and who asks."""

    def __init__(self, pool: str, size: int, together: int = 75, percent: int = 25, least: int = 0) -> None:
        self.budgets = Budgets()
        self.budget = budget_of(pool, size)
        self.strangers = Strangers(together, percent, receiver_percent=100, function_percent=100)
        self.least = least
        self.now = 0.0

    def ask(self, who: str, fee: int = 1) -> Reservation | None:
        """Reserve for an address, or for the person of an empty name."""
        spender = Spender(KEY, who.encode(), who, strangers=self.strangers, least=self.least)
        if not who:
            spender = Spender(KEY, b"sender of a person", person="wallet", own=PERSON.budget)
        try:
            return self.budgets.reserve(spender, fee, self.now, self.budget, WIDE, sign_only=True)
        except Refused:
            return None

    def take_all(self, who: str) -> int:
        """How many units they get one after the other."""
        taken = 0
        while self.ask(who) is not None:
            taken += 1
        return taken


@pytest.mark.parametrize("pool", POOLS)
def test_the_next_stranger_and_known_people_find_something(pool: str) -> None:
    """However many addresses take all they get of any pool, the next gets some, and people all of their part."""
    desk = Desk(pool, 4000)
    taken = [desk.take_all(f"10.0.0.{number}") for number in range(40)]
    assert taken[0] == 1000, "alone it has what the policy says"
    assert taken == sorted(taken, reverse=True) and all(taken)
    free = [3000 - sum(taken[:number]) for number in range(40)]
    assert all(left * (number + 1) >= 3000 for number, left in enumerate(free)), "as much as an even part of it"
    assert desk.take_all("") == 4000 - sum(taken) >= 1000


@pytest.mark.parametrize(("count", "at_least"), [(1, 500), (2, 500), (3, 380), (8, 160), (40, 40)])
def test_the_more_ask_the_more_even_it_gets(count: int, at_least: int) -> None:
    """Of addresses that ask all the time each gets as much as the others, and most of the pool is used."""
    desk, names = Desk("per_minute", 2000, together=100), [f"10.0.0.{number}" for number in range(count)]
    granted = dict.fromkeys(names, 0)
    for second in range(300):
        desk.now = float(second)
        for name in names:
            wanted = 20
            while wanted and desk.ask(name) is not None:
                wanted -= 1
                granted[name] += second >= 240
    assert min(granted.values()) >= at_least
    assert max(granted.values()) <= 1.25 * min(granted.values())


def test_people_may_have_what_strangers_leave() -> None:
    """What known people hold takes nothing of what strangers may, but for what is over for everybody."""
    desk = Desk("at_risk", 400)
    assert all(desk.ask("") for _ in range(90))
    assert desk.take_all("10.0.0.1") == 100
    assert desk.take_all("") == 210 and desk.ask("10.0.0.2") is None


SIZES = st.integers(0, 10**24)
PERCENTS = st.integers(1, 100)


@settings(max_examples=500, deadline=None)
@given(SIZES, PERCENTS, PERCENTS, st.integers(0, 10**22), st.integers(0, 10**24))
def test_bounds_are_exact(size: int, together: int, percent: int, least: int, others: int) -> None:
    """What an address may hold is the law's value rounded down, to the unit, and never less than `least`."""
    part = Part.of(size, together, percent, least)
    assert part.together == size * together // 100
    free = part.together - others
    share, law = size * percent // 100, Fraction(0)
    if part.together and free > 0:
        law = Fraction(max(percent, 50) * free * free, 100 * part.together)
    most = part.most(others)
    if percent == 100:
        assert most == size or free <= 0, "no bound of its own"
    elif free > 0:
        assert most == max(least, min(share, law.numerator // law.denominator))
    else:
        assert most in (0, least, max(share, least)) or others <= part.quiet
    for held in (most - 1, most, most + 1):
        if held > 0:
            fits = held <= most and others + held <= part.together
            assert part.has_room(held - 1, others + held - 1, 1) == fits


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "settle", "refund", "fail", "succeed", "wait"]),
        st.integers(0, 4),
        st.integers(1, 30),
        st.integers(0, 9),
    ),
    max_size=80,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.sampled_from(POOLS), st.integers(50, 300), PERCENTS, st.integers(1, 99))
def test_strangers_never_hold_more_than_their_part(
    steps: list[tuple[str, int, int, int]], pool: str, size: int, together: int, percent: int
) -> None:
    """In every interleaving with known people, what strangers hold of a pool stays within their part of it."""
    desk = Desk(pool, size, together, percent)
    seconds = {"per_minute": MINUTE, "per_hour": HOUR, "per_day": DAY}.get(pool)
    taken: list[dict[str, Any]] = []
    for what, who, amount, pick in steps:
        if what == "wait":
            desk.now += amount * 40.0
        elif what == "ask":
            reservation = desk.ask(f"10.0.0.{who}" if who else "", amount)
            if reservation is not None:
                taken.append({"who": who, "at": desk.now, "held": amount, "open": reservation})
        else:
            close(desk, taken, what, amount, pick)
        known, strangers = (
            sum(counts(item, pool, seconds, desk.now) for item in taken if (item["who"] == 0) == is_known)
            for is_known in (True, False)
        )
        assert strangers <= size * together // 100 and known + strangers <= size


def close(desk: Desk, taken: list[dict[str, Any]], what: str, amount: int, pick: int) -> None:
    """End one of those under way, or decide of one of those that ran."""
    under_way = [item for item in taken if item["open"] is not None]
    undecided = [item for item in taken if item.get("ran") is not None]
    if what in ("settle", "refund") and under_way:
        item = under_way[pick % len(under_way)]
        item["held"] = min(amount, item["held"]) if what == "settle" else 0
        if what == "settle":
            item["ran"], item["ran_at"] = desk.budgets.settle(item["open"], item["held"], desk.now), desk.now
        else:
            desk.budgets.refund(item["open"], desk.now)
        item["open"] = None
    elif what in ("fail", "succeed") and undecided:
        item = undecided[pick % len(undecided)]
        desk.budgets.decide(item.pop("ran"), desk.now, failed=what == "fail")
        item["lost_at"] = desk.now if what == "fail" else None


def counts(item: dict[str, Any], pool: str, seconds: float | None, now: float) -> int:
    """What one transaction counts in the pool now."""
    held: int = item["held"]
    if seconds is not None:
        return held if item["at"] > now - seconds else 0
    if pool != "loss_per_hour":
        return held if item["open"] is not None else 0
    is_lost = item.get("lost_at") is not None and item["lost_at"] > now - HOUR
    is_undecided = item.get("ran") is not None and item["ran_at"] > now - UNDECIDED_SECONDS
    return held if item["open"] is not None or is_lost or is_undecided else 0


def test_row_6_what_has_no_end_counts_in_its_address_s_share() -> None:
    """An address whose transactions nobody tells the end of gets no more than its share of what may be lost."""
    desk, taken = Desk("loss_per_hour", 400, together=100), 0
    while (reservation := desk.ask("10.0.0.1")) is not None:
        desk.budgets.settle(reservation, 1, desk.now)
        taken += 1
    assert taken == 100
    desk.now = UNDECIDED_SECONDS
    assert desk.ask("10.0.0.1") is not None


def test_strangers_push_nobody_s_own_budget_out() -> None:
    """However many addresses come, what known people used is remembered; who is named no more is let go when idle."""
    budgets, rules = Budgets(capacity=2), Budget()
    person = Spender(KEY, b"s", person="wallet", own=Person(per_minute=10, per_day=10).budget)
    first = budgets.reserve(person, 10, 0.0, rules, Quotas())
    for number in range(10):
        budgets.reserve(Spender(KEY, b"%d" % number, str(number)), 1, 0.0, rules, Quotas())
    with pytest.raises(Refused, match="quota exhausted"):
        budgets.reserve(person, 1, 1.0, rules, Quotas())
    budgets.forget_people({}, 1.0)
    assert budgets.used_by_person("wallet", 1.0)[0] == 10, "it may still run, and counts"
    budgets.settle(first, 10, 1.0)
    budgets.forget_people({"wallet"}, 2 * DAY)
    assert list(budgets._people) == ["wallet"]
    budgets.forget_people({}, 2 * DAY)
    assert not budgets._people
    budgets.reserve(person, 10, 2 * DAY, rules, Quotas())
    assert budgets.used_by_person("wallet", 2 * DAY)[0] == 10
