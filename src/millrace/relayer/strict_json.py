"""JSON as strict as the rest: typed, valid UTF-8 throughout, no key twice in one object.

msgspec keeps the last of two equal keys without a word; two readers of the same bytes could then see two
different transactions. So what it accepts is walked once more for keys alone.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

import msgspec

from millrace.relayer import reasons
from millrace.relayer.reasons import Refused

T = TypeVar("T")


class _DuplicateKeyError(ValueError):
    pass


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _DuplicateKeyError("a key stands twice in one object")


def _skip(_: str) -> None:
    """Numbers do not matter here, and huge ones would cost."""


_walker = json.JSONDecoder(
    object_pairs_hook=_refuse_duplicates, parse_int=_skip, parse_float=_skip, parse_constant=_skip
)


_BYTES_PER_MARK = 64
MAX_MARKS = 160_000
"""Signs of structure in any message: more than the largest message of real transactions has."""


def marks(data: bytes) -> int:
    """How many signs of structure are in `data`: a bound, found without reading it, of what reading it costs."""
    return data.count(b"{") + data.count(b"[") + data.count(b",")


def cost(data: bytes, marked: int) -> int:
    """What reading `data` with so many marks costs, in bytes of plain text that would cost as much."""
    return len(data) + _BYTES_PER_MARK * marked


def decode(data: bytes, decoder: msgspec.json.Decoder[T], marked: int) -> T:
    """The typed value in `data`, which has so many marks. Raises `Refused` with `invalid message` for anything else."""
    if marked > MAX_MARKS:
        raise Refused(reasons.INVALID_MESSAGE.but("too many values in one message"))
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _refuse(error)


def refuse_duplicate_keys(data: bytes, marked: int, max_marks: int) -> None:
    """Raise `Refused` if any object in `data`, which decoded, has a key twice or is not UTF-8.

    The walk costs by the value, so a message of more than `max_marks` signs of structure is refused.
    """
    if marked > max_marks:
        raise Refused(reasons.INVALID_MESSAGE.but("too many fields: leave out what is no field of a transaction"))
    try:
        _walker.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        _refuse(error)


def _refuse(error: Exception) -> NoReturn:
    detail = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
    raise Refused(reasons.INVALID_MESSAGE.but(detail)) from None
