"""WebSocket shell on picows: messages in (`session`), prebuilt frames out (`frames`), `server` and `client`.

`pieces` stands between the socket and picows where a session wants to see long frames while they grow.
"""

from millrace.runtime.websocket.client import CONNECT_ERRORS, connect
from millrace.runtime.websocket.frames import (
    CLOSE,
    GOING_AWAY,
    MESSAGE_TOO_BIG,
    NO_PONG,
    POLICY_VIOLATION,
    SLOW_READER,
    UNSUPPORTED_DATA,
    binary_frame,
    frame,
    text_frame,
)
from millrace.runtime.websocket.server import Refuse, Request, SessionFactory, WsServer, serve
from millrace.runtime.websocket.session import SHORT_PART, Kind, Session

__all__ = [
    "CLOSE",
    "CONNECT_ERRORS",
    "GOING_AWAY",
    "MESSAGE_TOO_BIG",
    "NO_PONG",
    "POLICY_VIOLATION",
    "SHORT_PART",
    "SLOW_READER",
    "UNSUPPORTED_DATA",
    "Kind",
    "Refuse",
    "Request",
    "Session",
    "SessionFactory",
    "WsServer",
    "binary_frame",
    "connect",
    "frame",
    "serve",
    "text_frame",
]
