"""The chain's protobuf form of big integers: a sign byte (00 or 01), then the magnitude, big-endian.

Zero has a two-byte form, an absent number (Go's nil) a single zero byte.
"""

from __future__ import annotations


def encode(number: int | None) -> bytes:
    """The field bytes of a number; `None` is the absent number."""
    if number is None:
        return b"\0"
    if number == 0:
        return b"\0\0"
    magnitude = abs(number)
    return (b"\0" if number > 0 else b"\1") + magnitude.to_bytes((magnitude.bit_length() + 7) // 8, "big")


def decode(data: bytes) -> int | None:
    """The number in field bytes. Raises `ValueError` for no bytes at all or an unknown sign."""
    if not data:
        raise ValueError("a big integer has at least one byte")
    if data[0] > 1:
        raise ValueError(f"unknown sign byte {data[0]:#04x} of a big integer")
    if len(data) == 1:
        return None
    magnitude = int.from_bytes(data[1:], "big")
    return -magnitude if data[0] else magnitude
