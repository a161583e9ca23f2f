"""The metachain: it notarises final blocks of the shards, and so lets their miniblocks travel.

A shard's block is notarised once it is final; its miniblocks for other shards reach them once the metachain's
block is final. So a block that is not final yet has had no effect elsewhere, and can be taken back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from millrace.chain import outport
from millrace.chain.shard import METACHAIN
from millrace.localnet import headers
from millrace.localnet.block import Block, MiniBlock, digest
from millrace.localnet.headers import Slot, Validators
from millrace.localnet.shard import MAX_SKIPPED


class NotarisedKept(msgspec.Struct):
    """A metachain block that can be taken back until it is final."""

    block: Block
    parent: Block
    shard_blocks: tuple[Block, ...]
    last_round: int


class Metachain:
    """The metachain's own chain."""

    def __init__(self, chain_id: str, genesis: Block, validators: Validators, kept: int) -> None:
        self.head = genesis
        self.final = genesis
        self.waiting: deque[Block] = deque()
        """Final shard blocks not yet notarised, in order."""
        self._unfinal: deque[NotarisedKept] = deque()
        self._chain_id = chain_id
        self._validators = validators
        self._kept = kept
        self._last_round = 0

    def waiting_of(self, shard: int) -> int:
        """How many blocks of a shard wait for a metachain block."""
        return sum(block.shard == shard for block in self.waiting)

    def make_block(self, slot: Slot, epoch_start: bool) -> Block:
        """Notarise everything that waits."""
        shard_blocks = tuple(self.waiting)
        self.waiting.clear()
        header = headers.meta_header(slot, self.head, self._validators, self._chain_id, shard_blocks, epoch_start)
        raw = outport.serialize(header)
        block = Block(
            shard=METACHAIN,
            nonce=slot.nonce,
            round=slot.round,
            epoch=slot.epoch,
            timestamp_ms=slot.timestamp_ms,
            hash=digest(raw),
            prev_hash=self.head.hash,
            rand_seed=header.randSeed,
            root_hash=header.rootHash,
            header_type="MetaBlock",
            header=header,
            header_bytes=raw,
            notarized=tuple(block.hash for block in shard_blocks),
            leader_index=self._validators.leader(METACHAIN, self.head.rand_seed),
            skipped_rounds=tuple(range(max(self._last_round + 1, slot.round - MAX_SKIPPED), slot.round)),
        )
        self._unfinal.append(NotarisedKept(block, self.head, shard_blocks, self._last_round))
        self.head = block
        self._last_round = slot.round
        return block

    def finalise(
        self, round_number: int, delay: int, deliver: Callable[[MiniBlock], None], notice: Callable[[bytes], None]
    ) -> list[Block]:
        """Make blocks final that are old enough, and hand out the miniblocks they let through.

        `notice` is told the hash of each block that lets something through or notarises anything.
        """
        final = []
        while self._unfinal:
            kept = self._unfinal[0]
            if kept.block.round + delay > round_number and len(self._unfinal) <= self._kept:
                break
            self._unfinal.popleft()
            self.final = kept.block
            final.append(kept.block)
            notice(kept.block.hash)
            for shard_block in kept.shard_blocks:
                for miniblock in travelling(shard_block):
                    deliver(miniblock)
        return final

    def revert_head(self) -> Block | None:
        """Take the latest block back unless it is final; what it notarised waits again."""
        if not self._unfinal:
            return None
        kept = self._unfinal.pop()
        self.waiting.extendleft(reversed(kept.shard_blocks))
        self.head = kept.parent
        self._last_round = kept.last_round
        return kept.block

    def withdraw(self, block: Block) -> bool:
        """Forget a shard's block whose miniblocks have not been handed out; whether it was known here."""
        if any(waiting.hash == block.hash for waiting in self.waiting):
            self.waiting = deque(waiting for waiting in self.waiting if waiting.hash != block.hash)
            return True
        for kept in self._unfinal:
            if any(notarised.hash == block.hash for notarised in kept.shard_blocks):
                kept.shard_blocks = tuple(other for other in kept.shard_blocks if other.hash != block.hash)
                return True
        return False


def travelling(block: Block) -> list[MiniBlock]:
    """The miniblocks of a shard's block that go to other shards."""
    return [
        part.miniblock
        for part in block.parts
        if part.miniblock.sender_shard == block.shard and part.miniblock.receiver_shard != block.shard
    ]
