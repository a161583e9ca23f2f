"""One WebSocket connection: whole messages in, prebuilt frames out, bounds on both.

picows delivers frames; here they become messages: continuation frames are joined and the size limit holds
for their sum. Frames to send are built once (`frames`) and written as bytes, so that the same bytes can go to
thousands of sockets and several frames can share one write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol, cast

import picows
from picows import WSMsgType

from millrace.runtime.websocket.frames import (
    BINARY,
    CLOSE,
    MESSAGE_TOO_BIG,
    POLICY_VIOLATION,
    PONG,
    PROTOCOL_ERROR,
    SLOW_READER,
    TEXT,
    close_payload,
    frame,
)
from millrace.runtime.websocket.pieces import Pieces

log = logging.getLogger(__name__)

Kind = Literal["text", "binary"]

_ABORT_AFTER = 0.2  # seconds for the close frame to leave before the socket is reset
_MESSAGE = (WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION)
_LINGER = 5.0  # seconds a graceful close may wait for the reader to take what was sent before
_MAX_IDLE, _IDLE_WINDOW = 64, 5.0  # frames of a peer that say nothing in so many seconds; more close with 1008
SHORT_PART = 1024
"""Payload bytes of a fragment; to take a shorter one costs as much, a few microseconds, and brings less."""


class Keeper(Protocol):
    """What a server wants to know of its sessions."""

    longest: int
    """Payload bytes of the longest frame that is read."""

    def opened(self, session: Session) -> None:
        """The connection stands."""

    def gone(self, session: Session) -> None:
        """The connection has ended, or never stood."""

    def message_began(self, session: Session) -> None:
        """A message comes in fragments."""


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
        self._unwanted = False
        self._idle = 0
        self._idle_since = 0.0
        self._keeper: Keeper | None = None
        self._resting: asyncio.TimerHandle | None = None
        """While nothing is read: what ends that."""
        self._postponed: deque[tuple[Kind, bytes]] = deque()
        """Messages that were on their way when the rest began."""
        self.rested = 0.0
        """Seconds for which nothing was read since the last ping: its pong may be late by as much."""
        self.paused_at = 0.0
        """The loop's time since which nothing is read, see `pause`; 0: it is read."""

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

    def on_postponed(self, size: int) -> bool:
        """A message came during a rest, and is postponed until `on_handed_on`; False closes with 1008."""
        return True

    def on_handed_on(self, size: int) -> None:
        """A message that was postponed is handed on now."""

    def on_close(self) -> None:
        """The connection is gone, see `close_code`. Called once, and only after `on_open`."""

    def on_full(self) -> None:
        """The send buffer has grown beyond its high mark, see `limit_send_buffer`."""

    def on_writable(self) -> None:
        """The send buffer, which had grown beyond its high mark, drained again."""

    # What a subclass calls.

    @property
    def used(self) -> bool:
        """Whether it has had a connection, standing or gone."""
        return self.closed or self._transport is not None

    @property
    def standing(self) -> bool:
        """Whether its connection stands."""
        return not self.closed and self._transport is not None

    @property
    def buffered(self) -> int:
        """Bytes written but not yet taken by the kernel."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    @property
    def unfinished_since(self) -> float | None:
        """The loop's time at which the message began whose end has not come (of a server's session)."""
        return self._message_since if self._parts else None

    @property
    def write(self) -> Callable[[bytes], object]:
        """What writes prebuilt frames to the standing connection, for who sends to thousands and minds the bounds."""
        assert self._raw is not None, "not connected yet"
        # picows' transports have one that leaves out the checks of type and thread, which every send here passes.
        return cast(Callable[[bytes], object], getattr(self._raw, "write_nocheck", self._raw.write))

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
        payload = close_payload(code, reason)
        if self._client:
            # The client's frame must be masked, which picows does; the code is always a standard one here.
            self._transport.send(WSMsgType.CLOSE, payload)
        else:
            self._raw.write(frame(CLOSE, payload))
        # A reader who does not read would keep a graceful close waiting for ever.
        asyncio.get_running_loop().call_later(_ABORT_AFTER if abort else _LINGER, self._raw.abort)
        if not abort:
            self._raw.close()
        elif self._pieces is not None:
            self._pieces.deaf = True

    def abort(self) -> None:
        """Reset the connection, at once or as soon as it stands: no close frame, nothing waits for the reader."""
        self._unwanted = True
        if self._raw is not None:
            self._raw.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection has ended; what ended it is in the log, and in `close_code`.

        A task that is cancelled while it waits takes the connection along.
        """
        if self._transport is not None:
            try:
                with contextlib.suppress(Exception):  # the failure by which picows ended it, if one did
                    await self._transport.wait_disconnected()
            except asyncio.CancelledError:
                self.close()
                raise

    def rest(self, seconds: float) -> None:
        """Read nothing from the peer for so long; what is on its way is postponed, and handed on after that."""
        if self.closed or self._raw is None or self._raw.is_closing() or self._resting is not None:
            return
        self._raw.pause_reading()
        self.rested += seconds
        self._resting = asyncio.get_running_loop().call_later(seconds, self._read_on)

    def pause(self, paused: bool) -> None:
        """Read nothing from the peer until this is called again."""
        if self.closed or self._raw is None or paused == bool(self.paused_at):
            return
        now = asyncio.get_running_loop().time()
        if paused:
            self.paused_at = now
            self._raw.pause_reading()
        else:
            self.rested += now - self.paused_at
            self.paused_at = 0.0
            self._raw.resume_reading()

    def note_idle(self) -> None:
        """A frame came that says nothing, which costs as much to take: a server closes with 1008 for too many."""
        if self._client or self.closed:
            return
        now = asyncio.get_running_loop().time()
        if now - self._idle_since > _IDLE_WINDOW:
            self._idle, self._idle_since = 0, now
        self._idle += 1
        if self._idle > _MAX_IDLE:
            self.close(POLICY_VIOLATION, "too many frames that say nothing", abort=True)

    @property
    def postponed(self) -> int:
        """Messages that wait for the end of a rest."""
        return len(self._postponed)

    def limit_send_buffer(self, high: int) -> None:
        """Have `on_full` called when more than `high` bytes wait, and `on_writable` when they have drained."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high=high)

    def belongs_to(self, keeper: Keeper) -> None:
        """Who is told of what happens here; said before the connection stands."""
        self._keeper = keeper

    # What picows calls.

    def on_ws_connected(self, transport: picows.WSTransport) -> None:
        if self._unwanted:  # whoever asked for it has given up during the handshake
            transport.underlying_transport.abort()
            return
        self._transport = transport
        self._raw = transport.underlying_transport
        self._client = transport.is_client_side
        peer = self._raw.get_extra_info("peername")
        self.remote = str(peer[0]) if peer else ""
        if self._keeper is not None:
            self._keeper.opened(self)
        self.on_open()
        if self.in_pieces and self._keeper is not None and not self.closed:
            self._pieces = Pieces.put_before(self._raw, self._keeper.longest, self._half_too_early)

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        if self._pieces is not None and self._pieces.early:
            self._pieces.taken(frame.payload_size)
        kind = frame.msg_type  # each look at it makes an object
        if frame.rsv1 or frame.rsv2 or frame.rsv3:  # they mean something only where that was agreed on
            self.close(PROTOCOL_ERROR, "reserved bits are set", abort=True)
        elif kind in _MESSAGE:
            if not self.closed:
                self._assemble(frame, kind)
        elif kind == WSMsgType.PONG:
            if not self.awaiting_pong:
                self.note_idle()
            self.awaiting_pong = False
            self.rested = 0.0
        elif kind == WSMsgType.PING:
            self._answer_ping(frame.get_payload_as_bytes())
        elif kind == WSMsgType.CLOSE:
            self._peer_closes(frame)

    def on_ws_disconnected(self, transport: picows.WSTransport) -> None:
        was_open = self._transport is not None
        self.closed = True
        self.close_code = self.close_code or 1006
        self._parts.clear()
        self._postponed.clear()
        self._pieces = None
        if self._resting is not None:
            self._resting.cancel()
        if self._keeper is not None:
            self._keeper.gone(self)
        if was_open:
            self.on_close()

    def pause_writing(self) -> None:
        if not self.closed:
            self.on_full()

    def resume_writing(self) -> None:
        if not self.closed:
            self.on_writable()

    # Insides.

    def _half_too_early(self) -> None:
        self.close(POLICY_VIOLATION, "a long frame began before the answer to the handshake", abort=True)

    def _send(self, opcode: int, payload: bytes) -> None:
        if self._client:
            if not self.closed and self._transport is not None:
                self._transport.send(WSMsgType.TEXT if opcode == TEXT else WSMsgType.BINARY, payload)
        else:
            self.send_frames(frame(opcode, payload))

    def _assemble(self, part: picows.WSFrame, kind: WSMsgType) -> None:
        data = part.get_payload_as_bytes()
        if kind != WSMsgType.CONTINUATION:
            if self._parts_size or self._parts:
                self.close(PROTOCOL_ERROR, "a new message began inside another", abort=True)
                return
            self._parts_kind = "text" if kind == WSMsgType.TEXT else "binary"
            if not part.fin and self._keeper is not None:
                self._message_since = asyncio.get_running_loop().time()
                self._keeper.message_began(self)
            if part.fin:
                if len(data) > self.max_message_size:
                    self._too_big()
                else:
                    self._hand_on(self._parts_kind, data)
                return
        elif not self._parts:
            self.close(PROTOCOL_ERROR, "a continuation without a beginning", abort=True)
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
            if len(data) < SHORT_PART:
                self.note_idle()

    def _end_message(self) -> None:
        parts, thrown_away = self._parts, self._thrown_away
        self._parts, self._parts_size, self._thrown_away = [], 0, False
        if thrown_away:
            self.on_thrown_away()
        else:
            self._hand_on(self._parts_kind, b"".join(parts))

    def _hand_on(self, kind: Kind, data: bytes) -> None:
        if self._resting is None:
            self.on_message(kind, data)
            return
        self._postponed.append((kind, data))
        if not self.on_postponed(len(data)):
            self.close(POLICY_VIOLATION, "too many messages beyond the limits", abort=True)

    def _read_on(self) -> None:
        """The rest is over: first what was postponed, which may be reason for another one."""
        self._resting = None
        try:
            while self._postponed and self._resting is None and not self.closed:
                kind, data = self._postponed.popleft()
                self.on_handed_on(len(data))
                self.on_message(kind, data)
        except Exception:  # as picows does with one in a frame's callback
            log.exception("a message was not handled")
            self.close(1011, "internal error")
        if self._resting is None and not self.closed and self._raw is not None and not self._raw.is_closing():
            self._raw.resume_reading()

    def _answer_ping(self, payload: bytes) -> None:
        """A server's pong goes through the bounded send buffer; picows answers a client's pings itself."""
        if not self._client:
            self.note_idle()
            if not self.closed:
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
