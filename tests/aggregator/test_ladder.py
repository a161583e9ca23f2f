"""A price ladder: one question for several inputs, within a deadline."""

from __future__ import annotations

import math
from collections.abc import Generator

import msgspec
import pytest

from millrace.aggregator.ladder import price_ladder
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.responses import LadderResponse
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import build
from millrace.dex.document import encode
from millrace.routing.synthetic import WRAPPED, make_market


def finished(parts: Generator[None, None, LadderResponse]) -> LadderResponse:
    """The answer, all its parts done."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            answer: LadderResponse = end.value
            return answer


@pytest.mark.parametrize(("deadline", "cut"), [(math.inf, msgspec.UNSET), (-1.0, True)])
def test_a_ladder_says_so_where_time_cut_it(deadline: float, cut: object) -> None:
    """In time every amount has its answer; else an error, and `searchCut` is true."""
    snapshot = build(encode(make_market(40, seed=3)), 0.0)
    request = QuoteRequest(token_in=WRAPPED, token_out="USDC-c76f1f")
    amounts = [10**17, 10**18]
    answer = finished(price_ladder(snapshot, snapshot.main, request, amounts, AggregatorSettings(), deadline))
    assert answer.search_cut == cut
    assert [step.error is None for step in answer.steps] == [cut is msgspec.UNSET] * 2
