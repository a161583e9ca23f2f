"""Takes an executed plan apart into paths, for people to read.

The contract works on balances, not on paths, so a plan that merges and splits has many such readings.
This one takes the widest remaining path first. Amounts along a path are shares of what each trade did;
the paths' inputs and outputs add up to the quote's, to the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millrace.routing.plan import Fill

MILLION = 1_000_000
NEGLIGIBLE = 1e-9  # of a trade; so little left goes along with the path that leaves it


class Hop(NamedTuple):
    """The part of trade `number` on one path."""

    fill: Fill
    number: int
    amount_in: int
    amount_out: int


class PathShare(NamedTuple):
    """A path with its part of the input."""

    hops: list[Hop]
    amount_in: int
    amount_out: int
    ppm: int


def split_paths(fills: Sequence[Fill], source: str, sink: str) -> list[PathShare]:
    """Decompose fills (in execution order) into paths from `source` to `sink`."""
    left_in = [fill.amount_in for fill in fills]
    left_out = [fill.amount_out for fill in fills]
    routes: list[list[Hop]] = []
    while len(routes) <= len(fills):
        chain = _widest_chain(fills, left_in, source, sink)
        if not chain:
            break
        routes.append(_take(fills, chain, left_in, left_out))
    for hops in reversed(routes):  # what rounding left over goes to the last path through that trade
        first, last = hops[0].number, hops[-1].number
        hops[0] = hops[0]._replace(amount_in=hops[0].amount_in + left_in[first])
        hops[-1] = hops[-1]._replace(amount_out=hops[-1].amount_out + left_out[last])
        left_in[first] = left_out[last] = 0
    return _with_shares(routes)


def _widest_chain(fills: Sequence[Fill], left: Sequence[int], source: str, sink: str) -> list[int]:
    """Trades from source to sink, always the one with the most input left; empty when there is none."""
    chain: list[int] = []
    token, start = source, 0
    while not chain or token != sink:
        # Execution order makes this end: a later hop is always a later trade.
        following = [k for k in range(start, len(fills)) if left[k] > 0 and fills[k].trade.token_in == token]
        if not following:
            return []
        best = max(following, key=lambda k: left[k])
        chain.append(best)
        token, start = fills[best].trade.token_out, best + 1
    return chain


def _take(fills: Sequence[Fill], chain: Sequence[int], left_in: list[int], left_out: list[int]) -> list[Hop]:
    """Remove as much as the narrowest trade of the chain allows and list the amounts taken."""
    amount, reach = float("inf"), 1.0
    for k in chain:
        amount = min(amount, left_in[k] / reach)
        reach *= fills[k].amount_out / fills[k].amount_in
    hops = []
    for k in chain:
        fill = fills[k]
        part = amount / fill.amount_in
        if amount >= left_in[k] - NEGLIGIBLE * fill.amount_in:
            taken_in, taken_out = left_in[k], left_out[k]
        else:
            taken_in = min(left_in[k], int(amount))
            taken_out = min(left_out[k], int(fill.amount_out * part))
        left_in[k] -= taken_in
        left_out[k] -= taken_out
        hops.append(Hop(fill, k, taken_in, taken_out))
        amount *= fill.amount_out / fill.amount_in
    return hops


def _with_shares(routes: Sequence[list[Hop]]) -> list[PathShare]:
    """Add the parts per million: rounded down, the missing ones go to the largest path."""
    total = sum(hops[0].amount_in for hops in routes)
    shares = [hops[0].amount_in * MILLION // total for hops in routes]
    if shares:
        shares[shares.index(max(shares))] += MILLION - sum(shares)
    return [
        PathShare(hops, hops[0].amount_in, hops[-1].amount_out, share)
        for hops, share in zip(routes, shares, strict=True)
    ]
