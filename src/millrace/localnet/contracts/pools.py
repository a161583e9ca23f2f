"""What the exchanges' contracts have in common: swaps, deposits and withdrawals on one pool.

A pool's contract holds the pool's reserves in its account. What a trade withholds and does not leave in the
reserves is paid to the exchange's fee receiver, so that nothing is ever lost.
"""

from collections.abc import Mapping, Sequence

from millrace.chain.token import NATIVE
from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.pool import Burn, Mint, Pool, Swap
from millrace.dex.run import Forwarded, sell_slices
from millrace.localnet.contracts import gas, storage
from millrace.localnet.contracts.events import log_liquidity, log_swap
from millrace.localnet.contracts.frame import Contract, ContractError, Frame, State

SLIPPAGE = "Slippage exceeded"


class PoolContract(Contract):
    """A contract with one pool. `fee_receiver` gets the fees that leave it; `slippage` are its words for too little."""

    slippage = SLIPPAGE

    def __init__(self, address: bytes, pool_id: str, fee_receiver: bytes) -> None:
        super().__init__(address)
        self.pool_id = pool_id
        self.fee_receiver = fee_receiver

    def stored(self, state: State) -> Mapping[bytes, bytes]:
        return storage.of_pool(state.ledger.pool(self.pool_id))

    def pool(self, frame: Frame) -> Pool:
        """The pool as it is now."""
        return frame.ledger.pool(self.pool_id)


def sell(frame: Frame, pool: Pool, token_in: str, token_out: str, amount: int, fees_to: bytes) -> Swap:
    """Swap an amount that the pool's contract has received already. The output stays in its account."""
    i, j = pool.index(token_in), pool.index(token_out)
    gas.trade(frame.meter, pool, token_in, amount)
    swap = pool.swap(i, j, amount)
    _settle_swap(frame, pool, swap, {token_in: amount}, {token_out: swap.amount_out}, fees_to)
    sold, paid = (token_in, amount), (token_out, swap.amount_out)
    log_swap(frame, frame.call.function, frame.caller, pool, swap, sold, paid)
    return swap


def buy(frame: Frame, pool: Pool, token_in: str, token_out: str, wanted: int, fees_to: bytes) -> int:
    """Swap for exactly `wanted`; what the input pays beyond it stays in the reserves. Returns the input."""
    amount = fixed_output_input(pool, token_in, token_out, wanted)
    i, j = pool.index(token_in), pool.index(token_out)
    gas.trade(frame.meter, pool, token_in, amount)
    swap = pool.swap(i, j, amount)
    if swap.amount_out < wanted:
        raise ContractError(f"{SLIPPAGE}: {amount} pays {swap.amount_out}, not {wanted}")
    swap = _paying(pool, swap, i, j, amount, wanted)
    _settle_swap(frame, pool, swap, {token_in: amount}, {token_out: wanted}, fees_to)
    sold, paid = (token_in, amount), (token_out, wanted)
    log_swap(frame, frame.call.function, frame.caller, pool, swap, sold, paid)
    return amount


def _paying(pool: Pool, swap: Swap, i: int, j: int, amount: int, wanted: int) -> Swap:
    """A swap that could pay more, paying `wanted`."""
    if isinstance(pool, XExchangePool):
        return pool.swap_for(i, j, amount, wanted)
    reserves = list(swap.pool.reserves)
    reserves[j] += swap.amount_out - wanted
    return swap._replace(amount_out=wanted, pool=swap.pool.with_reserves(tuple(reserves)))


def _settle_swap(
    frame: Frame, before: Pool, swap: Swap, came_in: dict[str, int], goes_out: dict[str, int], fees_to: bytes
) -> None:
    """Store the pool after a swap, and do with the slices of its special fee what is done with them."""
    moved = {before.id: swap.pool}
    gone = sell_slices(swap.slices, lambda address: pool_at(frame.state, address), moved)
    leaving = dict(goes_out)
    for token, amount in (forwarded.slice for forwarded in gone):
        leaving[token] = leaving.get(token, 0) + amount
    settle(frame, before, swap.pool, came_in, leaving, fees_to)
    for forwarded in gone:
        forward(frame, before.address, forwarded, moved)


def forward(frame: Frame, pair: bytes, forwarded: Forwarded, moved: Mapping[str, Pool]) -> None:
    """Burn a slice of a pair's special fee, or send it to the pair that sells it and burns what it buys.

    `moved` are the pools as the swap leaves them, by id.
    """
    if forwarded.bought is None:
        frame.burn(pair, *forwarded.slice)
        return
    buyer = moved[forwarded.sold_in]
    frame.pay(pair, buyer.address, forwarded.slice)
    frame.burn(buyer.address, *forwarded.bought)
    frame.put_pool(buyer)


def pool_at(state: State, address: bytes) -> Pool | None:
    """The pool of the contract at an address, as it is now; None where there is no such contract."""
    contract = state.contracts.get(address)
    return state.ledger.pool(contract.pool_id) if isinstance(contract, PoolContract) else None


def fixed_output_input(pool: Pool, token_in: str, token_out: str, wanted: int) -> int:
    """What the exchange's own fixed-output call takes for `wanted`."""
    if not isinstance(pool, XExchangePool | OneDexPool | JexPool):
        raise ContractError("this pool has no swaps to a fixed output")
    if wanted <= 0:
        raise ContractError("the wanted amount must be positive")
    return pool.fixed_output_input(pool.index(token_in), pool.index(token_out), wanted)


