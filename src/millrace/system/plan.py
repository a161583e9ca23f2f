"""Which processes make up the whole system, on which ports, with which settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path

from millrace.chain.address import encode
from millrace.chain.keys import KeyPair
from millrace.chain.network import NetworkProfile, profile
from millrace.relayer.journal import identity
from millrace.system.ports import HOST, free_ports, is_free
from millrace.system.processes import Service

LOCAL_CHAIN_ID = "local"  # nothing signed here is valid on a public network


@dataclass(frozen=True)
class Ports:
    """The port of every listener; the defaults are the documented ones."""

    aggregator: int = 8100
    relayer: int = 8200
    relayer_http: int = 8201
    notifier: int = 8300
    notifier_http: int = 8301
    localnet: int = 8400
    aggregator_metrics: int = 8101
    relayer_metrics: int = 8202
    notifier_metrics: int = 8302
    console: int = 8080
    console_metrics: int = 8081

    @classmethod
    def free(cls) -> Ports:
        """As many ports that are free right now."""
        return cls(*free_ports(len(fields(cls))))

    def taken(self) -> dict[str, int]:
        """Those on which somebody listens already, by name."""
        return {name: port for name, port in asdict(self).items() if not is_free(port)}


@dataclass(frozen=True)
class Plan:
    """Everything needed to start the system in one data directory."""

    ports: Ports
    data: Path
    seed: int = 1
    profile: str = "documented"
    """Shard rule and gossip topics; the chain id stays the local one under any."""
    observers_per_shard: int = 1
    finality_rounds: int = 0
    supernova_epoch: int = 0
    """Epoch from which blocks are proposed first and executed later; see the local chain's settings."""
    poll_seconds: float = 5.0

    @property
    def network(self) -> NetworkProfile:
        """The profile under the local chain id. Raises `ValueError` for an unknown one."""
        return profile(self.profile, chain_id=LOCAL_CHAIN_ID)

    @property
    def chain_url(self) -> str:
        return f"http://{HOST}:{self.ports.localnet}"

    @property
    def aggregator_url(self) -> str:
        return f"http://{HOST}:{self.ports.aggregator}"

    @property
    def relayer_url(self) -> str:
        return f"http://{HOST}:{self.ports.relayer_http}"

    @property
    def relayer_ws_url(self) -> str:
        return f"ws://{HOST}:{self.ports.relayer}/ws"

    @property
    def hub_url(self) -> str:
        return f"ws://{HOST}:{self.ports.notifier}/hub/ws"

    @property
    def console_url(self) -> str:
        return f"http://{HOST}:{self.ports.console}"

    @property
    def key_directory(self) -> Path:
        """Of each profile its own: under another shard rule the same keys would live in other shards."""
        return self.data / "keys" / self.profile

    @property
    def relayer_directory(self) -> Path:
        return self.data / "relayer"

    @property
    def lease_directory(self) -> Path:
        """Beside the chain's data: who held the keys on an earlier local chain does not matter on this one."""
        return self.data / "relayer-leases"


def wallet_in_shard(shard: int, network: NetworkProfile) -> KeyPair:
    """A new random key pair whose address lives in `shard`."""
    while True:
        key = KeyPair.generate()
        if network.shard_of(key.public) == shard:
            return key


def relayer_keys(plan: Plan) -> dict[int, KeyPair]:
    """The relayer's key of every shard, read from the data directory or made there (owner-only files)."""
    plan.key_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    keys = {}
    for shard in range(plan.network.shards):
        file = plan.key_directory / f"relayer-shard{shard}.pem"
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(wallet_in_shard(shard, plan.network).to_pem())
        keys[shard] = KeyPair.from_pem(file.read_text())
    return keys


def make_relayer_directory(plan: Plan) -> None:
    """The relayer's data directory with an identity, unless it is there."""
    if not (plan.relayer_directory / identity.FILE).exists():
        identity.make(plan.relayer_directory)


def services(plan: Plan) -> list[Service]:
    """Every process of the system, in the order in which they are best started."""
    keys = relayer_keys(plan)
    make_relayer_directory(plan)
    ports = plan.ports
    notifier_http = f"http://{HOST}:{ports.notifier_http}"
    return [
        Service(
            "notifier",
            f"{notifier_http}/health",
            {
                "port": ports.notifier,
                "http_port": ports.notifier_http,
                "metrics_port": ports.notifier_metrics,
                "data_dir": plan.data / "notifier",
            },
        ),
        Service(
            "localnet",
            f"{plan.chain_url}/health",
            {
                "port": ports.localnet,
                "notifier_url": f"ws://{HOST}:{ports.notifier}/save",
                "profile": plan.profile,
                "chain_id": LOCAL_CHAIN_ID,
                "seed": plan.seed,
                "observers_per_shard": plan.observers_per_shard,
                "finality_rounds": plan.finality_rounds,
                "supernova_epoch": plan.supernova_epoch,
                "relayers": [encode(key.public) for key in keys.values()],
            },
        ),
        Service(
            "relayer",
            f"http://{HOST}:{ports.relayer_http}/ready",
            {
                "port": ports.relayer,
                "http_port": ports.relayer_http,
                "metrics_port": ports.relayer_metrics,
                "profile": plan.profile,
                "chain_id": LOCAL_CHAIN_ID,
                "hub_url": plan.hub_url,
                "chain_api_url": plan.chain_url,
                "gossip_bootstrap_url": f"{plan.chain_url}/gossip",
                "key_files": [str(plan.key_directory / f"relayer-shard{shard}.pem") for shard in keys],
                "data_dir": plan.relayer_directory,
                "lease_dir": plan.lease_directory,
            },
        ),
        Service(
            "aggregator",
            f"{plan.aggregator_url}/health",
            {
                "port": ports.aggregator,
                "metrics_port": ports.aggregator_metrics,
                "pools_url": f"{plan.chain_url}/pools",
                "gateway": plan.chain_url,
                "poll_seconds": plan.poll_seconds,
                "chain_id": LOCAL_CHAIN_ID,
            },
        ),
        Service(
            "console",
            f"{plan.console_url}/health",
            {
                "port": ports.console,
                "metrics_port": ports.console_metrics,
                "aggregator_url": plan.aggregator_url,
                "relayer_url": plan.relayer_url,
                "relayer_ws_url": f"ws://{HOST}:{ports.relayer}",
                "hub_url": f"ws://{HOST}:{ports.notifier}",
                "aggregator_operators_url": f"http://{HOST}:{ports.aggregator_metrics}",
                "relayer_operators_url": f"http://{HOST}:{ports.relayer_metrics}",
                "notifier_operators_url": f"http://{HOST}:{ports.notifier_metrics}",
                "chain_url": plan.chain_url,
                "faucet": True,
            },
        ),
    ]
