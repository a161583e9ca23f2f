"""What edges and relayers say to each other: every record comes back as it was said, anything else is refused."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.relayer.forwarding import wire
from millrace.relayer.forwarding.wire import Hello, Outbox, Refusal, WireError

CHANNEL, NUMBER = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@given(CHANNEL, NUMBER, CHANNEL, st.text(max_size=40), st.text(max_size=300), st.binary(max_size=500))
def test_submissions_come_back(
    channel: int, number: int, marked: int, client: str, authorization: str, body: bytes
) -> None:
    """A submission is read as it was written, whatever is in it."""
    record = wire.submit(channel, number, marked, client, authorization, body)
    assert wire.read_submit(record) == (channel, number, marked, client, authorization, body)


@given(CHANNEL, NUMBER, st.binary(max_size=100), st.text(max_size=50))
def test_the_others_come_back(channel: int, number: int, body: bytes, words: str) -> None:
    """So is every other record."""
    assert wire.read_channel(wire.left(channel)) == channel
    assert wire.read_reply(wire.reply(channel, number, body)) == (channel, number, body)
    assert wire.read_announce(wire.announce(channel, b"h" * 32)) == (channel, b"h" * 32)
    assert wire.read_rest(wire.rest(channel, 1.5)) == (channel, 1.5)
    assert wire.read_close(wire.close(channel, 1008, words)) == (channel, 1008, words)
    said, refusal = Hello(words, {0: words, 2: "b"}, 8201, True), Refusal(number % 2**53, ["0a" * 32], words)
    assert wire.read_hello(wire.hello(said)) == said
    assert wire.read_refused(wire.refused(refusal)) == refusal
    assert wire.read_ask(wire.ask(number, b"h" * 32)) == (number, b"h" * 32)
    assert wire.read_known(wire.known(number, 404, body)) == (number, 404, body)


READERS = (
    wire.read_submit, wire.read_channel, wire.read_reply, wire.read_announce, wire.read_rest, wire.read_close,
    wire.read_hello, wire.read_refused, wire.read_ask, wire.read_known,
)  # fmt: skip


@pytest.mark.parametrize("read", READERS)
@given(st.binary(max_size=60))
def test_anything_else_is_refused(read: object, data: bytes) -> None:
    """Bytes that nobody has said are read, or refused with `WireError`: nothing else happens."""
    assert callable(read)
    with contextlib.suppress(WireError):
        read(data)


NOBODY_SAYS = (
    (wire.read_known, wire.known(1, 999, b"{}")),
    (wire.read_hello, wire.hello(Hello("r", {}, 65_536, True))),
    (wire.read_hello, wire.hello(Hello("r", {}, -1, True))),
    (wire.read_hello, wire.HELLO + b'{"run":"r","relayers":{},"httpPort":1}'),  # of who would answer by request ids
    (wire.read_hello, wire.HELLO + b'{"run":"r","relayers":{},"httpPort":1,"byNumber":false}'),
    (wire.read_refused, wire.refused(Refusal(1, ["no hash"], ""))),
    (wire.read_rest, wire.rest(1, math.inf)),
    (wire.read_rest, wire.rest(1, math.nan)),
    (wire.read_rest, wire.rest(1, -1.0)),
    (wire.read_close, wire.close(1, 1006, "")),
    (wire.read_close, wire.close(1, 7, "")),
)


@pytest.mark.parametrize(("read", "record"), NOBODY_SAYS)
def test_what_could_not_be_done_is_refused(read: Callable[[bytes], object], record: bytes) -> None:
    """A port, a hash, a rest or a code that there is not is refused where it is read, before anybody acts on it."""
    with pytest.raises(WireError):
        read(record)


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=20))
async def test_records_leave_together(said: list[bytes]) -> None:
    """What is put while the event loop is at work leaves in one message, whole and in order."""
    sent: list[bytes] = []
    outbox = Outbox(sent.append)
    for record in said:
        outbox.put(record)
    assert sent == []
    await asyncio.sleep(0)
    assert len(sent) == (1 if said else 0)
    assert [record for data in sent for record in wire.records(data)] == said


async def test_long_records_leave_by_themselves() -> None:
    """A message is no longer than the bound, unless one record is."""
    sent: list[bytes] = []
    outbox = Outbox(sent.append)
    said = [bytes([number]) * (wire.JOINED_BYTES // 2) for number in range(1, 4)] + [b"x" * (2 * wire.JOINED_BYTES)]
    for record in said:
        outbox.put(record)
    outbox.flush()
    await asyncio.sleep(0)
    assert [record for data in sent for record in wire.records(data)] == said
    assert all(len(data) <= wire.JOINED_BYTES + 8 for data in sent[:-1]) and len(sent) >= 3


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0\0", b"\0\0\0\5abcd", b"\0\0\0\1a\0\0"])
def test_cut_messages_are_refused(data: bytes) -> None:
    """A message that ends within a record, or has an empty one, is refused."""
    with pytest.raises(WireError):
        list(wire.records(data))


def test_a_header_too_long_is_refused() -> None:
    """What cannot be in a record is not cut: it is refused."""
    with pytest.raises(WireError):
        wire.submit(1, 1, 1, "1.2.3.4", "x" * wire.HEAD_BYTES, b"{}")
