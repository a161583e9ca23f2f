"""The signing process away, back, or replaced: what was accepted meanwhile is signed and sent without being asked."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from relayer_support import (
    RELAYERS,
    BlockMaker,
    Chain,
    as_json,
    connected,
    entry_of,
    settings,
    start,
    submit,
    transfer,
    wallet,
)

from millrace.chain import address
from millrace.chain.keys import verify
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import (
    TransactionJson,
    chain_hash,
    client_hash,
    early_hashes,
    from_json,
    signing_message,
    to_proto,
)
from millrace.relayer import app, upkeep
from millrace.relayer.network import publishing
from millrace.relayer.rules.slices import PART, STRETCH
from millrace.relayer.signing.handle import SignerError
from millrace.relayer.signing.wire import Answer
from millrace.relayer.submission.shares import Company
from waiting import until

ALICE = wallet(1)


async def test_a_gossip_process_that_stands_still(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is stopped and not dead everything goes to the chain API; when it goes on it is used again."""
    monkeypatch.setattr(publishing, "SILENT_SECONDS", 0.1)
    await start(world, gossip=True)
    service, process = world.service, world.service.peer._handle.pid
    os.kill(process, signal.SIGSTOP)
    try:
        assert await submit(world, transfer(ALICE), transfer(ALICE, 1), transfer(wallet(2))) == ["ok"] * 3
        sent = await world.api.wait_submitted(3)
        assert [item["nonce"] for item in sent if item["sender"] == address.encode(ALICE.public)] == [0, 1]
        assert service.broadcaster.gossip.is_silent and service.broadcaster.gossip.silences == 1
    finally:
        os.kill(process, signal.SIGCONT)
    await until(lambda: not service.broadcaster.gossip.is_silent)
    assert service.peer._handle.pid == process


def environ_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def lose_signatures(world: Any) -> None:
    """From now on the signing process gets questions to sign and its answers are lost, as if it had died in between."""

    async def lost(transactions: list[bytes]) -> list[Any]:
        raise SignerError("lost")

    world.service.signer.sign = lost


async def test_missed_signatures_are_made_up_for(world: Any) -> None:
    """What is journalled while the signing process is down is signed and broadcast when another has started."""
    await start(world, sign_wait=0)
    service = world.service
    await lose_signatures(world)
    assert await submit(world, transfer(ALICE), transfer(wallet(2))) == ["pending"] * 2
    assert await submit(world, transfer(wallet(0)), kind="sign") == ["signer unavailable"]
    del service.signer.sign
    os.kill(service.signer.pid, signal.SIGKILL)
    sent = await world.api.wait_submitted(2)
    for item in sent:
        tx = from_json(msgspec.convert(item, TransactionJson))
        assert verify(tx.relayer, signing_message(tx), tx.relayer_signature)
    async with asyncio.timeout(10):
        while any(entry.state == "journalled" for entry in service.lifecycle.inflight.entries()):
            await asyncio.sleep(0)
    assert len(sent) == 2, "what was only to be signed is signed, and not broadcast"
    assert await submit(world, transfer(wallet(0)), kind="sign") == ["ok"]


async def test_missed_signatures_after_a_rotation(world: Any) -> None:
    """A new signing process by SIGHUP makes up for the same."""
    await start(world, sign_wait=0)
    await lose_signatures(world)
    assert await submit(world, transfer(ALICE)) == ["pending"]
    await world.service.rotate()
    assert len(await world.api.wait_submitted(1)) == 1


async def test_row_41_no_block_ends_what_nobody_signed(world: Any) -> None:
    """A node that claims a block with a client hash ends nothing: what waits for its signature is signed and sent."""
    await start(world, sign_wait=0)
    service, tx = world.service, transfer(ALICE)
    await lose_signatures(world)
    assert await submit(world, tx) == ["pending"]
    lie = BlockMaker(1).block()
    for kind in (0, 120):
        mini = pb.MiniBlock(txHashes=[client_hash(tx)], senderShardID=1, receiverShardID=1, type=kind)
        lie.blockData.body.miniBlocks.append(mini)
    world.hub.save(lie)
    async with asyncio.timeout(10):
        while service.events.taken < len(world.hub.events):
            await asyncio.sleep(0)
    assert len(service.lifecycle.inflight) == 1
    await world.service.rotate()
    assert len(await world.api.wait_submitted(1)) == 1


