"""Our peer on the chain's gossip network: what it publishes, how it finds others, and what it hears."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any

from millrace.chain.network import NetworkProfile
from millrace.chain.shard import METACHAIN
from millrace.gossip.child import GossipError
from millrace.gossip.handle import GossipHandle, GossipMessage
from millrace.gossip.identity import IdentityError, secret_key
from millrace.gossip.settings import GossipSettings, PeerSettings
from millrace.gossip.wire import GossipStats
from millrace.relayer.journal.replaceable import GOSSIP_KEY, put_aside
from millrace.relayer.network.chain_api import ChainApi, ChainApiError
from millrace.relayer.network.observer import Observer, claimed_shard
from millrace.relayer.settings import RelayerSettings
from millrace.relayer.statistics.streams import Statistics

log = logging.getLogger(__name__)

PEERS_SECONDS = 2.0
PEERS_AT_ONCE = 16
"""Of a long list of gossip peers so many are dialled in a round, others in the next."""
COUNT_SECONDS = 1.0


class Peer:
    """A gossip process with one peer, which hears all transactions and heartbeats. `start` it first, `stop` it last."""

    def __init__(
        self,
        settings: RelayerSettings,
        network: NetworkProfile,
        statistics: Statistics,
        api: ChainApi | None,
        shards: Collection[int] = (),
    ) -> None:
        """`shards` are those of the relayer's keys. Raises `ValueError` for a setting that makes no sense."""
        self._statistics = statistics
        self._api = api if settings.gossip_bootstrap_url else None
        self._bootstrap_url = settings.gossip_bootstrap_url
        self.keys_put_aside = 0
        """Keys of ours in the data directory that could not be used."""
        if not settings.gossip_key_file:
            self._ensure_key(Path(settings.data_dir) / GOSSIP_KEY)
        gossip = GossipSettings(peers=(_settings(settings, network),), engine=settings.gossip_engine)
        self._handle = GossipHandle(gossip, self._hear)
        shard = claimed_shard(settings.gossip_shard, network, shards)
        self.observer = None if shard is None else Observer(network, shard, settings.gossip_name, self.publish)
        self.stats = GossipStats()
        """Of the last second."""

    def _ensure_key(self, path: Path) -> None:
        """A key of ours that cannot be used is put aside, and another made: nothing but our name hangs on it."""
        try:
            try:
                secret_key(str(path), "")
            except IdentityError as error:
                text = {"error": str(error), "kept": str(put_aside(path))}
                log.error("the gossip peer has another key, and so another name", extra=text)
                self.keys_put_aside += 1
                secret_key(str(path), "")
        except OSError as error:  # the peer says so itself
            log.error("the gossip peer has no key", extra={"error": str(error)})

    async def start(self) -> None:
        """Listen. Raises `OSError`."""
        try:
            await self._handle.start()
        except GossipError as error:
            raise OSError(f"the gossip peer does not start: {error}") from error

    async def stop(self) -> None:
        """End the process, if it was started."""
        await self._handle.stop()

    def endless(self) -> list[Coroutine[Any, Any, None]]:
        """What has to run as long as the peer does."""
        return [self._count()] if self._api is None else [self._count(), self._find(self._api)]

    async def publish(self, topic: str, data: bytes) -> int:
        """Tell a message to the peers of a topic; to how many, 0 if it cannot be told now."""
        try:
            return await self._handle.publish(topic, data)
        except GossipError:
            return 0

    def _hear(self, message: GossipMessage) -> None:
        self._statistics.gossip_message(message.topic, message.data)

    async def _count(self) -> None:
        while True:
            stats = self.stats = await self._handle.stats()
            self._statistics.gossip_counters(stats.connected_peers, stats.delivered, stats.duplicates)
            if self.observer is not None:
                await self.observer.look(stats, time.monotonic(), int(time.time()))
            await asyncio.sleep(COUNT_SECONDS)

    async def _find(self, api: ChainApi) -> None:
        """Ask for peers until there are some, and again whenever all are lost."""
        while True:
            try:
                if (await self._handle.stats()).connected_peers == 0:
                    peers = await api.gossip_peers(self._bootstrap_url)
                    for peer in random.sample(peers, min(len(peers), PEERS_AT_ONCE)):
                        await self._dial(peer)
            except ChainApiError as error:
                log.debug("no gossip peers yet", extra={"error": str(error)[:200]})
            await asyncio.sleep(PEERS_SECONDS)

    async def _dial(self, peer: str) -> None:
        """Try one of several peers; that it cannot be reached says nothing of the others."""
        try:
            await self._handle.dial(peer)
        except GossipError as error:
            log.debug("a gossip peer cannot be reached", extra={"peer": peer[:200], "error": str(error)[:200]})


def _settings(settings: RelayerSettings, network: NetworkProfile) -> PeerSettings:
    shards = range(network.shards)
    topics = [topic for shard in shards for topic in network.transactions_topics(shard)]
    heartbeats = [network.heartbeat_topic(shard) for shard in (*shards, METACHAIN)]
    return PeerSettings(
        key_file=settings.gossip_key_file or str(Path(settings.data_dir) / GOSSIP_KEY),
        listen=settings.gossip_listen,
        bootstrap=settings.gossip_bootstrap,
        subscribe=(*dict.fromkeys(topics), *heartbeats),
        dht=settings.gossip_dht,
    )
