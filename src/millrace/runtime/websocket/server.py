"""A listening WebSocket server: handshakes, how many sessions there may be, pings and deadlines of all of them.

Pings cost no task and no timer per connection: all intervals are equal, so queues in order of time,
looked at once a second, serve every connection (RFC 6455 for the frames themselves).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import picows

from millrace.runtime.doors import Doors
from millrace.runtime.listener import Listener, listen
from millrace.runtime.process import return_free_memory
from millrace.runtime.websocket.frames import GOING_AWAY, NO_PONG, PING, POLICY_VIOLATION, frame
from millrace.runtime.websocket.session import Session

HANDSHAKE_SECONDS = 5.0
"""Time for a connection's handshake."""
VERSION = "13"
"""The only one there is (RFC 6455, 4.4); others were drafts."""
_BACKLOG = 4096
_CROWD = 1_000  # when half of so many sessions have left, the memory they had is given back


class Request(NamedTuple):
    """The HTTP request that asked for the upgrade."""

    path: str
    """Path without the query."""
    query: str
    headers: dict[str, str]
    """Names in lower case; lines of one name are one line, with commas."""


class Refuse(Exception):
    """Raised by a session factory to answer the upgrade with an HTTP error instead."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


SessionFactory = Callable[[Request], Session]


class WsServer:
    """A listening WebSocket server; see `serve`."""

    def __init__(self, factory: SessionFactory, max_sessions: int, ping_interval: float, pong_timeout: float) -> None:
        self.sessions: set[Session] = set()
        self.port = 0
        self.longest = 0
        """Payload bytes of the longest frame that is read."""
        self.refused = 0
        """Upgrades answered with an HTTP error since the start."""
        self._factory = factory
        self._max_sessions = max_sessions
        self._ping_interval = ping_interval
        self._pong_timeout = pong_timeout
        # When to look at which session again, soonest first; who is gone is in none, so nothing holds its memory.
        self._ping_due: OrderedDict[Session, float] = OrderedDict()
        self._pong_due: OrderedDict[Session, float] = OrderedDict()
        self._message_due: OrderedDict[Session, float] = OrderedDict()
        self._most = 0  # sessions at one time since memory was last given back
        self._servers: list[asyncio.Server] = []
        self._listeners: list[Listener] = []
        self._pinger: asyncio.Task[None] | None = None
        self._empty = asyncio.Event()
        self._closing = False

    async def _listen(self, host: str, port: int, max_message_size: int, doors: Doors | None) -> None:
        # One byte more than allowed, so that the session itself answers with 1009 and its own words
        # for all but a single frame which is larger still: that one picows refuses with 1009.
        self.longest = max_message_size + 1
        self._listeners = listen(host, port, _BACKLOG, doors)
        for listener in self._listeners:
            server = await picows.ws_create_server(
                self._upgrade,
                sock=listener,
                max_frame_size=self.longest,
                websocket_handshake_timeout=HANDSHAKE_SECONDS,
                # A pong of picows' own would not count against what may wait for a reader.
                enable_auto_pong=False,
                read_buffer_init_size=1024,
                backlog=_BACKLOG,
            )
            self._servers.append(server)
        self.port = self._listeners[0].getsockname()[1]
        self._pinger = asyncio.create_task(self._ping_forever())

    @property
    def turned_away(self) -> int:
        """Connections reset for want of a file since the start."""
        return sum(listener.turned_away for listener in self._listeners)

    async def close(self, code: int = GOING_AWAY, reason: str = "shutting down", grace: float = 2.0) -> None:
        """Stop listening, close every session with `code` and wait up to `grace` seconds for them to end.

        Whose handshake comes after this is refused: nobody would ever close it.
        """
        self._closing = True
        if self._pinger is not None:
            self._pinger.cancel()
        for server in self._servers:
            server.close()
        for session in list(self.sessions):
            session.close(code, reason)
        if self.sessions:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._empty.wait()
        for session in list(self.sessions):
            session.abort()
        await asyncio.sleep(0)

    def _upgrade(self, request: picows.WSUpgradeRequest) -> picows.WSListener | picows.WSUpgradeResponseWithListener:
        path, _, query = request.path.decode("latin-1").partition("?")
        headers: dict[str, str] = {}
        for name, value in request.headers.items():
            headers[name.lower()] = f"{headers[name.lower()]}, {value}" if name.lower() in headers else value
        try:
            if self._closing:
                raise Refuse(503, "shutting down")
            if len(self.sessions) >= self._max_sessions:
                raise Refuse(503, "too many connections")
            if "websocket" not in headers.get("upgrade", "").lower():
                raise Refuse(426, "this is a WebSocket endpoint")
            if headers.get("sec-websocket-version") != VERSION:
                raise Refuse(426, f"this is a WebSocket endpoint of version {VERSION}")
            if "upgrade" in [option.strip().lower() for option in headers.get("connection", "").split(",")]:
                # Some browsers list more than this one (`keep-alive, Upgrade`), which picows would not find it in.
                request.headers["Connection"] = "Upgrade"
            session = self._factory(Request(path, query, headers))
        except Refuse as refusal:
            self.refused += 1
            body = b'{"error":"%s"}' % refusal.text.encode()
            answer = {"Content-Type": "application/json"}
            if refusal.status == 426:
                answer |= {"Upgrade": "websocket", "Sec-WebSocket-Version": VERSION}
            response = picows.WSUpgradeResponse.create_error_response(refusal.status, body, answer)
            return picows.WSUpgradeResponseWithListener(response, None)
        session.belongs_to(self)
        return session

    def opened(self, session: Session) -> None:
        self.sessions.add(session)
        self._most = max(self._most, len(self.sessions))
        self._ping_due[session] = asyncio.get_running_loop().time() + self._ping_interval

    def gone(self, session: Session) -> None:
        self.sessions.discard(session)
        for queue in (self._ping_due, self._pong_due, self._message_due):
            queue.pop(session, None)
        if not self.sessions:
            self._empty.set()

    def message_began(self, session: Session) -> None:
        """A message comes in fragments: look again when it should be whole. At most one entry for a session."""
        self._message_due.setdefault(session, asyncio.get_running_loop().time() + session.message_timeout)

    async def _ping_forever(self) -> None:
        tick = min(1.0, self._ping_interval / 4, self._pong_timeout / 4)
        while True:
            before = len(self.sessions)
            await asyncio.sleep(tick)
            self._ping_once(asyncio.get_running_loop().time())
            count = len(self.sessions)
            if self._most >= _CROWD and before <= count < self._most // 2:  # and nobody is leaving any more
                self._most = count
                return_free_memory()

    def _ping_once(self, now: float) -> None:
        for session in _due(self._message_due, now):
            if session.unfinished_since is None:
                continue
            if session.unfinished_since + session.message_timeout <= now:
                session.close(POLICY_VIOLATION, "a message took too long", abort=True)
            else:  # another message than the one that was first looked for
                self._message_due[session] = now + session.message_timeout
        ping = frame(PING, b"")
        for session in _due(self._pong_due, now):
            if session.awaiting_pong and (session.rested or session.paused_at):  # its pong may be there and not read
                session.rested = 0.0
                self._pong_due[session] = now + self._pong_timeout
            elif session.awaiting_pong:
                session.close(NO_PONG, "no pong", abort=True)
        for session in _due(self._ping_due, now):
            if session.paused_at:  # its pongs would wait there, and be too many at once
                self._ping_due[session] = now + self._ping_interval
                continue
            session.awaiting_pong = True
            session.send_frames(ping)
            if not session.closed:
                self._pong_due.setdefault(session, now + self._pong_timeout)
                self._ping_due[session] = now + self._ping_interval


def _due(queue: OrderedDict[Session, float], now: float) -> Iterator[Session]:
    """Take from the front of a queue whose time has come."""
    while queue and next(iter(queue.values())) <= now:
        yield queue.popitem(last=False)[0]


async def serve(
    factory: SessionFactory,
    host: str,
    port: int,
    *,
    max_message_size: int = 4 * 1024 * 1024,
    max_sessions: int = 20_000,
    ping_interval: float = 30.0,
    pong_timeout: float = 20.0,
    doors: Doors | None = None,
) -> WsServer:
    """Listen for WebSocket connections on `host:port` (0: any free port).

    `factory(request)` gives the session of a new connection or raises `Refuse`. Beyond `max_sessions`
    connections an upgrade is answered with 503. A peer is pinged every `ping_interval` seconds; no pong
    within `pong_timeout` seconds closes with 4012. With `doors`, whose connection may not enter is reset before its
    handshake. Raises `OSError` when the port is taken.
    """
    server = WsServer(factory, max_sessions, ping_interval, pong_timeout)
    await server._listen(host, port, max_message_size, doors)
    return server
