"""What a relayer answers and pushes, as values. Amounts are integers in atomic units."""

from __future__ import annotations

from typing import Any

import msgspec

from millrace_client.address import ShardRule
from millrace_client.transaction import Transaction

ENDED = frozenset({"success", "fail", "superseded", "dropped", "written off"})
"""States that nothing comes after."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An answer, or a part of one."""


class RelayerKey(_Value, frozen=True):
    """Whom senders of a shard name as `relayer`."""

    shard: int
    address: str
    state: str = "ready"
    max_gas_price: int | None = None


class GasRules(_Value, frozen=True):
    """What the network charges; extra gas is for naming a relayer, and for a guardian."""

    min_gas_price: int = 1_000_000_000
    min_gas_limit: int = 50_000
    gas_per_data_byte: int = 1_500
    extra_gas_relayed: int = 50_000
    extra_gas_guarded: int = 50_000


class Caps(_Value, frozen=True):
    """The most that one sponsored transaction may ask for."""

    gas_price: int
    gas_limit: int
    fee: int
    value: int
    data_bytes: int


class Relayers(_Value, frozen=True):
    """Who pays on this network, and by which rules. Of a deployment that does not tell it, make one by hand."""

    chain_id: str = msgspec.field(name="chainId")
    shard_rule: ShardRule = "mask"
    shards: int = 3
    relayers: list[RelayerKey] = []
    gas: GasRules = GasRules()
    caps: Caps | None = None
    max_nonce_gap: int = 0
    profile: str = ""


class Block(_Value, frozen=True):
    """The block that executed a transaction in its sender's shard; `timestamp` in milliseconds."""

    shard: int
    nonce: int
    hash: str
    timestamp: int


