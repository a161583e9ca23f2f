"""Which relayer takes what, and what happens to it when one goes away, seen by clients of an edge."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from relayer_edges import FakeSigner, busy
from relayer_support import RELAYERS, as_json, connected, settings, transfer, wallet

from millrace.chain import address
from millrace.relayer.forwarding import signers as signers_module
from millrace.relayer.forwarding import upstream, wire
from millrace.relayer.forwarding.parts import Routed
from millrace.relayer.forwarding.signers import Signers
from millrace.relayer.forwarding.wire import Refusal
from millrace.relayer.gateway import gathering
from millrace.runtime.settings import Secret
from relayer.conftest import Front
from waiting import until

ALICE = wallet(1)
KEYS = {shard: address.encode(pair.public) for shard, pair in RELAYERS.items()}


@contextlib.asynccontextmanager
async def edge_before(folder: Path, *fakes: FakeSigner, **changes: Any) -> AsyncIterator[Front]:
    """An edge before these relayers."""
    front = Front(folder)
    try:
        await front.start([await fake.start() for fake in fakes], **changes)
        yield front
    finally:
        await front.stop()
        for fake in fakes:
            await fake.kill()


def relay(number: int = 0, **more: Any) -> dict[str, Any]:
    """A message that relays a transaction of ALICE."""
    return {"action": "relay", "tx": as_json(transfer(ALICE, number)), **more}


async def test_each_key_has_its_relayer(tmp_path: Path) -> None:
    """What names a key goes to who has it; a batch for both is divided, and its reply is one, in the batch's order."""
    zero, others = FakeSigner({0: KEYS[0]}), FakeSigner({1: KEYS[1], 2: KEYS[2]})
    async with edge_before(tmp_path, zero, others) as front, connected(front.ws) as client:
        txs = [as_json(transfer(wallet(shard))) for shard in (1, 0, 2, 0)]
        reply = await client.ask(action="relay", requestId="both", txs=txs)
    assert (reply["status"], reply["requestId"], len(reply["hashes"])) == ("completed", "both", 4)
    assert [item["index"] for item in reply["results"]] == [0, 1, 2, 3]
    assert (await zero.wait(1))[0]["txs"] == [txs[1], txs[3]] and (await others.wait(1))[0]["txs"] == [txs[0], txs[2]]


def test_a_sender_has_one_relayer_as_long_as_it_lives() -> None:
    """Of several with one key each sender has its own; one that goes moves nobody but its own senders."""
    urls = tuple(f"ws://10.0.0.{number}:8200" for number in range(4))
    signers = Signers(settings(Path("/nonexistent"), forward_to=urls, key_files=(), data_dir=Path("/x")), print)

    class Up:
        buffered = 0

    for each in signers.all:
        each._link = Up()  # type: ignore[assignment]
    senders = [Routed(f"erd{number}") for number in range(400)]
    before = {item: signers.choose(item) for item in senders}
    counts = [list(before.values()).count(each) for each in signers.all]
    assert min(counts) > 50
    gone = signers.all[1]
    gone._link = None
    after = {item: signers.choose(item) for item in senders}
    assert all(after[item] is before[item] for item in senders if before[item] is not gone)
    assert gone not in after.values()


