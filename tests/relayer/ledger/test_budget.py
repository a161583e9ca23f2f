"""Budgets and quotas: reserve, settle, refund, in any interleaving."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.relayer.ledger.budget import UNDECIDED_SECONDS, Budgets, Reservation, Spender
from millrace.relayer.ledger.windows import DAY, HOUR, MINUTE
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.policy import SUMS, Budget, Quotas
from millrace.runtime.client_address import ClientAddress

WIDE = Quotas(sender_per_hour=10**9, ip_per_hour=10**9)
KEY = b"k"


def reserve(budgets: Budgets, fee: int, now: float, budget: Budget, quotas: Quotas = WIDE, **names: Any) -> Reservation:
    who = {"key": KEY, "sender": b"s", "ip": "i"} | names
    return budgets.reserve(Spender(who["key"], who["sender"], who["ip"], who.get("receiver")), fee, now, budget, quotas)


def test_windows_hold_to_the_unit_and_slide() -> None:
    """Exactly the budget fits into a window, one more unit does not, and time frees it again."""
    budget = Budget(per_minute=10, per_hour=15, per_day=1000, at_risk=1000)
    budgets = Budgets()
    reserve(budgets, 10, 0.0, budget)
    with pytest.raises(Refused, match="budget exhausted") as refusal:
        reserve(budgets, 1, 59.0, budget)
    assert refusal.value.reason.retry_after_ms == 1000
    reserve(budgets, 5, MINUTE, budget)
    with pytest.raises(Refused):
        reserve(budgets, 1, MINUTE, budget)
    reserve(budgets, 10, HOUR + MINUTE, budget)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2), st.floats(0, 40)), max_size=20))
def test_to_check_is_to_reserve_and_take_nothing(steps: list[tuple[int, int, float]]) -> None:
    """`check` refuses exactly what `reserve` would, and whatever is checked in between changes nothing."""
    budget, quotas = Budget(per_minute=20, per_hour=30), Quotas(sender_per_hour=18, ip_per_hour=25)
    asked, quiet, now = Budgets(capacity=2), Budgets(capacity=2), 0.0
    for fee, sender, pause in steps:
        now += pause
        who = Spender(KEY, bytes([sender]), "i")
        verdicts = []
        for _ in range(2):
            try:
                asked.check(who, fee, now, budget, quotas)
                verdicts.append("")
            except Refused as refusal:
                verdicts.append(str(refusal.reason))
        for budgets in (asked, quiet):
            try:
                budgets.reserve(who, fee, now, budget, quotas)
                verdicts.append("")
            except Refused as refusal:
                verdicts.append(str(refusal.reason))
        assert len(set(verdicts)) == 1
        assert asked.left(KEY, now, budget) == quiet.left(KEY, now, budget)


EVERYTHING = dict.fromkeys(Budget.__struct_fields__, 10**9)


@pytest.mark.parametrize(("name", "seconds"), [("per_minute", MINUTE), ("per_hour", HOUR), ("per_day", DAY)])
def test_each_window_is_as_long_as_its_name(name: str, seconds: float) -> None:
    """What was spent counts for exactly a minute, an hour, a day, whatever else is unbounded."""
    budget, budgets = Budget(**EVERYTHING | {name: 10}), Budgets()
    budgets.decide(budgets.settle(reserve(budgets, 10, 0.0, budget), 10, 0.0), 0.0, failed=False)
    with pytest.raises(Refused, match="budget exhausted"):
        reserve(budgets, 1, seconds - 0.001, budget)
    reserve(budgets, 10, seconds, budget)


@pytest.mark.parametrize("name", ["per_minute", "per_hour", "per_day", "at_risk", "at_risk_sign_only", "loss_per_hour"])
def test_each_bound_of_the_budget_holds_to_the_unit(name: str) -> None:
    """What is exactly as much as is allowed fits, one unit more does not, and a part beside it neither."""
    budget, who = Budget(**EVERYTHING | {name: 10}), Spender(KEY, b"s", "i")
    with pytest.raises(Refused, match="budget exhausted"):
        Budgets().reserve(who, 11, 0.0, budget, WIDE, sign_only=True)
    budgets = Budgets()
    budgets.reserve(who, 10, 0.0, budget, WIDE, sign_only=True)
    with pytest.raises(Refused, match="budget exhausted"):
        budgets.reserve(who, 1, 0.0, budget, WIDE, sign_only=True)


def test_settling_touches_no_window_the_fee_has_left() -> None:
    """A fee settled after its minute frees nothing of the minute that others have filled since."""
    budget, budgets = Budget(**EVERYTHING | {"per_minute": 10}), Budgets()
    old = reserve(budgets, 10, 0.0, budget)
    reserve(budgets, 10, MINUTE, budget)
    budgets.settle(old, 0, MINUTE)
    with pytest.raises(Refused):
        reserve(budgets, 1, MINUTE, budget)


@pytest.mark.parametrize(("told", "counted"), [(11, 10), (10**30, 10), (-1, 0)])
def test_a_fee_that_cannot_be(told: int, counted: int) -> None:
    """Whatever a node says it cost, no more than was reserved is counted, and no less than nothing."""
    budget, budgets = Budget(**EVERYTHING | {"per_minute": 100}), Budgets()
    budgets.settle(reserve(budgets, 10, 0.0, budget), told, 0.0)
    assert budgets.left(KEY, 0.0, budget) == 100 - counted


@pytest.mark.parametrize("name", ["per_minute", "per_hour", "per_day", "at_risk", "loss_per_hour"])
def test_the_smallest_room_bounds_what_is_left(name: str) -> None:
    """Each sum of a budget has its room, less what is used of it; the smallest is what may still be reserved."""
    budget, budgets = Budget(**EVERYTHING | {name: 7}), Budgets()
    assert budgets.rooms(KEY, 0.0, budget) == {each: getattr(budget, each) for each in SUMS}
    reserve(budgets, 3, 0.0, budget)
    assert budgets.rooms(KEY, 0.0, budget)[name] == budgets.left(KEY, 0.0, budget) == 4


def test_settled_fees_free_the_rest() -> None:
    """Settling at the real fee gives the difference back; a refund gives all of it back."""
    budget = Budget(per_minute=10, per_hour=10, per_day=10, at_risk=10)
    budgets = Budgets()
    first = reserve(budgets, 10, 0.0, budget)
    budgets.settle(first, 4, 1.0)
    assert budgets.left(KEY, 1.0, budget) == 6
    second = reserve(budgets, 6, 2.0, budget)
    budgets.refund(second, 3.0)
    assert budgets.left(KEY, 3.0, budget) == 6 and budgets.at_risk(KEY) == 0
    with pytest.raises(ValueError, match="once"):
        budgets.refund(second, 4.0)


def test_row_8_quota_theft() -> None:
    """Quotas are per sender and per address: one cannot use up another's, many senders share the address's."""
    budget = Budget()
    quotas = Quotas(sender_per_hour=10, ip_per_hour=25)
    budgets = Budgets()
    reserve(budgets, 10, 0.0, budget, quotas, sender=b"a")
    with pytest.raises(Refused, match="quota exhausted"):
        reserve(budgets, 1, 0.0, budget, quotas, sender=b"a")
    reserve(budgets, 10, 0.0, budget, quotas, sender=b"b")
    with pytest.raises(Refused, match="quota exhausted"):
        reserve(budgets, 6, 0.0, budget, quotas, sender=b"c")
    assert budgets.at_risk(KEY) == 20, "a refused reservation takes nothing from anyone"


def test_row_7_sybil_senders() -> None:
    """A hundred thousand keys, each within its quota, together get exactly the budget and not a unit more."""
    budget = Budget(per_minute=10_000, per_hour=10_000, per_day=10_000, at_risk=10**9, loss_per_hour=10**9)
    budgets, accepted = Budgets(capacity=1_000), 0
    for number in range(100_000):
        try:
            reserve(budgets, 7, 0.0, budget, sender=number.to_bytes(4, "big"), ip=str(number % 5_000))
            accepted += 7
        except Refused:
            pass
    assert accepted == 9_996 == budgets.at_risk(KEY), "1,428 times 7; one more would not fit"
    assert len(budgets._senders) <= 1_000 and len(budgets._ips) <= 1_000


def test_row_7_sybil_senders_behind_one_network_or_receiver() -> None:
    """All addresses of a /64 network share one quota, and so do all who pay towards one receiver."""
    quotas = Quotas(sender_per_hour=10, ip_per_hour=25, receiver_per_hour=45)
    budgets, name = Budgets(), ClientAddress().of
    for number in range(2):
        reserve(budgets, 10, 0.0, Budget(), quotas, sender=bytes([number]), ip=name(f"2001:db8::{number}"))
    with pytest.raises(Refused, match="quota exhausted"):
        reserve(budgets, 10, 0.0, Budget(), quotas, sender=b"z", ip=name("2001:db8::ffff:1"))
    reserve(budgets, 10, 0.0, Budget(), quotas, sender=b"z", ip=name("2001:db8:0:1::1"))
    for number in range(4):
        reserve(budgets, 10, 0.0, Budget(), quotas, sender=b"r%d" % number, ip=str(number), receiver=b"shop")
    with pytest.raises(Refused, match="quota exhausted"):
        reserve(budgets, 10, 0.0, Budget(), quotas, sender=b"r9", ip="9", receiver=b"shop")


def test_row_6_losses_are_bounded() -> None:
    """What failed within the hour and what may still fail never exceeds the loss budget together; time frees it."""
    budget = Budget(loss_per_hour=30)
    budgets = Budgets()
    first = budgets.settle(reserve(budgets, 20, 0.0, budget), 10, 0.0)
    reserve(budgets, 20, 0.0, budget)
    with pytest.raises(Refused, match="budget exhausted"):
        reserve(budgets, 1, 0.0, budget)
    budgets.decide(first, 1.0, failed=True)
    assert budgets.standing(KEY, 1.0).lost_hour == 10 and budgets.left(KEY, 1.0, budget) == 0
    with pytest.raises(Refused, match="budget exhausted"):
        reserve(budgets, 1, 1.0, budget)
    reserve(budgets, 10, 1.0 + HOUR, budget)


def test_row_6_what_ended_well_is_no_loss() -> None:
    """A fee counts until it is known that its transaction ended well, or for 15 minutes if nobody says."""
    budget = Budget(loss_per_hour=10)
    budgets = Budgets()
    ran = budgets.settle(reserve(budgets, 10, 0.0, budget), 10, 0.0)
    assert budgets.left(KEY, 0.0, budget) == 0
    budgets.decide(ran, 1.0, failed=False)
    assert budgets.left(KEY, 1.0, budget) == 10 and budgets.standing(KEY, 1.0).lost_hour == 0
    budgets.settle(reserve(budgets, 10, 1.0, budget), 10, 1.0)
    assert budgets.left(KEY, UNDECIDED_SECONDS, budget) == 0
    assert budgets.left(KEY, 1.0 + UNDECIDED_SECONDS, budget) == 10


def test_row_11_hoard_of_one_sender_or_address() -> None:
    """What one sender or address holds only signed is bounded for itself, across a day, until it is over."""
    quotas = Quotas(sender_at_risk_sign_only=10, ip_at_risk_sign_only=15, sender_per_hour=100, ip_per_hour=100)
    budgets = Budgets()
    first = budgets.reserve(Spender(KEY, b"a", "i"), 10, 0.0, Budget(), quotas, sign_only=True)
    for now in (0.0, DAY):
        with pytest.raises(Refused, match="quota exhausted"):
            budgets.reserve(Spender(KEY, b"a", "j"), 1, now, Budget(), quotas, sign_only=True)
        with pytest.raises(Refused, match="quota exhausted"):
            budgets.reserve(Spender(KEY, b"b", "i"), 6, now, Budget(), quotas, sign_only=True)
    budgets.reserve(Spender(KEY, b"a", "i"), 1, DAY, Budget(), quotas)
    budgets.refund(first, DAY)
    budgets.reserve(Spender(KEY, b"a", "i"), 10, DAY, Budget(), quotas, sign_only=True)


def test_row_11_hoarded_cosignatures() -> None:
    """What is only signed has its own, smaller share of what may be at risk, and keeps it until it is over."""
    budget = Budget(at_risk=100, at_risk_sign_only=10)
    budgets = Budgets()
    who = Spender(KEY, b"s", "i")
    hoard = budgets.reserve(who, 10, 0.0, budget, WIDE, sign_only=True)
    with pytest.raises(Refused, match="budget exhausted"):
        budgets.reserve(who, 1, 5 * DAY, budget, WIDE, sign_only=True)
    budgets.reserve(who, 90, 5 * DAY, budget, WIDE)
    budgets.settle(hoard, 10, 5 * DAY)
    budgets.reserve(who, 1, 5 * DAY, budget, WIDE, sign_only=True)


STEPS = st.lists(
    st.tuples(st.sampled_from(["reserve", "settle", "refund", "wait"]), st.integers(0, 60), st.integers(0, 9)),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_row_9_race_on_the_budget(steps: list[tuple[str, int, int]]) -> None:
    """In every interleaving the worst-case fees reserved in any minute, hour and day stay within the budget."""
    budget = Budget(per_minute=100, per_hour=200, per_day=300, at_risk=150)
    budgets = Budgets()
    now = 0.0
    taken: list[list[Any]] = []  # [time, amount that counts, reservation]
    for kind, amount, pick in steps:
        open_ones = [item for item in taken if item[2].is_open]
        if kind == "wait":
            now += amount * 60.0
        elif kind == "reserve":
            fits = sum(item[1] for item in open_ones) + amount <= 150 and all(
                sum(item[1] for item in taken if item[0] > now - seconds) + amount <= limit
                for seconds, limit in ((MINUTE, 100), (HOUR, 200), (DAY, 300))
            )
            try:
                taken.append([now, amount, reserve(budgets, amount, now, budget)])
                assert fits
            except Refused:
                assert not fits
        elif open_ones:
            item = open_ones[pick % len(open_ones)]
            actual = min(amount, item[1]) if kind == "settle" else 0
            (budgets.settle(item[2], actual, now) if kind == "settle" else budgets.refund(item[2], now))
            item[1] = actual


def test_tables_are_bounded() -> None:
    """More senders than the bound forget the one unused for longest; the key's budget forgets nothing."""
    budgets = Budgets(capacity=1)
    quotas = Quotas(sender_per_hour=10, ip_per_hour=10**9)
    first = reserve(budgets, 10, 0.0, Budget(), quotas, sender=b"a")
    reserve(budgets, 10, 0.0, Budget(), quotas, sender=b"b")
    reserve(budgets, 10, 0.0, Budget(), quotas, sender=b"a")
    budgets.refund(first, 1.0)
    assert budgets.at_risk(KEY) == 20


def test_refused_requests_are_not_remembered() -> None:
    """What is refused takes nobody's place among those remembered, and does not count as use."""
    budgets = Budgets(capacity=2)
    quotas = Quotas(sender_per_hour=10, ip_per_hour=10, receiver_per_hour=10)

    def ask(name: str, fee: int = 10) -> str:
        try:
            reserve(budgets, fee, 0.0, Budget(), quotas, sender=name.encode(), ip=name, receiver=name.encode())
        except Refused as refusal:
            return refusal.reason.reason
        return "ok"

    assert [ask("a"), ask("b"), ask("a", 1)] == ["ok", "ok", "quota exhausted"]
    for number in range(10):
        assert ask(str(number), 11) == "quota exhausted"
    assert [ask("a", 1), ask("b", 1)] == ["quota exhausted"] * 2
    assert ask("c") == "ok"
    assert [ask("b", 1), ask("a")] == ["quota exhausted", "ok"], "a was used first, and asking in vain is no use"
