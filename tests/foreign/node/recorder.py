"""What nodes tell, word for word: a consumer of theirs beside the notifier."""

from __future__ import annotations

from typing import NamedTuple

from aiohttp import WSMsgType, web

from millrace.chain import outport


class Said(NamedTuple):
    """One message of a node."""

    topic: str
    payload: bytes


class Recorder:
    """Acknowledges and keeps everything, by the node's shard in the order in which it came."""

    def __init__(self) -> None:
        self.said: dict[int, list[Said]] = {}
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application()
        app.add_routes([web.get("/save", self._node)])
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"ws://127.0.0.1:{self._runner.addresses[0][1]}/save"

    async def close(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    async def _node(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=2**28)
        await socket.prepare(request)
        async for message in socket:
            if message.type == WSMsgType.BINARY:
                told = outport.decode_envelope(message.data)
                shard = outport.shard_of_payload(told.payload)
                self.said.setdefault(shard, []).append(Said(told.topic, told.payload))
                await socket.send_bytes(outport.ack_envelope(told.counter))
        return socket
