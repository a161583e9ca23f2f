"""Fees at risk as an operator sees them: listed, and written off in one step."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import msgspec
from click.testing import CliRunner
from relayer_support import GAS_PRICE, RELAYERS, start, submit, transfer, wallet

from millrace import cli
from millrace.chain import address
from millrace.chain.transaction import client_hash
from millrace.relayer.journal.at_risk import ask_write_off
from millrace.relayer.rules.policy import Budget

ALICE = wallet(1)


async def test_row_11_write_off(world: Any) -> None:
    """An operator can count a hoarded fee as spent: at risk no more, audited, its nonce taken."""
    await start(world)
    assert await submit(world, transfer(ALICE), kind="sign") == ["ok"]
    service = world.service
    ledger, key, fee = service.lifecycle.sponsor.budgets, RELAYERS[1].public, 100_000 * GAS_PRICE
    options = ["--set", f"data_dir={service.settings.data_dir}"]
    listed = await asyncio.to_thread(CliRunner().invoke, cli.main, ["policy", "at-risk", *options])
    assert listed.exit_code == 0 and f"1 at risk, {fee} atomic units together" in listed.output
    name = client_hash(transfer(ALICE)).hex()
    assert name in listed.output and address.encode(ALICE.public) in listed.output
    wrong = await asyncio.to_thread(CliRunner().invoke, cli.main, ["policy", "write-off", "00" * 32, *options])
    assert wrong.exit_code == 1 and "at risk" in wrong.output
    done = await asyncio.to_thread(CliRunner().invoke, cli.main, ["policy", "write-off", name, *options])
    assert done.exit_code == 0 and ledger.at_risk(key) == fee, "asked for"
    service.policy_keeper.write_off()
    assert ledger.at_risk(key) == 0 and len(service.lifecycle.inflight) == 0
    assert ledger.left(key, time.monotonic(), Budget(per_minute=fee)) == 0, "it counts as spent"
    await service.journal.flush()
    assert service.journal.read("SELECT event, amount FROM audit ORDER BY id") == [
        ("reserve", str(fee)), ("write-off", str(fee)),
    ]  # fmt: skip
    assert await submit(world, transfer(ALICE, data=b"x", gas_limit=200_000)) == ["nonce too low"]
    assert await submit(world, transfer(ALICE)) == ["written off"] == await submit(world, transfer(ALICE), kind="sign")
    assert len(service.lifecycle.inflight) == 0 == ledger.at_risk(key), "what is refused takes nothing"
    assert service.journal.write_offs() == [], "it is taken once"


async def test_the_ledger_tells_budgets_and_risks(world: Any) -> None:
    """What is at risk shows at its key, its user and nowhere else, as `millrace ledger` shows."""
    await start(world)
    assert await submit(world, transfer(ALICE), kind="sign") == ["ok"]
    await world.service.journal.flush()
    fee = 100_000 * GAS_PRICE
    operators = ["--operators", world.operators]
    shown = await asyncio.to_thread(CliRunner().invoke, cli.main, ["ledger", "--json", *operators])
    told = msgspec.json.decode(shown.stdout)
    key = next(key for key in told["keys"] if key["shard"] == 1)
    assert (key["address"], key["atRisk"], key["spentMinute"]) == (
        address.encode(RELAYERS[1].public),
        str(fee),
        str(fee),
    )
    assert [other["atRisk"] for other in told["keys"] if other is not key] == ["0", "0"]
    user = {"address": address.encode(ALICE.public), "atRisk": str(fee), "transactions": 1, "spentHour": str(fee)}
    assert told["usersKnown"] == 1 and user.items() <= told["users"][0].items()
    listed = await asyncio.to_thread(CliRunner().invoke, cli.main, ["ledger", "users", "--csv", *operators])
    assert listed.stdout.splitlines()[1].startswith(f"{user['address']},{fee},1,")
    tables = await asyncio.to_thread(CliRunner().invoke, cli.main, ["ledger", *operators])
    assert tables.exit_code == 0 and "0.0001" in tables.stdout and "People: none" in tables.stdout
    wrong = await asyncio.to_thread(CliRunner().invoke, cli.main, ["ledger", "--csv", *operators])
    assert wrong.exit_code == 2 and "--csv is of one WHAT" in wrong.stderr
    async with aiohttp.ClientSession() as http:
        for limit in ("0", "10001", "-1", "x", "\u0661", "9" * 40):
            async with http.get(f"{world.operators}/ledger", params={"limit": limit}) as response:
                assert response.status == 400 and "invalid limit" in (await response.json())["error"]
        async with http.get(f"{world.http}/ledger") as response:
            assert response.status == 404, "not where clients ask"


async def test_row_11_write_off_is_one_step(world: Any) -> None:
    """What was asked for is forgotten in the very commit that does it, and whatever fails in between loses neither."""
    await start(world)
    assert await submit(world, transfer(ALICE), kind="sign") == ["ok"]
    service, name = world.service, client_hash(transfer(ALICE))
    file = service.journal.path
    ask_write_off(file, name.hex())
    ask = "SELECT (SELECT COUNT(*) FROM write_offs), (SELECT COUNT(*) FROM audit WHERE event = 'write-off')"
    seen, really = [service.journal.read(ask)[0]], service.journal.change

    def one_by_one(*writes: Any) -> None:
        really(*writes, lambda connection: seen.append(connection.execute(ask).fetchone()))

    service.journal.change = one_by_one
    service.policy_keeper.write_off()
    await service.journal.flush()
    assert seen[0] == (1, 0) and set(seen[1:]) == {(0, 1)}


async def test_row_11_write_off_of_nothing(world: Any) -> None:
    """A request whose transaction ended meanwhile is forgotten; one whose entry is not written yet waits."""
    await start(world)
    assert await submit(world, transfer(ALICE), kind="sign") == ["ok"]
    service, name = world.service, client_hash(transfer(ALICE))
    ask_write_off(service.journal.path, name.hex())
    entry = service.lifecycle.inflight.by_client_hash(name)
    entry.state = "reserved"
    service.policy_keeper.write_off()
    await service.journal.flush()
    assert service.journal.write_offs() == [name] and len(service.lifecycle.inflight) == 1
    entry.state = "signed"
    service.lifecycle.nonce_moved(ALICE.public, 1)
    service.policy_keeper.write_off()
    await service.journal.flush()
    assert service.journal.write_offs() == []
    assert service.journal.read("SELECT COUNT(*) FROM audit WHERE event = 'write-off'") == [(0,)]


async def test_row_11_what_was_written_off_outlives_retention(world: Any) -> None:
    """Its signature may still be broadcast: however old the row is, nothing else is signed for its nonce."""
    await start(world)
    assert await submit(world, transfer(ALICE), kind="sign") == ["ok"]
    service = world.service
    assert service.lifecycle.write_off(client_hash(transfer(ALICE)))
    await service.journal.flush()
    service.journal.change(lambda connection: connection.execute("UPDATE submissions SET created_ms = 0").close())
    service.journal.prune(time.time_ns())
    await service.journal.flush()
    assert await submit(world, transfer(ALICE, data=b"x", gas_limit=200_000)) == ["nonce too low"]


async def test_row_11_write_off_of_many(world: Any) -> None:
    """All that fit the options are written off at once: by sender, by address, by age, and by all of them together."""
    await start(world)
    others = [wallet(1, number) for number in range(1, 4)]
    assert await submit(world, transfer(ALICE), transfer(ALICE, 1), kind="sign", ip="10.0.0.1") == ["ok", "ok"]
    assert await submit(world, *map(transfer, others), kind="sign", ip="10.0.0.2") == ["ok"] * 3
    service, left = world.service, world.service.lifecycle.inflight
    base = ["policy", "write-off", "--set", f"data_dir={service.settings.data_dir}"]

    async def write_off(*options: str) -> tuple[int, str]:
        done = await asyncio.to_thread(CliRunner().invoke, cli.main, [*base, *options])
        service.policy_keeper.write_off()
        return done.exit_code, done.output

    assert (await write_off("--older-than", "3600"))[1].startswith("0 will be written off")
    assert (await write_off("--ip", "10.0.0.1", "--sender", address.encode(others[0].public)))[1].startswith("0 will")
    code, output = await write_off("--sender", address.encode(ALICE.public), "--older-than", "0")
    assert code == 0 and output.startswith("2 will be written off") and len(left) == 3
    code, output = await write_off("--ip", "10.0.0.2")
    assert code == 0 and output.startswith("3 will be written off") and len(left) == 0
    assert len(service.lifecycle.sponsor.written_off) == 5
    for wrong in ((), ("00" * 32, "--ip", "10.0.0.1")):
        assert (await write_off(*wrong))[0] == 2
