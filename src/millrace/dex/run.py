"""One run of the aggregator contract: what the vault holds and the pools as changed so far."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from millrace.chain.call import TokenPayment
from millrace.chain.token import NATIVE, NATIVE_IN_TRANSFERS
from millrace.dex import aggregator_contract as contract
from millrace.dex.aggregator_contract import Action, Input, Program
from millrace.dex.constant_product import XExchangePool
from millrace.dex.market import Market
from millrace.dex.pool import Pool, Slice, Unsupported


class VaultError(Exception):
    """The contract reverts, in the contract's words."""


class Asset(NamedTuple):
    """A token identifier (EGLD is `EGLD-000000`) and an amount."""

    token: str
    amount: int


class Balancing(NamedTuple):
    """How a deposit was balanced: loops of the search, what was sold if anything, what the pool gave back."""

    loops: int
    sold: Asset | None
    left: tuple[Asset, ...]


class Forwarded(NamedTuple):
    """A slice of a special fee that left a step's pool: burned, or sold in pool `sold_in` for what is burned there."""

    slice: Asset
    sold_in: str = ""
    bought: Asset | None = None


def sell_slices(
    slices: Sequence[Slice], at: Callable[[bytes], Pool | None], moved: dict[str, Pool]
) -> tuple[Forwarded, ...]:
    """Burn the slices of a swap's special fee, or sell them in the pairs that they are sold in. Raises `PoolError`.

    `at` finds a pool by its address and `moved`, which is brought up to date, holds those that have changed, by id. A
    pair that is not found is taken to buy what it is sold.
    """
    done = []
    for token, amount, address, wanted in slices:
        pool = at(address) if address else None
        if pool is None:
            done.append(Forwarded(Asset(token, amount)))
            continue
        pool = moved.get(pool.id, pool)
        if not isinstance(pool, XExchangePool):
            raise Unsupported(f"{pool.id} buys no slices of special fees")
        bought, moved[pool.id] = pool.sell_slice(pool.index(token), pool.index(wanted), amount)
        done.append(Forwarded(Asset(token, amount), pool.id, Asset(wanted, bought)))
    return tuple(done)


class Step(msgspec.Struct, frozen=True):
    """One executed instruction: what went in and came out, and what the pool withheld as fees.

    `dex` is `xExchange`, `AshSwap`, `OneDex`, `JEX` or `wrapper`; `pool_id` is empty for the wrapper.
    `balancing` is of deposits that the contract balances itself; `forwarded` are the slices of an xExchange swap's fee.
    """

    action: Action
    dex: str
    pool_id: str
    address: bytes
    pair_id: int | None
    inputs: tuple[Asset, ...]
    outputs: tuple[Asset, ...]
    fees: tuple[Asset, ...] = ()
    balancing: Balancing | None = None
    forwarded: tuple[Forwarded, ...] = ()


class Run:
    """Balances of the vault, the previous result, what the contract keeps, and the pools touched so far."""

    def __init__(self, program: Program, payments: Sequence[TokenPayment], market: Market) -> None:
        self.program = program
        self.market = market
        self.balances: dict[str, int] = {}
        self.kept: dict[str, int] = {}
        self.pools: dict[str, Pool] = {}
        self.previous: Asset | None = None
        for payment in payments:
            if payment.nonce:
                raise VaultError(f"Only fungible ESDT tokens are accepted, got {payment.token}")
            if payment.amount <= 0:
                raise VaultError("Zero input amount")
            token = NATIVE_IN_TRANSFERS if payment.token == NATIVE else payment.token
            self.deposit(Asset(token, payment.amount))

    def token(self, index: int) -> str:
        """Identifier behind a token index."""
        if index == contract.EGLD_INDEX:
            return NATIVE_IN_TRANSFERS
        return self.program.tokens[index]

    def balance(self, token: str) -> int:
        """What the vault holds; a token it does not hold is an error, as in the contract."""
        try:
            return self.balances[token]
        except KeyError:
            raise VaultError(f"Token not found in vault: {token}") from None

    def deposit(self, asset: Asset) -> None:
        """Put into the vault."""
        self.balances[asset.token] = self.balances.get(asset.token, 0) + asset.amount

    def keep(self, asset: Asset) -> None:
        """Leave with the contract."""
        if asset.amount:
            self.kept[asset.token] = self.kept.get(asset.token, 0) + asset.amount

    def withdraw(self, token: str, amount: int) -> Asset:
        """Take a positive amount out of the vault."""
        balance = self.balance(token)
        if balance < amount:
            raise VaultError(f"Insufficient vault balance for token {token}: have {balance}, need {amount}")
        if amount == 0:
            raise VaultError("Zero input amount")
        if balance == amount:
            del self.balances[token]
        else:
            self.balances[token] = balance - amount
        return Asset(token, amount)

    def take(self, wanted: Input) -> Asset:
        """Withdraw one input by its mode."""
        token = self.token(wanted.token)
        mode = wanted.mode
        if mode == contract.ALL:
            return self.withdraw(token, self.balance(token))
        if mode == contract.PREVIOUS:
            previous = self.previous_result()
            if previous.token != token:
                raise VaultError("PrevAmount token mismatch")
            return self.withdraw(token, previous.amount)
        if mode < contract.PPM:
            return self.withdraw(token, self.program.amounts[mode - contract.FIXED])
        ppm = self.program.amounts[mode - contract.PPM]
        if ppm > contract.MILLION:
            raise VaultError("PPM value exceeds 1,000,000 (100%)")
        return self.withdraw(token, self.balance(token) * ppm // contract.MILLION)

    def previous_result(self) -> Asset:
        """The only output of the last instruction that had exactly one."""
        if self.previous is None:
            raise VaultError("PrevAmount not available")
        return self.previous

    def current(self, pool: Pool) -> Pool:
        """The pool as this run has left it so far."""
        return self.pools.get(pool.id, pool)
