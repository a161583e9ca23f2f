"""LP units as tokens of the graph: deposits of one token, and withdrawals turned into one token.

An LP token that other pools trade lies between tokens like any other, and two more kinds of edges lead to it and
away from it. A stable or crypto pool takes a single token for its LP units. A withdrawal pays all of a pool's tokens;
as an edge to one of them it sells the others for it in the pool that is left. (A constant-product pool needs both
tokens, and the contract hands out its LP units only at the end of a plan: such a deposit is no edge, see
`liquidity.py`.) A deposit and withdrawal in one and the same pool are worth no more than a swap in it, so LP tokens
that nobody trades get no edges.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from millrace.dex.market import DictMarket
from millrace.dex.operations import MIN_OUTPUT
from millrace.dex.pool import Pool, PoolError
from millrace.routing.costs import NOTHING, Cost, Table
from millrace.routing.curve import NoCurve, sampled_knots
from millrace.routing.net import Knots
from millrace.routing.venue import Trade, least_output, tradable
from millrace.routing.walk import Walker

_MINT_PARTS = [10.0 ** (k / 8 - 4) for k in range(36)]  # deposits, as parts of the reserve
_BURN_PARTS = [10.0 ** (k / 8 - 4) for k in range(31)] + [0.7, 0.9, 0.97]  # withdrawals, as parts of the supply


class LpTrade(Trade):
    """A trade of one token for another that is more than one instruction. `walk` performs it."""

    __slots__ = ()

    def __init__(self, pool: Pool, token_in: str, token_out: str) -> None:
        self.pool = pool
        self.i = self.j = -1
        self.token_in, self.token_out = token_in, token_out
        self.spot = self.keeps = 0.0
        self.knots = None
        self._table = None
        self._cost = NOTHING


class MintTrade(LpTrade):
    """One token of a stable or crypto pool for its LP units."""

    __slots__ = ()

    def pays(self, amount: int) -> int:
        token = self.pool.index(self.token_in)
        try:
            minted = self.pool.mint(tuple([amount if k == token else 0 for k in range(len(self.pool.tokens))])).lp
        except PoolError:
            return 0
        return minted if minted >= least_output(self.pool) else 0

    def _work(self, table: Table) -> Cost:
        return table.deposit(self.pool)

    def walk(self, walker: Walker, mode: int, value: int) -> None:
        walker.deposit(self.pool, (self.token_in,), mode, value)


class BurnTrade(LpTrade):
    """LP units of a pool for one of its tokens: withdrawn, and the other tokens sold to what is left."""

    __slots__ = ()

    def pays(self, amount: int) -> int:
        to = self.pool.index(self.token_out)
        try:
            burn = self.pool.burn(amount)
            if min(burn.amounts) < MIN_OUTPUT:
                return 0
            total, pool = burn.amounts[to], burn.pool
            for k, share in enumerate(burn.amounts):
                if k != to:
                    swap = pool.swap(k, to, share)
                    if swap.amount_out < least_output(pool):
                        return 0
                    total, pool = total + swap.amount_out, swap.pool
        except PoolError:
            return 0
        return total

    def _work(self, table: Table) -> Cost:
        return table.withdrawal(self.pool).plus(table.swap(self.pool), len(self.pool.tokens) - 1)

    def walk(self, walker: Walker, mode: int, value: int) -> None:
        walker.withdraw_into(self.pool, self.token_out, mode, value)


def lp_edges(pools: Iterable[Pool], market: DictMarket, known: Container[str]) -> list[tuple[Trade, Knots]]:
    """The edges of every pool whose LP token and tokens are `known`, that is: traded in some pool."""
    found = []
    for pool in pools:
        if pool.lp_token in known and tradable(pool) and market.reaches(pool) and pool.lp_supply > 0:
            for trade, whole, parts in _trades(pool):
                if trade.token_in in known and trade.token_out in known:
                    try:
                        found.append((trade, _knots(trade, whole, parts)))
                    except (NoCurve, ArithmeticError):  # what one pool's numbers come to must not end the market
                        continue
    return found


def _trades(pool: Pool) -> Iterator[tuple[Trade, int, list[float]]]:
    """The pool's trades of this kind, with the amount and the parts of it at which to ask them."""
    for k, token in enumerate(pool.tokens):
        yield BurnTrade(pool, pool.lp_token, token), pool.lp_supply, _BURN_PARTS
        if pool.kind != "constant_product":
            yield MintTrade(pool, token, pool.lp_token), pool.reserves[k], _MINT_PARTS


def _knots(trade: Trade, whole: int, parts: list[float]) -> Knots:
    inputs, outputs = [], []
    for part in parts:
        amount = int(whole * part)
        paid = trade.pays(amount) if amount else 0
        if paid:
            inputs.append(amount)
            outputs.append(paid)
    return sampled_knots(inputs, outputs)
