"""One holder of a key, as an operator meets it: second relayers, copies and folders without identity are refused."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from relayer_support import as_json, connected, settings, start, submit, transfer, wallet

from millrace.chain.transaction import client_hash
from millrace.cli import main
from millrace.relayer.app import Service
from millrace.relayer.journal.identity import IdentityError
from millrace.relayer.journal.lease_keeper import LeaseKeeper
from millrace.relayer.journal.leases import FileLeases, Held, LeaseError
from millrace.relayer.network.key_balances import KeyBalances
from millrace.relayer.rules.policy_file import seal
from millrace.relayer.signing.handle import SignerError


def _other(world: Any, folder: str) -> dict[str, Any]:
    """The settings of a relayer with the same keys and another folder."""
    return {"data_dir": world.folder / folder}


async def _refused(world: Any, **changes: Any) -> str:
    """Why a relayer with these settings does not start; nothing of it is left."""
    service = Service(settings(world.folder, **(world.urls | changes)))
    try:
        with pytest.raises((SignerError, IdentityError)) as caught:
            await service.start()
    finally:
        await service.stop()
    return str(caught.value)


def _init(folder: Path) -> None:
    done = CliRunner().invoke(main, ["relayer", "init", "--set", f"data_dir={folder}"])
    assert done.exit_code == 0, done.output


async def test_a_second_relayer_with_the_keys_is_refused(world: Any) -> None:
    """Two folders, the same keys: the second one is told which folder has them, while that runs and after."""
    await world.start()
    _init(world.folder / "second")
    text = await _refused(world, **_other(world, "second"))
    assert "is in use by" in text and str(world.folder / "relayer") in text
    assert await submit(world, transfer(wallet(1))) == ["ok"], "the first one goes on"
    await world.stop()
    text = await _refused(world, **_other(world, "second"))
    assert "another folder" in text and "millrace relayer recover" in text
    await world.start()


async def test_a_copy_of_the_folder_is_refused(world: Any) -> None:
    """A copy ten nonces old is refused, although its journal is whole; the folder itself goes on."""
    await world.start()
    assert await submit(world, transfer(wallet(1), 0)) == ["ok"]
    await world.stop()
    shutil.copytree(world.folder / "relayer", world.folder / "copy")
    await world.start()
    for nonce in range(1, 11):
        assert await submit(world, transfer(wallet(1), nonce)) == ["ok"]
    text = await _refused(world, **_other(world, "copy"))
    assert "is in use by" in text
    await world.stop()
    text = await _refused(world, **_other(world, "copy"))
    assert "older copy" in text and "reservation 11" in text
    await world.start()
    assert await submit(world, transfer(wallet(1), 11)) == ["ok"]


async def test_a_folder_without_identity_is_refused(world: Any, tmp_path: Path) -> None:
    """The start says what to do, and after `init`, which adopts what is there, it works."""
    await world.start()
    assert await submit(world, transfer(wallet(1), 0)) == ["ok"]
    await world.stop()
    text = await _refused(world, data_dir=tmp_path / "nowhere")
    assert "millrace relayer init" in text and not (tmp_path / "nowhere").exists()
    (tmp_path / "relayer" / "identity").unlink()
    service = Service(settings(tmp_path / "unused", data_dir=tmp_path / "relayer"))
    with pytest.raises(IdentityError, match="recover"):
        await service.start()
    await service.stop()


def test_init_by_the_command(tmp_path: Path) -> None:
    """`init` makes the folder once; settings may be named before the verb and after it."""
    folder = tmp_path / "data"
    made = CliRunner().invoke(main, ["relayer", "--set", f"data_dir={folder}", "init"])
    assert made.exit_code == 0 and "identity" in made.output
    assert folder.stat().st_mode & 0o777 == 0o700
    again = CliRunner().invoke(main, ["relayer", "init", "--set", f"data_dir={folder}"])
    assert again.exit_code == 1 and "already" in again.output


async def test_rotation_takes_the_lease_of_a_new_key_first(world: Any) -> None:
    """A new key that another relayer holds is not used: the old ones stay. Once it is free it is taken."""
    service = await world.start()
    new = wallet(1, 51)
    other = FileLeases(world.folder / "leases")
    other.take([new.public], Held("b" * 32, 1, 0, "elsewhere"))
    old = service.relayers().by_shard
    key_file = world.folder / "keys" / "shard1.pem"
    key_file.write_text(new.to_pem())
    await service.rotate()
    assert service.relayers().by_shard == old
    assert await submit(world, transfer(wallet(1), 0)) == ["ok"]
    other.give_back([new.public], Held("b" * 32, 1, 0, "elsewhere"))
    for file in (world.folder / "leases").glob(f"{new.public.hex()}.*"):
        file.unlink()
    await service.rotate()
    assert service.relayers().by_shard[1] == new.public
    with pytest.raises(LeaseError, match="in use"):
        other.take([new.public], Held("b" * 32, 1, 0, "elsewhere"))
    other.take([old[1]], Held("b" * 32, 1, 0, "elsewhere"), force=True)  # given back
    other.close()


async def test_a_process_that_comes_back_with_a_foreign_key_signs_nothing(world: Any) -> None:
    """A key without a lease is not used, also when it appears behind the service's back."""
    service = await world.start()
    new = wallet(1, 51)
    other = FileLeases(world.folder / "leases")
    other.take([new.public], Held("b" * 32, 1, 0, "elsewhere"))
    (world.folder / "keys" / "shard1.pem").write_text(new.to_pem())
    returned = asyncio.Event()
    on_return = service.signer.on_return
    service.signer.on_return = lambda: (on_return(), returned.set())
    os.kill(service.signer.pid, signal.SIGKILL)
    async with asyncio.timeout(30):
        await returned.wait()
    tx = transfer(wallet(1), 0, relayer=new.public)
    async with connected(world.ws) as client:
        reply = await client.ask(action="relay", tx=as_json(tx))
    assert reply["failed"][0]["reason"] == "not ready" and "lease" in reply["failed"][0]["detail"]
    assert not service.is_ready()
    other.close()


