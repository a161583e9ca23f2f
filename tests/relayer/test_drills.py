"""The drills of docs/relayer-operating.md: backup and restore, move, a lost folder, claims kept elsewhere, upgrade, and
other keys."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from contextlib import closing
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner
from relayer_support import BlockMaker, as_json, connected, settings, submit, transfer, wallet

from millrace.chain import address
from millrace.cli import main
from millrace.relayer.app import Service
from millrace.relayer.journal import audit, recovery
from millrace.relayer.journal.identity import IdentityError
from millrace.relayer.journal.recovery import RecoveryError
from millrace.relayer.rules.policy_file import seal
from millrace.relayer.signing.handle import SignerError
from millrace.runtime.settings import Secret

ALICE, BOB = wallet(1), wallet(2)


def command(world: Any, *words: str, data_dir: str = "relayer", fails: bool = False, last: str = "") -> str:
    """What `millrace relayer …` says, with the world's settings and one more."""
    given = settings(world.folder, data_dir=world.folder / data_dir)
    pairs = {
        "data_dir": given.data_dir, "lease_dir": given.lease_dir, "chain_id": given.chain_id,
        "key_files": "[" + ",".join(f'"{file}"' for file in given.key_files) + "]",
    }  # fmt: skip
    options = [item for name, value in pairs.items() for item in ("--set", f"{name}={value}")]
    options += ["--set", last] if last else []
    done = CliRunner().invoke(main, ["relayer", *words, *options])
    assert done.exit_code == int(fails), done.output
    return done.output


async def refused(world: Any, data_dir: str = "relayer") -> str:
    """Why a relayer with this folder does not start."""
    service = Service(settings(world.folder, **(world.urls | {"data_dir": world.folder / data_dir})))
    try:
        with pytest.raises((SignerError, IdentityError, RecoveryError)) as caught:
            await service.start()
    finally:
        await service.stop()
    return str(caught.value)


async def detail(world: Any, tx: Any) -> tuple[str, str]:
    """Reason and detail of a refusal."""
    async with connected(world.ws) as client:
        reply = await client.ask(action="relay", tx=as_json(tx))
        return reply["failed"][0]["reason"], reply["failed"][0].get("detail", "")


def other(pair: Any, nonce: int) -> Any:
    """Another payload of the nonce than `transfer`."""
    return transfer(pair, nonce, gas_limit=123_456)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--ahead", "-1"), ("--ahead", str(2**63)), ("--wait", "nan"), ("--wait", "-1"), ("--wait", "inf"),
        ("--wait", "1e10"),
    ],
)  # fmt: skip
async def test_a_safe_start_of_numbers_that_cannot_be_meant(world: Any, option: str, value: str) -> None:
    """They are refused by name: below nothing nothing is held back, and nobody would be told of it."""
    done = CliRunner().invoke(main, ["relayer", "recover", option, value, "--yes"])
    assert done.exit_code == 2 and f"Invalid value for '{option}'" in done.output, done.output


async def test_a_safe_start_beyond_all_nonces(world: Any) -> None:
    """A policy that bounds nothing holds back every nonce there is."""
    await world.start()
    await world.stop()
    policy = world.folder / "wide.toml"
    policy.write_text(seal(f"[quotas]\nsign_only_ahead = {10**30}"))
    assert f"first {2**63 - 1} nonces" in command(world, "recover", "--wait", "0", "--set", f"policy_file={policy}")
    command(world, "recover", "--wait", "0", "--yes", "--set", f"policy_file={policy}")


async def test_backup_and_restore(world: Any) -> None:
    """After a restore nothing is signed for nonces that may have been signed since the backup, old or new senders'."""
    await world.start()
    assert await submit(world, transfer(ALICE, 0)) == ["ok"]
    await world.service.journal.flush()  # its signature, too
    out = command(world, "backup", str(world.folder / "backup"))
    assert "as it was at" in out
    assert await submit(world, transfer(ALICE, 1), transfer(BOB, 0)) == ["ok", "ok"]
    await world.stop()
    shutil.rmtree(world.folder / "relayer")
    assert "recover" in command(world, "restore", str(world.folder / "backup"))
    assert "millrace relayer recover" in await refused(world)
    plan = command(world, "recover", "--wait", "0", "--ahead", "5", "--forget-spending")
    assert "Missing: whatever was signed with the 3 keys after" in plan and "Nothing was changed" in plan
    assert "millrace relayer recover" in await refused(world)
    command(world, "recover", "--wait", "0", "--ahead", "5", "--forget-spending", "--yes")
    service = await world.start()
    assert service.identity.epoch == 3
    assert await submit(world, transfer(ALICE, 0)) == ["ok"], "the copy knows these bytes"
    assert await submit(world, other(ALICE, 0)) == ["conflicting transaction"]
    reason, text = await detail(world, other(ALICE, 1))
    assert reason == "conflicting transaction" and "below 5" in text
    assert await submit(world, other(BOB, 0)) == ["conflicting transaction"]
    await world.stop()
    world.api.set(BOB.public, 5, 10**18)
    await world.start()
    assert await submit(world, other(BOB, 5)) == ["ok"], "its first nonce of all that was seen was 0"


