"""Submissions of one connection to an edge: bounds, subscriptions made for them, and what is refused at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from relayer_edges import FakeSigner
from relayer_support import RELAYERS, as_json, connected, transfer, wallet

from millrace.chain import address
from millrace.relayer.forwarding import wire
from millrace.relayer.gateway.submitting import MAX_WAITING
from millrace.relayer.protocol import strict_json
from relayer.conftest import Front

ALICE = wallet(1)
KEYS = {shard: address.encode(pair.public) for shard, pair in RELAYERS.items()}


class Before:
    """An edge before a relayer that answers when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.signer, self.front = FakeSigner(KEYS, answers=False), Front(folder)

    async def start(self, **changes: Any) -> None:
        await self.front.start([await self.signer.start()], **changes)

    async def stop(self) -> None:
        await self.front.stop()
        await self.signer.kill()


@pytest.fixture
async def before(tmp_path: Path) -> Any:
    made = Before(tmp_path)
    try:
        yield made
    finally:
        await made.stop()


def relay(number: int = 0, **more: Any) -> dict[str, Any]:
    return {"action": "relay", "tx": as_json(transfer(ALICE, number)), **more}


async def test_submissions_under_way_are_bounded(before: Before) -> None:
    """A connection has so many submissions under way; one more is refused, an answered one makes room."""
    await before.start()
    async with connected(before.front.ws) as client:
        for number in range(MAX_WAITING):
            await client.socket.send_json(relay(number, requestId=number))
        await before.signer.wait(MAX_WAITING)
        refused = await client.ask(**relay(99, requestId="more"))
        assert (refused["requestId"], refused["detail"]) == ("more", "wait for earlier replies")
        before.signer.reply(before.signer.got[0])
        assert (await client.reply())["requestId"] == 0
        await client.socket.send_json(relay(99))
        await before.signer.wait(MAX_WAITING + 1)


async def test_a_rate_of_an_address_is_kept_at_the_edge_first(before: Before) -> None:
    """What is beyond an address's rate is refused where it comes, and no relayer hears of it."""
    await before.start(submit_rate=0.001, submit_burst=1, max_batch=1)
    before.signer.answers = True
    async with connected(before.front.ws) as client:
        assert (await client.ask(**relay(0)))["status"] == "completed"
        assert (await client.ask(**relay(1)))["reason"] == "rate limit exceeded"
    assert len(before.signer.got) == 1


async def test_subscriptions_come_before_replies(before: Before) -> None:
    """What is announced is subscribed to at once; where there is no room for it the reply says why."""
    await before.start(max_topics=1)
    names = ["1" * 64, "2" * 64]
    results = [{"index": place, "hash": name, "topic": f"tx-status/{name}"} for place, name in enumerate(names)]
    async with connected(before.front.ws) as client:
        txs = [as_json(transfer(ALICE, number)) for number in range(2)]
        await client.socket.send_json({"action": "relay", "txs": txs, "autoSubscribe": True, "requestId": "a"})
        (body,) = await before.signer.wait(1)
        assert body["autoSubscribe"] is True and body["txs"] == txs
        (submitted,) = before.signer.got
        for name in names:
            before.signer.say(wire.announce(submitted.channel, bytes.fromhex(name)))
        before.signer.reply(submitted, hashes=names, results=results)
        reply = await client.reply()
        assert reply["results"][0]["topic"] == f"tx-status/{names[0]}"
        assert reply["results"][1]["topicRefused"] == "topic limit reached" and "topic" not in reply["results"][1]
        assert before.front.service is not None
        assert len(before.front.service.shared.subscriptions) == 1


async def test_what_is_no_message_never_leaves(before: Before) -> None:
    """What cannot be read is refused at the edge, by the words of a relayer."""
    await before.start()
    async with connected(before.front.ws) as client:
        for text in (
            '{"action":"relay"}',
            '{"action":"relay","txs":[]}',
            '{"action":"relay","tx":{}',
            '{"action":"give"}',
        ):
            await client.socket.send_str(text)
            assert (await client.reply())["status"] == "fail"
        await client.socket.send_str('{"action":"subscribe","topic":"accounts","topic":"accounts"}')
        assert (await client.reply())["reason"] == "invalid message"
    assert before.signer.got == []


