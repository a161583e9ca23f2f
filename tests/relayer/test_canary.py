"""Secret keys stay in the signing process: nothing the service says, logs or stores holds a byte of them."""

from __future__ import annotations

import base64
import logging
from typing import Any

import aiohttp
import pytest
from relayer_support import RELAYERS, as_json, connected, transfer, wallet


def forms(secret: bytes) -> list[bytes]:
    """How a seed could show up: raw, hex of either case, base64, and inside a PEM body."""
    pem = base64.b64encode(secret.hex().encode())
    return [secret, secret.hex().encode(), secret.hex().upper().encode(), base64.b64encode(secret)[:40], pem[:80]]


async def test_row_35_keys_in_logs_and_replies(world: Any, caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    """After good and bad submissions, a key rotation and a failed one, no output or file holds a secret."""
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    service = await world.start()
    alice = wallet(1)
    key_file = world.folder / "keys" / "shard0.pem"
    async with connected(world.ws) as client, aiohttp.ClientSession(world.http) as http:
        said.append(str(await client.ask(action="relay", tx=as_json(transfer(alice)))))
        said.append(str(await client.ask(action="relay", tx=as_json(transfer(RELAYERS[1])))))
        said.append(str(await client.ask(action="relay", tx={"nonce": "x"})))
        async with http.post("/v1/sign", json={"transactions": [as_json(transfer(alice, 1))]}) as response:
            said.append(await response.text())
        await service.rotate()
        key_file.chmod(0o644)
        await service.rotate()
        key_file.chmod(0o600)
        for path in ("/health", "/metrics"):
            async with http.get(world.operators + path) as response:
                said.append(await response.text())
    said += [repr(service), repr(service.signer), repr(service.settings), repr(vars(service))]
    said += [record.getMessage() + str(record.__dict__) for record in caplog.records]
    said += list(capfd.readouterr())
    stored = [file.read_bytes() for file in (world.folder / "relayer").rglob("*") if file.is_file()]
    everything = "\n".join(said).encode() + b"".join(stored)
    assert RELAYERS[1].public in everything, "the search itself works: public keys are found"
    for pair in RELAYERS.values():
        for form in forms(bytes(pair._signing)):
            assert form not in everything


async def test_rotation_takes_new_keys(world: Any) -> None:
    """After a rotation the new key signs; a transaction that names the old one is refused."""
    service = await world.start()
    old = transfer(wallet(1))
    new = wallet(1, 51)
    key_file = world.folder / "keys" / "shard1.pem"
    key_file.write_text(new.to_pem())
    await service.rotate()
    async with connected(world.ws) as client:
        reply = await client.ask(action="relay", tx=as_json(old))
        assert reply["failed"][0]["reason"] == "invalid relayer address"
    assert service.relayers().by_shard[1] == new.public
