"""The answers to requests with many inputs: batch-quote and multi-swap."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec

from millrace.aggregator.responses import PathPart, SnapshotInfo, SwapHop, UnsignedTransaction, wire_name


class BatchInput(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """One input that a batch sells."""

    token: str
    amount: str
    amount_short: float


class BatchRoute(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The swaps that one input takes, in execution order."""

    token: str
    swaps: list[SwapHop]


class Batch(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """One transaction of a batch quote; its receiver is the sender itself (a multi-transfer)."""

    batch_index: int
    inputs: list[BatchInput]
    amount_out: str
    amount_out_short: float
    amount_out_min: str
    routes: list[BatchRoute]
    tx_data: str
    estimated_gas_limit: int
    estimated_builtin_calls: int


class FailedToken(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """An input that is not sold, and why: `unknown_token`, `invalid_amount`, `zero_liquidity`, …"""

    token: str
    amount: str
    amount_short: float
    reason: str


class BatchResponse(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The answer of POST /api/v1/batch-quote."""

    to: str
    amount_out: str
    amount_out_short: float
    batches: list[Batch]
    failed_tokens: list[FailedToken]
    snapshot: SnapshotInfo
    search_cut: bool | msgspec.UnsetType = msgspec.UNSET
    ignored_parameters: Sequence[str] | msgspec.UnsetType = msgspec.UNSET


class SwapRoute(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """What one input of a multi-swap becomes, and on which paths."""

    from_: str
    amount_in: str
    amount_in_short: float
    amount_out: str
    amount_out_short: float
    paths: list[PathPart]


class SwapBatch(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """One transaction of a multi-swap. `txData` is plain text, `transaction.data` the same in base64."""

    batch_index: int
    inputs: list[BatchInput]
    amount_out: str
    amount_out_short: float
    amount_out_min: str
    amount_out_min_short: float
    routes: list[SwapRoute]
    tx_data: str
    estimated_gas_limit: int
    estimated_builtin_calls: int
    transaction: UnsignedTransaction | msgspec.UnsetType = msgspec.UNSET


class MultiSwapResponse(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The answer of POST /api/v1/multi-swap. With a single batch its `inputs`, `routes`, `txData` and `transaction`
    are here as well."""

    to: str
    amount_out: str
    amount_out_short: float
    amount_out_min: str
    amount_out_min_short: float
    slippage: Decimal
    fee_bps: int
    fee_amount: str
    fee_amount_short: float
    failed_tokens: list[FailedToken]
    batches: list[SwapBatch]
    snapshot: SnapshotInfo
    search_cut: bool | msgspec.UnsetType = msgspec.UNSET
    ignored_parameters: Sequence[str] | msgspec.UnsetType = msgspec.UNSET
    inputs: list[BatchInput] | msgspec.UnsetType = msgspec.UNSET
    routes: list[SwapRoute] | msgspec.UnsetType = msgspec.UNSET
    tx_data: str | msgspec.UnsetType = msgspec.UNSET
    transaction: UnsignedTransaction | msgspec.UnsetType = msgspec.UNSET