async def test_a_relayer_whose_lease_is_gone_ends(world: Any) -> None:
    """Who has lost its lease to another signs no more and ends, rather than go on beside it."""
    service = await world.start()
    for file in (world.folder / "leases").iterdir():
        file.unlink()
    with pytest.raises(OSError, match="signs no more"):
        await service.leases.run()
    assert await submit(world, transfer(wallet(1), 0)) == ["not ready"]
    running, world._running = world._running, None
    with pytest.raises(OSError, match="signs no more"):
        await running


async def test_leases_are_renewed_during_a_slow_start(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the moment on in which they are taken: a start may take longer than they last."""
    renewed, renew = asyncio.Event(), LeaseKeeper._renew

    async def noted(keeper: LeaseKeeper) -> None:
        await renew(keeper)
        renewed.set()

    async def slow(_: KeyBalances) -> None:
        async with asyncio.timeout(20):
            await renewed.wait()

    monkeypatch.setattr(LeaseKeeper, "_renew", noted)
    monkeypatch.setattr(KeyBalances, "refresh", slow)
    service = await world.start()
    assert service.keys.why_not() is None


async def test_two_policies_that_take_turns(world: Any) -> None:
    """While the policy is another one every moment no nonce is signed twice, and what was accepted is signed."""
    policies = [f"[caps]\ngas_limit = {limit}\n[quotas]\nfailures = 1000\n" for limit in (600_000, 110_000)]
    await start(world, policies[0])
    file = world.folder / "policy.toml"

    async def take_turns() -> None:
        for turn in itertools.count():
            scratch = file.with_suffix(".new")
            scratch.write_text(seal(policies[turn % 2]))
            scratch.replace(file)
            await asyncio.sleep(0.02)

    accepted: dict[tuple[bytes, int], str] = {}

    async def client(number: int) -> None:
        pair, nonce = wallet(number, number), 0
        for gas_limit in itertools.cycle((300_000, 105_000, 100_000)):
            tx = transfer(pair, nonce, gas_limit=gas_limit)
            if await submit(world, tx) == ["ok"]:
                accepted[pair.public, nonce] = client_hash(tx).hex()
                nonce += 1
            if nonce == 8:
                return

    turns = asyncio.create_task(take_turns())
    try:
        async with asyncio.timeout(60):
            await asyncio.gather(*map(client, range(3)))
    finally:
        turns.cancel()
        await asyncio.gather(turns, return_exceptions=True)
    await world.service.journal.flush()
    signed = world.service.journal.read(
        "SELECT sender, nonce, hex(client_hash) FROM submissions JOIN signatures USING (id)"
    )
    assert {(sender, nonce): name.lower() for sender, nonce, name in signed} == accepted and len(signed) == 24
