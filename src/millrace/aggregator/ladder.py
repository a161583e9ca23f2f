"""The price ladder: one question for several inputs. It may take long, so it is not run on the event loop."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence

import msgspec

from millrace.aggregator import errors
from millrace.aggregator.errors import ApiError
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer
from millrace.aggregator.responses import LadderResponse, LadderStep
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot
from millrace.routing.planner import Planner


def price_ladder(
    snapshot: Snapshot,
    planner: Planner,
    request: QuoteRequest,
    amounts: Sequence[int],
    settings: AggregatorSettings,
    deadline: float,
) -> Generator[None, None, LadderResponse]:
    """The same question for several inputs. An amount that cannot be executed has an `error` instead.

    It yields between its parts, all of which belong into the thread for long questions.
    """
    planner = snapshot.twin(planner)
    steps = []
    for amount in amounts:
        try:
            if time.monotonic() > deadline:
                raise errors.simulation_failed("out of time")
            yield
            asked = msgspec.structs.replace(request, amount_in=amount, include_paths=False)
            quote = answer(snapshot, asked, settings, deadline, planner)
        except ApiError as error:
            steps.append(LadderStep(amount_in=str(amount), error=error.text))
            continue
        steps.append(
            LadderStep(
                amount_in=quote.amount_in,
                amount_out=quote.amount_out,
                rate=quote.rate,
                price_impact=quote.price_impact,
                optimality_gap=quote.optimality_gap,
            )
        )
    return LadderResponse(
        from_=request.token_in,
        to=request.token_out,
        steps=steps,
        snapshot=snapshot.info,
        search_cut=time.monotonic() > deadline or msgspec.UNSET,
    )
