"""How the aggregator contract balances two amounts before it deposits them into a constant product pool.

It searches for the swap inside the pool after which the deposit leaves least unused. The search, and the
small differences between its model and what the exchange then does, are the contract's own: a quote of an
LP token is exact only if both are repeated.
"""

from typing import NamedTuple

MAX_STEPS = 128


class FeeModel(NamedTuple):
    """How the contract believes a pool charges: rates over `base`.

    On the input side `split` is the part of the input that leaves the pool; on the output side it is the
    part of the output that stays in it.
    """

    on_input: bool
    total: int
    split: int
    base: int


class Trade(NamedTuple):
    """One simulated swap: what the trader receives and the pool's reserves afterwards."""

    received: int
    reserve_in: int
    reserve_out: int


def simulate(amount: int, reserve_in: int, reserve_out: int, fee: FeeModel) -> Trade:
    """The contract's model of a swap."""
    kept = fee.base - fee.total
    if fee.on_input:
        received = amount * kept * reserve_out // (reserve_in * fee.base + amount * kept)
        return Trade(received, reserve_in + amount - amount * fee.split // fee.base, reserve_out - received)
    gross = amount * reserve_out // (reserve_in + amount)
    leaving = gross * (fee.base - fee.split) // fee.base
    return Trade(gross * kept // fee.base, reserve_in + amount, reserve_out - leaving)


class Search(NamedTuple):
    """What to sell before a deposit: a token's index and an amount (0: nothing). `loops`: what finding it took."""

    sold: int
    amount: int
    loops: int


def balancing_swap(first: int, second: int, reserves: tuple[int, int], fee: FeeModel) -> tuple[int, int]:
    """(index of the token to sell, amount to sell) before depositing `first` and `second`. Amount 0: none."""
    found = search(first, second, reserves, fee)
    return found.sold, found.amount


def search(first: int, second: int, reserves: tuple[int, int], fee: FeeModel) -> Search:
    """The swap before depositing `first` and `second`."""
    excess = first * reserves[1] - second * reserves[0]
    if min(first, second, *reserves) <= 0 or excess == 0 or fee.total > fee.base:
        return Search(0, 0, 0)
    if excess > 0:
        return Search(0, *_bisect(first, second, reserves[0], reserves[1], fee))
    return Search(1, *_bisect(second, first, reserves[1], reserves[0], fee))


def _bisect(sold: int, other: int, reserve_in: int, reserve_out: int, fee: FeeModel) -> tuple[int, int]:
    """(amount to sell, loops): keep the probe that leaves least, which need not be the last one."""
    low, high = 0, sold
    best, least = 0, sold
    for loop in range(MAX_STEPS):
        if high <= low + 1:
            return best, loop
        probe = (low + high) // 2
        trade = simulate(probe, reserve_in, reserve_out, fee)
        if trade.received == 0:
            low = probe
            continue
        left, have = sold - probe, other + trade.received
        unused = _unused(left, have, trade)
        if unused < least:
            best, least = probe, unused
        balance = left * trade.reserve_out - have * trade.reserve_in
        if balance == 0:
            return probe, loop + 1
        if balance > 0:
            low = probe
        else:
            high = probe
    return best, MAX_STEPS


def _unused(left: int, have: int, trade: Trade) -> int:
    """What a deposit of the two amounts gives back, in units of whichever token is given back."""
    matching = left * trade.reserve_out // trade.reserve_in
    if matching <= have:
        return have - matching
    if trade.reserve_out == 0:
        return left
    return left - have * trade.reserve_in // trade.reserve_out
