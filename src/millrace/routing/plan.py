"""Plans: trades with amount modes, what they did when walked, and the contract's program for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import msgspec

from millrace.chain.amount import TOTAL_BPS
from millrace.chain.token import NATIVE
from millrace.dex import aggregator_contract as contract
from millrace.dex.aggregator_contract import Action, Instruction, Program
from millrace.dex.constant_product import OneDexPool
from millrace.dex.operations import RATED
from millrace.dex.pool import Pool
from millrace.dex.rate import RatePool
from millrace.dex.run import Step
from millrace.routing.costs import NAMES, NOTHING, Cost, Table, total
from millrace.routing.venue import Trade

RATES = {venue: Action(action) for action, venue in RATED.items()}


class PlanError(Exception):
    """No exact execution of the route pays anything."""


class Leg(NamedTuple):
    """One trade with its amount mode (`contract.ALL`, `PREVIOUS`, `FIXED` or `PPM`) and the mode's value."""

    trade: Trade
    mode: int
    value: int


class LpLeg(NamedTuple):
    """A withdrawal (`given` is None), or a deposit of the tokens `given`; the mode is that of every input.

    `into` names the token for which the next legs sell the others of a withdrawal in the same pool: they are one move.
    """

    pool: Pool
    given: tuple[str, ...] | None
    mode: int = contract.ALL
    value: int = 0
    into: str = ""


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


class Fee(NamedTuple):
    """What a pool withheld: the amount, in the token of that identifier."""

    pool: Pool
    token: str
    amount: int


class Execution(NamedTuple):
    """A plan that has been walked: legs, what each trade did, and what comes out at the end.

    `fees` are listed for plans with deposits or withdrawals; else each trade's pool knows its own.
    """

    legs: Sequence[AnyLeg]
    fills: Sequence[Fill]
    amount_in: int
    amount_out: int
    fees: list[Fee] | None = None

    def execution(self) -> Execution:
        """The plan itself."""
        return self


def kept_input(done: Execution) -> int:
    """What a cycle plan leaves of its input: it is part of the output. Below 0 if a cycle trades what another paid."""
    if not done.fills:
        return done.amount_in
    token = done.fills[0].trade.token_in
    return done.amount_in - sum(fill.amount_in for fill in done.fills if fill.trade.token_in == token)


def taken_of(paid: int, bps: tuple[int, int]) -> int:
    """What two fees take of an output, each rounded down on its own as the contract does."""
    return paid * bps[0] // TOTAL_BPS + paid * bps[1] // TOTAL_BPS


def spot_output(fills: Sequence[Fill], spot: Callable[[Trade], float] = attrgetter("spot")) -> float:
    """What a plan would pay if every trade were made at its pool's spot rate, fees included: as `spot` has it.

    The parts in which the plan divides each token stay. Deposits and withdrawals count as they were made.
    """
    source, sink = fills[0].trade.token_in, fills[-1].trade.token_out
    whole = sum([sold for trade, sold, _ in fills if trade.token_in == source])
    owned = {source: (whole, float(whole))}  # of each token: units, and what they would be at spot rates
    none, paid = (0, 0.0), 0.0
    for trade, sold, bought in fills:
        token, into = trade.token_in, trade.token_out
        units, at_spot = owned.get(token, none)
        part = at_spot * (sold / units) if sold < units else at_spot if sold else 0.0
        owned[token] = units - sold, at_spot - part
        rate = spot(trade) if isinstance(trade, Trade) else 0.0
        if rate <= 0.0:  # of a few LP units, a token's part may be none
            rate = bought / sold if sold else 0.0
        gained = part * rate
        if into == sink:
            paid += gained
        else:
            units, at_spot = owned.get(into, none)
            owned[into] = units + bought, at_spot + gained
    return paid


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


def cost_of(legs: Sequence[AnyLeg], table: Table, besides: Cost = NOTHING) -> Cost:
    """What the legs of a plan take of a transaction, and what it takes besides.

    A pool that is used in the same way again is read no more.
    """
    costs, onedex = [besides], False
    used: set[str | tuple[str, bool]] = set()
    for leg in legs:
        if isinstance(leg, Leg):
            trade = leg.trade
            pool, use = trade.pool, trade.pool.id
            costs.append(table.swap(pool, again=True) if use in used else trade.cost(table))
            used.add(use)
        else:
            pool, deposits = leg.pool, leg.given is not None
            work, again = table.deposit if deposits else table.withdrawal, (pool.id, deposits) in used
            costs.append(work(pool, again=again))
            used.add((pool.id, deposits))
        onedex = onedex or isinstance(pool, OneDexPool)
    if onedex:
        costs.append(table.cost("onedex"))
    return total(costs)