def settle(
    frame: Frame,
    before: Pool,
    after: Pool,
    came_in: dict[str, int],
    goes_out: dict[str, int],
    fees_to: bytes,
) -> None:
    """Store the pool and pay what belongs neither to the reserves nor to the trader to the fee receiver."""
    fees = []
    for k, token in enumerate(before.tokens):
        due = before.reserves[k] + came_in.get(token, 0) - goes_out.get(token, 0) - after.reserves[k]
        if due < 0:
            raise ContractError("the reserves would exceed what the contract holds")
        fees.append((token, due))
    frame.put_pool(after)
    frame.pay(before.address, fees_to, *fees)


def deposit(frame: Frame, pool: Pool, mint: Mint, amounts: dict[str, int], fees_to: bytes) -> None:
    """Finish a deposit: store the pool, give back what was not used, mint the LP units and pay them out."""
    unused = {}
    for token, used in zip(pool.tokens, mint.used, strict=True):
        unused[token] = amounts.get(token, 0) - used
        if unused[token] < 0:
            raise ContractError("the deposit uses more than was paid")
    gas.add(frame.meter, pool)
    settle(frame, pool, mint.pool, amounts, unused, fees_to)
    frame.mint(pool.address, pool.lp_token, mint.pool.lp_supply - pool.lp_supply)
    log_liquidity(frame, frame.call.function, frame.caller, pool, mint.pool, mint.used, mint.lp)
    pay_out(frame, pool, (pool.lp_token, mint.lp), *unused.items())


def withdraw(frame: Frame, pool: Pool, burn: Burn, lp: int, fees_to: bytes) -> None:
    """Finish a withdrawal: burn the LP units, store the pool and log; the amounts are still to be paid."""
    gas.remove(frame.meter, pool)
    frame.burn(pool.address, pool.lp_token, lp)
    paid = dict(zip(pool.tokens, burn.amounts, strict=True))
    settle(frame, pool, burn.pool, {}, paid, fees_to)
    log_liquidity(frame, frame.call.function, frame.caller, pool, burn.pool, burn.amounts, lp)


def add_any(contract: PoolContract, frame: Frame, minimum: int) -> None:
    """Deposit any of the pool's tokens for at least `minimum` LP units, as stable and crypto pools allow."""
    pool = contract.pool(frame)
    amounts = payments_in_any_order(frame, pool.tokens)
    mint = pool.mint(amounts)
    at_least((mint.lp,), (minimum,), contract.slippage)
    deposit(frame, pool, mint, dict(zip(pool.tokens, amounts, strict=True)), contract.fee_receiver)


def remove_shares(contract: PoolContract, frame: Frame, minima: Sequence[int]) -> None:
    """Redeem LP units for a share of every token."""
    pool = contract.pool(frame)
    if len(minima) != len(pool.tokens):
        raise ContractError(f"expected {len(pool.tokens)} minimum amounts, got {len(minima)}")
    lp = lp_payment(frame, pool)
    burn = pool.burn(lp)
    at_least(burn.amounts, minima, contract.slippage)
    withdraw(frame, pool, burn, lp, contract.fee_receiver)
    pay_out(frame, pool, *zip(pool.tokens, burn.amounts, strict=True))


def remove_one(contract: PoolContract, frame: Frame, token_out: str, minimum: int) -> None:
    """Redeem LP units for one token."""
    pool = contract.pool(frame)
    lp, j = lp_payment(frame, pool), pool.index(token_out)
    burn = pool.burn_single(lp, j)
    at_least((burn.amounts[j],), (minimum,), contract.slippage)
    if isinstance(pool, JexPool):  # a pair sells the other share for it
        gas.trade(frame.meter, pool, pool.tokens[1 - j], lp)
    withdraw(frame, pool, burn, lp, contract.fee_receiver)
    pay_out(frame, pool, (token_out, burn.amounts[j]))


def pay_out(frame: Frame, pool: Pool, *assets: tuple[str, int]) -> None:
    """Pay (token, amount) pairs from the pool's contract to its caller; zeros are left out."""
    gas.pay_out(frame.meter, pool, sum(1 for token, amount in assets if amount and token != NATIVE))
    frame.pay(pool.address, frame.caller, *assets)


def payments_in_order(frame: Frame, tokens: Sequence[str]) -> tuple[int, ...]:
    """The amounts of a deposit that must bring every token in the pool's order."""
    if tuple(payment.token for payment in frame.payments) != tuple(tokens):
        raise ContractError(f"bad payment tokens: expected {', '.join(tokens)} in this order")
    return tuple(payment.amount for payment in frame.payments)


def payments_in_any_order(frame: Frame, tokens: Sequence[str]) -> tuple[int, ...]:
    """The amounts of a deposit that may bring any of the tokens, each at most once."""
    amounts = dict.fromkeys(tokens, 0)
    for payment in frame.payments:
        if payment.token not in amounts or amounts[payment.token]:
            raise ContractError(f"bad payment tokens: {payment.token} is not expected")
        amounts[payment.token] = payment.amount
    return tuple(amounts.values())


def lp_payment(frame: Frame, pool: Pool) -> int:
    """The LP units of a withdrawal."""
    payment = frame.one_payment()
    if payment.token != pool.lp_token:
        raise ContractError(f"bad payment token: expected {pool.lp_token}")
    return payment.amount


def at_least(what: Sequence[int], minima: Sequence[int], text: str = SLIPPAGE) -> None:
    """Raise, in the exchange's words and with both numbers, unless every amount reaches its minimum."""
    for amount, minimum in zip(what, minima, strict=True):
        if amount < minimum:
            raise ContractError(f"{text}: have {amount}, need {minimum}")
