"""How much of all budgets a relayer keeps, gives and wants, and the bound it tells for when it is lost."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from millrace.relayer.journal.portions import AHEAD, AT_ONCE, PORTIONS, SPARE, Need, Portions

TOTAL = 2 * PORTIONS


def begun(limit: int) -> tuple[Portions, list[int]]:
    """Portions of a sum, and what was used of it."""
    portions, used = Portions(), [0]
    portions.begin(PORTIONS)
    portions.need = lambda: Need(-(-used[0] * TOTAL // limit), limit // TOTAL)
    return portions, used


def test_nothing_moves_before_it_is_known_what_was_used() -> None:
    """A relayer that starts may need all that its seat has."""
    portions = Portions()
    portions.begin(PORTIONS)
    portions.others_want = True
    assert not portions.settle() and (portions.held, portions.bound) == (PORTIONS, PORTIONS)


def test_who_is_idle_gives_and_who_is_busy_wants() -> None:
    """What is free beyond a reserve goes to others that want it, and to nobody else."""
    changes: list[int] = []
    portions, used = begun(limit=TOTAL)
    portions.on_change = lambda: changes.append(portions.held)
    assert not portions.settle() and portions.held == PORTIONS
    portions.others_want = True
    used[0] = 5
    assert not portions.settle() and (portions.held, changes) == (5 + 2 * SPARE, [5 + 2 * SPARE])
    used[0] = 5 + SPARE + 1
    assert portions.settle() and portions.held == 5 + 2 * SPARE


def test_who_keeps_all_wants_no_more_for_that() -> None:
    """Others get nothing of it, also where it is lost; and it takes nothing that it has no use for."""
    portions, _ = begun(limit=TOTAL)
    portions.others_want = True
    portions.need = lambda: Need(5, 1, keeps=True)
    assert not portions.settle() and (portions.held, portions.bound) == (PORTIONS, PORTIONS)
    portions.need = lambda: Need(5, 1)
    assert not portions.settle() and (portions.held, portions.bound) == (5 + 2 * SPARE, 5 + AHEAD)


@given(
    st.integers(1, 10**6),
    st.integers(0, PORTIONS),
    st.lists(st.tuples(st.integers(0, 10**5), st.booleans()), max_size=50),
)
@example(100 * TOTAL, 10, [(990, True), (350, False)])
def test_the_server_always_knows_a_bound_of_what_is_needed(
    limit: int, held: int, steps: list[tuple[int, bool]]
) -> None:
    """With every claim, whatever was spent since it was told last, also of what was taken since then; and what is
    needed is never given away."""
    portions, used = begun(limit)
    portions.begin(held)
    portions.others_want = True
    for fee, tells in steps:
        if used[0] + fee > limit * portions.held // TOTAL:
            continue
        used[0] += fee
        bound = portions.claim(fee)
        assert -(-used[0] * TOTAL // limit) <= bound <= portions.held
        if tells:
            wants = portions.settle()
            assert used[0] <= limit * portions.held // TOTAL
            assert portions.bound <= min(portions.held, -(-used[0] * TOTAL // limit) + AHEAD)
            if wants:
                portions.hold(min(portions.held + AT_ONCE, TOTAL))
