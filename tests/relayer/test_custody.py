"""One holder, whatever happens: kills of any process, backups, moves and restores, and rivals with the same keys.

Clients that never give up submit to a relayer whose folder is copied, moved (the command is killed, too) and put back
from a backup, while second relayers are started on copies of it, on folders it was moved from, and on new ones, which
are to be moved, too, also while it is frozen and cannot defend its keys: by leases that end another one goes on, and it
has to find that. No (sender, nonce) is ever signed with two payloads, by all journals together; no rival gets ready, or
is moved; what all of them reserved in any minute is within one budget. 10 blows by default, 6 of them where leases are
on PostgreSQL; `MILLRACE_BLOWS=200` is the nightly form, `MILLRACE_SEED` repeats one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import shutil
import signal
import sqlite3
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from relayer_support import NETWORK

from millrace.gossip import GossipHandle, GossipSettings, PeerSettings
from millrace.relayer.journal import identity
from millrace.system.ports import free_ports
from relayer.test_kill import SLACK_MS, background
from relayer.torture import CLIENTS, FEE, Answer, Line, Torture, Work
from servers.postgres import Postgres

BLOWS = int(os.environ.get("MILLRACE_BLOWS", "10"))
SEED = int(os.environ.get("MILLRACE_SEED") or secrets.randbelow(10**9))
KINDS = ("relayer", "signer", "backup", "rival", "move", "freeze", "rival", "restore", "stop", "backup")
AHEAD = 4
STUCK = 8
"""Refusals one after the other after which a sender pays for its nonce itself."""
HELD = 100
"""The same, of which each says that too many are in flight: what a backup had in flight has run since, and the relayer
hears of it by the sender's next block, or when it gives up sending it. Some two seconds, twenty blocks."""
AT_RISK, PER_MINUTE = 12 * FEE, 5_000 * FEE
"""A safe start waits for the minute that may have been spent; else the clients come nowhere near it."""
RULES = f"""
[budget]
at_risk = {AT_RISK}
per_minute = {PER_MINUTE}
[quotas]
sender_per_hour = {10**24}
ip_per_hour = {10**24}
sign_only_ahead = {AHEAD - 1}
sender_in_flight = {AHEAD}
"""


