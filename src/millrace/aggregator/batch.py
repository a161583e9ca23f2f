"""Many small inputs to one output: the "dust" conversion of wallets, and the price ladder.

Both may take long, so they are not run on the event loop. Items that the deadline leaves no time for say so.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Generator, Sequence
from decimal import Decimal
from typing import NamedTuple

import msgspec

from millrace.aggregator import errors
from millrace.aggregator.errors import ApiError
from millrace.aggregator.query import QuoteRequest, parse_amount, within
from millrace.aggregator.quote import (
    GAS_BASE,
    GAS_MOVE,
    GAS_PER_BYTE,
    GAS_PER_SWAP,
    GAS_PER_WRAP,
    answer,
    swap_hop,
    wrapper_hop,
)
from millrace.aggregator.responses import (
    Batch,
    BatchInput,
    BatchResponse,
    BatchRoute,
    FailedToken,
    LadderResponse,
    LadderStep,
)
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot
from millrace.chain import address, call
from millrace.chain.amount import apply_slippage, short
from millrace.chain.call import TokenPayment
from millrace.chain.token import NATIVE
from millrace.dex.aggregator_contract import ENDPOINT, encode_arguments
from millrace.dex.run import Step
from millrace.dex.vault import VaultError, execute
from millrace.routing.plan import AnyLeg, Ends, PlanError, leg_fills, make_program
from millrace.routing.planner import Planner
from millrace.routing.router import Limits

INPUTS_PER_BATCH = 10  # tokens in one transaction
PATHS_PER_INPUT = 2
POOLS_PER_INPUT = 8
HOPS = 4  # default of `maxHops`


class BatchItem(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a batch request: a token and an amount in smallest units."""

    token: str
    amount: str


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of POST /api/v1/batch-quote."""

    inputs: list[BatchItem]
    to: str
    slippage: str | float | None = None
    max_hops: int | None = None


class _Given(NamedTuple):
    """One checked input and the legs that sell it."""

    token: str
    amount: int
    legs: list[AnyLeg]


def batch_quote(
    snapshot: Snapshot,
    planner: Planner,
    request: BatchRequest,
    slippage: Decimal,
    settings: AggregatorSettings,
    deadline: float,
) -> Generator[None, None, BatchResponse]:
    """One call of the contract per group of inputs; inputs that cannot be sold are listed with a reason.

    `planner` is the one of all pools of the snapshot. It yields between its parts, all of which belong into the
    thread for long questions.
    """
    planner = snapshot.twin(planner)
    if not request.inputs:
        raise ApiError("inputs must not be empty")
    if len(request.inputs) > settings.max_batch:
        raise ApiError(f"too many inputs: at most {settings.max_batch}")
    hops = min(HOPS, settings.max_hops) if request.max_hops is None else request.max_hops
    limits = Limits(POOLS_PER_INPUT, PATHS_PER_INPUT, within("maxHops", hops, 1, settings.max_hops))
    if request.to not in snapshot.decimals:
        raise errors.unknown_token_out(request.to)
    failed: list[FailedToken] = []
    given: list[_Given] = []
    seen: set[str] = set()
    for item in request.inputs:
        if time.monotonic() > deadline:
            failed.append(_failed(snapshot, item, parse_amount(item.amount), "out_of_time"))
            continue
        yield
        found = _prepare(snapshot, planner, item, request.to, limits, seen)
        if isinstance(found, _Given):
            given.append(found)
            seen.add(item.token)
        else:
            failed.append(found)
    batches: list[Batch] = []
    groups = [given[start : start + INPUTS_PER_BATCH] for start in range(0, len(given), INPUTS_PER_BATCH)]
    while groups:
        yield
        group = groups.pop(0)
        try:
            batches.append(_batch(snapshot, len(batches), group, request.to, slippage, settings))
        except ApiError:
            # Inputs that go alone may not go together: one moves a pool another needs, or takes its tokens along.
            if len(group) > 1:
                groups[:0] = [group[: len(group) // 2], group[len(group) // 2 :]]
            else:
                item = BatchItem(token=group[0].token, amount=str(group[0].amount))
                failed.append(_failed(snapshot, item, group[0].amount, "zero_liquidity"))
    total = sum(int(batch.amount_out) for batch in batches)
    return BatchResponse(
        to=request.to,
        amount_out=str(total),
        amount_out_short=short(total, snapshot.decimals[request.to]),
        batches=batches,
        failed_tokens=failed,
        snapshot=snapshot.info,
    )


def _prepare(
    snapshot: Snapshot, planner: Planner, item: BatchItem, to: str, limits: Limits, seen: set[str]
) -> _Given | FailedToken:
    """Find the paths of one input and try them alone."""
    known = item.token in snapshot.decimals
    amount = parse_amount(item.amount)
    reason = ""
    if not known:
        reason = "unknown_token"
    elif amount is None:
        reason = "invalid_amount"
    elif item.token in seen:
        reason = "duplicate_token"
    elif item.token == to:
        reason = "same_token"
    if reason or amount is None:
        return _failed(snapshot, item, amount, reason)
    source, sink = snapshot.inner(item.token), snapshot.inner(to)
    for paths in (PATHS_PER_INPUT, 1):
        try:
            legs = planner.sale(source, amount, sink, limits._replace(paths=paths)) if source != sink else []
            program = make_program(legs, Ends(source, sink), snapshot.wrapped, 0, 0)
            execute(program, [TokenPayment(source, 0, amount)], snapshot.market)
        except PlanError:
            reason = "no_path"
        except VaultError:
            reason = "zero_liquidity"
        else:
            return _Given(item.token, amount, legs)
    return _failed(snapshot, item, amount, reason)


def _failed(snapshot: Snapshot, item: BatchItem, amount: int | None, reason: str) -> FailedToken:
    scaled = 0.0
    if amount is not None and item.token in snapshot.decimals:
        scaled = short(amount, snapshot.decimals[item.token])
    return FailedToken(token=item.token[:64], amount=item.amount[:80], amount_short=scaled, reason=reason)


def _batch(
    snapshot: Snapshot,
    number: int,
    group: Sequence[_Given],
    to: str,
    slippage: Decimal,
    settings: AggregatorSettings,
) -> Batch:
    """One transaction: all inputs of the group as payments, their paths one after the other."""
    legs = [leg for given in group for leg in given.legs]
    source = NATIVE if any(given.token == NATIVE for given in group) else group[0].token
    payments = [TokenPayment(given.token, 0, given.amount) for given in group]
    ends = Ends(source, to)
    try:
        result = execute(make_program(legs, ends, snapshot.wrapped, 0, 0), payments, snapshot.market)
    except (PlanError, VaultError) as error:
        raise errors.simulation_failed(str(error)) from None
    least = apply_slippage(result.amount_out, slippage)
    program = make_program(legs, ends, snapshot.wrapped, least, 0)
    arguments = encode_arguments(program)
    data = call.multi_transfer(address.decode(settings.contract), payments, ENDPOINT, *arguments)
    gas = GAS_BASE + GAS_PER_SWAP * len(legs) + 2 * GAS_PER_WRAP + GAS_MOVE + GAS_PER_BYTE * len(data)
    swaps = result.steps[1:] if source == NATIVE else result.steps
    return Batch(
        batch_index=number,
        inputs=[_input(snapshot, given) for given in group],
        amount_out=str(result.amount_out),
        amount_out_short=short(result.amount_out, snapshot.decimals[to]),
        amount_out_min=str(least),
        routes=_routes(snapshot, group, swaps, to),
        tx_data=base64.b64encode(data).decode("ascii"),
        estimated_gas_limit=gas,
    )


def _input(snapshot: Snapshot, given: _Given) -> BatchInput:
    scaled = short(given.amount, snapshot.decimals[given.token])
    return BatchInput(token=given.token, amount=str(given.amount), amount_short=scaled)


def _routes(snapshot: Snapshot, group: Sequence[_Given], steps: Sequence[Step], to: str) -> list[BatchRoute]:
    """The executed swaps, by input, with the wrapper's hops at the ends."""
    routes = []
    start = 0
    sink = snapshot.inner(to)
    for given in group:
        part = steps[start : start + len(given.legs)]
        start += len(given.legs)
        fills = [fill for leg, step in zip(given.legs, part, strict=True) for fill in leg_fills(leg, step)]
        hops = [swap_hop(snapshot, fill) for fill in fills]
        if given.token == NATIVE:
            hops.insert(0, wrapper_hop(NATIVE, snapshot.wrapped, given.amount))
        if to == NATIVE:
            paid = sum(fill.amount_out for fill in fills if fill.trade.token_out == sink)
            hops.append(wrapper_hop(snapshot.wrapped, NATIVE, paid if fills else given.amount))
        routes.append(BatchRoute(token=given.token, swaps=hops))
    return routes


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
            asked = msgspec.structs.replace(request, amount_in=amount)
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
    return LadderResponse(from_=request.token_in, to=request.token_out, steps=steps, snapshot=snapshot.info)
