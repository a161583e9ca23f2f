"""WebSocket shell on picows: whole messages in, prebuilt frames out, pings, bounds, one write per call.

picows delivers frames; here they become messages: continuation frames are joined and the size limit holds
for their sum. Frames to send are built once (`frame`) and written as bytes, so that the same bytes can go to
thousands of sockets and several frames can share one write.

Pings cost no task and no timer per connection: all intervals are equal, so two queues in order of time,
looked at once a second, serve every connection (RFC 6455 for the frames themselves).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import picows
from picows import WSMsgType

from millrace.runtime.pieces import Pieces
from millrace.runtime.process import return_free_memory

log = logging.getLogger(__name__)

Kind = Literal["text", "binary"]

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA

GOING_AWAY, UNSUPPORTED_DATA, POLICY_VIOLATION, MESSAGE_TOO_BIG = 1001, 1003, 1008, 1009
SLOW_READER, NO_PONG = 4008, 4012

_ABORT_AFTER = 0.2  # seconds for the close frame to leave before the socket is reset
_LINGER = 5.0  # seconds a graceful close may wait for the reader to take what was sent before
_MAX_PINGS, _PING_WINDOW = 64, 5.0  # a peer's pings in so many seconds; more close with 1008
_CROWD = 1_000  # when half of so many sessions have left, the memory they had is given back
_FIRST_BUFFER = 2048 - 256  # bytes that picows first reads into
_MAX_CLOSE_REASON = 123  # a control frame carries at most 125 bytes, two of them are the code


def frame(opcode: int, payload: bytes) -> bytes:
    """One unmasked, final frame as a server sends it."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size < 65536:
        return struct.pack("!BBH", 0x80 | opcode, 126, size) + payload
    return struct.pack("!BBQ", 0x80 | opcode, 127, size) + payload


def text_frame(payload: bytes) -> bytes:
    """A text message of UTF-8 bytes."""
    return frame(TEXT, payload)


def binary_frame(payload: bytes) -> bytes:
    """A binary message."""
    return frame(BINARY, payload)


class Request(NamedTuple):
    """The HTTP request that asked for the upgrade."""

    path: str
    """Path without the query."""
    query: str
    headers: dict[str, str]
    """Names in lower case."""


