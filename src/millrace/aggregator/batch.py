"""Many inputs to one output, in as few transactions as they fit into: the "dust" conversion of wallets.

Each transaction is quoted on the pools as those before it leave them. It may take long, so it is not run on the event
loop; inputs that the deadline leaves no time for say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Sequence
from typing import NamedTuple

from millrace.aggregator import errors
from millrace.aggregator.batch_requests import BatchItem, Order
from millrace.aggregator.breakdown import price_impact
from millrace.aggregator.errors import ApiError
from millrace.aggregator.query import parse_amount
from millrace.aggregator.quote import budget
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot
from millrace.chain import address, call
from millrace.chain.amount import apply_slippage
from millrace.chain.call import TokenPayment
from millrace.chain.token import NATIVE
from millrace.dex.aggregator_contract import ENDPOINT, Program, encode_arguments
from millrace.dex.pool import Pool
from millrace.dex.vault import Referral, VaultError, VaultResult, execute
from millrace.routing.costs import GAS_PER_DATA_BYTE, Cost, Table, total
from millrace.routing.execution import replayed
from millrace.routing.paths import split_sources
from millrace.routing.plan import (
    AnyLeg,
    Ends,
    Execution,
    Fill,
    Leg,
    PlanError,
    cost_of,
    leg_fills,
    leg_steps,
    make_program,
)
from millrace.routing.planner import Planner
from millrace.routing.router import Limits, NoRoute

PAYMENT_GAS = 11 * GAS_PER_DATA_BYTE * 240 // 10  # of another payment's bytes: token, amount, and token of the program
OUT_OF_TIME = "out_of_time"  # why an input is not sold
MOVED = 1_000  # pools have moved for a transaction that pays less than before by more than one part in so many


class Failure(NamedTuple):
    """An input that is not sold, and why. `amount` is None where the text is none."""

    item: BatchItem
    amount: int | None
    reason: str


class SoldInput(NamedTuple):
    """One input of a transaction and what was done with it, in execution order; `paid` is its part of the output."""

    token: str
    amount: int
    paid: int
    fills: list[Fill]


class Sale(NamedTuple):
    """One transaction. `paid` is what is left of the output after the contract's fee."""

    number: int
    inputs: list[SoldInput]
    paid: int
    fee: int
    least: int
    data: bytes
    gas_limit: int
    builtin_calls: int


class Sold(NamedTuple):
    """Transactions, to be sent in this order, and what is in none of them. `cut`: with more time they may pay more."""

    order: Order
    sales: list[Sale]
    failures: list[Failure]
    cut: bool
    """Whether time was short: with more, more may be sold, or for more."""


class _Given(NamedTuple):
    """One checked input, the legs that sell it, what they pay for it alone, and what they take, `planned`."""

    token: str
    amount: int
    legs: Sequence[AnyLeg]
    alone: int
    cost: Cost


class _Bundle(NamedTuple):
    """Inputs, and the legs that sell all of them; in most, one input."""

    inputs: Sequence[_Given]
    legs: Sequence[AnyLeg]


class _Run(NamedTuple):
    """Bundles sold in one transaction, and what the contract does then."""

    bundles: Sequence[_Bundle]
    done: VaultResult


class _Refused(NamedTuple):
    """Why inputs are not sold in one transaction, and the tokens of those to blame, as far as that is known."""

    reason: str
    blamed: Collection[str] = ()

    def parts_of(self, group: list[_Given]) -> list[list[_Given]]:
        """What to try in place of several: first without those to blame, or else halves."""
        parts = [[given for given in group if (given.token in self.blamed) is to_blame] for to_blame in (False, True)]
        half = len(group) // 2
        return parts if all(parts) else [group[:half], group[half:]]


class _Room(NamedTuple):
    """What each transaction of one order may take."""

    table: Table
    settings: AggregatorSettings
    order: Order

    def ends(self, tokens: Sequence[str]) -> Cost:
        """What a call that sells these tokens takes besides its pools."""
        egld_in, egld_out = NATIVE in tokens, self.order.to == NATIVE
        referral = self.order.referral_id > 0
        return self.table.ends(egld_in=egld_in, egld_out=egld_out, referral=referral, payments=len(tokens))

    def left(self, tokens: Sequence[str]) -> Cost:
        """What there is for pools. Raises `ApiError`."""
        return budget(self.table, self.settings.most(self.order.calls), self.ends(tokens))

    def fits(self, group: Sequence[_Given]) -> bool:
        """Whether inputs hold the limits together."""
        payments = Cost(gas=PAYMENT_GAS * (len(group) - 1))
        try:
            left = self.left([given.token for given in group]).plus(payments, -1)
        except ApiError:
            return False
        if total(given.cost for given in group).within(left):  # what they share is counted twice there
            return True
        return self.table.planned(cost_of([leg for given in group for leg in given.legs], self.table)).within(left)

    def groups(self, given: Sequence[_Given], most: int) -> list[list[_Given]]:
        """The inputs in their order, as many to a transaction as fit into it, and no more than `most`."""
        groups: list[list[_Given]] = []
        for item in given:
            group = [*groups[-1], item] if groups else []
            if group and len(group) <= most and self.fits(group):
                groups[-1] = group
            else:
                groups.append([item])
        return groups


