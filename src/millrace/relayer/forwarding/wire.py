"""What an edge and a relayer that signs say to each other over `/ws/edge`: records, several in one binary message.

An edge tells submissions, each with the channel (a connection of a client) it came on, a number of its own, and whose
it is. Replies come back under channel and number, so that neither order nor the clients' own request ids matter. Text
messages are words to every client, of which an edge heeds one: the relayer is about to end.

A relayer that stands by for a seat takes nothing. It says that it does, and what its folder knows of a transaction.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from millrace.runtime.settings import MAX_PORT

PATH = "/ws/edge"
HEARD = "x-millrace-heard"
"""Header of an edge that comes again: the run of the relayer, and the last refusal heard from it."""
SUBMIT, LEFT, DEPART = b"S", b"L", b"D"
"""The last: what was submitted before it has waited for company at the edge, and is to wait for none at the relayer."""
HELLO, REPLY, ANNOUNCE, REST, CLOSE, REFUSED = b"H", b"R", b"A", b"W", b"C", b"F"
STANDS_BY, ASK, KNOWN = b"B", b"Q", b"K"
"""In the place of a greeting, which no edge of an earlier version takes for one; a question, and its answer."""
HASH_BYTES = 32
UNSENT = 1004, 1005, 1006, 1015
"""Codes that no close frame may have (RFC 6455, 7.4.1)."""
MAX_REST = 60.0
"""Seconds; relayers ask for far fewer."""
HEAD_BYTES = 64 * 1024
"""More than a record has beside the client's message: its envelope, an address and an `Authorization` header."""
JOINED_BYTES = 256 * 1024
"""Records are joined to messages up to this length; a longer record is one by itself."""

_LENGTH = struct.Struct("!I")
_SUBMIT = struct.Struct("!cIQIHH")  # kind, channel, number, marks, length of client and of authorization
_CHANNEL = struct.Struct("!cI")
_REPLY = struct.Struct("!cIQ")
_REST = struct.Struct("!cId")
_CLOSE = struct.Struct("!cIH")
_ASK = struct.Struct("!cQ32s")
_KNOWN = struct.Struct("!cQH")


