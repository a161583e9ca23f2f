"""What a connection reads its messages through."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.transport.tcp import tcp

from millrace.gossip.host import BufferedStream


class Socket:
    """Gives one piece each time it is asked for more, then the end or an error."""

    def __init__(self, pieces: list[bytes], error: Exception | None = None) -> None:
        self.asked = 0
        self._pieces = pieces
        self._error = error

    async def receive_some(self, most: int) -> bytes:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if self._pieces:
            piece, rest = self._pieces[0][:most], self._pieces[0][most:]
            self._pieces[:1] = [rest] if rest else []
            return piece
        if self._error is not None:
            raise self._error
        return b""


@given(
    st.lists(st.binary(min_size=1, max_size=300), max_size=8),
    st.lists(st.one_of(st.none(), st.integers(0, 400)), max_size=40),
)
def test_bytes_come_in_order_and_the_socket_is_asked_once_for_each_piece(
    pieces: list[bytes], sizes: list[int | None]
) -> None:
    """However it is read, it gives what came, at most as much as was asked for, and nothing but the end after it."""
    socket = Socket(list(pieces))
    stream = BufferedStream(socket)  # type: ignore[arg-type]

    async def read() -> bytes:
        found = b""
        for size in sizes:
            piece = await stream.read(size)
            assert size is None or len(piece) <= size
            assert piece or size == 0 or found == b"".join(pieces)
            found += piece
        while piece := await stream.read(7):
            found += piece
        return found

    assert trio.run(read) == b"".join(pieces)
    assert len(pieces) < socket.asked <= len(pieces) + len(sizes) + 1


def test_what_came_before_an_error_is_read_first() -> None:
    """A connection that is reset gives what it had told, then the library's error."""
    stream = BufferedStream(Socket([b"told"], trio.BrokenResourceError()))  # type: ignore[arg-type]

    async def read() -> None:
        assert (await stream.read(2), await stream.read(9)) == (b"to", b"ld")
        with pytest.raises(ConnectionClosedError):
            await stream.read(1)

    trio.run(read)


def test_the_library_makes_connections_of_it() -> None:
    """Both who dials and who listens has it: by the name that the library's transport makes streams from."""
    assert tcp.TrioTCPStream is BufferedStream