def sell(
    snapshot: Snapshot, planner: Planner, order: Order, settings: AggregatorSettings, deadline: float
) -> Generator[None, None, Sold]:
    """One call of the contract per group of inputs. Raises `ApiError`.

    `planner` is the snapshot's, of the pools that the order allows. It yields between its parts, all of which belong
    into the thread for long questions.
    """
    if order.to not in snapshot.decimals:
        raise errors.unknown_token_out(order.to)
    desk = _Desk(snapshot, planner, order, settings, deadline)
    for item in order.inputs:
        if time.monotonic() <= deadline:
            yield
        desk.take(item)
    groups = desk.room.groups(desk.given, 1 if desk.minting else settings.inputs_per_transaction)
    while groups:
        yield
        group = groups.pop(0)
        refused = yield from desk.sell(group)
        if refused is None:
            continue
        # Inputs that go alone may not go together: one moves a pool another needs, or takes its tokens along.
        if len(group) > 1:
            groups[:0] = refused.parts_of(group)
        else:
            given = group[0]
            desk.fail(BatchItem(token=given.token, amount=str(given.amount)), given.amount, refused.reason)
    return Sold(order, desk.sales, desk.failures, desk.cut or time.monotonic() > deadline)


class _Desk:
    """One order under way. `market` is as the transactions so far leave it."""

    def __init__(
        self, snapshot: Snapshot, planner: Planner, order: Order, settings: AggregatorSettings, deadline: float
    ) -> None:
        self.room = _Room(planner.table, settings, order)
        self.given: list[_Given] = []
        self.sales: list[Sale] = []
        self.failures: list[Failure] = []
        self.cut = False
        self._snapshot = snapshot
        self._graph = planner
        """Of the snapshot itself: who plans on other pools begins with it."""
        self._planner = snapshot.twin(planner)
        self._order = order
        self._deadline = deadline
        self._market = snapshot.market
        self._moved: dict[str, Pool] = {}
        self._seen: set[str] = set()
        self.minting = planner.mints(snapshot.inner(order.to))
        """Whether the output are LP units: then each input goes alone, as a deposit ends a call."""

    def fail(self, item: BatchItem, amount: int | None, reason: str) -> None:
        """Note an input that is not sold. Raises `ApiError` where none may be left out."""
        if not self._order.skipping:
            raise _REFUSALS[reason](item.token)
        self.cut |= reason == OUT_OF_TIME
        self.failures.append(Failure(item, amount, reason))

    def take(self, item: BatchItem) -> None:
        """Check one input and find its paths on the pools of the snapshot."""
        amount = parse_amount(item.amount)
        reason = ""
        if item.token not in self._snapshot.decimals:
            reason = "unknown_token"
        elif amount is None:
            reason = "invalid_amount"
        elif item.token in self._seen:
            reason = "duplicate_token"
        elif item.token == self._order.to:
            reason = "same_token"
        elif time.monotonic() > self._deadline:
            reason = OUT_OF_TIME
        if reason or amount is None:
            self.fail(item, amount, reason)
            return
        self._seen.add(item.token)
        found = self._find(self._planner, item.token, amount)
        if isinstance(found, _Given):
            self.given.append(found)
        else:
            self.fail(item, amount, found)

    def _find(self, planner: Planner, token: str, amount: int) -> _Given | str:
        """The paths of one input, tried alone on the planner's pools; why there are none."""
        source, sink = self._snapshot.inner(token), self._snapshot.inner(self._order.to)
        try:
            left = self.room.left([token])
        except ApiError:
            return "no_path"
        if source == sink:
            return _Given(token, amount, [], amount, Cost())
        for paths in dict.fromkeys((self._order.paths, 1)):
            try:
                limits = Limits(self._order.pools, paths, self._order.hops, budget=left)
                sale = self._plan(planner, source, amount, sink, limits)
            except NoRoute:
                return "no_path"
            except PlanError:
                continue
            cost = planner.table.planned(cost_of(sale.legs, planner.table))
            return _Given(token, amount, sale.legs, sale.amount_out, cost)
        return "zero_liquidity" if self._reaches(planner, source, sink) else "no_path"

    def _plan(self, planner: Planner, source: str, amount: int, sink: str, limits: Limits) -> Execution:
        """What sells one input. Raises `NoRoute` or `PlanError`."""
        if self.minting:
            return planner.forward(source, sink, amount, limits, "greedy", self._deadline).execution
        return planner.sale(source, amount, sink, limits)

    def _reaches(self, planner: Planner, source: str, sink: str) -> bool:
        """Whether there is a path at all: then the amount is what is wrong."""
        router = planner.router
        if router.connected(source, sink):
            return len(router.short_path(source, sink)) <= self._order.hops
        return planner.supports(source, sink)

    def _has_time(self, seconds: float) -> bool:
        return time.monotonic() + seconds < self._deadline

    def sell(self, group: Sequence[_Given]) -> Generator[None, None, _Refused | None]:
        """Make a transaction of inputs, if they go together on the pools as they are by now; in several parts."""
        best = self._best(self._planner, group)
        alone = sum(given.alone for given in group)
        late = False
        if self.sales and (best is None or (alone - _gross(best.done)) * MOVED > alone):
            yield
            planner = self._snapshot.plan_on(self._graph, self._order.chosen, self._moved, self._has_time)
            yield
            again = None if planner is None else self._find_again(planner, group)
            yield
            best = _better(best, None if planner is None or again is None else self._best(planner, again))
            late = planner is None
            self.cut |= late
        sale = None if best is None else self._sale(best)
        if best is None or sale is None:
            return _Refused(OUT_OF_TIME if late else "zero_liquidity")  # with time it would have been planned anew
        too_far = self._moved_too_far(sale)
        if too_far:
            return _Refused("price_impact", too_far)
        self.sales.append(sale)
        self._market = self._market.left_by(best.done.pools)
        self._moved.update(best.done.pools)
        return None

    def _moved_too_far(self, sale: Sale) -> list[str]:
        """The inputs with a larger price impact than is allowed.

        It is held against the snapshot: else an order would only have to be divided to move its pools at will.
        """
        most, spot = self._order.max_price_impact, self._planner.router.spot_of
        if most is None:
            return []
        return [sold.token for sold in sale.inputs if price_impact(sold.fills, sold.paid, spot) > most]

    def _find_again(self, planner: Planner, group: Sequence[_Given]) -> list[_Given] | None:
        """Other paths for inputs, on the pools as they are by now, that still go into one transaction."""
        found = [self._find(planner, given.token, given.amount) for given in group]
        again = [given for given in found if isinstance(given, _Given)]
        return again if len(again) == len(group) and self.room.fits(again) else None

    def _best(self, planner: Planner, group: Sequence[_Given]) -> _Run | None:
        """Inputs one after the other, or those that share pools planned together, whichever pays more by now."""
        apart = [_Bundle([given], given.legs) for given in group]
        together = self._together(planner, group)
        if together is None:
            return self._run(apart)
        paid = [self._replayed(planner, bundles) for bundles in (apart, together)]
        if None in paid:
            return _better(self._run(apart), self._run(together))
        first, second = (together, apart) if (paid[1] or 0) > (paid[0] or 0) else (apart, together)
        return self._run(first) or self._run(second)

    def _replayed(self, planner: Planner, bundles: Sequence[_Bundle]) -> int | None:
        """What swaps pay on the pools as they are by now; None for plans with anything else in them."""
        legs = [leg for bundle in bundles for leg in bundle.legs]
        swaps = [leg for leg in legs if isinstance(leg, Leg)]
        if len(swaps) < len(legs):
            return None
        amounts = self._amounts([given for bundle in bundles for given in bundle.inputs])
        return replayed(swaps, amounts, self._snapshot.inner(self._order.to), planner.router.outlets, self._moved)

    def _amounts(self, inputs: Sequence[_Given]) -> dict[str, int]:
        """What the vault holds of each token at the beginning, EGLD wrapped."""
        amounts: dict[str, int] = {}
        for given in inputs:
            token = self._snapshot.inner(given.token)
            amounts[token] = amounts.get(token, 0) + given.amount
        return amounts

    def _together(self, planner: Planner, group: Sequence[_Given]) -> list[_Bundle] | None:
        """Those inputs sold in one flow that can be, if any of them share a pool and it holds the limits."""
        plain = [given for given in group if given.legs and all(isinstance(leg, Leg) for leg in given.legs)]
        pools = [{leg.trade.pool.id for leg in given.legs if isinstance(leg, Leg)} for given in plain]
        if len(plain) < 2 or sum(map(len, pools)) == len(set().union(*pools)):
            return None
        rest = [_Bundle([given], given.legs) for given in group if given not in plain]
        table, tokens = self.room.table, [given.token for given in group]
        taken = table.planned(cost_of([leg for bundle in rest for leg in bundle.legs], table))
        budget = self.room.left(tokens).plus(taken.plus(Cost(gas=PAYMENT_GAS), len(group) - 1), -1)
        order, many = self._order, len(plain)
        limits = Limits(order.pools * many, order.paths * many, order.hops, budget=budget)
        try:
            legs: Sequence[AnyLeg] = planner.joint_sale(
                self._amounts(plain), self._snapshot.inner(self._order.to), limits
            )
        except PlanError:
            return None
        return [_Bundle(plain, legs), *rest] if limits.admit(table.planned(cost_of(legs, table))) else None

    def _program(self, bundles: Sequence[_Bundle], least: int) -> Program:
        legs = [leg for bundle in bundles for leg in bundle.legs]
        tokens = [given.token for bundle in bundles for given in bundle.inputs]
        source = NATIVE if NATIVE in tokens else tokens[0]
        return make_program(legs, Ends(source, self._order.to), self._snapshot.wrapped, least, self._order.referral_id)

    def _run(self, bundles: Sequence[_Bundle]) -> _Run | None:
        """What the contract does with the inputs on the pools as they are by now; None where nothing comes of it."""
        referral_id = self._order.referral_id
        bps = self.room.settings.referral_bps(referral_id)
        referral = Referral(referral_id, *bps) if any(bps) else None
        if self.room.settings.takes_all(referral_id):
            return None
        try:
            return _Run(bundles, execute(self._program(bundles, 0), _payments(bundles), self._market, referral))
        except (PlanError, VaultError):
            return None

    def _sale(self, run: _Run) -> Sale | None:
        """The transaction; None if it would take more than there is."""
        room, order, (bundles, done) = self.room, self._order, run
        least = apply_slippage(done.amount_out, order.slippage)
        arguments = encode_arguments(self._program(bundles, least))
        contract = address.decode(room.settings.contract)
        payments = _payments(bundles)
        data = call.multi_transfer(contract, payments, ENDPOINT, *arguments)
        legs = [leg for bundle in bundles for leg in bundle.legs]
        cost = cost_of(legs, room.table, room.ends([payment.token for payment in payments]))
        gas_limit = room.table.gas_limit(cost, len(data))
        if not cost._replace(gas=gas_limit).within(room.settings.most(order.calls)):
            return None
        return Sale(
            number=len(self.sales),
            inputs=self._sold(run),
            paid=done.amount_out,
            fee=done.static_fee + done.referral_fee,
            least=least,
            data=data,
            gas_limit=gas_limit,
            builtin_calls=cost.calls,
        )

    def _sold(self, run: _Run) -> list[SoldInput]:
        """What was done with each input."""
        inner, sink = self._snapshot.inner, self._snapshot.inner(self._order.to)
        wrapped = any(payment.token == NATIVE for payment in _payments(run.bundles))
        every = leg_steps([leg for bundle in run.bundles for leg in bundle.legs], run.done.steps[int(wrapped) :])
        start, sold = 0, []
        for bundle in run.bundles:
            part = every[start : start + len(bundle.legs)]
            start += len(bundle.legs)
            fills = [fill for leg, step in zip(bundle.legs, part, strict=True) for fill in leg_fills(leg, step)]
            each = [fills]
            if len(bundle.inputs) > 1:
                each = split_sources(fills, [(inner(given.token), given.amount) for given in bundle.inputs])
            for given, mine in zip(bundle.inputs, each, strict=True):
                bought = sum(fill.amount_out for fill in mine if fill.trade.token_out == sink)
                paid = bought - sum(fill.amount_in for fill in mine if fill.trade.token_in == sink)
                sold.append(SoldInput(given.token, given.amount, paid if mine else given.amount, mine))
        return sold