async def test_what_comes_close_together_leaves_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many submit, one message has what several clients submit, and its relayer waits for no more of it."""
    monkeypatch.setattr(gathering, "INTERVAL", 3_600.0)
    fake = FakeSigner(KEYS)
    async with edge_before(tmp_path, fake) as front, connected(front.ws) as one, connected(front.ws) as two:
        signers = front.service.signers if front.service is not None else None
        assert signers is not None
        signers.gathering = busy(signers_module.depart, 2)
        await one.socket.send_json(relay(0))
        await until(lambda: signers.waiting == 1)
        assert (await two.ask(**relay(1)))["status"] == (await one.reply())["status"] == "completed"
        txs = [as_json(transfer(ALICE, number)) for number in range(gathering.LONG)]
        assert (await one.ask(action="relay", txs=txs))["status"] == "completed"
    assert fake.messages[:2] == [wire.SUBMIT * 2 + wire.DEPART, wire.SUBMIT], "what is long has nobody else set out"


async def test_who_is_not_ready_gets_nothing_new(tmp_path: Path) -> None:
    """Of two with one key the one that says it signs nothing now gets nothing, until it is ready, or neither is."""
    fakes = [FakeSigner(KEYS), FakeSigner(KEYS)]
    senders = [wallet(1, number) for number in range(8)]

    async def send(client: Any) -> list[int]:
        before = [len(fake.got) for fake in fakes]
        for sender in senders:
            assert (await client.ask(action="relay", tx=as_json(transfer(sender))))["status"] == "completed"
        return [len(fake.got) - count for fake, count in zip(fakes, before, strict=True)]

    async def say(number: int, ready: bool) -> None:
        fakes[number].hello = msgspec.structs.replace(fakes[number].hello, ready=ready)
        fakes[number].say(wire.hello(fakes[number].hello))
        url, word = f"ws://127.0.0.1:{fakes[number].port}", "ok" if ready else "not ready"
        await until(lambda: front.service.signers.state()[url] == word)

    async with edge_before(tmp_path, *fakes) as front, connected(front.ws) as client:
        assert front.service is not None and front.service.signers is not None
        usual = await send(client)
        assert 0 not in usual
        for number in range(2):
            await say(number, False)
            assert await send(client) == ([0, 8] if number == 0 else usual), "without a choice each has its own"
        await say(0, True)
        assert await send(client) == [8, 0]
        await say(1, True)
        assert await send(client) == usual


async def test_what_is_unanswered_goes_to_another_holder(tmp_path: Path) -> None:
    """A relayer dies before it answers: the same bytes go to the other that has the key, in order, and it answers."""
    dies, other = FakeSigner(KEYS, answers=False), FakeSigner(KEYS, answers=False)
    async with edge_before(tmp_path, dies, other) as front, connected(front.ws) as client:
        for number in range(3):
            await client.socket.send_json(relay(number, requestId=number))
        await until(lambda: len(dies.got) + len(other.got) >= 3)
        first, second = (dies, other) if dies.got else (other, dies)
        assert len(first.got) == 3, "a sender has one relayer"
        second.answers = True
        await first.kill()
        replies = [await client.reply() for _ in range(3)]
        assert [each.body for each in second.got] == [each.body for each in first.got]
    assert [reply["requestId"] for reply in replies] == [0, 1, 2]
    assert all(reply["status"] == "completed" for reply in replies)


async def test_nobody_else_is_asked_without_the_key(tmp_path: Path) -> None:
    """Who lacks the key would say `invalid relayer address` of what may run: it is not asked, and the client is told
    what cannot be known."""
    holder, other = FakeSigner(KEYS, answers=False), FakeSigner({0: KEYS[0]} | {1: address.encode(ALICE.public)})
    async with edge_before(tmp_path, holder, other, forward_wait=0.2) as front, connected(front.ws) as client:
        await client.socket.send_json(relay(requestId="u"))
        await holder.wait(1)
        await holder.kill()
        lost = await client.reply()
        away = await client.ask(**relay(requestId="a"))
    for reply, name in ((lost, "u"), (away, "a")):
        assert (reply["status"], reply["reason"], reply["requestId"]) == ("fail", "relayer busy", name)
        assert reply["retryAfterMs"] > 0 and reply["action"] == "relay"
    assert "not known" in lost["detail"] and "not known" not in away["detail"]
    assert other.got == []


async def test_the_same_relayer_is_asked_again_when_it_is_back(tmp_path: Path) -> None:
    """A relayer that is back in time gets the same bytes once more, and the client its answer, once."""
    fake = FakeSigner(KEYS, answers=False)
    async with edge_before(tmp_path, fake, forward_wait=10.0) as front, connected(front.ws) as client:
        await client.socket.send_json(relay(requestId="x"))
        await fake.wait(1)
        await fake.kill()
        fake.answers = True
        await fake.start()
        assert (await client.reply())["status"] == "completed"
        assert len(fake.got) == 2 and fake.got[0].body == fake.got[1].body
        fake.reply(fake.got[0])  # says it twice
        assert (await client.ask(**relay(1, requestId="y")))["requestId"] == "y"
        assert front.service is not None and front.service.signers is not None
        assert (front.service.signers.again, front.service.signers.waiting) == (1, 0)


async def test_too_much_for_a_slow_relayer_is_refused(tmp_path: Path) -> None:
    """Beyond `forward_waiting` transactions are refused at once, nothing else is; what is answered makes room."""
    slow = FakeSigner(KEYS, answers=False)
    async with edge_before(tmp_path, slow, forward_waiting=3) as front, connected(front.ws) as client:
        for number in range(3):
            await client.socket.send_json(relay(number, requestId=number))
        await slow.wait(3)
        refused = await client.ask(**relay(3, requestId="full"))
        assert (refused["reason"], refused["detail"]) == ("relayer busy", signers_module.FULL.detail)
        assert (await client.ask(action="subscribe", topic="accounts"))["status"] == "ok"
        slow.reply(slow.got[1])
        assert (await client.reply())["requestId"] == 1
        await client.socket.send_json(relay(3, requestId="room"))
        assert len(await slow.wait(4)) == 4
        assert front.service is not None and front.service.shared.refused["relayer_busy"] == 1


async def test_bytes_for_a_slow_relayer_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few transactions wait, messages that take too much room are refused, and answers make room."""
    monkeypatch.setattr(upstream, "MAX_KEPT", 1_000)
    slow = FakeSigner(KEYS, answers=False)
    async with edge_before(tmp_path, slow) as front, connected(front.ws) as client:
        large = relay(0, requestId="large")
        large["tx"]["data"] = "QUFB" * 300
        await client.socket.send_json(large)
        await slow.wait(1)
        assert (await client.ask(**relay(1, requestId="more")))["detail"] == signers_module.FULL.detail
        slow.reply(slow.got[0])
        assert (await client.reply())["requestId"] == "large"
        await client.socket.send_json(relay(1))
        await slow.wait(2)


