"""Transactions that may still run: one per (sender, nonce), from reservation until the chain is past them.

The journal holds the same rows on disk; this is the index all decisions are made from, in one event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Set
from typing import Literal

import msgspec

from millrace.chain.transaction import Transaction
from millrace.relayer.protocol.reasons import Reason
from millrace.relayer.rules.policy import Target
from millrace.relayer.rules.stages import Examined, Kind, cosigned, hash_of
from millrace.runtime.tracing import Trace

State = Literal["reserved", "journalled", "signed", "expired", "over"]
"""`reserved`: in memory only; `journalled`: on disk; `signed`: may be on its way; `expired`: sent no more, but can
still run; `over`: refused, finished or superseded, and no longer in flight."""


MAX_ELSEWHERE = 10_000
"""Senders of whom it is kept what other relayers have in flight; the one asked for longest ago is asked for again."""
_NOTHING: dict[int, int] = {}


class End(msgspec.Struct, frozen=True, gc=False):
    """How the chain says a transaction ended before its sender's shard has been heard of it."""

    status: Literal["success", "fail"]
    reason: str
    is_final: bool
    """Not of what was not executable in its block: it can be sent again, and end otherwise."""


class Entry(msgspec.Struct, eq=False, gc=False):
    """One transaction on its way."""

    tx: Transaction
    """With the relayer's signature once it is signed."""
    proto: bytes
    """The transaction in protobuf form."""
    client_hash: bytes
    kind: Kind
    sender_shard: int
    receiver_shard: int
    fee: int
    """The most it can cost whoever pays, in atomic units."""
    created_ms: int
    target: Target | None = None
    """What it does, where a relayer key pays for it: who really receives, which function is called."""
    ip: str = ""
    sdk_hash: bytes = b""
    """Of what names a relayer, see `early_hashes`."""
    chain_hash: bytes = b""
    state: State = "reserved"
    broadcast: bool = False
    """Whether it is to be gossiped until included; false for what was only signed."""
    sending: bool = False
    """Whether the broadcaster has it."""
    due: float = 0.0
    """When the broadcaster sends it again, by its newest plan; 0 without one."""
    asking: int = 0
    """Questions to the signing process that are under way: of several submissions of the same bytes."""
    sign_requests: int = 0
    """Questions to the signing process that were answered with a signature, or still may be; an entry read from disk
    may have one of an earlier process."""
    end: End | None = None
    refusal: Reason | None = None
    """Why it is over without a signature, accepted or not."""
    person: str = ""
    """Who asked, if that was told by an API key."""
    programme: str = ""
    """Which of the policy's programmes pays, until its row is written; then the journal tells."""
    losses: int = 0
    """How often events had been lost when it began, as `Lifecycle.events_lost` counts."""
    handed_out: bool = False
    """Whether somebody may have its signature; of what is only signed nothing is sent before that."""
    waiters: tuple[asyncio.Future[None], ...] = ()
    """Who waits for its next step: later submissions of the same bytes, replies that wait for a signature."""
    trace: Trace | None = None
    """Of the submission that brought it, if that is traced."""
    recovered: bool = False
    """Whether it was wanted on the network in the life of an earlier process, and not anew in this one."""

    @classmethod
    def of(cls, examined: Examined, fee: int, created_ms: int, losses: int = 0) -> Entry:
        """An entry that is not on disk yet."""
        parsed = examined.parsed
        return cls(  # in order: names cost as much as the values
            parsed.tx,
            parsed.proto,
            parsed.client_hash,
            parsed.origin.kind,
            examined.sender_shard,
            examined.receiver_shard,
            fee,
            created_ms,
            examined.target,
            parsed.origin.ip,
            parsed.sdk_hash,
            person=parsed.origin.person,
            losses=losses,
            trace=parsed.origin.trace,
        )

    @property
    def cost_to_sender(self) -> int:
        """What it can take from the sender's balance."""
        return self.tx.value + (0 if self.tx.relayer else self.fee)