async def test_the_folder_of_a_backup_is_the_older_one_once_the_restored_one_has_signed(world: Any) -> None:
    """A restore beside a folder that still exists: the one that recovered last signs, the others are refused."""
    await world.start()
    assert await submit(world, transfer(ALICE, 0)) == ["ok"]
    command(world, "backup", str(world.folder / "backup"))
    command(world, "restore", str(world.folder / "backup"), data_dir="b")
    command(world, "restore", str(world.folder / "backup"), data_dir="c")
    assert "in use" in command(world, "recover", "--yes", data_dir="b", fails=True)
    await world.stop()
    command(world, "recover", "--yes", "--wait", "0", data_dir="b")
    assert "older copy" in await refused(world)
    command(world, "recover", "--yes", "--wait", "0", data_dir="c")
    assert "older copy" in await refused(world, "b")
    await world.start(data_dir=world.folder / "c")


async def test_a_safe_start_waits(world: Any) -> None:
    """Before its time nothing is sponsored, and what was journalled and not signed is never signed."""
    await world.start()
    await world.stop()
    command(world, "recover", "--yes", "--wait", "3600")
    service = await world.start()
    reason, text = await detail(world, transfer(ALICE, 0))
    assert reason == "not ready" and "safe start" in text
    assert not service.is_ready()


async def test_after_a_safe_start_questions_are_not_written_down(world: Any) -> None:
    """Whoever asks for an unsigned transaction leaves no row; a sender that signs one leaves its own."""
    await world.start()
    await world.stop()
    command(world, "recover", "--yes", "--wait", "0", "--forget-spending")
    service = await world.start()
    async with aiohttp.ClientSession(world.http) as http:
        for pair in (ALICE, BOB):
            wish = {"sender": address.encode(pair.public), "receiver": address.encode(BOB.public), "value": "1"}
            async with http.post("/v1/prepare", json={"transaction": wish}) as answer:
                prepared = await answer.json()
            assert not prepared["sponsored"] and "memory" in prepared["detail"], prepared
    assert await submit(world, transfer(ALICE, 0)) == ["conflicting transaction"]
    await service.journal.flush()
    assert service.journal.read("SELECT sender FROM first_seen") == [(ALICE.public,)]


@pytest.mark.parametrize("started", [True, False], ids=["in use", "before its first start"])
@pytest.mark.parametrize("how", ["deleted", "older", "another folder's"])
async def test_a_safe_start_that_is_lost_is_refused(world: Any, started: bool, how: str) -> None:
    """Without the file of the last safe start nobody knows what may not be signed: another one is asked for."""
    await world.start()
    await world.stop()
    safe_start = "recover", "--yes", "--wait", "0", "--ahead"
    file = world.folder / "relayer" / "recovery"
    if how == "another folder's":
        command(world, "init", data_dir="other")
        with_keys_of_its_own = "--set", f"lease_dir={world.folder / 'other leases'}"
        for _ in range(3):  # to an epoch that is no older than ours
            command(world, *safe_start, "0", *with_keys_of_its_own, data_dir="other")
    command(world, *safe_start, "0")
    older = file.read_bytes()
    command(world, *safe_start, "5")
    if started:
        await world.start()
        await world.stop()
    file.unlink()
    if how == "older":
        file.write_bytes(older)
    elif how == "another folder's":
        shutil.copy(world.folder / "other" / "recovery", file)
    text = await refused(world)
    assert str(file) in text and "millrace relayer recover" in text
    command(world, *safe_start, "5")
    await world.start()
    reason, text = await detail(world, other(ALICE, 0))
    assert reason == "conflicting transaction" and "below 5" in text


