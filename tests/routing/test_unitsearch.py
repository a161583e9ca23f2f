"""The search in whole units: what comes out of its heaps."""

from __future__ import annotations

import numpy as np
import pytest

from millrace.routing.scratch import make
from millrace.routing.unitsearch import LABELS, NEWEST, Looks, _among_best, _pop, _push


@pytest.mark.parametrize("seed", range(20))
def test_what_promises_most_comes_first_and_of_equals_the_older(seed: int) -> None:
    """Whatever is added in between: the order decides which of equal paths is found, so answers are the same bytes."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 12, 60).astype(float)  # many are equal
    heap, size, inside = np.empty(len(keys), np.int32), 0, set()
    waiting = list(rng.permutation(len(keys)).tolist())
    while waiting or inside:
        if waiting and (not inside or rng.random() < 0.6):
            item = waiting.pop()
            _push(heap, size, keys, item)
            size += 1
            inside.add(item)
        else:
            first = min(inside, key=lambda item: (-keys[item], item))
            assert _pop(heap, size, keys) == first
            size -= 1
            inside.remove(first)
    assert size == 0


@pytest.mark.parametrize(("smaller", "is_kept"), [(0, False), (NEWEST - LABELS, False), (NEWEST, True)])
def test_an_amount_is_compared_with_the_newest_only(smaller: int, is_kept: bool) -> None:
    """However many amounts have reached a token, the work for one more is bounded; one kept in vain costs a look."""
    x = make(Looks, tokens=1, edges=1, widest=1, labels=100)
    amounts = [9] * LABELS + [1] * smaller
    x.amount[: len(amounts), 0], x.amount[: len(amounts), 1] = 0, amounts
    x.left[:], x.taken[:] = 0.0, 0.0
    x.other[: len(amounts)] = range(-1, len(amounts) - 1)
    x.reached[0] = len(amounts) - 1
    assert bool(_among_best(x, 0, (np.uint64(0), np.uint64(5)), 0.0, 0.0)) is is_kept
