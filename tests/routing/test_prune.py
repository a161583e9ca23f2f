"""Flows without circles."""

from __future__ import annotations

import math

import pytest

from millrace.routing.prune import _cancel_one
from millrace.routing.work import EDGES, TOKENS, make_work


@pytest.mark.parametrize("there", [1.0, 1e301, math.inf, math.nan])
@pytest.mark.parametrize("back", [2.0, 1e301, math.inf, math.nan])
def test_every_circle_that_is_cancelled_loses_an_edge(there: float, back: float) -> None:
    """Whatever flows in it, beyond all numbers included: else whoever takes circles out would never be done."""
    work = make_work(2, 2)
    work.n[EDGES], work.n[TOKENS] = 2, 2
    work.t_in[:2] = 1
    work.e_a[:2], work.e_b[:2], work.e_w[:2], work.e_use[:2] = (0, 1), (1, 0), (there, back), True
    assert _cancel_one(work)
    assert not work.e_use[:2].all()
