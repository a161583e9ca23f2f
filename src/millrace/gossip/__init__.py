"""Gossip: libp2p peers in a process of their own, behind an asyncio handle. See docs/gossip.md."""

from millrace.gossip.child import GossipError
from millrace.gossip.handle import GossipBusy, GossipHandle, GossipMessage
from millrace.gossip.settings import GossipSettings, PeerSettings
from millrace.gossip.wire import GossipStats, TopicStats

__all__ = [
    "GossipBusy",
    "GossipError",
    "GossipHandle",
    "GossipMessage",
    "GossipSettings",
    "GossipStats",
    "PeerSettings",
    "TopicStats",
]
