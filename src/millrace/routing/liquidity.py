"""Plans that begin by redeeming LP units or end by minting them.

Redeeming pays all of a pool's tokens; they are sold together, as one question with several sources. Minting wants the
pool's tokens in some proportion: what there is, is divided between them by value, and the best division is searched
by golden section on the LP units that come out (the contract balances what remains uneven by a swap of its own).
All amounts are exact: see `walk.py`.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from millrace.dex.aggregator_contract import MOST_DEPOSITED
from millrace.dex.market import DictMarket
from millrace.dex.operations import takes_deposits
from millrace.dex.pool import Pool, PoolError
from millrace.routing.costs import Table
from millrace.routing.execution import portion
from millrace.routing.golden import golden_section
from millrace.routing.paths import split_paths
from millrace.routing.plan import Execution, PlanError, cost_of
from millrace.routing.router import Algorithm, Limits, Router
from millrace.routing.venue import Trade, tradable
from millrace.routing.walk import Walker, sell_flow, sell_paths

Paths = list[tuple[list[Trade], float]]

REFINEMENTS = 3
"""Times a division is moved to one that leaves the deposit nothing to sell, as long as that pays more."""


class Issuers:
    """Which pools mint and redeem which LP tokens, as far as the aggregator contract can use them."""

    def __init__(self, pools: Iterable[Pool], market: DictMarket) -> None:
        self._market = market
        self._issuing = {pool.lp_token: pool for pool in pools if pool.lp_token and pool.lp_supply > 0}

    def moved(self, market: DictMarket) -> Issuers:
        """The same pools as `market` has them."""
        other = copy.copy(self)
        other._market = market
        other._issuing = {token: market.pools[pool.id] for token, pool in self._issuing.items()}
        return other

    def mints(self, token: str) -> Pool | None:
        """The pool that takes deposits for this LP token."""
        pool = self._issuing.get(token)
        if pool is None or not takes_deposits(pool):
            return None
        return pool if tradable(pool) and self._market.reaches(pool) else None

    def redeems(self, token: str) -> Pool | None:
        """The pool that takes back this LP token."""
        pool = self._issuing.get(token)
        return pool if pool is not None and _redeems(pool) else None


def _redeems(pool: Pool) -> bool:
    """Whether the pool allows withdrawals at present: one of half of its LP units would work."""
    try:
        pool.burn(max(1, pool.lp_supply // 2))
    except PoolError:
        return False
    return True


class Desk(NamedTuple):
    """Makes plans with LP units: where swaps are searched, within which limits, and what the plan must hold to.

    A `rough` desk looks at flows only: for the many trials of a search.
    """

    router: Router
    limits: Limits
    bounds: Limits
    algorithm: Algorithm
    rough: bool = False

    def plan(
        self,
        token_in: str,
        token_out: str,
        amount: int,
        before: Pool | None,
        after: Pool | None,
        shares: Sequence[float] = (),
    ) -> Execution:
        """The plan that redeems the input in pool `before` and mints the output in pool `after` (None: neither).

        `shares` are the parts of the value to turn into each token of `after`, see `divide`. Raises `PlanError`.
        """
        vault, amounts, limits = self._begin(token_in, amount, before)
        if after is None:
            done = self.sell(vault, amounts, token_out, limits)
        else:
            done = self._deposit(vault, amounts, after, shares, limits)
        plan = done.done(token_out)
        tokens = (len(before.tokens) if before else 1) + (len(after.tokens) if after else 1)
        bounds = self.bounds._replace(paths=max(self.bounds.paths, tokens - 1))
        if not within(plan, token_in, token_out, bounds, self.router.table):
            raise PlanError("the route needs more pools or paths than allowed")
        if any(fill.trade.token_in == token_out for fill in plan.fills):
            raise PlanError("the route sells what it is to buy")
        return plan

    def divide(self, token_in: str, amount: int, before: Pool | None, pool: Pool) -> Sequence[float]:
        """In which shares of its value the input is best turned into the tokens of `pool`. Raises `PlanError`."""
        vault, amounts, limits = self._begin(token_in, amount, before)
        rough = self._replace(rough=True)

        def deposit(shares: Sequence[float]) -> Walker | None:
            return _tried(lambda: rough._deposit(vault, amounts, pool, shares, limits))

        def minted(shares: Sequence[float]) -> int:
            done = deposit(shares)
            return 0 if done is None else done.balances[pool.lp_token]

        tried = {shares: minted(shares) for shares in self._even(pool)}
        if not tried:
            raise PlanError("the pool's tokens are not traded")
        if len(pool.tokens) == 2:
            parts = golden_section(lambda part: minted((part, 1.0 - part)))
            tried |= {(part, 1.0 - part): units for part, units in parts.items()}
        best = max(tried, key=lambda shares: tried[shares])
        if pool.kind != "constant_product":
            return best
        done = deposit(best)
        for _ in range(REFINEMENTS):
            moved = best if done is None else _without_balancing(best, *done.balancing)
            again = deposit(moved)
            if done is None or again is None or again.balances[pool.lp_token] <= done.balances[pool.lp_token]:
                break
            best, done = moved, again
        return best

    def _even(self, pool: Pool) -> Iterator[tuple[float, ...]]:
        """Divisions in the pool's proportion: over all tokens, and each alone; of many, over any a deposit can name."""
        worth = [reserve * self.router.scale(token) for token, reserve in zip(pool.tokens, pool.reserves, strict=True)]
        most = min(len(worth), MOST_DEPOSITED)
        sizes = (most,) if pool.kind == "constant_product" else range(1, most + 1) if len(worth) > most else (most, 1)
        for size in sizes:
            for chosen in itertools.combinations(range(len(worth)), size):
                whole = sum(worth[k] for k in chosen)
                if whole > 0.0:
                    yield tuple(worth[k] / whole if k in chosen else 0.0 for k in range(len(worth)))

    def sale(self, token: str, amount: int, before: Pool | None, sink: str) -> Execution:
        """A plan that sells a balance, redeemed in pool `before` (None: as it is). Raises `PlanError`."""
        vault, amounts, limits = self._begin(token, amount, before)
        return self.sell(vault, amounts, sink, limits).done(sink)

    def _begin(self, token_in: str, amount: int, before: Pool | None) -> tuple[Walker, dict[str, int], Limits]:
        """The vault after a withdrawal, if there is one, what it has to sell, and the limits left."""
        vault, table = Walker(token_in, amount, self.router.outlets), self.router.table
        if before is not None:
            vault.withdraw(before)
        limits = self.limits if before is None else self.limits.less(table.planned(table.withdrawal(before)))
        tokens = (token_in,) if before is None else before.tokens
        return vault, {token: vault.balances[token] for token in tokens}, limits

    def sell(self, vault: Walker, amounts: Mapping[str, int], sink: str, limits: Limits) -> Walker:
        """The vault after the best way to sell `amounts` of its tokens for `sink`. Raises `PlanError`."""
        given = {token: amount for token, amount in amounts.items() if token != sink and amount > 0}
        if not given:
            return vault
        if limits.hops < 1 or limits.pools < len(given):
            raise PlanError("the route needs more pools than allowed")
        if self.rough:
            return self._by_flow(vault, given, sink, limits)
        ways: list[Callable[[], Walker]] = []
        if self.algorithm != "greedy":
            ways.append(lambda: self._by_flow(vault, given, sink, limits))
        if self.algorithm != "lagrangian":
            ways.append(lambda: self._by_paths(vault, given, sink, limits, self.router.find_paths))
        found = [done for way in ways if (done := _tried(way)) is not None]
        if not found:
            return self._by_paths(vault, given, sink, limits, self._exact_path)
        return max(found, key=lambda done: done.balances[sink])

    def _by_flow(self, vault: Walker, amounts: Mapping[str, int], sink: str, limits: Limits) -> Walker:
        trades, flows = self.router.find_flow(amounts, sink, limits)
        done = sell_flow(vault, trades, flows, amounts, sink, self.router.scale)
        if any(amount == vault.balances[token] and done.balances.get(token, 0) for token, amount in amounts.items()):
            raise PlanError("a token remains unsold")
        return done

    def _by_paths(
        self, vault: Walker, amounts: Mapping[str, int], sink: str, limits: Limits, find: Callable[..., Paths]
    ) -> Walker:
        share = limits.shared(len(amounts))
        for token, amount in amounts.items():
            vault = sell_paths(vault, find(token, sink, amount, share), token, amount)
        return vault

    def _exact_path(self, token: str, sink: str, amount: int, limits: Limits) -> Paths:
        """The best single path in whole units. Raises `PlanError`."""
        path = self.router.exact_path(token, sink, amount, limits) if self.router.connected(token, sink) else None
        if path is None:
            raise PlanError("no path can execute this amount")
        return [(path, 1.0)]

    def _deposit(
        self, vault: Walker, amounts: Mapping[str, int], pool: Pool, shares: Sequence[float], limits: Limits
    ) -> Walker:
        """Turn `amounts` into the pool's tokens, in these shares of their value, and deposit them."""
        sales = self._divide(amounts, pool, shares)
        table = self.router.table
        limits = limits.less(table.planned(table.deposit(pool))).shared(max(1, len(sales)))
        last = {token: target for target, given in sales.items() for token in given}
        for target, given in sales.items():
            rest = {
                token: vault.balances[token]
                for token in given
                if last[token] == target and token not in pool.tokens  # what rounding left goes along
            }
            vault = self.sell(vault, given | rest, target, limits)
        done = vault.copy()
        held = {token: amount for token in pool.tokens if (amount := done.balances.get(token, 0)) > 0}
        # Of a token that is not wanted rounding may have left some on the way.
        most = sorted(held, key=lambda token: held[token] * self.router.scale(token))[-MOST_DEPOSITED:]
        done.deposit(pool, [token for token in held if token in most])
        return done

    def _divide(self, amounts: Mapping[str, int], pool: Pool, shares: Sequence[float]) -> dict[str, dict[str, int]]:
        """Which amounts to sell for which of the pool's tokens; of those, what is wanted is kept."""
        value = {token: amount * self.router.scale(token) for token, amount in amounts.items()}
        whole = sum(value.values())
        wanted = {token: share * whole for token, share in zip(pool.tokens, shares, strict=True)}
        kept = {token: min(value.get(token, 0.0), want) for token, want in wanted.items()}
        missing = {token: want - kept[token] for token, want in wanted.items() if want - kept[token] > 0.0}
        lacking = sum(missing.values())
        sales: dict[str, dict[str, int]] = {token: {} for token in missing}
        for token, amount in amounts.items():
            spare = amount
            if value[token] > 0.0:
                spare -= portion(amount, kept.get(token, 0.0) / value[token])
            if lacking <= 1e-12 * whole:
                continue
            targets = [target for target in missing if target != token]
            for number, target in enumerate(targets):
                part = spare if number == len(targets) - 1 else portion(spare, missing[target] / lacking)
                sales[target][token] = part
                spare -= part
        return {target: given for target, given in sales.items() if any(given.values())}


def within(plan: Execution, token_in: str, token_out: str, limits: Limits, table: Table) -> bool:
    """Whether a plan, taken apart into paths, holds the limits.

    A withdrawal or deposit divides a path by itself: the caller allows for a path for each of its tokens.
    """
    paths = split_paths(plan.fills, token_in, token_out)
    longest = max((len(path.hops) for path in paths), default=0)
    fits = limits.admit(table.planned(cost_of(plan.legs, table)))
    return fits and len(paths) <= limits.paths and longest <= limits.hops


def _tried(make: Callable[[], Walker]) -> Walker | None:
    try:
        return make()
    except PlanError:
        return None


def _without_balancing(shares: Sequence[float], sold: int, part: float) -> tuple[float, float]:
    """The division of one that makes a deposit sell a part of a token: that is turned into the other one beforehand."""
    share = shares[sold] * (1.0 - part)
    return (share, 1.0 - share) if sold == 0 else (1.0 - share, share)
