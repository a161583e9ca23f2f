"""The bodies of the REST interface. Amounts are decimal strings, `…Short` are numbers scaled by decimals."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from millrace.dex.document import Quarantined

encode = msgspec.json.Encoder(decimal_format="number").encode
"""The JSON of a body. A `slippage` has all the digits it was given with: it is no binary float."""


def wire_name(field: str) -> str:
    """camelCase, as everywhere on the wire; `from` is a word of Python and `chainID` has its own spelling."""
    first, *rest = field.removesuffix("_").split("_")
    return (first + "".join(part.capitalize() for part in rest)).replace("chainId", "chainID")


class SwapHop(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name, omit_defaults=True):
    """One pool (or the wrapper) on a path. `pairId` for OneDex only."""

    dex: str
    address: str
    from_: str
    to: str
    amount_in: str
    amount_out: str
    amount_in_short: float
    amount_out_short: float
    pair_id: int | None = None


class PathPart(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """One path: its part of the input in parts per million (they sum to 1 000 000) and its swaps."""

    amount_in: str
    amount_out: str
    amount_in_short: float
    amount_out_short: float
    split_ppm: int
    swaps: list[SwapHop]


class PoolFee(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """What one pool withholds: fee amount in `token`, of the trade in that pool."""

    dex: str
    address: str
    token: str
    amount: str
    amount_short: float


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The market state the answer was computed on."""

    id: str
    block_nonce: int
    timestamp: int


class UnsignedTransaction(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """A transaction that only lacks its signature, and its nonce where that is not known."""

    nonce: int | msgspec.UnsetType = msgspec.UNSET
    sender: str
    receiver: str
    value: str
    data: str
    gas_limit: int
    gas_price: int
    chain_id: str
    version: int = 2
    chain_id_again: str = msgspec.field(name="chainId")
    """The same as `chainID`: some clients read this spelling."""


class Simulation(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """What a gateway says that a transaction would do now. `status`: `success`, `fail`, or `unknown` without a word."""

    status: str
    reason: str | msgspec.UnsetType = msgspec.UNSET
    gas_used: int | msgspec.UnsetType = msgspec.UNSET


class QuoteResponse(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The answer of `/api/v1/quote`. Fields that do not apply are left out; `optimalityGap` may be null."""

    mode: str
    from_: str
    to: str
    amount_in: str
    amount_out: str
    amount_in_short: float
    amount_out_short: float
    amount_out_min: str
    amount_out_min_short: float
    slippage: Decimal
    price_impact: float
    rate: float
    rate_inverse: float
    decimals_in: int
    decimals_out: int
    algorithm: str
    tx_data: str
    estimated_gas_limit: int
    estimated_builtin_calls: int
    fee_bps: int
    fee_amount: str
    fee_amount_short: float
    pool_fees: list[PoolFee]
    optimality_gap: float | None
    snapshot: SnapshotInfo
    amount_in_usd: float | None
    amount_out_usd: float | None
    amount_out_min_usd: float | None
    fee_amount_usd: float | None
    amount_in_max: str | msgspec.UnsetType = msgspec.UNSET
    amount_in_max_short: float | msgspec.UnsetType = msgspec.UNSET
    ignored_parameters: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    profit: str | msgspec.UnsetType = msgspec.UNSET
    profit_short: float | msgspec.UnsetType = msgspec.UNSET
    paths: list[PathPart] | msgspec.UnsetType = msgspec.UNSET
    transaction: UnsignedTransaction | msgspec.UnsetType = msgspec.UNSET
    simulation: Simulation | msgspec.UnsetType = msgspec.UNSET
    search_cut: bool | msgspec.UnsetType = msgspec.UNSET


class PairConfig(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The answer of `/api/v1/pair-config`."""

    from_: str
    to: str
    supported: bool
    decimals_in: int | msgspec.UnsetType = msgspec.UNSET
    decimals_out: int | msgspec.UnsetType = msgspec.UNSET
    min_amount_in: str | msgspec.UnsetType = msgspec.UNSET
    min_amount_in_short: float | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET


class Health(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The answer of `/health`. `status` is `ok`, `starting` (no snapshot yet) or `stale`."""

    status: str
    service_version: str
    pools: int
    tokens: int
    uptime_seconds: float
    snapshot_id: str | None
    snapshot_age_seconds: float | None
    block_nonce: int | None
    source: str
    last_error: str | None
    quarantined: int
    """Pools and tokens of the document that are left out because something is wrong with them."""
    quarantine: tuple[Quarantined, ...]
    """The first hundred of them, each with its reason."""
    workers: int
    """Processes that answer."""
    workers_wanted: int
    """How many there are to be."""


class LadderStep(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name, omit_defaults=True):
    """One amount of a price ladder: its answer, or the error it would get."""

    amount_in: str
    amount_out: str | None = None
    rate: float | None = None
    price_impact: float | None = None
    optimality_gap: float | None = None
    search_cut: bool = False
    error: str | None = None


class LadderResponse(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The answer of `/api/v1/price-ladder`, one step per amount in the order asked."""

    from_: str
    to: str
    steps: list[LadderStep]
    snapshot: SnapshotInfo
    ignored_parameters: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class ErrorBody(msgspec.Struct, frozen=True):
    """Every error: one field, the message."""

    error: str
