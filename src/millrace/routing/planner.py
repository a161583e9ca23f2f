"""Every kind of question about one market: forward and reverse, swaps, cycles and LP tokens."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable

from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolState
from millrace.routing.execution import shrink_input
from millrace.routing.liquidity import Paths, provide, redeem
from millrace.routing.plan import Execution, PlanError
from millrace.routing.router import Algorithm, Limits, NoRoute, Route, Router
from millrace.routing.venue import CurveCache

REVERSE_ROUNDS = 24
MAX_AMOUNT = 10**78
LP_ROUNDS = 10  # plans with LP tokens take milliseconds each
LP_CLOSE_ENOUGH = 10**5
CLOSE_ENOUGH = 10**9  # a reverse search stops when it pays at most one part in this too much


class Planner:
    """Answers questions over a set of pools. One thread at a time."""

    def __init__(self, pools: Iterable[Pool], market: DictMarket, curves: CurveCache | None = None) -> None:
        chosen = list(pools)
        self._market = market
        self.router = Router(chosen, market, curves)
        self._issuers = {
            pool.lp_token: pool
            for pool in chosen
            if pool.lp_token and pool.state == PoolState.ACTIVE and pool.lp_supply > 0
        }

    def supports(self, token_in: str, token_out: str) -> bool:
        """Whether there is any way from one token to the other."""
        if token_in == token_out:
            return self.router.knows(token_in)
        if self.router.connected(token_in, token_out):
            return True
        before, after = self._issuers.get(token_in), self._issuers.get(token_out)
        if before is not None:
            return after is None and all(self._reaches(token, token_out) for token in before.tokens)
        return after is not None and any(self._reaches(token_in, token) for token in after.tokens)

    def _reaches(self, token_in: str, token_out: str) -> bool:
        return token_in == token_out or self.router.connected(token_in, token_out)

    def forward(
        self,
        token_in: str,
        token_out: str,
        amount_in: int,
        limits: Limits,
        algorithm: Algorithm,
        deadline: float = math.inf,
    ) -> Route:
        """The best plan that sells `amount_in`. Raises `NoRoute`, or `PlanError` if no plan executes."""
        return self._answer(token_in, token_out, amount_in, limits, algorithm, deadline, probe=True)

    def _answer(
        self,
        token_in: str,
        token_out: str,
        amount_in: int,
        limits: Limits,
        algorithm: Algorithm,
        deadline: float,
        *,
        probe: bool,
    ) -> Route:
        """A forward answer; `probe` finds the spot rate of LP routes by a second, small plan."""
        if not self.supports(token_in, token_out):
            raise NoRoute("no path between tokens")
        before, after = self._issuers.get(token_in), self._issuers.get(token_out)
        plain: Route | None = None
        if (before is None and after is None) or token_in == token_out:
            return self.router.forward(token_in, token_out, amount_in, limits, algorithm, deadline)
        with contextlib.suppress(NoRoute, PlanError):
            plain = self.router.forward(token_in, token_out, amount_in, limits, algorithm, deadline)
        try:
            liquid = self._with_liquidity(token_in, token_out, amount_in, limits, probe=probe)
        except PlanError:
            if plain is None:
                raise
            return plain
        if plain is not None and plain.execution.amount_out >= liquid.execution.amount_out:
            return plain
        return liquid

    def _with_liquidity(self, token_in: str, token_out: str, amount_in: int, limits: Limits, *, probe: bool) -> Route:
        """A plan that redeems or mints LP units. The bound does not cover these, so it has no gap."""
        before, after = self._issuers.get(token_in), self._issuers.get(token_out)
        issuer = before if before is not None else after
        assert issuer is not None
        count = len(issuer.tokens)
        part = Limits(max(1, limits.pools // count), max(1, limits.paths // count), max(1, limits.hops - 1))

        def find(source: str, sink: str, amount: int) -> Paths:
            return self.router.find_paths(source, sink, amount, part)

        def plan(amount: int) -> Execution:
            if before is not None:
                return redeem(before, amount, token_out, find, self._market)
            return provide(issuer, token_in, amount, find, self._market)

        done = plan(amount_in)
        spot = done.amount_out / done.amount_in
        if probe:
            with contextlib.suppress(PlanError):
                small = plan(max(1, amount_in // 1000))
                spot = max(spot, small.amount_out / small.amount_in)
        return Route(done, spot, None)

    def reverse(
        self,
        token_in: str,
        token_out: str,
        amount_out: int,
        limits: Limits,
        algorithm: Algorithm,
        deadline: float = math.inf,
    ) -> Route:
        """The plan with the smallest input that pays at least `amount_out`.

        The best output is a concave function of the input, so few forward answers find the input; then
        the last plan's own exact execution is searched for its smallest input. Raises like `forward`.
        """
        if not self.supports(token_in, token_out):
            raise NoRoute("no path between tokens")
        spot = self._spot(token_in, token_out, limits, algorithm)
        guess = max(1, math.ceil(amount_out / spot))
        best: Route | None = None
        low, high = 0, 0
        liquid = token_in in self._issuers or token_out in self._issuers
        rounds, close = (LP_ROUNDS, LP_CLOSE_ENOUGH) if liquid else (REVERSE_ROUNDS, CLOSE_ENOUGH)
        for attempt in range(rounds):
            paid = 0
            with contextlib.suppress(PlanError):
                route = self._answer(token_in, token_out, guess, limits, algorithm, deadline, probe=False)
                paid = route.execution.amount_out
            if paid >= amount_out:
                if best is None or guess < high:
                    best, high = route, guess
                if paid - amount_out <= paid // close:
                    break
            else:
                low = max(low, guess)
            following = _next_input(guess, paid, amount_out, spot)
            if best is not None and not low < following < high:
                following = (low + high) // 2
            elif best is None:  # from below it would only creep up on the amount: overshoot, shrink later
                following = max(following, low + 1) + (following * 4**attempt) // close
            if following in (low, high, guess) or following > MAX_AMOUNT or time.monotonic() > deadline:
                break
            guess = following
        if best is None:
            raise PlanError("the market cannot pay this amount")
        if best.gap is None:  # a plan with LP units: the search above is all there is
            return best._replace(spot_rate=max(spot, best.spot_rate))
        return best._replace(execution=shrink_input(best.execution, token_in, token_out, amount_out))

    def _spot(self, token_in: str, token_out: str, limits: Limits, algorithm: Algorithm) -> float:
        """Best rate of a small trade; LP routes are tried with a thousandth of the pool."""
        spot = self.router.spot_rate(token_in, token_out)
        before, after = self._issuers.get(token_in), self._issuers.get(token_out)
        if before is not None:
            probe = max(1, before.lp_supply // 1000)
        elif after is not None:
            probe = max(1, self.router.depth(token_in) // 1000)
        else:
            return spot
        with contextlib.suppress(PlanError):
            done = self.forward(token_in, token_out, probe, limits, algorithm).execution
            spot = max(spot, done.amount_out / done.amount_in)
        if spot <= 0.0:
            raise PlanError("the pool takes no trade of this kind")
        return spot


def _next_input(amount_in: int, paid: int, wanted: int, spot: float) -> int:
    """A better input: the route seen as one constant-product pool with this spot rate and this output.

    `y(x) = spot x / (1 + x / depth)` through the point found; its inverse at `wanted`.
    """
    if paid == 0:
        return amount_in * 4
    seen = paid / amount_in
    if seen >= spot:
        return max(1, amount_in * wanted // paid)
    depth = amount_in * seen / (spot - seen)
    limit = spot * depth
    if wanted >= limit * (1.0 - 1e-12):
        return amount_in * 4
    return max(1, math.ceil(wanted * depth / (limit - wanted)))