class Refuse(Exception):
    """Raised by a session factory to answer the upgrade with an HTTP error instead."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Session(picows.WSListener):
    """One connection, on either side. Subclass it and override `on_open`, `on_message`, `on_close`.

    Callbacks run on the event loop and must not block. An exception in one of them is a defect: it is logged
    and closes this connection only.
    """

    max_message_size = 4 * 1024 * 1024
    """Bytes of one message, continuation frames included; more closes with 1009."""
    max_buffered = 16 * 1024 * 1024
    """Bytes that may wait in the socket's send buffer; more closes with 4008 (a slow reader)."""
    message_timeout = 30.0
    """Seconds from a message's first fragment to its last (of a server's session); more closes with 1008."""
    in_pieces = False
    """Whether a server's session sees long frames while they grow, see `on_part`; else they are held until whole."""

    def __init__(self) -> None:
        self.remote = ""
        self.closed = False
        self.close_code = 0
        """The code of the close frame that was sent or received first; 1006 when the socket just ended."""
        self.awaiting_pong = False
        self._transport: picows.WSTransport | None = None
        self._raw: asyncio.Transport | None = None
        self._pieces: Pieces | None = None
        self._parts: list[bytes] = []
        self._parts_size = 0
        self._thrown_away = False
        self._parts_kind: Kind = "binary"
        self._message_since = 0.0
        self._client = False
        self._pings = 0
        self._pings_since = 0.0
        self._server: WsServer | None = None

    # What a subclass overrides.

    def on_open(self) -> None:
        """The connection stands; frames may be sent."""

    def on_message(self, kind: Kind, data: bytes) -> None:
        """A whole message arrived. Text is not checked to be UTF-8: its decoder does that."""

    def on_part(self, size: int) -> bool:
        """A part of a message came, of `size` bytes and not its last; False throws the message away, up to its end."""
        return True

    def on_thrown_away(self) -> None:
        """A message that was thrown away has come to its end."""

    def on_close(self) -> None:
        """The connection is gone, see `close_code`. Called once, and only after `on_open`."""

    def on_writable(self) -> None:
        """The send buffer, which had grown beyond its high mark, drained again."""

    # What a subclass calls.

    @property
    def used(self) -> bool:
        """Whether it has had a connection, standing or gone."""
        return self.closed or self._transport is not None

    @property
    def buffered(self) -> int:
        """Bytes written but not yet taken by the kernel."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def send_frames(self, frames: bytes) -> None:
        """Write one or more joined prebuilt server frames in a single write.

        A reader so slow that more than `max_buffered` bytes wait is closed with 4008. Only for sessions
        of a server; a client's frames are masked, see `send_text` and `send_binary`.
        """
        if self.closed or self._raw is None:
            return
        self._raw.write(frames)
        if self._raw.get_write_buffer_size() > self.max_buffered:
            self.close(SLOW_READER, "reading too slowly", abort=True)

    def send_text(self, payload: bytes) -> None:
        """Send one text message of UTF-8 bytes."""
        self._send(TEXT, payload)

    def send_binary(self, payload: bytes) -> None:
        """Send one binary message."""
        self._send(BINARY, payload)

    def close(self, code: int = 1000, reason: str = "", *, abort: bool = False) -> None:
        """Send a close frame and end the connection; `abort` does not wait for a reader who does not read."""
        if self.closed or self._transport is None or self._raw is None:
            return
        self.closed = True
        self.close_code = code
        payload = struct.pack("!H", code) + reason.encode()[:_MAX_CLOSE_REASON]
        if self._client:
            # The client's frame must be masked, which picows does; the code is always a standard one here.
            self._transport.send(WSMsgType.CLOSE, payload)
        else:
            self._raw.write(frame(CLOSE, payload))
        # A reader who does not read would keep a graceful close waiting for ever.
        asyncio.get_running_loop().call_later(_ABORT_AFTER if abort else _LINGER, self._raw.abort)
        if not abort:
            self._raw.close()

    def limit_send_buffer(self, high: int) -> None:
        """Have `on_writable` called after more than `high` bytes waited and then drained."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high=high)

    # What picows calls.

    def on_ws_connected(self, transport: picows.WSTransport) -> None:
        self._transport = transport
        self._raw = transport.underlying_transport
        self._client = transport.is_client_side
        peer = self._raw.get_extra_info("peername")
        self.remote = str(peer[0]) if peer else ""
        if self._server is not None:
            self._server._opened(self)
        self.on_open()
        if self.in_pieces and self._server is not None and not self.closed:
            self._read_in_pieces()

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        if self._pieces is not None and self._pieces.early:
            self._pieces.taken(frame.payload_size)
        kind = frame.msg_type
        if kind == WSMsgType.PONG:
            self.awaiting_pong = False
        elif kind == WSMsgType.PING:
            self._answer_ping(frame.get_payload_as_bytes())
        elif kind == WSMsgType.CLOSE:
            self._peer_closes(frame)
        elif kind in (WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION) and not self.closed:
            self._assemble(frame)

    def on_ws_disconnected(self, transport: picows.WSTransport) -> None:
        was_open = self._transport is not None
        self.closed = True
        self.close_code = self.close_code or 1006
        self._parts.clear()
        self._pieces = None
        if self._server is not None:
            self._server._gone(self)
        if was_open:
            self.on_close()

    def pause_writing(self) -> None:
        """Nothing to do: `max_buffered` bounds the buffer; `on_writable` tells when it drained."""

    def resume_writing(self) -> None:
        if not self.closed:
            self.on_writable()

    # Insides.

    def _read_in_pieces(self) -> None:
        """Put `Pieces` before picows, which has read up to the end of the handshake, and maybe what came with it."""
        assert self._raw is not None
        inner = self._raw.get_protocol()
        # What is left of picows' buffer tells what is in it: behind a handshake less than half of the size it has.
        free, size = len(inner.get_buffer(-1)), _FIRST_BUFFER  # type: ignore[attr-defined]
        while size < free:
            size *= 2
        longest = self._server.longest if self._server is not None else self.max_message_size
        self._pieces = Pieces(inner, longest, size - free, self._half_too_early)
        self._raw.set_protocol(self._pieces)

    def _half_too_early(self) -> None:
        self.close(POLICY_VIOLATION, "a long frame began before the answer to the handshake", abort=True)

    def _send(self, opcode: int, payload: bytes) -> None:
        if self._client:
            if not self.closed and self._transport is not None:
                self._transport.send(WSMsgType.TEXT if opcode == TEXT else WSMsgType.BINARY, payload)
        else:
            self.send_frames(frame(opcode, payload))

    def _assemble(self, part: picows.WSFrame) -> None:
        data = part.get_payload_as_bytes()
        if part.msg_type != WSMsgType.CONTINUATION:
            if self._parts_size or self._parts:
                self.close(1002, "a new message began inside another", abort=True)
                return
            self._parts_kind = "text" if part.msg_type == WSMsgType.TEXT else "binary"
            if not part.fin and self._server is not None:
                self._server._message_began(self)
            if part.fin:
                if len(data) > self.max_message_size:
                    self._too_big()
                else:
                    self.on_message(self._parts_kind, data)
                return
        elif not self._parts:
            self.close(1002, "a continuation without a beginning", abort=True)
            return
        # Empty fragments count too, or endless ones would grow the list without growing the size.
        self._parts.append(data)
        self._parts_size += len(data) or 1
        if self._parts_size > self.max_message_size:
            self._too_big()
        elif part.fin:
            self._end_message()
        elif self._thrown_away or not self.on_part(len(data)):
            self._thrown_away = True
            self._parts = [b""]  # there is a message, and nothing of it is kept

    def _end_message(self) -> None:
        parts, thrown_away = self._parts, self._thrown_away
        self._parts, self._parts_size, self._thrown_away = [], 0, False
        if thrown_away:
            self.on_thrown_away()
        else:
            self.on_message(self._parts_kind, b"".join(parts))

    def _answer_ping(self, payload: bytes) -> None:
        """A server's pong goes through the bounded send buffer; picows answers a client's pings itself."""
        if self._client:
            return
        now = asyncio.get_running_loop().time()
        if now - self._pings_since > _PING_WINDOW:
            self._pings, self._pings_since = 0, now
        self._pings += 1
        if self._pings > _MAX_PINGS:
            self.close(POLICY_VIOLATION, "too many pings", abort=True)
        else:
            self.send_frames(frame(PONG, payload))

    def _too_big(self) -> None:
        self._parts, self._parts_size = [], 0
        self.close(MESSAGE_TOO_BIG, "message too large", abort=True)

    def _peer_closes(self, close: picows.WSFrame) -> None:
        payload = close.get_payload_as_bytes()
        code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1005
        if not self.closed:
            self.close(1000 if code == 1005 else code)
        self.close_code = code


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
        self._server: asyncio.Server | None = None
        self._pinger: asyncio.Task[None] | None = None
        self._empty = asyncio.Event()

    async def _listen(self, host: str, port: int, max_message_size: int) -> None:
        # One byte more than allowed, so that the session itself answers with 1009 and its own words
        # for all but a single frame which is larger still: that one picows refuses with 1009.
        self.longest = max_message_size + 1
        self._server = await picows.ws_create_server(
            self._upgrade,
            host,
            port,
            max_frame_size=self.longest,
            websocket_handshake_timeout=5,
            # A pong of picows' own would not count against what may wait for a reader.
            enable_auto_pong=False,
            read_buffer_init_size=1024,
            backlog=4096,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._pinger = asyncio.create_task(self._ping_forever())

    async def close(self, code: int = GOING_AWAY, reason: str = "shutting down", grace: float = 2.0) -> None:
        """Stop listening, close every session with `code` and wait up to `grace` seconds for them to end."""
        if self._pinger is not None:
            self._pinger.cancel()
        if self._server is not None:
            self._server.close()
        for session in list(self.sessions):
            session.close(code, reason)
        if self.sessions:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), grace)
        for session in list(self.sessions):
            if session._raw is not None:
                session._raw.abort()
        await asyncio.sleep(0)

    def _upgrade(self, request: picows.WSUpgradeRequest) -> picows.WSListener | picows.WSUpgradeResponseWithListener:
        path, _, query = request.path.decode("latin-1").partition("?")
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            if len(self.sessions) >= self._max_sessions:
                raise Refuse(503, "too many connections")
            if "websocket" not in headers.get("upgrade", "").lower():
                raise Refuse(426, "this is a WebSocket endpoint")
            session = self._factory(Request(path, query, headers))
        except Refuse as refusal:
            self.refused += 1
            body = b'{"error":"%s"}' % refusal.text.encode()
            response = picows.WSUpgradeResponse.create_error_response(
                refusal.status, body, {"Content-Type": "application/json"}
            )
            return picows.WSUpgradeResponseWithListener(response, None)
        session._server = self
        return session

    def _opened(self, session: Session) -> None:
        self.sessions.add(session)
        self._most = max(self._most, len(self.sessions))
        self._ping_due[session] = asyncio.get_running_loop().time() + self._ping_interval

    def _gone(self, session: Session) -> None:
        self.sessions.discard(session)
        for queue in (self._ping_due, self._pong_due, self._message_due):
            queue.pop(session, None)
        if not self.sessions:
            self._empty.set()

    def _message_began(self, session: Session) -> None:
        """A message comes in fragments: look again when it should be whole. At most one entry for a session."""
        session._message_since = asyncio.get_running_loop().time()
        self._message_due.setdefault(session, session._message_since + session.message_timeout)

    async def _ping_forever(self) -> None:
        tick = min(1.0, self._ping_interval / 4, self._pong_timeout / 4)
        while True:
            await asyncio.sleep(tick)
            self._ping_once(asyncio.get_running_loop().time())
            if self._most >= _CROWD and len(self.sessions) < self._most // 2:
                self._most = len(self.sessions)
                return_free_memory()

    def _ping_once(self, now: float) -> None:
        for session in _due(self._message_due, now):
            if not session._parts:
                continue
            if session._message_since + session.message_timeout <= now:
                session.close(POLICY_VIOLATION, "a message took too long", abort=True)
            else:  # another message than the one that was first looked for
                self._message_due[session] = now + session.message_timeout
        ping = frame(PING, b"")
        for session in _due(self._pong_due, now):
            if session.awaiting_pong:
                session.close(NO_PONG, "no pong", abort=True)
        for session in _due(self._ping_due, now):
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
) -> WsServer:
    """Listen for WebSocket connections on `host:port` (0: any free port).

    `factory(request)` gives the session of a new connection or raises `Refuse`. Beyond `max_sessions`
    connections an upgrade is answered with 503. A peer is pinged every `ping_interval` seconds; no pong
    within `pong_timeout` seconds closes with 4012. Raises `OSError` when the port is taken.
    """
    server = WsServer(factory, max_sessions, ping_interval, pong_timeout)
    await server._listen(host, port, max_message_size)
    return server


