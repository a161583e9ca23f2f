"""One setting says how a network behaves: shard rule, gossip topics, chain id, gas.

`documented` follows the public interface text (last byte modulo 3, topics with sender and receiver shard); the
other profiles follow live nodes (bit mask, one topic per sender shard).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from millrace.chain.address import ZERO
from millrace.chain.fees import GasSchedule
from millrace.chain.shard import ALL_SHARDS, METACHAIN, shard_by_mask, shard_by_modulo


class NetworkProfile(msgspec.Struct, frozen=True):
    """The properties of a network in which the documented and the live chain differ."""

    name: str
    chain_id: str
    shard_rule: Literal["modulo", "mask"]
    topic_scheme: Literal["documented", "live"]
    shards: int = 3
    gas: GasSchedule = GasSchedule()

    def shard_of(self, pubkey: bytes) -> int:
        """The shard of an address (`METACHAIN` only under the mask rule)."""
        rule = shard_by_modulo if self.shard_rule == "modulo" else shard_by_mask
        return rule(pubkey, self.shards)

    def receiver_shard_of(self, receiver: bytes, sender: bytes) -> int:
        """The shard a transaction runs in: its receiver's, or its sender's for the zero address (a deployment)."""
        return self.shard_of(sender if receiver == ZERO else receiver)

    def transactions_topic(self, sender_shard: int, receiver_shard: int) -> str:
        """The gossip topic of a transaction between two shards."""
        if self.topic_scheme == "documented":
            return f"transactions_{shard_name(sender_shard)}_{shard_name(receiver_shard)}"
        return "transactions" + communication_identifier(sender_shard, sender_shard)

    def transactions_topics(self, sender_shard: int) -> tuple[str, ...]:
        """Every topic on which transactions of senders in one shard travel."""
        receivers = [*range(self.shards), *([METACHAIN] if self.shard_rule == "mask" else [])]
        return tuple(dict.fromkeys(self.transactions_topic(sender_shard, to) for to in receivers))

    def heartbeat_topic(self, shard: int) -> str:
        """The topic of a shard's (or the metachain's) heartbeats."""
        return f"heartbeatV2_{shard_name(shard)}"


PROFILES = {
    "documented": NetworkProfile("documented", "1", "modulo", "documented"),
    "mainnet": NetworkProfile("mainnet", "1", "mask", "live"),
    "devnet": NetworkProfile("devnet", "D", "mask", "live"),
    "testnet": NetworkProfile("testnet", "T", "mask", "live"),
}


def profile(name: str, **overrides: Any) -> NetworkProfile:
    """A named profile with single properties replaced. Raises `ValueError` for an unknown name."""
    if name not in PROFILES:
        raise ValueError(f"unknown network profile {name!r}; known are {', '.join(PROFILES)}")
    return msgspec.structs.replace(PROFILES[name], **overrides)


def shard_name(shard: int) -> str:
    """A shard as topics write it: its number, `META` or `ALL`."""
    return {METACHAIN: "META", ALL_SHARDS: "ALL"}.get(shard, str(shard))


def communication_identifier(first: int, second: int) -> str:
    """The suffix of a live topic between two shards: `_0`, `_0_1`, `_1_META`; either one being "all": `_ALL`."""
    if ALL_SHARDS in (first, second):
        return "_ALL"
    if first == second:
        return f"_{shard_name(first)}"
    return f"_{shard_name(min(first, second))}_{shard_name(max(first, second))}"
