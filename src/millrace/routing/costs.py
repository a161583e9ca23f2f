"""What the actions of the aggregator contract take of a transaction: the one table, and the limits it is held against.

A transaction may use 600 M gas, and whatever its gas, 100 built-in calls, 250 transfers and 1 500 storage reads. What
counts as one: a built-in call is every token transfer, mint or burn that a contract asks the chain for (a transfer of
several tokens is one call and as many transfers); a read is every storage key not read before in the transaction.
Plain EGLD and the transfer that carries the call count as neither.

The rows were measured on a node of mx-chain-go v1.11.1 with gas schedule V9 and the compiled contracts (aggregator
9f5da21, xExchange pair and fees collector b3794c22, JEX pair 06b25f5, JEX stable 7cdfba6, OneDex's public copy
e1bdcec); 24 plans that were one call too long failed there, each at its 101st. What is estimated says so. An operator
who has seen other numbers replaces them by setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import le
from typing import Final, NamedTuple

from millrace.dex.constant_product import FeeUse, XExchangePool
from millrace.dex.pool import Pool
from millrace.dex.rate import RATE_POOLS, RatePool

GAS_PER_TRANSACTION: Final = 600_000_000  # gas schedule and economics of mainnet
CALLS_PER_TRANSACTION: Final = 100  # `MaxBuiltInCallsPerTx` in gas schedules V1 to V9
TRANSFERS_PER_TRANSACTION: Final = 250  # `MaxNumberOfTransfersPerTx`
READS_PER_TRANSACTION: Final = 1_500  # `MaxNumberOfTrieReadsPerTx`
GAS_MOVE: Final = 50_000  # `MinGasLimit`: of any transaction
GAS_PER_DATA_BYTE: Final = 1_500  # `GasPerDataByte` of the economics of mainnet
GAS_PER_CODE_BYTE: Final = 100  # `AoTPreparePerByte`: of a contract's code, at each of its executions
# A first read at depth d of a contract's trie costs 688 d² + 31 858 d + 15 287 (`DynamicStorageLoad` of schedule V9): a
# level more at depth 2 to 4 is 35 000 to 37 000; here with a fifth on top. What is seen on the live chain (some 8 M for
# the simplest swap, 9.3 on the node) is no deeper; of a second level most comes out of the tenth.
GAS_PER_TRIE_LEVEL: Final = 45_000

M: Final = 1_000_000


class Cost(NamedTuple):
    """What something takes: instructions that use a pool, built-in calls, transfers, storage reads, gas."""

    legs: int = 0
    calls: int = 0
    transfers: int = 0
    reads: int = 0
    gas: int = 0

    def plus(self, other: Cost, times: int = 1) -> Cost:
        """The sum with another cost, taken so many times."""
        return Cost(*[own + times * more for own, more in zip(self, other, strict=True)])

    def within(self, most: Cost) -> bool:
        """Whether nothing is more than in `most`."""
        return all(map(le, self, most))


NOTHING: Final = Cost()


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of costs."""
    return Cost(*map(sum, zip(NOTHING, *costs, strict=True)))


class Row(NamedTuple):
    """One action. `reads` at the first use of the pool in a transaction, `again` at later ones.

    `gas` includes loading `code_bytes` of contracts' code: where live contracts are larger or smaller, the gas
    follows. It is that of the node's shallow tries. The sizes are about what the measured gas leaves for them, beside
    calls, reads and writes at the prices of the schedule.
    """

    calls: int
    transfers: int
    reads: int
    again: int
    gas: int
    code_bytes: int
    origin: str


COLUMNS: Final = Row._fields[:-1]
MEASURED: Final = "measured on the node and in the Rust VM"
ESTIMATED: Final = "estimated: not measured, the live contract's source is not public"
PER_TOKEN: Final = "estimated: each token beyond two, from what the first two take"

