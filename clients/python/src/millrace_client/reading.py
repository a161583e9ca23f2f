"""JSON of services as values: other deployments write null for what they do not have, also where a list is meant."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def read(content: bytes | str | msgspec.Raw, kind: type[T]) -> T:
    """The value in a text; what is null counts as left out where null is no value. Raises `msgspec.MsgspecError`."""
    return read_by(msgspec.json.Decoder(kind, strict=False), content)


def read_by(decoder: msgspec.json.Decoder[T], content: bytes | str | msgspec.Raw) -> T:
    """The same by a decoder that is kept, for what comes often."""
    try:
        return decoder.decode(content)
    except msgspec.ValidationError:
        try:
            return msgspec.convert(without_nulls(msgspec.json.decode(content)), decoder.type, strict=False)
        except RecursionError:
            raise msgspec.ValidationError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from None


def without_nulls(value: Any) -> Any:
    """The same without members of objects that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
