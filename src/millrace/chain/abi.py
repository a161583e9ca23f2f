"""The contract ABI's number and byte forms, alone in an argument (top) or inside a struct or list (nested).

Top-encoded numbers are minimal big-endian bytes and zero is empty; nested ones have a fixed width or, for big
numbers and byte strings, a 4-byte length in front. Decoders accept numbers that are not minimal, as contracts do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


class AbiError(ValueError):
    """Bytes do not hold a value of the wanted type."""


def top_uint(number: int) -> bytes:
    """An unsigned number of any width, alone: minimal bytes, zero is empty."""
    if number < 0:
        raise AbiError("an unsigned number is not negative")
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def top_int(number: int) -> bytes:
    """A signed number, alone: minimal two's complement, zero is empty."""
    return number.to_bytes(_signed_size(number), "big", signed=True) if number else b""


def top_bool(value: bool) -> bytes:
    """A truth value, alone: one byte, or nothing for false."""
    return b"\1" if value else b""


def top_option(value: bytes | None) -> bytes:
    """An option, alone, of an already nested-encoded value: nothing, or one byte and the value."""
    return b"" if value is None else b"\1" + value


def nested_uint(number: int, size: int) -> bytes:
    """An unsigned number of `size` bytes (u8: 1, u16: 2, u32: 4, u64: 8). Raises `AbiError` beyond that."""
    if not 0 <= number < 1 << 8 * size:
        raise AbiError(f"the number does not fit into {size} unsigned bytes")
    return number.to_bytes(size, "big")


def nested_int(number: int, size: int) -> bytes:
    """A signed number of `size` bytes. Raises `AbiError` beyond that."""
    try:
        return number.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise AbiError(f"the number does not fit into {size} signed bytes") from None


def nested_biguint(number: int) -> bytes:
    """An unsigned number of any size: its length, then minimal bytes."""
    return nested_bytes(top_uint(number))


def nested_bigint(number: int) -> bytes:
    """A signed number of any size: its length, then minimal two's complement."""
    return nested_bytes(top_int(number))


def nested_bytes(data: bytes) -> bytes:
    """Bytes, a string or a token identifier: a 4-byte length, then the bytes. Addresses go without a length."""
    return len(data).to_bytes(4, "big") + data


def nested_bool(value: bool) -> bytes:
    """A truth value: one byte."""
    return b"\1" if value else b"\0"


def nested_option(value: bytes | None) -> bytes:
    """An option of an already nested-encoded value: one byte, then the value if there is one."""
    return b"\0" if value is None else b"\1" + value


def nested_list(items: Iterable[bytes]) -> bytes:
    """A list of already nested-encoded items: a 4-byte count, then the items. Top-encoded it has no count."""
    parts = list(items)
    return len(parts).to_bytes(4, "big") + b"".join(parts)


def decode_uint(data: bytes, size: int | None = None) -> int:
    """A top-encoded unsigned number. Raises `AbiError` if it needs more than `size` bytes."""
    number = int.from_bytes(data, "big")
    if size is not None and number >= 1 << 8 * size:
        raise AbiError(f"{_shown(data)} is no unsigned number of {size} bytes")
    return number


def decode_int(data: bytes, size: int | None = None) -> int:
    """A top-encoded signed number. Raises `AbiError` if it needs more than `size` bytes."""
    number = int.from_bytes(data, "big", signed=True)
    if size is not None and not -(1 << 8 * size - 1) <= number < 1 << 8 * size - 1:
        raise AbiError(f"{_shown(data)} is no signed number of {size} bytes")
    return number


def decode_bool(data: bytes) -> bool:
    """A top-encoded truth value."""
    number = decode_uint(data)
    if number > 1:
        raise AbiError(f"{_shown(data)} is no truth value")
    return number == 1


class Reader:
    """Takes nested-encoded values from the front of bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def remaining(self) -> int:
        """Bytes not taken yet."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """The next `size` raw bytes (an address: 32). Raises `AbiError` when fewer are left."""
        if size > self.remaining:
            raise AbiError(f"{size} bytes expected, {self.remaining} left")
        self._at += size
        return self._data[self._at - size : self._at]

    def uint(self, size: int) -> int:
        """An unsigned number of `size` bytes."""
        return int.from_bytes(self.take(size), "big")

    def sint(self, size: int) -> int:
        """A signed number of `size` bytes."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def blob(self) -> bytes:
        """Bytes with their length in front."""
        return self.take(self.uint(4))

    def biguint(self) -> int:
        """An unsigned number with its length in front."""
        return int.from_bytes(self.blob(), "big")

    def bigint(self) -> int:
        """A signed number with its length in front."""
        return int.from_bytes(self.blob(), "big", signed=True)

    def flag(self) -> bool:
        """A truth value."""
        return self._flag("truth value")

    def option(self, read: Callable[[], T]) -> T | None:
        """An option whose value `read` takes."""
        return read() if self._flag("option") else None

    def array(self, read: Callable[[], T]) -> list[T]:
        """A list with its count in front whose items `read` takes."""
        count = self.uint(4)
        if count > self.remaining:
            # Every item takes a byte at least: a count beyond that is a lie, not a reason to loop.
            raise AbiError(f"a list of {count} items in {self.remaining} bytes")
        return [read() for _ in range(count)]

    def items(self, read: Callable[[], T]) -> list[T]:
        """The items of a top-encoded list: all that is left."""
        result = []
        while self.remaining:
            before = self._at
            result.append(read())
            if self._at == before:
                raise AbiError("an item of no bytes")
        return result

    def end(self) -> None:
        """Raise `AbiError` unless everything was taken."""
        if self.remaining:
            raise AbiError(f"{self.remaining} bytes too many")

    def _flag(self, what: str) -> bool:
        flag = self.uint(1)
        if flag > 1:
            raise AbiError(f"{flag:#04x} begins no {what}")
        return flag == 1


def _signed_size(number: int) -> int:
    return (number.bit_length() if number > 0 else (number + 1).bit_length()) // 8 + 1


def _shown(data: bytes) -> str:
    return data[:40].hex() + ("…" if len(data) > 40 else "")
