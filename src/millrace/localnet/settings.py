"""Settings of the local chain (`MILLRACE_LOCALNET__<FIELD>`, table `[localnet]`)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from millrace.chain.network import NetworkProfile
from millrace.chain.network import profile as named_profile
from millrace.localnet.contracts.meter import SHALLOW
from millrace.runtime.settings import Seconds

Count = Annotated[int, Meta(gt=0)]
NEVER = 9_999_999
"""As network configurations write an epoch that is not to come."""


class LocalnetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that shapes the chain in a box; the defaults suit one machine."""

    host: str = "127.0.0.1"
    """Address of the HTTP interface."""
    port: int = 8400
    """Port of the pool document, the chain API, the faucet and the control endpoint; 0 takes a free one."""

    profile: str = "documented"
    """Network profile: documented, mainnet, devnet or testnet."""
    chain_id: str = "local"
    """Nothing signed for it is valid on a public network."""
    seed: int = 1
    """The same seed gives the same market and the same traders."""
    pools: Annotated[int, Meta(ge=10)] = 1000
    """Pools of the market, on all exchanges together."""
    tokens: Annotated[int, Meta(ge=10)] = 600
    """Tokens they trade."""

    rate_pools: bool = False
    """Liquid staking and a money market beside the pools, with tokens of their own."""
    mispricing_ppm: Annotated[int, Meta(ge=0, le=100_000)] = 1500
    """How far a pool's price may be off, in millionths; beyond the fees (3000) there is arbitrage from the start."""

    round_ms: Annotated[int, Meta(ge=10)] = 600
    """Length of a round; every shard makes one block in it."""
    finality_rounds: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Rounds after which a block is final; 0: in its own round."""
    finalized_first: bool = True
    """Whether a block final in its own round is announced as final before it is announced at all, as live nodes do."""
    rounds_per_epoch: Count = 1200
    """Rounds after which an epoch begins."""
    guardian_epochs: Count = 1
    """Epochs from `SetGuardian` until that guardian counts, unless the one before it signs; on mainnet 20."""

    supernova_epoch: Annotated[int, Meta(ge=0)] = 0
    """Epoch of the change to blocks that are proposed first and executed later; 0: from the first block on."""
    supernova_lead_rounds: Annotated[int, Meta(ge=0)] = 20
    """Rounds of that epoch, unless it is 0, still in the earlier format, with milliseconds in their `timeStamp`."""
    execution_delay: Annotated[int, Meta(ge=1, le=20)] = 1
    """Blocks after which a header tells a proposal's execution."""
    executes_ahead: bool = False
    """Whether a proposal is executed at once and not when a header tells so: accounts are told ahead of blocks."""

    notifier_url: str = "ws://127.0.0.1:8300/save"
    """Where node events go; empty: nowhere."""
    more_notifier_urls: tuple[str, ...] = ()
    """Further notifiers: each node tells all of them, over a connection to each."""
    observers_per_shard: Annotated[int, Meta(ge=1, le=16)] = 1
    """Connections per shard (and metachain), each sending all of its events."""
    acknowledge_seconds: Seconds = 60.0
    """Without an acknowledgement for so long an event is sent again, under a new counter."""
    retry_seconds: Seconds = 0.5
    """Pause between two attempts to connect."""
    max_outbox: Count = 512
    """Events an observer holds for a notifier that does not take them; then its shard makes no more blocks."""

    gossip: bool = True
    """Whether libp2p peers take transactions and send heartbeats."""
    validators_per_shard: Count = 4
    """Validators whose heartbeats each shard, and the metachain, sends."""
    heartbeat_seconds: Seconds = 60.0
    """How often every validator sends a heartbeat."""

    traders_per_second: Annotated[float, Meta(ge=0, le=1e6)] = 4.0
    """Swaps of the background traders; 0: none."""
    relayers: tuple[str, ...] = ()
    """Addresses that own EGLD from the start, so that they can pay for others."""
    relayer_egld: Count = 1000
    """Whole EGLD each of them owns."""

    trie_depth: Annotated[int, Meta(ge=0, le=64)] = SHALLOW
    """Depth of the contracts' storage tries: the deeper, the dearer is a contract's first read of a key."""

    max_mempool: Count = 50_000
    """Transactions waiting in one shard; further ones are refused."""
    max_mempool_per_sender: Count = 5_000
    """Of these, transactions of one sender."""
    mempool_rounds: Count = 3_000
    """Rounds after which a transaction that could not be executed is dropped."""
    max_block_gas: Count = 1_500_000_000
    """Gas of the transactions in one block."""
    max_block_items: Count = 1_000
    """Transactions and results one block executes, so that it is made well within its round."""
    max_grants: Count = 1_000
    """Grants of the faucet that wait for a block; further ones are refused."""
    max_known_transactions: Count = 50_000
    """Transactions the chain API remembers; the oldest are forgotten."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for a network that nobody knows."""
        self.network()

    @property
    def supernova_round(self) -> int:
        """The first round whose blocks are proposed first and executed later."""
        first = self.supernova_epoch * self.rounds_per_epoch
        return first + (self.supernova_lead_rounds if self.supernova_epoch else 0)

    def proposes_in(self, round_: int) -> bool:
        """Whether blocks of a round are proposed first and executed later."""
        return round_ >= self.supernova_round

    def network(self) -> NetworkProfile:
        """The network profile under this chain's id."""
        return named_profile(self.profile, chain_id=self.chain_id)