def _payments(bundles: Sequence[_Bundle]) -> list[TokenPayment]:
    return [TokenPayment(given.token, 0, given.amount) for bundle in bundles for given in bundle.inputs]


def _better(one: _Run | None, other: _Run | None) -> _Run | None:
    """What pays more; the first where they pay the same."""
    if one is None or other is None:
        return one or other
    return other if _gross(other.done) > _gross(one.done) else one


def _gross(done: VaultResult) -> int:
    """What a transaction pays before the contract's fee."""
    return done.amount_out + done.static_fee + done.referral_fee


_REFUSALS: dict[str, Callable[[str], ApiError]] = {
    "unknown_token": errors.unknown_token_in,
    "invalid_amount": lambda _: errors.invalid_amount_in(),
    "duplicate_token": lambda token: ApiError(f"duplicate token_in {errors.shown(token)}"),
    "same_token": lambda token: ApiError(f"token_in {errors.shown(token)} is the output token"),
    "no_path": lambda _: errors.no_path(),
    "zero_liquidity": lambda token: errors.simulation_failed(f"{errors.shown(token)} cannot be sold"),
    "price_impact": lambda token: ApiError(
        f"price impact too high: that of {errors.shown(token)} is more than asked for"
    ),
    OUT_OF_TIME: lambda _: errors.busy(),
}
"""What an input that cannot be sold is where none may be left out."""