@pytest.mark.parametrize("length", [1, 70_000])
async def test_a_submission_leaves_as_it_came(before: Before, length: int) -> None:
    """A relayer gets the client's bytes, also those that nobody asked for: it judges what it was sent, not a copy."""
    await before.start()
    data = msgspec.json.encode(as_json(transfer(ALICE, data=b"x" * length))).decode()
    text = f'{{ "other":[{{}}],"requestId":"\\u0061", "tx":{data},\n"action":"broadcast" }}'
    async with connected(before.front.ws) as client:
        await client.socket.send_str(text)
        await before.signer.wait(1)
        (submitted,) = before.signer.got
        assert (submitted.body, submitted.marked) == (text.encode(), strict_json.marks(text.encode()))
        before.signer.reply(submitted)
        assert (await client.reply())["requestId"] == "a"


async def test_a_batch_that_is_divided_is_judged_whole(before: Before) -> None:
    """No relayer sees the whole of what is divided: a key that stands twice in it is refused at the edge."""
    other = FakeSigner({0: KEYS[0]})
    before.signer.hello = msgspec.structs.replace(before.signer.hello, relayers={1: KEYS[1], 2: KEYS[2]})
    before.signer.answers = True
    try:
        await before.front.start([await before.signer.start(), await other.start()])
        txs = msgspec.json.encode([as_json(transfer(wallet(shard))) for shard in (0, 1)]).decode()
        twice = txs.replace('"nonce":0', '"nonce":1,"nonce":0', 1)
        async with connected(before.front.ws) as client:
            await client.ask(action="relay", tx=as_json(transfer(wallet(0))))  # both have said who they are
            await client.ask(action="relay", tx=as_json(transfer(wallet(1))))
            for body in (f'"txs":{txs},"txs":{txs}', f'"txs":{twice}'):
                await client.socket.send_str(f'{{"action":"relay","requestId":7,{body}}}')
                reply = await client.reply()
                assert (reply["reason"], reply["requestId"]) == ("invalid message", 7)
            assert (len(before.signer.got), len(other.got)) == (1, 1)
            assert (await client.ask(action="relay", txs=msgspec.json.decode(txs)))["status"] == "completed"
    finally:
        await other.kill()


async def test_a_reply_that_is_none(before: Before) -> None:
    """Parts whose answers are no answers become `internal error`; the connection lives on."""
    other = FakeSigner({0: KEYS[0]}, answers=False)
    before.signer.hello = msgspec.structs.replace(before.signer.hello, relayers={1: KEYS[1], 2: KEYS[2]})
    try:
        await before.front.start([await before.signer.start(), await other.start()])
        async with connected(before.front.ws) as client:
            txs = [as_json(transfer(wallet(shard))) for shard in (0, 1)]
            await client.socket.send_json({"action": "relay", "txs": txs, "requestId": 1})
            await before.signer.wait(1)
            await other.wait(1)
            before.signer.reply(before.signer.got[0])
            other.say(wire.reply(other.got[0].channel, other.got[0].number, b'{"results":[{"index":7}]}'))
            reply = await client.reply()
            assert (reply["reason"], reply["requestId"]) == ("internal error", 1)
            assert (await client.ask(action="subscribe", topic="accounts"))["status"] == "ok"
    finally:
        await other.kill()


@pytest.mark.parametrize("said", [b"", b"{}", b"[1]", b'{"a":1', b'{"a":1} ', b'{"a":1}{"b":2}'])
async def test_one_answer_that_is_none(before: Before, said: bytes) -> None:
    """What a relayer says and is no object is `internal error` to the client, never bytes that it cannot read."""
    await before.start()
    async with connected(before.front.ws) as client:
        await client.socket.send_json(relay(requestId=1))
        await before.signer.wait(1)
        before.signer.say(wire.reply(before.signer.got[0].channel, before.signer.got[0].number, said))
        reply = await client.reply()
        assert (reply["reason"], reply["requestId"]) == ("internal error", 1)
