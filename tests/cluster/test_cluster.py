"""Three relayers that share keys, two edges and notifiers, PostgreSQL and a standby, Redis, RabbitMQ, HAProxy, a chain.

Any of them is killed, frozen, or parted from some or all of the others, at random, several at once; the database's
primary is lost for good and its standby promoted. Clients that never give up meet the cluster through the balancer.
What they saw, and what journals, claims, chain and broker say in the end, is the history that `checker` judges.

`MILLRACE_CLUSTER_SECONDS` is how long faults go on, 25 by default and 1800 in the long form; the seed, from which all
faults follow, is printed, and `MILLRACE_SEED` repeats one.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from cluster import evidence, faults
from cluster.checker import Limits, check, judged
from cluster.clients import Broadcaster, Client, Front, Reader, Rival, Sender, Signing, Watcher
from cluster.evidence import Ends
from cluster.history import History, Settled, Told
from cluster.striking import Striker
from cluster.subscriptions import ACCOUNT
from cluster.wallets import NETWORK, PAYING, SIGNING, transfer, wallet
from cluster.world import RELAYING, World, running
from millrace.chain.address import encode
from millrace.chain.fees import initially_paid_fee
from servers.tasks import background

SECONDS = float(os.environ.get("MILLRACE_CLUSTER_SECONDS", "25"))
SEED = int(os.environ.get("MILLRACE_SEED") or secrets.randbelow(10**9))
PATIENCE = 120.0
"""For the first answer, and for the end of everything accepted once nothing is broken any more."""
LOOK_SECONDS = 0.05
FEE = initially_paid_fee(transfer(wallet(0, 0), 0, choice=1), NETWORK.gas)
PER_MINUTE = 40 if SECONDS < 60 else 150
"""Fees: half of what clients ask a key for, in the short form and in a minute, so that the budget is used up."""
LEAST = 5
"""Of each kind of thing so many are to be judged in the short form: what happens once faults are over is enough."""
LIMITS = Limits(at_risk=16 * FEE, per_minute=PER_MINUTE * FEE, least=LEAST)
POLICY = f"""
[budget]
at_risk = {LIMITS.at_risk}
at_risk_sign_only = {LIMITS.at_risk // 2}
per_minute = {LIMITS.per_minute}
[quotas]
sender_per_hour = {10**24}
ip_per_hour = {10**24}
receiver_per_hour = {10**24}
[strangers]
address_percent = 100
receiver_percent = 100
"""


class Run:
    """One run: clients, faults, and what is found in the end."""

    def __init__(self, world: World, front: Front, since: float) -> None:
        self.world, self.front, self.history = world, front, front.history
        self._since = since
        self.stages: dict[str, float] = {}
        """How many seconds each took."""
        self.held_up = 0.0
        """For how many seconds the event loop that all lines lead through did nothing else, at most."""
        self.striker = Striker(world, front.history, front.served)
        self.plan = faults.plan(SEED, SECONDS, world.line_names())
        shards = range(NETWORK.shards)
        relayed = [
            kind(front, wallet(shard, place), 0.5) for shard in shards for place, kind in enumerate((Sender, Rival))
        ]
        signing = [Signing(front, wallet(shard, SIGNING), 0.5) for shard in shards]
        paying = [Broadcaster(front, wallet(shard, PAYING), 1.0) for shard in shards]
        senders: list[Sender] = [*relayed, *signing, *paying]
        readers = [Reader(front, [encode(each.pair.public) for each in senders]) for _ in range(2)]
        self.clients: list[Client] = [*senders, *readers, Watcher(front)]

    async def go(self) -> None:
        """Until everything has ended and everybody has left."""
        self._ends("start")
        urls = await self.world.hub_urls("consumer")
        self.front.relayers = await self.world.relayer_addresses("rival")
        async with background(evidence.read_hub(self.history, urls), self._look_at_the_loop()):
            clients = [asyncio.create_task(client.run()) for client in self.clients]
            async with background(*clients):
                await self._until(lambda: self.front.accepted() >= len(self.clients), "nothing is accepted")
                self._ends("first answers")
                await self.striker.run(self.plan)
                self._ends("faults")
                await self._go_on()
                self._ends("calm")
                self.front.done = True
                await self._settle()
                self.front.over = True
                await asyncio.gather(*clients)
                self._ends("settling")
        await self._collect()
        self._ends("evidence")

    def _ends(self, stage: str) -> None:
        now = time.monotonic()
        self.stages[stage] = round(now - self._since, 1)
        self._since = now

    async def _look_at_the_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(LOOK_SECONDS)
            self.held_up = max(self.held_up, loop.time() - before - LOOK_SECONDS)

    async def _until(self, condition: Callable[[], bool], words: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            print(*await self.world.state(), sep="\n")
            raise AssertionError(f"{words} within {PATIENCE:.0f} s, seed {SEED}: {self.front.counts}") from None

    async def _go_on(self) -> None:
        """Whatever was cut off last, there is something to judge: what is accepted now, who listens is to hear of."""
        front, records, begin = self.front, self.history.records, len(self.history.records)
        enough = front.acknowledged() + 2 * len(self.clients)

        def heard() -> set[tuple[int, str]]:
            told = [record for record in records[begin:] if isinstance(record, Told)]
            return {(each.line, each.topic) for each in told if each.topic.startswith(ACCOUNT)}

        await self._until(
            lambda: front.acknowledged() >= enough and len(heard()) > LEAST, "nothing is accepted any more, and told"
        )

    async def _settle(self) -> None:
        """Nothing is broken any more: what was accepted ends, and is told."""
        await self._until(lambda: not self.front.open, "not everything is answered")
        ends = self.ends = Ends(self.world, self.history, self.front.session)
        await ends.begin()
        end = asyncio.get_running_loop().time() + PATIENCE
        while (waiting := ends.wanted()) and asyncio.get_running_loop().time() < end:
            await ends.look(waiting)
            await asyncio.sleep(0.2)
        if waiting:
            print(*await self.world.state(), sep="\n")
        await ends.look_at_shards()
        await self._wait_while(ends.unread)
        await self._wait_while(ends.untold)
        self.history.add(Settled())

    async def _wait_while(self, condition: Callable[[], bool]) -> None:
        """Not for ever: the checker says what is wrong if it stays so. To look through a long history takes long."""
        end = asyncio.get_running_loop().time() + PATIENCE
        while await asyncio.to_thread(condition) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.2)

    async def _collect(self) -> None:
        await self.ends.ask_the_service(self.front)
        await self.world.stop_relayers()
        await asyncio.to_thread(evidence.journals, self.world, self.history, RELAYING)
        await asyncio.to_thread(evidence.claims, self.world, self.history)
        await self.ends.look_at_the_rest()
        await evidence.drain(self.world, self.history, PATIENCE)

    def report(self) -> str:
        """What the run was made of."""
        struck = Counter(f"{fault.kind} {fault.victim}" if fault.kind != "line" else "line" for fault in self.plan)
        kinds = Counter(type(record).__name__ for record in self.history.records)
        starts = {name: service.starts for name, service in self.world.services.items()}
        pauses = ", ".join(f"{pause:.1f} ({promotion:.1f})" for pause, promotion in self.striker.pauses)
        return (
            f"seed {SEED}, {len(self.plan)} faults in {SECONDS:.0f} s {dict(struck)}; seconds {self.stages}; "
            f"starts {starts}; "
            f"nobody served at fail-overs (of which the promotion) {pauses} s; "
            f"event loop held up for {self.held_up:.2f} s at most; "
            f"answers {dict(self.front.counts)}; history {dict(kinds)}; judged {judged(self.history)}"
        )


@pytest.mark.timeout(600 + 3 * SECONDS)
async def test_faults_of_a_whole_cluster(tmp_path: Path) -> None:
    """Nothing acknowledged is lost, no nonce has two payloads, no budget is exceeded, nobody is told twice or wrong."""
    history, begin = History(), time.monotonic()
    async with running(tmp_path, history, POLICY) as world:
        front = Front(history, world.balancer.address, random.Random(SEED))
        async with aiohttp.ClientSession() as front.http:
            run = Run(world, front, begin)
            try:
                await run.go()
            finally:
                print(run.report())
                history.save(evidence.file_of(tmp_path))
    wrong = check(history, LIMITS)
    assert not wrong, f"seed {SEED}, history in {evidence.file_of(tmp_path)}: {wrong[:20]}"
    logs = [service.log for name, service in world.services.items() if name.startswith(("relayer", "edge"))]
    assert [log.name for log in logs if "Traceback" in log.read_text(errors="replace")] == []
