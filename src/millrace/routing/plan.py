"""From a flow to instructions of the aggregator contract, and their exact execution.

A flow is trades in execution order with the part of the sold token's balance each takes. The plan fixes
the contract's amount modes: `fixed` where the balance is known beforehand (the input token), parts per
million of the balance elsewhere, and `all` for the last use of every token, so that no dust stays behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millrace.chain.token import NATIVE
from millrace.dex import aggregator_contract as contract
from millrace.dex.aggregator_contract import MILLION, Action, Instruction, Program
from millrace.dex.constant_product import OneDexPool
from millrace.dex.pool import Pool, PoolError
from millrace.routing.venue import Trade

DEPOSITS = {
    ("XExchange", "constant_product"): Action.XEXCHANGE_ADD,
    ("OneDex", "constant_product"): Action.ONEDEX_ADD,
    ("Jex", "constant_product"): Action.JEX_ADD,
    ("Jex", "stable"): Action.JEX_STABLE_ADD,
    ("AshSwap", "stable"): Action.ASH_STABLE_ADD,
    ("AshSwap", "crypto"): Action.ASH_CRYPTO_ADD,
}
# Every exchange's withdrawal is numbered right after its deposit.
WITHDRAWALS = {venue: Action(action + 1) for venue, action in DEPOSITS.items()}
ACTIONS = {
    ("XExchange", "constant_product"): Action.XEXCHANGE_SWAP,
    ("OneDex", "constant_product"): Action.ONEDEX_SWAP,
    ("Jex", "constant_product"): Action.JEX_SWAP,
    ("Jex", "stable"): Action.JEX_STABLE_SWAP,
    ("AshSwap", "stable"): Action.ASH_STABLE_SWAP,
    ("AshSwap", "crypto"): Action.ASH_CRYPTO_SWAP,
}
_RESOLUTION = 1 << 53


class PlanError(Exception):
    """No exact execution of the route pays anything."""


class Leg(NamedTuple):
    """One trade with its amount mode (`contract.ALL`, `PREVIOUS`, `FIXED` or `PPM`) and the mode's value."""

    trade: Trade
    mode: int
    value: int


class LpLeg(NamedTuple):
    """A withdrawal of all LP units (`given` is None), or a deposit of all of the tokens `given`."""

    pool: Pool
    given: tuple[str, ...] | None


AnyLeg = Leg | LpLeg


class LpMove(NamedTuple):
    """The part of a deposit or withdrawal that concerns one of the pool's tokens."""

    pool: Pool
    token_in: str
    token_out: str


class Fill(NamedTuple):
    """One executed trade, or the part of a deposit or withdrawal in one token."""

    trade: Trade | LpMove
    amount_in: int
    amount_out: int


def make_legs(
    trades: Sequence[Trade], flows: Sequence[float], token_in: str, amount_in: int, whole: float | None = None
) -> list[Leg]:
    """Amount modes for trades in execution order; `flows` are their inputs in any unit per token.

    `whole` is the flow that stands for all of `amount_in`, for cycles, which may keep a part of it.
    """
    left: dict[str, float] = {}
    last: dict[str, int] = {}
    for k, trade in enumerate(trades):
        token = trade.token_in
        left[token] = left.get(token, 0.0) + flows[k]
        last[token] = k
    total = left.get(token_in, 0.0) if whole is None else whole
    legs = []
    for k, trade in enumerate(trades):
        token = trade.token_in
        if last[token] == k and (whole is None or token != token_in):
            legs.append(Leg(trade, contract.ALL, 0))
            continue
        share = flows[k] / left[token] if left[token] > 0.0 else 0.0
        if token == token_in:
            fixed = amount_in * int(min(flows[k] / total, 1.0) * _RESOLUTION) // _RESOLUTION
            if fixed > 0:
                legs.append(Leg(trade, contract.FIXED, fixed))
        elif round(share * MILLION) > 0:
            legs.append(Leg(trade, contract.PPM, min(round(share * MILLION), MILLION - 1)))
        left[token] -= flows[k]
    return legs


def walk(legs: Sequence[Leg], token_in: str, amount_in: int) -> list[Fill]:
    """Execute `legs` in exact integers, as the contract's vault would.

    Raises `PoolError` where a pool refuses; its `args[1]` then is the number of the leg.
    """
    balances = {token_in: amount_in}
    touched: dict[str, Pool] = {}
    repeated = _repeated_pools(legs)
    fills: list[Fill] = []
    for k, (trade, mode, value) in enumerate(legs):
        pool, i, j = trade
        tokens = pool.tokens
        have = balances.get(tokens[i], 0)
        if mode == contract.ALL:
            sold = have
        elif mode == contract.PREVIOUS:
            sold = fills[-1].amount_out
        elif mode == contract.FIXED:
            sold = value
        else:
            sold = have * value // MILLION
        if sold > have:
            raise LegRefused("the balance is too small", k)
        try:
            if pool.id in repeated:
                swap = touched.get(pool.id, pool).swap(i, j, sold)
                touched[pool.id] = swap.pool
                bought = swap.amount_out
            else:
                bought = pool.amount_out(i, j, sold)
        except PoolError as error:
            raise LegRefused(str(error), k) from error
        balances[tokens[i]] = have - sold
        balances[tokens[j]] = balances.get(tokens[j], 0) + bought
        fills.append(Fill(trade, sold, bought))
    return fills


