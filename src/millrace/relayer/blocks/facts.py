"""What blocks say, as plain values: of transactions, of accounts, and of themselves; and how two such words are joined.

A block of the earlier formats was executed when it was made: it says everything at once. One of the present formats
proposes transactions, and brings the results of headers before it: what was executed is then said by the results alone.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class TxFact(msgspec.Struct, frozen=True):
    """What one block says about one transaction; facts of several blocks are joined by `or` and union."""

    tx_hash: bytes
    client_hash: bytes = b""
    """Empty where the block does not hold the transaction itself or it is not relayed."""
    sdk_hash: bytes = b""
    """Empty where that is, see `early_hashes`."""
    failed: str = ""
    """Why it failed, if it did."""
    included: bool = False
    """The sender's shard has executed its part, or refused it: the nonce is used up."""
    executed: bool = False
    """The receiver's shard has executed it."""
    is_call: bool = False
    """It involves a contract, so being executed is not being finished."""
    is_scheduled: bool = False
    """Only moves its value to a contract, and was scheduled: the next block says whether that was refused."""
    is_confirmed: bool = False
    """A block names it as processed by the one before."""
    completed: bool = False
    """The chain says that one of its steps is over and sent nothing on, or a contract that imitates its words."""
    ran_ok: bool = False
    """A contract ended without error in this shard."""
    results_out: frozenset[bytes] = frozenset()
    """Hashes of contract results that another shard has yet to execute, refunds too: until then nothing is over."""
    paid: tuple[bytes, int] | None = None
    """The watched key that pays for it, and how much at most."""
    signature: bytes = b""
    """That key's."""
    results_in: frozenset[bytes] = frozenset()
    """Hashes of contract results executed here."""
    fee: int | None = None
    """What the block charged for it, in atomic units; known in the sender's shard."""

    @property
    def only_confirms(self) -> bool:
        """Whether it says nothing but that an earlier block's word holds."""
        return self == TxFact(self.tx_hash, is_confirmed=True)


class AccountFact(msgspec.Struct, frozen=True):
    """The state of an account after a block."""

    pubkey: bytes
    nonce: int
    balance: int
    tokens: dict[str, str]


class BlockHeader(msgspec.Struct, frozen=True):
    """The header fields that statistics use; texts and numbers as networkStats shows them."""

    nonce: int
    round: int
    epoch: int
    tx_count: int
    leader_signature: str
    accumulated_fees: str
    developer_fees: str


class Unexecutable(msgspec.Struct, frozen=True):
    """A transaction that was proposed and could not be executed: no fee was taken and its nonce is free."""

    tx_hash: bytes
    client_hash: bytes
    """Empty where it is not known, or is the same."""
    timestamp_ms: int
    """Of the block that proposed it."""
    sdk_hash: bytes = b""
    """Empty where the client hash is."""


class BlockFacts(msgspec.Struct, frozen=True):
    """A saved block, or the result of one that was proposed before (which has no `prev_hash`)."""

    shard: int
    block_hash: bytes
    """Of the block that was executed, whichever header brought its result."""
    prev_hash: bytes
    nonce: int
    """0 where its header cannot be read: no height that anything may be compared with."""
    timestamp_ms: int
    transactions: tuple[TxFact, ...] = ()
    accounts: tuple[AccountFact, ...] = ()
    """As they were after this block or later, but no later than after the header that brought them."""
    header: BlockHeader | None = None
    gas_prices: tuple[tuple[int, int], ...] = ()
    """(gas price, price per gas unit) of every transaction whose sender is in this shard."""
    executed: int = 0
    """Transactions executed without failing."""
    signers: int = 0
    """Validators in the consensus group that made it."""
    guarding: frozenset[bytes] = frozenset()
    """Accounts whose guardian may be another one after this block."""
    credits: tuple[tuple[bytes, int], ...] = ()
    """What accounts that are watched got in it: transfers to them, and results that other shards sent."""
    absent: frozenset[bytes] = frozenset()
    """Accounts it changed that are not among `accounts`: nodes leave out relayers, who paid for others."""

    proposes: bool = False
    """It says nothing of its own execution: its result comes later."""
    lists: tuple[bytes, ...] = ()
    """Of one that proposes: the blocks whose results it brings, in their order."""
    sent: frozenset[bytes] = frozenset()
    """Of one that proposes: transactions of its own shard's accounts in it."""
    last_executed: int | None = None
    """Of one that proposes: the height up to which its shard has been executed."""

    carrier: int = 0
    carrier_hash: bytes = b""
    """Of a result: the header that brought it, by its height and its hash."""
    settled: frozenset[bytes] | None = None
    """Of a result: every transaction it speaks of as executed or invalid; `None` when some may be missing."""
    unexecutable: tuple[Unexecutable, ...] = ()
    """Of a result: what nodes name as such; they may have forgotten some."""

    @property
    def results(self) -> tuple[bytes, ...]:
        """The blocks of whose execution it tells: a block of the earlier formats tells of its own."""
        return self.lists if self.proposes else (self.block_hash,)

    @property
    def order(self) -> tuple[int, int]:
        """What its accounts are newer by than those of other blocks of its shard."""
        return self.carrier or self.nonce, self.nonce


def join(first: TxFact, second: TxFact) -> TxFact:
    """What two blocks together say about the end of one transaction; the order matters to the words alone."""
    return TxFact(
        tx_hash=first.tx_hash,
        client_hash=first.client_hash or second.client_hash,
        sdk_hash=first.sdk_hash or second.sdk_hash,
        failed=first.failed or second.failed,
        included=first.included or second.included,
        executed=first.executed or second.executed,
        is_call=first.is_call or second.is_call,
        is_scheduled=first.is_scheduled or second.is_scheduled,
        is_confirmed=first.is_confirmed or second.is_confirmed,
        completed=first.completed or second.completed,
        ran_ok=first.ran_ok or second.ran_ok,
        results_out=first.results_out | second.results_out,
        results_in=first.results_in | second.results_in,
    )


def judge(fact: TxFact) -> Literal["success", "fail"] | None:
    """The end of a transaction, or `None` while something is still to come."""
    if fact.failed:
        return "fail"
    if not fact.executed or fact.results_out - fact.results_in:
        return None
    if fact.is_call and not (fact.completed or fact.ran_ok):
        return None
    if fact.is_scheduled and not fact.is_confirmed:
        return None
    return "success"


def agreed(first: BlockFacts, second: BlockFacts) -> BlockFacts:
    """What two nodes both say of one block. What one alone says, or says otherwise, may be made up."""
    others = set(second.transactions)
    accounts = {fact.pubkey: fact for fact in second.accounts}
    return msgspec.structs.replace(
        first,
        transactions=tuple(fact for fact in first.transactions if fact in others),
        accounts=tuple(fact for fact in first.accounts if accounts.get(fact.pubkey) == fact),
        credits=first.credits if first.credits == second.credits else (),
        unexecutable=tuple(item for item in first.unexecutable if item in second.unexecutable),
        settled=None,
    )


def digest(block: BlockFacts) -> int:
    """What a block says of transactions, for comparison: of accounts nodes tell the state they have just then."""
    return hash((block.transactions, block.nonce, block.prev_hash, block.unexecutable, block.settled, block.credits))