async def next_step(entry: Entry) -> None:
    """Wait until the entry is journalled if it is reserved, signed if it is journalled, or over."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    entry.waiters += (waiter,)
    try:
        await waiter
    finally:
        entry.waiters = tuple(other for other in entry.waiters if other is not waiter)


class InFlight:
    """At most `capacity` entries, found by sender and nonce or by any of their hashes.

    Broadcasts take no budget, so anybody can send many; at most half of the room is theirs.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        self._capacity = capacity
        self._broadcasts = 0
        self._by_ip: Counter[str] = Counter()
        self._owed: Counter[bytes] = Counter()
        """What relayers that are not ours can have to pay for entries that they signed."""
        self._by_sender: dict[bytes, dict[int, Entry]] = {}
        self._costs: dict[bytes, int] = {}
        """What all entries of a sender can take from it."""
        self._runs: dict[bytes, tuple[int, int]] = {}
        """Of a sender: every nonce from the first up to the second, which is not one of them, is in flight."""
        self._elsewhere: OrderedDict[bytes, dict[int, int]] = OrderedDict()
        """What others of our keys' relayers had in flight of a sender when it was asked: its nonces, what they cost."""
        self._by_client: dict[bytes, Entry] = {}
        self._by_chain: dict[bytes, Entry] = {}
        self._by_sdk: dict[bytes, Entry] = {}
        self._only_signed: dict[bytes, Entry] = {}
        """Those of `_by_client` that were only to be signed: they may be kept for long, and are looked at often."""

    def __len__(self) -> int:
        return len(self._by_client)

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be added."""
        return len(self._by_client) >= self._capacity

    def has_room(self, kind: Kind) -> bool:
        """Whether one more of this kind may be added."""
        return not self.is_full and (kind != "broadcast" or self._broadcasts < self._capacity // 2)

    def of_ip(self, ip: str) -> int:
        """How many entries came from a client address."""
        return self._by_ip.get(ip, 0)

    def owed(self, relayer: bytes) -> int:
        """The fees a relayer that is not ours can have to pay for others' entries."""
        return self._owed.get(relayer, 0)

    def of_sender(self, sender: bytes) -> dict[int, Entry]:
        """A sender's entries by nonce. Not to be changed."""
        return self._by_sender.get(sender, {})

    def by_client_hash(self, tx_hash: bytes) -> Entry | None:
        """The entry with this client hash."""
        return self._by_client.get(tx_hash)

    def by_chain_hash(self, tx_hash: bytes) -> Entry | None:
        """The entry that a block names by this hash.

        No block can name what nobody has co-signed: the client hash of a transaction with a relayer is no chain hash.
        """
        entry = self._by_chain.get(tx_hash)
        if entry is not None:
            return entry
        entry = self._by_client.get(tx_hash)
        return entry if entry is not None and not entry.tx.relayer else None

    def by_any_hash(self, tx_hash: bytes) -> Entry | None:
        """The entry that a client means by this hash, whichever of the three it computed."""
        return self._by_client.get(tx_hash) or self._by_chain.get(tx_hash) or self._by_sdk.get(tx_hash)

    def entries(self) -> list[Entry]:
        """All entries, oldest first."""
        return list(self._by_client.values())

    def only_signed(self) -> list[Entry]:
        """Those that were to be signed and not sent, oldest first."""
        return list(self._only_signed.values())

    def expected_nonce(self, sender: bytes, account_nonce: int) -> int:
        """The nonce the sender's next transaction should have: the account's, past what is in flight."""
        nonces, elsewhere = self._by_sender.get(sender), self._elsewhere.get(sender, _NOTHING)
        if nonces is None:
            while account_nonce in elsewhere:
                account_nonce += 1
            return account_nonce
        first, after = self._runs.get(sender, (account_nonce, account_nonce))
        if not first <= account_nonce <= after:
            first = after = account_nonce
        while after in nonces or after in elsewhere:
            after += 1
        self._runs[sender] = first, after
        return after

    def committed(self, sender: bytes, account_nonce: int, asked: int = -1) -> int:
        """What the sender's entries from `account_nonce` on can still take from its balance.

        What others have for the nonce that is `asked` for is the same bytes, or gives way, or keeps these out.
        """
        nonces, elsewhere = self._by_sender.get(sender), self._elsewhere.get(sender)
        others = 0
        if elsewhere is not None:
            counted = elsewhere.keys() - (nonces or {}).keys() - {asked}
            others = sum(elsewhere[at] for at in counted if at >= account_nonce)
        if nonces is None:
            return others
        total = self._costs[sender]
        if total and min(nonces) < account_nonce:
            total -= sum(entry.cost_to_sender for nonce, entry in nonces.items() if nonce < account_nonce)
        return total + others

    def elsewhere(self, sender: bytes) -> Set[int]:
        """The nonces that others had in flight of a sender when it was asked."""
        return self._elsewhere.get(sender, _NOTHING).keys()

    def know_elsewhere(self, sender: bytes, costs: dict[int, int]) -> None:
        """What others have in flight of a sender now, by nonce."""
        if self.elsewhere(sender) - costs.keys():
            self._runs.pop(sender, None)  # it may go over what is free again
        if not costs:
            self._elsewhere.pop(sender, None)
            return
        self._elsewhere[sender] = costs
        self._elsewhere.move_to_end(sender)
        if len(self._elsewhere) > MAX_ELSEWHERE:
            oldest, _ = self._elsewhere.popitem(last=False)
            self._runs.pop(oldest, None)

    def add(self, entry: Entry) -> None:
        """Take its (sender, nonce). Raises `KeyError` when taken or full: callers look first."""
        sender, nonce = entry.tx.sender, entry.tx.nonce
        nonces = self._by_sender.get(sender, {})
        if self.is_full or nonce in nonces:
            raise KeyError(nonce)
        nonces[nonce] = entry
        self._by_sender[sender] = nonces
        self._costs[sender] = self._costs.get(sender, 0) + entry.cost_to_sender
        self._by_client[entry.client_hash] = entry
        if entry.kind == "sign":
            self._only_signed[entry.client_hash] = entry
        if entry.sdk_hash:
            self._by_sdk[entry.sdk_hash] = entry
        self._count(entry, 1)
        if entry.chain_hash:
            self._by_chain[entry.chain_hash] = entry

    def signed(self, entry: Entry, signature: bytes = b"") -> None:
        """The entry has all its signatures, the relayer's if one was to be made here."""
        if signature:
            entry.tx = msgspec.structs.replace(entry.tx, relayer_signature=signature)
            entry.proto = cosigned(entry.proto, signature)
        entry.chain_hash, entry.state = hash_of(entry.proto), "signed"
        self._by_chain[entry.chain_hash] = entry

    def remove(self, entry: Entry) -> None:
        """The entry can no longer run, or was never signed."""
        nonces = self._by_sender.get(entry.tx.sender, {})
        if nonces.get(entry.tx.nonce) is entry:
            del nonces[entry.tx.nonce]
            self._costs[entry.tx.sender] -= entry.cost_to_sender
            first, after = self._runs.pop(entry.tx.sender, (0, 0))
            if entry.tx.nonce == first:  # the usual way: the oldest ends first
                self._runs[entry.tx.sender] = first + 1, max(after, first + 1)
            if not nonces:
                del self._by_sender[entry.tx.sender], self._costs[entry.tx.sender]
                self._runs.pop(entry.tx.sender, None)
        if self._by_client.pop(entry.client_hash, None) is not None:
            self._count(entry, -1)
            if entry.kind == "sign":
                del self._only_signed[entry.client_hash]
        self._by_chain.pop(entry.chain_hash, None)
        self._by_sdk.pop(entry.sdk_hash, None)

    def _count(self, entry: Entry, change: int) -> None:
        """Add an entry to the sums, or take it out; a sum of nothing is not kept."""
        of_ip = self._by_ip[entry.ip] = self._by_ip[entry.ip] + change
        if not of_ip:
            del self._by_ip[entry.ip]
        if entry.kind != "broadcast":
            return
        self._broadcasts += change
        if entry.tx.relayer:
            self._owed[entry.tx.relayer] += change * entry.fee
            if not self._owed[entry.tx.relayer]:
                del self._owed[entry.tx.relayer]
