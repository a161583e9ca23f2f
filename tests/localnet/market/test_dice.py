"""Choices must be the same on every machine and fair enough."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millrace.localnet.market.dice import Dice


def test_the_same_name_gives_the_same_choices_and_these_very_ones() -> None:
    """The sequence is pinned: a change of Python or platform must not change any market."""
    dice = Dice("pinned")
    seen = (
        dice.below(10**9),
        dice.between(-5, 5),
        str(dice.uniform()),
        str(dice.normal()),
        dice.spread(10**20, "1.2"),
        dice.hexadecimal(6),
        dice.weighted([1, 10, 11]),
        dice.pick("abcdef"),
        dice.chance(500),
    )
    assert seen == PINNED


PINNED = (
    902622798,
    3,
    "0.1040907021844358680637970815",
    "1.284468972200700076198923161",
    91949808951497756431,
    "d6b38f",
    1,
    "c",
    False,
)


@given(name=st.text(), bound=st.integers(1, 10**30))
def test_numbers_stay_below_their_bound(name: str, bound: int) -> None:
    """`below` gives 0 to bound - 1, whatever the bound."""
    dice = Dice(name)
    assert all(0 <= dice.below(bound) < bound for _ in range(5))
    assert dice.spread(bound, "2") >= 1


def test_draws_are_fair() -> None:
    """Uniform, weighted and normal draws come out as often as they should."""
    dice = Dice("fair")
    even = Counter(dice.below(4) for _ in range(8000))
    assert all(1800 < even[side] < 2200 for side in range(4))
    heavy = Counter(dice.weighted([1, 4]) for _ in range(8000))
    assert 5700 < heavy[1] < 6300
    normals = [float(dice.normal()) for _ in range(4000)]
    assert abs(sum(normals) / 4000) < 0.06
    assert 0.93 < sum(value * value for value in normals) / 4000 < 1.07