@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_reply_waits_for_the_next_signing_process(world: Any, end: signal.Signals) -> None:
    """A signing process that hangs or dies is replaced, and what it was asked meanwhile is accepted all the same."""
    await start(world, signer_timeout=0.2, sign_wait=60.0)
    lost = world.service.signer.pid
    os.kill(lost, end)
    txs = [transfer(ALICE), transfer(ALICE, 1), transfer(wallet(2))]
    assert await submit(world, *txs) == ["ok"] * 3
    assert world.service.signer.pid != lost
    assert sorted(item["nonce"] for item in await world.api.wait_submitted(3)) == [0, 0, 1]


async def test_what_waits_for_its_signature_is_pending(world: Any) -> None:
    """After `sign_wait` the reply names the client hash; the transaction is signed and sent when that is possible."""
    await start(world, sign_wait=0)
    service, tx = world.service, transfer(ALICE)
    await lose_signatures(world)
    async with connected(world.ws) as client:
        message = {"action": "relay", "requestId": 7, "tx": as_json(tx), "autoSubscribe": True}
        reply = await client.ask(**message)
        name = client_hash(tx).hex()
        assert reply == {
            "action": "relay", "requestId": 7, "status": "completed", "hashes": [name], "failed": [],
            "results": [{
                "index": 0, "hash": name, "clientHash": name, "sdkHash": early_hashes(tx)[1].hex(),
                "topic": f"tx-status/{name}", "state": "pending",
            }],
        }  # fmt: skip
        assert await client.ask(**message) == reply, "the same bytes, the same answer"
        await service.rotate()
        (sent,) = await world.api.wait_submitted(1)
        signed = from_json(msgspec.convert(sent, TransactionJson))
        again = await client.ask(**message)
        assert again["hashes"] == [chain_hash(signed).hex()] and "state" not in again["results"][0]
        chain = Chain(world, 1)
        chain.final([signed])
        by_hash = {told["data"]["hash"]: told["data"] for told in [await client.push(), await client.push()]}
        assert by_hash == {  # the second answer subscribed to the chain hash, too
            name: {"hash": name, "status": "success", "chainHash": chain_hash(signed).hex()},
            chain_hash(signed).hex(): {"hash": chain_hash(signed).hex(), "status": "success"},
        }


async def test_what_is_pending_outlives_the_service(world: Any) -> None:
    """A service that restarts before anybody signed signs and sends what it had accepted."""
    await start(world, sign_wait=0)
    await lose_signatures(world)
    assert await submit(world, transfer(ALICE)) == ["pending"]
    await world.stop()
    await start(world)
    assert len(await world.api.wait_submitted(1)) == 1
    assert await submit(world, transfer(ALICE)) == ["ok"]


async def test_what_is_pending_and_refused_in_the_end_is_told(world: Any) -> None:
    """What the next signing process refuses will never run: whoever waits for its status hears why."""
    await start(world, sign_wait=0)
    service, tx = world.service, transfer(ALICE)
    await lose_signatures(world)
    async with connected(world.ws) as client:
        reply = await client.ask(action="relay", tx=as_json(tx), autoSubscribe=True)
        assert reply["results"][0]["state"] == "pending"

        async def refuse(transactions: list[bytes]) -> list[Any]:
            return [Answer(refusal="no") for _ in transactions]

        service.signer.sign = refuse
        await service.cosigner.sign_missed()
        told = await client.push()
        assert told["data"] == {"hash": client_hash(tx).hex(), "status": "fail", "reason": "signer refused"}
    assert len(service.lifecycle.inflight) == 0


