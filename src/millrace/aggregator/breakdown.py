"""What an executed plan did, as answers show it: paths, swaps, and what pools withheld."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from millrace.aggregator.responses import PathPart, PoolFee, SwapHop
from millrace.aggregator.snapshot import Face, Snapshot
from millrace.chain import address
from millrace.chain.amount import short
from millrace.chain.token import NATIVE
from millrace.dex.aggregator_contract import WRAPPER
from millrace.dex.constant_product import OneDexPool
from millrace.dex.pool import Pool
from millrace.dex.rate import RATE_POOLS
from millrace.routing.outlets import NONE
from millrace.routing.paths import MILLION, split_paths
from millrace.routing.plan import Ends, Execution, Fill, LpMove, spot_output
from millrace.routing.venue import Trade

DEX_NAMES = {
    "XExchange": "xExchange",
    "OneDex": "OneDex",
    "AshSwap": "AshSwap",
    "Jex": "JEX",
    **{exchange: exchange for exchange, _ in RATE_POOLS},
}
"""Exchanges, by what pools call them."""


def price_impact(fills: Sequence[Fill], paid: int, spot: Callable[[Trade], float] = attrgetter("spot")) -> float:
    """1 - executed rate / the spot rate of the same route with fees. What stays of a cycle's input is in neither."""
    at_spot = spot_output(fills, spot) if fills else 0.0
    return max(0.0, 1.0 - paid / at_spot) if at_spot > 0.0 else 0.0


def pool_fees(snapshot: Snapshot, done: Execution) -> list[PoolFee]:
    """One entry per swap, in execution order; a pool that is used again is asked as it was left."""
    if done.fees is not None:
        return [_pool_fee(snapshot, *fee) for fee in done.fees]
    names = [fill.trade.pool.id for fill in done.fills]
    if len(set(names)) == len(names):
        swaps = [(trade, sold) for trade, sold, _ in done.fills if isinstance(trade, Trade)]
        return [_pool_fee(snapshot, trade.pool, *trade.pool.withheld(trade.i, trade.j, sold)) for trade, sold in swaps]
    result = []
    shared = NONE.used(names)  # what others sell in a pool changes no fee
    touched: dict[str, Pool] = {}
    for trade, sold, _ in done.fills:
        if isinstance(trade, Trade):
            pool = trade.pool
            if pool.id in shared:
                swap = touched.get(pool.id, pool).swap(trade.i, trade.j, sold)
                token, withheld, touched[pool.id] = swap.fee_token, swap.fee_amount, swap.pool
            else:
                token, withheld = pool.withheld(trade.i, trade.j, sold)
            result.append(_pool_fee(snapshot, pool, token, withheld))
    return result


def _pool_fee(snapshot: Snapshot, pool: Pool, token: str, amount: int) -> PoolFee:
    face = snapshot.faces.get(pool.id) or _face_of(snapshot, pool)
    return PoolFee(
        dex=face.dex,
        address=face.address,
        token=token,
        amount=str(amount),
        amount_short=amount / snapshot.units[token],
    )


def _face_of(snapshot: Snapshot, pool: Pool) -> Face:
    """What every answer says of a pool, kept for the next one."""
    pair_id = pool.pair_id if isinstance(pool, OneDexPool) else None
    found = snapshot.faces[pool.id] = Face(DEX_NAMES[pool.exchange], address.encode(pool.address), pair_id)
    return found


def path_parts(
    snapshot: Snapshot, ends: Ends, fills: Sequence[Fill], amount_in: int, amount_out: int, kept: int = 0
) -> list[PathPart]:
    """The path breakdown of what sold `amount_in` for `amount_out`, with the wrapper's hops at the ends.

    `kept` is what a cycle plan leaves of its input, which is part of both.
    """
    token_in, token_out = ends
    source, sink = snapshot.inner(token_in), snapshot.inner(token_out)
    if not fills:
        hop = wrapper_hop(token_in, token_out, amount_in)
        return [_part(snapshot, ends, amount_in, amount_in, MILLION, [hop])]
    parts = []
    for share in split_paths(fills, source, sink, amount_in, amount_out - kept):
        swaps = [swap_hop(snapshot, hop.fill.trade, hop.amount_in, hop.amount_out) for hop in share.hops]
        if token_in == NATIVE:
            swaps.insert(0, wrapper_hop(NATIVE, snapshot.wrapped, share.amount_in))
        if token_out == NATIVE:
            swaps.append(wrapper_hop(snapshot.wrapped, NATIVE, share.amount_out))
        parts.append(_part(snapshot, ends, share.amount_in, share.amount_out, share.ppm, swaps))
    if kept:  # what a cycle plan leaves of its input is a path without swaps
        parts.append(_part(snapshot, ends, kept, kept, MILLION - sum(part.split_ppm for part in parts), []))
    return parts


def _part(snapshot: Snapshot, ends: Ends, amount_in: int, amount_out: int, ppm: int, swaps: list[SwapHop]) -> PathPart:
    return PathPart(
        amount_in=str(amount_in),
        amount_out=str(amount_out),
        amount_in_short=amount_in / snapshot.units[ends.token_in],
        amount_out_short=amount_out / snapshot.units[ends.token_out],
        split_ppm=ppm,
        swaps=swaps,
    )


def swap_hop(snapshot: Snapshot, trade: Trade | LpMove, sold: int, bought: int) -> SwapHop:
    """One executed trade (or LP move) as the interface shows it."""
    source, target = trade.token_in, trade.token_out
    face = snapshot.faces.get(trade.pool.id) or _face_of(snapshot, trade.pool)
    return SwapHop(
        dex=face.dex,
        address=face.address,
        from_=source,
        to=target,
        amount_in=str(sold),
        amount_out=str(bought),
        amount_in_short=sold / snapshot.units[source],
        amount_out_short=bought / snapshot.units[target],
        pair_id=face.pair_id,
    )


def wrapper_hop(source: str, target: str, amount: int) -> SwapHop:
    """A wrap or unwrap, as the interface shows it."""
    text, scaled = str(amount), short(amount, 18)
    return SwapHop(
        dex="wrapper",
        address=address.encode(WRAPPER),
        from_=source,
        to=target,
        amount_in=text,
        amount_out=text,
        amount_in_short=scaled,
        amount_out_short=scaled,
    )
