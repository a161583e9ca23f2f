"""Three relayers with the same keys, two seats, PostgreSQL with a synchronous standby, and blows against all of them.

Relayers are killed and frozen beyond their lease, the server is killed and started again, and in the end it is lost and
its standby promoted. Clients that never give up meet any relayer. No nonce is ever signed with two payloads, no key has
more at risk than its one budget, and what was acknowledged is in a block. 6 blows by default, `MILLRACE_BLOWS=200` is
the long form; the seed is printed, `MILLRACE_SEED` repeats one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from relayer_support import with_identity

from millrace.system.ports import free_ports
from relayer.test_kill import background
from relayer.torture import AT_RISK, CLIENTS, FEE, POLICY, Torture
from servers.postgres import Postgres, Standby

BLOWS = int(os.environ.get("MILLRACE_BLOWS", "6"))
SEED = int(os.environ.get("MILLRACE_SEED") or secrets.randbelow(10**9))
KINDS = ("relayer", "frozen", "database")
LEASE = 3.5
PAID = 4
"""Of each client's transactions a programme pays so many."""
PROGRAMME = f"""
[programmes.gift]
until = 2999-01-01T00:00:00Z
functions = [""]
budget = {CLIENTS * PAID * FEE}
per_user = {PAID}
"""


@pytest.fixture
def servers() -> Iterator[tuple[Postgres, Standby]]:
    """A primary and a standby that every commit waits for."""
    with contextlib.ExitStack() as stack:
        primary = Postgres()
        stack.callback(primary.close)
        primary.start()
        standby = Standby(primary)
        stack.callback(standby.close)
        standby.start()
        primary.wait_for_standby()
        yield primary, standby


class Cluster(Torture):
    """Several relayer processes; each client's connection is to any of them."""

    holds_broadcasts = False

    def __init__(self, folder: Path, servers: tuple[Postgres, Standby]) -> None:
        super().__init__(folder)
        self.chance = random.Random(SEED)
        self.primary, self.standby = servers
        self.urls: list[str] = []
        self.processes: dict[int, asyncio.subprocess.Process] = {}
        self.given: list[dict[str, Any]] = []
        self.blows = dict.fromkeys(KINDS, 0)
        self.pause = 0.0
        """For how long nothing was acknowledged when the standby was promoted."""

    @property
    def url(self) -> str:
        return self.chance.choice(self.urls)

    @url.setter
    def url(self, _: str) -> None: ...

    async def prepare(self, listener: str) -> None:
        await super().prepare(listener)
        (self.folder / "policy.toml").write_text(POLICY + PROGRAMME)
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        url = f"postgresql://millrace:{self.primary.password}@{hosts}/postgres?target_session_attrs=read-write"
        for number in range(3):
            ports = free_ports(2)
            self.urls.append(f"ws://127.0.0.1:{ports[0]}/ws")
            self.given.append(
                self.values
                | {
                    "port": ports[0], "http_port": ports[1], "data_dir": with_identity(self.folder / f"data{number}"),
                    "claims_url": url, "claims_seats": 2, "claims_standby": False, "lease_seconds": LEASE,
                    "signer_timeout": 1.0,
                }
            )  # fmt: skip

    async def keep_one(self, number: int) -> None:
        """As a service manager does."""
        arguments = [item for name, value in self.given[number].items() for item in ("--set", f"{name}={value}")]
        process = None
        try:
            while True:
                self.processes[number] = process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "millrace", "relayer", *arguments, stderr=self.log
                )
                await process.wait()
                self.starts += 1
        finally:
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()

    async def strike(self) -> None:
        order = [KINDS[number % len(KINDS)] for number in range(BLOWS)]
        self.chance.shuffle(order)
        for kind in order:
            await self._progress()
            await asyncio.sleep(self.chance.random() * 0.2)
            self.blows[kind] += 1
            if kind == "database":
                self.primary.kill()
                await self.primary.restart()
                continue
            process = self.processes[self.chance.randrange(len(self.processes))]
            with contextlib.suppress(ProcessLookupError):
                if kind == "relayer":
                    process.kill()
                else:
                    process.send_signal(signal.SIGSTOP)
                    await asyncio.sleep(LEASE * (0.5 + self.chance.random()))
                    process.send_signal(signal.SIGCONT)
        await self._progress()

    async def fail_over(self) -> None:
        """The primary is gone for good."""
        self.primary.kill()
        lost = time.monotonic()
        await asyncio.to_thread(self.standby.promote)
        before = len(self.accepted)
        while len(self.accepted) == before:
            await asyncio.sleep(0.01)
        self.pause = time.monotonic() - lost
        await self._progress()

    @property
    def missing(self) -> list[str]:
        """What was acknowledged and is in no block."""
        clients = {self.work(number).pair.public: number for number in range(CLIENTS)}
        return [
            f"nonce {nonce} of client {clients[sender]}"
            for (sender, nonce), name in self.accepted.items()
            if bytes.fromhex(name) not in self.chain.pushed_at
        ]

    async def paid(self) -> tuple[list[int], int]:
        """Of how many of each client's the programme paid, once it is known what they did cost, and all of that."""
        async with asyncio.timeout(60):
            while await self._asked("SELECT 1 FROM programme_charges"):
                await asyncio.sleep(0.1)
        counts = await self._asked("SELECT transactions FROM programme_users")
        return list(map(int, counts)), int((await self._asked("SELECT spent FROM programmes"))[0])

    async def _asked(self, query: str) -> list[str]:
        answer: str = await asyncio.to_thread(self.standby.sql, "SET search_path TO relayer_claims", query)
        return answer.split()

    async def settled(self) -> None:
        """A client takes a `TimeoutError` for a lost connection, and would ask for ever."""
        try:
            await super().settled()
        except TimeoutError:
            raise AssertionError(f"acknowledged and in no block: {self.missing}") from None

    def report(self) -> str:
        pause = f"{self.pause:.1f} s without acknowledgement"
        return f"seed {SEED}, blows {self.blows}, {pause}, {super().report()}, in no block {self.missing}"


@pytest.mark.timeout(600 + 30 * BLOWS)
async def test_row_10_blows_against_relayers_that_share(tmp_path: Path, servers: tuple[Postgres, Standby]) -> None:
    """One payload for a nonce, one budget, and an end for everything acknowledged, whatever is lost."""
    cluster = Cluster(tmp_path, servers)
    chain = cluster.chain
    async with background(chain.produce()):
        await cluster.prepare("/ip4/127.0.0.1/tcp/1/p2p/none")
        for given in cluster.given:
            given.update(gossip=False, gossip_bootstrap="[]")
        try:
            async with background(*(cluster.keep_one(number) for number in range(3))):
                clients = [asyncio.create_task(cluster.client(number)) for number in range(CLIENTS)]
                async with background(*clients):
                    await cluster.strike()
                    await cluster.fail_over()
                    cluster.done = True
                    await asyncio.gather(*clients)
                    counts, spent = await cluster.paid()
        finally:
            print(cluster.report())
            await cluster.close()
    assert chain.wrong == []
    assert len(cluster.accepted) >= 10 * BLOWS
    assert 0 < chain.most_at_risk <= AT_RISK
    assert len(counts) == CLIENTS - 1, "one of them asks no key to pay"
    assert all(0 < count <= PAID for count in counts) and 0 < spent <= sum(counts) * FEE
    assert "Traceback" not in (tmp_path / "relayer.log").read_text()
