"""One WebSocket connection to a relayer that is made again when it ends, with the topics it had."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from millrace_client.errors import ClientError, Refused, Unreachable
from millrace_client.http import Patience, load_aiohttp
from millrace_client.messages import (
    AccountDelta,
    AllGasStats,
    FailedItem,
    GasStats,
    NetworkStats,
    Push,
    ResultItem,
    Shutdown,
    TxStatus,
)
from millrace_client.moves import Places
from millrace_client.reading import read, read_by

if TYPE_CHECKING:
    import aiohttp

MAX_TOPICS = 60
"""Topics of one connection: the interface allows 64, and as many control messages in five seconds. With fewer all
of them can be asked for at once, and some left."""
_WINDOW, _MAX_CONTROL = 5.0, 60  # seconds, and control messages in them
_HEARTBEAT = 15.0  # seconds between pings; a dead connection is noticed after one and a half of them
_MAX_MESSAGE = 4 * 1024 * 1024
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_LAST_REPLIES = 5.0
"""Seconds that replies may take before a connection leaves a service that ends."""
_LATEST_MOVE_MS = 3_600_000
"""A service that names a later moment to leave is left at this one."""
_QUIET_ACKNOWLEDGEMENT = 2.0  # seconds; the interface promises no answer to `subscribe`, so none is taken for a yes
_TURN = 0.001  # seconds: the message leaves, nobody answers it


class ConnectionLost(ClientError):
    """The connection ended between a request and its reply."""


class Unreadable(ClientError):
    """A reply came that this client does not understand: what it says of a submission is not known."""


class Listener(Protocol):
    """Who hears a topic."""

    def heard(self, message: Push) -> None:
        """A message came."""

    def lost(self, since: float, until: float) -> None:
        """The connection was away between these times (seconds since the epoch), and is back."""

    def ended(self, error: Refused) -> None:
        """The topic was refused when it was subscribed to again."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the service answers to a request."""

    action: str | None = None
    status: str = ""
    request_id: str | int | None = None
    topic: str | None = None
    reason: str = ""
    code: str = ""
    detail: str = ""
    retry_after_ms: int | None = None
    hashes: list[str] = []
    failed: list[FailedItem] = []
    results: list[ResultItem] = []

    def refusal(self) -> Refused | None:
        """Why it was refused as a whole."""
        if self.status not in ("fail", "error") and not (self.status == "failed" and not self.failed):
            return None
        after = None if self.retry_after_ms is None else self.retry_after_ms / 1000
        return Refused(self.reason or "refused", code=self.code, detail=self.detail, retry_after=after)


class _Envelope(msgspec.Struct):
    action: str | msgspec.UnsetType | None = msgspec.UNSET
    type: str | None = None
    request_id: str | int | None = msgspec.field(default=None, name="requestId")


_pushes: msgspec.json.Decoder[Push] = msgspec.json.Decoder(Push, strict=False)
_envelopes = msgspec.json.Decoder(_Envelope, strict=False)


