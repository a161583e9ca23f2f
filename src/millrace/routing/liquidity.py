"""Routes that begin by redeeming LP tokens or end by minting them.

Redeeming gives all of a pool's tokens; each is then sold along paths of its own. Minting wants the pool's
tokens; the input is divided between them by golden-section search on the LP units that come out (the
contract itself balances what remains uneven). Such plans run path after path (`previous` modes), so that
no path takes what another has put aside, and are walked by the contract's own evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millrace.chain.call import TokenPayment
from millrace.dex import aggregator_contract as contract
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolError
from millrace.dex.run import Step
from millrace.dex.vault import VaultError, execute
from millrace.routing.plan import (
    AnyLeg,
    Ends,
    Execution,
    Fill,
    Leg,
    LpLeg,
    LpMove,
    PlanError,
    make_program,
)
from millrace.routing.venue import Trade

MILLION = contract.MILLION
SEARCH_STEPS = 8
_GOLDEN = 0.6180339887498949

# Paths from one token to another for an amount, with the part of the amount each takes (they sum to 1).
Paths = list[tuple[list[Trade], float]]
FindPaths = Callable[[str, str, int], Paths]


def redeem(pool: Pool, amount: int, token_out: str, find: FindPaths, market: DictMarket) -> Execution:
    """The plan that redeems `amount` LP units of `pool` and sells everything for `token_out`."""
    try:
        shares = pool.burn(amount).amounts
    except PoolError as error:
        raise PlanError(str(error)) from error
    legs: list[AnyLeg] = [LpLeg(pool, None)]
    for token, share in zip(pool.tokens, shares, strict=True):
        if token != token_out:
            legs.extend(sell_legs(find(token, token_out, share)))
    return run(legs, Ends(pool.lp_token, token_out), amount, market)


def provide(pool: Pool, token_in: str, amount: int, find: FindPaths, market: DictMarket) -> Execution:
    """The plan that sells `amount` of `token_in` for LP units of `pool`."""
    ends = Ends(token_in, pool.lp_token)

    def divided(parts: Sequence[int]) -> Execution | None:
        try:
            legs = _buy_tokens(pool, token_in, parts, find)
            return run(legs, ends, amount, market)
        except PlanError:
            return None

    found = [divided(parts) for parts in _corners(pool, amount)]
    if len(pool.tokens) == 2:
        found.append(_search(amount, divided))
    plans = [plan for plan in found if plan is not None]
    if not plans:
        raise PlanError("the pool takes no deposit of this size")
    return max(plans, key=lambda plan: plan.amount_out)


def _corners(pool: Pool, amount: int) -> list[list[int]]:
    """Everything into one token (pools that take it), and even parts."""
    n = len(pool.tokens)
    even = [amount // n] * (n - 1)
    result = [[*even, amount - sum(even)]]
    if pool.kind != "constant_product":
        result += [[amount if k == j else 0 for k in range(n)] for j in range(n)]
    return result


def _search(amount: int, divided: Callable[[Sequence[int]], Execution | None]) -> Execution | None:
    """The best division between two tokens: golden section on the part of the first."""

    def at(part: float) -> Execution | None:
        first = min(max(int(amount * part), 1), amount - 1)
        return divided([first, amount - first])

    def worth(plan: Execution | None) -> int:
        return -1 if plan is None else plan.amount_out

    if amount < 2:
        return None
    low, high = 0.0, 1.0
    a, b = high - _GOLDEN, low + _GOLDEN
    plan_a, plan_b = at(a), at(b)
    best = max((plan_a, plan_b), key=worth)
    for _ in range(SEARCH_STEPS):
        if worth(plan_a) > worth(plan_b):
            high, b, plan_b = b, a, plan_a
            a = high - _GOLDEN * (high - low)
            plan_a = at(a)
            best = max((best, plan_a), key=worth)
        else:
            low, a, plan_a = a, b, plan_b
            b = low + _GOLDEN * (high - low)
            plan_b = at(b)
            best = max((best, plan_b), key=worth)
    return best


def sell_legs(paths: Paths) -> list[Leg]:
    """Legs that sell the whole balance of a token along paths: parts per million, the last takes all."""
    legs = []
    left = sum(part for _, part in paths)
    for number, (path, part) in enumerate(paths):
        ppm = round(part / left * MILLION) if left > 0.0 else 0
        left -= part
        if number == len(paths) - 1:
            legs.append(Leg(path[0], contract.ALL, 0))
        elif ppm == 0:
            continue
        else:
            legs.append(Leg(path[0], contract.PPM, min(ppm, MILLION - 1)))
        legs.extend(Leg(trade, contract.PREVIOUS, 0) for trade in path[1:])
    return legs


def _buy_tokens(pool: Pool, token_in: str, parts: Sequence[int], find: FindPaths) -> list[AnyLeg]:
    """Legs that turn `parts` of the input into the pool's tokens, and the deposit."""
    legs: list[AnyLeg] = []
    for token, part in zip(pool.tokens, parts, strict=True):
        if part and token != token_in:
            legs.extend(_spend(find(token_in, token, part), part))
    given = tuple(token for token, part in zip(pool.tokens, parts, strict=True) if part)
    if pool.kind == "constant_product" and len(given) < len(pool.tokens):
        raise PlanError("the amount is too small to be divided between the pool's tokens")
    legs.append(LpLeg(pool, given))
    return legs


def _spend(paths: Paths, amount: int) -> list[Leg]:
    """Legs that spend exactly `amount` of the input along paths, in fixed amounts."""
    legs = []
    left = amount
    for number, (path, part) in enumerate(paths):
        fixed = left if number == len(paths) - 1 else min(int(amount * part), left)
        left -= fixed
        if fixed > 0:
            legs.append(Leg(path[0], contract.FIXED, fixed))
            legs.extend(Leg(trade, contract.PREVIOUS, 0) for trade in path[1:])
    return legs


def run(legs: list[AnyLeg], ends: Ends, amount: int, market: DictMarket) -> Execution:
    """Walk a plan with deposits or withdrawals in the vault. Raises `PlanError` where it reverts."""
    program = make_program(legs, ends, market.wrapped, 0, 0)
    try:
        result = execute(program, [TokenPayment(ends.token_in, 0, amount)], market)
    except VaultError as error:
        raise PlanError(str(error)) from error
    fills = [fill for leg, step in zip(legs, result.steps, strict=True) for fill in _fills(leg, step)]
    return Execution(legs, fills, amount, result.amount_out)


def _fills(leg: AnyLeg, step: Step) -> list[Fill]:
    """What a step did, one entry per pair of tokens; LP units are divided evenly over the pool's tokens."""
    if isinstance(leg, Leg):
        return [Fill(leg.trade, step.inputs[0].amount, step.outputs[0].amount)]
    many = step.outputs if leg.given is None else step.inputs
    whole = step.inputs[0].amount if leg.given is None else step.outputs[0].amount
    parts = [whole // len(many)] * len(many)
    parts[-1] += whole - sum(parts)
    if leg.given is None:
        return [
            Fill(LpMove(leg.pool, leg.pool.lp_token, asset.token), part, asset.amount)
            for asset, part in zip(many, parts, strict=True)
        ]
    return [
        Fill(LpMove(leg.pool, asset.token, leg.pool.lp_token), asset.amount, part)
        for asset, part in zip(many, parts, strict=True)
    ]
