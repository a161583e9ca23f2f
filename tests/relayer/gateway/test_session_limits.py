"""Bounds of a client address over all its connections: what it half sends, asks for and is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest
from relayer_support import BlockMaker, as_json, connected, transfer, wallet

from millrace.relayer.gateway import limits

PROXY = {"trusted_proxies": ("127.0.0.0/8",), "key_files": ()}
"""Clients of a test are of this machine; behind a trusted proxy they are who it says."""
MIB = 1024 * 1024


async def begin(client: Any, size: int) -> None:
    """The head of a frame and so much of its payload, which is not all."""
    head = b"\x81\xff" + (4 * MIB).to_bytes(8, "big") + b"\0\0\0\0"
    client.socket._writer.transport.write(head + b" " * size)


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def test_row_26_half_sent_messages_of_an_address(world: Any) -> None:
    """All connections of one address hold no more of unfinished messages than one may; others are not touched."""
    await world.start(**PROXY, receive_burst=8.0 * MIB)
    held = world.service.shared.unfinished
    async with (
        connected(world.ws, "1.2.3.4") as first,
        connected(world.ws, "1.2.3.4") as second,
        connected(world.ws, "1.2.3.4") as third,
        connected(world.ws, "5.6.7.8") as other,
    ):
        for client in (first, second):
            await begin(client, 4 * MIB - 1000)
        await until(lambda: held.total >= 7.8 * MIB)
        await third.socket.send_bytes(b" " * MIB)
        reply = await third.next()
        assert (reply["reason"], reply["retryAfterMs"]) == ("rate limit exceeded", 1000)
        assert held.total <= 8 * MIB and held.refused == 1
        assert (await third.ask(action="subscribe", topic="accounts"))["status"] == "ok"
        await other.socket.send_str(" " * MIB)
        assert (await other.next())["reason"] == "invalid message"
        first.socket._writer.transport.abort()
        await until(lambda: held.total <= 4.1 * MIB)
        await third.socket.send_str(" " * MIB)
        assert (await third.next())["reason"] == "invalid message"
    await until(lambda: held.total == 0)


async def test_row_26_half_sent_bodies_of_an_address(world: Any) -> None:
    """REST bodies on their way count to the same bound: one more is answered with 429, others are taken."""
    await world.start(**PROXY, receive_burst=8.0 * MIB)
    held = world.service.shared.unfinished
    body = msgspec.json.encode({"transactions": [as_json(transfer(wallet(1), relayed=False, gas_limit=50_000))]})
    url, kind = f"{world.http}/v1/broadcast", {"Content-Type": "application/json"}
    go_on = asyncio.Event()

    async def slowly() -> Any:
        yield b" " * (4 * MIB - 10_000)
        await go_on.wait()
        yield body

    async with aiohttp.ClientSession() as http:

        async def post(data: Any, address: str) -> int:
            async with http.post(url, data=data, headers=kind | {"X-Forwarded-For": address}) as answer:
                return answer.status

        slow = [asyncio.create_task(post(slowly(), "1.2.3.4")) for _ in range(2)]
        await until(lambda: held.total == 2 * (4 * MIB - 10_000))
        assert await post(b" " * 20_000 + body, "1.2.3.4") == 429
        assert await post(b" " * 20_000 + body, "5.6.7.8") == 200
        go_on.set()
        assert await asyncio.gather(*slow) == [200, 200]
        assert held.total == 0 and await post(body, "1.2.3.4") == 200


async def test_row_26_announced_bytes_take_no_room(world: Any) -> None:
    """Bodies of which nothing comes keep nobody out, however long they are said to be and from how many addresses."""
    await world.start(**PROXY, unfinished_bytes=8 * MIB)
    body = msgspec.json.encode({"transactions": [as_json(transfer(wallet(1), relayed=False, gas_limit=50_000))]})
    head = "POST /v1/broadcast HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    head += "X-Forwarded-For: 1.2.3.{}\r\n{}\r\n\r\n"
    lengths = (f"Content-Length: {4 * MIB}", "Transfer-Encoding: chunked")
    silent = []
    for number in range(10):
        _, writer = await asyncio.open_connection("127.0.0.1", world.service.http_port)
        writer.write(head.format(number, lengths[number % 2]).encode())
        await writer.drain()
        silent.append(writer)
    async with aiohttp.ClientSession(headers={"Content-Type": "application/json"}) as http:
        async with http.post(f"{world.http}/v1/broadcast", data=body) as answer:
            assert answer.status == 200
    for writer in silent:
        writer.close()
        await writer.wait_closed()


async def test_row_28_topics_of_an_address(world: Any) -> None:
    """All connections of one address subscribe at a bounded rate together; others, and this machine, are free."""
    await world.start(**PROXY, control_rate=0.001, control_burst=10)
    topics = [f"tx-status/{number:064x}" for number in range(6)]
    async with (
        connected(world.ws, "1.2.3.4") as first,
        connected(world.ws, "1.2.3.4") as second,
        connected(world.ws, "5.6.7.8") as other,
        connected(world.ws) as local,
    ):
        for client in (first, other, local):
            assert (await client.ask(action="subscribe", topics=topics))["status"] == "ok"
            for _ in topics[1:]:
                assert (await client.reply())["status"] == "ok"
        refused = await second.ask(action="subscribe", topics=topics, requestId="r")
        assert (refused["reason"], refused["requestId"]) == ("rate limit exceeded", "r")
        assert refused["retryAfterMs"] > 1000
        assert (await second.ask(action="subscribe", topic=topics[0]))["status"] == "ok"
        assert (await local.ask(action="unsubscribe", topics=topics))["status"] == "ok"


async def test_row_33_what_an_address_is_sent(world: Any) -> None:
    """Beyond its rate an address gets no statistics and no answers but refusals; what must be delivered comes."""
    await world.start(**PROXY, send_rate=1.0, send_burst=500.0)
    gateway, alice = world.service.gateway, wallet(1)
    async with connected(world.ws, "1.2.3.4") as first, connected(world.ws, "5.6.7.8") as other:
        for client in (first, other):
            assert (await client.ask(action="subscribe", topic="accounts"))["status"] == "ok"
        assert (await first.ask(action="subscribe", topic="networkStats"))["status"] == "ok"
        await until(lambda: gateway.shared.egress._meters["1.2.3.4"].is_over)
        reply = await first.ask(action="subscribe", topic="gasStats")
        assert reply["reason"] == "rate limit exceeded"
        skipped = gateway.shared.egress.skipped
        await until(lambda: gateway.shared.egress.skipped > skipped)
        world.hub.save(BlockMaker(1).block(accounts={alice.public: (1, 6)}))
        while (push := await first.push())["type"] != "accountDelta":
            assert push["type"] == "networkStats"
        assert (await other.push())["type"] == "accountDelta"
        assert (await other.ask(action="unsubscribe", topic="accounts"))["status"] == "ok"


async def test_row_26_half_a_message_to_the_statistics_stream(world: Any) -> None:
    """Who only listens has nothing long to say: a long frame closes with 1009 as it begins, and is held by nobody."""
    await world.start(**PROXY)
    async with connected(f"{world.ws}/stats", "1.2.3.4") as client:
        await begin(client, 100_000)
        while (message := await asyncio.wait_for(client.socket.receive(), 10)).type is aiohttp.WSMsgType.TEXT:
            pass
        assert message.data == 1009


async def test_row_34_a_header_of_several_lines(world: Any) -> None:
    """A proxy may add a line of its own to those a client made up: the last hop of the last line counts."""
    await world.start(**PROXY, submit_rate=0.001, submit_burst=1, max_batch=1)
    lines = "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-For: {}\r\nX-Forwarded-For: 127.0.0.2\r\n"
    body = b'{"transactions":[{}]}'
    head = "POST /v1/broadcast HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    statuses = []
    for client in ("1.2.3.4", "1.2.3.4", "5.6.7.8"):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.service.http_port)
        writer.write(f"{head}{lines.format(client)}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        statuses.append((await reader.readline()).split()[1])
        writer.close()
        await writer.wait_closed()
    assert statuses == [b"200", b"429", b"200"]
    upgrade = (
        "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    )
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", world.service.port)
    writer.write(f"{upgrade}{key}{lines.format('9.9.9.9')}\r\n".encode())
    assert (await reader.readline()).split()[1] == b"101"
    await until(lambda: world.service.shared.doors._open["9.9.9.9"] == 1)
    writer.close()
    await writer.wait_closed()


async def test_row_23_http_requests_of_an_address(world: Any) -> None:
    """One address asks at a bounded rate whatever it asks for; others do, and this machine at any."""
    await world.start(**PROXY, request_rate=0.001, request_burst=10)

    async def ask(path: str, address: str | None) -> tuple[int, Any]:
        headers = {"X-Forwarded-For": address} if address else {}
        async with client.get(world.http + path, headers=headers) as answer:
            return answer.status, answer.headers.get("Retry-After")

    async with aiohttp.ClientSession() as client:
        statuses = [(await ask(path, "1.2.3.4"))[0] for path in ["/health", "/nowhere"] * 5]
        assert statuses == [200, 404] * 5
        for path in ("/health", "/nowhere", "/v1/sign"):
            status, wait = await ask(path, "1.2.3.4")
            assert status == 429 and int(wait) > 100
        async with client.post(world.http + "/v1/sign", json={}, headers={"X-Forwarded-For": "1.2.3.4"}) as answer:
            assert (answer.status, list(await answer.json())) == (429, ["error"])
        assert (await ask("/health", "5.6.7.8"))[0] == 200
        assert [(await ask("/health", None))[0] for _ in range(40)] == [200] * 40


async def test_row_22_bytes_of_an_address_by_http(world: Any) -> None:
    """Bodies are read from each address at a bounded rate; what one has sent costs no other."""
    await world.start(**PROXY, max_message_bytes=2_000, receive_rate=0.001, receive_burst=2_000.0)
    body = b'{"transactions":[{}]}'.ljust(1_200)
    statuses = []
    async with aiohttp.ClientSession() as client:
        for address in ("1.2.3.4", "1.2.3.4", "5.6.7.8"):
            headers = {"X-Forwarded-For": address, "Content-Type": "application/json"}
            async with client.post(f"{world.http}/v1/broadcast", data=body, headers=headers) as answer:
                statuses.append(answer.status)
    assert statuses == [200, 429, 200]


async def test_row_51_wrong_signatures_of_an_address(world: Any) -> None:
    """Who sends one wrong signature after the other soon has no rate left; other addresses notice nothing."""
    await world.start(trusted_proxies=PROXY["trusted_proxies"], submit_rate=0.001, submit_burst=200)
    bad = transfer(wallet(1))
    bad = msgspec.structs.replace(bad, signature=bytes(64))
    async with connected(world.ws, "1.2.3.4") as flooder, connected(world.ws, "5.6.7.8") as other:
        reasons = []
        while not reasons or reasons[-1] == "invalid signature":
            reply = await flooder.ask(action="relay", tx=as_json(bad))
            reasons.append(reply["failed"][0]["reason"] if reply.get("failed") else reply["reason"])
        assert reasons[-1] == "rate limit exceeded"
        assert 15 <= len(reasons) <= 25, "0 + 1 + 2 + … beside one for each is 200 soon"
        assert (await other.ask(action="relay", tx=as_json(transfer(wallet(1)))))["status"] == "completed"


async def test_row_51_what_waits_of_who_owes_is_not_checked(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submissions that were let in before the address had to pay are refused without work."""
    await world.start(trusted_proxies=PROXY["trusted_proxies"])
    service = world.service
    go_on, really, asked = asyncio.Event(), service.signer.check, []

    async def check(transactions: list[bytes]) -> list[str]:
        asked.append(len(transactions))
        await go_on.wait()
        return list(await really(transactions))

    monkeypatch.setattr(service.signer, "check", check)
    async with connected(world.ws, "1.2.3.4") as client:
        for nonce in range(20):
            await client.socket.send_json({"action": "relay", "tx": as_json(transfer(wallet(1), nonce))})
        await until(lambda: asked)
        service.shared.submissions.charge("1.2.3.4", 10_000.0, service.shared.clock())
        go_on.set()
        replies = [await client.reply() for _ in range(20)]
    assert [reply["failed"][0]["reason"] for reply in replies] == ["rate limit exceeded"] * 20
    assert asked == [1] and len(service.lifecycle.inflight) == 0
    assert "wrong signatures" in replies[0]["failed"][0]["detail"]


