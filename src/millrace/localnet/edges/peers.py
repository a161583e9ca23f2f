"""The chain's libp2p peers: transactions in, heartbeats out.

One peer per shard and one of the metachain, in one process, connected to each other. Each is subscribed to the
topics on which transactions of its shard's senders travel, to its shard's heartbeats, and to the topic on which peers
say which shard they serve. Forwarding is gossip's own work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from millrace.chain import gossip as wire
from millrace.chain.network import NetworkProfile, shard_name
from millrace.chain.shard import METACHAIN
from millrace.chain.transaction import Transaction, TransactionError, from_proto
from millrace.gossip.handle import GossipBusy, GossipHandle, GossipMessage
from millrace.gossip.settings import GossipSettings, PeerSettings
from millrace.localnet.settings import LocalnetSettings

log = logging.getLogger(__name__)

VERSION = "millrace/localnet"
_FIRST_HEARTBEAT = 1.0  # seconds, for the peers to find each other


class Peers:
    """The peers of all shards. `on_transaction` is called in the event loop and must not raise.

    `received` counts messages with transactions, `transactions` what was in them, `refused` messages that broke
    a rule: nodes drop such a message whole.
    """

    def __init__(
        self, settings: LocalnetSettings, network: NetworkProfile, on_transaction: Callable[[Transaction], None]
    ) -> None:
        self.received = 0
        self.transactions = 0
        self.refused = 0
        self._settings = settings
        self._network = network
        self._on_transaction = on_transaction
        self._shards = [*range(network.shards), METACHAIN]
        self._shard_of_topic = {
            topic: shard for shard in range(network.shards) for topic in network.transactions_topics(shard)
        }
        peers = tuple(self._peer(shard) for shard in self._shards)
        self._gossip = GossipHandle(GossipSettings(peers=peers, interconnect=True), self.take)

    async def start(self) -> None:
        """Start the peers. Raises `GossipError` when they cannot listen."""
        await self._gossip.start()

    async def stop(self) -> None:
        """End the peers' process."""
        await self._gossip.stop()

    @property
    def addresses(self) -> list[str]:
        """Multiaddresses of all peers, for others to begin with."""
        return [text for peer in range(len(self._shards)) for text in self._gossip.addresses_of(peer)]

    def take(self, message: GossipMessage) -> None:
        """A message from the network: all of its transactions, or none if one of them is not in order."""
        shard = self._shard_of_topic.get(message.topic)
        if shard is None:
            return  # what a peer says of itself, which our own peers forward to each other
        self.received += 1
        try:
            batch = [from_proto(raw) for raw in wire.unwrap_transactions(message.data, int(time.time()))]
            for tx in batch:
                if self._network.shard_of(tx.sender) != shard:
                    raise wire.GossipError("the batch holds a transaction of another shard's sender")
        except (wire.GossipError, TransactionError) as error:
            self.refused += 1
            log.warning("gossip message refused", extra={"topic": message.topic, "why": str(error)})
            return
        self.transactions += len(batch)
        for tx in batch:
            self._on_transaction(tx)

    async def send_heartbeats(self, keys: Mapping[int, Sequence[bytes]], nonce_of: Callable[[int], int]) -> None:
        """Tell that every validator is alive, each `heartbeat_seconds`; until cancelled.

        `keys` are the validators' public keys per shard, `nonce_of` a shard's newest block.
        """
        pause = _FIRST_HEARTBEAT
        while True:
            await asyncio.sleep(pause)
            for peer, shard in enumerate(self._shards):
                for index, key in enumerate(keys[shard]):
                    await self._beat(peer, shard, key, f"{shard_name(shard)}-{index}", nonce_of(shard))
            pause = self._settings.heartbeat_seconds

    async def _beat(self, peer: int, shard: int, key: bytes, name: str, nonce: int) -> None:
        now = int(time.time())
        beat = wire.Heartbeat(public_key=key, timestamp=now, version=VERSION, name=name, nonce=nonce)
        try:
            await self._gossip.publish(self._network.heartbeat_topic(shard), wire.wrap_heartbeat(beat, now), peer)
        except GossipBusy:
            log.warning("heartbeat left out: gossip is busy", extra={"shard": shard})

    def _peer(self, shard: int) -> PeerSettings:
        topics = () if shard == METACHAIN else self._network.transactions_topics(shard)
        return PeerSettings(
            key_seed=f"millrace/localnet/{self._settings.seed}/{shard}",
            subscribe=(*topics, self._network.heartbeat_topic(shard), wire.CONNECTION_TOPIC),
        )
