"""The same fan-out by uvicorn with websockets: `python _uvicorn_peer.py PORT CLIENTS MS BYTES FRAMES`.

A bare ASGI application: once all CLIENTS are connected it sends FRAMES text messages, BYTES in all, to each of them
every MS milliseconds. A tick that is due while one is being sent is left out. uvicorn chooses its loop's and its
WebSocket's implementation as it does by default, which are the fastest it has; nothing is compressed, as the clients
do not offer it, and no pings are sent, which the clients would have to answer.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvicorn

PORT, CLIENTS, MILLISECONDS, BYTES, FRAMES = (int(value) for value in sys.argv[1:])
TEXT = "x" * (BYTES // FRAMES - 4)
connections: dict[int, Any] = {}
complete = asyncio.Event()


async def application(scope: Any, receive: Any, send: Any) -> None:
    """One connection, until it ends."""
    await receive()
    await send({"type": "websocket.accept"})
    connections[id(send)] = send
    if len(connections) == CLIENTS:
        complete.set()
    while (await receive())["type"] != "websocket.disconnect":
        pass
    connections.pop(id(send), None)


async def tick() -> None:
    """One round to everybody."""
    for name, send in list(connections.items()):
        try:
            for _ in range(FRAMES):
                await send({"type": "websocket.send", "text": TEXT})
        except Exception:  # whatever ended it
            connections.pop(name, None)


async def main() -> None:
    config = uvicorn.Config(
        application, port=PORT, ws_ping_interval=None, lifespan="off", log_level="error", backlog=4096
    )
    serving = asyncio.create_task(uvicorn.Server(config).serve())
    await complete.wait()
    loop, period = asyncio.get_running_loop(), MILLISECONDS / 1000
    due = loop.time()
    while not serving.done():
        await tick()
        due = max(due + period, loop.time() - period)
        await asyncio.sleep(max(0.0, due - loop.time()))


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
