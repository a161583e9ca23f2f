"""Exact execution of plans, in integers, as the contract's vault would do it.

A flow is trades in execution order with the part of the sold token's balance each takes. The amount modes
are `fixed` where the balance is known beforehand (the input token), parts per million of the balance
elsewhere, and `all` for the last use of every token, so that no dust stays behind.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from typing import Any, NamedTuple, cast

from millrace.dex import aggregator_contract as contract
from millrace.dex.aggregator_contract import MILLION
from millrace.dex.pool import Pool, PoolError
from millrace.routing.compiled import inlined
from millrace.routing.outlets import NONE, Outlets
from millrace.routing.plan import Execution, Fill, Leg, PlanError
from millrace.routing.stocks import any_stocks, share_stocks, stocks_first, throttle, within_stock
from millrace.routing.venue import Trade, least_output

RESOLUTION = 1 << 53  # of the input's parts: floats tell no finer ones apart
FIGURES = 2.0**33 + 1.0  # what is off a float after it has been multiplied by this are all but 20 of its 53 bits
NEARLY_ALL = 1.0 - 2.0**-40  # flows that add up to so much are all: of some hundred the sum is off by 2^-44 of it
FEW_REFUSED = 8  # refused trades are few if they are no more than this part of all
MOST_THROTTLED = 8  # times: up to some per cent of a stock are spared then
_ALL, _PREVIOUS, _PPM = contract.ALL, contract.PREVIOUS, contract.PPM  # looked up once: the walk is the hot loop


_new_row = cast(Any, tuple.__new__)  # what a named tuple's constructor does, without the Python call it costs


class Walked(NamedTuple):
    """An executed plan in columns: cheap to make while candidates are compared.

    Of several tokens sold together `amount_in` is the sum of their units.
    """

    amount_in: int
    amount_out: int
    trades: Sequence[Trade]
    modes: Sequence[int]
    values: Sequence[int]
    sold: Sequence[int]
    bought: Sequence[int]

    def execution(self) -> Execution:
        """The same in rows."""
        legs = [*map(_new_row, repeat(Leg), zip(self.trades, self.modes, self.values, strict=True))]
        fills = [*map(_new_row, repeat(Fill), zip(self.trades, self.sold, self.bought, strict=True))]
        return Execution(legs, fills, self.amount_in, self.amount_out)

    def worths(self) -> list[float]:
        """What a unit of what each trade buys makes of the output in the end.

        A unit is worth what the plan makes of it: one lost in a thin branch of a split costs less than in the trunk.
        """
        sink, worths = self.trades[-1].token_out, list[float]()
        sales: dict[str, tuple[float, float]] = {}  # of each token: units sold, and output that they make in the end
        for trade, sold, bought in zip(reversed(self.trades), reversed(self.sold), reversed(self.bought), strict=True):
            token, unit = trade.token_out, 1.0
            if token != sink and token in sales:
                units, made = sales[token]
                unit = made / units
            worths.append(unit)
            units, made = sales.get(trade.token_in, (0.0, 0.0))
            sales[trade.token_in] = (units + sold, made + bought * unit)
        return worths[::-1]

    def rounding(self) -> float:
        """What the rounding of single units makes at most of the output, relative: one unit a trade."""
        return sum(self.worths()) / self.amount_out


@inlined
def rounded(flow: float) -> float:
    """A flow in 20 bits, so that two searches with nearly the same input, as a reverse quote makes them, tell the same.

    Coarse beside itself, not beside all there is: a tiny part may earn much.
    """
    much = flow * FIGURES
    return much - (much - flow)


def portion(amount: int, part: float) -> int:
    """This part of an amount, rounded down: all of it for 1 or more, whatever its size."""
    return amount * round(min(part, 1.0) * RESOLUTION) // RESOLUTION


def portions(amount: int, flows: Iterable[float], whole: float) -> list[int]:
    """What flows sell of the amount that `whole` stands for: never more than all of it together.

    Rounded are the sums: parts that are rounded each could come to more than all, and the last would have too little.
    Flows that add up to the whole sell all, to the unit.
    """
    found, sold, before, rest = [], 0.0, 0, amount
    for flow in flows:
        sold += flow
        upto = round(sold / whole * RESOLUTION) if sold < whole * NEARLY_ALL else RESOLUTION
        found.append(rest if upto == RESOLUTION else amount * (upto - before) // RESOLUTION)
        before, rest = upto, rest - found[-1]
    return found


class Refused(Exception):
    """The trades numbered `args[0]` cannot be executed, in execution order; `args[1]` is what each was to sell."""

    def few(self, trades: int) -> list[int]:
        """Which of them to leave out before the next walk: all, if they are few, else half of them.

        What they leave goes to others, so that not all of many need to go.
        """
        refused: list[int] = self.args[0]
        return refused if len(refused) * FEW_REFUSED <= trades else refused[: (len(refused) + 1) // 2]


def execute(
    trades: Sequence[Trade],
    flows: Sequence[float],
    amounts: Mapping[str, int],
    token_out: str,
    whole: float | None = None,
    outlets: Outlets = NONE,
    *,
    relative: bool = False,
) -> Walked:
    """Execute a flow that sells amounts of tokens; trades too thin for integers are dropped.

    `flows` are the trades' inputs in any unit per token; `whole` is the flow that stands for all of the amount, for
    cycles, which may keep a part of it. `outlets` are those of the market. With `relative` what is sold of the amounts
    is told in parts of them: the trades can follow others in one call. Raises `PlanError` when nothing is left, or one
    of the tokens is not sold.
    """
    stocks = any_stocks(trades)
    kept, parts, throttled = list(trades), list(flows), 0
    while amounts.keys() <= {trade.token_in for trade in kept}:
        if stocks:
            kept, parts = stocks_first(kept, parts)
        modes, values = choose_modes(kept, parts, {} if relative else amounts, whole)
        try:
            return _run(kept, modes, values, amounts, token_out, outlets, bounded=stocks)
        except Refused as refused:
            if throttled < MOST_THROTTLED and throttle(kept, parts, refused.args[0], refused.args[1], throttled):
                throttled += 1
            else:
                _leave_out(refused, kept, parts, token_out)
    raise PlanError("no pool on the route can execute this amount")


def replayed(
    legs: Sequence[Leg], amounts: Mapping[str, int], token_out: str, outlets: Outlets, moved: Mapping[str, Pool]
) -> int:
    """What swaps pay for amounts, 0 where one is refused. `moved` are pools not as the trades know them, by id."""
    trades, modes, values = zip(*legs, strict=True) if legs else ((), (), ())
    try:
        return _run(trades, modes, values, amounts, token_out, outlets, moved).amount_out
    except (Refused, PlanError):
        return 0


def _leave_out(refused: Refused, trades: list[Trade], flows: list[float], sink: str) -> None:
    """Take out trades that cannot be executed, and those that then lead nowhere."""
    for k in reversed(refused.few(len(trades))):
        del trades[k], flows[k]
    drop_dead_ends(trades, sink, flows)


def choose_modes(
    trades: Sequence[Trade],
    flows: Sequence[float],
    amounts: Mapping[str, int],
    whole: float | None,
    aside: Mapping[str, float] = {},
) -> tuple[list[int], list[int]]:
    """Amount modes and their values; fixed are parts of `amounts`, of at most one token.

    What is `aside` of tokens, in the unit of the flows, is not for these trades.
    """
    modes, values = [contract.ALL] * len(trades), [0] * len(trades)
    after = dict(aside)  # flow of a token's sales from here on, and what is left of it then
    fixed: list[int] = []
    for k in range(len(trades) - 1, -1, -1):
        token, flow = trades[k].token_in, flows[k]
        rest = after[token] + flow if token in after else flow
        if token in amounts and (token in after or whole is not None):
            modes[k] = contract.FIXED
            fixed.append(k)
        elif token in after:
            modes[k] = contract.PPM
            values[k] = min(round(flow / rest * MILLION), MILLION - 1) if rest > 0.0 else 0
        after[token] = rest
    fixed.reverse()
    for token, amount in amounts.items():
        total = rounded(after.get(token, 0.0)) if whole is None else whole
        chosen = [rounded(flows[k]) if whole is None else flows[k] for k in fixed]
        for k, value in zip(fixed, portions(amount, chosen, total), strict=True):
            values[k] = value
    return modes, values


def _run(
    trades: Sequence[Trade],
    modes: Sequence[int],
    values: Sequence[int],
    amounts: Mapping[str, int],
    token_out: str,
    outlets: Outlets,
    moved: Mapping[str, Pool] = {},
    *,
    bounded: bool = False,
) -> Walked:
    """Walk the trades, which sell these amounts. Raises `Refused` for those whose input or output is nothing.

    `bounded`: pools at a rate are sold no more than they pay for, and the values of what is returned say so.
    """
    told = list(values)
    balances = dict(amounts)
    uses = outlets.used([trade.pool.id for trade in trades], moved)
    touched = dict(moved)
    sold: list[int] = []
    bought: list[int] = []
    paid = 0
    refused: list[int] = []
    for trade, mode, value in zip(trades, modes, values, strict=True):
        token, gained = trade.token_in, trade.token_out
        have = balances.get(token, 0)
        if mode == _ALL:
            amount = have
        elif mode == _PREVIOUS:
            amount = paid
        elif mode == _PPM:
            amount = have * value // MILLION
        else:
            amount = value
        if bounded:
            amount = within_stock(trade, mode, amount, have, told, len(sold), touched)
        if not 0 < amount <= have:
            paid = 0
        elif uses and trade.pool.id in uses:
            paid = _swap(touched, uses, trade, amount, outlets)
        else:
            paid = trade.pays(amount)
        sold.append(amount)
        bought.append(paid)
        if paid <= 0:
            refused.append(len(sold) - 1)
            continue
        balances[token] = have - amount
        balances[gained] = balances.get(gained, 0) + paid
    if refused:
        raise Refused(refused, sold)
    amount_out = balances.get(token_out, 0)
    if amount_out <= 0:
        raise PlanError("the route pays nothing")
    return Walked(sum(amounts.values()), amount_out, trades, modes, told, sold, bought)


def _swap(touched: dict[str, Pool], uses: dict[str, int], trade: Trade, amount: int, outlets: Outlets) -> int:
    """Output of a pool that the plan meets more than once; 0 where it refuses. `uses` are those still to come."""
    name = trade.pool.id
    pool = touched.get(name)
    uses[name] -= 1
    try:
        if uses[name]:
            swap = (pool or trade.pool).swap(trade.i, trade.j, amount)
            paid, touched[name] = swap.amount_out, swap.pool
            if swap.slices and not outlets.sell(swap.slices, touched):
                return 0
        else:  # how the last trade leaves it is nobody's business
            paid = (pool or trade.pool).amount_out(trade.i, trade.j, amount)
    except PoolError:
        return 0
    return paid if paid >= least_output(trade.pool) else 0


def execute_paths(
    paths: Sequence[Sequence[Trade]],
    flows: Sequence[float],
    token_in: str,
    token_out: str,
    amount_in: int,
    outlets: Outlets = NONE,
    most: int = 0,
    hops: int = 0,
) -> Walked:
    """Execute paths; `flows` are the parts of the input they take. Raises `PlanError`.

    With `hops`, where several paths trade in the same pool in the same direction they do so at once, if what comes of
    that is at most `most` paths of at most `hops` pools; else every path is kept as it is, one after the other, so that
    none gets longer than it was found. Paths too thin for integers are dropped. In a cycle the part of the input that
    no path takes stays.
    """
    kept = [(path, flow) for path, flow in zip(paths, flows, strict=True) if path]
    keep_rest = token_in == token_out
    stocks = any_stocks([trade for path, _ in kept for trade in path])
    if stocks:  # the last one takes what is over
        kept.sort(key=lambda each: not any_stocks(each[0]))
    while kept:
        parts = [flow if keep_rest else rounded(flow) for _, flow in kept]
        amounts = portions(amount_in, parts, 1.0 if keep_rest else sum(parts))
        chosen = [path for path, _ in kept]
        amounts = share_stocks(chosen, amounts, keep_rest=keep_rest) if stocks else amounts
        together = _merged(chosen, amounts, most, hops, keep_rest=keep_rest) if hops else None
        if together is not None:
            with contextlib.suppress(Refused):
                return _run(*together, {token_in: amount_in}, token_out, outlets)
        trades = [trade for path in chosen for trade in path]
        starts = [0, *accumulate(map(len, chosen))][:-1]
        modes, values = [contract.PREVIOUS] * len(trades), [0] * len(trades)
        for start, amount in zip(starts, amounts, strict=True):
            modes[start], values[start] = contract.FIXED, amount
        if not keep_rest:
            modes[starts[-1]], values[starts[-1]] = contract.ALL, 0
        try:
            return _run(trades, modes, values, {token_in: amount_in}, token_out, outlets)
        except Refused as refused:
            del kept[sum(start <= refused.args[0][0] for start in starts) - 1]
    raise PlanError("no path can execute this amount")


def _merged(
    paths: Sequence[Sequence[Trade]], amounts: Sequence[int], most: int, hops: int, *, keep_rest: bool
) -> tuple[list[Trade], list[int], list[int]] | None:
    """Trades, modes and values of paths that trade at once where they meet; None where they do not, or cannot.

    They cannot where each of two trades would have to wait for the other one, and must not where they would mix at a
    token so that there are more or longer paths than the limits allow.
    """
    of = Counter(trade for path in paths for trade in path)
    if len(of) == sum(of.values()):
        return None
    have, at = list(amounts), [0] * len(paths)
    waiting: dict[Trade, list[int]] = {}
    sales = Counter(trade.token_in for trade in of)
    held: dict[str, int] = {}
    depth: dict[str, int] = {}
    trades: list[Trade] = []
    modes: list[int] = []
    values: list[int] = []
    arrived = list(range(len(paths)))  # paths that have just come to their next trade
    ready: list[Trade] = []
    last: list[int] = []
    while True:
        for number in arrived:
            if at[number] < len(paths[number]):
                trade = paths[number][at[number]]
                waiting.setdefault(trade, []).append(number)
                if len(waiting[trade]) == of[trade]:
                    ready.append(trade)
        if not ready:
            break
        trade = ready.pop()
        members = sorted(waiting[trade])  # `together.py` foretells what comes of this order
        token, sold = trade.token_in, sum(have[number] for number in members)
        sales[token] -= 1
        trades.append(trade)
        if at[members[0]] == 0:
            final = not keep_rest and not sales[token]
            modes.append(contract.ALL if final else contract.FIXED)
            values.append(0 if final else sold)
        elif not sales[token]:
            modes.append(contract.ALL)
            values.append(0)
        elif last == members:
            modes.append(contract.PREVIOUS)
            values.append(0)
        else:
            modes.append(contract.PPM)
            values.append(min(round(sold / max(held[token], 1) * MILLION), MILLION - 1))
        paid = trade.pays(sold)
        if paid <= 0:
            return None
        held[token] = held.get(token, 0) - sold
        held[trade.token_out] = held.get(trade.token_out, 0) + paid
        depth[trade.token_out] = max(depth.get(trade.token_out, 0), depth.get(token, 0) + 1)
        for number in members:
            have[number] = have[number] * paid // sold
            at[number] += 1
        arrived = last = members
    splits = sum(mode in (contract.FIXED, contract.PPM) for mode in modes)
    done = len(trades) == len(of) and splits < max(most, len(paths)) and max(depth.values()) <= hops
    return (trades, modes, values) if done else None


def drop_dead_ends(trades: list[Trade], sink: str, *columns: list[Any]) -> None:
    """Leave out trades that buy what no later trade sells, and their entries in other columns."""
    sold = {sink}
    for k in range(len(trades) - 1, -1, -1):
        if trades[k].token_out in sold:
            sold.add(trades[k].token_in)
        else:
            for column in (trades, *columns):
                del column[k]
