"""Answers quotes on a snapshot: search, exact execution, payload, response. Pure; no clock but the deadline."""

from __future__ import annotations

import binascii
import time

import msgspec

from millrace.aggregator import errors
from millrace.aggregator.breakdown import path_parts, pool_fees, price_impact
from millrace.aggregator.dollars import in_dollars
from millrace.aggregator.least import least_input
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.responses import PairConfig, QuoteResponse
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Filter, Snapshot
from millrace.aggregator.transactions import unsigned
from millrace.chain.amount import apply_slippage, short
from millrace.chain.token import NATIVE
from millrace.dex.aggregator_contract import tx_data
from millrace.dex.constant_product import before_fees
from millrace.routing.costs import Cost, Table
from millrace.routing.plan import Ends, Execution, PlanError, cost_of, kept_input, make_program, taken_of
from millrace.routing.planner import Planner
from millrace.routing.router import Limits, NoRoute, Route

BPS = 10_000


def answer(
    snapshot: Snapshot,
    request: QuoteRequest,
    settings: AggregatorSettings,
    deadline: float | None = None,
    planner: Planner | None = None,
    *,
    hurry: bool = False,
) -> QuoteResponse:
    """The best answer to `request`. Raises `ApiError` in the documented words.

    `deadline` is on `time.monotonic`: past it the best found is the answer. The default is the setting, from now.
    `planner` is the one of the request's filter, whose tokens are known; without it, it is looked up, or built.
    With `hurry` a plain forward question raises `NeedsTime` where it would take long.
    """
    if planner is None:
        require_known(snapshot, request)
        chosen = filter_of(request)
        planner = snapshot.find(chosen) or snapshot.make(chosen)
    until = time.monotonic() + settings.quote_deadline_seconds if deadline is None else deadline
    ends, most = _ends(planner.table, request), settings.most(request.max_builtin_calls)
    limits = _limits(snapshot, planner, request, settings, budget(planner.table, most, ends))
    route = _route(snapshot, planner, request, settings, limits, until, hurry)
    return _respond(snapshot, planner.table, request, settings, ends, most, route)


def pair_config(
    snapshot: Snapshot, token_in: str, token_out: str, max_hops: int, planner: Planner | None = None
) -> PairConfig:
    """Whether quotes of at most `max_hops` trade a pair, with decimals and the least sensible input.

    Runs no search. With LP tokens it takes some ten milliseconds all the same, which no event loop has: every token of
    one pool is asked for every token of the other. `planner` is the snapshot's main one, or its twin for a thread.
    """
    planner = planner or snapshot.main
    pair = PairConfig(from_=token_in, to=token_out, supported=False)
    if token_in not in snapshot.decimals:
        return msgspec.structs.replace(pair, error="unknown tokenIn")
    if token_out not in snapshot.decimals:
        return msgspec.structs.replace(pair, error="unknown tokenOut")
    inner_in, inner_out = snapshot.inner(token_in), snapshot.inner(token_out)
    wrapping = inner_in == inner_out and token_in != token_out
    if not wrapping and not planner.supports(inner_in, inner_out):
        return msgspec.structs.replace(pair, error="no path between tokens")
    least = least_input(snapshot, planner, token_in, token_out, max_hops)
    if least is None:  # connected, but too far, or no pool on the way holds as much as a trade needs
        return msgspec.structs.replace(pair, error="no path between tokens")
    decimals = snapshot.decimals[token_in]
    return msgspec.structs.replace(
        pair,
        supported=True,
        decimals_in=decimals,
        decimals_out=snapshot.decimals[token_out],
        min_amount_in=str(least),
        min_amount_in_short=short(least, decimals),
    )


def require_known(snapshot: Snapshot, request: QuoteRequest) -> None:
    """Raise `ApiError` for tokens that the snapshot does not have, and for a wanted output of a cycle."""
    if request.token_in not in snapshot.decimals:
        raise errors.unknown_token_in(request.token_in)
    if request.token_out not in snapshot.decimals:
        raise errors.unknown_token_out(request.token_out)
    if request.token_in == request.token_out and request.amount_in is None:
        raise errors.invalid_amount_out()


