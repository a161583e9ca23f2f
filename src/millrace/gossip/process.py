"""The peer process (trio): joins the handle's socket to the peers of the settings.

It has no life of its own: it ends when the socket closes, and the kernel ends it with its parent.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress

import msgspec
import trio

from millrace.gossip.peer import Peer
from millrace.gossip.settings import GossipSettings
from millrace.gossip.wire import (
    Command,
    Dial,
    Dialled,
    GetStats,
    Keep,
    Message,
    Publish,
    Published,
    Ready,
    Report,
    Start,
    Stats,
    Unframer,
    frame,
)
from millrace.runtime.logs import Seldom

log = logging.getLogger(__name__)

_WRITE_PIECE = 256 * 1024
_READ_PIECE = 64 * 1024
_FLUSH_SECONDS = 0.3
_CLOSE_SECONDS = 1.0


class Outlet:
    """Reports on their way to the handle.

    Answers are few (the handle bounds its requests) and never dropped. Messages are bounded in number and
    bytes: when the service falls behind, the oldest is dropped, counted in `dropped` and logged.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.dropped = 0
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._answers: deque[bytes] = deque()
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._filled = trio.Event()
        self._complaints = Seldom(1.0, 1)

    def answer(self, report: Report) -> None:
        self._answers.append(frame(report))
        self._filled.set()

    def message(self, message: Message) -> None:
        body = frame(message)
        self._messages.append(body)
        self._bytes += len(body)
        while len(self._messages) > self._max_messages or self._bytes > self._max_bytes:
            self._bytes -= len(self._messages.popleft())
            self.dropped += 1
            self._complain()
        self._filled.set()

    def _complain(self) -> None:
        if self._complaints.is_due("dropping", time.monotonic()):
            log.error("the service does not take its gossip messages: dropping", extra={"dropped": self.dropped})

    async def drain_to(self, stream: trio.SocketStream) -> None:
        """Write all reports to the handle, until it is gone."""
        with suppress(trio.BrokenResourceError):
            while True:
                await self._filled.wait()
                self._filled = trio.Event()
                while piece := self._next_piece():
                    await stream.send_all(piece)

    def _next_piece(self) -> bytes:
        piece = bytearray()
        while self._answers and len(piece) < _WRITE_PIECE:
            piece += self._answers.popleft()
        while self._messages and len(piece) < _WRITE_PIECE:
            body = self._messages.popleft()
            self._bytes -= len(body)
            piece += body
        return bytes(piece)


async def serve(path: str) -> None:
    """Connect to the handle at `path`, run the peers it asks for, and return when it closes the socket."""
    stream = await trio.open_unix_socket(path)
    commands = _commands(stream)
    first = await anext(commands, None)
    if first is None:
        return  # the handle gave up while we were starting
    assert isinstance(first, Start)
    settings = first.settings
    outlet = Outlet(settings.max_inbound, settings.max_inbound_bytes)
    async with trio.open_nursery() as nursery, AsyncExitStack() as running:
        peers = _peers(settings, outlet)
        for peer in peers:
            await running.enter_async_context(peer.running())
        described = tuple(peer.describe() for peer in peers)
        if settings.interconnect:
            for index, peer in enumerate(peers):
                for other in described[index + 1 :]:
                    peer.keep(f"{other.listening[0]}/p2p/{other.peer_id}")
        nursery.start_soon(outlet.drain_to, stream)
        outlet.answer(Ready(described))
        async for command in commands:
            _obey(command, peers, outlet, nursery)
        _exit_in(_CLOSE_SECONDS)
        with trio.move_on_after(_FLUSH_SECONDS):
            for peer in peers:
                await peer.flush()
        if unsent := sum(peer.unsent for peer in peers):
            log.warning("frames not taken by remote peers are lost at the end", extra={"frames": unsent})
        nursery.cancel_scope.cancel()


def _peers(settings: GossipSettings, outlet: Outlet) -> list[Peer]:
    def deliver(index: int, topic: str, data: bytes, source: str) -> None:
        outlet.message(Message(index, topic, data, source, time.time_ns()))

    def published(request: int, count: int) -> None:
        outlet.answer(Published(request, count))

    return [Peer(index, own, settings, deliver, published) for index, own in enumerate(settings.peers)]


async def _commands(stream: trio.SocketStream) -> AsyncGenerator[Command]:
    """What the handle asks for, until it closes the socket or is gone."""
    decoder = msgspec.msgpack.Decoder(Command)
    unframer = Unframer()
    with suppress(trio.BrokenResourceError):
        while piece := await stream.receive_some(_READ_PIECE):
            for body in unframer.feed(piece):
                yield decoder.decode(body)


def _obey(command: Command, peers: list[Peer], outlet: Outlet, nursery: trio.Nursery) -> None:
    match command:
        case Publish(request, peer, topic, data):
            peers[peer].publish(request, topic, data)
        case Dial(request, peer, address):
            nursery.start_soon(_dial, peers[peer], request, address, outlet)
        case Keep(request, peer, address):
            outlet.answer(Dialled(request, peers[peer].keep(address)))
        case GetStats(request, peer):
            outlet.answer(Stats(request, peers[peer].stats(outlet.dropped)))
        case Start():
            raise ValueError("the settings came twice")


async def _dial(peer: Peer, request: int, address: str, outlet: Outlet) -> None:
    outlet.answer(Dialled(request, await peer.dial(address)))


def _exit_in(seconds: float) -> None:
    """End the process after `seconds` even if the library hangs while it closes."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()
