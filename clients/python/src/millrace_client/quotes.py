"""What an aggregator answers, as values. Amounts are integers in smallest units; `…_short` are for people's eyes.

What other deployments leave out is optional, so that their answers can be read; unknown fields are skipped.
"""

from __future__ import annotations

from typing import Any

import msgspec

from millrace_client.reading import read, without_nulls
from millrace_client.transaction import Transaction


def _wire(name: str) -> str:
    first, *rest = name.removesuffix("_").split("_")
    return first + "".join(part.capitalize() for part in rest)


class _Value(msgspec.Struct, frozen=True, kw_only=True, rename=_wire):
    """An answer, or a part of one."""


class Snapshot(_Value, frozen=True):
    """The state of the market that an answer was computed on."""

    id: str
    block_nonce: int | None = None
    timestamp: int | None = None


class Hop(_Value, frozen=True):
    """One pool on a path, or the wrapping of EGLD."""

    dex: str
    address: str
    from_: str
    to: str
    amount_in: int
    amount_out: int
    amount_in_short: float
    amount_out_short: float
    pair_id: int | None = None


class Path(_Value, frozen=True):
    """One path: its part of the input in parts per million, and its hops."""

    amount_in: int
    amount_out: int
    amount_in_short: float
    amount_out_short: float
    split_ppm: int
    swaps: list[Hop]


class PoolFee(_Value, frozen=True):
    """What one pool keeps of the trade."""

    dex: str
    address: str
    token: str
    amount: int
    amount_short: float


class Quote(_Value, frozen=True):
    """A swap that can be signed: what it takes, what it pays, at least and by its route."""

    tx_data: str
    amount_out_min: int
    price_impact: float
    mode: str | None = None
    from_: str | None = None
    to: str | None = None
    amount_in: int | None = None
    amount_out: int | None = None
    amount_in_short: float | None = None
    amount_out_short: float | None = None
    amount_out_min_short: float | None = None
    amount_in_max: int | None = None
    """Reverse quotes: the most that the swap may cost."""
    amount_in_max_short: float | None = None
    slippage: float | None = None
    rate: float | None = None
    rate_inverse: float | None = None
    decimals_in: int | None = None
    decimals_out: int | None = None
    algorithm: str | None = None
    estimated_gas_limit: int | None = None
    estimated_builtin_calls: int | None = None
    fee_bps: int | None = None
    fee_amount: int | None = None
    fee_amount_short: float | None = None
    pool_fees: list[PoolFee] = []
    optimality_gap: float | None = None
    """No route in the snapshot could pay more than `amount_out / (1 - gap)`; None: not known."""
    snapshot: Snapshot | None = None
    ignored_parameters: list[str] = []
    search_cut: bool = False
    """The search was cut short: with more time there may be a better route."""
    profit: int | None = None
    """Arbitrage: what is gained."""
    profit_short: float | None = None
    paths: list[Path] = []
    transaction: Transaction | None = None
    """With `sender`: what to sign once it has a nonce and a relayer."""
    unread: list[str] = []
    """What another deployment told in another form, by its names on the wire."""


def quote_of(body: bytes | msgspec.Raw) -> Quote:
    """The quote in an answer. Raises `msgspec.MsgspecError` without what the interface promises.

    Of the rest it shows no names and no forms: what another deployment tells in another form is left out, and named in
    `unread`.
    """
    try:
        return read(body, Quote)
    except msgspec.ValidationError:
        told = without_nulls(read(body, dict[str, Any]))
    unread = []
    for field in msgspec.structs.fields(Quote):
        if field.encode_name in told and not field.required:
            try:
                msgspec.convert(told[field.encode_name], field.type, strict=False)
            except msgspec.ValidationError:
                del told[field.encode_name]
                unread.append(field.encode_name)
    return msgspec.convert(told | {"unread": unread}, Quote, strict=False)


class PairConfig(_Value, frozen=True):
    """Whether a pair can be traded, and from which amount on."""

    from_: str
    to: str
    supported: bool
    decimals_in: int | None = None
    decimals_out: int | None = None
    min_amount_in: int | None = None
    min_amount_in_short: float | None = None
    error: str | None = None


class LadderStep(_Value, frozen=True):
    """One amount of a ladder: its answer, or the error it would get."""

    amount_in: int
    amount_out: int | None = None
    rate: float | None = None
    price_impact: float | None = None
    optimality_gap: float | None = None
    search_cut: bool = False
    """The search was cut short: with more time there may be a better route."""
    error: str | None = None


class Ladder(_Value, frozen=True):
    """Prices of several amounts, in the order asked."""

    from_: str
    to: str
    steps: list[LadderStep]
    snapshot: Snapshot
    ignored_parameters: list[str] = []


class BatchInput(_Value, frozen=True):
    """One input that a batch sells."""

    token: str
    amount: int
    amount_short: float


class FailedToken(_Value, frozen=True):
    """An input that is not sold, and why."""

    token: str
    amount: str
    """As it was asked."""
    amount_short: float
    reason: str


