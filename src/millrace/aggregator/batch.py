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
    answer,
    budget,
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
from millrace.routing.costs import CALLS_PER_TRANSACTION, GAS_PER_DATA_BYTE, Cost, Table
from millrace.routing.plan import AnyLeg, Ends, PlanError, cost_of, leg_fills, make_program
from millrace.routing.planner import Planner
from millrace.routing.router import Limits

INPUTS_PER_BATCH = 10  # most tokens in one transaction
PAYMENT_GAS = 11 * GAS_PER_DATA_BYTE * 240 // 10  # of another payment's bytes: token, amount, and token of the program
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
    max_builtin_calls: int | None = None


class _Given(NamedTuple):
    """One checked input and the legs that sell it."""

    token: str
    amount: int
    legs: list[AnyLeg]


class _Room(NamedTuple):
    """What each transaction of one request, all of them to token `to`, may take."""

    table: Table
    settings: AggregatorSettings
    to: str
    calls: int

    def ends(self, tokens: Sequence[str]) -> Cost:
        """What a call that sells these tokens takes besides its pools."""
        return self.table.ends(egld_in=NATIVE in tokens, egld_out=self.to == NATIVE, payments=len(tokens))

    def left(self, tokens: Sequence[str]) -> Cost:
        """What there is for pools. Raises `ApiError`."""
        return budget(self.table, self.settings, self.ends(tokens), self.calls)

    def fits(self, group: Sequence[_Given]) -> bool:
        """Whether inputs hold the limits together."""
        taken = self.table.planned(cost_of([leg for given in group for leg in given.legs], self.table))
        taken = taken.plus(Cost(gas=PAYMENT_GAS), len(group) - 1)
        try:
            return taken.within(self.left([given.token for given in group]))
        except ApiError:
            return False

    def groups(self, given: Sequence[_Given]) -> list[list[_Given]]:
        """The inputs in their order, as many to a transaction as fit into it."""
        groups: list[list[_Given]] = []
        for item in given:
            group = [*groups[-1], item] if groups else []
            if group and len(group) <= INPUTS_PER_BATCH and self.fits(group):
                groups[-1] = group
            else:
                groups.append([item])
        return groups


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
    calls = CALLS_PER_TRANSACTION if request.max_builtin_calls is None else request.max_builtin_calls
    room = _Room(planner.table, settings, request.to, within("maxBuiltinCalls", calls, 1, CALLS_PER_TRANSACTION))
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
        found = _prepare(snapshot, planner, item, limits, room, seen)
        if isinstance(found, _Given):
            given.append(found)
            seen.add(item.token)
        else:
            failed.append(found)
    batches: list[Batch] = []
    groups = room.groups(given)
    while groups:
        yield
        group = groups.pop(0)
        try:
            batches.append(_batch(snapshot, room, len(batches), group, slippage))
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
    snapshot: Snapshot,
    planner: Planner,
    item: BatchItem,
    limits: Limits,
    room: _Room,
    seen: set[str],
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
    elif item.token == room.to:
        reason = "same_token"
    if reason or amount is None:
        return _failed(snapshot, item, amount, reason)
    source, sink = snapshot.inner(item.token), snapshot.inner(room.to)
    for paths in (PATHS_PER_INPUT, 1):
        try:
            limits = limits._replace(paths=paths, budget=room.left([item.token]))
            legs = planner.sale(source, amount, sink, limits) if source != sink else []
            program = make_program(legs, Ends(source, sink), snapshot.wrapped, 0, 0)
            execute(program, [TokenPayment(source, 0, amount)], snapshot.market)
        except (PlanError, ApiError):
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
    room: _Room,
    number: int,
    group: Sequence[_Given],
    slippage: Decimal,
) -> Batch:
    """One transaction: all inputs of the group as payments, their paths one after the other."""
    to, table = room.to, room.table
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
    data = call.multi_transfer(address.decode(room.settings.contract), payments, ENDPOINT, *arguments)
    cost = room.ends([given.token for given in group]).plus(cost_of(legs, table))
    swaps = result.steps[1:] if source == NATIVE else result.steps
    return Batch(
        batch_index=number,
        inputs=[_input(snapshot, given) for given in group],
        amount_out=str(result.amount_out),
        amount_out_short=short(result.amount_out, snapshot.decimals[to]),
        amount_out_min=str(least),
        routes=_routes(snapshot, group, swaps, to),
        tx_data=base64.b64encode(data).decode("ascii"),
        estimated_gas_limit=table.gas_limit(cost, len(data)),
        estimated_builtin_calls=cost.calls,
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