async def test_a_clients_going_is_told(tmp_path: Path) -> None:
    """A relayer hears that a client has gone, and nothing of it is kept at the edge."""
    slow = FakeSigner(KEYS, answers=False)
    async with edge_before(tmp_path, slow) as front:
        async with connected(front.ws) as client:
            await client.socket.send_json(relay())
            await slow.wait(1)
        await until(lambda: slow.left)
        assert slow.left == [slow.got[0].channel]
        assert front.service is not None and front.service.signers is not None
        assert (front.service.signers.waiting, front.service.shared.under_way) == (0, 0)


async def test_words_for_a_client(tmp_path: Path) -> None:
    """A relayer has a client's connection closed, for its own reason; another client's stays."""
    fake = FakeSigner(KEYS)
    async with edge_before(tmp_path, fake) as front, connected(front.ws) as good, connected(front.ws) as bad:
        await good.ask(**relay())
        await bad.ask(**relay(1))
        fake.say(wire.rest(fake.got[1].channel, 0.01))
        fake.say(wire.close(fake.got[1].channel, 1008, "too many refused messages"))
        assert (await asyncio.wait_for(bad.socket.receive(), 10)).data == 1008
        assert (await good.ask(**relay(2)))["status"] == "completed"


async def test_who_is_about_to_end_gets_nothing_new(tmp_path: Path) -> None:
    """After the word that it ends a relayer still answers; what is new goes to the other."""
    one, two = FakeSigner(KEYS, answers=False), FakeSigner(KEYS, answers=False)
    async with edge_before(tmp_path, one, two) as front, connected(front.ws) as client:
        await client.socket.send_json(relay(requestId="old"))
        await until(lambda: one.got or two.got)
        ends, stays = (one, two) if one.got else (two, one)
        ends.sessions[0].send_text(b'{"type":"serverShutdown"}')
        stays.answers = True
        assert front.service is not None and front.service.signers is not None
        await until(lambda: "leaving" in front.service.signers.state().values())
        assert (await client.ask(**relay(1, requestId="new")))["requestId"] == "new"
        ends.reply(ends.got[0])
        assert (await client.reply())["requestId"] == "old"


async def test_refusals_are_heard_and_resumed(tmp_path: Path) -> None:
    """What a relayer will never sign its client hears at the edge; an edge that comes again says what it has heard."""
    fake = FakeSigner(KEYS)
    name = "ab" * 32
    async with edge_before(tmp_path, fake) as front, connected(front.ws) as client:
        await client.ask(action="subscribe", topic=f"tx-status/{name}")
        fake.say(wire.refused(Refusal(7, [name], "signer refused")))
        told = await client.push()
        assert told["data"] == {"hash": name, "status": "fail", "reason": "signer refused"}
        await fake.kill()
        await fake.start()
        await front.connected(1)
    assert fake.heard == ["", "r:7"]


