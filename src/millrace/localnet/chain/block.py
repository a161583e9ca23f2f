"""Blocks of shards and of the metachain: what they propose, what executing them came to, and where they stand."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from millrace.chain import headers
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import Transaction
from millrace.localnet.chain.content import INVALID_BLOCK, RESULT_BLOCK, Content, Result


class MiniBlock(msgspec.Struct, frozen=True):
    """Items that travel from one shard to another (or stay in one) together."""

    hash: bytes
    sender_shard: int
    receiver_shard: int
    kind: pb.BlockType
    tx_hashes: tuple[bytes, ...]

    def message(self) -> pb.MiniBlock:
        """The protobuf form."""
        return pb.MiniBlock(
            txHashes=self.tx_hashes,
            senderShardID=self.sender_shard,
            receiverShardID=self.receiver_shard,
            type=self.kind,
        )

    def header(self, reserved: bytes = b"") -> pb.MiniBlockHeader:
        """Its entry in a block's header."""
        return pb.MiniBlockHeader(
            hash=self.hash,
            senderShardID=self.sender_shard,
            receiverShardID=self.receiver_shard,
            txCount=len(self.tx_hashes),
            type=self.kind,
            reserved=reserved,
        )


class Arrival(msgspec.Struct, frozen=True):
    """A miniblock of another shard with its items, ready to be executed."""

    miniblock: MiniBlock
    items: list[Transaction | Result]
    meta_hash: bytes
    """Of the metachain block that named it."""


class Grant(msgspec.Struct, frozen=True):
    """Something the faucet gives to an account of any shard; the hash names it in events."""

    hash: bytes
    receiver: bytes
    token: str
    amount: int


class Work(msgspec.Struct):
    """What a block took from its shard's queues, in the order in which it is executed."""

    grants: list[Grant] = []
    arrivals: list[Arrival] = []
    taken: list[tuple[bytes, Transaction]] = []
    """Of the mempool."""
    faulty: set[bytes] = set()
    """Transactions whose execution raised: they are left out of it."""
    at: Grant | Arrival | bytes | None = None
    """What is being executed; of a transaction the hash."""

    @property
    def items(self) -> int:
        """Transactions and results that come with it."""
        return len(self.taken) + sum(len(arrival.items) for arrival in self.arrivals)

    @property
    def meta_hashes(self) -> list[bytes]:
        """The metachain blocks that named what arrived."""
        return list(dict.fromkeys(arrival.meta_hash for arrival in self.arrivals))


class Execution(msgspec.Struct):
    """What executing a block came to."""

    content: Content
    miniblocks: list[MiniBlock]
    intra_miniblocks: list[MiniBlock]
    altered: dict[bytes, set[str]] = {}
    """Accounts it changed, with the tokens that changed."""
    checkpoint: int = 0
    """The ledger's state before it; 0 for the metachain, which has no accounts here."""

    @property
    def gas_used(self) -> int:
        """Of what was provided in this shard; a call whose gas was provided elsewhere may refund more than that."""
        content = self.content
        return max(content.gas_provided - content.gas_penalized - content.gas_refunded, 0)


class LastResult(msgspec.Struct, frozen=True):
    """The newest execution that a chain of headers has told."""

    hash: bytes
    nonce: int
    round: int
    epoch: int
    root: bytes
    gas_used: int
    told_in: int
    """Round of the header that told it."""


GENESIS = bytes(32)
NOTHING_TOLD = LastResult(GENESIS, 0, 0, 0, GENESIS, 0, 0)
"""Before a chain's first block."""


class Block(msgspec.Struct):
    """A block with everything needed to announce it, execute it, finalise it or take it back."""

    shard: int
    nonce: int
    round: int
    epoch: int
    timestamp_ms: int
    hash: bytes
    root: bytes
    """Root hash of the state after it."""
    header_type: str
    header: bytes
    leader: bytes
    miniblocks: list[MiniBlock]
    """Of its body."""
    work: Work
    last_result: LastResult = NOTHING_TOLD
    """The newest execution told up to this header, its own included."""
    execution: Execution | None = None
    """`None` while it is only proposed."""
    results: list[Block] = []
    """Earlier blocks whose execution its header tells; only in the present format."""
    final: bool = False
    notarized: tuple[bytes, ...] = ()
    """Header hashes of the shard blocks that a metachain block names."""
    handed_on: bool = False
    """Whether the metachain has named its execution and taken what it sends; its body is needed until then."""

    @property
    def proposes(self) -> bool:
        """Whether it was made first and executed later."""
        return headers.proposes(self.header_type)

    @property
    def told(self) -> list[Block]:
        """The blocks whose execution its header tells: in the earlier format, its own."""
        return self.results if self.proposes else [self]

    @property
    def content(self) -> Content:
        """What its execution came to; nothing before it."""
        return self.execution.content if self.execution is not None else Content()

    def result(self, told_in: int) -> LastResult:
        """Its execution, as told in the header of a round."""
        used = self.execution.gas_used if self.execution is not None else 0
        return LastResult(self.hash, self.nonce, self.round, self.epoch, self.root, used, told_in)

    def forget_body(self) -> None:
        """Keep what names the block and give up the rest: records of transactions hold on to it for long."""
        self.header, self.miniblocks, self.results = b"", [], []
        self.work, self.execution = Work(), None


def earlier_execution(content: Content, shard: int) -> Execution:
    """The execution of a block of the earlier format: miniblocks in the order in which their first items came."""
    own = [_miniblock(*key, tuple(hashes)) for key, hashes in content.miniblocks.items()]
    return Execution(content, own, _intra_results(content, shard))


def execution(content: Content, shard: int, arrivals: list[Arrival]) -> Execution:
    """The execution of a proposal: what came in as it came, what the shard itself sends by receiver.

    What is invalid never leaves the shard.
    """
    sent = {key: _miniblock(*key, tuple(hashes)) for key, hashes in content.miniblocks.items() if key[0] == shard}
    leaving = [mini for key, mini in sent.items() if key[2] != INVALID_BLOCK]
    staying = [mini for key, mini in sent.items() if key[2] == INVALID_BLOCK]
    body = [arrival.miniblock for arrival in arrivals] + leaving
    return Execution(content, body, _intra_results(content, shard) + staying)


def proposal(work: Work, shard: int) -> list[MiniBlock]:
    """The body of a block that is executed later: what comes in as it came, all that goes out in one miniblock."""
    outgoing = tuple(tx_hash for tx_hash, _ in work.taken)
    own = [_miniblock(shard, shard, pb.TxBlock, outgoing)] if outgoing else []
    return [arrival.miniblock for arrival in work.arrivals] + own


def _intra_results(content: Content, shard: int) -> list[MiniBlock]:
    """The miniblock of results that never leave the shard, if there are any."""
    return [_miniblock(shard, shard, RESULT_BLOCK, tuple(content.intra_results))] if content.intra_results else []


def _miniblock(sender: int, receiver: int, kind: pb.BlockType, hashes: tuple[bytes, ...]) -> MiniBlock:
    draft = MiniBlock(b"", sender, receiver, kind, hashes)
    digest = blake2b(draft.message().SerializeToString(), digest_size=32).digest()
    return msgspec.structs.replace(draft, hash=digest)
