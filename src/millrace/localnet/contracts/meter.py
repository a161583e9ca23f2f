"""What one contract call takes: gas, built-in calls, transfers and storage reads, counted as nodes count them.

A call has one meter, whatever contracts run inside it. A built-in call is every token transfer, mint or burn that a
contract asks the chain for; a transfer of several tokens is one call and as many transfers. A storage key counts at
its first read in the transaction only. Plain EGLD, and the transfer that carries the call, count as neither.

Prices are those of the network's gas schedule V9 (mx-chain-go, `gasScheduleV9.toml`), limits those of its
`[MaxPerTransaction]`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

MAX_BUILTIN_CALLS: Final = 100  # `MaxBuiltInCallsPerTx`
MAX_TRANSFERS: Final = 250  # `MaxNumberOfTransfersPerTx`
MAX_READS: Final = 1_500  # `MaxNumberOfTrieReadsPerTx`

TOO_MANY_CALLS: Final = "max calls reached: too many built-in functions calls"
TOO_MANY_TRANSFERS: Final = "max calls reached: too many ESDT transfers"
TOO_MANY_READS: Final = "max calls reached: too many reads from trie"

PREPARE_PER_BYTE: Final = 100  # `AoTPreparePerByte`: of a contract's code, at each of its executions
EXECUTE: Final = 100_000  # `ExecuteOnDestContext`: one contract runs another
TRANSFER: Final = 200_000  # `ESDTTransfer`, `MultiESDTNFTTransfer`: each token
MINT: Final = 50_000  # `ESDTLocalMint`
BURN: Final = 50_000  # `ESDTLocalBurn`
LOAD_QUADRATIC: Final = 688  # `DynamicStorageLoad`: d² of the trie's depth d,
LOAD_LINEAR: Final = 31_858  # d,
LOAD_CONSTANT: Final = 15_287  # and in any case
LOAD_CACHED: Final = 1_000  # `CachedStorageLoad`
STORE: Final = 75_000  # `StorageStore`
PERSIST_PER_BYTE: Final = 1_000  # `PersistPerByte`
COPY_PER_BYTE: Final = 50  # `DataCopyPerByte`: of a call's arguments

SHALLOW: Final = 2
"""Depth of the tries on the node that the prices of functions were measured on; live ones are deeper."""

WRITTEN_BYTES: Final = 20
"""Bytes of a value that is written: estimated, a reserve with its key's change."""


class OutOfGas(Exception):
    """The call needs more gas than it has. `needed` is what it was about to have used."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


class LimitReached(Exception):
    """The call does more than one transaction may, whatever its gas; the text is the network's."""


class Usage(msgspec.Struct, frozen=True):
    """What a call has counted against the limits of a transaction."""

    builtin_calls: int = 0
    transfers: int = 0
    reads: int = 0


class Keys(NamedTuple):
    """Storage keys of a contract that are read together."""

    name: str
    number: int


def first_load(trie_depth: int) -> int:
    """Gas of reading a storage key for the first time, in a contract's trie of that depth."""
    return LOAD_QUADRATIC * trie_depth * trie_depth + LOAD_LINEAR * trie_depth + LOAD_CONSTANT


class Meter:
    """Counts one call. Each method charges for work about to be done; it raises `OutOfGas` or `LimitReached`.

    `gas_used` and `usage` stay readable then: they include what was too much.
    """

    def __init__(self, gas_limit: int, trie_depth: int = SHALLOW) -> None:
        self.gas_limit = gas_limit
        self.gas_used = 0
        self._first_load = first_load(trie_depth)
        self._calls = 0
        self._transfers = 0
        self._reads = 0
        self._read: set[tuple[bytes, str, str]] = set()

    @property
    def usage(self) -> Usage:
        """The counts so far."""
        return Usage(self._calls, self._transfers, self._reads)

    def use(self, gas: int) -> None:
        """Work that costs gas and is not counted otherwise."""
        self.gas_used += gas
        if self.gas_used > self.gas_limit:
            raise OutOfGas(self.gas_used)

    def prepare(self, code_bytes: int) -> None:
        """Load a contract's code."""
        self.use(PREPARE_PER_BYTE * code_bytes)

    def enter(self, code_bytes: int) -> None:
        """A contract runs another one."""
        self.use(EXECUTE)
        self.prepare(code_bytes)

    def arguments(self, args: Iterable[bytes]) -> None:
        """Copy a call's arguments."""
        self.use(COPY_PER_BYTE * sum(map(len, args)))

    def send(self, tokens: int = 1) -> None:
        """A contract sends so many tokens to a contract or an account at once. No tokens: no call."""
        if tokens:
            self._builtin(TRANSFER * tokens, tokens)

    def mint(self) -> None:
        """A contract makes tokens."""
        self._builtin(MINT)

    def burn(self) -> None:
        """A contract destroys tokens."""
        self._builtin(BURN)

    def read(self, contract: bytes, keys: Iterable[Keys], part: str = "") -> None:
        """Read keys of a contract, or of a `part` of it; only those not read before are counted."""
        for name, number in keys:
            if (contract, part, name) in self._read:
                self.use(LOAD_CACHED * number)
            else:
                self._read.add((contract, part, name))
                self.read_uncached(number)

    def read_uncached(self, count: int) -> None:
        """Read keys that count every time."""
        self._reads += count
        if self._reads > MAX_READS:
            raise LimitReached(TOO_MANY_READS)
        self.use(self._first_load * count)

    def write(self, count: int) -> None:
        """Write keys that have been read before."""
        self.use((STORE + PERSIST_PER_BYTE * WRITTEN_BYTES) * count)

    def _builtin(self, gas: int, tokens: int = 0) -> None:
        self._calls += 1
        if self._calls > MAX_BUILTIN_CALLS:
            raise LimitReached(TOO_MANY_CALLS)
        self._transfers += tokens
        if self._transfers > MAX_TRANSFERS:
            raise LimitReached(TOO_MANY_TRANSFERS)
        self.use(gas)