class Custody(Torture):
    """A relayer whose folder is copied, moved and put back, with rivals beside it."""

    def __init__(self, folder: Path, lease: dict[str, Any]) -> None:
        super().__init__(folder)
        self.lease = lease
        self.blows = BLOWS if "lease_dir" in lease else max(4, BLOWS // 2 - 1)
        self.chance = random.Random(SEED)
        self.folders: list[Path] = []
        """Of which a journal may have signed."""
        self.backups: list[Path] = []
        self.copies: list[Path] = []
        self.made = 0
        self.rivals = 0
        self.restores = 0
        self.said: list[str] = []

    async def prepare(self, listener: str) -> None:
        await super().prepare(listener)
        (self.folder / "policy.toml").write_text(RULES)
        self.values |= self.lease
        self.folders.append(self.values["data_dir"])

    @property
    def data(self) -> Path:
        return self.folders[-1]

    def new_folder(self, kind: str) -> Path:
        self.made += 1
        return self.folder / f"{kind}-{self.made}"

    def use(self, folder: Path) -> None:
        self.folders.append(folder)
        self.values["data_dir"] = folder

    # ---- blows

    async def strike(self) -> None:
        """Every kind of blow, in a random order, as often as there are to be."""
        order = [KINDS[number % len(KINDS)] for number in range(self.blows)]
        self.chance.shuffle(order)
        for kind in order:
            # Something is paid for before the first: a restored folder takes a minute's budget for spent.
            if self.chance.random() < 0.8 or not self.said:
                await self._progress()
            await asyncio.sleep(self.chance.random() * 0.1)
            self.said.append(kind)
            if kind in ("relayer", "signer"):
                await self._kill(kind)
                self.kills += 1
                self.killed[kind] += 1
            else:
                await getattr(self, f"blow_{kind}")()
        await self._progress()

    async def blow_backup(self) -> None:
        """Beside the running relayer; some are killed on the way, and are no backups then."""
        target = self.new_folder("backup")
        if await self.command("backup", str(target), killed=0.3):
            self.backups.append(target)

    async def blow_stop(self) -> None:
        """A clean stop, after which every folder that ever was but the last is refused, and every copy that lacks
        anything: one that was made after the last reservation is as good as the folder itself."""
        await self.stop(gently=True)
        here = _reservations(self.data)
        for folder in [*self.folders[:-1], *(copy for copy in self.copies if _reservations(copy) < here)]:
            await self.rival(folder)
        self.may_run.set()

    async def blow_rival(self) -> None:
        """Beside the running relayer a copy of its folder, as it lies there, and a new one."""
        await self.serves()
        copy = self.new_folder("copy")
        shutil.copytree(self.data, copy, ignore=shutil.ignore_patterns("lock"))
        self.copies.append(copy)
        await self.rival(copy)
        fresh = self.new_folder("fresh")
        identity.make(fresh)
        await self.rival(fresh)

    async def blow_move(self) -> None:
        """Stopped in one way or the other, then moved by a command that is killed until it comes through."""
        await self.stop(gently=self.chance.random() < 0.5)
        source, target = self.data, self.new_folder("data")
        while not await self.command("move", str(target), killed=0.5):
            if identity.read(source).state == "ready":  # nothing has happened but half a copy
                shutil.rmtree(target, ignore_errors=True)
        self.use(target)
        await self.rival(source)
        self.may_run.set()

    async def blow_restore(self) -> None:
        """Stopped, put back from the last backup into a new folder, and started safely."""
        if not self.backups:
            await self.blow_backup()
        if not self.backups:
            return
        await self.stop(gently=self.chance.random() < 0.5)
        source = self.data
        self.use(self.new_folder("data"))
        assert await self.command("restore", str(self.backups[-1]))
        await self.rival(self.data)
        while not await self.command("recover", "--yes", "--wait", "0", killed=0.3):
            pass
        await self.rival(source)
        self.restores += 1
        self.may_run.set()

    async def blow_freeze(self) -> None:
        """Stopped in the middle, a copy of its folder started, and continued: by files it still has its keys; leases
        that end go to the copy, and whoever is continued ends by itself."""
        await self._progress()  # right after a safe start the copy, too, would take nobody's next nonce
        await self.serves()
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        copy = self.new_folder("copy")
        shutil.copytree(self.data, copy, ignore=shutil.ignore_patterns("lock"))
        if "lease_dir" in self.lease:
            self.copies.append(copy)
            await self.rival(copy)
            self.process.send_signal(signal.SIGCONT)
            return
        self.may_run.clear()
        ports = free_ports(2)
        values = self.values | {"data_dir": copy, "port": ports[0], "http_port": ports[1]}
        heir = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "millrace", "relayer",
            *[item for name, value in values.items() for item in ("--set", f"{name}={value}")], stderr=self.log,
        )  # fmt: skip
        try:
            async with asyncio.timeout(60):
                while not await self._takes_others(f"ws://127.0.0.1:{ports[0]}/ws"):
                    await asyncio.sleep(0.1)
            self.process.send_signal(signal.SIGCONT)
            async with asyncio.timeout(30):
                assert await self.process.wait() == 1, "whoever lost its keys ends by itself"
        finally:
            with contextlib.suppress(ProcessLookupError):  # else nobody could end it
                self.process.send_signal(signal.SIGCONT)
            heir.terminate()
            await heir.wait()
        self.use(copy)
        self.may_run.set()

    def is_another_used(self, name: str, data: dict[str, Any]) -> bool:
        """What a frozen one had not signed yet when its keys went to another."""
        return "freeze" in self.said and not {name, data.get("chainHash")} & set(self.accepted.values())

    async def _takes_others(self, url: str) -> int:
        """Submit another payload than its client's to this relayer for each sender's next nonce; how many it took."""
        taken = 0
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with aiohttp.ClientSession() as session, session.ws_connect(url) as link:
                line = Line(self, link)
                for number in range(CLIENTS - 1):
                    work = Work(self, number)
                    known = [nonce for sender, nonce in self.accepted if sender == work.pair.public]
                    for work.nonce in range(first := max(known, default=-1) + 1, first + 3):  # one may be under way
                        with contextlib.suppress(ConnectionError):
                            taken += (await work.submit(line, work.payload(3))).accepted
                line.reader.cancel()
        return taken

    # ---- processes

    async def stop(self, *, gently: bool) -> None:
        """End the relayer; `keep` starts none until it may."""
        self.may_run.clear()
        process = self.process
        if process is not None and process.returncode is None:
            if gently:
                process.terminate()
            else:
                process.kill()
            await process.wait()

    async def serves(self) -> None:
        """Wait until the relayer answers, and so holds its keys."""
        url = f"http://127.0.0.1:{self.values['http_port']}/health"
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(url):
                        return
                await asyncio.sleep(0.02)

    async def command(self, *words: str, killed: float = 0.0, of: Path | None = None) -> bool:
        """A verb on the relayer's folder, or another, with this chance to be killed on the way; whether it came to its
        end."""
        other = ("--set", f"data_dir={of}") if of is not None else ()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "millrace", "relayer", *words, *self.arguments, *other,
            stdout=self.log, stderr=self.log,
        )  # fmt: skip
        if self.chance.random() < killed:
            await asyncio.sleep(0.2 + self.chance.random() * 0.5)
            if process.returncode is None:
                process.kill()
        return await process.wait() == 0

    async def rival(self, folder: Path) -> None:
        """A second relayer on this folder: it has to end by itself, with words, and without having been ready. Nor can
        the folder be moved to where it would start."""
        self.rivals += 1
        ports = free_ports(2)
        values = self.values | {"data_dir": folder, "port": ports[0], "http_port": ports[1]}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "millrace", "relayer",
            *[item for name, value in values.items() for item in ("--set", f"{name}={value}")],
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        said = b""
        try:
            async with asyncio.timeout(60):
                async for line in process.stderr:
                    said += line
                    if b'"ready"' in line:
                        break
                else:
                    await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        words = said.decode()
        if process.returncode != 1 or '"ready"' in words or "Traceback" in words or "cannot run" not in words:
            self.chain.wrong.append(f"a rival on {folder.name} ended with {process.returncode}: {words}")
        elsewhere = self.new_folder("moved")
        if await self.command("move", str(elsewhere), of=folder) or elsewhere.exists():
            self.chain.wrong.append(f"{folder.name} may not start, and was moved")

    # ---- clients

    def work(self, number: int) -> Work:
        return Stubborn(self, number)

    async def settled(self) -> None:
        """What was acknowledged after the last backup and not sent is lost by a restore: nothing to wait for."""


