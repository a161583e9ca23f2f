"""What the service and its signing process say to each other over their socket pair.

A frame is a 4-byte big-endian length and one msgpack array `[tag, field, …]`. Both ends are the same version.
"""

from __future__ import annotations

import struct

import msgspec

from millrace.chain.network import NetworkProfile

MAX_FRAME = 256 * 1024 * 1024
"""As many transactions as are asked for at once fit in, with the longest data there can be."""
HEADER = struct.Struct(">I")


class _Record(msgspec.Struct, frozen=True, array_like=True):
    pass


class Start(_Record, frozen=True, tag="start"):
    """First frame: where the keys, the journal and the policy are. Only the socket pair ever carries it."""

    key_files: tuple[str, ...]
    key_env: tuple[str, ...]
    seeds: dict[str, str]
    """What the variables named in `key_env` held, as far as they were set (development only)."""
    key_passphrase_file: str
    journal: str
    mark: str
    """Says what of the journal was acknowledged …"""
    owner: str
    """… and this is the data directory both belong to."""
    policy_file: str
    network: NetworkProfile

    def __repr__(self) -> str:
        return f"Start(key_files={self.key_files}, key_env={self.key_env}, seeds=***)"


class Ready(_Record, frozen=True, tag="ready"):
    """The keys are loaded."""

    relayers: dict[int, bytes]
    """Public keys by shard."""
    locked: bool
    """Whether the process's memory is kept out of swap."""


class Failed(_Record, frozen=True, tag="failed"):
    """The keys cannot be used; the text says why and holds nothing secret."""

    reason: str


class Work(_Record, frozen=True, tag="work"):
    """Transactions in protobuf form, without relayer signature: some to sign, some to check first.

    What is to be signed is journalled before. A check says whether the sender's (and guardian's) signature and the
    form are right; a transaction checked a moment ago is not verified again when it comes to be signed.
    """

    sign: list[bytes]
    check: list[bytes]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """A signature, or the reason why there is none."""

    signature: bytes = b""
    refusal: str = ""


class Done(_Record, frozen=True, tag="done"):
    """The answer to one `Work`, in the order in which they were asked; one item per transaction."""

    signed: list[Answer]
    checked: list[str]
    """Empty, or the reason why the transaction would not be signed."""


Command = Start | Work
Report = Ready | Failed | Done

_encoder = msgspec.msgpack.Encoder()
command_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
report_decoder: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def frame(record: Command | Report) -> bytes:
    """The bytes of one frame."""
    body = _encoder.encode(record)
    return HEADER.pack(len(body)) + body