ROWS: Final[dict[str, Row]] = {
    "base": Row(1, 1, 0, 0, 45 * M // 10, 36_000, MEASURED),
    "base_egld": Row(0, 0, 0, 0, 4 * M, 36_000, MEASURED + ": the output is EGLD"),
    "payment": Row(0, 0, 0, 0, 4 * M // 10, 0, "estimated: 200 000 for the transfer, as much for booking it"),
    "referral": Row(0, 0, 12, 12, 24 * M // 10, 0, MEASURED + "; 12 reads the first time a token is booked, then 6"),
    "left_over": Row(0, 0, 6, 2, 2 * M, 0, MEASURED + ": what a deposit leaves with the contract, dearest case"),
    "wrap": Row(2, 1, 2, 0, 23 * M // 10, 12_000, MEASURED),
    "unwrap": Row(2, 1, 2, 0, 27 * M // 10, 12_000, MEASURED),
    # xExchange: without a special fee; where it goes to is added below.
    "xexchange_swap": Row(2, 2, 18, 0, 79 * M // 10, 38_000, MEASURED),
    "xexchange_deposit": Row(5, 6, 26, 0, 25 * M, 76_000, MEASURED + ", less the collector's part"),
    "xexchange_withdraw": Row(3, 3, 11, 0, 9 * M, 38_000, MEASURED),
    "xexchange_collector": Row(1, 1, 6, 0, 41 * M // 10, 25_000, MEASURED + ": the cut; one read once"),
    "xexchange_sold_here": Row(1, 0, 4, 0, 8 * M // 10, 0, MEASURED + ": a slice burned, or sold in the pair first"),
    "xexchange_sold_elsewhere": Row(2, 1, 21, 0, 8 * M, 38_000, MEASURED + ": a slice sold in another pair"),
    # OneDex: "onedex" is what its first use in a transaction takes besides.
    "onedex": Row(0, 0, 11, 0, 5 * M // 10, 0, MEASURED + ": a single swap took 11.4 M, 24 took 6.6 M each"),
    "onedex_swap": Row(4, 4, 10, 1, 66 * M // 10, 30_000, MEASURED + ", tokens in reverse order"),
    "onedex_deposit": Row(8, 8, 19, 2, 23 * M, 60_000, MEASURED),
    "onedex_withdraw": Row(4, 3, 13, 1, 7 * M, 30_000, MEASURED),
    "jex_swap": Row(3, 3, 11, 0, 5 * M, 20_000, MEASURED),
    "jex_deposit": Row(7, 7, 21, 0, 19 * M, 40_000, MEASURED),
    "jex_withdraw": Row(4, 3, 6, 0, 5 * M, 20_000, MEASURED),
    "jex_stable_swap": Row(3, 3, 17, 0, 76 * M // 10, 26_000, MEASURED),
    "jex_stable_swap_token": Row(0, 0, 4, 0, 15 * M // 10, 0, PER_TOKEN),
    "jex_stable_deposit": Row(3, 3, 20, 0, 7 * M, 26_000, MEASURED),
    "jex_stable_deposit_token": Row(0, 1, 4, 0, 2 * M, 0, PER_TOKEN),
    "jex_stable_withdraw": Row(3, 3, 7, 0, 7 * M, 26_000, MEASURED),
    "jex_stable_withdraw_token": Row(0, 1, 2, 0, 15 * M // 10, 0, PER_TOKEN),
    # AshSwap: calls as in a model of its pools and one in reserve; gas about twice that of JEX's stable pools, which is
    # 1.2 times a dear xExchange swap, as another aggregator plans it, too.
    "ash_stable_swap": Row(3, 3, 17, 0, 15 * M, 40_000, ESTIMATED),
    "ash_stable_swap_token": Row(0, 0, 4, 0, 2 * M, 0, PER_TOKEN),
    "ash_stable_deposit": Row(3, 3, 20, 0, 16 * M, 40_000, ESTIMATED),
    "ash_stable_deposit_token": Row(0, 1, 4, 0, 2 * M, 0, PER_TOKEN),
    "ash_stable_withdraw": Row(3, 3, 10, 0, 14 * M, 40_000, ESTIMATED),
    "ash_stable_withdraw_token": Row(0, 1, 2, 0, 2 * M, 0, PER_TOKEN),
    "ash_crypto_swap": Row(3, 3, 20, 0, 15 * M, 40_000, ESTIMATED),
    "ash_crypto_deposit": Row(3, 3, 20, 0, 18 * M, 40_000, ESTIMATED),
    "ash_crypto_withdraw": Row(3, 3, 10, 0, 14 * M, 40_000, ESTIMATED),
    # Liquid staking and money markets: a transfer in, a mint or burn, a transfer out, with one in reserve.
    "rate_swap": Row(4, 3, 20, 0, 20 * M, 40_000, ESTIMATED),
}

NAMES: Final = {
    ("XExchange", "constant_product"): "xexchange",
    ("OneDex", "constant_product"): "onedex",
    ("Jex", "constant_product"): "jex",
    ("Jex", "stable"): "jex_stable",
    ("AshSwap", "stable"): "ash_stable",
    ("AshSwap", "crypto"): "ash_crypto",
    **dict.fromkeys(RATE_POOLS, "rate"),
}
"""What the rows of an exchange's kind of pool begin with."""

NO_FEE: Final = FeeUse()
DEAR: Final = FeeUse(collector=True, elsewhere=1)
"""What is assumed of a pair of which it is not known where its special fee goes."""

# Bytes that an instruction adds to the data at most: its six numbers (20), two tokens (2 x 43), an address (65), an
# amount (65); and those of an empty plan: the transfer, the minimum, the token sold, counts, separators, EGLD's hops.
BYTES_PER_LEG: Final = 240
BYTES_PER_PLAN: Final = 400
# What a leg adds to the fee, in gas at the full price: its data, and a hundredth of the gas that it takes besides
# (`gas_price_modifier` of mainnet's economics). So many bytes are the slope of data over legs of plans in a market of
# all four exchanges: 26 in pairs of xExchange and OneDex, which the contract finds by itself, 90 elsewhere.
USUAL_BYTES_PER_LEG: Final = 45
FEE_PER_LEG: Final = GAS_PER_DATA_BYTE * USUAL_BYTES_PER_LEG
PROCESSING_DISCOUNT: Final = 100  # `GasPriceModifier` 0.01


class Table:
    """The rows, with an operator's own in their place, and gas limits made of them.

    `overrides` maps a row's name to columns and values; `per_read` is the gas in reserve for each storage read, as live
    tries are deeper than the node's. Raises `ValueError` for rows, columns and values that are none, by name.
    """

    def __init__(
        self, overrides: Mapping[str, Mapping[str, int]] | None = None, per_read: int = GAS_PER_TRIE_LEVEL
    ) -> None:
        self.rows = dict(ROWS)
        for name, columns in (overrides or {}).items():
            self.rows[name] = _overridden(name, columns)
        self.per_read = per_read
        # Every quote asks for these; there are few different answers.
        self._of_pool = lru_cache(maxsize=4096)(self._work)
        self._of_ends = lru_cache(maxsize=1024)(self._sum_of_ends)
        self._of_limits = lru_cache(maxsize=1024)(self._less_ends)

    def cost(self, name: str, *, again: bool = False) -> Cost:
        """A row's cost; `again`: that of another use of the same pool."""
        row = self.rows[name]
        return Cost(0, row.calls, row.transfers, row.again if again else row.reads, row.gas)

    def swap(self, pool: Pool, *, again: bool = False) -> Cost:
        """A swap in a pool."""
        cost = self._of_pool("swap", NAMES[pool.exchange, pool.kind], len(pool.tokens), _fees(pool), again)
        if isinstance(pool, RatePool) and pool.native:
            return cost.plus(self.cost("unwrap", again=again))
        return cost

    def deposit(self, pool: Pool, *, again: bool = False) -> Cost:
        """A deposit into a pool, with the swap that balances it where there is one, and what it leaves over."""
        return self._of_pool("deposit", NAMES[pool.exchange, pool.kind], len(pool.tokens), _fees(pool), again)

    def withdrawal(self, pool: Pool, *, again: bool = False) -> Cost:
        """A withdrawal from a pool."""
        return self._of_pool("withdraw", NAMES[pool.exchange, pool.kind], len(pool.tokens), NO_FEE, again)

    def _work(self, what: str, venue: str, tokens: int, fees: FeeUse, again: bool) -> Cost:
        cost = self.cost(f"{venue}_{what}", again=again)._replace(legs=1)
        if tokens > 2:
            cost = cost.plus(self.cost(f"{venue}_{what}_token", again=again), tokens - 2)
        cost = cost.plus(self.cost("xexchange_collector", again=again), int(fees.collector))
        cost = cost.plus(self.cost("xexchange_sold_here", again=again), fees.here)
        cost = cost.plus(self.cost("xexchange_sold_elsewhere", again=again), fees.elsewhere)
        zapped = what == "deposit" and venue in ("xexchange", "onedex", "jex")
        return cost.plus(self.cost("left_over", again=again), int(zapped))

    def ends(self, *, egld_in: bool, egld_out: bool, referral: bool = False, payments: int = 1) -> Cost:
        """What a plan takes besides its pools: the call, EGLD at its ends, a referral's fee, further payments."""
        return self._of_ends(egld_in, egld_out, referral, payments)

    def _sum_of_ends(self, egld_in: bool, egld_out: bool, referral: bool, payments: int) -> Cost:
        cost = self.cost("base_egld" if egld_out else "base")
        cost = cost.plus(self.cost("wrap"), int(egld_in)).plus(self.cost("unwrap"), int(egld_out))
        return cost.plus(self.cost("referral"), int(referral)).plus(self.cost("payment"), payments - 1)

    def gas_limit(self, cost: Cost, data_bytes: int) -> int:
        """The gas limit of a call that takes `cost`: a tenth more, and the reserve for deeper tries."""
        return -(-11 * (cost.gas + GAS_MOVE + GAS_PER_DATA_BYTE * data_bytes) // 10) + self.per_read * cost.reads

    def planned(self, cost: Cost) -> Cost:
        """The cost of pools with their part of the gas limit, the data of their instructions included, as its gas."""
        gas = -(-11 * (cost.gas + GAS_PER_DATA_BYTE * BYTES_PER_LEG * cost.legs) // 10) + self.per_read * cost.reads
        return cost._replace(gas=gas)

    def fee(self, cost: Cost) -> int:
        """What pools add to a plan's fee, in gas at the full price."""
        return cost.legs * FEE_PER_LEG + self.planned(cost).gas // PROCESSING_DISCOUNT

    def room(self, most: Cost, ends: Cost) -> Cost:
        """What is left of the limits for pools, `planned`; OneDex's own first reads are taken off in any case."""
        return self._of_limits(most, ends)

    def _less_ends(self, most: Cost, ends: Cost) -> Cost:
        fixed = ends.plus(self.cost("onedex"))
        fixed = fixed._replace(gas=self.gas_limit(fixed, BYTES_PER_PLAN))
        return most.plus(fixed, -1)


def _fees(pool: Pool) -> FeeUse:
    if not isinstance(pool, XExchangePool):
        return NO_FEE
    return DEAR if pool.fee_use is None else pool.fee_use


def _overridden(name: str, columns: Mapping[str, int]) -> Row:
    """A row with an operator's values. Raises `ValueError`."""
    row = ROWS.get(name)
    if row is None:
        raise ValueError(f"costs: there is no row {name!r}; rows are {', '.join(ROWS)}")
    for column, value in columns.items():
        if column not in COLUMNS:
            raise ValueError(f"costs.{name}: there is no column {column!r}; columns are {', '.join(COLUMNS)}")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= GAS_PER_TRANSACTION:
            raise ValueError(f"costs.{name}.{column}: {value!r} is no whole number from 0 to {GAS_PER_TRANSACTION}")
    changed = row._replace(**columns, origin="the operator's setting")
    if "code_bytes" in columns and "gas" not in columns:
        more = GAS_PER_CODE_BYTE * (changed.code_bytes - row.code_bytes)
        changed = changed._replace(gas=max(0, row.gas + more))
    return changed