class Outcome(_Value, frozen=True):
    """What is known of a transaction: `state` is `pending`, `included`, or one of those that end it."""

    hash: str
    state: str
    reason: str | None = None
    chain_hash: str | None = None
    client_hash: str | None = None
    sdk_hash: str | None = None
    sender: str | None = None
    nonce: int | None = None
    action: str | None = None
    payer: str | None = None
    max_fee: int | None = None
    fee: int | None = None
    block: Block | None = None
    sending: bool | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing comes after this."""
        return self.state in ENDED


class Prepared(_Value, frozen=True):
    """Whether a transaction would be sponsored now, and what to sign if so."""

    sponsored: bool
    shard: int
    extra_gas: int = 0
    transaction: Transaction | None = None
    max_fee: int | None = None
    until: int | None = None
    """Milliseconds since the epoch; ask again after that."""
    reason: str | None = None
    code: str | None = None
    detail: str | None = None
    retry_after_ms: int | None = None


class FailedItem(_Value, frozen=True):
    """One refused transaction of a submission."""

    index: int
    reason: str
    code: str = ""
    detail: str = ""
    retry_after_ms: int | None = None


class ResultItem(_Value, frozen=True):
    """One accepted transaction of a submission."""

    index: int
    hash: str
    client_hash: str | None = None
    sdk_hash: str | None = None
    relayer_signature: str | None = None
    state: str | None = None
    transaction: Outcome | None = None


class Submission(_Value, frozen=True):
    """The reply to `POST /v1/relay`."""

    action: str
    status: str
    hashes: list[str] = []
    failed: list[FailedItem] = []
    results: list[ResultItem] = []


class KeyReadiness(_Value, frozen=True):
    """Whether a relayer key pays; amounts in atomic units, None while its balance is not known."""

    address: str
    state: str
    spendable: int | None = None
    missing: int | None = None


class Readiness(_Value, frozen=True):
    """Whether submissions are taken, and what each key lacks, by shard."""

    ready: bool
    relayers: dict[str, KeyReadiness] = {}


class Signed(_Value, frozen=True):
    """The reply to `POST /v1/sign`: co-signed transactions that were sent nowhere."""

    transactions: list[Transaction]
    failed: list[FailedItem] = []
    results: list[ResultItem] = []


class History(_Value, frozen=True):
    """Averages of the network statistics; `resolution` in seconds, each point with its `ts` in milliseconds."""

    resolution: int
    points: list[dict[str, Any]]


# ---- pushes


class StatusData(_Value, frozen=True):
    """The fate of a transaction."""

    hash: str
    status: str
    reason: str | None = None
    chain_hash: str | None = None


class TxStatus(_Value, frozen=True, tag_field="type", tag="tx-status"):
    """Told once to each subscription of `tx-status/{hash}`."""

    data: StatusData


class AccountData(_Value, frozen=True):
    """An account after a block; `balances` holds EGLD and the tokens that this block touched."""

    address: str
    balances: dict[str, int]
    nonce: int
    shard_id: int | None = None
    timestamp: int | None = None
    block_hash: str | None = None
    block_nonce: int | None = None


class AccountDelta(_Value, frozen=True, tag_field="type", tag="accountDelta"):
    """Told to `address/{bech32}` after each final block that changed the account."""

    data: AccountData


class Percentiles(_Value, frozen=True):
    """The price that so many percent of the transactions do not exceed."""

    p50: int | None = None
    p75: int | None = None
    p90: int | None = None


class Summary(_Value, frozen=True):
    """Prices of half an hour; None while nothing was seen."""

    min: int | None = None
    max: int | None = None
    avg: int | None = None
    bucket_avg: int | None = None


class GasPrice(Summary, frozen=True, kw_only=True):
    """Gas prices, with percentiles."""

    percentiles: Percentiles = Percentiles()


class GasData(_Value, frozen=True):
    """Gas prices of a shard; `ppu` is the price per gas unit."""

    shard: int
    gas_price: GasPrice
    ppu: Summary | None = None


class GasStats(_Value, frozen=True, tag_field="type", tag="gasStats"):
    """Told to `gasStats`, of each shard every 50 ms."""

    data: GasData


class AllGasData(_Value, frozen=True):
    """Those of every shard, in their order."""

    shards: list[GasData]


class AllGasStats(_Value, frozen=True, tag_field="type", tag="gasStats/all"):
    """Told to `gasStats/all`, of all shards at once every 50 ms."""

    data: AllGasData


class Network(_Value, frozen=True):
    """Rates and peers."""

    current_tps: float | None = None
    avg_tps_10s: float | None = msgspec.field(default=None, name="avgTps10s")
    avg_tps_30s: float | None = msgspec.field(default=None, name="avgTps30s")
    connected_peers: int | None = None
    active_validators: int | None = None
    ws_lag_ms: float | None = None


class LatestBlock(_Value, frozen=True):
    """The newest final block of the shards, or of the metachain, which has no shard id."""

    shard_id: int | None = None
    nonce: int | None = None
    round: int | None = None
    epoch: int | None = None
    tx_count: int | None = None
    executed_tx_count: int | None = None
    timestamp_ms: int | None = None
    leader_signature_hex: str | None = None
    accumulated_fees: int | None = None
    developer_fees: int | None = None


class Blocks(_Value, frozen=True):
    """Blocks and what is odd about them."""

    latest_shard: LatestBlock | None = None
    latest_meta: LatestBlock | None = None
    block_time_ms_p50_by_shard: dict[str, float | None] = msgspec.field(
        default_factory=dict, name="blockTimeMsP50ByShard"
    )
    nonce_gap_events_1m: int | None = msgspec.field(default=None, name="nonceGapEvents1m")
    duplicate_nonce_events_1m: int | None = msgspec.field(default=None, name="duplicateNonceEvents1m")


class Mempool(_Value, frozen=True):
    """What waits."""

    estimated_queue: int | None = None
    ingress_tps: float | None = None
    inclusion_tps: float | None = None
    pressure: float | None = None


class Validators(_Value, frozen=True):
    """Who is heard of."""

    online_by_shard: dict[str, int | None] = {}
    total_online: int | None = None
    heartbeat_rate_per_sec: float | None = None


class Health(_Value, frozen=True):
    """How whole these numbers are."""

    p2p_dedup_ratio_1m: float | None = msgspec.field(default=None, name="p2pDedupRatio1m")
    stream_subscribers: int | None = None
    data_completeness: float | None = None


class NetworkData(_Value, frozen=True):
    """All of it; a group that a deployment does not tell has no values."""

    network: Network = Network()
    blocks: Blocks = msgspec.field(default_factory=Blocks)
    mempool: Mempool = Mempool()
    validators: Validators = msgspec.field(default_factory=Validators)
    health: Health = Health()


class NetworkStats(_Value, frozen=True, kw_only=True, tag_field="type", tag="networkStats"):
    """Told every 250 ms."""

    schema_version: str = ""
    sequence: int = 0
    ts: int | None = None
    data: NetworkData


class Shutdown(_Value, frozen=True, tag_field="type", tag="serverShutdown"):
    """The service is about to end. The connection leaves by itself and says what was missed meanwhile."""

    move_to: list[str] = []
    """Where to go, best first; none: to the address it has."""
    after_ms: int | None = None
    """When to go; absent: it is closed now."""


Push = TxStatus | AccountDelta | GasStats | AllGasStats | NetworkStats | Shutdown


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """Some messages of a subscription did not come, and which."""

    topic: str
    why: str
    """`connection lost`, `reader too slow`, `left out by the service` or `gone from the journal`."""
    count: int | None = None
    """How many; None: not known, as where another notifier's journal does not have what the one before told."""
    since: float | None = None
    """Seconds since the epoch from which on nothing was heard; of a hub the first sequence that is gone."""
    until: float | None = None
    """And until when; of a hub the last one."""
