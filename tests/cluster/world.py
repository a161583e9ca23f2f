"""All parts of the cluster and the lines between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from cluster.databases import Databases
from cluster.history import ROUND_MS, History
from cluster.lines import Line
from cluster.services import Service
from cluster.tap import Tap
from cluster.wallets import FUNDED, NETWORK, RELAYERS, write_keys
from millrace.chain.address import encode
from millrace.relayer.journal import identity
from millrace.relayer.journal.holding import LEAST_TIMES
from millrace.runtime.postgres import ANSWER_SECONDS
from millrace.system.ports import free_ports
from servers.haproxy import HAProxy
from servers.rabbitmq import Broker
from servers.redis_server import RedisServer

START_SECONDS = 120.0
LEASE = 2 * ANSWER_SECONDS
"""A server that is silent is asked anew in time."""
SIGNER_SECONDS = LEASE / LEAST_TIMES
"""As long as such a lease lets it be: a signing process may merely wait for the processor."""
SEATS = 2
RELAYING, EDGES, NOTIFIERS = range(3), range(2), range(2)
EXCHANGE = "millrace"
LOOPBACK = ["127.0.0.0/8"]
UNLIMITED = {
    "submit_rate": 100_000, "submit_burst": 100_000, "max_topics": 100_000, "max_control_messages": 100_000,
}  # fmt: skip


class World:
    """Use `running`."""

    def __init__(self, folder: Path, history: History, policy: str) -> None:
        self.folder, self.policy = folder, policy
        ports = iter(free_ports(1 + 3 * (len(RELAYING) + len(EDGES) + len(NOTIFIERS))))
        self.chain_port = next(ports)
        self.relayer_ports = [(next(ports), next(ports), next(ports)) for _ in RELAYING]
        self.edge_ports = [(next(ports), next(ports), next(ports)) for _ in EDGES]
        self.notifier_ports = [(next(ports), next(ports), next(ports)) for _ in NOTIFIERS]
        self.tap = Tap(history, self.chain_url)
        self.databases = Databases()
        (folder / "redis").mkdir()
        (folder / "broker").mkdir()
        (folder / "balancer").mkdir()
        self.redis = RedisServer(folder / "redis", durable=True)
        self.broker = Broker(folder / "broker")
        edges = [(f"127.0.9.{number + 1}", *self.edge_ports[number][:2]) for number in EDGES]
        self.balancer = HAProxy(folder / "balancer", edges)
        self.services: dict[str, Service] = {}
        self.lines: list[Line] = []

    @property
    def chain_url(self) -> str:
        return f"http://127.0.0.1:{self.chain_port}"

    # ---- life

    async def start(self) -> None:
        """Start all parts, each as soon as what it needs is there; return when an answer can be had."""
        await self._balanced()
        self._begin(await self._chain())
        for number in EDGES:
            self._begin(await self._edge(number))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._start_relayers())
            group.create_task(self._start_notifiers())
        await self._are_ready()
        await self.balancer.restart()  # it waits for seconds before it looks again at an edge that was not ready

    def _begin(self, service: Service) -> None:
        self.services[service.name] = service
        service.start()

    async def _start_relayers(self) -> None:
        await self.databases.start()
        for number in RELAYING:
            self._begin(await self._relayer(number))

    async def _start_notifiers(self) -> None:
        await asyncio.gather(self.redis.restart(), self.broker.restart())
        await self._declare()
        for number in NOTIFIERS:
            self._begin(await self._notifier(number))

    async def _are_ready(self) -> None:
        """As the balancer sees it."""
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
            for ports in self.edge_ports:
                while (await get(session, f"http://127.0.0.1:{ports[1]}/ready"))[0] != 200:
                    await asyncio.sleep(0.05)

    async def state(self) -> list[str]:
        """What relayers and edges say of their health, and the sessions of the claims' server."""
        found = []
        async with aiohttp.ClientSession() as session:
            for name, ports in zip(
                [f"relayer{number}" for number in RELAYING] + [f"edge{number}" for number in EDGES],
                self.relayer_ports + self.edge_ports,
                strict=True,
            ):
                found.append(f"{name}: {await get(session, f'http://127.0.0.1:{ports[1]}/health')}")
        try:
            return found + await self.databases.sessions()
        except Exception as error:  # whatever keeps it from an answer is what is to be told
            return [*found, f"the primary's sessions are not known: {error!r}"]

    async def stop_services(self) -> None:
        """Nothing hinders them."""
        for line in self.lines:
            line.all_well()
        for service in self.services.values():
            service.thaw()
        await asyncio.gather(*(service.stop() for service in self.services.values()))

    async def stop_lines(self) -> None:
        """Nothing goes through any more."""
        await asyncio.gather(*(line.stop() for line in self.lines))

    async def stop_relayers(self) -> None:
        """Their journals are whole then."""
        await asyncio.gather(*(self.services[f"relayer{number}"].stop() for number in RELAYING))

    def line_names(self) -> list[str]:
        """Both ends of every line, as plans name them."""
        return sorted({">".join(line.ends) for line in self.lines})

    def journal(self, number: int) -> Path:
        """Of a relayer."""
        return self.folder / f"relayer{number}" / "journal.sqlite"

    # ---- lines

    async def _line(self, source: str, target: str, port: int, listen: tuple[str, int] = ("127.0.0.1", 0)) -> Line:
        line = Line((source, target), ("127.0.0.1", port), listen)
        await line.start()
        self.lines.append(line)
        return line

    async def _balanced(self) -> None:
        for number in EDGES:
            for port in self.edge_ports[number][:2]:
                await self._line("balancer", f"edge{number}", port, (f"127.0.9.{number + 1}", port))
        self.lines.append(self.databases.between)

    async def relayer_addresses(self, name: str) -> list[str]:
        """For one who asks them without an edge."""
        ports = enumerate(ports[0] for ports in self.relayer_ports)
        return [(await self._line(name, f"relayer{number}", port)).address for number, port in ports]

    async def hub_urls(self, name: str) -> list[str]:
        """Of both notifiers, for one who reads them."""
        lines = [await self._line(name, f"notifier{number}", self.notifier_ports[number][0]) for number in NOTIFIERS]
        return [f"ws://{line.address}/hub/ws" for line in lines]

    async def _claims_url(self, name: str) -> str:
        hosts = []
        for place in range(2):
            line = await self._line(name, f"database{place}", self.databases.at(place).port)
            self.databases.lines.append((place, line))
            hosts.append(line.address)
        login = f"millrace:{self.databases.primary.password}"
        return f"postgresql://{login}@{','.join(hosts)}/postgres?target_session_attrs=read-write"

    # ---- settings

    async def _chain(self) -> Service:
        urls = []
        for number in NOTIFIERS:
            line = await self._line("chain", f"notifier{number}", self.notifier_ports[number][0])
            urls.append(f"ws://{line.address}/save")
        return Service("chain", "localnet", {
            "port": self.chain_port, "chain_id": NETWORK.chain_id,
            "notifier_url": urls[0], "more_notifier_urls": urls[1:],
            "relayers": [encode(pair.public) for pair in (*RELAYERS.values(), *FUNDED)],
            "round_ms": ROUND_MS, "gossip": False, "traders_per_second": 0, "pools": 10, "tokens": 10,
            "max_known_transactions": 1_000_000, "acknowledge_seconds": 5.0,
        }, self.folder)  # fmt: skip

    async def _notifier(self, number: int) -> Service:
        name = f"notifier{number}"
        port, http_port, metrics_port = self.notifier_ports[number]
        redis, broker = (
            await self._line(name, "redis", self.redis.port),
            await self._line(name, "broker", self.broker.port),
        )
        return Service(name, "notifier", {
            "port": port, "http_port": http_port, "metrics_port": metrics_port, "data_dir": self.folder / name,
            "redis_url": f"redis://{redis.address}/0", "amqp_url": f"amqp://guest:guest@{broker.address}/",
            "amqp_exchange": EXCHANGE, "claim_lease": 3.0,
        }, self.folder)  # fmt: skip

    async def _relaying(self, name: str, ports: tuple[int, int, int]) -> dict[str, Any]:
        """What a relayer and an edge have in common."""
        folder = self.folder / name
        identity.make(folder)
        urls = await self.hub_urls(name)
        chain = await self._line(name, "chain", self.tap.port)
        return {
            "port": ports[0], "http_port": ports[1], "metrics_port": ports[2], "chain_id": NETWORK.chain_id,
            "hub_url": urls[0], "more_hub_urls": urls[1:], "chain_api_url": f"http://{chain.address}",
            "data_dir": folder, "gossip": False, **UNLIMITED,
        }  # fmt: skip

    async def _relayer(self, number: int) -> Service:
        name = f"relayer{number}"
        (self.folder / "policy.toml").write_text(self.policy)
        return Service(name, "relayer", await self._relaying(name, self.relayer_ports[number]) | {
            "key_files": write_keys(self.folder / "keys"), "policy_file": self.folder / "policy.toml",
            "claims_url": await self._claims_url(name), "claims_seats": SEATS, "lease_seconds": LEASE,
            "signer_timeout": SIGNER_SECONDS, "edges": LOOPBACK, "regossip_seconds": 2.0,
        }, self.folder)  # fmt: skip

    async def _edge(self, number: int) -> Service:
        name, places = f"edge{number}", []
        for target in RELAYING:
            host = f"127.0.{number + 1}.{target + 1}"  # REST goes where the WebSocket goes, to the port that is told
            for port in self.relayer_ports[target][:2]:
                await self._line(name, f"relayer{target}", port, (host, port))
            places.append(f"ws://{host}:{self.relayer_ports[target][0]}")
        ports = self.edge_ports[number]
        settings = await self._relaying(name, ports) | {"forward_to": places, "trusted_proxies": LOOPBACK}
        return Service(name, "relayer", settings, self.folder)

    async def _declare(self) -> None:
        """A queue that keeps all that is published."""
        connection = await self.broker.connect()
        async with connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(EXCHANGE, "topic", durable=True)
            queue = await channel.declare_queue("all", durable=True)
            await queue.bind(exchange, "#")


@contextlib.asynccontextmanager
async def running(folder: Path, history: History, policy: str) -> AsyncIterator[World]:
    """A whole cluster; nothing of it is left in the end, and relayers end before the database."""
    world = World(folder, history, policy)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(world.databases.close)
        stack.callback(world.broker.close)
        stack.callback(world.redis.kill)
        stack.callback(world.balancer.kill)
        stack.push_async_callback(world.stop_lines)
        await stack.enter_async_context(world.tap)
        stack.push_async_callback(world.stop_services)
        await world.start()
        yield world


async def get(session: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, Any]:
    """Status and body of an answer; 0 when there was none."""
    try:
        async with session.get(url, headers=headers, timeout=aiohttp.ClientTimeout(total=10)) as answer:
            return answer.status, await answer.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return 0, None
