"""Budgets are restored from the audit log alone: what it says of any span of time, however the clock was set."""

from __future__ import annotations

import sqlite3
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.relayer.journal import audit

HOUR_MS = 3_600_000
EVENTS: list[audit.Event] = ["settle", "refund", "write-off"]


def line(time_ms: int, event: audit.Event, number: int, amount: int) -> audit.Line:
    return time_ms, event, b"relayer", b"sender", number, b"hash %d" % number, amount


@st.composite
def logs(draw: st.DrawFn) -> list[audit.Line]:
    """Reservations and ends of some, in the order of writing; the clock goes back by an hour at most."""
    steps = draw(st.lists(st.tuples(st.integers(0, 2 * HOUR_MS), st.integers(0, HOUR_MS)), max_size=70))
    times = [at - back for at, (_, back) in zip(accumulate(step for step, _ in steps), steps, strict=True)]
    lines: list[audit.Line] = []
    running: list[int] = []
    for number, time_ms in enumerate(times):
        if running and draw(st.booleans()):
            ended = running.pop(draw(st.integers(0, len(running) - 1)))
            lines.append(line(time_ms, draw(st.sampled_from(EVENTS)), ended, draw(st.integers(0, 10**20))))
        else:
            running.append(number)
            lines.append(line(time_ms, "reserve", number, draw(st.integers(1, 10**20))))
    return lines


@settings(max_examples=200, deadline=None)
@given(logs(), st.integers(-HOUR_MS, 80 * HOUR_MS))
def test_what_was_spent_since(lines: list[audit.Line], since: int) -> None:
    """Every reservation since a time that was not given back is found, oldest first, with what it did cost."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(audit.SCHEMA)
    audit.write(connection, lines)
    found = audit.spent_since(lambda sql, values: connection.execute(sql, values).fetchall(), since)
    ends = {item[5]: item for item in lines if item[1] != "reserve"}
    expected = []
    for time_ms, event, relayer, sender, _, client_hash, fee in lines:
        end = ends.get(client_hash)
        if event == "reserve" and time_ms >= since and not (end and end[1] == "refund"):
            expected.append(audit.Spent(relayer, sender, client_hash, time_ms, fee, end[6] if end else None))
    assert sorted(found, key=lambda item: item.client_hash) == sorted(expected, key=lambda item: item.client_hash)
    assert [item.time_ms for item in found] == sorted(item.time_ms for item in found)
    connection.close()


def test_the_beginning_of_a_span_is_found_without_reading_what_is_before() -> None:
    """However long the log, a restart reads the lines of its span and of an hour before, and a few to find them."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(audit.SCHEMA)
    audit.write(connection, [line(number * 60_000, "reserve", number, 1) for number in range(20_000)])
    rows = 0

    def read(sql: str, values: tuple[object, ...]) -> list[tuple[object, ...]]:
        nonlocal rows
        found = connection.execute(sql, values).fetchall()
        rows += len(found)
        return found

    assert len(audit.spent_since(read, 19_940 * 60_000)) == 60
    assert rows < 60 + 60 + 22
    connection.close()


def test_a_clock_set_back_by_an_hour_hides_nothing() -> None:
    """What was reserved just before the clock was set back is found among later lines of earlier times."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(audit.SCHEMA)
    since = 100 * HOUR_MS
    times = [since, *[since - HOUR_MS] * 6]
    audit.write(connection, [line(time_ms, "reserve", number, 1) for number, time_ms in enumerate(times)])
    found = audit.spent_since(lambda sql, values: connection.execute(sql, values).fetchall(), since)
    assert [item.client_hash for item in found] == [b"hash 0"]
    connection.close()


def test_a_clock_that_began_in_the_past_hides_nothing() -> None:
    """A machine that wrote with a clock of long ago until it was set: what was reserved before that boot counts on.

    Lines of a clock that was ahead by days make nobody look further back.
    """
    since = 1_000_000 * HOUR_MS
    older, ahead = since - 2 * HOUR_MS, since + 100 * HOUR_MS
    for times, expected in (
        ([older] * 9 + [since + 1] * 20 + [5] * 300 + [since + 2] * 10, {*range(9, 29), *range(329, 339)}),
        ([older] * 9 + [since + 1] * 20 + [5] * 30, {*range(9, 29)}),
        ([ahead] * 5 + [older] * 300 + [since + 2] * 10, {*range(305, 315)}),
    ):
        connection = sqlite3.connect(":memory:")
        connection.executescript(audit.SCHEMA)
        audit.write(connection, [line(time_ms, "reserve", number, 1) for number, time_ms in enumerate(times)])
        found = audit.spent_since(lambda sql, values: connection.execute(sql, values).fetchall(), since)  # noqa: B023
        assert {item.client_hash for item in found} == {b"hash %d" % number for number in expected}
        connection.close()


def test_bytes_reserved_again_after_they_were_given_back() -> None:
    """The same bytes count once: by their last reservation."""
    who = (b"relayer", b"sender", b"hash")
    again = [
        ("reserve", *who, 1, "10"),
        ("refund", *who, 2, "10"),
        ("reserve", *who, 3, "10"),
        ("settle", *who, 4, "4"),
    ]
    assert list(audit.replay(again)) == [audit.Spent(*who, 3, 10, 4)]  # type: ignore[arg-type]