class Hello(msgspec.Struct, frozen=True, rename="camel"):
    """What a relayer says of itself, first and whenever it changes."""

    run: str
    """Another one each time it starts."""
    relayers: dict[int, str]
    """Whom it pays with, by shard."""
    http_port: Annotated[int, Meta(ge=0, le=MAX_PORT)]
    """Of its REST interface, at the host of its WebSocket; 0 until it listens there."""
    by_number: Literal[True]
    """It answers under the number of a record, whatever request id its body has; who would not is sent nothing."""
    chain_id: str = ""
    """Of its network; of earlier versions it is not known."""
    ready: bool = True
    """Whether it signs now: without the claims' server, say, it refuses everything. Earlier versions do not say."""


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """An accepted transaction will never run, or could not; `hashes` are those its client may know it by."""

    number: int
    hashes: list[Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]]
    reason: str
    chain_hash: Annotated[str, Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    """Its hash on the chain, of one that was signed; edges of earlier versions leave it out of what they tell."""


class Submitted(NamedTuple):
    """A client's message, as its edge passes it on."""

    channel: int
    number: int
    marked: int
    """`strict_json.marks` of the body."""
    client: str
    authorization: str
    body: bytes
    """As it came: what is wrong with it is judged here, and its request id is the edge's matter."""


_hello = msgspec.json.Decoder(Hello)
_refusal = msgspec.json.Decoder(Refusal)
_encode = msgspec.json.Encoder().encode


class WireError(ValueError):
    """The other side does not speak this protocol."""


def submit(channel: int, number: int, marked: int, client: str, authorization: str, body: bytes) -> bytes:
    """A submission. Raises `WireError` for an address or a header that is longer than any real one."""
    named, shown = client.encode(), authorization.encode()
    if len(named) + len(shown) > HEAD_BYTES // 2:
        raise WireError("the Authorization header is too long")
    return b"".join((_SUBMIT.pack(SUBMIT, channel, number, marked, len(named), len(shown)), named, shown, body))


def read_submit(record: bytes) -> Submitted:
    """The same, read. Raises `WireError`."""
    try:
        _, channel, number, marked, named, shown = _SUBMIT.unpack_from(record)
        start = _SUBMIT.size + named
        client = record[_SUBMIT.size : start].decode()
        return Submitted(
            channel, number, marked, client, record[start : start + shown].decode(), record[start + shown :]
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(str(error)) from None


def left(channel: int) -> bytes:
    """The client of a channel has gone."""
    return _CHANNEL.pack(LEFT, channel)


def hello(said: Hello) -> bytes:
    """Who a relayer is."""
    return HELLO + _encode(said)


def read_hello(record: bytes) -> Hello:
    """The same, read. Raises `WireError`."""
    try:
        return _hello.decode(record[1:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(str(error)) from None


def reply(channel: int, number: int, body: bytes) -> bytes:
    """The answer to a submission: a JSON object without the `requestId`."""
    return _REPLY.pack(REPLY, channel, number) + body


def read_reply(record: bytes) -> tuple[int, int, bytes]:
    """Channel, number and answer. Raises `WireError`."""
    try:
        _, channel, number = _REPLY.unpack_from(record)
    except struct.error as error:
        raise WireError(str(error)) from None
    return channel, number, record[_REPLY.size :]


def announce(channel: int, tx_hash: bytes) -> bytes:
    """A transaction of the channel is accepted and about to leave; its client wants to hear of its end."""
    return _CHANNEL.pack(ANNOUNCE, channel) + tx_hash


def read_announce(record: bytes) -> tuple[int, bytes]:
    """Channel and hash. Raises `WireError`."""
    channel, tx_hash = read_channel(record), record[_CHANNEL.size :]
    if len(tx_hash) != HASH_BYTES:
        raise WireError("a hash of another length")
    return channel, tx_hash


def read_channel(record: bytes) -> int:
    """The channel that a record is of. Raises `WireError`."""
    try:
        return int(_CHANNEL.unpack_from(record)[1])
    except struct.error as error:
        raise WireError(str(error)) from None


def rest(channel: int, seconds: float) -> bytes:
    """Nothing more is to be read from a client for so long."""
    return _REST.pack(REST, channel, seconds)


def read_rest(record: bytes) -> tuple[int, float]:
    """Channel and seconds. Raises `WireError`."""
    try:
        _, channel, seconds = _REST.unpack(record)
    except struct.error as error:
        raise WireError(str(error)) from None
    if not 0 <= seconds <= MAX_REST:
        raise WireError("a rest of no length that there is")
    return channel, seconds


def close(channel: int, code: int, reason: str) -> bytes:
    """A client's connection is to be closed."""
    return _CLOSE.pack(CLOSE, channel, code) + reason.encode()


def read_close(record: bytes) -> tuple[int, int, str]:
    """Channel, code and reason. Raises `WireError`."""
    try:
        _, channel, code = _CLOSE.unpack_from(record)
        reason = record[_CLOSE.size :].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(str(error)) from None
    if not 1000 <= code <= 4999 or code in UNSENT:
        raise WireError(f"a connection cannot be closed with {code}")
    return channel, code, reason


def refused(refusal: Refusal) -> bytes:
    """An accepted transaction will never run, or could not."""
    return REFUSED + _encode(refusal)


def read_refused(record: bytes) -> Refusal:
    """The same, read. Raises `WireError`."""
    try:
        return _refusal.decode(record[1:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(str(error)) from None


def ask(number: int, tx_hash: bytes) -> bytes:
    """What is known of a transaction? Asked of who stands by."""
    return _ASK.pack(ASK, number, tx_hash)


def read_ask(record: bytes) -> tuple[int, bytes]:
    """Number and hash. Raises `WireError`."""
    try:
        _, number, tx_hash = _ASK.unpack(record)
    except struct.error as error:
        raise WireError(str(error)) from None
    return number, tx_hash


def known(number: int, status: int, body: bytes) -> bytes:
    """The answer, as over HTTP."""
    return _KNOWN.pack(KNOWN, number, status) + body


def read_known(record: bytes) -> tuple[int, int, bytes]:
    """Number, status and body. Raises `WireError`."""
    try:
        _, number, status = _KNOWN.unpack_from(record)
    except struct.error as error:
        raise WireError(str(error)) from None
    if status not in (200, 404, 503):
        raise WireError("a status of no answer that there is")
    return number, status, record[_KNOWN.size :]


def records(data: bytes) -> Iterator[bytes]:
    """The records of a message. Raises `WireError`."""
    place = 0
    while place < len(data):
        if place + _LENGTH.size > len(data):
            raise WireError("a record without its length")
        (size,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        if not size or place + size > len(data):
            raise WireError("a record that is not whole")
        yield data[place : place + size]
        place += size


class Outbox:
    """Records leave together when the event loop has done what was at hand: one write for all of them."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._parts: list[bytes] = []
        self._size = 0
        self._is_due = False

    def put(self, record: bytes) -> None:
        """Send a record soon, in the order of calls."""
        self.add(record)
        self.set_out()

    def add(self, record: bytes) -> None:
        """Send a record with the next ones that leave."""
        if self._size + len(record) > JOINED_BYTES:
            self.flush()
        self._parts += (_LENGTH.pack(len(record)), record)
        self._size += len(record) + _LENGTH.size

    def set_out(self) -> None:
        """Send soon what there is."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._flush_due)

    def flush(self) -> None:
        """Send what there is."""
        if self._parts:
            joined = b"".join(self._parts)
            self._parts, self._size = [], 0
            self._send(joined)

    def _flush_due(self) -> None:
        self._is_due = False
        self.flush()
