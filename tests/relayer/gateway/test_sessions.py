"""The public WebSocket: every control reply and limit, and one clear answer to each bad input."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from itertools import pairwise
from typing import Any

import aiohttp
import msgspec
import pytest
from relayer_support import BlockMaker, as_json, connected, transfer, wallet

from millrace.chain import address
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import TransactionJson, chain_hash, client_hash, from_json
from millrace.relayer.gateway.limits import Connections
from millrace.relayer.gateway.sessions import PublicSession
from millrace.relayer.statistics import streams
from millrace.runtime import websocket
from millrace.runtime.websocket.frames import PONG, frame
from waiting import until

FRONTS = "relayer", "edge"
"""Clients come to the relayer itself, and to an edge before it."""


def topic_of(number: int) -> str:
    return f"tx-status/{hashlib.sha256(str(number).encode()).hexdigest()}"


async def test_subscribe_and_unsubscribe(world: Any) -> None:
    """Each topic of a message is acknowledged by itself, in order, with the request id."""
    await world.start()
    async with connected(world.ws) as client:
        reply = await client.ask(action="subscribe", topics=["accounts", topic_of(1)], requestId=7)
        assert reply == {"action": "subscribe", "status": "ok", "topic": "accounts", "requestId": 7}
        assert (await client.reply())["topic"] == topic_of(1)
        reply = await client.ask(action="unsubscribe", topic="accounts")
        assert reply == {"action": "unsubscribe", "status": "ok", "topic": "accounts"}
        alice = wallet(1)
        world.hub.save(BlockMaker(1).block(accounts={alice.public: (1, 5)}))
        await client.ask(action="subscribe", topic="accounts")
        world.hub.save(BlockMaker(2).block(accounts={wallet(2).public: (1, 6)}))
        assert (await client.push())["data"]["balances"] == {"EGLD": "6"}


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("nothing", "unknown topic"),
        ("", "unknown topic"),
        ("gasstats", "unknown topic"),
        ("address/erd1qqq", "invalid bech32 address in topic"),
        ("address/", "invalid bech32 address in topic"),
        ("address/" + address.encode(wallet(0).public).upper(), "invalid bech32 address in topic"),
        ("tx-status/" + "0" * 63, "invalid transaction hash in topic"),
        ("tx-status/" + "0" * 65, "invalid transaction hash in topic"),
        ("tx-status/" + "g" * 64, "invalid transaction hash in topic"),
    ],
)
async def test_bad_topics(world: Any, topic: str, reason: str) -> None:
    """A topic that means nothing is refused with its reason, and the connection lives on."""
    await world.start(key_files=())
    async with connected(world.ws) as client:
        for action in ("subscribe", "unsubscribe"):
            reply = await client.ask(action=action, topic=topic, requestId="x")
            assert (reply["status"], reply["reason"], reply["requestId"]) == ("fail", reason, "x")
        assert (await client.ask(action="subscribe", topic="accounts"))["status"] == "ok"


BAD = [
    b"",
    b"x",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"action":"subscribe","topic":"\xff"}',
    b'{"action":"subscribe","topic":"accounts","x":"\xff"}',
    b'{"action":"fly"}',
    b'{"action":7}',
    b"{}",
    b'{"action":"subscribe"}',
    b'{"action":"subscribe","topic":5}',
    b'{"action":"subscribe","topics":"accounts"}',
    b'{"action":"subscribe","topic":"accounts","topic":"accounts"}',
    b'{"action":"relay"}',
    b'{"action":"relay","tx":{},"txs":[{}]}',
    b'{"action":"relay","txs":{}}',
    b'{"action":"relay","tx":{"nonce":1,"nonce":2}}',
    b'{"action":"relay","tx":' + b"[" * 100_000,
    b'{"action":"subscribe","topic":' + b'{"a":' * 50_000,
    b'{"action":"subscribe","topic":"accounts","n":' + b"9" * 1_000_000 + b"}",
    b'{"action":"subscribe","topic":"accounts","requestId":"' + b"x" * 300 + b'"}',
    b'{"action":"subscribe","topic":"accounts","requestId":{}}',
]


async def test_unreadable_messages(world: Any) -> None:
    """Whatever cannot be read is answered with one reply, and the connection lives on."""
    await world.start(key_files=(), max_control_messages=1000)
    async with connected(world.ws) as client:
        for data in BAD:
            await client.socket.send_frame(data, aiohttp.WSMsgType.TEXT)
            reply = await client.next()
            if b"9" * 1000 in data:
                assert reply["status"] in ("ok", "fail")
            else:
                assert (reply["status"], reply["reason"]) == ("fail", "invalid message"), data[:80]
        await client.socket.send_bytes(b"{}")
        assert (await client.next())["reason"] == "invalid message"
        reply = await client.ask(action="unsubscribe", topic="accounts", requestId="still here")
        assert reply["requestId"] == "still here"


async def test_limit_64_control_messages_in_5_seconds(world: Any) -> None:
    """The 65th control message within five seconds is answered with how long to wait; the connection stays."""
    await world.start(key_files=())
    async with connected(world.ws) as client, connected(world.ws) as other:
        for number in range(64):
            action = "subscribe" if number % 2 == 0 else "unsubscribe"
            assert (await client.ask(action=action, topic="accounts"))["status"] == "ok"
        reply = await client.ask(action="subscribe", topic="accounts", requestId="r")
        assert (reply["reason"], reply["requestId"]) == ("rate limit exceeded", "r")
        assert 0 < reply["retryAfterMs"] <= 5000
        assert (await other.ask(action="subscribe", topic="accounts"))["status"] == "ok"


async def test_limit_64_topics(world: Any) -> None:
    """The 65th topic of a connection is refused."""
    await world.start(key_files=(), max_control_messages=100)
    async with connected(world.ws) as client:
        for number in range(64):
            assert (await client.ask(action="subscribe", topic=topic_of(number)))["status"] == "ok"
        assert (await client.ask(action="subscribe", topic=topic_of(64)))["reason"] == "topic limit reached"


async def test_limit_message_size(world: Any) -> None:
    """A message over 4 MiB closes with 1009; one of exactly 4 MiB is answered."""
    await world.start(key_files=())
    limit = 4 * 1024 * 1024
    async with connected(world.ws) as client:
        frame = b'{"action":"subscribe","topic":"accounts","x":"'
        frame += b"y" * (limit - len(frame) - 2) + b'"}'
        await client.socket.send_frame(frame, aiohttp.WSMsgType.TEXT)
        assert (await client.next())["status"] == "ok"
        await client.socket.send_frame(b" " * (limit + 1), aiohttp.WSMsgType.TEXT)
        assert (await client.socket.receive()).data == 1009


async def test_flood_is_cut(world: Any) -> None:
    """Whoever keeps sending what is refused loses the connection with 1008; others do not notice."""
    await world.start(key_files=())
    async with connected(world.ws) as client, connected(world.ws) as other:
        for _ in range(257):
            await client.socket.send_str("nonsense")
        replies = 0
        while (message := await client.socket.receive()).type is aiohttp.WSMsgType.TEXT:
            replies += 1
        assert message.data == 1008 and replies == 257
        assert (await other.ask(action="subscribe", topic="accounts"))["status"] == "ok"


async def test_refused_topics_are_one_refused_message(world: Any) -> None:
    """Each bad topic of a message is answered; whoever names many of them in a few messages keeps the connection."""
    await world.start(key_files=())
    async with connected(world.ws) as client:
        for _ in range(3):
            await client.socket.send_json({"action": "subscribe", "topics": [f"x{number}" for number in range(128)]})
            for number in range(128):
                reply = await client.reply()
                assert (reply["reason"], reply["topic"]) == ("unknown topic", f"x{number}")
        assert (await client.ask(action="subscribe", topic="accounts"))["status"] == "ok"


async def test_batches(world: Any) -> None:
    """A batch reports each transaction by itself; nonces of the same batch count."""
    await world.start()
    alice, bob = wallet(1), wallet(2)
    good = [transfer(alice, nonce) for nonce in range(3)]
    wrong = as_json(transfer(bob)) | {"signature": "00" * 64}
    gap = transfer(bob, 5)
    async with connected(world.ws) as client:
        txs = [as_json(good[0]), wrong, as_json(good[1]), as_json(gap), as_json(good[2])]
        reply = await client.ask(action="relay", requestId="b", txs=txs)
        assert reply["status"] == "partial" and len(reply["hashes"]) == 3
        failed = [(item["index"], item["reason"]) for item in reply["failed"]]
        assert failed == [(1, "invalid signature"), (3, "nonce too high")]
        assert [item["index"] for item in reply["results"]] == [0, 2, 4]
        reply = await client.ask(action="relay", requestId="c", txs=[wrong])
        assert reply["status"] == "failed" and reply["hashes"] == []
        reply = await client.ask(action="relay", requestId="d", txs=[{}] * 101)
        assert (reply["reason"], reply["requestId"]) == ("batch too large", "d")
        assert (await client.ask(action="broadcast", requestId="e", txs=[]))["reason"] == "empty batch"


async def test_same_bytes_again_and_other_bytes(world: Any) -> None:
    """The same bytes get the same answer, also in one batch; other bytes for the nonce are refused."""
    await world.start()
    tx = transfer(wallet(1))
    other = transfer(wallet(1), data=b"x")
    async with connected(world.ws) as client:
        first = await client.ask(action="relay", txs=[as_json(tx), as_json(tx), as_json(other)])
        assert first["hashes"][0] == first["hashes"][1] and len(first["hashes"]) == 2
        assert first["failed"][0]["code"] == "conflicting_transaction"
        again = await client.ask(action="relay", tx=as_json(tx))
        assert again["hashes"] == first["hashes"][:1]
        await world.api.wait_submitted(1)
        await asyncio.sleep(0.4)
        assert len(world.api.submitted) == 1, "what is on its way is not sent twice"


async def test_auto_subscribe(world: Any) -> None:
    """With autoSubscribe the reply names the topic that was subscribed to, and its status comes."""
    await world.start()
    tx = transfer(wallet(1), relayed=False)
    async with connected(world.ws) as client:
        reply = await client.ask(action="broadcast", tx=as_json(tx), autoSubscribe=True)
        assert reply["results"][0]["topic"] == f"tx-status/{chain_hash(tx).hex()}"
        failing = {chain_hash(tx): "wrong number"}
        world.hub.save(BlockMaker(1).block([tx], failing=failing))
        push = await client.push()
        assert push["data"] == {
            "hash": chain_hash(tx).hex(), "status": "fail", "reason": "execution failed: wrong number",
        }  # fmt: skip


async def test_auto_subscribe_beyond_the_limit_says_so(world: Any) -> None:
    """What is accepted and has no room for its topic is told so in its own result; the others have their topics."""
    await world.start(max_topics=2)
    sent = [as_json(transfer(wallet(1), nonce)) for nonce in range(3)]
    async with connected(world.ws) as client:
        reply = await client.ask(action="relay", txs=sent, autoSubscribe=True)
    assert reply["status"] == "completed"
    assert [item.get("topicRefused") for item in reply["results"]] == [None, None, "topic limit reached"]
    assert [item.get("topic") for item in reply["results"]] == [
        f"tx-status/{reply['hashes'][0]}", f"tx-status/{reply['hashes'][1]}", None,
    ]  # fmt: skip


async def test_status_is_told_once_per_subscription_and_never_replayed(world: Any) -> None:
    """Both hashes are two subscriptions; a later one hears nothing."""
    await world.start()
    tx = transfer(wallet(1))
    async with connected(world.ws) as client:
        relayed = await client.ask(action="relay", tx=as_json(tx))
        (sent,) = await world.api.wait_submitted(1)
        whole = from_json(msgspec.convert(sent, TransactionJson))
        hashes = {client_hash(tx).hex(), relayed["hashes"][0]}
        for name in hashes:
            await client.ask(action="subscribe", topic=f"tx-status/{name}")
        block = BlockMaker(1).block([whole])
        world.hub.save(block)
        told = [await client.push(), await client.push()]
        assert {item["data"]["hash"] for item in told} == hashes
        world.hub.save(block)
        await client.ask(action="subscribe", topic="accounts")
        async with connected(world.ws) as late:
            await late.ask(action="subscribe", topic=f"tx-status/{relayed['hashes'][0]}")
            world.hub.save(BlockMaker(2).block(accounts={wallet(2).public: (1, 6)}))
            assert (await client.push())["type"] == "accountDelta"
            assert late.pushed == []


async def test_what_a_block_says_to_one_client_is_one_write(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client hears of all its transactions in a block, and of nobody else's, by a single write."""
    await world.start()
    first = [transfer(wallet(1), nonce, relayed=False) for nonce in range(3)]
    second = [transfer(wallet(1, 1), relayed=False)]
    async with connected(world.ws) as one, connected(world.ws) as other:
        for client, txs in ((one, first), (other, second)):
            await client.ask(action="broadcast", txs=[as_json(tx) for tx in txs], autoSubscribe=True)
        writes: list[bytes] = []
        send = PublicSession.send_frames

        def counted(session: PublicSession, frames: bytes) -> None:
            writes.append(frames)
            send(session, frames)

        monkeypatch.setattr(PublicSession, "send_frames", counted)
        world.hub.save(BlockMaker(1).block([*first, *second]))
        told = {(await one.push())["data"]["hash"] for _ in first}
        assert told == {chain_hash(tx).hex() for tx in first}
        assert (await other.push())["data"]["hash"] == chain_hash(second[0]).hex()
        assert len(writes) == 2


