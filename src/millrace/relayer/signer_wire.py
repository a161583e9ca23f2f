"""What the service and its signing process say to each other over their socket pair.

A frame is a 4-byte big-endian length and one msgpack array `[tag, field, …]`. Both ends are the same version.
"""

from __future__ import annotations

import struct

import msgspec

MAX_FRAME = 16 * 1024 * 1024
HEADER = struct.Struct(">I")


class _Record(msgspec.Struct, frozen=True, array_like=True):
    pass


class Start(_Record, frozen=True, tag="start"):
    """First frame: where the keys, the journal and the policy are. Never a secret itself."""

    key_files: tuple[str, ...]
    key_env: tuple[str, ...]
    key_passphrase_file: str
    journal: str
    policy_file: str
    profile: str
    chain_id: str


class Ready(_Record, frozen=True, tag="ready"):
    """The keys are loaded: public keys by shard."""

    relayers: dict[int, bytes]


class Failed(_Record, frozen=True, tag="failed"):
    """The keys cannot be used; the text says why and holds nothing secret."""

    reason: str


class Sign(_Record, frozen=True, tag="sign"):
    """Sign these transactions (protobuf form, without relayer signature), each journalled before."""

    request: int
    transactions: list[bytes]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """A signature, or the reason why there is none."""

    signature: bytes = b""
    refusal: str = ""


class Signatures(_Record, frozen=True, tag="signatures"):
    """One item per transaction, in order."""

    request: int
    items: list[Answer]


Command = Start | Sign
Report = Ready | Failed | Signatures

_encoder = msgspec.msgpack.Encoder()
command_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
report_decoder: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def frame(record: Command | Report) -> bytes:
    """The bytes of one frame."""
    body = _encoder.encode(record)
    return HEADER.pack(len(body)) + body
