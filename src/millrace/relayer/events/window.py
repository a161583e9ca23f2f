"""The prices of the last half hour, read back from the hub at a start: without them who has just begun tells others.

A connection of its own reads the events since then once more, for statistics alone: nobody is told anything of them,
and nothing is journalled. It goes on behind where the events are read as they come until no block is between the two; a
block that both read counts once. One event at a time has its turn, so that what comes now does not wait for what was.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from google.protobuf.message import DecodeError

from millrace.chain import outport
from millrace.chain.network import NetworkProfile
from millrace.chain.proto import hub_pb2
from millrace.chain.proto import outport_pb2 as pb
from millrace.relayer.blocks.chains import Chains, Counted
from millrace.relayer.blocks.facts import BlockFacts
from millrace.relayer.blocks.reader import read_block, read_result, time_of
from millrace.relayer.blocks.rounds import Rounds
from millrace.relayer.events.hub_client import GAP, MAX_EVENT, SUBSCRIBE, HubClient
from millrace.runtime import websocket

log = logging.getLogger(__name__)

SUBSCRIPTION = "window"
PAUSE_SECONDS = 0.5
"""Between attempts."""
SILENT_SECONDS = 60.0
"""A hub that tells nothing for so long has no more, or is gone."""
FIRST_STEP, FURTHEST = 1024, 16
"""Events that are looked back first, and how many times as far the next look goes at most."""
MARGIN = 1.1
_BLOCKS = outport.SAVE_BLOCK, outport.EXECUTED_BLOCK
_UNREADABLE = outport.OutportError, DecodeError, ValueError


class WindowReader:
    """Hands on the blocks that became final within some seconds before now."""

    def __init__(
        self,
        hub: HubClient,
        network: NetworkProfile,
        rounds: Rounds,
        seconds: float,
        take: Callable[[BlockFacts], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._hub, self._network, self._rounds = hub, network, rounds
        self._take, self._wall = take, wall
        self._since = wall() - seconds
        self._until = wall() + seconds
        """Then what comes has filled the window by itself."""
        self.is_done = False

    async def run(self) -> None:
        """Read it once the hub is there, and from the beginning as often as that fails; then nothing more, for ever."""
        while not self.is_done and self._wall() < self._until:
            await asyncio.sleep(PAUSE_SECONDS)
            if self._hub.connected:
                try:
                    await self._read(self._hub.url)
                    self.is_done = True
                except websocket.CONNECT_ERRORS as error:
                    log.warning("the prices of before are not read yet", extra={"error": str(error)[:200]})
        await asyncio.Event().wait()

    async def _read(self, url: str) -> None:
        """Raises one of `CONNECT_ERRORS`."""
        head, first = await _ends_of(url)
        at = after = await self._begin(url, head, first)
        chains, read, blocks = Chains(self._rounds), 0, 0
        async with _Reading(url, after) as events:
            while at < head or (chains.oldest or head + 1) <= head:
                try:
                    told = await events.next()
                except TimeoutError:
                    if at < head:
                        raise
                    break  # a shard stands, and what it left open is not final
                at, read, began = told.counter, read + 1, time.perf_counter()
                counted = self._counted(chains, told)
                for block in counted:
                    self._take(block)
                blocks += len(counted)
                await asyncio.sleep(time.perf_counter() - began)  # as much time for all else
        log.info("the prices of before are read", extra={"events": read, "blocks": blocks})

    async def _begin(self, url: str, head: int, first: int) -> int:
        """Behind which event to begin: at the window's start or somewhat earlier; at `first` if the hub has less."""
        step, now = FIRST_STEP, self._wall()
        while step < head - first:
            made = await self._made_behind(url, head - step, head)
            if made is None or made <= self._since:
                return head - step
            wanted = step * MARGIN * (now - self._since) / max(now - made, 1.0)
            step = int(min(max(wanted, 2 * step), FURTHEST * step))
        return first

    async def _made_behind(self, url: str, after: int, head: int) -> float | None:
        """When the first block behind an event was made, in seconds; `None` without one."""
        async with _Reading(url, after) as events:
            while True:
                told = await events.next()
                if told.topic in _BLOCKS:
                    try:
                        return time_of(pb.OutportBlock.FromString(told.payload).blockData) / 1000
                    except _UNREADABLE:
                        pass
                if told.counter >= head:
                    return None

    def _counted(self, chains: Chains, told: pb.WsMessage) -> list[BlockFacts]:
        """The blocks that count by an event. Whoever reads the events as they come says what of them is wrong."""
        try:
            return self._follow(chains, told).blocks
        except _UNREADABLE:
            return []

    def _follow(self, chains: Chains, told: pb.WsMessage) -> Counted:
        now = time.monotonic()
        if told.topic in _BLOCKS:
            message = pb.OutportBlock.FromString(told.payload)
            if message.carryingHeaderHash:
                return chains.execute(read_result(message, self._network), told.counter, now)
            return chains.save(read_block(message, self._network), told.counter, now)
        if told.topic == outport.FINALIZED_BLOCK:
            mark = pb.FinalizedBlock.FromString(told.payload)
            return chains.finalise(mark.shardID, mark.headerHash, now)
        if told.topic == outport.REVERT_INDEXED_BLOCK:
            data = pb.BlockData.FromString(told.payload)
            chains.revert(data.shardID, data.headerHash)
        return Counted()


async def _ends_of(url: str) -> tuple[int, int]:
    """The hub's newest event, and that before its oldest."""
    async with _Reading(url, None) as events:
        reply = hub_pb2.SubscribeReply.FromString(await events.reply())
        return reply.head, max(reply.oldest - 1, 0)


class _Reading(websocket.Session):
    """One connection: events wait here until their turn, as many as a hub sends unacknowledged."""

    max_message_size = MAX_EVENT

    def __init__(self, url: str, after: int | None) -> None:
        super().__init__()
        self._url, self._after = url, after
        self._told: asyncio.Queue[pb.WsMessage | None] = asyncio.Queue()

    async def __aenter__(self) -> _Reading:
        async with asyncio.timeout(SILENT_SECONDS):
            await websocket.connect(self._url, self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abort()

    async def reply(self) -> bytes:
        """The hub's answer."""
        while (told := await self._any()).topic != SUBSCRIBE:
            pass
        return told.payload

    async def next(self) -> pb.WsMessage:
        """The next event, which is acknowledged.

        Raises `OSError` where the connection has ended, and `TimeoutError`.
        """
        while (told := await self._any()).topic in (SUBSCRIBE, GAP):
            if told.topic == SUBSCRIBE and not hub_pb2.SubscribeReply.FromString(told.payload).ok:
                raise ConnectionError("the hub refused to go back")
        self.send_binary(outport.ack_envelope(told.counter))
        return told

    async def _any(self) -> pb.WsMessage:
        async with asyncio.timeout(SILENT_SECONDS):
            told = await self._told.get()
        if told is None:
            raise ConnectionError("the hub is gone")
        return told

    def on_open(self) -> None:
        wish = hub_pb2.SubscribeEvent(event_type="All", subscription_id=SUBSCRIPTION)
        if self._after is not None:
            wish.resume_after = self._after
        frame = outport.payload_envelope(SUBSCRIBE, wish.SerializeToString(), 0, with_acknowledge=False)
        self.send_binary(frame)

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        try:
            told = outport.decode_envelope(data)
        except outport.OutportError:
            self.abort()
            return
        if told.type == outport.PAYLOAD:
            self._told.put_nowait(told)

    def on_close(self) -> None:
        self._told.put_nowait(None)