async def test_what_is_refused_while_it_is_asked_twice_is_refused_to_all(world: Any) -> None:
    """The same bytes, sent again while the signing process has them, are judged once: nobody is told `completed`."""
    await start(world)
    asked: list[asyncio.Event] = []

    async def refuse(transactions: list[bytes]) -> list[Any]:
        asked.append(asyncio.Event())
        await asked[-1].wait()
        return [Answer(refusal="no") for _ in transactions]

    world.service.signer.sign = refuse
    both = []
    for count in (1, 2):
        both.append(asyncio.ensure_future(submit(world, transfer(ALICE))))
        await until(lambda count=count: len(asked) == count)  # type: ignore[misc]
    asked[0].set()
    await until(lambda: world.service.lifecycle.inflight.entries()[0].sign_requests == 1)
    asked[1].set()
    assert await asyncio.gather(*both) == [["signer refused"]] * 2


async def test_what_was_only_signed_and_is_to_be_sent_is_not_pending(world: Any) -> None:
    """Nothing is promised that a restart would not send: a row of `/v1/sign` without a signature says nothing of it."""
    await start(world, sign_wait=0)
    await lose_signatures(world)
    for kind in ("sign", "relay"):
        assert await submit(world, transfer(ALICE), kind=kind) == ["signer unavailable"]


async def test_what_is_being_signed_is_not_asked_twice(world: Any) -> None:
    """Making up for what was missed leaves alone what somebody is waiting for."""
    await start(world)
    signer = world.service.signer
    really, asked, go_on = signer.sign, [], asyncio.Event()

    async def slowly(transactions: list[bytes]) -> list[Any]:
        asked.extend(transactions)
        await go_on.wait()
        answers: list[Any] = await really(transactions)
        return answers

    signer.sign = slowly
    submission = asyncio.create_task(submit(world, transfer(ALICE)))
    async with asyncio.timeout(10):
        while not asked:
            await asyncio.sleep(0)
    await world.service.cosigner.sign_missed()
    go_on.set()
    assert await submission == ["ok"] and len(asked) == 1


async def test_signatures_are_judged_without_the_signing_process(world: Any) -> None:
    """While it is down a wrong signature is still refused for what it is, and nothing is journalled for it."""
    await start(world)

    async def down(transactions: list[bytes]) -> list[Any]:
        raise SignerError("down")

    world.service.signer.check = down
    unsigned = msgspec.structs.replace(transfer(ALICE), signature=b"\1" * 64)
    assert await submit(world, unsigned) == ["invalid signature"]
    assert await submit(world, transfer(ALICE)) == ["ok"]
    assert len(world.service.journal.read("SELECT nonce FROM submissions")) == 1


async def test_row_23_a_short_batch_passes_a_long_one(world: Any) -> None:
    """The signing process gets long batches a part at a time: who asks little meanwhile is answered first."""
    await start(world)
    signer, asked = world.service.signer, []
    really = signer.check

    async def check(transactions: list[bytes]) -> list[str]:
        asked.append(len(transactions))
        return list(await really(transactions))

    signer.check = check
    world.service.submitter._company = Company(1.0, clock=lambda: 0.0)  # whoever has been there is still there
    finished = []

    async def ask(name: str, wallet_number: int, count: int) -> None:
        txs = [transfer(wallet(1, wallet_number), nonce) for nonce in range(count)]
        assert await submit(world, *txs, ip=name) == ["ok"] * count
        finished.append(name)

    long = asyncio.create_task(ask("long", 0, 100))
    await asyncio.sleep(0)
    await ask("short", 1, 1)
    await long
    assert finished == ["short", "long"]
    assert asked[0] == STRETCH * PART, "nobody else was there"
    assert asked[1] == 1 and max(asked[2:]) <= PART and sum(asked) == 101


async def test_the_frames_of_the_signing_process_hold_a_part_each_or_several_short_ones(world: Any) -> None:
    """What waits together travels together, up to a part; every question gets its own answers."""
    await start(world)
    signer, frames = world.service.signer, []
    really = signer._link.send
    signer._link.send = lambda work: (frames.append([len(work.sign), len(work.check)]), really(work))
    wrong = to_proto(msgspec.structs.replace(transfer(ALICE, 7), signature=b"\1" * 64))
    right = [to_proto(transfer(ALICE, nonce)) for nonce in range(PART)]
    questions = [right[:5], [wrong], right[:5], [], right[:7], right, [*right[:3], wrong]]
    answers = await asyncio.gather(*(signer.check(items) for items in questions))
    assert answers == [["invalid signature" if item == wrong else "" for item in items] for items in questions]
    assert frames == [[0, 5 + 1 + 5], [0, 7 + PART], [0, 4]]


