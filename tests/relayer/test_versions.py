"""From one version to another and back: a kept folder of an earlier one, and exports that keep what was promised."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from click.testing import CliRunner
from relayer_support import RELAYERS, as_json, connected, settings, submit, transfer, wallet

from millrace.chain import call
from millrace.chain.transaction import from_proto, signing_message
from millrace.cli import main
from millrace.relayer.journal import carry
from millrace.relayer.journal.claims import FORMAT
from millrace.relayer.journal.recovery import RecoveryError
from millrace.relayer.rules.policy import PolicyError
from millrace.relayer.signing.wire import Answer
from millrace.relayer.statistics.history import Checked, query
from millrace.relayer.statistics.history_store import SqlitePoints

ALICE, BOB, CAROL = wallet(1), wallet(2), wallet(0)
KEPT = Path(__file__).parent / "kept"
FOREVER = 1e6
"""Hours: what a kept folder has does not get too old to be remembered."""


async def command(world: Any, *words: str, data_dir: str = "relayer", fails: bool = False) -> str:
    """What `millrace relayer …` says, with the world's settings, in a thread as it has an event loop of its own."""
    given = settings(world.folder, data_dir=world.folder / data_dir)
    keys = "[" + ",".join(f'"{file}"' for file in given.key_files) + "]"
    pairs = {"data_dir": given.data_dir, "lease_dir": given.lease_dir, "chain_id": given.chain_id, "key_files": keys}
    options = [item for name, value in pairs.items() for item in ("--set", f"{name}={value}")]
    done = await asyncio.to_thread(CliRunner().invoke, main, ["relayer", *words, *options])
    assert done.exit_code == int(fails), done.output
    return done.output


def other(pair: Any, nonce: int) -> Any:
    """Another payload of the nonce than `transfer`."""
    return transfer(pair, nonce, gas_limit=123_456)


async def relayed(world: Any, tx: Any) -> Any:
    """The reply to a submission."""
    async with connected(world.ws) as client:
        return await client.ask(action="relay", tx=as_json(tx))


@pytest.mark.parametrize("version", ["schema-4"])
async def test_an_upgrade_from_a_kept_folder(world: Any, version: str) -> None:
    """What an earlier version wrote is brought up to date: it signs no second payload, and repeats what it answered."""
    shutil.unpack_archive(KEPT / f"{version}.zip", world.folder / "relayer")
    said = json.loads((KEPT / f"{version}.json").read_text())
    service = await world.start(retention_hours=FOREVER)
    assert service.journal.read("SELECT value FROM meta WHERE name = 'schema'") == [("6",)]
    assert service.identity.id == said["id"]
    for pair, nonce in ((ALICE, 0), (ALICE, 1), (CAROL, 0)):
        assert await submit(world, other(pair, nonce)) == ["conflicting transaction"]
    assert await submit(world, other(BOB, 0)) == ["nonce too low"], "its end is known"
    for nonce in (0, 1):
        reply = await relayed(world, transfer(ALICE, nonce))
        assert reply["hashes"] == [said["hashes"]["alice"][nonce]], "the very bytes, signed once"
    assert (await relayed(world, transfer(BOB, 0)))["hashes"] == [said["hashes"]["bob"][0]]
    await world.api.wait_submitted(2)
    await world.stop()
    assert "3 senders" in await command(world, "export-claims", str(world.folder / "claims"))