class Stubborn(Work):
    """Goes on behind nonces that it gets nothing signed for, which it pays for itself."""

    refusals = 0
    held = 0
    """Answers one after the other that too many are in flight."""

    async def submit(self, line: Line, tx: Any) -> Answer:
        answer = await super().submit(line, tx)
        stuck = answer.code in ("conflicting_transaction", "nonce_too_high", "nonce_too_low")
        self.refusals = self.refusals + 1 if stuck else 0
        self.held = self.held + 1 if answer.code == "too_many_transactions_in_flight" else 0
        if self.refusals > STUCK or self.held > HELD:
            self.refusals = self.held = 0
            self.torture.chain.use_up(self.pair.public, self.nonce)
            self.nonce = self.torture.chain.nonces[self.pair.public]
        return answer


@pytest.fixture(params=["files", "postgres"])
def lease(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Settings that say where leases are kept."""
    if request.param == "files":
        yield {"lease_dir": tmp_path / "leases"}
        return
    server = Postgres()
    try:
        server.start()
        yield {"lease_url": server.url, "signer_timeout": 1.0, "lease_seconds": 3.0}
    finally:
        server.close()


@pytest.mark.timeout(900 + 60 * BLOWS)
async def test_row_10_one_holder_through_kills_moves_and_restores(tmp_path: Path, lease: dict[str, Any]) -> None:
    """Over random blows no nonce gets two payloads, no rival gets ready, and all stay within one budget."""
    custody = Custody(tmp_path, lease)
    chain = custody.chain
    topics = tuple(topic for shard in range(NETWORK.shards) for topic in NETWORK.transactions_topics(shard))
    settings = GossipSettings(peers=(PeerSettings(subscribe=topics),))
    async with GossipHandle(settings, chain.on_gossip) as listener, background(chain.produce()):
        await custody.prepare(listener.addresses[0])
        try:
            async with background(custody.keep()):
                clients = [asyncio.create_task(custody.client(number)) for number in range(CLIENTS)]
                async with background(*clients):
                    await custody.strike()
                    custody.done = True
                    await asyncio.gather(*clients)
        finally:
            print(f"seed {SEED}: {custody.said}, {custody.rivals} rivals; {custody.report()}")
            await custody.close()
    assert chain.wrong == []
    assert custody.rivals > 0 and len(custody.accepted) >= 5 * custody.blows
    assert 0 < chain.most_at_risk <= AT_RISK * (1 + custody.restores), "a restored folder forgets what is at risk"
    assert "Traceback" not in (tmp_path / "relayer.log").read_text()
    journals = [folder / "journal.sqlite" for folder in [*custody.folders, *custody.backups]]
    _one_payload_of_each_nonce([journal for journal in journals if journal.exists()])
    _one_budget([journal for journal in journals if journal.exists()])


def _reservations(folder: Path) -> int:
    """How many rows the audit has; none where the folder's first start was ended before it made one."""
    path = folder / "journal.sqlite"
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as journal:
        made = journal.execute("SELECT name FROM sqlite_master WHERE name = 'audit'").fetchone()
        return int(journal.execute("SELECT coalesce(max(id), 0) FROM audit").fetchone()[0]) if made else 0


def _one_payload_of_each_nonce(journals: list[Path]) -> None:
    """By all journals together: what was signed for a nonce is the same everywhere."""
    signed: dict[tuple[bytes, int], bytes] = {}
    for path in journals:
        with closing(sqlite3.connect(path)) as journal:
            rows = journal.execute("SELECT sender, nonce, client_hash FROM submissions JOIN signatures USING (id)")
            for sender, nonce, client_hash in rows:
                assert signed.setdefault((sender, nonce), client_hash) == client_hash
    assert signed


def _one_budget(journals: list[Path]) -> None:
    """By all audit logs together: what a key reserved in any minute and did not get back is within its budget."""
    lines = set()
    for path in journals:
        with closing(sqlite3.connect(path)) as journal:
            lines |= set(journal.execute("SELECT time_ms, id, event, relayer, client_hash, amount FROM audit"))
    spent: dict[bytes, deque[list[Any]]] = {}
    for time_ms, _, event, relayer, name, amount in sorted(lines):
        charges = spent.setdefault(relayer, deque())
        while charges and charges[0][0] <= time_ms - 60_000 + SLACK_MS:
            charges.popleft()
        if event == "reserve":
            charges.append([time_ms, name, int(amount)])
            assert sum(charge[2] for charge in charges) <= PER_MINUTE
        else:
            for charge in charges:
                if charge[1] == name:
                    charge[2] = int(amount) if event == "settle" else 0
    assert spent
