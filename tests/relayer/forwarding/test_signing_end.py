"""Edges as the relayer sees them: who is greeted with what, and how many clients they may have."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest
from relayer_edges import busy
from relayer_support import as_json, start, transfer, wallet

from millrace.relayer.forwarding import wire
from millrace.relayer.gateway import gathering
from millrace.relayer.gateway.together import Together
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.protocol import strict_json
from waiting import until

ALICE = wallet(1)
HERE = ("127.0.0.0/8",)


class Socket:
    """An edge by hand."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._records: list[bytes] = []

    async def next(self) -> bytes:
        """The next record."""
        while not self._records:
            self._records = list(wire.records(await asyncio.wait_for(self._socket.receive_bytes(), 10)))
        return self._records.pop(0)

    async def submit(self, channel: int, number: int, body: dict[str, Any], client: str = "1.2.3.4") -> None:
        """A submission in a message of its own."""
        await self.submit_bytes(channel, number, msgspec.json.encode(body), client)

    async def submit_bytes(self, channel: int, number: int, data: bytes, client: str = "1.2.3.4") -> None:
        """The same of what is no body."""
        record = wire.submit(channel, number, strict_json.marks(data), client, "", data)
        await self._socket.send_bytes(len(record).to_bytes(4, "big") + record)

    async def reply(self) -> tuple[int, int, Any]:
        """The next reply: channel, number and what it says."""
        while not (record := await self.next()).startswith(wire.REPLY):
            pass
        channel, number, body = wire.read_reply(record)
        return channel, number, msgspec.json.decode(body)


def url_of(world: Any) -> str:
    return f"ws://127.0.0.1:{world.service.port}{wire.PATH}"


def never(number: int) -> Entry:
    """Something accepted that nobody will sign."""
    return Entry(transfer(ALICE, number), b"", bytes([number + 1]) * 32, "relay", 1, 1, 0, 0)


async def test_refusals_are_told_again_to_who_missed_them(world: Any) -> None:
    """An edge that comes again hears what it has not heard of this run; a new one, or one of another run, nothing."""
    await start(world, edges=HERE, hub_url="")
    edges = world.service.edges
    for number in range(3):
        edges.tell_refused(never(number))
    async with aiohttp.ClientSession() as http:
        async with http.ws_connect(url_of(world)) as new:
            run = wire.read_hello(await Socket(new).next()).run
        none: list[int] = []
        for number, missed in (("1", [2, 3]), ("3", none), ("x", none), ("²", none), ("other:1", none)):
            heard = number if ":" in number else f"{run}:{number}"
            async with http.ws_connect(url_of(world), headers={wire.HEARD: heard}) as socket:
                edge = Socket(socket)
                assert wire.read_hello(await edge.next()).run == run
                await edge.submit(1, 7, {"action": "relay"})  # answered after what was missed
                told = []
                while (record := await edge.next()).startswith(wire.REFUSED):
                    told.append(wire.read_refused(record).number)
                assert told == missed


async def test_nobody_comes_in_through_a_proxy(world: Any) -> None:
    """A proxy may stand in the edges' network: whom it speaks for counts, and who only says so is nobody."""
    await start(world, edges=HERE, hub_url="")
    async with aiohttp.ClientSession() as http:
        for forwarded in ("6.6.6.6", "127.0.0.9, 6.6.6.6", "6.6.6.6, 127.0.0.9", "", "?"):
            async with http.ws_connect(url_of(world), headers={"X-Forwarded-For": forwarded}) as socket:
                assert (await asyncio.wait_for(socket.receive(), 10)).data == 1008
        async with http.ws_connect(url_of(world), headers={"X-Forwarded-For": "127.0.0.9"}) as socket:
            assert (await Socket(socket).next()).startswith(wire.HELLO)
    assert world.service.edges.turned_away == 5


async def test_a_large_message_that_is_not_taken_is_answered(world: Any) -> None:
    """What a relayer that ends reads no more is refused under its number, however large: nobody waits for it."""
    await start(world, edges=HERE, hub_url="")
    async with aiohttp.ClientSession() as http, http.ws_connect(url_of(world)) as socket:
        edge, tx = Socket(socket), as_json(transfer(ALICE))
        world.service.shared.stopping = True
        await edge.submit(1, 5, {"action": "relay", "tx": tx | {"data": "QUFB" * 30_000}})
        _, number, reply = await edge.reply()
    assert (number, reply["status"], reply["detail"]) == (5, "fail", "shutting down")


