"""The compiled messages against the network's field tables, and against their own source files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from grpc_tools import protoc

import millrace.chain.proto
from chain.go_json import TEXTS_OF_USERS
from millrace.chain import outport
from millrace.chain.proto import hub_pb2, outport_pb2, p2p_pb2, state_access_pb2

SCHEMA: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "wire_schema.json").read_text())
FOLDER = Path(millrace.chain.proto.__file__).parent
LATER = {
    "WsMessage": {7, 8, 9},  # the hub's own
    "OutportBlock": {13, 14, 1001, 1002},
    "BlockData": {9},
    "TransactionPool": {9},
}
"""Fields that are not in the table, which is of an earlier version: `vectors/supernova.json` has them in use."""
SCALARS = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
}
PACKABLE = {"bool", "float", "int32", "int64", "uint32", "uint64"}


def message_type(name: str) -> Any:
    return getattr(outport_pb2, name, None) or getattr(p2p_pb2, name)


def notation(field: FieldDescriptor) -> str:
    """A field's type in the notation of the table, big integers as plain bytes."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return f"map<{notation(entry.fields_by_name['key'])},{notation(entry.fields_by_name['value'])}>"
    star = "*" if field.is_repeated else ""
    if entry is not None:
        return f"{star}msg:{entry.name}"
    if field.enum_type is not None:
        return f"{star}enum:{field.enum_type.name}"
    return star + SCALARS[field.type]


@pytest.mark.parametrize("name", SCHEMA["messages"])
def test_fields_of_every_message(name: str) -> None:
    """Every message of the table has exactly its fields: numbers, names and types."""
    fields = {
        str(field.number): [field.name, notation(field)]
        for field in message_type(name).DESCRIPTOR.fields
        if field.number not in LATER.get(name, ())
    }
    expected = {
        number: [field, kind.replace("bigint", "bytes").replace("msg!:", "msg:")]
        for number, (field, kind) in SCHEMA["messages"][name].items()
    }
    for number, (field, kind) in expected.items():
        if f"{name}.{field}" in TEXTS_OF_USERS:  # of any bytes, and the same on the wire
            assert kind == "string"
            expected[number] = [field, "bytes"]
    assert fields == expected


@pytest.mark.parametrize("name", SCHEMA["messages"])
def test_repeated_numbers_are_packed(name: str) -> None:
    """Repeated numbers travel packed, as proto3 and the Go nodes write them."""
    for field in message_type(name).DESCRIPTOR.fields:
        if field.is_repeated and notation(field).removeprefix("*") in PACKABLE:
            assert field.is_packed


@pytest.mark.parametrize("name", SCHEMA["enums"])
def test_values_of_every_enum(name: str) -> None:
    """Every enumeration has its numbers; names in the source may carry a prefix, as they share one scope."""
    enum: EnumDescriptor = getattr(outport_pb2, name).DESCRIPTOR
    ours = {str(value.number): value.name for value in enum.values}
    assert ours.keys() == SCHEMA["enums"][name].keys()
    assert all(re.search(rf"(^|_){label}$", ours[number]) for number, label in SCHEMA["enums"][name].items())


def test_always_written_fields_are_known() -> None:
    """The serializer knows every big integer and every message that Go writes even when empty, and no other."""
    later = {"ExecutionResult", "BaseMetaExecutionResult", "MetaExecutionResult", "MetaBlockV3"}
    big = {name: fields for name, fields in outport._BIG_INTEGERS.items() if name in later}
    present = {name: fields for name, fields in outport._ALWAYS_PRESENT.items() if name in later}
    for name, fields in SCHEMA["messages"].items():
        if numbers := tuple(field for field, kind in fields.values() if kind == "bigint"):
            big[name] = numbers
        if messages := tuple(field for field, kind in fields.values() if kind.startswith("msg!:")):
            present[name] = messages
    assert big == outport._BIG_INTEGERS
    assert present == outport._ALWAYS_PRESENT


def test_topics_carry_their_messages() -> None:
    """Every payload topic's message has its shard as field 1, where `shard_of_payload` looks."""
    for topic, kind in outport.PAYLOADS.items():
        assert kind.DESCRIPTOR.fields_by_number[1].name == "shardID", topic


@pytest.mark.parametrize(
    "module", [outport_pb2, p2p_pb2, hub_pb2, state_access_pb2], ids=lambda module: module.__name__
)
def test_messages_are_compiled_from_the_source(module: Any, tmp_path: Path) -> None:
    """The committed modules and their types are what the compiler makes of the .proto files."""
    source = module.DESCRIPTOR.name
    root = FOLDER.parents[2]
    arguments = ["protoc", f"-I{root}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(root / source)]
    assert protoc.main(arguments) == 0
    for suffix in ("_pb2.py", "_pb2.pyi"):
        made = tmp_path / source.replace(".proto", suffix)
        assert made.read_text() == (root / source.replace(".proto", suffix)).read_text()
