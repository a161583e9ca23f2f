"""Connections to another's WebSocket server."""

from __future__ import annotations

import asyncio

import picows

from millrace.runtime.websocket.session import Session

CONNECT_ERRORS = (OSError, picows.WSHandshakeError, TimeoutError)


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
    try:
        async with asyncio.timeout(timeout + 1.0):
            await picows.ws_connect(
                lambda: session,
                url,
                max_frame_size=session.max_message_size + 1,
                extra_headers=headers,
                websocket_handshake_timeout=timeout,
                enable_auto_ping=ping_interval is not None,
                auto_ping_idle_timeout=ping_interval or 10.0,
                auto_ping_reply_timeout=ping_interval or 10.0,
                max_redirects=0,
            )
    except BaseException:
        session.abort()
        raise
    if not session.standing:
        raise ConnectionResetError(f"{url} closed the connection as it opened")
