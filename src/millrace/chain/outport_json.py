"""Node events as nodes write them with `MarshallerType = "json"`, turned into their protobuf form.

Such a node passes everything through Go's encoding/json: the envelope, the payload in it, and the header bytes in the
payload (mx-chain-core-go 1.5.1 `marshal/json.go`, `data/outport/common.go`; mx-chain-go `outport/outport.go`, where the
driver's marshaller makes the header bytes). Header hashes are made before, of the protobuf form: header bytes made
again from JSON hash to them.

The names are those of the protobuf fields. Bytes are base64, big integers are numbers, absent ones `null`; enumerations
are numbers, keys of maps are text. Names that are not known are passed over: their numbers, and so their bytes, only
newer versions know. In a payload that does no harm, as unknown protobuf fields do none; a header without them does not
hash to its hash.
"""

from __future__ import annotations

import binascii
import functools
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from millrace.chain import bigint, outport
from millrace.chain.headers import hash_matches
from millrace.chain.outport import OutportError
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto import state_access_pb2 as state

Read = Callable[[Any], Any]
"""A field's value from JSON. Raises `ValueError`."""
Fill = Callable[[Message, Any], None]
"""Sets a field of a message from JSON. Raises `ValueError`."""

_OF_USERS: Final = frozenset(("AccountTokenData.identifier", "TokenMetaData.name", "AdditionalAccountData.userName"))
"""Bytes that are text in JSON, as they are in Go; what is no UTF-8 in them Go's encoder has replaced already."""
_NOT_UTF8: Final = "\ufffd"  # what Go writes for a byte that is no UTF-8
_MAX_NAMES, _MAX_NAME = 3, 64  # unknown names that are told; characters of each
_MAX_FLOAT: Final = (2 - 2**-23) * 2.0**127  # of 32 bits


class _Repeated(dict[str, Any]):
    """An object in which a name stands more than once, which is right only where Go made names alike."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


class _Envelope(msgspec.Struct):
    with_acknowledge: bool | None = msgspec.field(default=False, name="withAcknowledge")
    counter: int | None = 0
    type: int | None = 0
    payload: msgspec.Raw = msgspec.Raw(b"null")
    topic: str | None = ""
    version: int | None = 0


def is_json(frame: bytes) -> bool:
    """Whether a frame begins as JSON does; no protobuf envelope begins so."""
    return frame[:1] == b"{"


def decode_envelope(frame: bytes) -> tuple[pb.WsMessage, bytes]:
    """The envelope in a frame, without its payload; and the payload, still in base64, for `unwrap`.

    Takes little time also for a large frame. Of a name that stands there twice the last counts, as in Go. Raises
    `OutportError`.
    """
    try:
        read = msgspec.json.decode(frame, type=_Envelope)
        envelope = pb.WsMessage(
            withAcknowledge=bool(read.with_acknowledge),
            counter=read.counter or 0,
            type=read.type or 0,
            topic=read.topic or "",
            version=read.version or 0,
        )
    except (ValueError, RecursionError) as error:
        raise OutportError(f"not a WsMessage in JSON: {_words(error)}") from None
    return envelope, bytes(read.payload)


def ack_envelope(counter: int) -> bytes:
    """The frame that acknowledges the payload with this counter, as Go writes it."""
    return b'{"counter":%d,"type":1}' % counter if counter else b'{"type":1}'


def unwrap(payload: bytes) -> bytes:
    """The JSON of a payload, of what `decode_envelope` gave. Raises `OutportError`."""
    try:
        return msgspec.json.decode(payload, type=bytes | None) or b""
    except (ValueError, RecursionError) as error:
        raise OutportError(f"not a payload in base64: {_words(error)}") from None


def to_protobuf(topic: str, payload: bytes, unknown: list[str] | None = None) -> bytes:
    """The protobuf form of a known topic's payload, byte for byte as the node would have sent it.

    To `unknown` are added the first names in its header that this version does not know, where the header made again
    does not hash to the header's hash. Raises `OutportError`.
    """
    found: list[str] = [] if unknown is None else unknown
    message = outport.PAYLOADS[topic]()
    try:
        _fill(message, _parse(payload))
        if isinstance(message, pb.OutportBlock) and message.HasField("blockData"):
            _translate_header(message.blockData, found)
        elif isinstance(message, pb.BlockData):
            _translate_header(message, found)
    except (ValueError, RecursionError) as error:
        raise OutportError(f"not a {message.DESCRIPTOR.name} in JSON: {_words(error)}") from None
    return outport.serialize(message)


def _translate_header(data: pb.BlockData, unknown: list[str]) -> None:
    """Give a block the header bytes that it was hashed by. A type this version does not know stays as it came."""
    kind = outport.HEADERS.get(data.headerType)
    if kind is None or not data.headerBytes:
        return
    header, read = kind(), _parse(data.headerBytes)
    _fill(header, read)
    data.headerBytes = outport.serialize(header)
    if data.headerHash and not hash_matches(data):
        unknown += itertools.islice(_unknown_names(header.DESCRIPTOR, read), _MAX_NAMES)


def _unknown_names(descriptor: Any, value: dict[str, Any]) -> Iterator[str]:
    """Names in a JSON object, and in those inside it, that are no fields of such a message; with the message's name."""
    for name, item in value.items():
        field = descriptor.fields_by_name.get(name)
        if field is None:
            yield f"{descriptor.name}.{name}"[:_MAX_NAME]
        elif field.message_type is not None:
            for part in item if isinstance(item, list) else (item,):
                if isinstance(part, dict):
                    yield from _unknown_names(field.message_type, part)


