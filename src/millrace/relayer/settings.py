"""Settings of the relayer service: table `[relayer]`, environment `MILLRACE_RELAYER__…`, flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from millrace.chain.network import NetworkProfile
from millrace.chain.network import profile as named_profile
from millrace.runtime.settings import Rate, Seconds, Secret, Wait
from millrace.runtime.tracing import TracingSettings

MOST_SEATS = 100
"""With a hundredth of each budget nobody pays for much."""


class RelayerSettings(TracingSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting with its default; the defaults run everything on one machine."""

    host: str = "127.0.0.1"
    """Address that the public ports listen on."""
    port: int = 8200
    """WebSocket: /ws and /ws/stats. 0 takes a free port."""
    http_port: int = 8201
    """REST: /v1/*, /health, /ready. 0 takes a free port."""
    metrics_host: str = "127.0.0.1"
    """Address that the operators' port listens on."""
    metrics_port: int = 8202
    """For operators: /metrics, and /health and /ready again. 0 takes a free port."""
    operators_token: Secret = Secret()
    """Token that actions on the operators' port want (`Authorization: Bearer …`), 16 characters at least; empty: there
    are no actions."""

    profile: str = "documented"
    """Network profile: documented, mainnet, devnet or testnet."""
    chain_id: str = ""
    """Chain id, when it is not the profile's."""
    shards: Annotated[int, Meta(ge=0, le=256)] = 0
    """How many shards there are; 0: as the profile says."""
    shard_rule: Literal["", "modulo", "mask"] = ""
    """How the shard follows from an address, when it is not as in the profile."""
    topic_scheme: Literal["", "documented", "live"] = ""
    """Names of gossip topics, when they are not as in the profile."""

    hub_url: str = "ws://127.0.0.1:8300/hub/ws"
    """Where events come from (the notifier's hub); empty runs without events."""
    more_hub_urls: tuple[str, ...] = ()
    """Hubs of further notifiers of the same network: where events come from while those before them are away. Upgrade
    all of them before: see docs/notifier.md."""
    chain_api_url: str = "http://127.0.0.1:8400"
    """First source of unknown accounts, and where transactions go when no gossip peer is known; may be empty."""
    chain_api_timeout: Seconds = 3.0
    """Seconds it may take for an answer."""
    outgoing_private: bool = True
    """Whether the chain API may be on this machine or a private network; false refuses such addresses, also when the
    name of a public host resolves to one."""
    simulate: bool = False
    """Whether a transaction that would have to wait, as its sender or function keeps failing, is simulated by the chain
    API (`POST /transaction/simulate`) and let in if it would succeed; else they wait."""
    simulation_timeout: Seconds = 1.0
    """Seconds that one submission may wait for simulations."""
    round_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0
    """Milliseconds of a round; 0: as the chain API's `/network/config` says, and as blocks show."""
    stale_seconds: Wait = 60.0
    """A shard that has sent no block for so long, or executes so far behind, is not sponsored (`not ready`) meanwhile.
    A time: that of who waits for word."""
    execution_lag: Annotated[int, Meta(ge=1)] = 20
    """By how many blocks a shard's execution may be behind its newest before that is an alarm; a header brings the
    results of 20 at most."""

    data_dir: Path = Path(".data/relayer")
    """Journal and history live here; made by `millrace relayer init`, with mode 0700."""
    mark_path: str = ""
    """File that says what was acknowledged last; empty: `mark` in `data_dir`. On another disk, which is not put back
    with it, it tells also when all of `data_dir` is of an earlier time."""
    lease_dir: str = ""
    """Folder that all relayers of this machine share, so that a key has one holder; empty:
    `$XDG_STATE_HOME/millrace/leases`, by default below `~/.local/state`. It must outlive relayer and container."""
    lease_url: Secret = Secret()
    """PostgreSQL server that keeps the leases instead, where relayers of several machines may have the same keys."""
    lease_schema: str = "relayer_leases"
    """Schema of the leases there."""
    lease_seconds: Annotated[float, Meta(gt=0, le=86_400)] = 15.0
    """So long after its last word there a relayer that is gone still holds its keys; from two thirds of it on it signs
    no more. At least three times `signer_timeout`, and with `claims_url` more than the 3 s after which a silent server
    is asked anew, better twice that."""
    claims_url: Secret = Secret()
    """PostgreSQL server that keeps the claims of all relayers with the same keys, of which there may be several then,
    behind any load balancer. Leases lie there, too, whatever `lease_url` says. Empty: one relayer at a time has a key.
    See docs/relayer-operating.md."""
    claims_schema: str = "relayer_claims"
    """Schema of the claims there."""
    claims_seats: Annotated[int, Meta(ge=1, le=MOST_SEATS)] = 2
    """How many relayers sign at once; further ones stand by. The same for all of them, for good: each has so large a
    part of every budget and quota."""
    claims_standby: bool = False
    """Whether to refuse a server that waits for no standby (`synchronous_standby_names`)."""
    history_url: Secret = Secret()
    """PostgreSQL server of the statistics' history, `postgresql://user:password@host:port/database` (or with
    `?passfile=<file>` instead of the password); empty: a file in `data_dir`."""
    history_schema: str = "relayer_history"
    """Schema of the history there."""
    policy_file: str = ""
    """TOML file with caps, budgets, quotas and lists; empty means the defaults. Read again when it changes."""

    key_files: tuple[str, ...] = ()
    """One file per shard, in any order: each key's shard follows from its address. PEM, or encrypted (.json).
    SIGHUP reads them again."""
    key_passphrase_file: str = ""
    """File with the passphrase of encrypted keystore files."""
    key_env: tuple[str, ...] = ()
    """Names of environment variables that hold 64 hex digits of a seed each (development only)."""
    signer_timeout: Annotated[float, Meta(gt=0, le=3_600)] = 5.0
    """Seconds the signing process may take for an answer before it is replaced."""
    sign_wait: Annotated[float, Meta(ge=0, le=3_600)] = 8.0
    """Seconds a reply waits for a signing process that is being replaced; then it says `pending`."""

    gossip: bool = True
    """Whether to run a libp2p peer; without it the chain API takes every transaction."""
    gossip_bootstrap: tuple[str, ...] = ()
    """Multiaddresses of first peers, each ending in /p2p/<peer id>."""
    gossip_bootstrap_url: str = ""
    """URL that answers {"peers": [multiaddress, …]}; asked until it does, added to `gossip_bootstrap`."""
    gossip_listen: tuple[str, ...] = ("/ip4/127.0.0.1/tcp/0",)
    """Multiaddresses the peer listens on; port 0 takes a free one."""
    gossip_key_file: str = ""
    """Identity of the libp2p peer; empty keeps it in the data directory."""
    gossip_dht: bool = False
    """Whether to find further peers by Kademlia, as nodes of live networks do."""
    gossip_engine: str = "python"
    """What runs the peer: `python`, `go`, or the path of a program (docs/gossip.md)."""
    gossip_shard: str = "auto"
    """Of which shard our peer says it is an observer: a number, `meta`, `auto` (the lowest shard of the keys, 0 without
    any), or `none`: it says nothing, and nodes count it among the few unknown peers they keep."""
    gossip_name: str = ""
    """Name in its heartbeats, at most 128 bytes; nodes show it to everybody."""

    max_connections: int = 20_000
    """Open WebSocket connections, of all clients."""
    max_connections_per_client: int = 1_000
    """Connections of one client address (of IPv6 a /64 network); those from this machine are not bounded by it."""
    connect_rate: Rate = 50.0
    """Connections a second that one client may open, sustained; at once as many as it may have."""
    max_http_connections: int = 2_000
    """Open HTTP connections, of all clients; those of one are bounded as WebSockets are."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks whose `X-Forwarded-For` is believed: its last address that is in none of them is the client."""
    edges: tuple[str, ...] = ()
    """Networks of edges: relayers without keys that forward to this one (docs/edges.md). What they say of whom a
    submission is from is believed, as that of `trusted_proxies`. Empty: none may forward."""
    forward_to: tuple[str, ...] = ()
    """WebSocket addresses (`ws://10.0.0.5:8200`) of the relayers that sign for this one, which then is an edge: it has
    no keys, holds the clients' connections, serves all streams and forwards what they submit and ask."""
    forward_wait: Wait = 5.0
    """Seconds that a submission waits at an edge for a relayer that went away, before its client is told so."""
    forward_waiting: int = 20_000
    """Transactions that may be forwarded to one relayer and not answered; further ones are refused (`relayer busy`)."""
    move_to: tuple[str, ...] = ()
    """WebSocket addresses (`wss://edge-2.example`) that clients are sent to when this service ends or is drained.
    Empty: drained clients come again by the address they have, and an end is told of as it happens."""
    move_seconds: Wait = 10.0
    """Over so many seconds clients are told to leave, each at a moment of its own."""
    move_notice: Wait = 5.0
    """Seconds before the first of these moments, in which newcomers are let in: longer than balancers take to see that
    `/ready` is not true (those of deploy/proxy 2.5)."""
    allowed_origins: tuple[str, ...] = ()
    """Sites (`https://app.example`) whose pages may use the REST interface in a browser; `*` is every page. WebSockets
    are open to all."""
    max_topics: int = 64
    """Topics of one connection."""
    max_control_messages: int = 64
    """Control messages of one connection in any 5 seconds."""
    max_message_bytes: int = 4 * 1024 * 1024
    """Largest WebSocket message and HTTP body."""
    ping_interval: Seconds = 30.0
    """Seconds between pings on every WebSocket connection."""
    pong_timeout: Seconds = 20.0
    """Seconds a client has to answer a ping before it is closed with code 4012."""
    max_wait: Seconds = 1.0
    """Seconds a submission may be expected to wait, more than 0; beyond it is refused at once (`relayer busy`)."""
    max_batch: int = 100
    """Transactions of one submission."""
    submit_rate: Rate = 500.0
    """Transactions a second that one IP address may submit, sustained."""
    submit_burst: int = 2_000
    """Transactions one IP address may submit at once after a pause; at least `max_batch`."""
    receive_rate: Rate = 4e6
    """Bytes a second that one IP address may send for reading, sustained; counted before anything is decoded."""
    receive_burst: Rate = 32e6
    """Bytes one IP address may send at once after a pause; at least `max_message_bytes`."""
    unfinished_bytes: int = 256 * 1024 * 1024
    """Bytes of all messages and bodies that have not wholly come; of one IP address at most `receive_burst`."""
    request_rate: Rate = 1_000.0
    """HTTP requests a second of one client address, sustained; those of this machine are not bounded by it."""
    request_burst: int = 4_000
    """HTTP requests one client address may make at once after a pause."""
    control_rate: Rate = 1_000.0
    """Topics a second that one client address may subscribe to or unsubscribe from, sustained; those of this machine
    are not bounded by it."""
    control_burst: int = 20_000
    """Topics one client address may do so with at once after a pause."""
    send_rate: Rate = 16e6
    """Bytes a second sent to one client address, sustained, but for those of this machine. Beyond it statistics are
    left out and requests are refused; what must be delivered still is."""
    send_burst: Rate = 64e6
    """Bytes sent to one client address at once after a pause."""
    max_nonce_gap: Annotated[int, Meta(ge=0)] = 0
    """How far above the expected nonce a transaction may be."""

    regossip_seconds: Seconds = 15.0
    """Pause between two broadcasts of a transaction that is not yet in a block. A time, whatever rounds last: while a
    network takes nothing in, all that waits is sent so often."""
    lifetime_seconds: Wait = 600.0
    """After this long without a block a transaction is broadcast no more. A time: networks keep what waits as long in
    short rounds as in long ones."""
    retention_hours: Annotated[float, Meta(ge=0, le=1e6)] = 168.0
    """Finished submissions stay in the journal this long, to answer repeated ones."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for a network that nobody knows."""
        self.network()

    def network(self) -> NetworkProfile:
        """The network profile with this service's overrides. Raises `ValueError` for an unknown name."""
        properties = "chain_id", "shards", "shard_rule", "topic_scheme"
        return named_profile(self.profile, **{name: value for name in properties if (value := getattr(self, name))})
