"""Our notifiers and our relayer as processes, and a client that hears what the relayer tells."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from tests.foreign.node.network import CHAIN
from tests.foreign.node.wallets import Wallet

from millrace.chain.transaction import Transaction, to_json
from millrace.relayer.journal import identity
from millrace.system.ports import HOST, free_ports
from millrace.system.processes import Processes, Service

READY_SECONDS = 60.0
POLICY = "[quotas]\nfailures = 1000\ncall_sample = 1000\n"
"""Much of the traffic fails, as it should: nobody is to wait for that."""
TOPICS = 60
"""Of one connection; it may have 64."""


class Notifier:
    """One notifier, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        port, http, self.metrics = free_ports(3)
        self._processes = Processes(folder / "logs")
        self._service = Service(
            "notifier",
            f"http://{HOST}:{http}/health",
            {"port": port, "http_port": http, "metrics_port": self.metrics, "data_dir": folder / "journal"},
        )
        self._is_open = False
        self.save_url, self.hub_url = f"ws://{HOST}:{port}/save", f"ws://{HOST}:{port}/hub/ws"
        self._before = 0.0
        """Seconds of CPU that earlier lives took."""

    async def start(self) -> None:
        """Until it serves, for the first time or again."""
        if not self._is_open:
            await self._processes.__aenter__()
            self._is_open = True
        await self._processes.start(self._service)
        await self._processes.wait_ready(self._service, READY_SECONDS)

    async def kill(self) -> None:
        """As a crash would."""
        self._before = self.spent()
        await self._processes.kill("notifier")

    async def close(self) -> None:
        """End it."""
        await self._processes.__aexit__()

    def spent(self) -> float:
        """Seconds of CPU that all its lives took."""
        fields = Path(f"/proc/{self._processes.pid('notifier')}/stat").read_text().rpartition(")")[2].split()
        return self._before + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Relayer:
    """Our relayer, with a key in each shard, and its clients."""

    def __init__(self, folder: Path, hub_url: str, chain_api_url: str) -> None:
        self.keys = [Wallet(shard) for shard in range(CHAIN.shards)]
        port, http, self.metrics = free_ports(3)
        self._ws, self.http = f"ws://{HOST}:{port}/ws", f"http://{HOST}:{http}"
        folder.mkdir()
        identity.make(folder / "data")
        (folder / "policy.toml").write_text(POLICY)
        self._processes = Processes(folder / "logs")
        self._service = Service(
            "relayer",
            f"{self.http}/ready",
            {
                "port": port, "http_port": http, "metrics_port": self.metrics, "profile": CHAIN.name,
                "chain_id": CHAIN.chain_id, "hub_url": hub_url, "chain_api_url": chain_api_url, "gossip": False,
                "key_files": [self._key_file(folder, wallet) for wallet in self.keys], "max_nonce_gap": 100,
                "data_dir": folder / "data", "lease_dir": folder / "leases",
                "policy_file": folder / "policy.toml",
            },
        )  # fmt: skip
        self._session = aiohttp.ClientSession()
        self._links: list[aiohttp.ClientWebSocketResponse] = []
        self._readers: list[asyncio.Task[None]] = []
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._subscribed = 0
        self.statuses: dict[str, list[dict[str, Any]]] = {}
        """What was pushed of each transaction."""
        self.accounts: list[dict[str, Any]] = []
        """What was pushed of accounts."""

    @staticmethod
    def _key_file(folder: Path, wallet: Wallet) -> str:
        file = folder / f"{wallet.shard}.pem"
        file.touch(mode=0o600)
        file.write_text(wallet.key.to_pem())
        return str(file)

    async def start(self) -> None:
        """Start it; it is ready once blocks come."""
        await self._processes.__aenter__()
        await self._processes.start(self._service)

    async def ready(self) -> None:
        """Wait until it sponsors in all shards, and hear of all accounts."""
        await self._processes.wait_ready(self._service, READY_SECONDS)
        await self._ask({"action": "subscribe", "topic": "accounts"})

    async def submit(self, tx: Transaction) -> dict[str, Any]:
        """Have it relayed, or broadcast if it names no relayer, and subscribe to its end. The reply."""
        action = "relay" if tx.relayer else "broadcast"
        return await self._ask({"action": action, "tx": msgspec.to_builtins(to_json(tx)), "autoSubscribe": True})

    async def subscribe(self, tx_hash: str) -> None:
        """Hear of the end of a transaction that others send."""
        await self._ask({"action": "subscribe", "topic": f"tx-status/{tx_hash}"})

    async def get(self, path: str) -> Any:
        """What its REST interface answers."""
        async with self._session.get(self.http + path) as answer:
            return await answer.json()

    async def close(self) -> None:
        """End it, and its clients."""
        for link in self._links:
            await link.close()
        await asyncio.gather(*self._readers)
        await self._session.close()
        await self._processes.__aexit__()

    async def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._subscribed % TOPICS == 0:
            self._links.append(await self._session.ws_connect(self._ws, max_msg_size=0))
            self._readers.append(asyncio.create_task(self._read(self._links[-1])))
        self._subscribed += 1
        reply = self._replies[self._subscribed] = asyncio.get_running_loop().create_future()
        await self._links[-1].send_json(message | {"requestId": self._subscribed})
        return await asyncio.wait_for(reply, READY_SECONDS)

    async def _read(self, link: aiohttp.ClientWebSocketResponse) -> None:
        async for message in link:
            told = json.loads(message.data)
            match told.get("type"):
                case "tx-status":
                    self.statuses.setdefault(told["data"]["hash"], []).append(told["data"])
                case "accountDelta":
                    self.accounts.append(told["data"])
                case None:
                    self._replies[told["requestId"]].set_result(told)
