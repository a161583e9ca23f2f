"""Frames as a server sends them (RFC 6455, 5.2), and the codes that end a connection."""

from __future__ import annotations

import struct

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA

GOING_AWAY, PROTOCOL_ERROR, UNSUPPORTED_DATA = 1001, 1002, 1003
POLICY_VIOLATION, MESSAGE_TOO_BIG = 1008, 1009
SLOW_READER, NO_PONG = 4008, 4012

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


def close_payload(code: int, reason: str) -> bytes:
    """What a close frame carries: the code, and as much of the reason as there is room for."""
    return struct.pack("!H", code) + reason.encode()[:_MAX_CLOSE_REASON]
