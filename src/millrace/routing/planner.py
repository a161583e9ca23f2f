"""Every kind of question about one market: forward and reverse, swaps, cycles and LP tokens."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import cast

from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.routing import reverse
from millrace.routing.answers import Question
from millrace.routing.costs import NOTHING, Table
from millrace.routing.execution import execute
from millrace.routing.liquidity import Desk, Issuers, within
from millrace.routing.plan import AnyLeg, Execution, Leg, PlanError, net_of, taken_of
from millrace.routing.router import Algorithm, Limits, NoRoute, Route, Router
from millrace.routing.venue import CurveCache
from millrace.routing.walk import Walker


class Planner:
    """Answers questions over a set of pools. One thread at a time; `twin` is one for another thread."""

    def __init__(
        self,
        pools: Iterable[Pool],
        market: DictMarket,
        curves: CurveCache | None = None,
        pause: Callable[[], None] = lambda: None,
        table: Table | None = None,
    ) -> None:
        chosen = list(pools)
        self.table = table or Table()
        """What plans take of a transaction."""
        self.router = Router(chosen, market, curves, table=self.table, pause=pause)
        chosen = [pool for pool in chosen if pool.id not in self.router.faulty]
        self._issuers = Issuers(chosen, market)
        traded = any(pool.lp_token in self.router.index for pool in chosen)
        between = (
            Router(chosen, market, curves, liquidity=True, table=self.table, pause=pause) if traded else self.router
        )
        self._between = between if between.has_liquidity else self.router

    def twin(self, aside: Callable[[], None] = lambda: None) -> Planner:
        """The same market with scratch memory of its own; `aside` is called between searches, and between walks."""
        other = copy.copy(self)
        other.router = self.router.twin(aside)
        other._between = other.router if self._between is self.router else self._between.twin(aside)
        return other

    def moved(self, pools: Mapping[str, Pool], market: DictMarket) -> Planner:
        """The same market with these pools, by id, as a plan leaves them, which is `market`; no LP units in between.

        Raises `NoCurve` where one of them takes no trades any more.
        """
        other = copy.copy(self)
        other.router = other._between = self.router.moved(pools)
        other._issuers = self._issuers.moved(market)
        return other

    def trades_liquidity(self, token_in: str, token_out: str, *, liquidity: bool) -> bool:
        """Whether the question is one about LP units: such plans take longer, and no bound covers them.

        `liquidity`: whether LP units are allowed between other tokens.
        """
        if liquidity and self._between is not self.router:
            return True
        return token_in != token_out and bool(self._issuers.redeems(token_in) or self._issuers.mints(token_out))

    def mints(self, token: str) -> bool:
        """Whether these are LP units that a pool takes deposits for."""
        return self._issuers.mints(token) is not None

    def supports(self, token_in: str, token_out: str, *, liquidity: bool = False) -> bool:
        """Whether there is any way from one token to the other; with `liquidity` also over LP units in between."""
        router = self._between if liquidity else self.router
        if token_in == token_out:
            return router.knows(token_in)
        if router.connected(token_in, token_out):
            return True
        before, after = self._issuers.redeems(token_in), self._issuers.mints(token_out)
        if before is None and after is None:
            return False
        sources = (token_in,) if before is None else before.tokens
        targets = (token_out,) if after is None else after.tokens

        def reaches(source: str, target: str) -> bool:
            return source == target or router.connected(source, target)

        return all(any(reaches(source, target) for target in targets) for source in sources) and all(
            any(reaches(source, target) for source in sources) for target in targets
        )

    def forward(
        self,
        token_in: str,
        token_out: str,
        amount_in: int,
        limits: Limits,
        algorithm: Algorithm,
        deadline: float = math.inf,
        *,
        hurry: bool = False,
    ) -> Route:
        """The best plan that sells `amount_in`. Raises `NoRoute`, or `PlanError` if no plan executes.

        `deadline` is on `time.monotonic`: past it the best plan so far is the answer. With `hurry` a question not
        about LP units raises `NeedsTime` instead of taking long.
        """
        if not self.trades_liquidity(token_in, token_out, liquidity=limits.liquidity):
            return self.router.forward(token_in, token_out, amount_in, limits, algorithm, deadline, hurry=hurry)
        asked = Question(token_in, token_out, amount_in, limits, algorithm, deadline, hurry)
        if not self.supports(token_in, token_out, liquidity=limits.liquidity):
            raise NoRoute("no path between tokens")
        found: list[Route] = []
        reasons: list[Exception] = []
        for router in self._routers(limits):
            try:
                route = router.forward(*asked[:6])
                if router is self.router or within(route.execution, token_in, token_out, limits, self.table):
                    found.append(route)
            except (NoRoute, PlanError) as error:
                reasons.append(error)
        if token_in != token_out:
            found += self._with_liquidity(asked, bool(found))
        if not found:
            if token_in == token_out:
                raise reasons[-1]
            if all(isinstance(reason, NoRoute) for reason in reasons) and not self._room_for(
                token_in, token_out, limits
            ):
                raise NoRoute("no path between tokens within the limits")
            raise PlanError("no plan executes this amount")
        best = max(found, key=lambda route: self._gain(route.execution, limits))
        return best._replace(gap=None)

    def _gain(self, done: Execution, limits: Limits) -> int:
        """What a plan pays less its fees, and less what is paid in: of cycles not all that there is need be."""
        return net_of(done, self.table, limits.toll) - taken_of(done.amount_out, limits.bps) - done.amount_in

    def ways(self, token_in: str, token_out: str, limits: Limits) -> list[tuple[Pool | None, Pool | None]]:
        """Pools to redeem the input in, and to mint the output in, if it is LP units; None for neither."""
        router = self._routers(limits)[-1]
        before, after = self._issuers.redeems(token_in), self._issuers.mints(token_out)
        first = [pool for pool in (before, None) if pool is not None or router.knows(token_in)]
        last = [pool for pool in (after, None) if pool is not None or router.knows(token_out)]
        return [pair for pair in itertools.product(first, last) if pair != (None, None)]

    def _room_for(self, token_in: str, token_out: str, limits: Limits) -> bool:
        """Whether a withdrawal or deposit, whichever way, fits into a transaction at all."""
        for before, after in self.ways(token_in, token_out, limits):
            taken = NOTHING if before is None else self.table.planned(self.table.withdrawal(before))
            if limits.admit(taken if after is None else taken.plus(self.table.planned(self.table.deposit(after)))):
                return True
        return False

    def _with_liquidity(self, asked: Question, answered: bool) -> list[Route]:
        """Plans that redeem the input, mint the output, or both; over edges astray, too."""
        token_in, token_out, amount_in, limits, algorithm, deadline, _ = asked
        routers = dict.fromkeys(graph for router in self._routers(limits) for graph in (router, router.whole))
        apart = limits._replace(toll=0.0)  # their parts end in tokens in which the fee is not priced
        found: list[Route] = []
        for first, last in self.ways(token_in, token_out, limits):
            shares: Sequence[float] = ()
            for router in routers:
                if (found or answered) and time.monotonic() > deadline:
                    return found
                desk = Desk(router, apart, apart, algorithm)
                with contextlib.suppress(PlanError):
                    if last is not None and not shares:  # one division will do for all
                        shares = desk.divide(token_in, amount_in, first, last)
                    found.append(Route(self._first_plan(desk, asked, first, last, shares), None))
        return found

    def _first_plan(
        self, desk: Desk, asked: Question, before: Pool | None, after: Pool | None, shares: Sequence[float]
    ) -> Execution:
        """A plan within the limits; with fewer paths where it would come to more than it asked for."""
        try:
            return desk.plan(*asked[:3], before, after, shares)
        except PlanError:
            if desk.limits.paths == 1:
                raise
        few = desk._replace(limits=desk.limits._replace(paths=1))
        return few.plan(*asked[:3], before, after, shares)

    def _routers(self, limits: Limits) -> list[Router]:
        """Where to search: without LP units on the way, and, if they are allowed, with them."""
        return list(dict.fromkeys((self.router, self._between if limits.liquidity else self.router)))

    def reverse(
        self,
        token_in: str,
        token_out: str,
        amount_out: int,
        limits: Limits,
        algorithm: Algorithm,
        deadline: float = math.inf,
    ) -> Route:
        """The plan with the smallest input that pays at least `amount_out`; `forward` finds it for that input.

        Raises like `forward`.
        """
        if not self.supports(token_in, token_out, liquidity=limits.liquidity):
            raise NoRoute("no path between tokens")

        answers: dict[int, Route | None] = {}

        def forward(amount: int) -> Route | None:
            if amount not in answers:
                answers[amount] = None
                with contextlib.suppress(PlanError):
                    answers[amount] = self.forward(token_in, token_out, amount, limits, algorithm, deadline)
            return answers[amount]

        def single(guess: int) -> Execution | None:
            if not self.router.connected(token_in, token_out):
                return None
            found = self.router.cheapest_path(token_in, token_out, amount_out, guess, limits)
            return None if found is None else found.execution()

        def walk(legs: list[AnyLeg], amount: int) -> Execution | None:
            self.router.aside()  # some questions take hundreds
            try:
                return Walker.replay(legs, token_in, amount, self.router.outlets).done(token_out)
            except PlanError:
                return None

        slow = self.trades_liquidity(token_in, token_out, liquidity=limits.liquidity)
        net = partial(net_of, table=self.table, toll=limits.toll)
        question = reverse.Question(token_in, amount_out, forward, single, walk, net, slow, answers.__len__, deadline)
        return reverse.smallest(question, self._spot(token_in, token_out, limits))

    def _spot(self, token_in: str, token_out: str, limits: Limits) -> float:
        """Output per input of a small trade; about that where LP units are redeemed or minted. Raises `PlanError`."""
        spot = (self._between if limits.liquidity else self.router).rate(token_in, token_out)
        sold, bought = self._value(token_in), self._value(token_out)
        if spot <= 0.0 and min(sold, bought) <= 0.0:
            raise PlanError("the pool takes no trade of this kind")
        return spot or sold / bought

    def _value(self, token: str) -> float:
        """About what a unit is worth, of LP units what is redeemed for it."""
        issuer = self._issuers.redeems(token) or self._issuers.mints(token)
        if issuer is None:
            return self.router.scale(token)
        held = sum(
            reserve * self.router.scale(name) for name, reserve in zip(issuer.tokens, issuer.reserves, strict=True)
        )
        return held / issuer.lp_supply

    def sale(self, token: str, amount: int, token_out: str, limits: Limits) -> Execution:
        """A plan that sells a whole balance, with legs that can follow others in one call. Raises `PlanError`.

        Whichever pays most: without the edges astray or over them, an LP token sold as it is or redeemed.
        """
        found: list[Execution] = []
        refusal = PlanError("no path between tokens")
        for router in dict.fromkeys((self.router, self.router.whole)):
            as_it_is = [None] if router.connected(token, token_out) else []
            for issuer in (*as_it_is, *filter(None, [self._issuers.redeems(token)])):
                try:
                    found.append(Desk(router, limits, limits, "greedy").sale(token, amount, issuer, token_out))
                except PlanError as error:
                    refusal = error
        if not found:
            raise refusal
        return max(found, key=lambda done: done.amount_out)

    def joint_sale(self, amounts: Mapping[str, int], token_out: str, limits: Limits) -> list[Leg]:
        """Legs that sell whole balances of several tokens in one flow over the pools. Raises `PlanError`."""
        sold = *self.router.find_flow(amounts, token_out, limits), amounts, token_out
        return cast(list[Leg], [*execute(*sold, outlets=self.router.outlets, relative=True).execution().legs])