async def test_nonsense_is_no_answer(tmp_path: Path) -> None:
    """A relayer that says nonsense is connected to again; its clients keep their connections."""
    fake = FakeSigner(KEYS, answers=False)
    async with edge_before(tmp_path, fake) as front, connected(front.ws) as client:
        await client.socket.send_json(relay(requestId=1))
        await fake.wait(1)
        fake.say(wire.REPLY + b"cut")
        assert len(await fake.wait(2)) == 2  # the same bytes, over another connection
        fake.reply(fake.got[1])
        assert (await client.reply())["requestId"] == 1


async def test_requests_without_an_id_are_told_apart(tmp_path: Path) -> None:
    """Replies come to who asked, in whatever order a relayer gives them, with no id or the same one."""
    fake = FakeSigner(KEYS, answers=False)
    async with edge_before(tmp_path, fake) as front, connected(front.ws) as one, connected(front.ws) as two:
        await one.socket.send_json(relay(0))
        await fake.wait(1)
        await two.socket.send_json(relay(1, requestId="same"))
        await fake.wait(2)
        await one.socket.send_json(relay(2, requestId="same"))
        await fake.wait(3)
        for submitted in reversed(fake.got):
            fake.reply(submitted)
        first, second, third = await one.reply(), await one.reply(), await two.reply()
    assert first["requestId"] == third["requestId"] == "same" and "requestId" not in second
    numbers = [int(reply["hashes"][0][:62], 16) for reply in (second, third, first)]
    assert numbers == [each.number for each in fake.got]


async def test_large_messages_keep_their_place(tmp_path: Path) -> None:
    """A large message is read in slices, and what its connection sent after it is forwarded after it."""
    fake = FakeSigner(KEYS)
    async with edge_before(tmp_path, fake) as front, connected(front.ws) as client:
        large = relay(0, requestId="large")
        large["tx"]["data"] = "QUFB" * 30_000
        await client.socket.send_str(msgspec.json.encode(large).decode())
        await client.socket.send_json(relay(1, requestId="small"))
        assert [(await client.reply())["requestId"] for _ in range(2)] == ["large", "small"]
    assert fake.got[0].number < fake.got[1].number


@pytest.mark.parametrize("kind", ["key_files", "key_env"])
async def test_an_edge_has_no_keys(tmp_path: Path, kind: str) -> None:
    """A relayer that has keys does not forward: its start says which of the two to leave out."""
    with pytest.raises(ValueError, match="an edge has no keys"):
        await Front(tmp_path).start(["ws://127.0.0.1:1"], **{kind: ("x",)})


async def test_an_edge_has_nothing_to_claim(tmp_path: Path) -> None:
    """It would hold a seat that a relayer with keys waits for: the start says which setting to leave out."""
    async with asyncio.timeout(10):
        with pytest.raises(ValueError, match="an edge claims nothing"):
            await Front(tmp_path).start(["ws://127.0.0.1:1"], claims_url=Secret("postgresql://u:p@127.0.0.1:1/none"))


async def test_an_edge_is_no_relayer_to_edges(tmp_path: Path) -> None:
    """Edges that forwarded to each other would ask in a circle: the start says which setting to leave out."""
    with pytest.raises(ValueError, match="not for other edges"):
        await Front(tmp_path).start(["ws://127.0.0.1:1"], edges=("127.0.0.0/8",))


async def test_an_answer_is_waited_for_with_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relayer that stands and never answers keeps nobody waiting for ever; what it says too late nobody hears."""
    monkeypatch.setattr(signers_module, "ANSWER_SECONDS", 0.0)
    silent = FakeSigner(KEYS, answers=False)
    async with edge_before(tmp_path, silent) as front, connected(front.ws) as client:
        late = await client.ask(**relay(requestId="late"))
        assert (late["reason"], late["detail"]) == ("relayer busy", signers_module.SILENT.detail)
        monkeypatch.undo()
        silent.reply(silent.got[0])
        silent.answers = True
        assert (await client.ask(**relay(1, requestId="next")))["requestId"] == "next"
        assert front.service is not None and front.service.signers is not None
        assert front.service.signers.waiting == 0


async def test_an_edge_that_is_not_wanted_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who cannot reach its relayer finds why in the log, once for each reason however often it is tried."""
    fake = FakeSigner(KEYS)
    async with edge_before(tmp_path, fake) as front:
        await fake.kill()
        fake.greets = False
        await fake.start()
        await until(lambda: len(fake.heard) >= 4)
        told = [record for record in caplog.records if "closed with 1008" in str(getattr(record, "error", ""))]
        assert len(told) == 1 and front.service is not None