class Link:
    """A connection and its topics. `session` makes connections; `subscribes` is False where data flows by itself."""

    def __init__(
        self,
        session: Callable[[], aiohttp.ClientSession],
        url: str,
        timeout: float,
        *,
        subscribes: bool = True,
        patience: Patience | None = None,
    ) -> None:
        self._session, self.url, self._timeout, self._subscribes = session, url, timeout, subscribes
        self._busy = patience or Patience()
        self._places = Places(url)
        self._leaving: asyncio.Task[None] | None = None
        """Waits for the moment at which the service wants us to go elsewhere."""
        self.topics: dict[str, list[Listener]] = {}
        self._held: set[str] = set()
        """Topics that the service has acknowledged: those that a new connection needs again."""
        self._acknowledges: bool | None = None
        """Whether the service answers control messages; None: it was not asked yet."""
        self.on_unreadable: Callable[[str], None] = lambda text: None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._up = asyncio.Event()
        self._deaf: dict[str, float] = {}
        """By topic since when nothing of it is heard: not asked for again yet, on however many connections."""
        self._why = "not tried yet"
        self._ids = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._answered = asyncio.Event()
        """Set while nothing is in `_waiting`."""
        self._answered.set()
        self._control: deque[float] = deque()
        self._task = asyncio.create_task(self._run())

    @property
    def is_up(self) -> bool:
        """Whether there is a connection now."""
        return self._up.is_set()

    def has_room(self) -> bool:
        """Whether one more topic fits, and may be asked for without a wait."""
        self._forget_control()
        return len(self.topics) < MAX_TOPICS and len(self._control) < _MAX_CONTROL

    async def wait_up(self, timeout: float) -> None:
        """Wait for a connection. Raises `Unreachable`."""
        try:
            async with asyncio.timeout(timeout):
                await self._up.wait()
        except TimeoutError:
            raise Unreachable(f"{self.url} cannot be reached ({self._why}): is the address right?") from None

    async def close(self) -> None:
        """End the connection for good."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def add(self, topic: str, listener: Listener) -> None:
        """Have `listener` hear a topic; returns once it is subscribed to. Raises `Refused` and `Unreachable`."""
        listeners = self.topics.setdefault(topic, [])
        listeners.append(listener)
        if len(listeners) > 1:
            return
        try:
            await self.subscribe(topic)
        except BaseException:
            self._remove(topic, listener)
            raise
        self._held.add(topic)

    async def subscribe(self, topic: str) -> None:
        """Ask for a topic, again if the connection ends meanwhile. Raises `Refused` and `Unreachable`."""
        end = time.monotonic() + self._timeout
        while True:
            await self.wait_up(max(0.0, end - time.monotonic()))
            if not self._subscribes:
                return
            try:
                await self._ask_control("subscribe", topic)
                return
            except ConnectionLost:
                continue

    async def drop(self, topic: str, listener: Listener) -> None:
        """No longer tell `listener` of a topic; the last one's topic is unsubscribed from."""
        if self._remove(topic, listener) and self._subscribes and self.is_up:
            with contextlib.suppress(ClientError):  # the service forgets it at the latest with the connection
                await self._ask_control("unsubscribe", topic)

    def _remove(self, topic: str, listener: Listener) -> bool:
        listeners = self.topics.get(topic, [])
        if listener in listeners:
            listeners.remove(listener)
            if not listeners:
                del self.topics[topic]
                self._held.discard(topic)
                return True
        return False

    async def request(self, body: dict[str, Any], timeout: float | None = None) -> Reply:
        """The reply to a message. Raises `ConnectionLost`, `Unreadable`, and `TimeoutError` where none comes."""
        request_id = str(next(self._ids))
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = reply
        self._answered.clear()
        try:
            socket = self._socket
            if socket is None:
                raise ConnectionLost(f"{self.url}: there is no connection")
            try:
                await socket.send_str(msgspec.json.encode(body | {"requestId": request_id}).decode())
            except (ConnectionError, RuntimeError) as error:
                raise ConnectionLost(f"{self.url}: {error}") from None
            async with asyncio.timeout(timeout or self._timeout):
                return await reply
        finally:
            del self._waiting[request_id]
            if not self._waiting:
                self._answered.set()

    async def _ask_control(self, action: str, topic: str) -> None:
        waited, tried = 0.0, 0
        while True:
            await self._pace()
            try:
                reply = await self.request({"action": action, "topic": topic}, self._patience())
            except TimeoutError:
                self._acknowledges = bool(self._acknowledges)
                return
            refusal = reply.refusal()
            if refusal is None:
                return
            told = refusal.retry_after if refusal.code == "rate_limit_exceeded" else None
            pause = None if told is None else self._busy.pause(tried, told, waited)
            if pause is None:
                raise refusal
            waited, tried = waited + pause, tried + 1
            await asyncio.sleep(pause)

    def _patience(self) -> float:
        """Seconds for an acknowledgement: where the first one did not come, no further one is waited for."""
        return _TURN if self._acknowledges is False else _QUIET_ACKNOWLEDGEMENT

    async def _pace(self) -> None:
        """Wait until a control message is within the interface's rate."""
        while self._forget_control() >= _MAX_CONTROL:
            await asyncio.sleep(self._control[0] + _WINDOW - time.monotonic())
        self._control.append(time.monotonic())

    def _forget_control(self) -> int:
        while self._control and self._control[0] <= time.monotonic() - _WINDOW:
            self._control.popleft()
        return len(self._control)

    # ---- the connection

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        try:
            await load_aiohttp()
            import aiohttp

            while True:
                try:
                    async with self._session().ws_connect(
                        self._places.url, heartbeat=_HEARTBEAT, max_msg_size=_MAX_MESSAGE
                    ) as socket:
                        begun = time.monotonic()
                        await self._hold(socket)
                        self._why = f"closed with {socket.close_code}"
                    has_moved = self._places.has_moved()
                    if time.monotonic() - begun > _LONGEST_PAUSE:  # one that ends at once is no success
                        pause = _FIRST_PAUSE
                        if has_moved:
                            continue
                except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:  # the last: no such address
                    self._why = str(error) or type(error).__name__
                    self._places.failed()
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            self._lose()

    async def _hold(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Read one connection to its end."""
        self._socket = socket
        self._control.clear()
        again = asyncio.create_task(self._again())
        try:
            await self._read(socket)
        finally:
            ends = [again] if self._leaving is None else [again, self._leaving]
            self._leaving = None
            for task in ends:
                task.cancel()
            await asyncio.wait(ends)
            self._lose()

    def _lose(self) -> None:
        if self._up.is_set():
            now = time.time()
            self._deaf = {topic: self._deaf.get(topic, now) for topic in self._held}
        self._socket = None
        self._up.clear()
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(ConnectionLost(f"{self.url}: the connection ended before the reply"))

    async def _again(self) -> None:
        """Subscribe to what was subscribed to before, then tell who listens what time is missing."""
        before = list(self._held)
        self._up.set()
        for topic in before:
            try:
                if self._subscribes:
                    await self._ask_control("subscribe", topic)
            except Refused as refused:
                self._held.discard(topic)
                for listener in self.topics.pop(topic, []):
                    listener.ended(refused)
                continue
            except ConnectionLost:
                return
            now = time.time()
            since = self._deaf.pop(topic, now)
            for listener in list(self.topics.get(topic, [])):
                listener.lost(since, now)

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for frame in socket:
            if isinstance(frame.data, str):
                try:
                    self._take(frame.data)
                except msgspec.MsgspecError as error:
                    self.on_unreadable(f"{error}: {frame.data[:200]}")

    def _take(self, text: str) -> None:
        envelope = _envelopes.decode(text)
        if envelope.action is not msgspec.UNSET:
            if envelope.action == "subscribe":
                self._acknowledges = True
            try:
                self._reply(str(envelope.request_id), read(text, Reply))
            except msgspec.MsgspecError as error:
                self._reply(str(envelope.request_id), Unreadable(f"{self.url} answers what is not understood: {error}"))
            return
        message = read_by(_pushes, text)
        if isinstance(message, Shutdown):
            self._sent_away(message)
        for topic in topics_of(message):
            for listener in list(self.topics.get(topic, ())):
                listener.heard(message)

    def _sent_away(self, word: Shutdown) -> None:
        self._places.send_to(word.move_to)
        if word.after_ms is not None and self._leaving is None and self._socket is not None:
            seconds = max(0, min(word.after_ms, _LATEST_MOVE_MS)) / 1000
            self._leaving = asyncio.create_task(self._leave(self._socket, seconds))

    async def _leave(self, socket: aiohttp.ClientWebSocketResponse, seconds: float) -> None:
        """Go at our moment, when what was asked is answered: the service goes on until then."""
        await asyncio.sleep(seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_REPLIES):
                await self._answered.wait()
        await socket.close()

    def _reply(self, request_id: str, reply: Reply | Unreadable) -> None:
        waiting = self._waiting.get(request_id)
        if waiting is None or waiting.done():
            return
        if isinstance(reply, Unreadable):
            waiting.set_exception(reply)
        else:
            waiting.set_result(reply)


def topics_of(message: Push) -> tuple[str, ...]:
    """The topics that a pushed message may belong to."""
    match message:
        case TxStatus():
            return (f"tx-status/{message.data.hash}",)
        case AccountDelta():
            return (f"address/{message.data.address}", "accounts")
        case GasStats():
            return ("gasStats",)
        case AllGasStats():
            return ("gasStats/all",)
        case NetworkStats():
            return ("networkStats",)
    return ()