def _parse(text: bytes) -> Any:
    return json.loads(text.decode(), object_pairs_hook=_object, parse_constant=_no_number)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Repeated(pairs)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeError):
        return "text that is not Unicode"
    return str(error)[:200]


def _fill(message: Message, value: Any) -> None:
    """Set the fields of a message from a JSON object."""
    plan = _plan(message)
    for name, item in _members(value, message.DESCRIPTOR.name).items():
        fill = plan.get(name)
        if fill is not None and item is not None:
            fill(message, item)


def _members(value: Any, where: str) -> dict[str, Any]:
    if type(value) is dict:
        return value
    if isinstance(value, _Repeated):
        raise OutportError(f"{where}: a name stands there twice")
    raise OutportError(f"{where}: expected an object")


_plans: dict[str, dict[str, Fill]] = {}  # by the message's name


def _plan(message: Message) -> dict[str, Fill]:
    """How each field of such a message is set, by the field's name."""
    descriptor = message.DESCRIPTOR
    plan = _plans.get(descriptor.full_name)
    if plan is None:
        empty = type(message)()
        outport.fill_empty(empty)  # writes absent numbers, so it tells which fields of bytes are big integers
        big = {field.name for field, value in empty.ListFields() if value == b"\0"}
        fields = descriptor.fields
        plan = {field.name: _fill_of(field, f"{descriptor.name}.{field.name}", field.name in big) for field in fields}
        _plans[descriptor.full_name] = plan
    return plan


def _fill_of(field: Any, where: str, is_big: bool) -> Fill:
    name = field.name
    entry = field.message_type
    if where in _ENTRIES:
        return functools.partial(_fill_entries, name, _ENTRIES[where])
    if entry is not None and entry.GetOptions().map_entry:
        key = _read_number_key if entry.fields_by_name["key"].type == FieldDescriptor.TYPE_UINT32 else _read_text
        return functools.partial(_fill_map, name, where, key)
    if entry is not None:
        return functools.partial(_fill_messages if field.is_repeated else _fill_message, name, where)
    read = _read_big if is_big else _read_text_of_users if where in _OF_USERS else _READERS[field.type]
    return functools.partial(_fill_list if field.is_repeated else _fill_scalar, name, where, read)


