"""Ranks among many numbers, against a list that is sorted each time."""

from __future__ import annotations

import random

import pytest

from millrace.relayer.statistics.ranks import RUN, Ranks


@pytest.mark.parametrize("order", ["up", "down", "mixed"])
def test_every_rank_while_numbers_come_and_go(order: str) -> None:
    """In whatever order numbers come and go, alone or with others' weight, each rank is that of the sorted list."""
    chance = random.Random(order)
    numbers = chance.sample(range(10**6), 8 * RUN)
    if order != "mixed":
        numbers.sort(reverse=order == "down")
    ranks, there = Ranks(), [number for number in numbers for _ in range(chance.randrange(1, 4))]
    for number in there:
        ranks.add(number, 1)
    for _ in range(2):
        while there:
            assert ranks.total == len(there)
            ordered = sorted(there)
            for rank in (1, len(there), *(chance.randrange(len(there)) + 1 for _ in range(20))):
                assert ranks.at(rank) == ordered[rank - 1]
            if order == "mixed":
                chance.shuffle(there)
            gone = [there.pop() for _ in range(min(len(there), RUN))]
            for number in gone:
                ranks.add(number, -1)
        assert ranks.total == 0
        there = chance.choices(numbers, k=3 * RUN)
        for number in there:
            ranks.add(number, 1)


def test_the_largest_weights() -> None:
    """A number's weight is added and taken away at once, however large both are."""
    ranks = Ranks()
    for number in (2**64 - 1, 0, 7):
        ranks.add(number, 10**12)
    assert [ranks.at(rank) for rank in (1, 10**12, 10**12 + 1, 2 * 10**12, 2 * 10**12 + 1, 3 * 10**12)] == [
        0, 0, 7, 7, 2**64 - 1, 2**64 - 1,
    ]  # fmt: skip
    ranks.add(7, -(10**12))
    assert ranks.at(10**12 + 1) == 2**64 - 1 and ranks.total == 2 * 10**12
