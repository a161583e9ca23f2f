"""Subscriptions: reconnecting, what was missed, bounds, and many of them."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from millrace_client import Missed, Refused, Relayer, SlowReader
from millrace_client.mailbox import Mailbox
from millrace_client.messages import AccountDelta, NetworkStats
from millrace_client.moves import Places
from servers.fake_relayer import FakeRelayer, usual

WAIT = 20.0


def delta(nonce: int) -> dict[str, Any]:
    return {"type": "accountDelta", "data": {"address": "erd1a", "nonce": nonce, "balances": {"EGLD": "5"}}}


def stats(sequence: int) -> dict[str, Any]:
    parts = {"network": {}, "blocks": {}, "mempool": {}, "validators": {}, "health": {}}
    return {"type": "networkStats", "schemaVersion": "1.1.0", "sequence": sequence, "ts": 0, "data": parts}


async def test_a_lost_connection_is_said(service: FakeRelayer, relayer: Relayer) -> None:
    """After a lost connection the topic is subscribed to again, and `Missed` stands where messages may be missing."""
    async with await relayer.account("erd1a") as account:
        await service.push(delta(1))
        await service.until(lambda: len(service.sockets) == 1)
        first = await account.next(WAIT)
        assert isinstance(first, AccountDelta) and first.data.balances == {"EGLD": 5}
        await service.stop()
        await service.start()
        missed = await account.next(WAIT)
        assert isinstance(missed, Missed) and missed.why == "connection lost"
        assert missed.since is not None and missed.until is not None and missed.since <= missed.until
        assert service.topics() == ["address/erd1a"] * 2
        await service.push(delta(2))
        second = await account.next(WAIT)
        assert isinstance(second, AccountDelta) and second.data.nonce == 2
    assert service.requests[-1] == {"action": "unsubscribe", "topic": "address/erd1a", "requestId": "3"}


async def test_two_connections_lost_at_once_are_one_time(service: FakeRelayer, relayer: Relayer) -> None:
    """A client that is moved on before it could ask for its topic again hears from when on nothing was heard."""

    def silent(request: dict[str, Any]) -> dict[str, Any] | None:
        return None if request["action"] == "subscribe" else usual(request)

    async with await relayer.account("erd1a") as account:
        service.answer = silent
        service.sockets.clear()
        service.abort()
        await service.until(lambda: len(service.topics()) == 2)
        second = time.time()
        service.answer = usual
        service.abort()
        missed = await account.next(WAIT)
        assert isinstance(missed, Missed) and missed.since is not None and missed.since < second
        assert service.topics() == ["address/erd1a"] * 3


async def test_numbers_left_out_are_said(service: FakeRelayer, relayer: Relayer) -> None:
    """A jump of `sequence` comes as a `Missed` with how many; a connection of its own begins anew."""
    subscription = await relayer.network_stats()
    await service.until(lambda: len(service.stats) == 1)
    for sequence in (4, 5, 8):
        await service.stats[0].send_json(stats(sequence))
    seen = [await subscription.next(WAIT) for _ in range(4)]
    assert [item.sequence for item in seen if isinstance(item, NetworkStats)] == [4, 5, 8]
    assert isinstance(seen[2], Missed) and seen[2].count == 2
    await subscription.close()


async def test_a_topic_that_is_refused(service: FakeRelayer, relayer: Relayer) -> None:
    """A refused topic is an exception; one refused when the connection is back ends the subscription with it."""
    service.answer = lambda request: {"action": "subscribe", "status": "fail", "reason": "unknown topic", "code": "u"}
    with pytest.raises(Refused, match="unknown topic"):
        await relayer.subscribe("nonsense")
    service.answer = usual
    account = await relayer.account("erd1a")
    service.answer = lambda request: {"action": "subscribe", "status": "fail", "reason": "not any more", "code": "u"}
    await service.stop()
    await service.start()
    with pytest.raises(Refused, match="not any more"):
        await account.next(WAIT)


async def test_what_cannot_be_read_ends_nothing(service: FakeRelayer, relayer: Relayer) -> None:
    """Messages of unknown kinds and broken ones are passed over."""
    async with await relayer.account("erd1a") as account:
        await service.push({"type": "somethingNew", "data": 1})
        await service.push({"type": "accountDelta"})
        await service.push(delta(9))
        message = await account.next(WAIT)
        assert isinstance(message, AccountDelta) and message.data.nonce == 9


async def test_more_topics_than_a_connection_holds(service: FakeRelayer, relayer: Relayer) -> None:
    """Beyond what a connection may hold and ask for, another one is made."""
    subscriptions = await asyncio.gather(*(relayer.account(f"erd1{number}") for number in range(130)))
    assert len(service.sockets) == 3
    assert sorted(service.topics()) == sorted(f"address/erd1{number}" for number in range(130))
    assert len(subscriptions) == 130


async def test_a_slow_reader_by_policy() -> None:
    """`drop` counts what went, `latest` keeps the newest in silence, `close` ends with `SlowReader`."""
    dropping: Mailbox[int] = Mailbox("t", 2, "drop")
    for number in range(5):
        dropping.put(number)
    assert await dropping.get() == Missed(topic="t", why="reader too slow", count=3)
    assert [await dropping.get(), await dropping.get()] == [3, 4]
    latest: Mailbox[int] = Mailbox("t", 9, "latest")
    for number in range(5):
        latest.put(number)
    assert await latest.get() == 4
    closing: Mailbox[int] = Mailbox("t", 2, "close")
    for number in range(5):
        closing.put(number)
    assert [await closing.get(), await closing.get()] == [0, 1]
    with pytest.raises(SlowReader):
        await closing.get()


async def test_what_is_missed_twice_is_said_once() -> None:
    """Two lost connections without a message in between are one span; a full mailbox does not forget it."""
    mailbox: Mailbox[int] = Mailbox("t", 1, "drop")
    mailbox.missed(Missed(topic="t", why="connection lost", since=1.0, until=2.0))
    mailbox.missed(Missed(topic="t", why="connection lost", since=3.0, until=4.0))
    mailbox.put(1)
    assert await mailbox.get() == Missed(topic="t", why="connection lost", since=1.0, until=4.0)
    assert await mailbox.get() == 1


async def test_what_was_missed_does_not_pile_up() -> None:
    """Spans between which every message was left out become one, of several reasons too."""
    for policy in ("latest", "drop"):
        box: Mailbox[int] = Mailbox("t", 2, policy)  # type: ignore[arg-type]
        for number in range(50):
            why = "connection lost" if number % 2 else "left out by the service"
            box.missed(Missed(topic="t", why=why, since=float(number), until=number + 0.5))
            box.put(number)
        box.end()
        seen = [item async for item in box]
        spans = [item for item in seen if isinstance(item, Missed)]
        assert len(seen) <= 6 and seen[-1] == 49
        assert {part for span in spans for part in span.why.split(" and ")} >= {"connection lost"}
        assert min(span.since for span in spans if span.since is not None) == 0.0
        assert max(span.until for span in spans if span.until is not None) == 49.5


async def other_relayer() -> FakeRelayer:
    other = FakeRelayer()
    await other.start()
    return other


async def test_a_service_that_ends_sends_its_clients_elsewhere(service: FakeRelayer, relayer: Relayer) -> None:
    """At its moment, and when what it asked is answered, a client goes where it is sent and subscribes again."""
    other = await other_relayer()

    def withheld(request: dict[str, Any]) -> dict[str, Any] | None:
        return None if request["action"] == "relay" else usual(request)

    try:
        async with await relayer.account("erd1a") as account:
            service.answer = withheld
            asked = asyncio.create_task(relayer._link().request({"action": "relay", "tx": {}}))
            await service.until(lambda: service.requests[-1]["action"] == "relay")
            moves = [f"ftp://{other.ws_url}", other.ws_url.removesuffix("/ws")]
            await service.push({"type": "serverShutdown", "moveTo": moves, "afterMs": 1})
            name = service.requests[-1]["requestId"]
            await service.push({"action": "relay", "status": "completed", "requestId": name})
            assert (await asked).request_id == name
            missed = await account.next(WAIT)
            assert isinstance(missed, Missed) and missed.why == "connection lost"
            assert other.topics() == ["address/erd1a"] and service.topics() == ["address/erd1a"]
            await other.push(delta(9))
            heard = await account.next(WAIT)
            assert isinstance(heard, AccountDelta) and heard.data.nonce == 9
    finally:
        await other.stop()


async def test_a_place_that_is_gone_is_left_for_the_next(service: FakeRelayer, relayer: Relayer) -> None:
    """Where nobody is at the place that was named, the next one is tried, and in the end the client's own address."""
    other = await other_relayer()
    gone = other.ws_url.removesuffix("/ws")
    await other.stop()
    async with await relayer.account("erd1a") as account:
        await service.push({"type": "serverShutdown", "moveTo": [gone]})
        service.abort()
        assert isinstance(await account.next(WAIT), Missed)
        assert service.topics() == ["address/erd1a"] * 2