async def connect(
    url: str,
    session: Session,
    *,
    headers: dict[str, str] | None = None,
    timeout: float = 5.0,
    ping_interval: float | None = None,
) -> None:
    """Open a client connection to `url` and attach `session` to it: a new one for each attempt.

    With `ping_interval` the server is pinged when nothing came for that long, and the connection ends when
    it stays silent as long again. Raises `OSError` or `picows.WSHandshakeError` (both caught by
    `CONNECT_ERRORS`), and `ValueError` for a session that was connected before: its state tells of that connection.
    """
    if session.used:
        raise ValueError("a session serves one connection: connect with a new one")
    await asyncio.wait_for(
        picows.ws_connect(
            lambda: session,
            url,
            max_frame_size=session.max_message_size + 1,
            extra_headers=headers,
            websocket_handshake_timeout=timeout,
            enable_auto_ping=ping_interval is not None,
            auto_ping_idle_timeout=ping_interval or 10.0,
            auto_ping_reply_timeout=ping_interval or 10.0,
            max_redirects=0,
        ),
        timeout + 1.0,
    )
    if session._transport is None or session.closed:
        raise ConnectionResetError(f"{url} closed the connection as it opened")


CONNECT_ERRORS = (OSError, picows.WSHandshakeError, TimeoutError)


async def wait_closed(session: Session) -> None:
    """Wait until the connection of `session` has ended."""
    if session._transport is not None:
        with contextlib.suppress(Exception):
            await session._transport.wait_disconnected()
