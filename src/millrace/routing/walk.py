"""A vault in the making: steps are tried one by one in exact integers and become the legs of a plan.

For plans that deposit or withdraw liquidity. Their amounts depend on what earlier steps paid, so the mode of a step
that goes on with `previous` is chosen when it is taken: what the steps since the last other mode gave is named as
`previous` or `all` where the contract can follow that, else as parts per million of the balance, and what rounding
leaves goes to the token's next use.

`sell_flow` and `sell_paths` sell given amounts of some tokens for one token. What the vault holds besides is put aside
for later steps: then no trade of the token takes `all`.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence

from millrace.dex import aggregator_contract as contract
from millrace.dex.aggregator_contract import MILLION
from millrace.dex.operations import MIN_OUTPUT, MIN_OUTPUT_JEX_STABLE, zap
from millrace.dex.pool import Pool, PoolError, Slice
from millrace.dex.run import VaultError
from millrace.dex.stable import JexStablePool
from millrace.routing.execution import choose_modes, drop_dead_ends, portions
from millrace.routing.outlets import NONE, Outlets
from millrace.routing.plan import AnyLeg, Execution, Fee, Fill, Leg, LpLeg, LpMove, PlanError, evenly
from millrace.routing.venue import Trade, least_output


class Walker:
    """Balances, pools as left so far, and the legs that led here. `copy` it to try something.

    `outlets` are those of the market.
    """

    def __init__(self, token_in: str, amount: int, outlets: Outlets = NONE) -> None:
        self.token_in = token_in
        self.amount_in = amount
        self._outlets = outlets
        self.balancing = (0, 0.0)
        """What the last deposit sold to balance itself: which of its two tokens, and the part of it."""
        self.balances = {token_in: amount}
        self.legs: list[AnyLeg] = []
        self._fills: list[Fill] = []
        self._fees: list[Fee] = []
        self._pools: dict[str, Pool] = {}
        self._gained: dict[str, int] = {}
        self._previous: tuple[str, int] | None = None

    def copy(self) -> Walker:
        """The same vault, to go on from in another way."""
        other = copy.copy(self)
        other.balances, other._pools, other._gained = dict(self.balances), dict(self._pools), dict(self._gained)
        other.legs, other._fills, other._fees = list(self.legs), list(self._fills), list(self._fees)
        return other

    @classmethod
    def replay(cls, legs: Sequence[AnyLeg], token_in: str, amount: int, outlets: Outlets = NONE) -> Walker:
        """The vault after the legs of a plan. Raises `PlanError`."""
        walker = cls(token_in, amount, outlets)
        position = 0
        while position < len(legs):
            leg = legs[position]
            position += 1
            if isinstance(leg, Leg):
                walker.swap(leg.trade, leg.mode, leg.value)
            elif leg.given is not None:
                walker.deposit(leg.pool, leg.given, leg.mode, leg.value)
            elif not leg.into:
                walker.withdraw(leg.pool, leg.mode, leg.value)
            else:
                end = position + len(leg.pool.tokens) - 1
                walker.withdraw_into(leg.pool, leg.into, leg.mode, leg.value, legs[position:end])
                position = end
        return walker

    def withdraw_into(self, pool: Pool, token: str, mode: int, value: int, sales: Sequence[AnyLeg] = ()) -> None:
        """Redeem LP units and sell all but one of the tokens for that one in the same pool. Raises `PlanError`.

        `sales` are the legs that sell, if the plan has been made already.
        """
        units, owned, first = self.balances.get(pool.lp_token, 0), self.balances.get(token, 0), len(self._fills)
        self.withdraw(pool, mode, value)
        last = self.legs[-1]
        assert isinstance(last, LpLeg)
        self.legs[-1] = last._replace(into=token)
        to = pool.index(token)
        trades = [Trade(pool, k, to) for k in range(len(pool.tokens)) if k != to]
        for trade, sale in itertools.zip_longest(trades, sales):
            self.swap(trade, contract.PREVIOUS if sale is None else sale.mode, 0 if sale is None else sale.value)
        sold, paid = units - self.balances[pool.lp_token], self.balances[token] - owned
        self._fills[first:] = [Fill(LpMove(pool, pool.lp_token, token), sold, paid)]

    def done(self, token_out: str) -> Execution:
        """The plan as walked. Raises `PlanError` if it pays nothing."""
        paid = self.balances.get(token_out, 0)
        if paid <= 0:
            raise PlanError("the route pays nothing")
        return Execution(self.legs, self._fills, self.amount_in, paid, self._fees)

    def swap(self, trade: Trade, mode: int, value: int = 0) -> None:
        """Sell in a pool. Raises `PlanError` where the contract would revert."""
        amount, mode, value = self._take(trade.token_in, mode, value)
        pool = trade.pool
        try:
            done = self._pool(pool).swap(trade.i, trade.j, amount)
        except PoolError as error:
            raise PlanError(str(error)) from error
        if done.amount_out < least_output(pool):
            raise PlanError("the output rounds to nothing")
        self._moved(done.pool, done.slices)
        self.legs.append(Leg(trade, mode, value))
        self._fills.append(Fill(trade, amount, done.amount_out))
        self._fees.append(Fee(pool, done.fee_token, done.fee_amount))
        self._give(trade.token_out, done.amount_out)
        self._previous = (trade.token_out, done.amount_out)

    def withdraw(self, pool: Pool, mode: int = contract.ALL, value: int = 0) -> None:
        """Redeem LP units of a pool for all of its tokens. Raises `PlanError`."""
        amount, mode, value = self._take(pool.lp_token, mode, value)
        try:
            done = self._pool(pool).burn(amount)
        except PoolError as error:
            raise PlanError(str(error)) from error
        if min(done.amounts) < MIN_OUTPUT:
            raise PlanError("a share of the LP units rounds to nothing")
        self._pools[pool.id] = done.pool
        self.legs.append(LpLeg(pool, None, mode, value))
        parts = evenly(amount, len(pool.tokens))
        for token, part, paid in zip(pool.tokens, parts, done.amounts, strict=True):
            self._fills.append(Fill(LpMove(pool, pool.lp_token, token), part, paid))
            self._give(token, paid)
        self._previous = None

    def deposit(self, pool: Pool, given: Sequence[str], mode: int = contract.ALL, value: int = 0) -> None:
        """Deposit tokens of a pool, in its order, for LP units: no more than one step can name. Raises `PlanError`.

        A constant-product pool takes both tokens, and the contract hands out its LP units at the end only:
        such a deposit must be the last step of a plan that buys them.
        """
        if len(given) > contract.MOST_DEPOSITED:
            raise PlanError("a deposit of more tokens than the contract takes")
        taken = [self._take(token, mode, value) for token in given]
        amounts = dict(zip(given, (amount for amount, _, _ in taken), strict=True))
        try:
            minted = self._mint(self._pool(pool), tuple([amounts.get(token, 0) for token in pool.tokens]))
        except (PoolError, VaultError) as error:
            raise PlanError(str(error)) from error
        self.legs.append(LpLeg(pool, tuple(given), taken[0][1], taken[0][2]))
        parts = evenly(minted, len(given))
        for (token, amount), part in zip(amounts.items(), parts, strict=True):
            self._fills.append(Fill(LpMove(pool, token, pool.lp_token), amount, part))
        self._give(pool.lp_token, minted)
        self._previous = (pool.lp_token, minted)

    def _mint(self, pool: Pool, amounts: tuple[int, ...]) -> int:
        if pool.kind == "constant_product":
            if min(amounts) <= 0:
                raise PlanError("a deposit into a constant product pool needs both tokens")
            done = zap(pool, (amounts[0], amounts[1]))
            if done.sold is not None:
                sold = pool.index(done.sold.token)
                self.balancing = sold, done.sold.amount / amounts[sold]
            self._fees.extend(Fee(pool, fee.token, fee.amount) for fee in done.fees)
            self._moved(done.pool, done.slices)
            return done.lp
        mint = pool.mint(amounts)
        if mint.lp < (MIN_OUTPUT_JEX_STABLE if isinstance(pool, JexStablePool) else MIN_OUTPUT):
            raise PlanError("the deposit is too small")
        self._pools[pool.id] = mint.pool
        return mint.lp

    def _moved(self, pool: Pool, slices: Sequence[Slice]) -> None:
        """Keep the pool as a swap has left it, and those that slices of its fee are sold in. Raises `PlanError`."""
        self._pools[pool.id] = pool
        if slices and not self._outlets.sell(slices, self._pools):
            raise PlanError("a slice of the pool's special fee sells for nothing")

    def _pool(self, pool: Pool) -> Pool:
        return self._pools.get(pool.id, pool)

    def _give(self, token: str, amount: int) -> None:
        self.balances[token] = self.balances.get(token, 0) + amount
        self._gained[token] = self._gained.get(token, 0) + amount

    def _take(self, token: str, mode: int, value: int) -> tuple[int, int, int]:
        """Take an input out of the vault; the amount, and the mode and value that name it."""
        have, gained = self.balances.get(token, 0), self._gained.pop(token, 0)
        if mode != contract.PREVIOUS:
            self._gained = {}
        elif self._previous != (token, gained):
            mode, value = (contract.ALL, 0) if gained == have else (contract.PPM, gained * MILLION // have)
        if mode == contract.ALL:
            amount = have
        elif mode == contract.FIXED:
            amount = value
        elif mode == contract.PPM:
            amount = have * value // MILLION
        else:
            amount = gained
        if not 0 < amount <= have:
            raise PlanError("a step of the route has nothing to sell")
        self.balances[token] = have - amount
        return amount, mode, value


def sell_flow(
    walker: Walker,
    trades: Sequence[Trade],
    flows: Sequence[float],
    amounts: Mapping[str, int],
    sink: str,
    scale: Callable[[str], float],
) -> Walker:
    """Perform trades in execution order; `flows` are their inputs, in units of `scale(token)` per smallest unit.

    Trades too thin for integers are left out, with those that lead only to them. Raises `PlanError` if none is left.
    """
    kept, parts, source = list(trades), list(flows), walker.token_in
    spare = {token: have - amounts.get(token, 0) for token, have in walker.balances.items()}
    aside = {token: units * scale(token) for token, units in spare.items() if units}
    fixed = {source: amounts[source]} if source in amounts else {}
    while kept:
        selling = [flow for trade, flow in zip(kept, parts, strict=True) if trade.token_in == source]
        modes, values = choose_modes(kept, parts, fixed, sum(selling) if source in aside else None, aside)
        done = walker.copy()
        for k, (trade, mode, value) in enumerate(zip(kept, modes, values, strict=True)):
            try:
                trade.walk(done, mode, value)
            except PlanError:
                del kept[k], parts[k]
                drop_dead_ends(kept, sink, parts)
                break
        else:
            return done
    raise PlanError("no pool on the route can execute this amount")


def sell_paths(walker: Walker, paths: Sequence[tuple[Sequence[Trade], float]], token: str, amount: int) -> Walker:
    """Sell `amount` of a token along paths, one after the other, in these parts. Raises `PlanError`.

    Paths too thin for integers are left out.
    """
    kept, everything = list(paths), walker.balances.get(token, 0) == amount
    while kept:
        done, parts = walker.copy(), [part for _, part in kept]
        sold = portions(amount, parts, sum(parts))
        for number, ((path, _), value) in enumerate(zip(kept, sold, strict=True)):
            step = contract.FIXED, value
            if everything and number == len(kept) - 1:
                step = contract.ALL, 0
            elif token != walker.token_in:
                step = contract.PPM, value * MILLION // done.balances[token]
            try:
                for trade in path:
                    trade.walk(done, *step)
                    step = contract.PREVIOUS, 0
            except PlanError:
                del kept[number]
                break
        else:
            return done
    raise PlanError("no path can execute this amount")