class LegRefused(PoolError):
    """A pool refused leg number `args[1]`."""


def _repeated_pools(legs: Sequence[Leg]) -> frozenset[str]:
    ids = [leg.trade.pool.id for leg in legs]
    if len(set(ids)) == len(ids):
        return frozenset()
    return frozenset(name for name in ids if ids.count(name) > 1)


class Execution(NamedTuple):
    """A plan that has been walked: legs, what each trade did, and what comes out at the end."""

    legs: Sequence[AnyLeg]
    fills: list[Fill]
    amount_in: int
    amount_out: int


def execute(
    trades: Sequence[Trade],
    flows: Sequence[float],
    token_in: str,
    token_out: str,
    amount_in: int,
    whole: float | None = None,
) -> Execution:
    """Turn a flow into legs and walk them; trades too thin for integers are dropped. Raises `PlanError`."""
    kept, parts = list(trades), list(flows)
    while kept:
        legs = make_legs(kept, parts, token_in, amount_in, whole)
        try:
            fills = walk(legs, token_in, amount_in)
        except LegRefused as refused:
            where = kept.index(legs[refused.args[1]].trade)
            del kept[where], parts[where]
            continue
        paid = paid_out(fills, token_in, token_out, amount_in)
        if paid <= 0:
            break
        return Execution(legs, fills, amount_in, paid)
    raise PlanError("no pool on the route can execute this amount")


def shrink_input(done: Execution, token_in: str, token_out: str, wanted: int) -> Execution:
    """The same plan with the smallest input that still pays `wanted`: secant steps, then bisection.

    Fixed amounts keep their proportion to the input. `done` must pay `wanted` already.
    """
    best = done
    low, high = 0, done.amount_in
    guess = high - (done.amount_out - wanted) * done.amount_in // (2 * done.amount_out)
    for attempt in range(96):
        if high - low <= 1:
            break
        guess = min(max(guess, low + 1), high - 1)
        tried = _rescaled(done, token_in, token_out, guess)
        if tried is not None and tried.amount_out >= wanted:
            best, high = tried, guess
            spare = (tried.amount_out - wanted) * guess // tried.amount_out
            guess = high - max(spare, 1) if attempt < 8 else (low + high) // 2
        else:
            low = guess
            missing = wanted - tried.amount_out if tried is not None else wanted
            paid = tried.amount_out if tried is not None else wanted
            guess = low + missing * guess // paid + 1 if attempt < 8 else (low + high) // 2
    return best