def net_of(done: Execution, table: Table, toll: float) -> int:
    """What a plan pays, less its fee at `toll` where that counts: in whole units, which floats cannot tell apart."""
    return done.amount_out - int(table.fee(cost_of(done.legs, table)) * toll) if toll > 0.0 else done.amount_out


def unwraps(leg: AnyLeg) -> bool:
    """Whether the leg is two instructions: what the vault holds is unwrapped first."""
    return isinstance(leg, Leg) and isinstance(leg.trade.pool, RatePool) and leg.trade.pool.native


def leg_steps(legs: Iterable[AnyLeg], steps: Iterable[Step]) -> list[Step]:
    """One executed step for each leg; of one that unwraps first, the two together."""
    left, found = iter(steps), []
    for leg in legs:
        step = next(left)
        if unwraps(leg):
            step = msgspec.structs.replace(next(left), inputs=step.inputs)
        found.append(step)
    return found


def leg_fills(leg: AnyLeg, step: Step) -> list[Fill]:
    """What an executed step did, one entry per pair of tokens; LP units are divided evenly over the pool's tokens."""
    sold, bought = step.inputs, step.outputs
    if isinstance(leg, Leg):
        return [Fill(leg.trade, sold[0].amount, bought[0].amount)]
    if leg.given is None:
        parts = evenly(sold[0].amount, len(bought))
        moves = [LpMove(leg.pool, leg.pool.lp_token, asset.token) for asset in bought]
        return [Fill(move, part, asset.amount) for move, part, asset in zip(moves, parts, bought, strict=True)]
    parts = evenly(bought[0].amount, len(sold))
    moves = [LpMove(leg.pool, asset.token, leg.pool.lp_token) for asset in sold]
    return [Fill(move, asset.amount, part) for move, part, asset in zip(moves, parts, sold, strict=True)]


def evenly(amount: int, parts: int) -> list[int]:
    """An amount in equal parts; the last takes what division leaves."""
    part = amount // parts
    return [part] * (parts - 1) + [amount - part * (parts - 1)]


@lru_cache(maxsize=64)  # there are ten kinds
def _action(kind: type[Pool], what: str) -> tuple[Action, bool, bool]:
    """What is done in pools of a class, whether the contract has to be told where, and whether at a rate."""
    venue = kind.exchange, kind.kind
    action = RATES[venue] if venue in RATES else Action[f"{NAMES[venue]}_{what}".upper()]
    return action, action in contract.NEEDS_ADDRESS, venue in RATES


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
        trade, mode, value = leg
        pool, tokens = trade.pool, self.tokens
        action, addressed, rated = _action(type(pool), "swap")
        w = self.address(pool.address) if addressed else contract.AUTO
        token_in = tokens.setdefault(trade.token_in, len(tokens))
        token_out = tokens.setdefault(trade.token_out, len(tokens))
        if mode != contract.ALL:
            mode = self.mode(mode, value)
        if rated and unwraps(leg):
            self.instructions.append(contract.swap(Action.UNWRAP, token_in, contract.EGLD_INDEX, mode))
            token_in, mode = contract.EGLD_INDEX, contract.PREVIOUS
        self.instructions.append(contract.swap(action, token_in, token_out, mode, w))

    def add_liquidity(self, leg: LpLeg) -> None:
        """A deposit or withdrawal."""
        pool = leg.pool
        mode = self.mode(leg.mode, leg.value)
        action, addressed, _ = _action(type(pool), "remove" if leg.given is None else "add")
        w = self.address(pool.address) if addressed else contract.AUTO
        if leg.given is None:
            lp_token = self.token(pool.lp_token)
            self.instructions.append(contract.remove(action, lp_token, mode, len(pool.tokens), w))
            return
        if isinstance(pool, OneDexPool):
            w = pool.pair_id
        tokens = [self.token(token) for token in leg.given]
        self.instructions.append(contract.add(action, tokens, mode, w))