def filter_of(request: QuoteRequest) -> Filter:
    """Which pools the request allows."""
    return Filter(request.only_exchanges, request.without_exchanges, request.only_pools, request.without_pools)


def about_liquidity(snapshot: Snapshot, planner: Planner, request: QuoteRequest) -> bool:
    """Whether plans that deposit or withdraw liquidity compete for the answer."""
    token_in, token_out = snapshot.inner(request.token_in), snapshot.inner(request.token_out)
    return planner.trades_liquidity(token_in, token_out, liquidity=request.include_lp_routes)


def budget(table: Table, most: Cost, ends: Cost) -> Cost:
    """What the pools of a plan may take of one transaction, besides `ends`. Raises `ApiError` if that is nothing."""
    left = table.room(most, ends)
    if min(left) < 0:
        raise errors.no_path()
    return left


def _ends(table: Table, request: QuoteRequest) -> Cost:
    """What the call, EGLD at its ends and a referral's fee take."""
    egld_in, egld_out = request.token_in == NATIVE, request.token_out == NATIVE
    return table.ends(egld_in=egld_in, egld_out=egld_out, referral=request.referral_id > 0)


def _limits(
    snapshot: Snapshot, planner: Planner, request: QuoteRequest, settings: AggregatorSettings, left: Cost
) -> Limits:
    """Where the number of paths is not asked for, they must be worth what they add to the fee."""
    paths, toll = request.max_splits, 0.0
    if paths is None:
        paths = request.max_pools
        toll = request.gas_price * planner.router.rate(snapshot.wrapped, snapshot.inner(request.token_out))
    bps = settings.referral_bps(request.referral_id)
    return Limits(request.max_pools, paths, request.max_hops, request.include_lp_routes, left, toll, bps)


def _route(
    snapshot: Snapshot,
    planner: Planner,
    request: QuoteRequest,
    settings: AggregatorSettings,
    limits: Limits,
    deadline: float,
    hurry: bool,
) -> Route:
    """Search with the wrapped token in place of EGLD."""
    token_in, token_out = snapshot.inner(request.token_in), snapshot.inner(request.token_out)
    amount = request.amount_in
    cycle = request.token_in == request.token_out
    if not cycle and settings.takes_all(request.referral_id):
        raise errors.simulation_failed()
    if token_in == token_out and not cycle:
        given = amount or _enough(request, settings)[0]
        return Route(Execution([], [], given, given), 0.0)
    try:
        if amount is not None:
            route = planner.forward(token_in, token_out, amount, limits, request.algorithm, deadline, hurry=hurry)
            if token_in == token_out:
                _require_profit(route.execution, request, settings)
            return route
        least, *more = _enough(request, settings)
        route = planner.reverse(token_in, token_out, least, limits, request.algorithm, deadline)
        if more and _left(route.execution, request, settings) < (request.amount_out or 0):
            # It pays more than it was asked for, and of that the fees leave less.
            route = planner.reverse(token_in, token_out, more[-1], limits, request.algorithm, deadline)
        return route
    except NoRoute:
        raise errors.no_path() from None
    except PlanError:
        raise errors.simulation_failed() from None


def _enough(request: QuoteRequest, settings: AggregatorSettings) -> list[int]:
    """The outputs of which the contract's fees leave what is wanted: those below the last in order; above it all do."""
    return list(before_fees(request.amount_out or 0, settings.referral_bps(request.referral_id), BPS))


def _left(done: Execution, request: QuoteRequest, settings: AggregatorSettings) -> int:
    """What the contract's fees leave of a plan's output."""
    return done.amount_out - taken_of(done.amount_out, settings.referral_bps(request.referral_id))


def _require_profit(done: Execution, request: QuoteRequest, settings: AggregatorSettings) -> None:
    """A cycle must earn something after fees, and at least what the request asks for."""
    paid = _left(done, request, settings)
    if paid <= done.amount_in or (paid - done.amount_in) * BPS // done.amount_in < request.min_profit_bps:
        raise errors.no_path()


