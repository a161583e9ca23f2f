"""The TypeScript client at work: npm, Node, and a system under `mainnet` rules for it to talk to."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from millrace.chain.address import encode
from millrace.chain.keys import KeyPair
from millrace.system.demo import AMOUNT_IN, PAY
from millrace.system.local_chain import LocalChain
from millrace.system.plan import Plan, Ports, services, wallet_in_shard
from millrace.system.processes import Processes, Service

CLIENT = Path(__file__).parents[2] / "clients" / "typescript"
READY_SECONDS = 120.0


def npm(*arguments: str, folder: Path = CLIENT) -> str:
    """Run npm; what it says on standard output. Its failure is the test's."""
    program = shutil.which("npm")
    assert program, "the TypeScript client's tests need Node 20 and npm"
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclasses.dataclass
class System:
    """The services under `mainnet` rules, and their local chain."""

    plan: Plan
    processes: Processes
    services: dict[str, Service]
    chain: LocalChain

    @property
    def addresses(self) -> dict[str, str]:
        """What stands in the documents for each service, and where it is here."""
        ports = self.plan.ports
        return {
            "http://127.0.0.1:8100": self.plan.aggregator_url,
            "http://127.0.0.1:8201": f"http://127.0.0.1:{ports.relayer_http}",
            "ws://127.0.0.1:8200": f"ws://127.0.0.1:{ports.relayer}",
            "ws://127.0.0.1:8300": f"ws://127.0.0.1:{ports.notifier}",
        }

    def here(self, text: str) -> str:
        """A document's text with the addresses of this system."""
        for documented, real in self.addresses.items():
            text = text.replace(documented, real)
        return text

    async def wallet(self, shard: int = 0) -> KeyPair:
        """A new wallet with tokens for three swaps and no EGLD."""
        key = wallet_in_shard(shard, self.plan.network)
        await self.chain.fund(encode(key.public), PAY, 3 * AMOUNT_IN)
        while not (await self.chain.balances(encode(key.public))).get(PAY):
            await asyncio.sleep(0.05)
        return key

    async def control(self, action: str, **body: object) -> None:
        """Something that only the local chain's control can do."""
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self.plan.chain_url}/control/{action}", json=body) as answer,
        ):
            assert answer.status == 200, await answer.text()

    async def kill(self, name: str) -> None:
        """End a service as a crash would."""
        await self.processes.kill(name)

    async def start(self, name: str) -> None:
        """Start it and wait until it serves."""
        await self.processes.start(self.services[name])
        await self.processes.wait_ready(self.services[name], READY_SECONDS)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[System]:
    """Everything, under `mainnet` rules; pages of all sites may ask the relayer."""
    plan = Plan(Ports.free(), folder, poll_seconds=0.5, profile="mainnet")
    wanted = {service.name: service for service in services(plan)}
    relayer = wanted["relayer"]
    wanted["relayer"] = dataclasses.replace(relayer, settings={**relayer.settings, "allowed_origins": ["*"]})
    async with Processes(folder / "logs") as processes, LocalChain(plan.chain_url) as chain:
        for service in wanted.values():
            await processes.start(service)
        await asyncio.gather(*(processes.wait_ready(service, READY_SECONDS) for service in wanted.values()))
        yield System(plan, processes, wanted, chain)


async def node(arguments: Sequence[str], folder: Path, **environment: str) -> tuple[int, str]:
    """Run Node to its end (at most 120 s): exit code, and what it said."""
    process = await asyncio.create_subprocess_exec(
        "node",
        *arguments,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(120):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output.decode()


class Worker:
    """A Node process that answers one line with one line, until it is closed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, command: str) -> Any:
        """What the command answers. Its exception is an assertion here."""
        self.say(command)
        return await self.answer()

    def say(self, command: str) -> None:
        """Ask without waiting."""
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")

    async def answer(self) -> Any:
        """The next answer, within 120 s."""
        assert self._process.stdout is not None
        async with asyncio.timeout(120):
            line = await self._process.stdout.readline()
        answer = json.loads(line or '{"error": "the process has ended"}')
        assert "error" not in answer, answer["error"]
        return answer["answer"]


@asynccontextmanager
async def at_work(script: Path, folder: Path, **environment: str) -> AsyncIterator[Worker]:
    """Node with this script, in a folder where the client is installed."""
    shutil.copy(script, folder)
    process = await asyncio.create_subprocess_exec(
        "node",
        "--disable-warning=ExperimentalWarning",
        script.name,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    try:
        yield Worker(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