class BatchRoute(_Value, frozen=True):
    """The hops that one input takes."""

    token: str
    swaps: list[Hop]


class Batch(_Value, frozen=True):
    """One transaction of a batch quote; `tx_data` is base64, and it goes to its own sender."""

    batch_index: int
    inputs: list[BatchInput]
    amount_out: int
    amount_out_short: float
    amount_out_min: int
    routes: list[BatchRoute]
    tx_data: str
    estimated_gas_limit: int
    estimated_builtin_calls: int


class BatchQuote(_Value, frozen=True):
    """Many inputs sold for one output, for who builds transactions by himself."""

    to: str
    amount_out: int
    amount_out_short: float
    batches: list[Batch]
    failed_tokens: list[FailedToken]
    snapshot: Snapshot
    search_cut: bool = False
    """The search was cut short: with more time more may be sold, or for more."""
    ignored_parameters: list[str] = []


class SwapRoute(_Value, frozen=True):
    """What one input of a multi-swap becomes, and on which paths."""

    from_: str
    amount_in: int
    amount_in_short: float
    amount_out: int
    amount_out_short: float
    paths: list[Path]


class SwapBatch(_Value, frozen=True):
    """One transaction of a multi-swap; `tx_data` is plain text, `transaction.data` the same in base64."""

    batch_index: int
    inputs: list[BatchInput]
    amount_out: int
    amount_out_short: float
    amount_out_min: int
    amount_out_min_short: float
    routes: list[SwapRoute]
    tx_data: str
    estimated_gas_limit: int
    estimated_builtin_calls: int
    transaction: Transaction | None = None


class MultiSwap(_Value, frozen=True):
    """Many inputs sold for one output, as transactions that are sent in their order."""

    to: str
    amount_out: int
    amount_out_short: float
    amount_out_min: int
    amount_out_min_short: float
    slippage: float
    fee_bps: int
    fee_amount: int
    fee_amount_short: float
    failed_tokens: list[FailedToken]
    batches: list[SwapBatch]
    snapshot: Snapshot
    search_cut: bool = False
    """The search was cut short: with more time more may be sold, or for more."""
    ignored_parameters: list[str] = []


class Token(_Value, frozen=True):
    """A token; prices are of a whole one, None where no pool leads to EGLD."""

    identifier: str
    name: str
    ticker: str
    decimals: int
    is_lp: bool
    price_egld: float | None
    price_usdc: float | None
    liquidity_egld: float | None
    liquidity_usdc: float | None
    pools: int


class Pool(_Value, frozen=True):
    """A pool; `tradable`: routes may use it."""

    id: str
    dex: str
    kind: str
    address: str
    tokens: list[str]
    reserves: list[int]
    reserves_short: list[float]
    state: str
    tradable: bool
    liquidity_egld: float | None
    liquidity_usdc: float | None
    lp_supply: int
    lp_token: str | None = None
    pair_id: int | None = None


class Price(_Value, frozen=True):
    """The price of a whole token."""

    egld: float | None
    usdc: float | None


class Tokens(_Value, frozen=True):
    """A page of tokens, those with most liquidity first."""

    tokens: list[Token]
    total: int
    offset: int
    limit: int
    snapshot: Snapshot


class Pools(_Value, frozen=True):
    """A page of pools, those with most liquidity first."""

    pools: list[Pool]
    total: int
    offset: int
    limit: int
    snapshot: Snapshot


class Prices(_Value, frozen=True):
    """Prices by token."""

    prices: dict[str, Price]
    snapshot: Snapshot


class AggregatorLimits(_Value, frozen=True):
    """What is refused above."""

    max_hops: int
    max_splits: int
    max_pools: int
    max_builtin_calls: int
    max_gas: int
    max_inputs: int
    inputs_per_transaction: int
    requests_per_second: int
    max_streams_per_client: int


class AggregatorDefaults(_Value, frozen=True):
    """What holds where a request says nothing."""

    slippage: float
    algorithm: str
    max_hops: int
    max_splits: int | None
    include_paths: bool
    min_profit_bps: int


class AggregatorConfig(_Value, frozen=True):
    """How an aggregator is set; `referrals`: fees of known referrals in basis points."""

    contract: str
    chain_id: str = msgspec.field(name="chainID")
    gas_price: int
    native_token: str
    wrapped_native_token: str
    usdc: str
    exchanges: list[str]
    algorithms: list[str]
    referrals: dict[str, int]
    poll_seconds: float
    limits: AggregatorLimits
    defaults: AggregatorDefaults
    snapshot: Snapshot


class AggregatorHealth(_Value, frozen=True):
    """How an aggregator is; `status` is `ok`, `starting` or `stale`."""

    status: str = ""
    service_version: str = ""
    pools: int | None = None
    tokens: int | None = None
    uptime_seconds: float | None = None
    snapshot_id: str | None = None
    snapshot_age_seconds: float | None = None
    block_nonce: int | None = None
    source: str | None = None
    last_error: str | None = None
    quarantined: int = 0
