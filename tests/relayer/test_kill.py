"""kill -9 of the relayer and of its signing process under load: nothing accepted is lost, nothing signed twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sqlite3
import sys
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from relayer_support import NETWORK, FakeChainApi, FakeHub, as_json, transfer, wallet, write_keys

from millrace.chain.keys import verify
from millrace.chain.transaction import TransactionJson, chain_hash, from_json, signing_message

KILLS = 6


class Torture:
    """One relayer process, killed again and again, and clients that never give up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hub, self.api = FakeHub(), FakeChainApi()
        self.accepted: dict[tuple[bytes, int], str] = {}
        self.process: asyncio.subprocess.Process | None = None
        self.url = ""
        self.arguments: list[str] = []
        self.kills = 0
        self.done = False

    async def prepare(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
            ports = first.getsockname()[1], second.getsockname()[1]
        self.url = f"ws://127.0.0.1:{ports[0]}/ws"
        values = {
            "port": ports[0],
            "http_port": ports[1],
            "chain_id": NETWORK.chain_id,
            "hub_url": f"ws://127.0.0.1:{await self.hub.start()}/hub/ws",
            "chain_api_url": await self.api.start(),
            "data_dir": str(self.folder / "data"),
            "key_files": msgspec.json.encode(write_keys(self.folder / "keys")).decode(),
            "gossip": "false",
            "submit_rate": 100000,
        }
        self.arguments = [item for name, value in values.items() for item in ("--set", f"{name}={value}")]

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "millrace", "relayer", *self.arguments,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip

    async def killer(self) -> None:
        """Kill the service, or only its signing process, at random moments."""
        chance = random.Random(1)
        for number in range(KILLS):
            before = len(self.accepted)
            async with asyncio.timeout(60):
                while len(self.accepted) < before + 10:
                    await asyncio.sleep(0.005)
            await asyncio.sleep(chance.random() * 0.02)
            assert self.process is not None
            if number % 3 == 2:
                for child in _children(self.process.pid):
                    os.kill(child, signal.SIGKILL)
            else:
                self.process.kill()
                await self.process.wait()
                await self.start()
            self.kills += 1
        self.done = True

    async def client(self, number: int) -> None:
        """Submit nonce after nonce; without an answer, first another payload, then the same bytes again."""
        pair = wallet(number % 3, number)
        nonce = 0
        async with aiohttp.ClientSession() as http:
            while not self.done:
                try:
                    async with http.ws_connect(self.url, timeout=aiohttp.ClientWSTimeout(ws_close=1)) as link:
                        while not self.done:
                            tx = transfer(pair, nonce)
                            await self.submit(link, transfer(pair, nonce, gas_limit=200_000 + nonce))
                            if await self.submit(link, tx) or (pair.public, nonce) in self.accepted:
                                nonce += 1
                except (aiohttp.ClientError, OSError, TimeoutError):
                    await asyncio.sleep(0.02)

    async def submit(self, link: aiohttp.ClientWebSocketResponse, tx: Any) -> bool:
        await link.send_json({"action": "relay", "tx": as_json(tx)})
        message = await link.receive(5)
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise aiohttp.ClientConnectionError
        reply = message.json()
        for tx_hash in reply.get("hashes", []):
            earlier = self.accepted.setdefault((tx.sender, tx.nonce), tx_hash)
            assert earlier == tx_hash, "two payloads of one nonce were accepted"
        return bool(reply.get("hashes"))


async def test_row_10_double_sponsor_under_kill_9(tmp_path: Path) -> None:
    """Over random kills each (sender, nonce) has one signed payload, and every accepted one gets to the chain."""
    torture = Torture(tmp_path)
    await torture.prepare()
    await torture.start()
    try:
        clients = [asyncio.create_task(torture.client(number)) for number in range(6)]
        await torture.killer()
        await asyncio.gather(*clients)
        wanted = set(torture.accepted.values())
        async with asyncio.timeout(30):
            while not wanted <= {_hash(item) for item in torture.api.submitted}:
                await asyncio.sleep(0.05)
    finally:
        if torture.process is not None and torture.process.returncode is None:
            torture.process.terminate()
            await torture.process.wait()
        await torture.hub.stop()
        await torture.api.stop()
    payloads: dict[tuple[bytes, int], set[bytes]] = {}
    for item in torture.api.submitted:
        tx = from_json(msgspec.convert(item, TransactionJson))
        assert verify(tx.relayer, signing_message(tx), tx.relayer_signature)
        payloads.setdefault((tx.sender, tx.nonce), set()).add(signing_message(tx))
    assert all(len(found) == 1 for found in payloads.values())
    assert torture.kills == KILLS and len(torture.accepted) >= 10 * KILLS
    _audit_adds_up(tmp_path / "data" / "journal.sqlite")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _hash(item: dict[str, Any]) -> str:
    return chain_hash(from_json(msgspec.convert(item, TransactionJson))).hex()


def _audit_adds_up(path: Path) -> None:
    """Every row our keys pay for was reserved exactly once, for exactly its fee."""
    journal = sqlite3.connect(path)
    rows = dict(journal.execute("SELECT client_hash, fee FROM submissions WHERE relayer IS NOT NULL"))
    reserved = journal.execute("SELECT client_hash, amount FROM audit WHERE event = 'reserve'").fetchall()
    journal.close()
    assert len(reserved) == len(rows) and dict(reserved) == rows
