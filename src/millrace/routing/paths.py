"""Takes an executed plan apart into paths, for people to read.

The contract works on balances, not on paths, so a plan that merges and splits has many such readings. This one follows
the input through the trades in the order in which they are executed: every trade takes what was bought first, and what
it pays is divided between those whose units it took. So the amounts of a path fit together to the unit, a hop sells
what the hop before it bought, and the inputs and outputs of all paths add up to the quote's. There are at most as many
paths as trades that leave something of their token, and one more; a trade in pieces is one hop. The largest comes
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from millrace.routing.plan import Fill

MILLION = 1_000_000  # parts that the contract and the interface count in
RESIDUE = 100_000  # a path with less than this part of the input is the rounding of other paths


class Hop(msgspec.Struct, frozen=True):
    """The part of trade `number` on one path."""

    fill: Fill
    number: int
    amount_in: int
    amount_out: int


class PathShare(msgspec.Struct, frozen=True):
    """A path with its part of the input."""

    hops: list[Hop]
    amount_in: int
    amount_out: int
    ppm: int


class _Parcel(msgspec.Struct, frozen=True):
    """Units of one token that came a way together: the hops so far, and how many units they have become.

    `source` is the number of the input that they were.
    """

    hops: tuple[Hop, ...]
    amount: int
    source: int = 0


def split_paths(
    fills: Sequence[Fill], source: str, sink: str, whole: int = 0, paid: int | None = None
) -> list[PathShare]:
    """Decompose fills (in execution order) into paths from `source` to `sink`.

    The shares are parts of `whole`, the plan's input, of which a cycle may leave some; 0: what the fills take.
    `paid` is what all paths together pay; without it, what the fills do: dust that a withdrawal into one token left of
    another one is in no fill.
    """
    if not whole:
        gained = sum(fill.amount_out for fill in fills if fill.trade.token_out == source != sink)
        whole = sum(fill.amount_in for fill in fills if fill.trade.token_in == source) - gained
    if _is_chain(fills, source, sink, whole, paid):  # most plans
        hops = [Hop(fill, number, fill.amount_in, fill.amount_out) for number, fill in enumerate(fills)]
        return [PathShare(hops, whole, hops[-1].amount_out, MILLION)]
    held = {source: [_Parcel((), whole)]}
    _follow(held, fills)
    routes = _merged([parcel.hops for parcel in held.get(sink, []) if parcel.hops])
    if not routes:
        return []
    _join_residue(routes)
    stuck = [p for token, parcels in held.items() if token != sink for p in parcels if p.hops]
    spare_in = sum(parcel.hops[0].amount_in for parcel in stuck)  # dust that no trade sells
    if spare_in:
        routes[0][0] = replace(routes[0][0], amount_in=routes[0][0].amount_in + spare_in)
    if paid is not None:
        spare_out = paid - sum(hops[-1].amount_out for hops in routes)
        if spare_out:
            routes[0][-1] = replace(routes[0][-1], amount_out=routes[0][-1].amount_out + spare_out)
    return _with_shares(routes, whole)


def _is_chain(fills: Sequence[Fill], source: str, sink: str, whole: int, paid: int | None) -> bool:
    """Whether every fill sells, to the unit, what the one before it bought: a path that takes all of the input."""
    token, amount = source, whole
    for trade, sold, bought in fills:
        if sold != amount or trade.token_in != token:
            return False
        token, amount = trade.token_out, bought
    return bool(fills) and token == sink and (paid is None or amount == paid)


def split_sources(fills: Sequence[Fill], inputs: Sequence[tuple[str, int]]) -> list[list[Fill]]:
    """The parts of fills (in execution order) that each of several inputs, tokens and amounts, has in them."""
    held: dict[str, list[_Parcel]] = {}
    for number, (token, amount) in enumerate(inputs):
        held.setdefault(token, []).append(_Parcel((), amount, number))
    _follow(held, fills)
    parts: list[dict[int, Fill]] = [{} for _ in inputs]
    for parcel in [parcel for parcels in held.values() for parcel in parcels]:
        mine = parts[parcel.source]
        for hop in parcel.hops:
            _, sold, bought = mine.get(hop.number, hop.fill._replace(amount_in=0, amount_out=0))
            mine[hop.number] = hop.fill._replace(amount_in=sold + hop.amount_in, amount_out=bought + hop.amount_out)
    return [[fill for _, fill in sorted(part.items())] for part in parts]


def _follow(held: dict[str, list[_Parcel]], fills: Sequence[Fill]) -> None:
    """Move the parcels of the tokens `held` through the fills."""
    for number, fill in enumerate(fills):
        bought = _trade(_take(held.get(fill.trade.token_in, []), fill.amount_in), fill, number)
        held.setdefault(fill.trade.token_out, []).extend(bought)


def _merged(chains: Sequence[Sequence[Hop]]) -> list[list[Hop]]:
    """Chains of the same trades as one, be it in several pieces; the one with most of the input first."""
    merged: dict[tuple[tuple[str, str, str], ...], list[Hop]] = {}
    for chain in chains:
        key = tuple([(trade.pool.id, trade.token_in, trade.token_out) for trade in [hop.fill.trade for hop in chain]])
        known = merged.get(key)
        merged[key] = (
            list(chain) if known is None else [_sum(one, other) for one, other in zip(known, chain, strict=True)]
        )
    return sorted(merged.values(), key=lambda hops: -hops[0].amount_in)


def _sum(one: Hop, other: Hop) -> Hop:
    return Hop(one.fill, one.number, one.amount_in + other.amount_in, one.amount_out + other.amount_out)


def _take(parcels: list[_Parcel], amount: int) -> list[_Parcel]:
    """Remove `amount` from the parcels: one of just this size, the newest that come to it, else the oldest first.

    The newest are what a trade sells that goes on with what the one before it paid for several. Those of which rounding
    has left nothing go along with the first trade, so that what they were has a path.
    """
    nothing = [parcel for parcel in parcels if not parcel.amount] if amount else []
    if nothing:
        parcels[:] = [parcel for parcel in parcels if parcel.amount]
    for k, parcel in enumerate(parcels):
        if parcel.amount == amount:
            return [parcels.pop(k), *nothing]
    newest = list(accumulate(parcel.amount for parcel in reversed(parcels)))
    if amount in newest:
        first = len(parcels) - 1 - newest.index(amount)
        taken, parcels[first:] = parcels[first:], []
        return taken + nothing
    taken = []
    while parcels and (amount > 0 or not taken):
        oldest = parcels[0]
        if oldest.amount <= amount:
            taken.append(parcels.pop(0))
        else:
            part, parcels[0] = _divide(oldest, amount)
            taken.append(part)
        amount -= taken[-1].amount
    return taken + nothing


def _divide(parcel: _Parcel, amount: int) -> tuple[_Parcel, _Parcel]:
    """A parcel in two, the first of this amount; its hops divided backwards, a unit at least for each if there is."""
    ones: list[Hop] = []
    others: list[Hop] = []
    wanted = amount
    for hop in reversed(parcel.hops):
        part = wanted * hop.amount_in // hop.amount_out if hop.amount_out else 0
        part = min(max(part, 1), hop.amount_in - 1) if hop.amount_in > 1 else part
        ones.append(Hop(hop.fill, hop.number, part, wanted))
        others.append(Hop(hop.fill, hop.number, hop.amount_in - part, hop.amount_out - wanted))
        wanted = part
    return (
        _Parcel(tuple(ones[::-1]), amount, parcel.source),
        _Parcel(tuple(others[::-1]), parcel.amount - amount, parcel.source),
    )


def _trade(sold: Sequence[_Parcel], fill: Fill, number: int) -> list[_Parcel]:
    """What becomes of the parcels that a trade sells: each has its part of what is bought."""
    bought: list[_Parcel] = []
    units, left = sum(parcel.amount for parcel in sold), fill.amount_out
    for parcel in sold:
        paid = left * parcel.amount // units if units else 0
        units, left = units - parcel.amount, left - paid
        bought.append(_Parcel((*parcel.hops, Hop(fill, number, parcel.amount, paid)), paid, parcel.source))
    return bought


def _join_residue(routes: list[list[Hop]]) -> None:
    """Paths that are nothing but the rounding of others go to the largest path."""
    total = sum(hops[0].amount_in for hops in routes)
    while len(routes) > 1 and routes[-1][0].amount_in * RESIDUE < total:
        small, hops = routes.pop(), routes[0]
        hops[0] = replace(hops[0], amount_in=hops[0].amount_in + small[0].amount_in)
        hops[-1] = replace(hops[-1], amount_out=hops[-1].amount_out + small[-1].amount_out)


def _with_shares(routes: Sequence[list[Hop]], whole: int) -> list[PathShare]:
    """Add the parts per million: rounded down, the missing ones go to the largest path."""
    taken = sum(hops[0].amount_in for hops in routes)
    shares = [hops[0].amount_in * MILLION // whole for hops in routes]
    shares[shares.index(max(shares))] += taken * MILLION // whole - sum(shares)
    return [
        PathShare(hops, hops[0].amount_in, hops[-1].amount_out, share)
        for hops, share in zip(routes, shares, strict=True)
    ]
