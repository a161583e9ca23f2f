"""Background traders: deterministic wallets whose swaps move prices, and others that bring them back.

They see the ledger of the contracts' shard, live in it, and sign ordinary transactions for the mempool.
"""

from collections import deque
from functools import partial
from hashlib import sha256
from math import isqrt
from typing import Final

import msgspec

from millrace.chain import fees
from millrace.chain.keys import KeyPair
from millrace.chain.network import NetworkProfile
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction, signing_message
from millrace.dex.pool import Pool, PoolError
from millrace.dex.run import sell_slices
from millrace.localnet.contracts.frame import State
from millrace.localnet.contracts.pools import pool_at
from millrace.localnet.market.dice import Dice
from millrace.localnet.market.market import WRAPPED, Market
from millrace.localnet.market.orders import Order, direct, through_aggregator
from millrace.localnet.market.prices import Prices

WALLETS: Final = 8
FUND_EGLD: Final = 10**24
MAX_IN_FLIGHT: Final = 8
"""Transactions of one wallet that the chain has not executed yet, at most."""
PATIENCE: Final = 50
"""Calls of `next` without progress after which a wallet starts again from the chain's nonce."""
RECENT: Final = 256
"""Pools traded in lately that are looked at for arbitrage; the oldest are forgotten."""
RESERVE_FLOOR: Final = 10_000
"""Pools with fewer units of a token on one side are left alone."""
SIZES: Final = (1, 2, 5, 10, 20, 50, 100)
"""Sizes an arbitrage is tried at, in thousandths of the reserve."""
MAX_CANDIDATES: Final = 8
"""Pools looked at for one trade before the traders give up for this time."""


class _Wallet:
    """One trader: its key, the nonce it uses next, and how long the chain has not moved on."""

    def __init__(self, key: KeyPair) -> None:
        self.key = key
        self.next_nonce = 0
        self.seen_nonce = 0
        self.waited = 0

    def forget(self) -> None:
        """Start from the chain's nonce next time, whatever was sent before."""
        self.next_nonce = self.seen_nonce = self.waited = 0

    def ready(self, nonce: int) -> bool:
        """Whether it may send, given its nonce on the chain."""
        self.waited = self.waited + 1 if nonce == self.seen_nonce and nonce < self.next_nonce else 0
        if nonce > self.next_nonce or nonce < self.seen_nonce or self.waited > PATIENCE:
            # Sent from elsewhere, a revert of the chain, or transactions that were lost on the way.
            self.next_nonce = nonce
            self.waited = 0
        self.seen_nonce = nonce
        return self.next_nonce - nonce < MAX_IN_FLIGHT