async def test_a_safe_start_goes_along_with_a_move(world: Any) -> None:
    """Where the folder lives now its file may be lost as little as before."""
    await world.start()
    await world.stop()
    command(world, "recover", "--yes", "--wait", "0", "--ahead", "5")
    command(world, "move", str(world.folder / "new"))
    file = world.folder / "new" / "recovery"
    kept = file.read_bytes()
    file.unlink()
    assert "millrace relayer recover" in await refused(world, "new")
    file.write_bytes(kept)
    await world.start(data_dir=world.folder / "new")
    assert await submit(world, transfer(ALICE, 0)) == ["conflicting transaction"]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_may_have_been_spent_counts_after_another_safe_start(world: Any, is_lost: bool) -> None:
    """What the first one left to be counted still is, and where its file is lost as much as may be in a day."""
    await world.start()
    await world.stop()
    command(world, "recover", "--yes", "--wait", "0")
    service = await world.start()
    line = time.time_ns() // 1_000_000, "reserve", b"r" * 32, b"s" * 32, 0, bytes(32), 1
    service.journal.change(lambda connection: audit.write(connection, [line]))
    await world.stop()
    if is_lost:
        (world.folder / "relayer" / "recovery").unlink()
    assert "with the 3 keys ever; " in command(world, "recover", "--yes", "--wait", "0")
    service = await world.start()
    made = service.safe_start.recovery
    assert made is not None and recovery.unknown_ms(made) == recovery.DAY_MS


async def test_an_unsigned_row_of_a_copy_is_never_signed(world: Any) -> None:
    """Since the copy was made it may have given way to another payload, which was signed."""
    await world.start()
    assert await submit(world, transfer(ALICE, 0), transfer(ALICE, 1)) == ["ok", "ok"]
    await world.stop()
    with closing(sqlite3.connect(world.folder / "relayer" / "journal.sqlite")) as journal, journal:
        journal.execute("DELETE FROM signatures WHERE id = (SELECT id FROM submissions WHERE nonce = 1)")
    command(world, "recover", "--yes", "--wait", "0", "--forget-spending")
    before = len(world.api.submitted)
    await world.start()
    assert await submit(world, transfer(ALICE, 0)) == ["ok"]
    for tx in (transfer(ALICE, 1), other(ALICE, 1)):
        assert await submit(world, tx) != ["ok"]
    await world.api.wait_submitted(before + 1)
    assert all(tx["nonce"] == 0 for tx in world.api.submitted[before:])


async def test_what_may_have_been_spent_counts(world: Any) -> None:
    """After a safe start the budgets hold the most that may have been spent while nobody wrote it down here."""
    await world.start()
    await world.stop()
    command(world, "recover", "--yes", "--wait", "0", "--ahead", "0")
    service = await world.start()
    sponsor = service.lifecycle.sponsor
    keys = list(service.relayers().by_shard.values())
    assert [sponsor.budgets.left(key, sponsor._clock(), sponsor.policy.budget) for key in keys] == [0, 0, 0]
    assert await submit(world, transfer(ALICE, 0)) == ["budget exhausted"]


async def test_move(world: Any) -> None:
    """The new folder goes on at once and knows all; the old one says where to."""
    await world.start()
    assert await submit(world, transfer(ALICE, 0)) == ["ok"]
    assert "stop it first" in command(world, "move", str(world.folder / "new"), fails=True)
    await world.stop()
    command(world, "move", str(world.folder / "new"))
    assert str(world.folder / "new") in await refused(world)
    await world.start(data_dir=world.folder / "new")
    assert await submit(world, other(ALICE, 0)) == ["conflicting transaction"]
    assert await submit(world, transfer(ALICE, 0), transfer(ALICE, 1)) == ["ok", "ok"]
    await world.stop()
    assert str(world.folder / "new") in await refused(world)


@pytest.mark.parametrize(
    ("setting", "said"),
    [("claims_url=postgresql://h/d", "needs neither"), ('key_files=["none.pem"]', "none.pem")],
    ids=["shared", "no key"],
)
async def test_a_move_that_is_refused_changes_nothing(world: Any, setting: str, said: str) -> None:
    """Where claims are shared, or a key cannot be read, the old folder stays the one that starts, and is the only."""
    await world.start()
    await world.stop()
    new = world.folder / "new"
    assert said in command(world, "move", str(new), fails=True, last=setting)
    assert not new.exists()
    await world.start()
    assert await submit(world, transfer(ALICE, 0)) == ["ok"]