def _respond(
    snapshot: Snapshot,
    table: Table,
    request: QuoteRequest,
    settings: AggregatorSettings,
    own: Cost,
    most: Cost,
    route: Route,
) -> QuoteResponse:
    done = route.execution
    bps = settings.referral_bps(request.referral_id)
    fee = taken_of(done.amount_out, bps)
    paid = done.amount_out - fee
    cycle = request.token_in == request.token_out
    least = apply_slippage(paid, request.slippage)
    if cycle:
        least = max(least, done.amount_in)  # nobody signs a loss by accident
    kept = kept_input(done) if cycle else 0
    impact = price_impact(done.fills, done.amount_out - kept)
    if request.max_price_impact is not None and impact > request.max_price_impact:
        raise errors.price_impact(impact, request.max_price_impact)
    ends = Ends(request.token_in, request.token_out)
    try:
        program = make_program(done.legs, ends, snapshot.wrapped, least, request.referral_id)
    except PlanError:
        raise errors.simulation_failed() from None
    data = tx_data(program, request.token_in, done.amount_in)
    encoded = binascii.b2a_base64(data, newline=False).decode("ascii")
    cost = cost_of(done.legs, table, own)
    gas = table.gas_limit(cost, len(data))
    if not Cost(*cost[:-1], gas).within(most):
        raise errors.simulation_failed()  # the search keeps the limits; nobody is to pay for a doubt
    unit_in, unit_out = snapshot.units[request.token_in], snapshot.units[request.token_out]
    short_in, short_out = done.amount_in / unit_in, paid / unit_out
    reverse = request.amount_in is None
    (usd_in,) = in_dollars(snapshot, settings.usdc, request.token_in, done.amount_in)
    usd_out, usd_least, usd_fee = in_dollars(snapshot, settings.usdc, request.token_out, paid, least, fee)
    return QuoteResponse(
        mode="reverse" if reverse else "forward",
        from_=request.token_in,
        to=request.token_out,
        amount_in=str(done.amount_in),
        amount_out=str(paid),
        amount_in_short=short_in,
        amount_out_short=short_out,
        amount_out_min=str(least),
        amount_out_min_short=least / unit_out,
        slippage=request.slippage,
        price_impact=impact,
        rate=short_out / short_in if short_in else 0.0,
        rate_inverse=short_in / short_out if short_out else 0.0,
        decimals_in=snapshot.decimals[request.token_in],
        decimals_out=snapshot.decimals[request.token_out],
        algorithm=request.algorithm,
        tx_data=encoded,
        estimated_gas_limit=gas,
        estimated_builtin_calls=cost.calls,
        fee_bps=sum(bps),
        fee_amount=str(fee),
        fee_amount_short=fee / unit_out,
        pool_fees=pool_fees(snapshot, done),
        optimality_gap=route.gap,
        snapshot=snapshot.info,
        amount_in_usd=usd_in,
        amount_out_usd=usd_out,
        amount_out_min_usd=usd_least,
        fee_amount_usd=usd_fee,
        amount_in_max=str(done.amount_in) if reverse else msgspec.UNSET,
        amount_in_max_short=short_in if reverse else msgspec.UNSET,
        ignored_parameters=request.ignored or msgspec.UNSET,
        profit=str(paid - done.amount_in) if cycle else msgspec.UNSET,
        profit_short=(paid - done.amount_in) / unit_out if cycle else msgspec.UNSET,
        paths=path_parts(snapshot, ends, done.fills, done.amount_in, done.amount_out, max(0, kept))
        if request.include_paths
        else msgspec.UNSET,
        transaction=unsigned(
            settings,
            sender=request.sender,
            receiver=settings.contract,
            value=done.amount_in if request.token_in == NATIVE else 0,
            data=encoded,
            gas_limit=gas,
            gas_price=request.gas_price,
        )
        if request.sender
        else msgspec.UNSET,
    )
