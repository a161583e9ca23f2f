"""Stand-ins around an edge: relayers that answer as a test tells them, and a faulty line between edge and relayer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from millrace.relayer.forwarding import wire
from millrace.relayer.forwarding.wire import Hello, Submitted
from millrace.relayer.gateway.gathering import BUSY_PACE, WINDOW_SECONDS, Gathering
from millrace.runtime import websocket


class _Nobody:
    def set_out(self) -> None:
        """It has nothing that waits."""


def busy(set_out_together: Callable[[Sequence[Any]], None], connections: int) -> Gathering[Any]:
    """A gathering at whose pace everybody waits for so many connections, and whose window never ends."""
    now = 0.0
    gathering = Gathering[Any](set_out_together, lambda: now)
    for _ in range(connections):
        gathering.join(1, 0, _Nobody())
    for _ in range(int(BUSY_PACE * WINDOW_SECONDS)):
        gathering.accepted(1)
    now += WINDOW_SECONDS
    return gathering


class FakeSigner:
    """A relayer with these keys that keeps what it is sent, and answers when it is told to."""

    def __init__(self, relayers: dict[int, str], *, answers: bool = True, run: str = "r") -> None:
        self.hello = Hello(run, relayers, 1, by_number=True)
        self.answers = answers
        self.greets = True
        """Whether it takes edges for its own."""
        self.got: list[Submitted] = []
        self.left: list[int] = []
        self.messages: list[bytes] = []
        """The kinds of the records of each message that came."""
        self.heard: list[str] = []
        """What edges said they had heard when they connected."""
        self.sessions: list[_FakeSession] = []
        self.changed = asyncio.Event()
        self.port = 0
        self._server: websocket.WsServer | None = None

    async def start(self) -> str:
        """Its address, the same each time."""

        def session(request: websocket.Request) -> websocket.Session:
            self.heard.append(request.headers.get(wire.HEARD, ""))
            return _FakeSession(self)

        self._server = await websocket.serve(session, "127.0.0.1", self.port)
        self.port = self._server.port
        return f"ws://127.0.0.1:{self.port}"

    async def kill(self) -> None:
        """Gone without a word, and its port with it."""
        if self._server is not None:
            for session in list(self.sessions):
                session.abort()
            await self._server.close(grace=0.05)
            self._server = None

    async def wait(self, count: int) -> list[dict[str, Any]]:
        """The bodies of what came, once there are so many."""
        async with asyncio.timeout(10):
            while len(self.got) < count:
                self.changed.clear()
                await self.changed.wait()
        return [msgspec.json.decode(each.body) for each in self.got]

    def say(self, record: bytes) -> None:
        """Tell every edge something."""
        for session in self.sessions:
            session.outbox.put(record)

    def reply(self, submitted: Submitted, **changes: Any) -> None:
        """Answer what came: all of it is accepted."""
        body = msgspec.json.decode(submitted.body)
        size = len(body.get("txs", [0]))
        hashes = [f"{submitted.number:062x}{place:02x}" for place in range(size)]
        results = [{"index": place, "hash": name, "clientHash": name} for place, name in enumerate(hashes)]
        answer = {"action": body["action"], "status": "completed", "hashes": hashes, "failed": [], "results": results}
        self.say(wire.reply(submitted.channel, submitted.number, msgspec.json.encode(answer | changes)))


class _FakeSession(websocket.Session):
    def __init__(self, signer: FakeSigner) -> None:
        super().__init__()
        self._signer = signer
        self.outbox = wire.Outbox(self.send_binary)

    def on_open(self) -> None:
        self._signer.sessions.append(self)
        if not self._signer.greets:
            self.close(websocket.POLICY_VIOLATION, "not an edge of this relayer", abort=True)
        self.outbox.put(wire.hello(self._signer.hello))

    def on_close(self) -> None:
        self._signer.sessions.remove(self)

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        records = list(wire.records(data))
        self._signer.messages.append(b"".join(record[:1] for record in records))
        for record in records:
            if record.startswith(wire.SUBMIT):
                submitted = wire.read_submit(record)
                self._signer.got.append(submitted)
                if self._signer.answers:
                    self._signer.reply(submitted)
            elif record.startswith(wire.LEFT):
                self._signer.left.append(wire.read_channel(record))
        self._signer.changed.set()


class Line:
    """A TCP line to a relayer that can lose what is said on either way, and be cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.loses_up = self.loses_down = False
        self.up = 0
        """Bytes that went to the relayer."""
        self.down = 0
        """Bytes that came from it, lost ones included."""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """The address that leads to the relayer."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """End every connection as a broken cable does; new ones may be made, and lose nothing."""
        self.loses_up = self.loses_down = False
        for writer in self._writers:
            writer.transport.abort()

    async def stop(self) -> None:
        """Be gone."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers |= {writer, to}

        def upwards(data: bytes) -> bool:
            self.up += len(data)
            return not self.loses_up

        def downwards(data: bytes) -> bool:
            self.down += len(data)
            return not self.loses_down

        for pair in ((reader, to, upwards), (there, writer, downwards)):
            task = asyncio.create_task(_pump(*pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: Callable[[bytes], bool]) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            if passes(data):
                writer.write(data)
    writer.transport.abort()
