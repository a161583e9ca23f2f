"""Which connections go when there are too many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.gossip.trim import GRACE_SECONDS, Connection, surplus

OWN = b"own"


@st.composite
def companies(draw: st.DrawFn) -> list[Connection]:
    """Connected peers of every kind; their ids are distinct."""
    kinds = draw(st.lists(st.tuples(*[st.booleans()] * 3, st.sampled_from([0.0, GRACE_SECONDS])), max_size=40))
    return [Connection(b"peer %d" % number, *kind) for number, kind in enumerate(kinds)]


def unknown(one: Connection) -> bool:
    return not one.useful and one.age >= GRACE_SECONDS


@given(companies(), st.integers(0, 20), st.integers(0, 10))
def test_quotas_hold_afterwards(company: list[Connection], most: int, most_unknown: int) -> None:
    """What stays is within both bounds, kept peers aside; nobody goes who need not, and no kept peer at all."""
    leaving = surplus(OWN, company, most, most_unknown)
    assert len(leaving) == len(set(leaving))
    left = [one for one in company if one.peer not in leaving]
    kept = [one for one in company if one.kept]
    assert all(one in left for one in kept)
    free = [one for one in left if not one.kept]
    assert len(free) <= max(0, most - len(kept))
    assert sum(unknown(one) for one in free) <= most_unknown
    if len(company) <= most and sum(unknown(one) for one in company if not one.kept) <= most_unknown:
        assert not leaving
    gone = [one for one in company if one.peer in leaving]
    assert all(not one.useful for one in gone) or all(one.useful or not unknown(one) for one in free)


@given(companies())
def test_choice_does_not_depend_on_order(company: list[Connection]) -> None:
    """The same company in another order loses the same peers: nodes that meet again agree with themselves."""
    assert set(surplus(OWN, company, 5, 2)) == set(surplus(OWN, company[::-1], 5, 2))


def test_newcomers_have_time_to_speak() -> None:
    """A peer that has not yet said what it is subscribed to is not unknown."""
    fresh = [Connection(b"%d" % n, False, False, False, 0.0) for n in range(10)]
    assert surplus(OWN, fresh, 41, 7) == []
    old = [Connection(b"%d" % n, False, False, False, GRACE_SECONDS) for n in range(10)]
    assert len(surplus(OWN, old, 41, 7)) == 3
