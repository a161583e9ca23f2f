"""Carries a plan of faults out. What waits for anything is done in threads: all lines lead through this event loop."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable

from cluster.faults import Fault
from cluster.history import History, Struck
from cluster.lines import Line
from cluster.world import World
from servers.process import Server
from servers.rabbitmq import Broker

PATIENCE = 120.0
"""For the first claim after a fail-over: other faults go on meanwhile, and the machine may have too much to do."""


class Striker:
    """`served` says how many submissions were acknowledged so far, or refused for what they cost only."""

    def __init__(self, world: World, history: History, served: Callable[[], int]) -> None:
        self._world, self._history, self._served = world, history, served
        self._one: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """What is killed is not killed again before it is back."""
        self.pauses: list[tuple[float, float]] = []
        """For how long nobody was served when the primary was lost, and how long its promotion took."""

    async def run(self, plan: list[Fault]) -> None:
        """Return when the last fault is over."""
        begin = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in plan:
                await asyncio.sleep(max(0.0, begin + fault.at - time.monotonic()))
                group.create_task(self._strike(fault))

    async def _strike(self, fault: Fault) -> None:
        self._history.add(Struck(kind=fault.kind, victim=fault.victim, seconds=fault.seconds))
        match fault.kind:
            case "kill":
                await self._kill(fault.victim)
            case "freeze":
                await self._freeze(fault)
            case "signer":
                await self._world.services[fault.victim].kill_child()
            case "flush":
                await self._flush()
            case "sessions":
                async with self._world.databases.one:
                    await self._world.databases.end_sessions(fault.victim, fault.seconds)
            case "fail over":
                await self._fail_over(fault.seconds)
            case _:
                await self._part(fault)

    def _server(self, name: str) -> Server | Broker:
        world = self._world
        if name.startswith("database"):
            return world.databases.at(int(name[-1]))
        found: dict[str, Server | Broker] = {"balancer": world.balancer, "redis": world.redis, "broker": world.broker}
        return found[name]

    def _lock(self, name: str) -> asyncio.Lock:
        return self._world.databases.one if name.startswith("database") else self._one[name]

    async def _kill(self, victim: str) -> None:
        if victim in self._world.services:
            await self._world.services[victim].kill()
            return
        async with self._lock(victim):
            server = self._server(victim)
            await asyncio.to_thread(server.kill)
            await server.restart()

    async def _freeze(self, fault: Fault) -> None:
        if fault.victim in self._world.services:
            service = self._world.services[fault.victim]
            service.freeze()
            await asyncio.sleep(fault.seconds)
            service.thaw()
            return
        async with self._lock(fault.victim):
            server = self._server(fault.victim)
            await asyncio.to_thread(server.pause)
            await asyncio.sleep(fault.seconds)
            await asyncio.to_thread(server.resume)

    async def _flush(self) -> None:
        """Redis forgets everything, and goes on."""
        async with self._one["redis"]:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._world.redis.port)
            writer.write(b"FLUSHALL\r\n")
            assert await reader.readexactly(5) == b"+OK\r\n"
            writer.close()

    async def _part(self, fault: Fault) -> None:
        hit = [line for line in self._world.lines if _is_of(line, fault.victim)]
        for line in hit:
            line.part(fault.way)
        await asyncio.sleep(fault.seconds)
        for line in hit:
            line.heal(fault.way)

    async def _fail_over(self, awake: float) -> None:
        databases = self._world.databases
        async with databases.one:
            lost = time.monotonic()
            await databases.fail_over(stands_still=awake > 0)
            promoted = time.monotonic()
            try:
                async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                    group.create_task(databases.bury(awake))
                    # Till then a relayer may believe that it could claim, and refuse for the budget.
                    await databases.written()
                    before = self._served()
                    while self._served() == before:
                        await asyncio.sleep(0.01)
                    self.pauses.append((time.monotonic() - lost, promoted - lost))
            except TimeoutError:
                print(*await self._world.state(), sep="\n")
                raise
            await databases.replace()


def _is_of(line: Line, victim: str) -> bool:
    return victim in (*line.ends, ">".join(line.ends))