async def test_what_a_block_says_of_accounts_is_one_write_to_each(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many accounts a block changed, who hears of all, or of some, is written to once, a status with it."""
    await world.start()
    tx, people = transfer(wallet(1), relayed=False), [wallet(1, number).public for number in range(50)]
    async with connected(world.ws) as one, connected(world.ws) as two, connected(world.ws) as some:
        own = [f"address/{address.encode(pubkey)}" for pubkey in people[:3]]
        await one.ask(action="broadcast", tx=as_json(tx), autoSubscribe=True)
        for client, names in ((one, ["accounts", own[0]]), (two, ["accounts"]), (some, own)):
            assert (await client.ask(action="subscribe", topics=names))["status"] == "ok"
            for _ in names[1:]:
                assert (await client.reply())["status"] == "ok"
        writes: list[bytes] = []
        send = websocket.Session.send_frames

        def counted(session: websocket.Session, frames: bytes) -> None:
            if isinstance(session, PublicSession):
                writes.append(frames)
            send(session, frames)

        monkeypatch.setattr(websocket.Session, "send_frames", counted)
        world.hub.save(BlockMaker(1).block([tx], accounts=dict.fromkeys(people, (1, 5))))
        for client, count in ((one, 50), (two, 50), (some, 3)):
            told = [(await client.push())["data"]["address"] for _ in range(count)]
            assert sorted(told) == sorted(address.encode(pubkey) for pubkey in people[:count])
        assert (await one.push())["type"] == "tx-status", "first the accounts, then the end"
        assert len(writes) == 3


async def test_shutdown_says_goodbye(world: Any) -> None:
    """On shutdown every client hears serverShutdown, then the close code 1001."""
    await world.start(key_files=())
    async with connected(world.ws) as client:
        stopping = asyncio.ensure_future(world.stop())
        assert await client.next() == {"type": "serverShutdown"}
        assert (await client.socket.receive()).data == 1001
        await stopping


async def test_streams(world: Any) -> None:
    """gasStats comes for every shard right after the acknowledgement; /ws/stats flows on connect."""
    await world.start(key_files=())
    async with connected(world.ws) as client, connected(world.ws + "/stats") as stats:
        await client.ask(action="subscribe", topic="gasStats")
        shards = [(await client.push())["data"]["shard"] for _ in range(6)]
        assert shards == [0, 1, 2, 0, 1, 2]
        first, second = await stats.next(), await stats.next()
        assert first["type"] == "networkStats" and first["schemaVersion"] == "1.1.0"
        assert second["sequence"] > first["sequence"]
        assert second["data"]["health"]["streamSubscribers"] == 1


async def test_unknown_path_is_refused(world: Any) -> None:
    """Only /ws and /ws/stats are WebSocket endpoints."""
    await world.start(key_files=())
    with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
        async with connected(world.ws + "/other"):
            pass
    assert refusal.value.status == 404


async def test_row_27_slow_reader_is_cut_and_nobody_else(world: Any) -> None:
    """A client that reads nothing is closed once 4 MiB of what must be delivered wait; others get everything."""
    await world.start(key_files=())
    service = world.gate
    _, writer = await asyncio.open_connection("127.0.0.1", service.port, limit=1024)
    writer.write(
        b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    payload = b'{"action":"subscribe","topic":"accounts"}'
    writer.write(bytes((0x81, 0x80 | len(payload))) + bytes(4) + payload)
    await writer.drain()
    async with connected(world.ws) as other:
        await other.ask(action="subscribe", topic="accounts")
        await until(lambda: len(service.shared.subscriptions) >= 2)
        people = [wallet(1, number).public for number in range(40)]
        maker, told = BlockMaker(1), 0
        while len(service.shared.subscriptions) == 2 and told < 400_000:
            block = maker.block(accounts=dict.fromkeys(people, (maker.nonce + 1, 10**18)))
            service.events.on_event("SaveBlock", block.SerializeToString(), maker.nonce)
            final = pb.FinalizedBlock(shardID=1, headerHash=maker.previous)
            service.events.on_event("FinalizedBlock", final.SerializeToString(), maker.nonce)
            for _ in people:
                assert (await other.push())["data"]["nonce"] == maker.nonce
            told += len(people)
        assert len(service.shared.subscriptions) == 1, "the slow one is gone, the other is served"
    writer.transport.abort()


async def test_row_27_statistics_are_conflated(world: Any) -> None:
    """While anything waits for a reader statistics are left out and counted; the newest follows, and tells how many."""
    await world.start(key_files=())
    service = world.gate
    async with connected(f"{world.ws}/stats") as stats:
        slow = next(iter(service.shared.stats_sessions))
        async with connected(f"{world.ws}/stats") as other:
            seen = [[(await client.next())["sequence"]] for client in (stats, other)]
            reading = stats.socket._response.connection.transport
            reading.pause_reading()
            while not slow.buffered:  # pongs nobody asked for, which a client ignores
                slow.send_frames(frame(PONG, bytes(125)) * 1000)
            await until(lambda: service.gateway.conflated >= 3)
            reading.resume_reading()
            while slow.buffered:
                seen[0].append((await stats.next())["sequence"])
            left_out = service.gateway.conflated
            last = seen[0][-1] + left_out + 3
            for client, sequences in zip((stats, other), seen, strict=True):
                sequences += [message["sequence"] for message in await messages_until(client, last)]
    jumps = [max(later - earlier for earlier, later in pairwise(sequences)) for sequences in seen]
    assert jumps == [left_out + 1, 1], "whoever reads misses nothing, the other one as many as were left out"


async def messages_until(client: Any, sequence: int) -> list[dict[str, Any]]:
    """What comes up to this sequence, or the first one after it."""
    messages = [await client.next()]
    while messages[-1]["sequence"] < sequence:
        messages.append(await client.next())
    return messages


async def test_bytes_of_an_address(world: Any) -> None:
    """An address that sends more bytes than its bucket holds is told when to come again, on both ports."""
    await world.start(key_files=(), receive_rate=0.001, receive_burst=1_500.0, max_message_bytes=1_000)
    async with connected(world.ws) as client, aiohttp.ClientSession() as http:
        assert (await client.ask(action="subscribe", topic="accounts", x="y" * 800))["status"] == "ok"
        reply = await client.ask(action="subscribe", topic="accounts", x="y" * 800)
        assert (reply["reason"], reply["action"]) == ("rate limit exceeded", None)
        body = {"transactions": [{"x": "y" * 800}]}
        async with http.post(f"{world.http}/v1/broadcast", json=body) as answer:
            assert answer.status == 429


async def test_row_30_connections_of_a_client_are_bounded(world: Any) -> None:
    """One connection too many of one client is closed with 1008, others come in, and a closed one makes room."""
    await world.start(key_files=(), trusted_proxies=("127.0.0.0/8",), max_connections_per_client=2)

    async with aiohttp.ClientSession() as http:
        open_ = [
            await http.ws_connect(url, headers={"X-Forwarded-For": "1.2.3.4"})
            for url in (world.ws, f"{world.ws}/stats")
        ]
        refused = await http.ws_connect(world.ws, headers={"X-Forwarded-For": "::ffff:1.2.3.4"})
        assert (await asyncio.wait_for(refused.receive(), 10)).data == 1008
        other = await http.ws_connect(world.ws, headers={"X-Forwarded-For": "1.2.3.5"})
        await other.send_json({"action": "subscribe", "topic": "accounts"})
        assert (await asyncio.wait_for(other.receive_json(), 10))["status"] == "ok"
        assert world.gate.shared.doors.refused == 1
        for socket in (*open_, other):
            await socket.close()


def test_row_30_connections_are_counted_while_they_last() -> None:
    """The bound holds for each client by itself, as does the rate; this machine is not bounded."""
    doors = Connections(most=2, rate=0.1)
    assert [doors.enter("1.2.3.4", 0.0) for _ in range(3)] == [True, True, False]
    for _ in range(3):
        doors.leave("1.2.3.4")
    assert not doors.enter("1.2.3.4", 1.0), "two in an instant, then one in ten seconds"
    doors.leave("1.2.3.4")
    assert doors.enter("1.2.3.4", 11.0)
    assert all(doors.enter("127.0.0.1", 0.0) for _ in range(100))
    assert doors.refused == 2


def test_row_30_connections_opened_slowly_are_bounded_too() -> None:
    """However long ago the others were opened, there are never more than so many at once."""
    doors = Connections(most=2, rate=100.0)
    assert [doors.enter("1.2.3.4", hours * 3600.0) for hours in range(3)] == [True, True, False]
    for _ in range(2):
        doors.leave("1.2.3.4")
    assert doors.enter("1.2.3.4", 4 * 3600.0)


async def test_a_stream_subscribed_to_twice_has_one_snapshot(world: Any) -> None:
    """Subscribing again is acknowledged, and repeats no message: sequences only rise."""
    await world.start(key_files=())
    async with connected(world.ws) as client:
        for _ in range(3):
            assert (await client.ask(action="subscribe", topic="networkStats"))["status"] == "ok"
        sequences = [(await client.push())["sequence"] for _ in range(4)]
        assert sequences == sorted(set(sequences))


async def test_all_shards_in_one_message(world: Any) -> None:
    """gasStats/all says of all shards in one message what gasStats says in three, packed where that is asked for."""
    await world.start(key_files=())
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic="gasStats")
        shards = [(await client.push())["data"] for _ in range(3)]
        await client.ask(action="unsubscribe", topic="gasStats")
        client.pushed.clear()
        await client.ask(action="subscribe", topic="gasStats/all")
        assert [await client.push() for _ in range(2)] == [{"type": "gasStats/all", "data": {"shards": shards}}] * 2
        await client.ask(action="unsubscribe", topic="gasStats/all")
        client.pushed.clear()
        await client.ask(action="subscribe", topic="gasStats/all/deflate")
        for _ in range(2):
            packed = await asyncio.wait_for(client.socket.receive_bytes(), 10)
            assert msgspec.json.decode(zlib.decompress(packed)) == {"type": "gasStats/all", "data": {"shards": shards}}
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic="networkStats/deflate")
        first, second = [await asyncio.wait_for(client.socket.receive_bytes(), 10) for _ in range(2)]
        assert msgspec.json.decode(zlib.decompress(first))["type"] == "networkStats"
        assert msgspec.json.decode(zlib.decompress(second))["schemaVersion"] == "1.1.0"


async def test_a_stream_is_made_once_for_all(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many hear a packed stream, it is packed once for each change, and the same bytes go to all."""
    packed: list[bytes] = []
    real = zlib.compress

    def counting(data: bytes, level: int) -> bytes:
        packed.append(data)
        return real(data, level)

    monkeypatch.setattr(streams.zlib, "compress", counting)
    await world.start(key_files=())
    topic = "gasStats/all/deflate"
    async with connected(world.ws) as one, connected(world.ws) as two:
        for client in (one, two):
            await client.ask(action="subscribe", topic=topic)
        for client in (one, two, one, two):
            await asyncio.wait_for(client.socket.receive_bytes(), 10)
        before = len(packed)
        statistics = world.gate.statistics
        statistics.gas.add(1, [(10**9, 20)], statistics._clock())
        async with asyncio.timeout(10):
            for client in (one, two):
                while b"1000000000" not in zlib.decompress(await client.socket.receive_bytes()):
                    pass
    assert before == 1 and len(packed) == 2
