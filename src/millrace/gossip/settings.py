"""Settings of the gossip peers one process runs. Values only; the sections of the services embed them."""

from __future__ import annotations

import msgspec

from millrace.runtime.settings import Rate, Seconds

# A node refuses larger pubsub frames, and leaves this much of one to the envelope (node setting).
MAX_FRAME_BYTES = 2 * 1024 * 1024
MAX_DATA_BYTES = MAX_FRAME_BYTES - 64 * 1024

KAD_PROTOCOLS = ("/erd/kad/1.0.0/kad/1.0.0", "mvx-main/kad/1.0.0")


class PeerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One libp2p peer: who it is, where it listens, whom it keeps dialling, what it subscribes to.

    The identity is a secp256k1 key: from `key_file` (a node's `p2pKey.pem` or 64 hex digits; made, mode
    0600, if it does not exist), else derived from the text `key_seed`, else random for this handle.
    """

    key_file: str = ""
    key_seed: str = ""
    listen: tuple[str, ...] = ("/ip4/127.0.0.1/tcp/0",)
    """Multiaddresses; port 0 takes a free one and keeps it over restarts of the process."""
    announce: tuple[str, ...] = ()
    """Multiaddresses told to others instead of those we listen on (behind 0.0.0.0, a container, a NAT)."""
    bootstrap: tuple[str, ...] = ()
    """Multiaddresses ending in `/p2p/<peer id>`, dialled again for ever while not connected."""
    subscribe: tuple[str, ...] = ()
    dht: bool = False
    """Find peers by Kademlia, and let others find theirs through us."""
    dht_peers: int = 32
    """Connected peers at which to stop looking for more."""
    max_connections: int = 41
    """Connections kept (a node's own number); beyond it the least useful are closed, never those to `bootstrap`."""
    max_unknown: int = 7
    """Of these, to peers subscribed to none of our topics. A peer without topics (a seeder) knows no such peers."""
    kad_protocols: tuple[str, ...] = KAD_PROTOCOLS


class GossipSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All peers of one process, and the bounds of its queues (docs/gossip.md lists the policies)."""

    peers: tuple[PeerSettings, ...] = (PeerSettings(),)
    engine: str = "python"
    """What runs the peers: `python` (py-libp2p), `go` (`engines/gossip-go`, built with its `build.sh`), or the path of
    a program that takes the same arguments and speaks the same protocol on the socket."""
    interconnect: bool = False
    """Keep the peers of this process connected to each other, each with each."""
    publish_rate: Rate = 300.0
    """Messages a second and peer, sustained; nodes refuse more than about 280 from one peer."""
    publish_burst: int = 50
    """Messages that may leave at once after a pause."""
    max_pending: int = 1024
    """Publishes not yet answered, per handle; the next one raises `GossipBusy`."""
    max_pending_bytes: int = 32 * 1024 * 1024
    max_inbound: int = 16_384
    """Messages received and not yet taken by the service; beyond it the oldest is dropped and counted."""
    max_inbound_bytes: int = 64 * 1024 * 1024
    max_peer_queue: int = 4096
    """Frames waiting for one slow remote peer; beyond it new ones are dropped and counted."""
    max_peer_queue_bytes: int = 32 * 1024 * 1024
    publish_patience: Seconds = 1.0
    """Seconds a publish waits while no peer of its topic takes anything; then it is answered with 0. Later ones for
    that topic are answered at once, until somebody takes again."""
    ping_interval: Seconds = 20.0
    """Seconds between pings of each connection; one that leaves half of it without an answer is closed."""
    start_timeout: Seconds = 30.0
    """Seconds a process may take until its peers listen."""
    hang_timeout: Seconds = 30.0
    """Seconds without an answer after which a process is killed and started again."""
    log_level: str = "info"
