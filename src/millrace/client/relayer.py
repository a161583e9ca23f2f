"""Client of the relayer's WebSocket: subscriptions, submissions and the messages that follow."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict, deque
from typing import Any, Self

import aiohttp
import msgspec

from millrace.chain.transaction import Transaction, to_json
from millrace.runtime.tasks import end_tasks

_KEPT_PER_TOPIC = 1024  # unread messages of one topic; beyond it the oldest is forgotten
_MAX_MESSAGE = 4 * 1024 * 1024


class RelayerError(Exception):
    """The relayer refused a request, or the connection ended; `reply` is the refusal, if there was one."""

    def __init__(self, text: str, reply: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.reply = reply or {}


class RelayerClient:
    """One connection to `/ws`. Use it as an async context manager.

    Messages are kept per topic (the newest 1024 unread of each) until `next_message` takes them.
    """

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        self._url = url
        self._timeout = timeout
        self._ids = itertools.count(1)
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._unread: defaultdict[str, deque[dict[str, Any]]] = defaultdict(lambda: deque(maxlen=_KEPT_PER_TOPIC))
        self._arrived = asyncio.Event()
        self._http: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession()
        try:
            self._socket = await self._http.ws_connect(self._url, max_msg_size=_MAX_MESSAGE)
        except aiohttp.ClientError:
            await self._http.close()
            raise
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._reader is not None:
            await end_tasks([self._reader])
        if self._http is not None:
            await self._http.close()

    async def subscribe(self, topic: str) -> None:
        """Subscribe to a topic (`tx-status/{hash}`); returns once acknowledged. Raises `RelayerError`."""
        await self._request({"action": "subscribe", "topic": topic})

    async def unsubscribe(self, topic: str) -> None:
        """End a subscription; returns once acknowledged. Raises `RelayerError`."""
        await self._request({"action": "unsubscribe", "topic": topic})
        self._unread.pop(topic, None)

    async def relay(self, *transactions: Transaction) -> dict[str, Any]:
        """Have the relayer co-sign and broadcast; the reply names hashes and failures, see `interface`."""
        return await self._submit("relay", transactions)

    async def broadcast(self, *transactions: Transaction) -> dict[str, Any]:
        """Have fully signed transactions broadcast; the same reply as `relay`."""
        return await self._submit("broadcast", transactions)

    async def next_message(self, topic: str, timeout: float) -> dict[str, Any]:
        """The oldest unread message of `topic`. Raises `TimeoutError` after `timeout` seconds without one."""
        async with asyncio.timeout(timeout):
            while not self._unread[topic]:
                self._arrived.clear()
                if self._reader is None or self._reader.done():
                    raise RelayerError("the connection to the relayer has ended")
                await self._arrived.wait()
        return self._unread[topic].popleft()

    async def _submit(self, action: str, transactions: tuple[Transaction, ...]) -> dict[str, Any]:
        body: dict[str, Any] = {"action": action}
        if len(transactions) == 1:
            body["tx"] = to_json(transactions[0])
        else:
            body["txs"] = [to_json(transaction) for transaction in transactions]
        return await self._request(body)

    async def _request(self, body: dict[str, Any]) -> dict[str, Any]:
        if self._socket is None:
            raise RelayerError("not connected: use `async with`")
        request_id = str(next(self._ids))
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[request_id] = reply
        try:
            await self._socket.send_str(msgspec.json.encode(body | {"requestId": request_id}).decode())
            async with asyncio.timeout(self._timeout):
                answer = await reply
        finally:
            del self._replies[request_id]
        if answer.get("status") == "fail":
            raise RelayerError(f"{body['action']}: {answer.get('reason')}", answer)
        return answer

    async def _read(self) -> None:
        assert self._socket is not None
        try:
            async for frame in self._socket:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    self._take(msgspec.json.decode(frame.data))
        finally:
            self._arrived.set()
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(RelayerError("the connection to the relayer has ended"))

    def _take(self, message: dict[str, Any]) -> None:
        if "action" in message:
            reply = self._replies.get(str(message.get("requestId")))
            if reply is not None and not reply.done():
                reply.set_result(message)
            return
        self._unread[_topic_of(message)].append(message)
        self._arrived.set()


def _topic_of(message: dict[str, Any]) -> str:
    """The topic a pushed message belongs to, by its type and content."""
    data = message.get("data", {})
    match message.get("type"):
        case "tx-status":
            return f"tx-status/{data.get('hash')}"
        case "accountDelta":
            return f"address/{data.get('address')}"
        case kind:
            return str(kind)