@pytest.mark.parametrize("how", ["rubbish", "a page", "a folder"])
async def test_a_damaged_history_keeps_nobody_from_a_backup_or_a_move(world: Any, how: str) -> None:
    """What nothing hangs on is left out and named; all the rest is copied, and the copy starts."""
    service = await world.start()
    for second in range(200):
        await service.history.add(second * 1000, {"currentTps": 1.0, "x" * 500: 2.0})
    assert await submit(world, transfer(ALICE, 0)) == ["ok"]
    await world.stop()
    for name in ("history.sqlite", "fates.sqlite"):
        file = world.folder / "relayer" / name
        match how:
            case "rubbish":
                file.write_bytes(b"SQLite format 3\0" + b"rubbish" * 1000)
            case "a page":
                data = file.read_bytes()
                file.write_bytes(data[:4096] + b"\xff" * 4096 + data[8192:])
            case "a folder":
                file.unlink()
                file.mkdir()
    for verb, target in (("backup", "copy"), ("move", "new")):
        said = command(world, verb, str(world.folder / target))
        for name in ("history.sqlite", "fates.sqlite"):
            assert ("Left out, as it is damaged" in said and name in said) or how == "a folder"
            assert not (world.folder / target / name).exists()
        assert (world.folder / target / "journal.sqlite").exists()
    service = await world.start(data_dir=world.folder / "new")
    assert service.history.put_aside == service.fates.put_aside == 0
    assert await submit(world, other(ALICE, 0)) == ["conflicting transaction"]


async def test_a_copy_of_before_a_move_is_refused_though_the_new_folder_never_ran(world: Any) -> None:
    """What was copied when the journal was at its end cannot start in place of the folder that was moved."""
    await world.start()
    assert await submit(world, transfer(ALICE, 0)) == ["ok"]
    await world.stop()
    shutil.copytree(world.folder / "relayer", world.folder / "copy")
    command(world, "move", str(world.folder / "new"))
    assert "older copy" in await refused(world, data_dir=world.folder / "copy")
    await world.start(data_dir=world.folder / "new")
    assert await submit(world, transfer(ALICE, 1)) == ["ok"]


async def test_a_lost_folder(world: Any) -> None:
    """A new folder is refused by the leases; after its safe start it signs beyond what may have been signed."""
    await world.start()
    assert await submit(world, transfer(ALICE, 0)) == ["ok"]
    await world.stop()
    shutil.rmtree(world.folder / "relayer")
    command(world, "init")
    text = await refused(world)
    assert "another folder" in text and "millrace relayer recover" in text
    assert "ever; they were last held" in command(world, "recover", "--yes", "--wait", "0", "--forget-spending")
    await world.start()
    assert await submit(world, other(ALICE, 0)) == ["conflicting transaction"]
    world.api.set(BOB.public, 101, 10**18)
    assert await submit(world, transfer(BOB, 101)) == ["conflicting transaction"]
    await world.stop()
    world.api.set(ALICE.public, 101, 10**18)
    await world.start()
    assert await submit(world, transfer(ALICE, 101)) == ["ok"], "a hundred and one nonces beyond its first"


async def test_claims_kept_elsewhere(world: Any) -> None:
    """With all claims of the lost folder a new one signs what comes next, and never another payload of a claim."""
    await world.start()
    assert await submit(world, transfer(ALICE, 0), transfer(ALICE, 1), transfer(BOB, 0)) == ["ok", "ok", "ok"]
    assert "2 senders" in command(world, "export-claims", str(world.folder / "claims"))
    await world.stop()
    shutil.rmtree(world.folder / "relayer")
    command(world, "init")
    assert "2 senders" in command(world, "import-claims", str(world.folder / "claims"))
    out = command(world, "recover", "--yes", "--wait", "0", "--ahead", "0", "--forget-spending")
    assert "A SECOND PAYLOAD IS POSSIBLE" in out
    await world.start()
    for tx in (other(ALICE, 0), transfer(ALICE, 0), other(BOB, 0)):
        assert await submit(world, tx) == ["conflicting transaction"]
    world.api.set(ALICE.public, 1, 10**18)
    await world.stop()
    await world.start()
    assert await submit(world, other(ALICE, 1)) == ["conflicting transaction"]
    assert await submit(world, transfer(ALICE, 1)) == ["ok"], "the very bytes that were signed"
    assert await submit(world, transfer(ALICE, 2)) == ["ok"]
    assert "2 senders" in command(world, "export-claims", str(world.folder / "again"))


