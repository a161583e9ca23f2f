"""JSON as strict as the rest: typed, valid UTF-8 throughout, no key twice in one object.

msgspec keeps the last of two equal keys without a word; two readers of the same bytes could then see two
different transactions. So what it accepts is walked once more for keys alone, unless counting them shows that none is
missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

import msgspec

from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused

T = TypeVar("T")


_SPACE = re.compile(r"[ \t\n\r]*")


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


_values = msgspec.json.Decoder()

_BYTES_PER_MARK = 64
_NO_MARKS = bytes(set(range(256)) - set(b"{[,"))
MAX_MARKS = 160_000
"""Signs of structure in any message: more than the largest message of real transactions has."""


def marks(data: bytes, start: int = 0, end: int | None = None) -> int:
    """How many signs of structure are in `data`: a bound, found without reading it, of what reading it costs."""
    return len(data[start:end].translate(None, _NO_MARKS))  # in one pass


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
    _check_marks(marked, max_marks)
    if _is_plain(data):
        return
    try:
        _walker.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        _refuse(error)


def _is_plain(data: bytes) -> bool:
    """Whether it is plain without a walk that no key stands twice: `data` has no more colons than different keys.

    Each key has a colon behind it. So if there are as many different keys as colons, in the object and in those right
    inside it or its lists, no key was dropped as a second one, and there is no other object.
    """
    if not data.isascii():
        return False
    try:
        value = _values.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    if type(value) is not dict:
        return False
    keys = len(value)
    for item in value.values():
        inner = item if type(item) is list else (item,)
        keys += sum([len(entry) for entry in inner if type(entry) is dict])
    return keys == data.count(b":")


def walk(data: bytes, marked: int, max_marks: int) -> Iterator[None]:
    """`refuse_duplicate_keys` of an object, with a stop after each of its values and each item of its lists."""
    _check_marks(marked, max_marks)
    try:
        yield from _walk_object(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        _refuse(error)


def _walk_object(text: str) -> Iterator[None]:
    """Walk an object whose syntax is known to be right, as it was decoded before."""
    names = set()
    at = _after_space(text, _after_space(text, 0) + 1)
    while text[at] != "}":
        name, at = _walker.raw_decode(text, at)
        if name in names:
            raise _DuplicateKeyError("a key stands twice in one object")
        names.add(name)
        at = _after_space(text, _after_space(text, at) + 1)  # behind the colon
        if text[at] == "[":
            at = _after_space(text, at + 1)
            while text[at] != "]":
                at = _next_item(text, _walker.raw_decode(text, at)[1])
                yield
            at += 1
        else:
            at = _walker.raw_decode(text, at)[1]
            yield
        at = _next_item(text, at)


def _next_item(text: str, at: int) -> int:
    """Behind a value: where the next item is, or the end of what it stands in."""
    at = _after_space(text, at)
    return _after_space(text, at + 1) if text[at] == "," else at


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None  # it matches nothing at all, too
    return space.end()


def _check_marks(marked: int, max_marks: int) -> None:
    if marked > max_marks:
        raise Refused(reasons.INVALID_MESSAGE.but("too many fields: leave out what is no field of a transaction"))


def _refuse(error: Exception) -> NoReturn:
    detail = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
    raise Refused(reasons.INVALID_MESSAGE.but(detail)) from None
