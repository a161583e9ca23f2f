"""What the rules remembered last, in memory, and as rows in the order in which it came.

Keys of the memory are hashes: written at once to tables in the order of keys, each would cost a page of its own. So a
commit appends one row with all that it changed; the tables get many changes at a time. A start reads the rows again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from millrace.notifier.journal.changes import BlockKey, Changes, ContentKey, LatestKey
from millrace.notifier.journal.rows import block_of, row_of
from millrace.notifier.rules.dedup import Block


class _Row(msgspec.Struct, array_like=True):
    """What one transaction changed; each item is a key and behind it what is remembered of it."""

    blocks: list[tuple[int, bytes, int, int, int | None, bytes, int, int, int]]
    contents: list[tuple[str, int, bytes, int]]
    latest: list[tuple[str, int, bytes]]
    nonces: list[tuple[int, int, int]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Row)


def encode(changes: Changes) -> bytes:
    """What a transaction changed, as a row."""
    return _encoder.encode(
        _Row(
            [(*key, *row_of(block)) for key, block in changes.blocks.items()],
            [(*key, sequence) for key, sequence in changes.contents.items()],
            [(*key, digest) for key, digest in changes.latest.items()],
            [(shard, nonce, at) for shard, (nonce, at) in changes.nonces.items()],
        )
    )


class Recent:
    """What was committed and is in rows, not in the tables."""

    def __init__(self) -> None:
        self.blocks: dict[BlockKey, Block] = {}
        self.contents: dict[ContentKey, int] = {}
        self.latest: dict[LatestKey, bytes] = {}
        self.nonces: dict[int, tuple[int, int]] = {}

    @classmethod
    def read(cls, rows: Iterable[bytes]) -> Recent:
        """What rows hold, oldest first. Raises `msgspec.DecodeError` for what is no such row."""
        recent = cls()
        for data in rows:
            row = _decoder.decode(data)
            recent._absorb(
                {(item[0], item[1]): block_of(item[2:]) for item in row.blocks},
                {(item[0], item[1], item[2]): item[3] for item in row.contents},
                {(item[0], item[1]): item[2] for item in row.latest},
                {item[0]: (item[1], item[2]) for item in row.nonces},
            )
        return recent

    def absorb(self, changes: Changes) -> None:
        """A transaction was committed."""
        self._absorb(changes.blocks, changes.contents, changes.latest, changes.nonces)

    def _absorb(
        self,
        blocks: dict[BlockKey, Block],
        contents: dict[ContentKey, int],
        latest: dict[LatestKey, bytes],
        nonces: dict[int, tuple[int, int]],
    ) -> None:
        self.blocks.update(blocks)
        self.contents.update(contents)
        self.latest.update(latest)
        self.nonces.update(nonces)

    def __len__(self) -> int:
        return len(self.blocks) + len(self.contents)