def _rescaled(done: Execution, token_in: str, token_out: str, amount_in: int) -> Execution | None:
    """`done` with another input, or None where a pool refuses."""
    legs = [
        leg._replace(value=leg.value * amount_in // done.amount_in) if leg.mode == contract.FIXED else leg
        for leg in done.legs
        if isinstance(leg, Leg)
    ]
    try:
        fills = walk(legs, token_in, amount_in)
    except LegRefused:
        return None
    return Execution(legs, fills, amount_in, paid_out(fills, token_in, token_out, amount_in))


def execute_paths(
    paths: Sequence[Sequence[Trade]], flows: Sequence[float], token_in: str, token_out: str, amount_in: int
) -> Execution:
    """Walk paths one after the other, each with its part of the input. Raises `PlanError`.

    Unlike a merged flow this keeps every path as it is, so no path gets longer than it was found. Paths
    too thin for integers are dropped. In a cycle the part of the input that no path takes stays.
    """
    kept = [(list(path), flow) for path, flow in zip(paths, flows, strict=True) if path]
    keep_rest = token_in == token_out
    while kept:
        legs = _sequential_legs(kept, amount_in, keep_rest)
        try:
            fills = walk(legs, token_in, amount_in)
        except LegRefused as refused:
            starts = [k for k, leg in enumerate(legs) if leg.mode != contract.PREVIOUS]
            del kept[sum(start <= refused.args[1] for start in starts) - 1]
            continue
        return Execution(legs, fills, amount_in, paid_out(fills, token_in, token_out, amount_in))
    raise PlanError("no path can execute this amount")


def _sequential_legs(kept: Sequence[tuple[list[Trade], float]], amount_in: int, keep_rest: bool) -> list[Leg]:
    total = sum(flow for _, flow in kept)
    legs = []
    for number, (path, flow) in enumerate(kept):
        if number == len(kept) - 1 and not keep_rest:
            legs.append(Leg(path[0], contract.ALL, 0))
        else:
            part = int((flow if keep_rest else flow / total) * _RESOLUTION)
            legs.append(Leg(path[0], contract.FIXED, amount_in * min(part, _RESOLUTION) // _RESOLUTION))
        legs.extend(Leg(trade, contract.PREVIOUS, 0) for trade in path[1:])
    return legs


def paid_out(fills: Sequence[Fill], token_in: str, token_out: str, amount_in: int) -> int:
    """The vault's balance of the output token after the fills."""
    paid = sum(fill.amount_out for fill in fills if fill.trade.token_out == token_out)
    sold = sum(fill.amount_in for fill in fills if fill.trade.token_in == token_out)
    return paid - sold + (amount_in if token_in == token_out else 0)


class Ends(NamedTuple):
    """What the caller pays and wants: identifiers, `EGLD` for the native coin."""

    token_in: str
    token_out: str


def make_program(legs: Sequence[AnyLeg], ends: Ends, wrapped: str, min_amount_out: int, referral_id: int) -> Program:
    """The contract's program of a plan, with the wrap first and the unwrap last where EGLD is an end."""
    builder = _Builder()
    if ends.token_in == NATIVE:
        builder.instructions.append(contract.swap(Action.WRAP, contract.EGLD_INDEX, contract.EGLD_INDEX, contract.ALL))
    for leg in legs:
        if isinstance(leg, Leg):
            builder.add_swap(leg)
        else:
            builder.add_liquidity(leg)
    if ends.token_out == NATIVE:
        builder.instructions.append(
            contract.swap(Action.UNWRAP, builder.token(wrapped), contract.EGLD_INDEX, contract.ALL)
        )
        token_out = contract.EGLD_INDEX
    else:
        token_out = builder.token(ends.token_out)
    return Program(
        tuple(builder.tokens),
        tuple(builder.addresses),
        tuple(builder.amounts),
        tuple(builder.instructions),
        min_amount_out,
        token_out,
        referral_id,
    )


class _Builder:
    """Collects the tables of a program: tokens, addresses and amounts, each value once."""

    def __init__(self) -> None:
        self.tokens: dict[str, int] = {}
        self.addresses: dict[bytes, int] = {}
        self.amounts: dict[int, int] = {}
        self.instructions: list[Instruction] = []

    def token(self, identifier: str) -> int:
        return self.tokens.setdefault(identifier, len(self.tokens))

    def address(self, pubkey: bytes) -> int:
        """Index of an address; indices whose low byte is 255 mean "found by the contract" and stay unused."""
        index = self.addresses.get(pubkey)
        if index is None:
            index = len(self.addresses)
            if index % 256 == contract.AUTO:
                raise PlanError("too many pool addresses for one call")
            self.addresses[pubkey] = index
        return index

    def mode(self, mode: int, value: int) -> int:
        """The mode byte, with the value in the table of amounts."""
        if mode in (contract.ALL, contract.PREVIOUS):
            return mode
        index = self.amounts.setdefault(value, len(self.amounts))
        if index >= contract.MAX_FIXED:
            raise PlanError("too many different amounts for one call")
        return contract.fixed(index) if mode == contract.FIXED else contract.ppm(index)

    def add_swap(self, leg: Leg) -> None:
        pool = leg.trade.pool
        action = ACTIONS[pool.exchange, pool.kind]
        found = action not in contract.NEEDS_ADDRESS
        w = contract.AUTO if found or isinstance(pool, OneDexPool) else self.address(pool.address)
        self.instructions.append(
            contract.swap(
                action,
                self.token(leg.trade.token_in),
                self.token(leg.trade.token_out),
                self.mode(leg.mode, leg.value),
                w,
            )
        )

    def add_liquidity(self, leg: LpLeg) -> None:
        """A deposit or withdrawal of everything the vault holds of its tokens."""
        pool = leg.pool
        venue = (pool.exchange, pool.kind)
        if leg.given is None:
            action = WITHDRAWALS[venue]
            w = self.address(pool.address) if action in contract.NEEDS_ADDRESS else contract.AUTO
            lp_token = self.token(pool.lp_token)
            self.instructions.append(contract.remove(action, lp_token, contract.ALL, len(pool.tokens), w))
            return
        action = DEPOSITS[venue]
        w = self.address(pool.address) if action in contract.NEEDS_ADDRESS else contract.AUTO
        if isinstance(pool, OneDexPool):
            w = pool.pair_id
        tokens = [self.token(token) for token in leg.given]
        self.instructions.append(contract.add(action, tokens, contract.ALL, w))