class Traders:
    """The traders of a market. `rate` is swaps per thousand seconds.

    `enabled` pauses them; what they sent before may be dropped meanwhile.
    """

    def __init__(self, market: Market, profile: NetworkProfile, rate: int = 4_000) -> None:
        self.enabled = True
        self.rate = rate
        self._market = market
        self._profile = profile
        self._dice = Dice(f"millrace/traders/{market.seed}")
        self._prices = Prices(market.tokens)
        self._wallets = [_Wallet(key) for key in _keys(market, profile)]
        self._recent: deque[str] = deque(maxlen=RECENT)
        self._owed = 0
        self._pools = [pool.id for pool in market.pools if _tradable(pool)]
        total, self._popular = 0, []
        for pool in market.pools:
            if _tradable(pool):
                total += isqrt(isqrt(self._prices.value(pool.tokens[0], pool.reserves[0])))
                self._popular.append(total)

    @property
    def addresses(self) -> tuple[bytes, ...]:
        """The wallets' addresses, all in the contracts' shard."""
        return tuple(wallet.key.public for wallet in self._wallets)

    def fund(self, state: State) -> None:
        """Give every wallet EGLD and as much of each token as all pools hold; once, before the first block."""
        totals: dict[str, int] = {}
        for pool in self._market.pools:
            for token, reserve in zip(pool.tokens, pool.reserves, strict=True):
                totals[token] = totals.get(token, 0) + reserve
        for pubkey in self.addresses:
            state.ledger.credit(pubkey, NATIVE, FUND_EGLD)
            for token, amount in totals.items():
                state.ledger.credit(pubkey, token, amount)
            state.ledger.credit(self._market.addresses.wrapper, NATIVE, totals.get(WRAPPED, 0))

    def due(self, milliseconds: int) -> int:
        """How many swaps the rate allows for so much more time."""
        self._owed += self.rate * milliseconds
        count, self._owed = divmod(self._owed, 1_000_000)
        return count

    def next(self, state: State, count: int) -> list[Transaction]:
        """Up to `count` signed swaps. Fewer when paused, or when the chain does not keep up."""
        if not self.enabled:
            for wallet in self._wallets:
                wallet.forget()
            return []
        ready = [wallet for wallet in self._wallets if wallet.ready(state.ledger.account(wallet.key.public).nonce)]
        transactions = []
        for _ in range(count):
            free = [wallet for wallet in ready if wallet.next_nonce - wallet.seen_nonce < MAX_IN_FLIGHT]
            if not free:
                break
            self._prices.walk(self._dice)
            wallet = self._dice.pick(free)
            order = self._order(state, wallet.key.public)
            if order is not None:
                transactions.append(self._signed(wallet, order, state.trie_depth))
        return transactions

    def _order(self, state: State, pubkey: bytes) -> Order | None:
        """An arbitrage where one is to be had, else a trade for its own sake."""
        for _ in range(MAX_CANDIDATES):
            pool = state.ledger.pool(self._pick())
            if min(pool.reserves) < RESERVE_FLOOR:
                continue
            try:
                order = self._arbitrage(pool) or self._whim(pool)
                swap = pool.swap(pool.index(order.token_in), pool.index(order.token_out), order.amount)
                sell_slices(swap.slices, partial(pool_at, state), {})
            except PoolError:
                continue
            if state.ledger.balance_of(pubkey, order.token_in) >= order.amount:
                self._recent.append(pool.id)
                return order
        return None

    def _pick(self) -> str:
        if self._recent and self._dice.chance(400):
            return self._recent.popleft()
        return self._pools[self._dice.weighted(self._popular)]

    def _arbitrage(self, pool: Pool) -> Order | None:
        """The most profitable trade towards the traders' prices, if there is one."""
        best, best_profit = None, 0
        for i, token_in in enumerate(pool.tokens):
            for j, token_out in enumerate(pool.tokens):
                for size in SIZES if i != j else ():
                    amount = pool.reserves[i] * size // 1000
                    out = pool.amount_out(i, j, amount)
                    profit = self._prices.value(token_out, out) - self._prices.value(token_in, amount)
                    if profit <= best_profit:
                        break
                    best, best_profit = _order(pool, i, j, amount, out), profit
        return best

    def _whim(self, pool: Pool) -> Order:
        """A trade of random size and direction, seldom more than a hundredth of the reserve."""
        i = self._dice.below(len(pool.tokens))
        j = (i + 1 + self._dice.below(len(pool.tokens) - 1)) % len(pool.tokens)
        reserve = pool.reserves[i]
        amount = min(self._dice.spread(max(reserve // 3000, 1), "1.2"), reserve // 50)
        return _order(pool, i, j, amount, pool.amount_out(i, j, amount))

    def _signed(self, wallet: _Wallet, order: Order, trie_depth: int) -> Transaction:
        form = through_aggregator if self._dice.chance(250) else direct
        payload = form(order, trie_depth)
        schedule = self._profile.gas
        draft = Transaction(
            nonce=wallet.next_nonce,
            value=0,
            receiver=payload.receiver,
            sender=wallet.key.public,
            gas_price=schedule.min_gas_price,
            gas_limit=0,
            chain_id=self._profile.chain_id,
            data=payload.data,
        )
        limit = fees.move_gas(draft, schedule) + payload.gas
        draft = msgspec.structs.replace(draft, gas_limit=limit)
        wallet.next_nonce += 1
        return msgspec.structs.replace(draft, signature=wallet.key.sign(signing_message(draft)))


def _order(pool: Pool, i: int, j: int, amount: int, out: int) -> Order:
    """An order that tolerates a price 3 % worse than now. The minimum is one that every exchange takes."""
    return Order(pool, pool.tokens[i], pool.tokens[j], amount, max(out * 97 // 100, 2))


def _tradable(pool: Pool) -> bool:
    """Whether the pool opens for everybody and is not dust."""
    try:
        pool.amount_out(0, 1, max(pool.reserves[0] // 100, 1))
    except PoolError:
        return False
    return min(pool.reserves) >= RESERVE_FLOOR


def _keys(market: Market, profile: NetworkProfile) -> list[KeyPair]:
    """Keys derived from the seed, of those addresses that are in the contracts' shard."""
    home = profile.shard_of(market.addresses.aggregator)
    keys: list[KeyPair] = []
    number = 0
    while len(keys) < WALLETS:
        seed = sha256(f"millrace/trader/{market.seed}/{number}".encode()).digest()
        key = KeyPair.from_seed(seed)
        number += 1
        if profile.shard_of(key.public) == home:
            keys.append(key)
    return keys
