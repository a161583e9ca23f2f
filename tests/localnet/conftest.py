"""A small market in a ledger, with what tests need to call its contracts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import pytest

from millrace.chain.call import TokenPayment
from millrace.chain.network import profile
from millrace.chain.token import NATIVE
from millrace.dex.pool import Pool
from millrace.localnet.contracts import builtin
from millrace.localnet.contracts.execution import CallResult, ContractCall, Event, execute_call
from millrace.localnet.contracts.ledger import Ledger
from millrace.localnet.market import market

PROFILE = profile("documented", chain_id="local")
PLENTY = 10**30


@cache
def small_market(seed: int = 7) -> market.Market:
    """Two hundred pools of every sort; the same object for the same seed."""
    return market.generate(seed, PROFILE, pools=200, tokens=40)


def user(number: int, shard: int | None = None) -> bytes:
    """An account's address, in the contracts' shard unless another one is named."""
    wanted = PROFILE.shard_of(small_market().addresses.aggregator) if shard is None else shard
    return next(
        pubkey
        for last in range(256)
        if PROFILE.shard_of(pubkey := bytes([1, number]) + bytes(29) + bytes([last])) == wanted
    )


class World:
    """A ledger with the market installed, and two rich accounts `alice` and `bob`."""

    def __init__(self, seed: int = 7) -> None:
        self.market = small_market(seed)
        self.at = self.market.addresses
        self.home = PROFILE.shard_of(self.at.aggregator)
        self.ledger = Ledger()
        self.state = market.install(self.market, self.ledger, lambda pubkey: PROFILE.shard_of(pubkey) == self.home)
        self.alice, self.bob = user(1), user(2)
        for pubkey in (self.alice, self.bob):
            self.ledger.credit(pubkey, NATIVE, PLENTY)
            for token in self.market.tokens:
                self.ledger.credit(pubkey, token.identifier, PLENTY)
        self.ledger.credit(self.at.wrapper, NATIVE, 2 * PLENTY)
        for pool in self.market.pools:
            self.ledger.move(self.at.provider, self.alice, pool.lp_token, pool.lp_supply // 4)

    def pools(self, exchange: str, kind: str = "constant_product") -> list[Pool]:
        """The present pools of one sort that take swaps and are no dust."""
        return [
            pool
            for pool in self.ledger.pools.values()
            if (pool.exchange, pool.kind) == (exchange, kind)
            and pool.state == "active"
            and min(pool.reserves) >= 10_000
            and not getattr(pool, "restricted", False)
            and getattr(pool, "enabled", True)
        ]

    def call(
        self,
        receiver: bytes,
        function: str,
        *args: bytes,
        pay: Sequence[tuple[str, int]] = (),
        sender: bytes | None = None,
        gas: int = 600_000_000,
    ) -> CallResult:
        """Pay and call as the chain does: what was paid comes back when the call fails."""
        caller = sender or self.alice
        payments = tuple(TokenPayment(token, 0, amount) for token, amount in pay)
        if payments:
            builtin.send(self.ledger, caller, payments)
        result = execute_call(self.state, ContractCall(caller, receiver, 0, payments, function, args, gas))
        if payments and not result.ok:
            builtin.receive(self.ledger, caller, payments)
        return result

    def held(self, token: str, pubkey: bytes | None = None) -> int:
        """What alice, or someone else, holds."""
        return self.ledger.balance_of(pubkey or self.alice, token)

    def totals(self) -> Counter[str]:
        """What all accounts together hold of each token."""
        total: Counter[str] = Counter()
        for account in self.ledger.accounts.values():
            total[NATIVE] += account.balance
            total.update(account.tokens)
        return total

    def balances(self) -> Counter[tuple[bytes, str]]:
        """What every account holds of every token."""
        held: Counter[tuple[bytes, str]] = Counter()
        for who, account in self.ledger.accounts.items():
            held[who, NATIVE] = account.balance
            held.update({(who, token): amount for token, amount in account.tokens.items()})
        return held

    def changes(self, before: Counter[tuple[bytes, str]]) -> dict[tuple[bytes, str], int]:
        """How balances differ from earlier ones."""
        now = self.balances()
        now.subtract(before)
        return {key: amount for key, amount in now.items() if amount}

    def movements(
        self, receiver: bytes, pay: Sequence[tuple[str, int]], events: Sequence[Event]
    ) -> dict[tuple[bytes, str], int]:
        """How alice's call changed balances, told from what she paid and the events alone."""
        moved: Counter[tuple[bytes, str]] = Counter()
        for token, amount in pay:
            moved[self.alice, token] -= amount
            moved[receiver, token] += amount
        for event in events:
            _follow(event, moved)
        return {key: amount for key, amount in moved.items() if amount}

    def burned(self, events: Sequence[Event]) -> Counter[str]:
        """What xExchange pairs burned of each token, LP units aside: slices of their special fees."""
        pairs = {pool.address for pool in self.market.pools if pool.exchange == "XExchange"}
        burned: Counter[str] = Counter()
        for event in events:
            if event.identifier == "ESDTLocalBurn" and event.address in pairs:
                burned[event.topics[0].decode()] += int.from_bytes(event.topics[2])
        return Counter({token: amount for token, amount in burned.items() if token not in self.market.lp_tokens})

    def picture(self) -> object:
        """All of the state, to compare."""
        accounts = {
            pubkey: (account.nonce, account.balance, dict(account.tokens), account.guarding)
            for pubkey, account in self.ledger.accounts.items()
        }
        return accounts, dict(self.ledger.pools)

    def check_solvent(self) -> None:
        """Every contract holds its pools' reserves, and LP units issued are in accounts."""
        owed: Counter[tuple[bytes, str]] = Counter()
        totals = self.totals()
        for pool in self.ledger.pools.values():
            for token, reserve in zip(pool.tokens, pool.reserves, strict=True):
                owed[pool.address, token] += reserve
            assert totals[pool.lp_token] == pool.lp_supply, pool.id
        for (address, token), amount in owed.items():
            assert self.ledger.balance_of(address, token) >= amount, token


def _follow(event: Event, moved: Counter[tuple[bytes, str]]) -> None:
    kind, topics = event.identifier, event.topics
    if kind in ("ESDTTransfer", "MultiESDTNFTTransfer"):
        for token, _, amount in zip(topics[:-1:3], topics[1:-1:3], topics[2:-1:3], strict=True):
            moved[event.address, token.decode()] -= int.from_bytes(amount)
            moved[topics[-1], token.decode()] += int.from_bytes(amount)
    elif kind == "transferValueOnly":
        moved[event.address, NATIVE] -= int.from_bytes(topics[0])
        moved[topics[1], NATIVE] += int.from_bytes(topics[0])
    elif kind in ("ESDTLocalMint", "ESDTLocalBurn"):
        sign = 1 if kind == "ESDTLocalMint" else -1
        moved[event.address, topics[0].decode()] += sign * int.from_bytes(topics[2])


@pytest.fixture
def world() -> World:
    """A fresh world."""
    return World()


@pytest.fixture(scope="session")
def new_world() -> Callable[[], World]:
    """Makes fresh worlds, for tests that need one per example."""
    return World
