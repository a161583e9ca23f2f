"""What asks for more than there is: floods of wrong signatures from many addresses, and twice what can be served.

`python benchmarks/_overload.py flood PORT ADDRESSES RATE SECONDS FILE` sends the frame in FILE from so many addresses,
RATE times a second each, whatever is answered. It prints how many it could send.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from _neighbour import _HANDSHAKE, write_frames
from millrace.chain.keys import KeyPair
from millrace.chain.transaction import Transaction, signing_message, to_json
from millrace.runtime import websocket

FLOODERS, FLOOD_RATE = 20, 500
"""Addresses, and messages a second of each: what `submit_rate` allows."""
TICK = 0.01


class _Flooder(asyncio.Protocol):
    """Writes frames in its own time, unless the other side does not read; throws answers away; comes again when cut."""

    def __init__(self, port: int, address: str) -> None:
        self._port = port
        self._address = address
        self._transport: asyncio.Transport | None = None
        self._is_open = True
        self._connecting: asyncio.Task[object] | None = None

    def send(self, frames: bytes) -> bool:
        """Write, if the other side reads; else see to it that there is another side."""
        if self._transport is None or self._transport.is_closing():
            if self._connecting is None or self._connecting.done():
                self._connecting = asyncio.create_task(self.connect())
            return False
        if self._is_open:
            self._transport.write(frames)
        return self._is_open

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            await loop.create_connection(lambda: self, "127.0.0.1", self._port, local_addr=(self._address, 0))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._is_open = transport, True
        transport.write(_HANDSHAKE)

    def pause_writing(self) -> None:
        self._is_open = False

    def resume_writing(self) -> None:
        self._is_open = True


async def flood(port: int, addresses: int, rate: float, seconds: float, frame: bytes) -> int:
    """Send for so long; how many frames went into sockets."""
    loop = asyncio.get_running_loop()
    flooders = [_Flooder(port, f"127.0.2.{number + 1}") for number in range(addresses)]
    sent, end = 0, loop.time() + seconds
    burst = max(1, round(rate * TICK))
    while loop.time() < end:
        sent += burst * sum([flooder.send(frame * burst) for flooder in flooders])
        await asyncio.sleep(TICK)
    return sent


def wrong(sender: KeyPair, relayer: bytes, chain_id: str) -> str:
    """A message to relay a transaction that somebody else signed."""
    tx = Transaction(
        nonce=0, value=0, receiver=sender.public, sender=sender.public, gas_price=10**9, gas_limit=100_000,
        chain_id=chain_id, relayer=relayer,
    )  # fmt: skip
    tx = msgspec.structs.replace(tx, signature=KeyPair.generate().sign(signing_message(tx)))
    return '{"action":"relay","tx":' + msgspec.json.encode(to_json(tx)).decode() + "}"


@contextlib.asynccontextmanager
async def flooding(core: int, port: int, seconds: float, folder: Path, message: str) -> AsyncIterator[None]:
    """A flood in a process of its own, which gives way to others on its core."""
    file = folder / "wrong"
    write_frames(file, [message])
    process = await asyncio.create_subprocess_exec(
        "taskset", "-c", str(core), "nice", "-n", "19", sys.executable, __file__, "flood",
        str(port), str(FLOODERS), str(FLOOD_RATE), str(seconds), str(file), stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Asker(websocket.Session):
    """A client that asks whenever it likes, and knows of each question how long its answer took."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[int, float] = {}
        self.taken: list[float] = []
        """Seconds of the answers that something was accepted, …"""
        self.refused: list[float] = []
        """… and of the others."""
        self.last = b""
        """The latest answer that accepted nothing."""
        self._answered = asyncio.Event()

    def ask(self, number: int, batch: bytes, due: float, *, subscribe: bool = False) -> None:
        self._asked[number] = due
        self._answered.clear()
        wish = b"true" if subscribe else b"false"
        self.send_text(b'{"action":"relay","requestId":%d,"autoSubscribe":%b,"txs":%b}' % (number, wish, batch))

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        reply = msgspec.json.decode(data)
        if "requestId" not in reply:  # a goodbye
            return
        took = time.perf_counter() - self._asked.pop(reply["requestId"])
        (self.taken if reply.get("hashes") else self.refused).append(took)
        if not reply.get("hashes"):
            self.last = data
        if not self._asked:
            self._answered.set()

    async def all_answered(self) -> None:
        if self._asked:
            await self._answered.wait()


async def one_by_one(port: int, work: list[bytes], pause: float) -> float:
    """The median time of a client's answers that waits for each; nearly all have to be accepted."""
    asker = Asker()
    await websocket.connect(f"ws://127.0.0.1:{port}/ws", asker)
    for number, batch in enumerate(work):
        asker.ask(number, batch, time.perf_counter())
        await asker.all_answered()
        await asyncio.sleep(pause)
    asker.close()
    assert len(asker.taken) >= 0.95 * len(work), f"somebody who behaves was refused: {asker.last!r}"
    return statistics.median(asker.taken)


async def offer(port: int, work: list[list[bytes]], pause: float) -> tuple[list[float], list[float]]:
    """Each connection sends its batches at its pace whatever is answered; times of the accepted and of the others."""
    askers = [Asker() for _ in work]
    await asyncio.gather(*(websocket.connect(f"ws://127.0.0.1:{port}/ws", asker) for asker in askers))

    async def send(position: int) -> None:
        due = time.perf_counter() + pause * position / len(work)
        for number, batch in enumerate(work[position]):
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            askers[position].ask(number, batch, time.perf_counter())
            due += pause
        await askers[position].all_answered()
        askers[position].close()

    await asyncio.gather(*map(send, range(len(work))))
    return [took for asker in askers for took in asker.taken], [took for asker in askers for took in asker.refused]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["flood", port, addresses, rate, seconds, path]:
            print("ready", flush=True)
            frame = Path(path).read_bytes()
            print(asyncio.run(flood(int(port), int(addresses), float(rate), float(seconds), frame)), flush=True)
        case _:
            sys.exit(__doc__)
