"""The window of a sink that confirms, against a model that keeps everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.notifier.rules.confirm_window import ConfirmWindow

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3), st.integers(0, 60)),  # jump of the sequence, size
        st.tuples(st.just("confirm"), st.integers(0, 40), st.just(0)),  # which of those sent
        st.tuples(st.just("rewind"), st.just(0), st.just(0)),
    ),
    max_size=120,
)


@given(ACTIONS, st.integers(1, 5), st.integers(1, 100))
def test_cursor_and_bounds(actions: list[tuple[str, int, int]], most: int, most_bytes: int) -> None:
    """The cursor passes confirmed events only, in whatever order confirms come, and both bounds hold."""
    window = ConfirmWindow(100, most, most_bytes)
    sent: dict[int, int] = {}
    done: set[int] = set()
    cursor = 100
    for now, (action, number, size) in enumerate(actions):
        if action == "send" and window.has_room(size):
            sequence = window.position + number
            window.sent(sequence, size, now)
            sent[sequence] = size
        elif action == "confirm" and sent:
            sequence = list(sent)[number % len(sent)]
            window.confirmed(sequence, now)
            done.add(sequence)
        elif action == "rewind":
            window.rewind()
            sent, done = {s: size for s, size in sent.items() if s <= cursor}, {s for s in done if s <= cursor}
        missing = [s for s in sent if s > cursor and s not in done]
        passed = [s for s in sent if s < min(missing, default=1 << 62)]
        assert window.cursor >= cursor, "the cursor went back"
        cursor = max([cursor, *passed])
        held = [s for s in sent if s > cursor]
        assert window.cursor == cursor
        assert window.position == max([cursor, *held])
        assert window.unconfirmed == len(missing)
        assert (window.quiet_since is None) == (not missing)
        assert len(held) <= most
        assert sum(sent[s] for s in held) <= most_bytes or len(held) == 1


@given(st.permutations(range(1, 9)))
def test_any_order_of_confirms(order: list[int]) -> None:
    """All confirmed, in any order: the cursor is at the end and the window is empty."""
    window = ConfirmWindow(0, 8, 8)
    for sequence in range(1, 9):
        assert window.has_room(1)
        window.sent(sequence, 1, 0.0)
    assert not window.has_room(0)
    for sequence in order:
        window.confirmed(sequence, 0.0)
    assert (window.cursor, window.unconfirmed, window.has_room(8)) == (8, 0, True)


def test_quiet_since() -> None:
    """The clock of silence starts with the first event, again with each confirm, and stops when all is confirmed."""
    window = ConfirmWindow(0, 8, 8)
    window.sent(1, 1, 5.0)
    window.sent(2, 1, 6.0)
    assert window.quiet_since == 5.0
    window.confirmed(2, 7.0)
    assert window.quiet_since == 7.0
    window.confirmed(2, 8.0)
    assert window.quiet_since == 7.0, "a confirm that comes twice is no news"
    window.confirmed(1, 9.0)
    assert window.quiet_since is None
    window.sent(3, 1, 10.0)
    assert window.quiet_since == 10.0


def test_twice_without_rewind() -> None:
    """Sending an event again without a rewind is a defect, and said so."""
    window = ConfirmWindow(4, 8, 8)
    with pytest.raises(ValueError, match="event 4 was sent already"):
        window.sent(4, 1, 0.0)