async def test_an_upgrade(world: Any) -> None:
    """The folder of an earlier version is refused until `init` adopts it; then it knows what it signed."""
    await world.start()
    assert await submit(world, transfer(ALICE, 0)) == ["ok"]
    await world.stop()
    shutil.rmtree(world.folder / "leases")
    for file in ("identity", "mark"):
        (world.folder / "relayer" / file).unlink()
    with closing(sqlite3.connect(world.folder / "relayer" / "journal.sqlite")) as journal, journal:
        journal.executescript(
            "DELETE FROM meta WHERE name = 'identity'; UPDATE meta SET value = '3' WHERE name = 'schema';"
            "DROP TABLE chain; DROP TABLE imported_claims; DROP TABLE first_seen;"
        )
    (world.folder / "relayer").rename(world.folder / "old")
    service = Service(settings(world.folder, data_dir=world.folder / "old"))
    with pytest.raises(IdentityError, match=r"earlier version.*millrace relayer init"):
        await service.start()
    await service.stop()
    assert "earlier version" in command(world, "init", data_dir="old")
    await world.start(data_dir=world.folder / "old")
    assert await submit(world, other(ALICE, 0)) == ["conflicting transaction"]


async def test_a_folder_whose_identity_is_lost(world: Any) -> None:
    """It is refused, not adopted, and a safe start makes it usable again under its own name."""
    service = await world.start()
    name = service.identity.id
    assert await submit(world, transfer(ALICE, 0)) == ["ok"]
    await world.stop()
    (world.folder / "relayer" / "identity").rename(world.folder / "kept")
    (world.folder / "relayer").rename(world.folder / "old")
    assert "recover" in command(world, "init", data_dir="old", fails=True)
    command(world, "recover", "--yes", "--wait", "0", data_dir="old")
    service = await world.start(data_dir=world.folder / "old")
    assert service.identity.id == name and service.identity.epoch == 2
    await world.stop()
    shutil.copyfile(world.folder / "kept", world.folder / "old" / "identity")
    assert "older copy" in await refused(world, "old")


async def test_other_keys(world: Any) -> None:
    """New files and a reload: the new address is named and pays, the old one is refused, and what was signed with it
    still ends, after which nothing is at risk on the old address any more."""
    service = await world.start(operators_token=Secret("a token of operators"))
    old, new = service.relayers().by_shard[1], wallet(1, 51)
    before = transfer(ALICE, 0)
    async with connected(world.ws) as client:
        assert (await client.ask(action="relay", tx=as_json(before)))["status"] == "completed"
    assert service.lifecycle.sponsor.standing_of(old).used.at_risk > 0
    (world.folder / "keys" / "shard1.pem").write_text(new.to_pem())
    headers = {"Authorization": "Bearer a token of operators"}
    async with aiohttp.ClientSession(headers=headers) as http:
        async with http.post(f"{world.operators}/control/read-keys") as answer:
            assert answer.status == 202
        async with asyncio.timeout(20):
            while service.relayers().by_shard[1] != new.public:
                await asyncio.sleep(0.01)
        async with http.get(f"{world.http}/v1/relayers") as answer:
            named = {item["shard"]: item["address"] for item in (await answer.json())["relayers"]}
    assert named[1] == address.encode(new.public)
    async with asyncio.timeout(20):  # nothing is paid for before it is known with what
        while service.lifecycle.sponsor.standing_of(new.public).balance is None:
            await asyncio.sleep(0.01)
    assert await submit(world, transfer(ALICE, 1)) == ["invalid relayer address"]
    assert await submit(world, transfer(ALICE, 1, relayer=new.public)) == ["ok"]
    signed = service.lifecycle.inflight.of_sender(ALICE.public)[0]
    block = BlockMaker(1).block([signed.tx], accounts={ALICE.public: (1, 10**18)})
    world.hub.save(block)
    world.hub.finalise(block)
    async with asyncio.timeout(20):
        while service.lifecycle.sponsor.standing_of(old).used.at_risk:
            await asyncio.sleep(0.01)