BAD_WORDS: list[dict[str, Any]] = [
    {"moveTo": ["ws://[x", "ws://one:99999", "ws:", "ws://", "ws://a..b", "ws://one:0"]},
    {"moveTo": ["ws://[x"], "afterMs": 10**400},
    {"moveTo": [None, 7], "afterMs": "soon"},
    {"moveTo": None, "afterMs": -(10**400)},
]


@pytest.mark.parametrize("word", BAD_WORDS)
async def test_a_word_that_leads_nowhere_ends_no_client(
    service: FakeRelayer, relayer: Relayer, word: dict[str, Any]
) -> None:
    """Whatever a service says of where to go and when: the client is back at its own address afterwards."""
    async with await relayer.account("erd1a") as account:
        await service.push({"type": "serverShutdown"} | word)
        await service.push(delta(3))
        heard = await account.next(WAIT)
        if isinstance(heard, AccountDelta):  # it was not told to leave at once
            service.abort()
            heard = await account.next(WAIT)
        assert isinstance(heard, Missed) and set(service.topics()) == {"address/erd1a"}


async def test_a_service_that_sends_everybody_in_a_circle(
    service: FakeRelayer, relayer: Relayer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that sends its clients away as soon as they come is asked again after pauses."""
    pauses: list[float] = []

    def pause(low: float, _: float) -> float:
        pauses.append(low)
        return 0.0

    async with await relayer.account("erd1a") as account:
        monkeypatch.setattr(random, "uniform", pause)
        for _ in range(3):
            await service.push({"type": "serverShutdown", "moveTo": [service.ws_url.removesuffix("/ws")]})
            await service.push(delta(3))
            assert isinstance(await account.next(WAIT), AccountDelta)
            service.sockets.clear()
            service.abort()
            assert isinstance(await account.next(WAIT), Missed)
        assert len(pauses) == 3


def test_an_encrypted_connection_stays_so() -> None:
    """A service that says so cannot send a client of `wss` to an address in the clear."""
    places = Places("wss://one.example/ws/stats")
    places.send_to(["ws://two.example", "wss://three.example/"])
    assert places.url == "wss://three.example/ws/stats"
    places.failed()
    assert places.url == "wss://one.example/ws/stats"
