"""What two nodes' words about a block are compared by, also where one of them is of a newer version.

A newer node writes fields that this version does not know. They are passed on and are no other content: nodes of both
versions tell one block once. Where they stand at the top of a block they are seen at a glance. To look for them in its
transactions, logs and accounts costs as much as all else that is done to it; so that is done where two nodes disagree,
and for some time after, since until then the newer node's word may have come first, and only once.
"""

from __future__ import annotations

from google.protobuf.unknown_fields import UnknownFieldSet

from millrace.chain import outport
from millrace.chain.headers import proposes
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.slices_pb2 import SlicedBlock
from millrace.notifier.rules import slices

_CLOSELY = 1000  # messages, after the last that had reason to be: a minute of four shards with three nodes each


class Digests:
    """Digests of a block and, by its key, of each result that it brings."""

    def __init__(self, comparing: Comparing, block: pb.OutportBlock, sliced: SlicedBlock, payload: bytes) -> None:
        self._comparing = comparing
        self._block = block
        self._is_close = False
        self.whole, self.results = _digests(block, sliced, payload)

    def closer(self, key: str = "") -> bytes:
        """The digest, or that of a result, of what this version knows alone: where it differs from another node's."""
        self._comparing.look_closely()
        self.look()
        return self.results[key] if key else self.whole

    def look(self) -> bool:
        """Leave out what is not known; whether there was any."""
        if self._is_close:
            return False
        self._is_close, before = True, self.whole
        known = pb.OutportBlock()
        known.CopyFrom(self._block)
        known.DiscardUnknownFields()
        payload = outport.canonical(known)
        self.whole, self.results = _digests(known, SlicedBlock.FromString(payload), payload)
        return self.whole != before


class Comparing:
    """Makes digests, and remembers whether nodes disagreed lately. `_CLOSELY` bounds what that costs."""

    def __init__(self) -> None:
        self._closely = 0
        """So many blocks are still looked at closely."""

    def digests(self, block: pb.OutportBlock, sliced: SlicedBlock, payload: bytes) -> Digests:
        """Of a block and what `slices.cut` gave of it."""
        made = Digests(self, block, sliced, payload)
        if self._closely:
            self._closely -= 1
            if made.look():
                self.look_closely()
        elif _has_unknown(sliced):
            made.look()
        return made

    def look_closely(self) -> None:
        """Two nodes disagree, or would without it."""
        self._closely = _CLOSELY


def _digests(block: pb.OutportBlock, sliced: SlicedBlock, payload: bytes) -> tuple[bytes, dict[str, bytes]]:
    if proposes(block.blockData.headerType):
        return slices.proposal_digests(sliced)
    return slices.block_digest(sliced, payload), {}


def _has_unknown(block: SlicedBlock) -> bool:
    """Whether there are unknown fields where blocks got new ones so far: beside their parts and those of results."""
    data = block.blockData
    if UnknownFieldSet(block) or UnknownFieldSet(data) or UnknownFieldSet(block.transactionPool):
        return True
    for entry in data.results:
        result = entry.value
        if UnknownFieldSet(entry) or UnknownFieldSet(result) or UnknownFieldSet(result.transactionPool):
            return True
    return False
