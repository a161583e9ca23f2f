"""An edge before a relayer that signs: what is lost on the way, who is believed, who is sent elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from relayer_edges import Line
from relayer_later import LaterMaker, results_of
from relayer_support import RELAYERS, BlockMaker, as_json, connected, entry_of, start, transfer, wallet

from millrace.chain import outport
from millrace.chain.transaction import Transaction, chain_hash, client_hash, early_hashes
from millrace.relayer.forwarding import wire
from millrace.relayer.gateway import drain, gateway
from millrace.relayer.signing.handle import SignerError
from millrace.relayer.signing.wire import Answer
from millrace.runtime import websocket
from millrace.runtime.settings import Secret
from millrace.system.ports import free_ports
from relayer.conftest import Front
from relayer.nasty import mutated, spoilt
from servers.haproxy import HAProxy
from waiting import until

ALICE, BOB = wallet(1), wallet(1, 3)
HERE = ("127.0.0.0/8",)
LIMIT = "too many transactions from this address"


@contextlib.asynccontextmanager
async def edge(world: Any, name: str = "edge", url: str = "", **changes: Any) -> AsyncIterator[Front]:
    """One more edge before the relayer of this world."""
    front = Front(Path(world.folder) / name)
    hub = {"hub_url": world.urls["hub_url"]}
    try:
        await front.start([url or f"ws://127.0.0.1:{world.service.port}"], **(hub | changes))
        await until(lambda: front.service is None or front.service.hub.connected)
        yield front
    finally:
        await front.stop()


@contextlib.asynccontextmanager
async def line_to(world: Any) -> AsyncIterator[tuple[Line, str]]:
    """A line to the relayer of this world, and its address."""
    line = Line(world.service.port)
    try:
        yield line, await line.start()
    finally:
        await line.stop()


async def get(url: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_lost_message_is_sent_again(world: Any, way: str) -> None:
    """Whichever way a message was lost, after the connection is made again its client has the one answer there is."""
    await start(world, edges=HERE)
    async with line_to(world) as (line, url), edge(world, url=url) as front, connected(front.ws) as client:
        await client.ask(action="relay", tx=as_json(transfer(BOB)))
        line.loses_up, line.loses_down = way == "up", way == "down"
        up, down = line.up, line.down
        tx = as_json(transfer(ALICE))
        await client.socket.send_json({"action": "relay", "requestId": "lost", "tx": tx, "autoSubscribe": True})
        await until(lambda: line.up > up if way == "up" else line.down > down)
        if way == "down":
            await until(lambda: len(world.service.lifecycle.inflight) == 2)
        line.cut()
        reply = await client.reply()
        assert (reply["status"], reply["requestId"]) == ("completed", "lost")
        assert (await client.ask(action="relay", tx=tx))["hashes"] == reply["hashes"]
        assert len(world.service.lifecycle.inflight) == 2
        (entry,) = (each for each in world.service.lifecycle.inflight.entries() if each.tx.sender == ALICE.public)
        world.hub.save(BlockMaker(1).block([entry.tx]))
        assert (await client.push())["data"] == {"hash": reply["hashes"][0], "status": "success"}
        status, known = await get(f"{front.http}/v1/transactions/{reply['hashes'][0]}")
        assert (status, known["action"]) == (200, "relay")


async def no_signatures(_: list[bytes]) -> list[Any]:
    """A signing process that is being replaced."""
    raise SignerError("down")


async def test_a_relayer_that_dies_and_comes_back(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a relayer journalled before it went is answered by the one that comes back, and can be asked for then."""
    monkeypatch.setattr(gateway, "ANSWER_SECONDS", 0.1)
    await start(world, edges=HERE, sign_wait=60.0)
    service = world.service
    port = service.port
    async with edge(world, forward_wait=30.0) as front, connected(front.ws) as client:
        service.signer.sign = no_signatures  # what is journalled now waits for its signature
        tx = transfer(ALICE)
        await client.socket.send_json({"action": "relay", "requestId": 1, "tx": as_json(tx)})
        await until(lambda: service.journal.records == 1)
        await world.stop()
        status, body = await get(f"{front.http}/v1/transactions/{client_hash(tx).hex()}")
        assert status == 503 and "cannot be reached" in body["error"]
        await world.start(edges=HERE, port=port)
        reply = await client.reply()
        assert reply["results"][0]["clientHash"] == client_hash(tx).hex()
        status, known = await get(f"{front.http}/v1/transactions/{client_hash(tx).hex()}")
        assert (status, known["state"]) == (200, "pending")


