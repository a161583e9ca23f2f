"""A noisy neighbour in a process of its own, and a stand-in for the relayer that only does what cannot be saved.

`send` takes frames made beforehand from a file and sends one each `pause` seconds over a plain socket, so that it takes
next to nothing from whoever shares its core. `serve` reads such frames and verifies, and maybe makes, as many
signatures as they hold transactions: what a neighbour costs others by being served at all on the same core.
Usage: `_neighbour.py send PORT ADDRESS PAUSE SECONDS FILE`, `_neighbour.py serve COUNT BYTES SIGNS`.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from millrace.chain.keys import KeyPair, verify

REPLY = b'{"hashes":[]}'
_HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: relayer\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def write_frames(path: Path, texts: list[str]) -> None:
    """Client frames, masked with zeros, that hold these texts, one after the other."""
    with path.open("wb") as file:
        for text in texts:
            payload = text.encode()
            size = len(payload)
            head = struct.pack("!BBH", 0x81, 0xFE, size) if size < 65_536 else struct.pack("!BBQ", 0x81, 0xFF, size)
            file.write(head + bytes(4) + payload)


def _frames(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """Whole frames with their payloads."""
    while len(head := stream.read(2)) == 2:
        size = head[1] & 0x7F
        if size > 125:
            more = stream.read(2 if size == 126 else 8)
            head, size = head + more, int.from_bytes(more, "big")
        mask = stream.read(4) if head[1] & 0x80 else b""
        payload = stream.read(size)
        yield head + mask + payload, payload


def send(port: int, address: str, pause: float, seconds: float, path: Path) -> None:
    """Wait for a line on standard input, then send for so long; the last frame again and again when they run out."""
    with path.open("rb") as file:
        frames = [frame for frame, _ in _frames(file)]
    with socket.create_connection(("127.0.0.1", port), source_address=(address, 0)) as link:
        link.sendall(_HANDSHAKE)
        stream = link.makefile("rb")
        while stream.readline().strip():
            pass
        replies = _frames(stream)
        print("ready", flush=True)
        sys.stdin.readline()
        due = time.perf_counter()
        end, sent = due + seconds, 0
        while due < end:
            time.sleep(max(0.0, due - time.perf_counter()))
            link.sendall(frames[min(sent, len(frames) - 1)])
            _, reply = next(replies)
            assert b'"hashes"' in reply, reply
            sent += 1
            due += pause
    print(sent, flush=True)


def serve(count: int, size: int, signs: bool) -> None:
    """Answer each frame after verifying `count` messages of `size` bytes, and signing as many."""
    pair, message = KeyPair.generate(), os.urandom(size)
    signature = pair.sign(message)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            link, _ = listener.accept()
            with link:
                stream = link.makefile("rb")
                while stream.readline().strip():
                    pass
                link.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
                for _ in _frames(stream):
                    for _ in range(count):
                        verify(pair.public, message, signature)
                        if signs:
                            pair.sign(message)
                    link.sendall(bytes((0x81, len(REPLY))) + REPLY)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["send", port, address, pause, seconds, path]:
            send(int(port), address, float(pause), float(seconds), Path(path))
        case ["serve", count, size, signs]:
            serve(int(count), int(size), signs == "1")
        case _:
            sys.exit(__doc__)
