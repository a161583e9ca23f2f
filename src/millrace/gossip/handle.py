"""The asyncio side: start the peer process, talk to it, start it again when it dies."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from millrace.gossip.child import Child, GossipError
from millrace.gossip.settings import MAX_DATA_BYTES, GossipSettings, PeerSettings
from millrace.gossip.wire import (
    Command,
    Dial,
    Dialled,
    GetStats,
    GossipStats,
    Keep,
    Message,
    Publish,
    Published,
    Ready,
    Report,
    Start,
    Stats,
)
from millrace.runtime.tasks import end_tasks

log = logging.getLogger(__name__)

_RESTART_FIRST = 0.1
_RESTART_MOST = 10.0
_STEADY_SECONDS = 30.0
_MAX_BOOTSTRAP = 256


class GossipBusy(GossipError):
    """Too many publishes are under way; wait for some, or send by another way."""


class GossipMessage(msgspec.Struct, frozen=True):
    """A message from the network, signed by `source_peer`; each arrives once, whatever its content."""

    topic: str
    data: bytes
    source_peer: str
    """Peer id (base58) of the peer that published it."""
    received_ns: int
    """Unix time in nanoseconds at which the peer process had verified it."""
    peer: int = 0
    """Index, in the settings, of our peer that received it."""


OnMessage = Callable[[GossipMessage], None]


class GossipHandle:
    """The libp2p peers of one process.

    `on_message` is called in the event loop, in the order of arrival for each sender; it must not block.
    While the process is down (it is restarted with back-off) `publish` returns 0.
    """

    def __init__(self, settings: GossipSettings, on_message: OnMessage | None = None) -> None:
        self.settings = settings
        self._on_message = on_message
        self._peers = [_with_identity(peer) for peer in settings.peers]
        self._peer_ids: tuple[str, ...] = ()
        self._addresses: tuple[tuple[str, ...], ...] = ()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._request = 0
        self._publishing = 0
        self._publishing_bytes = 0
        self._refused = 0
        self._counted: dict[int, GossipStats] = {}
        self._counted_before: dict[int, GossipStats] = {}
        self._restarts = 0
        self._listening: dict[int, tuple[str, ...]] = {}
        self._child: Child | None = None
        self._ready = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None

    # ---- life

    async def start(self) -> None:
        """Start the process and wait until its peers listen. Raises `GossipError` when it cannot."""
        if self._supervisor is not None:
            raise GossipError("the gossip handle is already started")
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise(first), name="gossip-supervisor")
        try:
            await asyncio.wait([first, self._supervisor], return_when=asyncio.FIRST_COMPLETED)
            await (first if first.done() else self._supervisor)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the process, killing it if it takes longer than 1.4 s; publishes under way return 0."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            await end_tasks([supervisor])

    async def __aenter__(self) -> GossipHandle:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @property
    def running(self) -> bool:
        """Whether the process is up and its peers listen."""
        return self._ready.is_set()

    @property
    def pid(self) -> int | None:
        """The id of the process, while there is one."""
        return self._child.pid if self._child is not None else None

    @property
    def peer_ids(self) -> tuple[str, ...]:
        """The libp2p ids of our peers, in the order of the settings."""
        return self._peer_ids

    @property
    def addresses(self) -> tuple[str, ...]:
        """Multiaddresses at which others reach the first peer, each ending in `/p2p/<peer id>`."""
        return self.addresses_of(0)

    def addresses_of(self, peer: int) -> tuple[str, ...]:
        """Multiaddresses of the peer with this index."""
        return self._addresses[peer] if self._addresses else ()

    # ---- requests

    async def publish(self, topic: str, data: bytes, peer: int = 0) -> int:
        """Publish `data` on `topic`; to how many remote peers it was sent.

        0 means no peer of the topic is known, or the process went down meanwhile: nobody is known to have
        it, so queue it or send it by another way. Raises `ValueError` when `data` is longer than nodes take
        (`MAX_DATA_BYTES`) and `GossipBusy` beyond the bounds of the settings.
        """
        if len(data) > MAX_DATA_BYTES:
            raise ValueError(f"{len(data)} bytes are more than a gossip message holds ({MAX_DATA_BYTES})")
        self._check_index(peer)
        if not self.running:
            return 0
        pending, size = self._publishing + 1, self._publishing_bytes + len(data)
        if pending > self.settings.max_pending or size > self.settings.max_pending_bytes:
            self._refused += 1
            raise GossipBusy(f"{self._publishing} publishes ({self._publishing_bytes} bytes) are under way")
        self._publishing, self._publishing_bytes = pending, size
        try:
            answer = await self._ask(lambda request: Publish(request, peer, topic, data))
        except GossipError:
            return 0
        finally:
            self._publishing -= 1
            self._publishing_bytes -= len(data)
        assert isinstance(answer, Published)
        return answer.peers

    async def dial(self, address: str, peer: int = 0) -> None:
        """Connect to a multiaddress once. Raises `GossipError`."""
        self._check_index(peer)
        answer = await self._ask(lambda request: Dial(request, peer, address))
        assert isinstance(answer, Dialled)
        if answer.error:
            raise GossipError(answer.error)

    async def add_bootstrap(self, address: str, peer: int = 0) -> None:
        """Add a multiaddress to those the peer keeps dialling, for as long as this handle lives.

        Does not wait for the connection. Raises `GossipError` when it is no address, when the process is
        down, or when there are 256 already.
        """
        self._check_index(peer)
        known = self._peers[peer].bootstrap
        if address in known:
            return
        if len(known) >= _MAX_BOOTSTRAP:
            raise GossipError(f"there are {len(known)} bootstrap addresses already")
        answer = await self._ask(lambda request: Keep(request, peer, address))
        assert isinstance(answer, Dialled)
        if answer.error:
            raise GossipError(answer.error)
        bootstrap = (*self._peers[peer].bootstrap, address)
        self._peers[peer] = msgspec.structs.replace(self._peers[peer], bootstrap=bootstrap)

    async def stats(self, peer: int = 0) -> GossipStats:
        """State of one peer and its counters, which never go back. While the process is down: no peers."""
        self._check_index(peer)
        try:
            answer = await self._ask(lambda request: GetStats(request, peer))
            assert isinstance(answer, Stats)
            own = self._counted[peer] = answer.stats
        except GossipError:
            own = GossipStats(peer_id=self._peer_ids[peer] if self._peer_ids else "")
        total = own.continuing(self._counted_before.get(peer, GossipStats()))
        return msgspec.structs.replace(total, restarts=self._restarts, refused=self._refused)

    async def _ask(self, command: Callable[[int], Command]) -> Report:
        if self._child is None or not self.running:
            raise GossipError("the gossip process is down; it is being started again")
        self._request += 1
        request = self._request
        answer = self._waiting[request] = asyncio.get_running_loop().create_future()
        self._child.send(command(request))
        try:
            report: Report = await answer
        finally:
            self._waiting.pop(request, None)
        return report

    def _check_index(self, peer: int) -> None:
        if not 0 <= peer < len(self._peers):
            raise ValueError(f"there is no peer {peer}: the settings have {len(self._peers)}")

    # ---- the process

    async def _supervise(self, first: asyncio.Future[None]) -> None:
        """Run one process after the other until cancelled; a failure of the first one is final."""
        delay = _RESTART_FIRST
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._live_once(first)
            except GossipError as error:
                if not first.done():
                    first.set_exception(error)
                    return
                reason = str(error)
            if loop.time() - began >= _STEADY_SECONDS:
                delay = _RESTART_FIRST
            self._restarts += 1
            log.error("gossip process lost, starting another", extra={"reason": reason, "in_s": round(delay, 2)})
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))
            delay = min(delay * 2, _RESTART_MOST)

    async def _live_once(self, first: asyncio.Future[None]) -> None:
        """One life of the process, from start to end; always raises `GossipError` with the reason."""
        child = await Child.spawn(self.settings.log_level, self.settings.start_timeout, self.settings.engine)
        self._child = child
        watchdog = asyncio.create_task(self._watch(child))
        try:
            child.send(self._command_to_start())
            async for report in child.reports():
                if isinstance(report, Ready):
                    self._become_ready(report)
                    if not first.done():
                        first.set_result(None)
                else:
                    self._take(report)
        finally:
            if not self.running:
                self._listening.clear()  # another process may have taken our port: ask for any again
            self._ready.clear()
            watchdog.cancel()
            self._child = None
            self._fail_waiting()
            for peer, counted in self._counted.items():
                self._counted_before[peer] = counted.continuing(self._counted_before.get(peer, GossipStats()))
            self._counted.clear()
            await child.end()
        raise GossipError(child.last_words)

    def _command_to_start(self) -> Start:
        """The settings, with the ports taken before: others know our address and dial it again."""
        peers = tuple(
            msgspec.structs.replace(peer, listen=self._listening.get(index, peer.listen))
            for index, peer in enumerate(self._peers)
        )
        return Start(msgspec.structs.replace(self.settings, peers=peers))

    def _become_ready(self, ready: Ready) -> None:
        self._peer_ids = tuple(peer.peer_id for peer in ready.peers)
        self._addresses = tuple(peer.addresses for peer in ready.peers)
        self._listening = {index: peer.listening for index, peer in enumerate(ready.peers)}
        self._ready.set()
        log.info("gossip peers listen", extra={"pid": self.pid, "peer_ids": ",".join(self._peer_ids)})

    async def _watch(self, child: Child) -> None:
        """Kill a process that does not get ready in time, or later no longer answers."""
        try:
            async with asyncio.timeout(self.settings.start_timeout):
                await self._ready.wait()
            while True:
                await asyncio.sleep(self.settings.hang_timeout / 3)
                async with asyncio.timeout(self.settings.hang_timeout):
                    await self._ask(lambda request: GetStats(request, 0))
        except TimeoutError:
            log.error("gossip process hangs, killing it", extra={"pid": child.pid})
            child.kill()
        except GossipError:
            pass  # it ended by itself meanwhile

    def _take(self, report: Report) -> None:
        match report:
            case Message(peer, topic, data, source, received_ns):
                if self._on_message is not None:
                    self._call(GossipMessage(topic, data, source, received_ns, peer))
            case Published() | Dialled() | Stats():
                answer = self._waiting.get(report.request)
                if answer is not None and not answer.done():
                    answer.set_result(report)

    def _call(self, message: GossipMessage) -> None:
        assert self._on_message is not None
        try:
            self._on_message(message)
        except Exception:
            log.exception("a gossip message was not handled", extra={"topic": message.topic})

    def _fail_waiting(self) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(GossipError("the gossip process went down before it answered"))


def _with_identity(peer: PeerSettings) -> PeerSettings:
    """Settings whose identity survives a restart of the process, also where it is to be random."""
    if peer.key_file or peer.key_seed:
        return peer
    return msgspec.structs.replace(peer, key_seed=secrets.token_hex(32))
