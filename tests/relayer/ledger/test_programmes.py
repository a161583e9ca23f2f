"""Programmes: never over budget or count, whatever is reserved, settled, given back and restored in whatever order."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain import address
from millrace.relayer.journal import programmes as rows
from millrace.relayer.journal.programmes import Charge
from millrace.relayer.ledger.programmes import FORGET_MS, NOTED_MS, Programmes
from millrace.relayer.rules.programmes import Programme

END = datetime(2027, 1, 31, tzinfo=UTC)
END_MS = int(END.timestamp() * 1000)
UNIT = 10**18
"""Amounts beyond what SQLite can add."""


def programme(budget: int = 30 * UNIT, per_user: int = 3, **lists: tuple[str, ...]) -> Programme:
    return Programme(END, budget, per_user, **(lists or {"functions": ("mint",)}))


class Desk:
    """A ledger with the tables it is restored from, both told the same."""

    def __init__(self, rules: dict[str, Programme], capacity: int = 100) -> None:
        self.rules, self.capacity = rules, capacity
        self.ledger = Programmes(capacity)
        self.disk = sqlite3.connect(":memory:")
        self.disk.executescript(rows.SCHEMA)

    def submit(self, number: int, sender: bytes, fee: int, now_ms: int = 0) -> str:
        """Charge a transaction to whichever programme pays."""
        name = self.ledger.paying(self.rules, sender, b"r", "mint", fee, now_ms)
        if name:
            charge = Charge(bytes([number]), name, sender, fee)
            self.ledger.take(charge, now_ms)
            rows.write(self.disk, [charge])
        return name

    def close(self, number: int, cost: int, now_ms: int = 0) -> None:
        paid = self.ledger.close(bytes([number]), cost)
        if paid is not None:
            rows.end(self.disk, bytes([number]), paid, now_ms)

    def forget(self, rules: dict[str, Programme], now_ms: int) -> list[str]:
        """What the service does once a minute."""
        gone, named = self.ledger.forget(rules, now_ms)
        rows.tidy(self.disk, gone, named, now_ms)
        return gone

    def restart(self) -> None:
        def read(sql: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
            return self.disk.execute(sql, values).fetchall()

        self.ledger = Programmes(self.capacity)
        self.ledger.restore(rows.charges(read), rows.users(read), 0)

    def left(self, name: str) -> int:
        return self.ledger.left(name, self.rules[name], 0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "settle", "refund", "restart"]),
        st.integers(0, 30),
        st.integers(0, 3),
        st.integers(1, 12),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(0, 40), st.integers(0, 4), st.integers(1, 3))
def test_never_over_budget_or_count(
    steps: list[tuple[str, int, int, int]], budget: int, per_user: int, capacity: int
) -> None:
    """What is paid or may be stays within both, only what would not is refused, and restarts change nothing."""
    desk = Desk({"launch": programme(budget * UNIT, per_user)}, capacity)
    under_way: dict[int, tuple[bytes, int]] = {}
    paid: list[tuple[bytes, int]] = []
    for what, number, user, amount in steps:
        sender, fee = bytes([user]), amount * UNIT
        if what == "restart":
            desk.restart()
        elif what == "submit" and number not in under_way:
            counted = [*paid, *under_way.values()]
            senders = [item[0] for item in counted]
            fits = sum(item[1] for item in counted) + fee <= budget * UNIT and senders.count(sender) < per_user
            has_place = sender in senders or len(set(senders)) < capacity
            assert desk.submit(number, sender, fee) == ("launch" if fits and has_place else "")
            if fits and has_place:
                under_way[number] = (sender, fee)
        elif what in ("settle", "refund"):
            cost = 0 if what == "refund" else fee  # more than was reserved counts as all of it
            desk.close(number, cost)
            if number in under_way:
                sender, reserved = under_way.pop(number)
                if cost:
                    paid.append((sender, min(cost, reserved)))
        counted = [*paid, *under_way.values()]
        spent = sum(item[1] for item in counted)
        assert spent <= budget * UNIT and desk.left("launch") == budget * UNIT - spent
        senders = [item[0] for item in counted]
        assert all(senders.count(sender) <= per_user for sender in senders)
        assert desk.ledger.users("launch") == len(set(senders)) <= capacity


def test_an_end_to_the_millisecond() -> None:
    """The last millisecond before its end a programme pays, and at its end no more; what it had left is nothing."""
    desk = Desk({"launch": programme()})
    assert desk.submit(1, b"s", 1, END_MS - 1) == "launch" and desk.submit(2, b"s", 1, END_MS) == ""
    assert desk.ledger.left("launch", desk.rules["launch"], END_MS - 1) == 30 * UNIT - 1
    assert desk.ledger.left("launch", desk.rules["launch"], END_MS) == 0


def test_the_first_with_room_pays() -> None:
    """Of several that match the first in the file pays, and the next where that has nothing left for it."""
    senders = (address.encode(b"s" * 32),)
    desk = Desk({"first": programme(per_user=1), "other": programme(senders=senders), "next": programme(budget=UNIT)})
    assert [desk.submit(number, b"s", UNIT) for number in range(3)] == ["first", "next", ""]


def test_a_new_policy_counts_what_was_paid() -> None:
    """A larger budget adds to what is left, a smaller one leaves nothing; nothing that was paid is forgotten by it."""
    desk = Desk({"launch": programme(10 * UNIT)})
    desk.submit(1, b"s", 8 * UNIT)
    desk.rules = {"launch": programme(12 * UNIT)}
    assert desk.left("launch") == 4 * UNIT and desk.submit(2, b"s", 5 * UNIT) == ""
    desk.rules = {"launch": programme(5 * UNIT)}
    assert desk.left("launch") == 0 and desk.submit(3, b"s", 1) == ""


def test_what_the_policy_names_no_more_is_forgotten_late() -> None:
    """What it paid is kept for thirty days, while anything of it may run, and for ever in the policy."""
    desk = Desk({"launch": programme(), "other": programme()})
    desk.submit(1, b"s", UNIT, 1000)
    late = 1001 + FORGET_MS
    assert desk.forget({}, late) == [], "it may still run"
    desk.close(1, UNIT, 1000)
    assert desk.forget({}, late - 1) == []
    desk.restart()
    assert desk.left("launch") == 29 * UNIT
    assert desk.forget({}, late) == ["launch"] and desk.left("launch") == 30 * UNIT
    desk.restart()
    assert desk.left("launch") == 30 * UNIT


def test_thirty_days_begin_when_the_policy_named_it_last() -> None:
    """A programme that spent its budget long ago, and is missing from the policy for a moment, pays no second time."""
    desk = Desk({"launch": programme()})
    desk.submit(1, b"s", UNIT, 1000)
    desk.close(1, UNIT, 1000)
    late = 1001 + FORGET_MS
    for restarts in (False, True):
        assert desk.forget(desk.rules, late) == []
        if restarts:
            desk.restart()
        assert desk.forget({}, late + 1) == [] and desk.left("launch") == 29 * UNIT
    assert desk.forget({}, late + FORGET_MS - NOTED_MS) == [], "nor is it forgotten early after a restart"
    assert desk.forget({}, late + FORGET_MS + 1) == ["launch"]


def test_that_the_policy_names_it_is_written_seldom() -> None:
    """One row an hour says that a programme is named; none of one that has paid nothing."""
    desk = Desk({"launch": programme(), "other": programme()})
    for number in range(3):
        desk.submit(number, bytes([number]), UNIT, 1000)
        desk.close(number, UNIT, 1000)
    before = desk.disk.total_changes
    for minute in range(181):
        desk.forget(desk.rules, 1000 + minute * 60_000)
    assert desk.disk.total_changes - before == 3
    desk.restart()
    assert desk.left("launch") == 27 * UNIT and desk.ledger.users("launch") == 3
