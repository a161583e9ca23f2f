"""The search in whole units: what comes out of its heaps."""

from __future__ import annotations

import numpy as np
import pytest

from millrace.routing.unitsearch import _pop, _push


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
