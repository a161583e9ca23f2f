"""Blocks of shards and of the metachain: hash-linked headers in their real protobuf form, and their body."""

from __future__ import annotations

from hashlib import blake2b, sha256

import msgspec

from millrace.chain import bigint, outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import METACHAIN
from millrace.localnet.chain.content import Content

SOFTWARE_VERSION = b"millrace-local"


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

    def header(self) -> pb.MiniBlockHeader:
        """Its entry in a block's header."""
        return pb.MiniBlockHeader(
            hash=self.hash,
            senderShardID=self.sender_shard,
            receiverShardID=self.receiver_shard,
            txCount=len(self.tx_hashes),
            type=self.kind,
        )


class Grant(msgspec.Struct, frozen=True):
    """Something the faucet gives to an account of any shard; the hash names it in events."""

    hash: bytes
    receiver: bytes
    token: str
    amount: int


class Block(msgspec.Struct):
    """A block with everything needed to announce it, finalise it or take it back."""

    shard: int
    nonce: int
    round: int
    epoch: int
    timestamp_ms: int
    hash: bytes
    header_type: str
    header: bytes
    miniblocks: list[MiniBlock]
    intra_miniblocks: list[MiniBlock]
    content: Content
    leader: bytes
    altered: dict[bytes, set[str]] = {}
    """Accounts changed by this block, with the tokens that changed."""
    checkpoint: int = 0
    """The ledger's state before the block; 0 for the metachain, which has no accounts here."""
    incoming: list[MiniBlock] = []
    """Miniblocks of other shards that the block executed."""
    grants: list[Grant] = []
    """What the faucet gave in this block."""
    final: bool = False
    notarized: tuple[bytes, ...] = ()
    """Header hashes of the shard blocks that a metachain block names."""
    altered_accounts: dict[str, pb.AlteredAccount] = {}
    handed_on: bool = False
    """Whether the metachain has named it and taken the miniblocks it sends; its body is needed until then."""

    def forget_body(self) -> None:
        """Keep what names the block and give up the rest: records of transactions hold on to it for long."""
        self.content, self.header = Content(), b""
        self.miniblocks, self.intra_miniblocks, self.incoming, self.grants = [], [], [], []
        self.altered, self.altered_accounts = {}, {}


def miniblocks_of(content: Content) -> list[MiniBlock]:
    """The miniblocks of a body, in the order in which their first items came."""
    return [_miniblock(*key, tuple(hashes)) for key, hashes in content.miniblocks.items()]


def intra_miniblocks_of(content: Content, shard: int) -> list[MiniBlock]:
    """The miniblock of results that never leave the shard, if there are any."""
    return (
        [_miniblock(shard, shard, pb.SmartContractResultBlock, tuple(content.intra_results))]
        if content.intra_results
        else []
    )


def _miniblock(sender: int, receiver: int, kind: pb.BlockType, hashes: tuple[bytes, ...]) -> MiniBlock:
    draft = MiniBlock(b"", sender, receiver, kind, hashes)
    digest = blake2b(draft.message().SerializeToString(), digest_size=32).digest()
    return msgspec.structs.replace(draft, hash=digest)


class Place(msgspec.Struct, frozen=True):
    """Where a new block goes: its number, its time and the block before it."""

    shard: int
    nonce: int
    round: int
    epoch: int
    timestamp_ms: int
    previous: bytes
    """Hash of the block before."""
    fork: int
    """How often this shard was taken back: a block made again has another hash."""
    chain_id: str
    leader: bytes


def shard_header(place: Place, content: Content, blocks: list[MiniBlock], meta_hashes: list[bytes]) -> pb.HeaderV2:
    """The header of a shard's block."""
    seed = _digest(b"rand", place)
    header = pb.Header(
        nonce=place.nonce,
        prevHash=place.previous,
        prevRandSeed=_digest(b"previous", place),
        randSeed=seed,
        pubKeysBitmap=b"\x0f",
        shardID=place.shard,
        timeStamp=place.timestamp_ms // 1000,
        round=place.round,
        epoch=place.epoch,
        leaderSignature=_leader_signature(place),
        miniBlockHeaders=[block.header() for block in blocks],
        rootHash=_digest(b"root", place),
        metaBlockHashes=meta_hashes,
        txCount=sum(len(block.tx_hashes) for block in blocks),
        chainID=place.chain_id.encode(),
        softwareVersion=SOFTWARE_VERSION,
        accumulatedFees=bigint.encode(max(content.fees, 0)),
        developerFees=bigint.encode(content.developer_fees),
    )
    return pb.HeaderV2(
        header=header, scheduledAccumulatedFees=bigint.encode(0), scheduledDeveloperFees=bigint.encode(0)
    )


def meta_header(place: Place, notarized: list[Block]) -> pb.MetaBlock:
    """The header of a metachain block, which names the shards' final blocks."""
    return pb.MetaBlock(
        nonce=place.nonce,
        epoch=place.epoch,
        round=place.round,
        timeStamp=place.timestamp_ms // 1000,
        shardInfo=[_shard_data(block) for block in notarized],
        leaderSignature=_leader_signature(place),
        pubKeysBitmap=b"\x0f",
        prevHash=place.previous,
        prevRandSeed=_digest(b"previous", place),
        randSeed=_digest(b"rand", place),
        rootHash=_digest(b"root", place),
        validatorStatsRootHash=_digest(b"stats", place),
        chainID=place.chain_id.encode(),
        softwareVersion=SOFTWARE_VERSION,
        accumulatedFees=bigint.encode(0),
        accumulatedFeesInEpoch=bigint.encode(0),
        developerFees=bigint.encode(0),
        devFeesInEpoch=bigint.encode(0),
        txCount=sum(len(mini.tx_hashes) for block in notarized for mini in block.miniblocks),
    )


def seal(header: pb.HeaderV2 | pb.MetaBlock) -> tuple[bytes, bytes]:
    """The bytes of a header and their hash, which is the block's."""
    raw = outport.serialize(header)
    return raw, blake2b(raw, digest_size=32).digest()


def _shard_data(block: Block) -> pb.ShardData:
    return pb.ShardData(
        shardID=block.shard,
        headerHash=block.hash,
        shardMiniBlockHeaders=[mini.header() for mini in block.miniblocks],
        txCount=sum(len(mini.tx_hashes) for mini in block.miniblocks),
        round=block.round,
        nonce=block.nonce,
        epoch=block.epoch,
        accumulatedFees=bigint.encode(max(block.content.fees, 0)),
        developerFees=bigint.encode(block.content.developer_fees),
        numPendingMiniBlocks=sum(mini.receiver_shard != block.shard != METACHAIN for mini in block.miniblocks),
    )


def _digest(label: bytes, place: Place) -> bytes:
    """A 32-byte value for header fields whose content the local chain does not model."""
    text = f"{place.shard}/{place.nonce}/{place.round}/{place.fork}".encode()
    return sha256(label + text + place.previous).digest()


def _leader_signature(place: Place) -> bytes:
    """48 bytes, the size of a BLS signature."""
    return _digest(b"leader", place) + _digest(b"signature", place)[:16]
