"""Large messages are read in slices, with the same answers as short ones."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import msgspec
from relayer_support import as_json, connected, transfer, wallet

from millrace.chain.transaction import Transaction
from millrace.relayer.protocol import large_messages, strict_json
from millrace.relayer.protocol.large_messages import LARGE

ALICE = wallet(1)


async def test_row_22_counting_lets_others_run() -> None:
    """The signs of structure of a large message are counted as of a short one, with others having their turn."""
    data = b'[{"a":1},' * 500_000
    turns = asyncio.create_task(asyncio.sleep(0))
    assert await large_messages.marks(data) == strict_json.marks(data) == 3 * 500_000
    assert turns.done()


def large(*txs: Transaction, **changes: Any) -> str:
    """A relay message so large that it is read in slices."""
    message = {"action": "relay", "requestId": "large", "txs": [as_json(tx) for tx in txs]} | changes
    text = msgspec.json.encode(message).decode()
    assert len(text) > LARGE
    return text


async def test_row_22_large_messages_keep_their_turn(world: Any) -> None:
    """A large message is read in slices; what its client submits after it is still taken after it."""
    await world.start(receive_burst=10**9)
    data = b"A" * 30_000
    async with connected(world.ws) as client:
        first = large(*(transfer(ALICE, nonce, data=data, gas_limit=50_000_000) for nonce in range(3)))
        await client.socket.send_str(first)
        await client.socket.send_str(json.dumps({"action": "relay", "tx": as_json(transfer(ALICE, 3)), "requestId": 2}))
        replies = [await client.reply(), await client.reply()]
    assert [reply["requestId"] for reply in replies] == ["large", 2]
    assert [len(reply["hashes"]) for reply in replies] == [3, 1]


async def test_row_22_large_messages_are_judged_like_short_ones(world: Any) -> None:
    """Keys that stand twice, too large batches, control messages and nonsense get the same answers in any length."""
    await world.start(receive_burst=10**9)
    long = "A" * LARGE
    async with connected(world.ws) as client:
        for text, reason in (
            (large(transfer(ALICE, data=b"A" * LARGE)).replace('"nonce"', '"nonce":0,"nonce"', 1), "invalid message"),
            (large(*[transfer(ALICE)] * 200), "batch too large"),
            (f'{{"action": "relay", "txs": [], "x": "{long}"}}', "empty batch"),
            (f'{{"action": "subscribe", "topic": "{long}"}}', "unknown topic"),
            (f'{{"action": "dance", "x": "{long}"}}', "invalid message"),
            ("[" * 2 * LARGE, "invalid message"),
            (long, "invalid message"),
        ):
            await client.socket.send_str(text)
            assert (await client.reply())["reason"] == reason
        await client.socket.send_str(f'{{"action": "subscribe", "topic": "accounts", "x": "{long}"}}')
        assert (await client.reply())["status"] == "ok"
    assert world.service.shared.under_way == 0


async def test_row_22_the_values_of_a_large_message_count(world: Any) -> None:
    """Its bytes are counted when it comes, its values when they are; a body of the REST interface no less."""
    await world.start(receive_rate=1.0, receive_burst=5_000_000)
    text = '{{"action": "relay", "txs": [{}]}}'.format(",".join(["1"] * 100_000))
    async with connected(world.ws) as client:
        await client.socket.send_str(text)
        assert (await client.reply())["reason"] == "rate limit exceeded"
        await client.socket.send_str('{"action": "subscribe", "topic": "accounts"}')
        assert (await client.reply())["status"] == "ok"
    body = text.replace("txs", "transactions")
    async with aiohttp.ClientSession() as session:
        headers = {"Content-Type": "application/json"}
        async with session.post(f"{world.http}/v1/broadcast", data=body, headers=headers) as response:
            assert response.status == 429
