"""What the hub should tell of what nodes said, written down anew from docs/notifier.md."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from tests.foreign.node.recorder import Said

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace_client import Hub

QUIET_SECONDS = 3.0
TRANSFERS = {b"ESDTTransfer", b"ESDTNFTTransfer", b"MultiESDTNFTTransfer", b"transferValueOnly"}
FAILURES = {b"signalError", b"internalVMErrors"}


async def everything(url: str) -> list[Any]:
    """All that a notifier's hub tells from the beginning on."""
    told = []
    async with Hub(url, resume_after=0) as hub:
        while True:
            try:
                told.append(await asyncio.wait_for(anext(hub), QUIET_SECONDS))
            except TimeoutError:
                return told


def in_order(said: list[Said]) -> list[Said]:
    """What one node said, with each mark of finality behind its block, where nodes say it before."""
    saved: set[bytes] = set()
    early: dict[bytes, Said] = {}
    ordered = []
    for item in said:
        if item.topic == outport.FINALIZED_BLOCK:
            name = pb.FinalizedBlock.FromString(item.payload).headerHash
            if name not in saved:
                early[name] = item
                continue
        ordered.append(item)
        if item.topic == outport.SAVE_BLOCK:
            name = pb.OutportBlock.FromString(item.payload).blockData.headerHash
            saved.add(name)
            ordered += [early.pop(name)] if name in early else []
    assert not early
    return ordered


def without_logs(block: pb.OutportBlock) -> pb.OutportBlock:
    """All of a block that passes as the node sent it."""
    copy = pb.OutportBlock.FromString(block.SerializeToString())
    copy.transactionPool.ClearField("logs")
    return copy


class Logs:
    """Judges the logs of blocks, told in the hub's order."""

    def __init__(self) -> None:
        self._originals: dict[str, str] = {}
        self._told: dict[tuple[str, bytes, bytes, tuple[bytes, ...]], set[int]] = {}
        """Transfers, and the shards that told them."""
        self.left_out = 0
        self.made_single = 0

    def judge(self, said: pb.OutportBlock, told: pb.OutportBlock) -> None:
        """The hub's form of one block's logs."""
        shard = said.blockData.shardID
        results = said.transactionPool.smartContractResults
        self._originals.update({
            name: info.smartContractResult.originalTxHash.hex()
            for name, info in results.items()
            if info.smartContractResult.originalTxHash
        })  # fmt: skip
        before, after = said.transactionPool.logs, told.transactionPool.logs
        owners = [self._originals.get(entry.txHash, entry.txHash) for entry in before]
        assert [entry.txHash for entry in after] == owners
        failed = set(said.transactionPool.invalidTxs) | {entry.txHash for entry in before if _fails(entry)}
        for entry, owner, kept in zip(before, owners, after, strict=True):
            assert kept.log.address == entry.log.address
            undone = entry.txHash in failed or owner in failed
            left = list(kept.log.events)
            for event in self._single(entry.log.events):
                if left and left[0] == event:
                    assert not (undone and event.identifier in TRANSFERS)
                    left.pop(0)
                    self._told.setdefault(_name(owner, event), set()).add(shard)
                else:
                    assert event.identifier in TRANSFERS
                    assert undone or self._told.get(_name(owner, event), set()) - {shard}
                    self.left_out += 1
            assert not left

    def _single(self, events: Any) -> Iterator[pb.Event]:
        for event in events:
            topics = list(event.topics)
            if event.identifier != b"MultiESDTNFTTransfer" or len(topics) < 7:
                yield event
                continue
            self.made_single += 1
            for first in range(0, len(topics) - 1, 3):
                single = pb.Event.FromString(event.SerializeToString())
                single.topics[:] = [*topics[first : first + 3], topics[-1]]
                yield single


def _fails(entry: pb.LogData) -> bool:
    return any(event.identifier in FAILURES for event in entry.log.events)


def _name(owner: str, event: pb.Event) -> tuple[str, bytes, bytes, tuple[bytes, ...]]:
    return owner, event.address, event.identifier, tuple(event.topics)
