"""A relayer process that is killed again and again, a chain on the gossip network around it, and its clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
from relayer_support import NETWORK, FakeHub, as_json, transfer, wallet, with_identity, write_keys

from millrace.chain.fees import initially_paid_fee
from millrace.chain.transaction import Transaction, client_hash
from millrace.system.ports import free_ports
from relayer.torture_chain import Chain, ChainApi

KILLS = int(os.environ.get("MILLRACE_KILLS", "15"))
CLIENTS = 7
KINDS = ("relayer", "signer", "gossip")
CUTS = KILLS // 4
"""So often the connection to the hub is cut, too."""
PATIENCE = 90.0
FEE = initially_paid_fee(transfer(wallet(0), gas_limit=200_000), NETWORK.gas)
AT_RISK = 12 * FEE
PER_MINUTE = 200 * FEE
POLICY = f"""
[budget]
at_risk = {AT_RISK}
per_minute = {PER_MINUTE}
[quotas]
sender_per_hour = {10**24}
ip_per_hour = {10**24}
"""


class Subscription:
    """One tx-status subscription of one connection."""

    def __init__(self, since: float, kills: int) -> None:
        self.since, self.kills = since, kills
        self.told = 0


class Line:
    """One connection: replies by request id, and what its subscriptions were told."""

    def __init__(self, torture: Torture, socket_: aiohttp.ClientWebSocketResponse) -> None:
        self.torture = torture
        self.socket = socket_
        self.subscriptions: dict[str, Subscription] = {}
        self._replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._number = 0
        self.reader = asyncio.create_task(self._read())

    async def ask(self, **message: Any) -> dict[str, Any]:
        """The reply; raises `ConnectionError` when the connection is lost first."""
        self._number += 1
        await self.socket.send_json({**message, "requestId": self._number})
        waiting = asyncio.ensure_future(self._replies.get())
        await asyncio.wait({waiting, self.reader}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            if not self.reader.done():
                self.torture.chain.wrong.append(f"no answer within 30 s to {message['action']}")
            raise ConnectionError
        reply = waiting.result()
        if reply.get("requestId") != self._number:
            self.torture.chain.wrong.append(f"an answer to something else: {reply}")
        return reply

    def subscribed(self, name: str) -> None:
        self.subscriptions.setdefault(name, Subscription(time.monotonic(), self.torture.kills))

    async def _read(self) -> None:
        async for message in self.socket:
            decoded = msgspec.json.decode(message.data)
            if decoded.get("type") == "tx-status":
                self._told(decoded["data"])
            elif "action" in decoded:
                self._replies.put_nowait(decoded)

    def _told(self, data: dict[str, Any]) -> None:
        name = data["hash"]
        self.subscribed(name)  # by autoSubscribe, told before its reply
        subscription = self.subscriptions[name]
        subscription.told += 1
        is_other = data.get("reason") == "nonce too low" and self.torture.is_another_used(name, data)
        if subscription.told > 1 or (data["status"] != "success" and not is_other):
            self.torture.chain.wrong.append(f"told {subscription.told} times: {data}")
        self.torture.survived += subscription.kills < self.torture.kills


class Torture:
    """One relayer process, killed again and again, and everything around it."""

    holds_broadcasts = True
    """Whether a nonce that was only broadcast is held: relayers that share claim only what they sign."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hub, self.api = FakeHub(), ChainApi()
        self.chain = self.api.chain = Chain(self.hub, self.api)
        self.accepted: dict[tuple[bytes, int], str] = {}
        self.refusals: dict[str, int] = {}
        self.process: asyncio.subprocess.Process | None = None
        self.url = ""
        self.values: dict[str, Any] = {}
        """Settings of the relayer."""
        self.may_run = asyncio.Event()
        self.may_run.set()
        self.starts = 0
        self.kills = 0
        self.killed = dict.fromkeys([*KINDS, "hub"], 0)
        self.survived = 0
        """Subscriptions told although something was killed since they began."""
        self.done = False
        self.chance = random.Random(KILLS)
        self.log = (folder / "relayer.log").open("wb")

    async def prepare(self, listener: str) -> None:
        ports = free_ports(2)
        self.url = f"ws://127.0.0.1:{ports[0]}/ws"
        (self.folder / "policy.toml").write_text(POLICY)
        self.values = {
            "port": ports[0], "http_port": ports[1], "metrics_port": 0, "chain_id": NETWORK.chain_id,
            "hub_url": f"ws://127.0.0.1:{await self.hub.start()}/hub/ws",
            "chain_api_url": await self.api.start(),
            "data_dir": with_identity(self.folder / "data"), "lease_dir": self.folder / "leases",
            "policy_file": self.folder / "policy.toml",
            "key_files": msgspec.json.encode(write_keys(self.folder / "keys")).decode(),
            "gossip_bootstrap": msgspec.json.encode([listener]).decode(), "regossip_seconds": 2.0,
            "submit_rate": 100000, "submit_burst": 100000, "max_topics": 100000, "max_control_messages": 100000,
        }  # fmt: skip

    @property
    def arguments(self) -> list[str]:
        """The same for a command line."""
        return [item for name, value in self.values.items() for item in ("--set", f"{name}={value}")]

    async def keep(self) -> None:
        """As a service manager does: start the relayer, and again whenever it has ended."""
        try:
            while True:
                await self.may_run.wait()
                self.process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "millrace", "relayer", *self.arguments, stderr=self.log
                )
                await self.process.wait()
                self.starts += 1
        finally:
            if self.process is not None and self.process.returncode is None:
                self.process.terminate()
                await self.process.wait()

    async def close(self) -> None:
        self.log.close()
        await self.hub.stop()
        await self.api.stop()

    def report(self) -> str:
        return (
            f"{self.kills} kills {self.killed}, {self.starts} starts, {len(self.accepted)} acknowledged, "
            f"{self.chain.gossiped} gossiped, {self.survived} told across a kill, at most "
            f"{self.chain.most_at_risk / AT_RISK:.2f} of what may be at risk, refusals {self.refusals}, "
            f"wrong {self.chain.wrong}"
        )

    def is_another_used(self, name: str, data: dict[str, Any]) -> bool:
        """Whether other bytes may have had the nonce of what was not acknowledged as signed."""
        return False

    # ---- killing

    async def killer(self) -> None:
        """Mostly wait until things move again; sometimes strike while the last blow is still being recovered from."""
        order = [KINDS[number % len(KINDS)] for number in range(KILLS)] + ["hub"] * CUTS
        self.chance.shuffle(order)
        for kind in order:
            if self.chance.random() < 0.8:
                await self._progress(by_gossip=kind == "gossip")
            await asyncio.sleep(self.chance.random() * 0.1)
            await self._kill(kind)
            self.kills += 1
            self.killed[kind] += 1
        await self._progress()

    async def _progress(self, *, by_gossip: bool = False) -> None:
        """Ten more are acknowledged, and some have travelled by gossip if it is to be gossip that matters."""
        before, gossiped = len(self.accepted), self.chain.gossiped
        async with asyncio.timeout(PATIENCE):
            while len(self.accepted) < before + 10 or (by_gossip and self.chain.gossiped == gossiped):
                await asyncio.sleep(0.005)

    async def _kill(self, kind: str) -> None:
        process = self.process
        if kind == "relayer":
            if process is not None and process.returncode is None:  # else it is down already
                process.kill()
                await process.wait()
        elif kind == "hub":
            for link in list(self.hub.links):
                link.close(1011, "cut")
        else:
            async with asyncio.timeout(PATIENCE):  # it may just be starting
                while self.process is None or not (found := _children(self.process.pid, _MODULES[kind])):
                    await asyncio.sleep(0.01)
            for child in found:
                os.kill(child, signal.SIGKILL)

    # ---- clients

    def work(self, number: int) -> Work:
        """What a client does."""
        return Work(self, number)

    async def client(self, number: int) -> Line:
        """Submit nonce after nonce until told to stop; the last connection."""
        work = self.work(number)
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.ws_connect(self.url, timeout=aiohttp.ClientWSTimeout(ws_close=1)) as link:
                        line = Line(self, link)
                        try:
                            while not self.done:
                                await work.step(line)
                            await self.settled()
                            return line
                        finally:
                            line.reader.cancel()
                            await asyncio.gather(line.reader, return_exceptions=True)
                except (aiohttp.ClientError, OSError):
                    await asyncio.sleep(0.02)

    async def settled(self) -> None:
        """Everything acknowledged is in a block, and whoever listens has had the time to hear of it."""
        async with asyncio.timeout(PATIENCE):
            while not {bytes.fromhex(name) for name in self.accepted.values()} <= self.chain.pushed_at.keys():
                await asyncio.sleep(0.05)
            while self.hub.acked < len(self.hub.events):
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)


