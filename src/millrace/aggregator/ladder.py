"""The price ladder: one question for several inputs. It may take long, so it is not run on the event loop."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence

import msgspec

from millrace.aggregator.errors import ApiError, Busy, SimulationFailed
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer
from millrace.aggregator.responses import LadderResponse, LadderStep
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot
from millrace.aggregator.until import too_late
from millrace.routing.planner import Planner


def price_ladder(
    snapshot: Snapshot,
    planner: Planner,
    request: QuoteRequest,
    amounts: Sequence[int],
    settings: AggregatorSettings,
    deadline: float,
) -> Generator[None, None, LadderResponse]:
    """The same question for several inputs. An amount without an answer has an `error` instead.

    Where none has one, and more time might have found some, `Busy` is raised as of a quote. It yields between its
    parts, all of which belong into the thread for long questions.
    """
    planner = snapshot.twin(planner)
    steps: list[LadderStep] = []
    late: Busy | None = None
    for amount in amounts:
        try:
            if time.monotonic() > deadline:
                raise too_late(deadline)
            yield
            asked = msgspec.structs.replace(request, amount_in=amount, include_paths=False)
            steps.append(_step(snapshot, planner, asked, settings, deadline))
        except ApiError as error:
            late = error if isinstance(error, Busy) else late
            steps.append(LadderStep(amount_in=str(amount), error=error.text))
    if late is not None and all(step.error for step in steps):
        raise late
    return LadderResponse(
        from_=request.token_in,
        to=request.token_out,
        steps=steps,
        snapshot=snapshot.info,
        ignored_parameters=request.ignored or msgspec.UNSET,
    )


def _step(
    snapshot: Snapshot, planner: Planner, asked: QuoteRequest, settings: AggregatorSettings, deadline: float
) -> LadderStep:
    """The answer for one input. Raises `ApiError`."""
    try:
        quote = answer(snapshot, asked, settings, deadline, planner)
    except SimulationFailed:
        if time.monotonic() <= deadline:
            raise
        raise too_late(deadline) from None
    return LadderStep(
        amount_in=quote.amount_in,
        amount_out=quote.amount_out,
        rate=quote.rate,
        price_impact=quote.price_impact,
        optimality_gap=quote.optimality_gap,
        search_cut=time.monotonic() > deadline,
    )
