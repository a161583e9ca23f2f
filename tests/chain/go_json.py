"""Writes node events as Go's encoding/json does."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from millrace.chain import bigint, outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto import state_access_pb2 as state


def go_json(message: Message, rng: random.Random) -> Any:
    """A message as Go's encoding/json has it; whether it omits what is empty differs from field to field."""
    probe = type(message)()
    outport.fill_empty(probe)
    big = {field.name for field, value in probe.ListFields() if value == b"\0"}
    found: dict[str, Any] = {}
    present = {field.name for field, _ in message.ListFields()}
    for field in message.DESCRIPTOR.fields:
        if field.number > 1000:
            continue
        value, name, entry = getattr(message, field.name), field.name, field.message_type
        if name in big:
            number = bigint.decode(value)
            if number is not None or rng.random() < 0.5:
                found[name] = number
        elif name not in present:
            if rng.random() < 0.5:
                found[name] = None if field.is_repeated or entry is not None else zero(field)
        elif name.startswith("stateAccesses") and field.type == FieldDescriptor.TYPE_BYTES:
            for_block = name == "stateAccessesForBlock"
            kind = state.StateAccessesForBlockEntry if for_block else state.StateAccessesEntry
            found[name] = Pairs(go_key(kind.FromString(item), rng) for item in value)
        elif name == "stateAccesses":
            found[name] = Pairs(go_key(item, rng) for item in value)
        elif entry is not None and entry.GetOptions().map_entry:
            found[name] = {str(key): go_json(value[key], rng) for key in value}
        elif entry is not None:
            found[name] = [go_json(item, rng) for item in value] if field.is_repeated else go_json(value, rng)
        elif name == "headerBytes" and isinstance(message, pb.BlockData):
            header = outport.decode_header(message.headerType, value)
            text = value if header is None else dump(go_json(header, rng)).encode()
            found[name] = base64.b64encode(text).decode()
        elif f"{message.DESCRIPTOR.name}.{name}" in TEXTS_OF_USERS:
            found[name] = go_text(value)
        elif field.type == FieldDescriptor.TYPE_BYTES:
            texts = [base64.b64encode(item).decode() for item in (value if field.is_repeated else [value])]
            found[name] = texts if field.is_repeated else texts[0]
        else:
            found[name] = list(value) if field.is_repeated else value
    return found


TEXTS_OF_USERS = ("AccountTokenData.identifier", "TokenMetaData.name", "AdditionalAccountData.userName")
"""Texts in Go, whatever bytes they are."""


def go_text(value: bytes) -> str:
    """Go writes a mark in the place of every byte that belongs to no character."""
    text = value.decode(errors="surrogateescape")
    return "".join("\ufffd" if 0xDC80 <= ord(letter) <= 0xDCFF else letter for letter in text)


class Pairs(list[tuple[str, Any]]):
    """An object whose names may be alike."""


def go_key(entry: Any, rng: random.Random) -> tuple[str, Any]:
    """Go writes a map's key with a mark in the place of every byte that is no UTF-8."""
    return entry.key.decode(errors="replace"), go_json(entry.value, rng)


def zero(field: FieldDescriptor) -> Any:
    return {FieldDescriptor.TYPE_STRING: "", FieldDescriptor.TYPE_BYTES: "", FieldDescriptor.TYPE_BOOL: False}.get(
        field.type, 0
    )


def dump(value: Any) -> str:
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{dump(key)}:{dump(item)}" for key, item in value) + "}"
    if isinstance(value, dict):
        return dump(Pairs(value.items()))
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    text = json.dumps(value, ensure_ascii=False)
    for letter in "<>&\u2028":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def frame_of(topic: str, payload: bytes, **fields: Any) -> bytes:
    """A frame as a JSON node writes it."""
    content = {"withAcknowledge": True, "counter": 7, "type": 2, "payload": base64.b64encode(payload).decode()}
    return json.dumps(content | {"topic": topic, "version": 1} | fields).encode()