def _fill_scalar(name: str, where: str, read: Read, message: Message, value: Any) -> None:
    try:
        setattr(message, name, read(value))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _fill_list(name: str, where: str, read: Read, message: Message, value: Any) -> None:
    try:
        getattr(message, name).extend(map(read, _items(value)))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _fill_message(name: str, _: str, message: Message, value: Any) -> None:
    part = getattr(message, name)
    part.SetInParent()
    _fill(part, value)


def _fill_messages(name: str, where: str, message: Message, value: Any) -> None:
    parts = getattr(message, name)
    try:
        items = _items(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    for item in items:
        _fill(parts.add(), item)


def _fill_map(name: str, where: str, read_key: Read, message: Message, value: Any) -> None:
    entries = getattr(message, name)
    for key, item in _members(value, where).items():
        try:
            entry = entries[read_key(key)]
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if item is not None:  # Go's nil is an empty message, as an entry without a value is in protobuf
            _fill(entry, item)


def _fill_entries(name: str, read: Callable[[Any], list[Any]], message: Message, value: Any) -> None:
    getattr(message, name).extend(read(value))


def _items(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError("expected a list")
    return value


def _read_integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("expected an integer")
    return value


def _read_number_key(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("expected keys that are numbers")
    return int(text)


def _read_big(value: Any) -> bytes:
    return bigint.encode(_read_integer(value))


def _read_float(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= _MAX_FLOAT:
        raise ValueError("expected a number of 32 bits")
    return float(value)


def _read_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("expected true or false")
    return value


def _read_text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("expected text")
    return value


def _read_text_of_users(value: Any) -> bytes:
    return _read_text(value).encode()


def _read_bytes(value: Any) -> bytes:
    if value is None:  # in a list; Go's nil is no bytes
        return b""
    if type(value) is not str:
        raise ValueError("expected base64")
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        raise ValueError("not base64") from None


_READERS: Final[dict[int, Read]] = {
    FieldDescriptor.TYPE_BOOL: _read_bool,
    FieldDescriptor.TYPE_BYTES: _read_bytes,
    FieldDescriptor.TYPE_ENUM: _read_integer,
    FieldDescriptor.TYPE_FLOAT: _read_float,
    FieldDescriptor.TYPE_INT32: _read_integer,
    FieldDescriptor.TYPE_INT64: _read_integer,
    FieldDescriptor.TYPE_STRING: _read_text,
    FieldDescriptor.TYPE_UINT32: _read_integer,
    FieldDescriptor.TYPE_UINT64: _read_integer,
}


def _state_accesses(value: Any) -> list[state.StateAccessesEntry]:
    """A map by the raw hashes of transactions, which JSON cannot hold: they stand in each access once more."""
    if not isinstance(value, dict):
        raise OutportError("stateAccesses: expected an object")
    entries = []
    for key, item in value.pairs if isinstance(value, _Repeated) else value.items():
        entry = state.StateAccessesEntry(key=key.encode())
        if item is not None:
            entry.value.SetInParent()
            _fill(entry.value, item)
        if _NOT_UTF8 in key and entry.value.stateAccess:
            entry.key = entry.value.stateAccess[0].txHash
        entries.append(entry)
    return entries


def _state_accesses_for_block(value: Any) -> list[state.StateAccessesForBlockEntry]:
    entries = []
    for key, item in _members(value, "OutportBlock.stateAccessesForBlock").items():
        entry = state.StateAccessesForBlockEntry(key=key.encode())
        if item is not None:
            entry.value.SetInParent()
            _fill(entry.value, item)
        entries.append(entry)
    return entries


def _serialized(read: Callable[[Any], list[Any]]) -> Callable[[Any], list[bytes]]:
    return lambda value: [entry.SerializeToString() for entry in read(value)]


_ENTRIES: Final[dict[str, Callable[[Any], list[Any]]]] = {
    "OutportBlock.stateAccesses": _serialized(_state_accesses),
    "OutportBlock.stateAccessesForBlock": _serialized(_state_accesses_for_block),
    "StateAccessesForBlock.stateAccesses": _state_accesses,
}
"""Maps whose entries `outport.proto` keeps as they came, see `state_access.proto`."""