async def test_row_51_who_does_not_heed_a_limit_is_not_read(world: Any) -> None:
    """Told some times that its address is beyond a rate a connection rests; it is not closed, and read again later."""
    await world.start(trusted_proxies=PROXY["trusted_proxies"], submit_rate=0.5, submit_burst=100)
    service, name = world.service, "1.2.3.4"
    tx = as_json(transfer(wallet(1)))
    async with connected(world.ws, name) as client, connected(world.ws, name) as second:
        for _ in range(100):
            await client.ask(action="relay", tx=tx)
        for number in range(limits.TOLD + 3):
            await client.socket.send_json({"action": "relay", "tx": tx, "requestId": number})
        for number in range(limits.TOLD + 1):
            assert (await client.reply())["reason"] == "rate limit exceeded", number
        session = next(item for item in service.gateway._server.sessions if item.rested)
        await until(lambda: session.postponed == 2)
        assert service.shared.unfinished.total > 0
        assert (await second.ask(action="subscribe", topic="accounts"))["status"] == "ok"
        session._read_on()
        assert (await client.reply())["reason"] == "rate limit exceeded"
        assert session.standing
    await until(lambda: not service.gateway.connections)
    assert service.shared.unfinished.total == 0, "what was postponed goes with its connection"


def masked(first: int, payload: bytes) -> bytes:
    """A client's frame."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
    return bytes([first]) + size + bytes(4) + payload


async def close_code(client: Any) -> int:
    """The code a connection is closed with, whatever is said before."""
    async with asyncio.timeout(10):
        while (message := await client.socket.receive()).type is aiohttp.WSMsgType.TEXT:
            pass
    return int(message.data)


@pytest.mark.parametrize(
    "frames",
    [
        masked(0x81, b"x") * 113,
        (masked(0x01, b"x") + masked(0x80, b"")) * 65,
        masked(0x01, b"") + masked(0x00, b"") * 64,
    ],
)
async def test_row_26_words_to_the_statistics_stream(world: Any, frames: bytes) -> None:
    """Who talks on beyond its rate to a stream that takes no messages is closed with 1008; a few words are none."""
    await world.start(**PROXY, receive_rate=0.001, receive_burst=50_000.0, max_message_bytes=50_000)
    async with connected(f"{world.ws}/stats", "1.2.3.4") as client, connected(f"{world.ws}/stats", "1.2.3.4") as quiet:
        quiet.socket._writer.transport.write(masked(0x81, b"x") * 32)
        client.socket._writer.transport.write(frames)
        assert await close_code(client) == 1008
        first = (await quiet.next())["sequence"]
        while (await quiet.next())["sequence"] < first + 2:
            pass


async def test_row_26_short_fragments_are_paid_for(world: Any) -> None:
    """A fragment costs its address no less than one of a KiB, whatever is in it; longer ones cost what they bring."""
    await world.start(**PROXY, receive_rate=0.001, receive_burst=100_000.0, max_message_bytes=100_000)
    text = b'{"action":"subscribe","topic":"accounts"}'
    short = [text[place : place + 1] for place in range(len(text))] + [b""] * 10
    long = [text, *[b" " * 1024] * 60]
    async with connected(world.ws, "1.2.3.4") as client, connected(world.ws, "5.6.7.8") as other:
        for sender, parts, answer in (
            (client, short, "ok"),
            (client, short, "rate limit exceeded"),
            (other, long, "ok"),
        ):
            first, *further = parts
            frames = [masked(0x01, first), *(masked(0x00, part) for part in further), masked(0x80, b"")]
            sender.socket._writer.transport.write(b"".join(frames))
            reply = await sender.next()
            assert answer == (reply["status"] if reply["status"] == "ok" else reply["reason"])
