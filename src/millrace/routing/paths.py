"""Takes an executed plan apart into paths, for people to read.

The contract works on balances, not on paths, so a plan that merges and splits has many such readings.
The largest path comes first. Amounts along a path are shares of what each trade did;
the paths' inputs and outputs add up to the quote's, to the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millrace.routing.plan import Fill

MILLION = 1_000_000
RESIDUE = 100_000  # a path with less than this part of the input is the rounding of other paths
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


def split_paths(fills: Sequence[Fill], source: str, sink: str, whole: int = 0) -> list[PathShare]:
    """Decompose fills (in execution order) into paths from `source` to `sink`.

    The shares are parts of `whole`, the plan's input, of which a cycle may leave some; 0: of what the paths take.
    """
    left_in = [fill.amount_in for fill in fills]
    left_out = [fill.amount_out for fill in fills]
    blocked: set[int] = set()
    routes: list[list[Hop]] = []
    while len(routes) + len(blocked) <= 2 * len(fills):
        chain, arrives = _next_chain(fills, left_in, blocked, source, sink)
        if arrives:
            routes.append(_take(fills, chain, left_in, left_out))
        elif chain:
            blocked.add(chain[-1])  # dust of rounding: nobody is left who sells what this trade buys
        else:
            break
    routes.sort(key=lambda hops: -hops[0].amount_in)
    if routes:
        _add_dust(routes[0], fills, left_in, left_out, source, sink)
    _join_residue(routes)
    if routes and whole:  # what a withdrawal gave back of the source on the way is not the caller's
        given_back = max(0, sum(hops[0].amount_in for hops in routes) - whole)
        routes[0][0] = routes[0][0]._replace(amount_in=routes[0][0].amount_in - given_back)
    return _with_shares(routes, whole)


def _add_dust(
    hops: list[Hop],
    fills: Sequence[Fill],
    left_in: Sequence[int],
    left_out: Sequence[int],
    source: str,
    sink: str,
) -> None:
    """What rounding left over at the ends goes to the largest path."""
    spare_in = sum(left for left, fill in zip(left_in, fills, strict=True) if fill.trade.token_in == source)
    spare_out = sum(left for left, fill in zip(left_out, fills, strict=True) if fill.trade.token_out == sink)
    hops[0] = hops[0]._replace(amount_in=hops[0].amount_in + spare_in)
    hops[-1] = hops[-1]._replace(amount_out=hops[-1].amount_out + spare_out)


def _join_residue(routes: list[list[Hop]]) -> None:
    """Paths that are nothing but the rounding of others go to the largest path."""
    total = sum(hops[0].amount_in for hops in routes)
    while len(routes) > 1 and routes[-1][0].amount_in * RESIDUE < total:
        small, hops = routes.pop(), routes[0]
        hops[0] = hops[0]._replace(amount_in=hops[0].amount_in + small[0].amount_in)
        hops[-1] = hops[-1]._replace(amount_out=hops[-1].amount_out + small[-1].amount_out)


def _next_chain(
    fills: Sequence[Fill], left: Sequence[int], blocked: set[int], source: str, sink: str
) -> tuple[list[int], bool]:
    """Trades from the source on, always the next in execution order that has input left.

    A trade sells what was bought before it. Taking the next one leaves the later ones to those who buy
    later, so no amount but dust gets stuck. The flag says whether the sink was reached.
    """
    chain: list[int] = []
    token, start = source, 0
    while not chain or token != sink:
        following = (
            k for k in range(start, len(fills)) if left[k] > 0 and k not in blocked and fills[k].trade.token_in == token
        )
        k = next(following, -1)
        if k < 0:
            return chain, False
        chain.append(k)
        token, start = fills[k].trade.token_out, k + 1
    return chain, True


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


def _with_shares(routes: Sequence[list[Hop]], whole: int) -> list[PathShare]:
    """Add the parts per million: rounded down, the missing ones go to the largest path."""
    taken = sum(hops[0].amount_in for hops in routes)
    total = max(whole, taken)
    shares = [hops[0].amount_in * MILLION // total for hops in routes]
    if shares:
        shares[shares.index(max(shares))] += taken * MILLION // total - sum(shares)
    return [
        PathShare(hops, hops[0].amount_in, hops[-1].amount_out, share)
        for hops, share in zip(routes, shares, strict=True)
    ]
