"""The local chain as a process: a clock that drives the machine, its observers, its gossip peers, its HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from millrace.chain.shard import METACHAIN
from millrace.chain.transaction import Transaction
from millrace.gossip.child import is_there
from millrace.localnet.chain.admission import Refused
from millrace.localnet.chain.machine import Chain, NodeEvent
from millrace.localnet.edges.api import Api
from millrace.localnet.edges.control import Control
from millrace.localnet.edges.observer import Observer
from millrace.localnet.edges.peers import Peers
from millrace.localnet.settings import LocalnetSettings
from millrace.runtime import extras
from millrace.runtime.http import HttpServer
from millrace.runtime.process import wait_first

log = logging.getLogger(__name__)


async def run(settings: LocalnetSettings, stop: asyncio.Event) -> None:
    """Run the chain until `stop` is set. Raises `OSError` when the port is taken."""
    chain = Chain(settings, genesis_ms=time.time_ns() // 1_000_000)
    observers = _observers(settings)
    driver = Driver(chain, observers)
    gossips = settings.gossip and is_there("python")
    if settings.gossip and not gossips:
        log.warning("no gossip: transactions come by HTTP alone", extra={"remedy": extras.remedy("gossip")})
    peers = Peers(settings, chain.network, driver.take) if gossips else None
    async with contextlib.AsyncExitStack() as cleanup:
        if peers is not None:
            cleanup.push_async_callback(peers.stop)
            await peers.start()
        control = Control(chain, observers, driver.emit)
        server = HttpServer(Api(chain, control, lambda: peers.addresses if peers is not None else []).app())
        cleanup.push_async_callback(server.stop)
        port = await server.start(settings.host, settings.port)
        log.info(
            "ready",
            extra={
                "port": port,
                "profile": chain.network.name,
                "chain_id": chain.network.chain_id,
                "seed": settings.seed,
                "pools": len(chain.market.pools),
                "contracts_shard": chain.home,
            },
        )
        work = [driver.run(), *(observer.run() for observer in observers)]
        if peers is not None:
            work.append(peers.send_heartbeats(chain.validators.by_shard, chain.block_nonce))
        await wait_first(stop, *work)


def _observers(settings: LocalnetSettings) -> list[Observer]:
    """Of each shard one for each connection; the first `observers_per_shard` are those to the first notifier."""
    urls = [url for url in (settings.notifier_url, *settings.more_notifier_urls) if url]
    told = [url for url in urls for _ in range(settings.observers_per_shard)]
    shards = [*range(settings.network().shards), METACHAIN]
    return [Observer(shard, index, settings, url) for shard in shards for index, url in enumerate(told)]


class Driver:
    """Advances the chain round by round and hands its events to the observers."""

    def __init__(self, chain: Chain, observers: list[Observer]) -> None:
        self._chain = chain
        self._observers = observers

    def take(self, tx: Transaction) -> None:
        """A transaction came by gossip; a refused one leaves no trace but a log line, as on a real node."""
        try:
            self._chain.submit(tx)
        except Refused as refusal:
            log.info("transaction refused", extra={"reason": str(refusal), "nonce": tx.nonce})

    def emit(self, events: list[NodeEvent]) -> None:
        """Give events to every observer of their shard."""
        for event in events:
            for observer in self._observers:
                if observer.shard == event.shard:
                    observer.offer(event.topic, event.payload)

    async def run(self) -> None:
        """A round every `round_ms`, by deadline: a late round does not push the following ones."""
        loop = asyncio.get_running_loop()
        length = self._chain.settings.round_ms / 1000
        self.emit(self._chain.genesis())
        start = loop.time()
        while True:
            deadline = start + (self._chain.round + 1) * length
            await asyncio.sleep(max(0.0, deadline - loop.time()))
            held = frozenset(observer.shard for observer in self._observers if observer.full)
            self.emit(self._chain.advance_round(held))
            if loop.time() - deadline > 10 * length:
                # The machine was asleep: go on from now instead of catching up round by round.
                start = loop.time() - self._chain.round * length