_MODULES = {"signer": "millrace.relayer.signing.process", "gossip": "millrace.gossip"}


class Answer(NamedTuple):
    accepted: bool
    code: str


class Work:
    """One sender's transactions, one nonce after the other, with two payloads to choose from for each."""

    def __init__(self, torture: Torture, number: int) -> None:
        self.torture = torture
        self.pair = wallet(number % NETWORK.shards, number)
        self.relayed = number != CLIENTS - 1
        self.nonce = 0
        self.choice = 0

    def payload(self, choice: int) -> Transaction:
        return transfer(self.pair, self.nonce, relayed=self.relayed, gas_limit=100_000 + choice * (1 + self.nonce % 9))

    async def step(self, line: Line) -> None:
        """Submit one of two payloads of this nonce; go on when one is acknowledged, then try the other, too."""
        chance = self.torture.chance
        try:
            answer = await self.submit(line, self.payload(self.choice))
        except ConnectionError:
            if self.relayed or self.torture.holds_broadcasts:
                self.choice = chance.randrange(2)  # nobody knows what became of it
            raise
        if answer.accepted:
            if chance.random() < 0.2:
                other = await self.submit(line, self.payload(1 - self.choice))
                if other.accepted:
                    self.torture.chain.wrong.append(f"two payloads of nonce {self.nonce} were acknowledged")
            self.nonce += 1
            self.choice = 0
            await asyncio.sleep(0.01)
        elif answer.code in ("conflicting_transaction", "nonce_too_low"):
            self.choice = 1 - self.choice
            await asyncio.sleep(0.01)
        else:
            await asyncio.sleep(0.02)

    async def submit(self, line: Line, tx: Transaction) -> Answer:
        torture = self.torture
        name = client_hash(tx).hex()
        if name not in line.subscriptions:
            await line.ask(action="subscribe", topic=f"tx-status/{name}")
            line.subscribed(name)
        action = "relay" if self.relayed else "broadcast"
        reply = await line.ask(action=action, tx=as_json(tx), autoSubscribe=True)
        for item in reply.get("results", []):
            if "state" in item:  # accepted, and its chain hash is not known yet
                continue
            earlier = torture.accepted.setdefault((tx.sender, tx.nonce), item["hash"])
            if earlier != item["hash"]:
                torture.chain.wrong.append(f"nonce {tx.nonce} was acknowledged as {earlier} and as {item['hash']}")
            if "topic" in item:
                line.subscribed(item["hash"])
        if reply.get("hashes"):
            return Answer(True, "")
        code = reply["failed"][0]["code"] if reply.get("failed") else reply["code"]
        torture.refusals[code] = torture.refusals.get(code, 0) + 1
        return Answer(False, code)


def _children(pid: int, module: str) -> list[int]:
    """The children of a process that run a module whose name begins so."""
    found = []
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if module.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found