async def test_an_upgrade_of_a_folder_with_everything(world: Any) -> None:
    """After safe starts, with a policy by hand, ends and a history without checksums: it starts and knows all of it."""
    folder, policy = world.folder / "relayer", world.folder / "policy.toml"
    shutil.unpack_archive(KEPT / "schema-5.zip", folder)
    said = json.loads((KEPT / "schema-5.json").read_text())
    policy.write_text("[caps]\nfee = 800000000000000000")
    kept = Checked(SqlitePoints(folder / "history.sqlite"))
    answer = json.loads(query(kept, said["points_ms"], said["points_ms"] + 59_000, 1, 0))
    assert [point["probe"] for point in answer["points"]] == [
        (said["points_ms"] // 1000 + second) % 7 for second in range(60)
    ]
    assert kept.left_out == 0
    kept.close()

    recovery, elsewhere = folder / "recovery", world.folder / "recovery"
    recovery.rename(elsewhere)
    with pytest.raises(RecoveryError, match="missing"):
        await world.start(retention_hours=FOREVER, policy_file=str(policy))
    await world.stop()
    elsewhere.rename(recovery)
    service = await world.start(retention_hours=FOREVER, policy_file=str(policy))
    (fate, _) = await service.lifecycle.fates.find(bytes.fromhex(said["ended"]))
    assert (fate.state, fate.fee, fate.nonce) == ("included", "5", 0)
    assert service.safe_start.recovery.ahead == 5 and service.policy_keeper.whole.caps.fee == 7 * 10**17
    assert "looser" in service.policy_keeper.rejected
    assert await submit(world, other(ALICE, 0)) == ["conflicting transaction"]
    assert await submit(world, transfer(BOB, 0)) == ["conflicting transaction"], "it may have been signed"
    assert service.history.put_aside == service.fates.put_aside == service.fates.damaged == 0
    await world.stop()
    (folder / "last-good-policy.toml").unlink()
    with pytest.raises(PolicyError, match="missing"):
        await world.start(retention_hours=FOREVER, policy_file=str(policy))


@pytest.mark.parametrize(
    ("value", "to", "data"),
    [
        (1, BOB.public, call.esdt_transfer("TOK-123456", 7)),
        (0, BOB.public, call.esdt_transfer("TOK-123456", 0)),
        (0, ALICE.public, call.multi_transfer(ALICE.public, [call.TokenPayment("TOK-123456", 0, 7)])),
        (0, ALICE.public, call.encode("ESDTNFTTransfer", b"TOK-123456", b"", b"\7", BOB.public)),
    ],
    ids=["value", "nothing", "oneself", "no nonce"],
)
@pytest.mark.parametrize("ends", [False, True])
async def test_what_a_rule_of_today_would_refuse_is_remembered(
    world: Any, monkeypatch: pytest.MonkeyPatch, value: int, to: bytes, data: bytes, ends: bool
) -> None:
    """A start refuses no row that was accepted before a rule began: it is in flight, or its end is looked for."""
    service = await world.start()
    tx = transfer(ALICE, 0, data=data, gas_limit=1_000_000, value=value, receiver=to)
    with monkeypatch.context() as before:
        before.setattr(call, "check_transfer", lambda _: None)
        before.setattr(service.signer, "check", lambda asked: done([""] * len(asked)))
        before.setattr(service.signer, "sign", lambda asked: done([signed(raw) for raw in asked]))
        assert await submit(world, tx) == ["ok"]
    if ends:
        (entry,) = service.lifecycle.inflight.entries()
        service.lifecycle.included(entry.chain_hash, 50)
        await service.journal.written()
    await world.stop()
    again = await world.start()
    assert len(again.lifecycle.inflight.entries()) == (not ends)


async def done(value: Any) -> Any:
    """What a stand-in of the signing process answers."""
    return value


def signed(raw: bytes) -> Answer:
    """A co-signature without the signing process, which has rules of its own."""
    tx = from_proto(raw)
    return Answer(
        signature=next(key for key in RELAYERS.values() if key.public == tx.relayer).sign(signing_message(tx))
    )


async def test_back_to_an_earlier_version(world: Any) -> None:
    """Claims and what is still to be sent go along: no second payload is signed, what was accepted is sent again."""
    await world.start()
    replies = [await relayed(world, transfer(pair, nonce)) for pair, nonce in ((ALICE, 0), (ALICE, 1), (BOB, 0))]
    hashes = {reply["hashes"][0] for reply in replies}
    async with aiohttp.ClientSession(world.http) as http:
        async with http.post("/v1/sign", json={"transactions": [as_json(transfer(CAROL, 0))]}) as response:
            only_signed = (await response.json())["results"][0]["hash"]
    assert "stop it" in await command(world, "export-open", str(world.folder / "open"), fails=True)
    await world.stop()
    assert "claims of 3 senders" in await command(world, "export-claims", str(world.folder / "claims"))
    assert "3 transactions" in await command(world, "export-open", str(world.folder / "open"))

    await command(world, "init", data_dir="earlier")
    assert "3 senders" in await command(world, "import-claims", str(world.folder / "claims"), data_dir="earlier")
    await command(world, "recover", "--yes", "--ahead", "0", "--wait", "0", data_dir="earlier")
    before = len(world.api.submitted)
    await world.start(data_dir=world.folder / "earlier")
    seconds = [(ALICE, 0), (ALICE, 1), (BOB, 0), (CAROL, 0)]
    for pair, nonce in seconds:  # what comes before the first one that is known of is not its turn yet
        expected = "nonce too high" if nonce else "conflicting transaction"
        assert await submit(world, other(pair, nonce)) == [expected]
    async with aiohttp.ClientSession(world.http) as http:
        for line in (world.folder / "open").read_text().splitlines():
            async with http.post("/v1/broadcast", data=line, headers={"Content-Type": "application/json"}) as response:
                body = await response.json()
                assert body["status"] == "completed" and set(body["hashes"]) == hashes, body
    await world.api.wait_submitted(before + 3)
    for pair, nonce in seconds:
        assert await submit(world, other(pair, nonce)) == ["conflicting transaction"]
    again = await relayed(world, transfer(ALICE, 1))
    assert again["hashes"] == replies[1]["hashes"], "the very bytes that were signed"
    assert only_signed not in (world.folder / "open").read_text()


async def test_what_is_not_carried(world: Any) -> None:
    """What has no signature yet keeps the export from being made, as nobody else can give it one."""
    service = await world.start(sign_wait=0.0)
    await relayed(world, transfer(ALICE, 0))
    await world.stop()
    journal = service.journal
    journal.open()
    try:
        record = journal.open_records()[0]
        answers = {"open_records": lambda _: [_replaced(record)], "paused_shards": lambda _: frozenset()}
        unsigned = type("J", (), answers)()
        with pytest.raises(carry.CarryError, match="1 accepted transactions are not signed yet: start this relayer"):
            carry.export(unsigned, world.folder / "open", ())
        assert not (world.folder / "open").exists()
    finally:
        await journal.close()


async def test_a_pause_goes_along_by_the_policy(world: Any) -> None:
    """What is to be sent is not handed on before the policy, which any version reads, names what is paused here."""
    service = await world.start()
    await service.lifecycle.pause(frozenset({1}))
    await world.stop()
    policy = world.folder / "policy.toml"
    policy.write_text("paused_shards = [2]\n")
    words = "export-open", str(world.folder / "open"), "--set", f"policy_file={policy}"
    assert "paused_shards = [1, 2]" in await command(world, *words, fails=True)
    assert not (world.folder / "open").exists()
    policy.write_text("paused_shards = [1, 2]\n")
    assert "0 transactions" in await command(world, *words)
    await command(world, "init", data_dir="earlier")
    words = "recover", "--yes", "--ahead", "0", "--wait", "0", "--forget-spending"
    await command(world, *words, data_dir="earlier")
    await world.start(data_dir=world.folder / "earlier", policy_file=str(policy))
    assert await submit(world, transfer(ALICE), transfer(CAROL)) == ["shard paused", "ok"]


def _replaced(record: Any) -> Any:
    return msgspec.structs.replace(record, chain_hash=None, state="journalled")


async def test_the_form_of_claims_stays(world: Any) -> None:
    """A kept file of claims, as earlier versions write and read it, is taken; what is written has its form."""
    await command(world, "init")
    assert "claims of 3 senders" in await command(world, "import-claims", str(KEPT / "claims-1.jsonl"))
    await command(world, "export-claims", str(world.folder / "claims"))
    kept, written = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in (KEPT / "claims-1.jsonl", world.folder / "claims")
    )
    assert kept[1:-1] == written[1:-1]
    assert [list(line) for line in kept] == [list(line) for line in written]
    assert kept[0]["format"] == written[0]["format"] == FORMAT