@pytest.mark.parametrize("kind", ["relay", "sign"])
async def test_row_38_keys_from_the_environment(world: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in variables are gone from our environment and in no child's, and a new signing process still has them."""
    names = []
    for shard, pair in RELAYERS.items():
        names.append(f"MILLRACE_TEST_KEY_{shard}")
        monkeypatch.setenv(names[-1], bytes(pair._signing).hex())
    await start(world, key_files=(), key_env=tuple(names))
    service = world.service
    assert not set(names) & set(os.environ)
    if os.geteuid() == 0:  # to others its memory is closed
        assert b"MILLRACE_TEST_KEY" not in environ_of(service.signer.pid)
    assert bytes(RELAYERS[0]._signing).hex() not in repr(vars(service)) + repr(vars(service.keys))
    os.kill(service.signer.pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        while await submit(world, transfer(ALICE), kind=kind) != ["ok"]:
            await asyncio.sleep(0.02)


async def test_what_was_only_signed_is_on_disk_before_it_is_accepted_for_broadcast(world: Any) -> None:
    """A broadcast of what /v1/sign signed is answered when a restart would send it; else it is refused, and again."""
    await start(world)
    service, tx = world.service, transfer(ALICE)
    assert await submit(world, tx, kind="sign") == ["ok"]
    await service.journal.flush()
    holder = sqlite3.connect(service.journal.path, isolation_level=None)
    service.journal.change(lambda connection: connection.execute("PRAGMA busy_timeout = 0").close())
    await service.journal.flush()
    holder.execute("BEGIN IMMEDIATE")
    for _ in range(2):
        assert await submit(world, tx, kind="relay") == ["not ready"]
    assert world.api.submitted == []
    holder.execute("ROLLBACK")
    assert await submit(world, tx, kind="relay") == ["ok"]
    assert holder.execute("SELECT broadcast, state FROM submissions").fetchall() == [(1, "signed")]
    holder.close()
    assert len(await world.api.wait_submitted(1)) == 1


async def test_row_48_a_journal_that_cannot_be_read(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails a read is the service's own trouble: said so, and over when it is; nothing ends for it."""
    await start(world)
    service, tx = world.service, transfer(ALICE)
    assert await submit(world, tx) == ["ok"]
    service.lifecycle.included(entry_of(world, tx).chain_hash, 5)
    world.api.set(ALICE.public, 1, 10**18)
    service.book.forget_all()
    really = service.journal._reader

    class Broken:
        def execute(self, *_: Any) -> None:
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(service.journal, "_reader", Broken())
    assert await submit(world, tx, transfer(ALICE, 1)) == ["not ready", "ok"]
    monkeypatch.setattr(upkeep, "POLICY_SECONDS", 0)
    keeper = asyncio.create_task(service.policy_keeper.run())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not keeper.done()
    keeper.cancel()
    monkeypatch.setattr(service.journal, "_reader", really)
    assert await submit(world, tx) == ["ok"]


async def test_keys_are_read_again_once_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often SIGHUP comes there is one new signing process at a time, and one more for what came meanwhile."""
    begun, go_on = asyncio.Semaphore(0), asyncio.Semaphore(0)
    running: list[int] = []

    async def rotate(_: app.Service) -> None:
        running.append(len(running))
        begun.release()
        await go_on.acquire()

    monkeypatch.setattr(app.Service, "rotate", rotate)
    stop = asyncio.Event()
    handlers: list[Any] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "add_signal_handler", lambda number, handler: handlers.append(handler))
    task = asyncio.create_task(app.run(settings(tmp_path, key_files=()), stop))
    async with asyncio.timeout(20):
        while not handlers:
            await asyncio.sleep(0.01)
        handlers[0]()
        await begun.acquire()
        for _ in range(5):
            handlers[0]()
        assert len(running) == 1
        go_on.release()
        await begun.acquire()
        assert len(running) == 2
        go_on.release()
        stop.set()
        await task
    assert len(running) == 2
