"""Direct messages: read, counted, never answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils import encode_varint_prefixed

from millrace.gossip.direct import PROTOCOL, DirectMessages
from millrace.gossip.identity import from_seed

REMOTE = ID.from_pubkey(create_new_key_pair(from_seed("remote")).public_key)


class Stream:
    """A stream that gives what it was made with, and records how it ends; writing to it is an error."""

    def __init__(self, data: bytes) -> None:
        self.muxed_conn = SimpleNamespace(peer_id=REMOTE)
        self.end = ""
        self._data = data

    async def read(self, n: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        data, self._data = self._data, b""
        return data

    async def close(self) -> None:
        self.end = "closed"

    async def reset(self) -> None:
        self.end = "reset"


class Host:
    """Remembers the handlers it is given."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}

    def set_stream_handler(self, protocol: str, handler: Any) -> None:
        self.handlers[protocol] = handler


def served(*messages: rpc_pb2.Message) -> tuple[DirectMessages, Stream]:
    host = Host()
    direct = DirectMessages(host)  # type: ignore[arg-type]
    stream = Stream(b"".join(encode_varint_prefixed(message.SerializeToString()) for message in messages))
    trio.run(host.handlers[PROTOCOL], stream)
    return direct, stream


def request(**changes: Any) -> rpc_pb2.Message:
    """A request as nodes send them."""
    fields = {"from_id": REMOTE.to_bytes(), "data": b"hash", "seqno": bytes(8), "topicIDs": ["transactions_0_REQUEST"]}
    return rpc_pb2.Message(**{**fields, **changes})


def test_requests_are_counted_and_left_unanswered() -> None:
    """Three requests on one stream are read; the stream ends as its sender ended it."""
    direct, stream = served(request(), request(), request())
    assert (direct.requests, direct.invalid, stream.end) == (3, 0, "closed")


@pytest.mark.parametrize("change", [{"from_id": b"another"}, {"key": b"k"}, {"seqno": bytes(9)}])
def test_what_breaks_a_rule_ends_its_stream(change: dict[str, bytes]) -> None:
    """A message in another's name, with a key or with a long sequence number is what nodes refuse, and so do we."""
    direct, stream = served(request(), request(**change), request())
    assert (direct.requests, direct.invalid, stream.end) == (1, 1, "reset")