async def test_the_first_greeting_is_whole(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edge that connects before its relayer has ended its start hears all there is to know, the HTTP port too."""
    await start(world, edges=HERE)
    port, listen = world.service.port, gateway.Gateway.start
    async with edge(world) as front:
        assert front.service is not None and front.service.signers is not None
        (upstream,) = front.service.signers.all
        first, said = upstream.said, []

        async def greet(self: gateway.Gateway, doors: Any = None) -> int:
            port = await listen(self, doors)
            await until(lambda: upstream.said != first)
            said.append(upstream.said)
            return port

        await world.stop()
        monkeypatch.setattr(gateway.Gateway, "start", greet)
        await world.start(edges=HERE, port=port)
        assert [hello.http_port for hello in said] == [world.service.http_port]


async def test_an_edge_that_dies(world: Any) -> None:
    """A client whose edge died sends the same bytes by another edge and gets the same hash; its status comes there."""
    await start(world, edges=HERE)
    async with edge(world, "one") as one, edge(world, "two") as two:
        tx = as_json(transfer(ALICE))
        async with connected(one.ws) as client:
            first = await client.ask(action="relay", tx=tx)
            await one.stop()
        async with connected(two.ws) as client:
            again = await client.ask(action="relay", tx=tx, autoSubscribe=True)
            assert again["hashes"] == first["hashes"]
            (entry,) = world.service.lifecycle.inflight.entries()
            world.hub.save(BlockMaker(1).block([entry.tx]))
            assert (await client.push())["data"]["hash"] == first["hashes"][0]


async def test_limits_count_a_client_over_all_edges(world: Any) -> None:
    """An address has one rate at the relayer, by whichever edge and interface it comes; another has its own."""
    await start(world, edges=HERE, submit_rate=0.001, submit_burst=4, max_batch=2)
    proxy: dict[str, Any] = {"trusted_proxies": HERE}
    async with edge(world, "one", **proxy) as one, edge(world, "two", **proxy) as two:
        pairs = [[as_json(transfer(ALICE, nonce)) for nonce in (first, first + 1)] for first in (0, 2, 4)]
        async with connected(one.ws, "1.2.3.4") as client, connected(two.ws, "1.2.3.4") as same:
            assert (await client.ask(action="relay", txs=pairs[0]))["status"] == "completed"
            assert (await same.ask(action="relay", txs=pairs[1]))["status"] == "completed"
            for each in (client, same):
                refused = await each.ask(action="relay", requestId="r", txs=pairs[2])
                assert (refused["reason"], refused["detail"]) == ("rate limit exceeded", LIMIT)
        async with aiohttp.ClientSession() as http:
            body = {"transactions": pairs[2]}
            for address, status in (("1.2.3.4", 429), ("2001:db8::1", 200)):
                headers = {"X-Forwarded-For": address}
                async with http.post(f"{one.http}/v1/relay", json=body, headers=headers) as answer:
                    assert answer.status == status, await answer.text()
        origins = {entry.ip for entry in world.service.lifecycle.inflight.entries()}
        assert origins == {"1.2.3.4", "2001:db8::/64"}


async def test_wrong_signatures_cost_their_client(world: Any) -> None:
    """Whoever sends wrong signatures by an edge pays for them at the relayer; who sends right ones does not."""
    await start(world, edges=HERE, submit_rate=0.001, submit_burst=20, max_batch=20)
    async with edge(world, trusted_proxies=HERE) as front:
        wrong = [as_json(transfer(BOB, nonce)) | {"signature": "00" * 64} for nonce in range(10)]
        async with connected(front.ws, "6.6.6.6") as bad, connected(front.ws, "1.1.1.1") as good:
            assert (await bad.ask(action="relay", txs=wrong))["failed"][0]["reason"] == "invalid signature"
            assert (await bad.ask(action="relay", txs=wrong))["detail"] == LIMIT
            assert (await good.ask(action="relay", tx=as_json(transfer(ALICE))))["status"] == "completed"


PEOPLE = f"""
[people.shop]
keys = ["{"0" * 64}"]
"""
WRONG_KEY = {"Authorization": "Bearer wrong-key"}


async def test_a_flood_closes_its_own_connection(world: Any) -> None:
    """A client that keeps sending what the relayer refuses is closed with 1008 at its edge; others stay."""
    await start(world, PEOPLE, edges=HERE)
    async with edge(world) as front, connected(front.ws) as good, aiohttp.ClientSession(headers=WRONG_KEY) as http:
        async with http.ws_connect(front.ws) as bad:
            tx = as_json(transfer(BOB))
            for _ in range(700):  # 256 are refused at the edge, and as many at the relayer
                with contextlib.suppress(ConnectionError):
                    await bad.send_json({"action": "relay", "tx": tx})
            async with asyncio.timeout(20):
                while (message := await bad.receive()).type is aiohttp.WSMsgType.TEXT:
                    pass
            assert message.data == 1008
            assert (await good.ask(action="relay", tx=as_json(transfer(ALICE))))["status"] == "completed"


async def test_an_api_key_goes_along(world: Any) -> None:
    """The relayer judges a client's API key as if it had come itself: a wrong one by both interfaces."""
    await start(world, PEOPLE, edges=HERE)
    async with edge(world) as front, aiohttp.ClientSession(headers=WRONG_KEY) as http:
        body = as_json(transfer(ALICE))
        async with http.ws_connect(front.ws) as socket:
            await socket.send_json({"action": "relay", "tx": body})
            assert (await asyncio.wait_for(socket.receive_json(), 10))["reason"] == "invalid api key"
        async with http.post(f"{front.http}/v1/relay", json={"transactions": [body]}) as answer:
            assert answer.status == 401


async def test_only_edges_are_believed(world: Any) -> None:
    """Who is in no network of edges cannot forward, nor where there are none; what an edge says wrongly ends it."""
    await start(world, edges=("10.0.0.0/8",))
    url = f"ws://127.0.0.1:{world.service.port}{wire.PATH}"
    async with aiohttp.ClientSession() as http:
        async with http.ws_connect(url) as socket:
            assert (await asyncio.wait_for(socket.receive(), 10)).data == 1008
        assert world.service.edges.turned_away == 1
        await world.stop()
        await world.start()
        with pytest.raises(aiohttp.WSServerHandshakeError, match="404"):
            await http.ws_connect(f"ws://127.0.0.1:{world.service.port}{wire.PATH}")
        await world.stop()
        await world.start(edges=HERE)
        async with http.ws_connect(f"ws://127.0.0.1:{world.service.port}{wire.PATH}") as socket:
            await asyncio.wait_for(socket.receive(), 10)
            await socket.send_bytes(b"\0\0\0\1S")
            assert (await asyncio.wait_for(socket.receive(), 10)).data == 1003


async def test_what_will_never_be_signed_is_told_at_the_edge(world: Any) -> None:
    """What was accepted without a signing process, and the next one refuses, fails for clients of the edge, too."""
    await start(world, edges=HERE, sign_wait=0)
    service = world.service

    async def refuses(items: list[bytes]) -> list[Any]:
        return [Answer(refusal="no") for _ in items]

    async with edge(world) as front, connected(front.ws) as client:
        service.signer.sign = no_signatures
        reply = await client.ask(action="relay", tx=as_json(transfer(ALICE)), autoSubscribe=True)
        assert reply["results"][0]["state"] == "pending" and reply["results"][0]["topic"]
        service.signer.sign = refuses
        await service.cosigner.sign_missed()
        assert (await client.push())["data"] == {
            "hash": reply["hashes"][0], "status": "fail", "reason": "signer refused",
        }  # fmt: skip


async def test_what_could_not_be_executed_is_told_at_the_edge(world: Any) -> None:
    """Where no node names what its block could not execute, clients of an edge hear of it by each of its hashes, in the
    words they would hear at the relayer; who sends it again there hears its second end."""
    await start(world, edges=HERE)
    maker = LaterMaker(1, start_ms=time.time_ns() // 1_000_000 + 1_000)

    def execute(whole: Transaction, *ran: Transaction) -> None:
        block = maker.propose([whole])
        carrier = maker.propose([], [maker.execute(block, ran)])
        world.hub.save(block)
        world.hub.save(carrier, final=False)
        for result in results_of(carrier):
            world.hub.push(outport.EXECUTED_BLOCK, result)
        world.hub.finalise(carrier)

    async with edge(world) as front, connected(front.ws) as client:
        tx = transfer(ALICE)
        for name in early_hashes(tx):
            await client.ask(action="subscribe", topic=f"tx-status/{name.hex()}")
        reply = await client.ask(action="relay", tx=as_json(tx), autoSubscribe=True)
        (entry,) = world.service.lifecycle.inflight.entries()
        execute(entry.tx)
        told = {data.pop("hash"): data for data in [(await client.push())["data"] for _ in range(3)]}
        (name,) = reply["hashes"]
        failed = {"status": "fail", "reason": "not executable in block"}
        early = {each.hex(): failed | {"chainHash": name} for each in early_hashes(tx)}
        assert told == {name: failed, **early}
        again = await client.ask(action="relay", tx=as_json(tx), autoSubscribe=True)
        assert again["results"][0]["topic"] == f"tx-status/{name}"
        maker.start_ms = time.time_ns() // 1_000_000
        execute(entry.tx, entry.tx)
        assert (await client.push())["data"] == {"hash": name, "status": "success"}


async def test_relayers_of_an_edge(world: Any) -> None:
    """An edge tells its wallets the keys of who signs; of who is away that they are not ready, or that nobody is."""
    await start(world, edges=HERE)
    async with edge(world) as front:
        _, told = await get(f"{front.http}/v1/relayers")
        assert len(told["relayers"]) == len(RELAYERS) and {item["state"] for item in told["relayers"]} == {"ready"}
        _, health = await get(f"{front.http}/health")
        assert health["role"] == "edge" and set(health["signers"].values()) == {"ok"}
        assert (await get(f"{front.http}/ready"))[0] == 200
        await world.stop()
        assert (await get(f"{front.http}/v1/relayers"))[0] == 503
        assert (await get(f"{front.http}/ready"))[0] == 503


async def test_what_arrives_at_an_edge(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edge tells the rate and the queue of what came through it and was accepted: what was refused, only signed or
    is sent again is in neither, what a block has or an answer says has ended is not in the queue."""
    await start(world, edges=HERE)
    maker = BlockMaker(1)
    async with edge(world) as front, connected(front.ws) as client, aiohttp.ClientSession(front.http) as http:
        assert front.service is not None
        statistics, arrived = front.service.statistics, list[bytes]()
        submitted = statistics.submitted
        monkeypatch.setattr(statistics, "submitted", lambda tx, **more: (arrived.append(tx), submitted(tx, **more)))

        def mempool() -> Any:
            return statistics.payload(0)["mempool"]

        txs = [as_json(transfer(ALICE, nonce)) for nonce in range(3)]
        assert (await client.ask(action="relay", txs=[*txs, as_json(transfer(ALICE, 9))]))["status"] == "partial"
        await client.ask(action="relay", tx=txs[0])
        async with http.post("/v1/sign", json={"transactions": [as_json(transfer(ALICE, 3))]}) as answer:
            assert (await answer.json())["failed"] == []
        assert mempool()["estimatedQueue"] == 3 and mempool()["ingressTps"] > 0
        sent = [entry.tx for entry in world.service.lifecycle.inflight.entries() if entry.broadcast]
        world.hub.save(maker.block(sent))
        await until(lambda: front.service is not None and front.service.tracker.has_ended(chain_hash(sent[0])))
        assert (await client.ask(action="relay", tx=txs[0]))["hashes"] == [chain_hash(sent[0]).hex()]
        assert mempool()["estimatedQueue"] == 0

        async def until_final() -> Any:
            body = {"transactions": [as_json(transfer(BOB))]}
            async with http.post("/v1/relay?wait=final", json=body) as answer:
                return (await answer.json())["results"][0]["transaction"]["state"]

        waiting = asyncio.ensure_future(until_final())
        inflight = world.service.lifecycle.inflight
        await until(lambda: any(entry.sending for entry in inflight.of_sender(BOB.public).values()))
        last = entry_of(world, transfer(BOB)).tx
        world.hub.save(maker.block([last]))
        assert await waiting == "success"
        assert mempool()["estimatedQueue"] == 0 and arrived == [chain_hash(tx) for tx in (*sent, sent[0], last)]


async def test_clients_are_sent_elsewhere(world: Any) -> None:
    """Drained by its operator an edge lets nobody in, tells each client where to go and when, and serves till then."""
    await start(world, edges=HERE)
    token = "a token of sixteen"
    moves: dict[str, Any] = {"move_to": ("ws://one", "ws://two"), "move_seconds": 1.0, "operators_token": Secret(token)}
    moves["move_notice"] = 0.0
    async with edge(world, **moves) as front, aiohttp.ClientSession() as http:
        assert front.service is not None
        async with connected(front.ws) as client, connected(f"{front.ws}/stats") as stats:
            operators = f"http://127.0.0.1:{front.service.metrics_port}"
            for _ in range(2):  # the second time changes nothing
                headers = {"Authorization": f"Bearer {token}"}
                async with http.post(f"{operators}/control/drain", headers=headers) as answer:
                    assert (answer.status, await answer.json()) == (202, {"draining": True, "connections": 2})
            told = [await client.push()]
            while (message := await stats.next())["type"] != "serverShutdown":
                pass
            told.append(message)
            assert {each["moveTo"][0] for each in told} == {"ws://one", "ws://two"}
            assert sorted(each["afterMs"] // 500 for each in told) == [0, 1], "each has its own part of the second"
            with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
                await http.ws_connect(front.ws)
            assert (await get(f"{front.http}/ready"))[0] == 503
            reply = await client.ask(action="relay", tx=as_json(transfer(ALICE)), autoSubscribe=True)
            (entry,) = world.service.lifecycle.inflight.entries()
            world.hub.save(BlockMaker(1).block([entry.tx]))
            assert (await client.push())["data"]["hash"] == reply["hashes"][0]


async def test_who_stays_on_a_drained_edge_is_closed(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is left after its moment and a while is told once more and closed with 1001, though the edge goes on."""
    monkeypatch.setattr(drain, "LATE_SECONDS", 0.3)
    await start(world, edges=HERE)
    async with edge(world, move_notice=0.0, move_seconds=0.2) as front, connected(front.ws) as stays:
        assert front.service is not None
        front.service.gateway.send_away()
        assert "afterMs" in await stays.push()
        assert await stays.push() == {"type": "serverShutdown"}
        assert (await asyncio.wait_for(stays.socket.receive(), 10)).data == 1001
        assert (await get(f"{front.http}/health"))[1]["draining"] is True


async def test_whom_a_balancer_still_sends_is_let_in(world: Any) -> None:
    """Until balancers can have seen that an edge is drained, newcomers are let in, and told at once when to go."""
    await start(world, edges=HERE)
    async with edge(world, move_notice=60.0, move_seconds=10.0) as front, connected(front.ws) as client:
        assert front.service is not None
        front.service.gateway.send_away()
        for path in ("", "/stats"):
            async with connected(f"{front.ws}{path}") as late:
                while (message := await late.next())["type"] != "serverShutdown":
                    pass
                assert 55_000 < message["afterMs"] < 70_000
        assert 59_000 < (await client.push())["afterMs"] < 70_000
        assert (await get(f"{front.http}/ready"))[0] == 503


async def test_streams_go_on_without_anybody_who_signs(world: Any, tmp_path: Path) -> None:
    """An edge without a relayer is ready for streams alone: behind the sample new clients are let in, also when its
    checks have seen that, and a relay is answered in the public words."""
    await start(world)
    (nobody,) = free_ports(1)
    alone: dict[str, Any] = {"url": f"ws://127.0.0.1:{nobody}", "up": 0, "trusted_proxies": HERE}
    async with edge(world, **alone) as front:
        assert front.service is not None
        assert await get(f"{front.http}/ready?for=streams") == (200, {"ready": True, "relayers": {}})
        assert await get(f"{front.http}/ready") == (503, {"ready": False, "relayers": {}})
        assert (await get(f"{front.http}/ready?for=all"))[0] == 400
        balancer = HAProxy(tmp_path, [("127.0.0.1", front.service.port, front.service.http_port)])
        base, host = f"http://{balancer.address}", {"Host": "relay.example"}
        try:
            await balancer.restart()
            async with aiohttp.ClientSession(base, headers=host) as http:

                async def has_nobody() -> bool:
                    async with http.get("/ready") as answer:
                        return answer.content_type != "application/json"

                await until(has_nobody)
                async with http.post("/v1/relay", json={"transactions": [as_json(transfer(ALICE))]}) as answer:
                    assert answer.status == 503
                    assert (await answer.json())["error"].startswith("relayer busy: the relayer that signs for it")
                async with http.ws_connect("/ws/stats") as stats:
                    assert "networkStats" in await asyncio.wait_for(stats.receive_str(), 10)
        finally:
            await asyncio.to_thread(balancer.kill)
        front.service.gateway.send_away()
        assert (await get(f"{front.http}/ready?for=streams"))[0] == 503


async def test_an_end_waits_for_those_who_move(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that ends and has where to send its clients waits for them; who stays is closed in the end."""
    monkeypatch.setattr(drain, "LATE_SECONDS", 0.3)
    await start(world, edges=HERE)
    async with edge(world, move_to=("ws://other",), move_notice=0.0, move_seconds=0.2) as front:
        async with connected(front.ws) as goes, connected(front.ws) as stays:
            ending = asyncio.create_task(front.stop())
            for client in (goes, stays):
                assert (await client.push())["moveTo"] == ["ws://other"]
            assert (await goes.ask(action="relay", tx=as_json(transfer(ALICE))))["status"] == "completed"
            await goes.socket.close()
            assert await stays.push() == {"type": "serverShutdown", "moveTo": ["ws://other"]}
            assert (await asyncio.wait_for(stays.socket.receive(), 10)).data == 1001
            await ending


class Talk(websocket.Session):
    """A client that sends what bytes it likes, and takes one answer for each message."""

    def __init__(self) -> None:
        super().__init__()
        self._said: asyncio.Queue[Any] = asyncio.Queue()

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        self._said.put_nowait(msgspec.json.decode(data))

    async def ask(self, text: bytes) -> Any:
        """What is answered to a message."""
        self.send_text(text)
        return await asyncio.wait_for(self._said.get(), 20)


async def test_an_edge_answers_as_its_relayer_does(world: Any) -> None:
    """Whatever is sent, spoilt or not, the answer is the same at an edge as at the relayer, id and words included."""
    names = "max_control_messages", "submit_rate", "submit_burst", "receive_rate", "receive_burst"
    bounds = dict.fromkeys(names, 10**9) | {"max_batch": 3}
    await start(world, edges=HERE, **bounds)
    chance = random.Random(4711)
    good = [as_json(transfer(wallet(shard), nonce)) for shard in range(3) for nonce in range(2)]
    async with connected(world.ws) as client:  # from now on their answers stay the same
        for tx in good:
            await client.ask(action="relay", tx=tx)
    async with edge(world, **bounds) as front:
        for _ in range(5):
            direct, by_edge = Talk(), Talk()  # so many refusals on one connection would close it
            await websocket.connect(f"ws://127.0.0.1:{world.service.port}/ws", direct)
            await websocket.connect(front.ws, by_edge)
            for number in range(60):
                some = chance.sample(good, chance.randrange(5))
                given: dict[str, Any] = chance.choice(({"tx": chance.choice(good)}, {"txs": some}))
                message = {"action": chance.choice(("relay", "broadcast")), "requestId": number, **given}
                text = json.dumps(mutated(chance, message) if chance.random() < 0.4 else message).encode()
                text = spoilt(chance, text) if chance.random() < 0.4 else text
                assert await by_edge.ask(text) == await direct.ask(text), text[:1_000]
            direct.close()
            by_edge.close()
    assert world.service.shared.under_way == 0
