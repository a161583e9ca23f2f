"""A network of real nodes in one process, and a gateway in front of their REST interfaces."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from millrace.chain import address
from millrace.chain.network import NetworkProfile, profile
from millrace.chain.shard import METACHAIN

HERE = Path(__file__).parent
CHAIN: NetworkProfile = profile("mainnet", chain_id="chain")
SHARDS = (0, 1, 2, METACHAIN)
PATIENCE = 300.0


def configuration() -> Path:
    """The configuration that comes with the nodes' code, in Go's module cache."""
    module = "github.com/multiversx/mx-chain-go"
    listed = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", module], cwd=HERE, check=True, capture_output=True, text=True
    )
    return Path(listed.stdout.strip()) / "cmd/node/config"


class Nodes:
    """The process of all nodes: commands on its stdin, events on its stdout, each a line of JSON."""

    def __init__(self, process: asyncio.subprocess.Process, apis: dict[int, str]) -> None:
        self._process, self._apis = process, apis
        self._asked = 0
        self._turn = asyncio.Lock()
        self._http = aiohttp.ClientSession()

    @classmethod
    async def start(cls, program: Path, folder: Path, *drivers: str) -> Nodes:
        """`drivers`: for each of a node's outport drivers, its marshaller and URL."""
        with (folder / "stderr.log").open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                program, configuration(), folder, *drivers,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        ready = await cls._line(process)
        return cls(process, {int(shard): url for shard, url in ready["apis"].items()})

    @staticmethod
    async def _line(process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        event: dict[str, Any] = json.loads(line or b'{"event": "ended"}')
        assert event["event"] in ("ready", "done"), event
        return event

    async def ask(self, do: str, **arguments: str | int) -> None:
        """One command, and its end."""
        assert self._process.stdin is not None
        async with self._turn:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            done = await self._line(self._process)
        assert "error" not in done, done["error"]

    async def blocks(self, count: int = 1) -> None:
        """Every node makes so many blocks."""
        await self.ask("blocks", count=count)

    async def mint(self, pubkey: bytes, amount: int) -> None:
        """Give an account so much, out of nothing."""
        await self.ask("mint", address=address.encode(pubkey), balance=str(amount))

    async def get(self, shard: int, path: str) -> dict[str, Any] | None:
        """What the node of a shard answers, `None` where it knows nothing of it."""
        async with self._http.get(self._apis[shard] + path) as answer:
            body = await answer.json()
        return body["data"] if answer.status == 200 else None

    async def post(self, shard: int, path: str, body: Any) -> tuple[int, Any]:
        """What the node of a shard answers to a body."""
        async with self._http.post(self._apis[shard] + path, json=body) as answer:
            return answer.status, await answer.json()

    async def transaction(self, shard: int, tx_hash: str) -> dict[str, Any] | None:
        """A transaction, with its results, as the node of a shard knows it."""
        found = await self.get(shard, f"/transaction/{tx_hash}?withResults=true")
        return None if found is None else found["transaction"]

    async def account(self, pubkey: bytes, **query: str | int) -> dict[str, Any]:
        """An account now, or at the block that `query` names."""
        text = "&".join(f"{name}={value}" for name, value in query.items())
        found = await self.get(CHAIN.shard_of(pubkey), f"/address/{address.encode(pubkey)}?{text}")
        assert found is not None
        return found

    async def close(self) -> None:
        """End all nodes."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._http.close()
        await asyncio.wait_for(self._process.wait(), PATIENCE)


class Gateway:
    """What stands between a public network and its nodes: asks the node of whose shard a question is."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.url = ""
        self.silent: set[bytes] = set()
        """Accounts of which it tells nothing (more)."""

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application()
        app.add_routes([
            web.get("/network/config", self._config),
            web.get("/accounts/{address}", self._account),
            web.get("/address/{address}", self._address),
            web.post("/transactions", self._send),
            web.post("/transaction/simulate", self._simulate),
        ])  # fmt: skip
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    async def _config(self, _: web.Request) -> web.Response:
        return web.json_response({"data": await self._nodes.get(METACHAIN, "/network/config")})

    async def _address(self, request: web.Request) -> web.Response:
        return web.json_response({"data": await self._ask(request)})

    async def _account(self, request: web.Request) -> web.Response:
        account = (await self._ask(request))["account"]
        told = {"nonce": account["nonce"], "balance": account["balance"]}
        if request.query.get("withGuardianInfo") != "true":
            return web.json_response(told)  # the public API asks a node only for who wants to know
        told["isGuarded"] = False
        name = request.match_info["address"]
        guardian = await self._nodes.get(CHAIN.shard_of(address.decode(name)), f"/address/{name}/guardian-data")
        if guardian is not None and guardian["guardianData"].get("guarded"):
            active = guardian["guardianData"]["activeGuardian"]["address"]
            told |= {"isGuarded": True, "activeGuardianAddress": active}
        return web.json_response(told)

    async def _ask(self, request: web.Request) -> dict[str, Any]:
        pubkey = address.decode(request.match_info["address"])
        if pubkey in self.silent:
            raise web.HTTPServiceUnavailable
        return await self._nodes.account(pubkey, **request.query)

    async def _send(self, request: web.Request) -> web.Response:
        tx = await request.json()
        shard = CHAIN.shard_of(address.decode(tx["sender"]))
        status, answer = await self._nodes.post(shard, "/transaction/send", tx)
        if status != 200:
            return web.json_response({"statusCode": status, "message": answer["error"]}, status=status)
        return web.json_response(answer["data"], status=201)

    async def _simulate(self, request: web.Request) -> web.Response:
        tx = await request.json()
        shard = CHAIN.shard_of(address.decode(tx["sender"]))
        status, answer = await self._nodes.post(shard, "/transaction/simulate?checkSignature=false", tx)
        return web.json_response(answer, status=status)