async def test_clients_of_edges_are_bounded(world: Any) -> None:
    """One client too many is refused, in as many words; who leaves makes room; what edges do not forward is refused."""
    await start(world, edges=HERE, hub_url="", max_connections=2)
    async with aiohttp.ClientSession() as http, http.ws_connect(url_of(world)) as socket:
        edge, tx = Socket(socket), as_json(transfer(ALICE))
        for channel, status in ((1, "completed"), (2, "completed"), (3, "fail")):
            await edge.submit(channel, channel, {"action": "relay", "tx": tx})
            found, number, reply = await edge.reply()
            assert (found, number, reply["status"]) == (channel, channel, status) and "requestId" not in reply
        assert (reply["reason"], reply["detail"]) == ("relayer busy", "too many clients of edges")
        assert world.service.edges.clients == 2
        left = wire.left(1)
        await socket.send_bytes(len(left).to_bytes(4, "big") + left)
        await edge.submit(3, 4, {"action": "relay", "tx": tx})
        assert (await edge.reply())[2]["status"] == "completed"
        await edge.submit(3, 5, {"action": "subscribe", "topic": "gasStats"})
        _, number, reply = await edge.reply()
        assert (number, reply["reason"]) == (5, "invalid message")
    await until(lambda: not world.service.edges.clients and not len(world.service.edges))


async def test_what_has_waited_at_an_edge_waits_for_nobody(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others are waited for, what an edge says has waited sets out at once."""
    monkeypatch.setattr(gathering, "INTERVAL", 3_600.0)
    await start(world, edges=HERE, hub_url="")
    world.service.shared.gathering = busy(Together(world.service.submitter).set_out, 99)
    async with aiohttp.ClientSession() as http, http.ws_connect(url_of(world)) as socket:
        edge = Socket(socket)
        await edge.submit(1, 5, {"action": "relay", "tx": as_json(transfer(ALICE))})
        await socket.send_bytes(len(wire.DEPART).to_bytes(4, "big") + wire.DEPART)
        assert (await edge.reply())[2]["status"] == "completed"


async def test_bytes_of_a_client_are_paid_for_here_too(world: Any) -> None:
    """What a client sends by edges counts against its rate of bytes at the relayer; another's does not."""
    await start(world, edges=HERE, hub_url="", receive_rate=0.001, receive_burst=4_000.0, max_message_bytes=4_000)
    async with aiohttp.ClientSession() as http, http.ws_connect(url_of(world)) as socket:
        edge, tx = Socket(socket), as_json(transfer(ALICE))
        found = []
        for number, client in enumerate(["6.6.6.6"] * 4 + ["1.1.1.1"]):
            await edge.submit(number, number, {"action": "relay", "tx": tx}, client)
            found.append((await edge.reply())[2].get("detail"))
        assert found[0] is None and found[3] == "too many bytes from this address" and found[4] is None


@pytest.mark.parametrize("length", [1, 70_000])
async def test_answers_go_by_numbers(world: Any, length: int) -> None:
    """What a client calls its request is the edge's matter: replies and refusals come under the edge's number."""
    await start(world, edges=HERE, hub_url="")
    tx = msgspec.json.encode(as_json(transfer(ALICE, data=b"x" * length))).decode()
    good = f'{{"action":"broadcast","requestId":"mine","tx":{tx}}}'
    twice = f'{{"action":"broadcast","requestId":2,"requestId":3,"tx":{tx}}}'
    async with aiohttp.ClientSession() as http, http.ws_connect(url_of(world)) as socket:
        edge = Socket(socket)
        for number, text, action in (
            (11, good, "broadcast"),
            (12, twice, "broadcast"),
            (13, "[" + "1," * length, None),
        ):
            await edge.submit_bytes(1, number, text.encode())
            _, found, reply = await edge.reply()
            assert (found, reply["action"]) == (number, action) and "requestId" not in reply
            assert number == 11 or (reply["status"], reply["reason"]) == ("fail", "invalid message")


async def test_what_cannot_be_read_counts_as_control_messages(world: Any) -> None:
    """So many submissions of a client that cannot be read are refused for that, and more for their number."""
    await start(world, edges=HERE, hub_url="", max_control_messages=2)
    async with aiohttp.ClientSession() as http, http.ws_connect(url_of(world)) as socket:
        edge = Socket(socket)
        details = []
        for number in range(3):
            await edge.submit_bytes(1, number, b'{"action":"relay","tx":{},"tx":{}}')
            details.append((await edge.reply())[2]["reason"])
    assert details == ["invalid message", "invalid message", "rate limit exceeded"]
