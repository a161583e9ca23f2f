"""The two requests with many inputs, each answered in its clients' own form: batch-quote and multi-swap."""

from __future__ import annotations

import base64
from collections.abc import Generator, Sequence

import msgspec

from millrace.aggregator.batch import Failure, Sale, Sold, SoldInput, sell
from millrace.aggregator.batch_requests import Order
from millrace.aggregator.batch_responses import (
    Batch,
    BatchInput,
    BatchResponse,
    BatchRoute,
    FailedToken,
    MultiSwapResponse,
    SwapBatch,
    SwapRoute,
)
from millrace.aggregator.breakdown import path_parts, swap_hop, wrapper_hop
from millrace.aggregator.responses import SwapHop
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot
from millrace.aggregator.transactions import unsigned, with_nonce
from millrace.chain.amount import short
from millrace.chain.token import NATIVE
from millrace.routing.plan import Ends
from millrace.routing.planner import Planner


def multi_swap(
    snapshot: Snapshot, planner: Planner, order: Order, sender: str, settings: AggregatorSettings, deadline: float
) -> Generator[None, None, MultiSwapResponse]:
    """The answer to a multi-swap; see `sell`. With a `sender` each batch has its transaction, with nonces from 0 on."""
    sold = yield from sell(snapshot, planner, order, settings, deadline)
    decimals = snapshot.decimals[order.to]
    paid, least, fee = (sum(getattr(sale, name) for sale in sold.sales) for name in ("paid", "least", "fee"))
    answer = MultiSwapResponse(
        to=order.to,
        amount_out=str(paid),
        amount_out_short=short(paid, decimals),
        amount_out_min=str(least),
        amount_out_min_short=short(least, decimals),
        slippage=order.slippage,
        fee_bps=sum(settings.referral_bps(order.referral_id)),
        fee_amount=str(fee),
        fee_amount_short=short(fee, decimals),
        failed_tokens=_failed(snapshot, sold.failures),
        batches=[_swap_batch(snapshot, order, sale, sender, settings) for sale in sold.sales],
        snapshot=snapshot.info,
        search_cut=sold.cut or msgspec.UNSET,
        ignored_parameters=order.ignored or msgspec.UNSET,
    )
    if len(answer.batches) != 1:
        return answer
    only = answer.batches[0]
    return msgspec.structs.replace(
        answer, inputs=only.inputs, routes=only.routes, tx_data=only.tx_data, transaction=only.transaction
    )


def _swap_batch(snapshot: Snapshot, order: Order, sale: Sale, sender: str, settings: AggregatorSettings) -> SwapBatch:
    decimals = snapshot.decimals[order.to]
    data = base64.b64encode(sale.data).decode("ascii")
    return SwapBatch(
        batch_index=sale.number,
        inputs=_inputs(snapshot, sale),
        amount_out=str(sale.paid),
        amount_out_short=short(sale.paid, decimals),
        amount_out_min=str(sale.least),
        amount_out_min_short=short(sale.least, decimals),
        routes=[_swap_route(snapshot, sold, order.to) for sold in sale.inputs],
        tx_data=sale.data.decode("ascii"),
        estimated_gas_limit=sale.gas_limit,
        estimated_builtin_calls=sale.builtin_calls,
        transaction=unsigned(
            settings,
            sender=sender,
            receiver=sender,
            value=0,
            data=data,
            gas_limit=sale.gas_limit,
            gas_price=order.gas_price,
            nonce=sale.number,
        )
        if sender
        else msgspec.UNSET,
    )


def from_nonce(answer: MultiSwapResponse, first: int) -> MultiSwapResponse:
    """The answer with the nonces of its transactions counted from `first` on."""
    batches = [
        msgspec.structs.replace(batch, transaction=with_nonce(batch.transaction, first + batch.batch_index))
        for batch in answer.batches
    ]
    only = batches[0].transaction if len(batches) == 1 else msgspec.UNSET
    return msgspec.structs.replace(answer, batches=batches, transaction=only)


def _swap_route(snapshot: Snapshot, sold: SoldInput, to: str) -> SwapRoute:
    return SwapRoute(
        from_=sold.token,
        amount_in=str(sold.amount),
        amount_in_short=short(sold.amount, snapshot.decimals[sold.token]),
        amount_out=str(sold.paid),
        amount_out_short=short(sold.paid, snapshot.decimals[to]),
        paths=path_parts(snapshot, Ends(sold.token, to), sold.fills, sold.amount, sold.paid),
    )


def batch_quote(
    snapshot: Snapshot, planner: Planner, order: Order, settings: AggregatorSettings, deadline: float
) -> Generator[None, None, BatchResponse]:
    """The answer to a batch quote; see `sell`."""
    sold = yield from sell(snapshot, planner, order, settings, deadline)
    total = sum(sale.paid for sale in sold.sales)
    return BatchResponse(
        to=order.to,
        amount_out=str(total),
        amount_out_short=short(total, snapshot.decimals[order.to]),
        batches=[_batch(snapshot, sold, sale) for sale in sold.sales],
        failed_tokens=_failed(snapshot, sold.failures),
        snapshot=snapshot.info,
        search_cut=sold.cut or msgspec.UNSET,
        ignored_parameters=order.ignored or msgspec.UNSET,
    )


def _batch(snapshot: Snapshot, sold: Sold, sale: Sale) -> Batch:
    to = sold.order.to
    return Batch(
        batch_index=sale.number,
        inputs=_inputs(snapshot, sale),
        amount_out=str(sale.paid),
        amount_out_short=short(sale.paid, snapshot.decimals[to]),
        amount_out_min=str(sale.least),
        routes=[BatchRoute(token=item.token, swaps=_hops(snapshot, item, to)) for item in sale.inputs],
        tx_data=base64.b64encode(sale.data).decode("ascii"),
        estimated_gas_limit=sale.gas_limit,
        estimated_builtin_calls=sale.builtin_calls,
    )


def _hops(snapshot: Snapshot, sold: SoldInput, to: str) -> list[SwapHop]:
    """The executed swaps of an input, with the wrapper's hops at the ends."""
    hops = [swap_hop(snapshot, *fill) for fill in sold.fills]
    if sold.token == NATIVE:
        hops.insert(0, wrapper_hop(NATIVE, snapshot.wrapped, sold.amount))
    if to == NATIVE:
        hops.append(wrapper_hop(snapshot.wrapped, NATIVE, sold.paid))
    return hops


def _inputs(snapshot: Snapshot, sale: Sale) -> list[BatchInput]:
    return [
        BatchInput(
            token=sold.token, amount=str(sold.amount), amount_short=short(sold.amount, snapshot.decimals[sold.token])
        )
        for sold in sale.inputs
    ]


def _failed(snapshot: Snapshot, failures: Sequence[Failure]) -> list[FailedToken]:
    return [
        FailedToken(
            token=failure.item.token[:64],
            amount=failure.item.amount[:80],
            amount_short=short(failure.amount or 0, snapshot.decimals.get(failure.item.token, 0))
            if failure.item.token in snapshot.decimals
            else 0.0,
            reason=failure.reason,
        )
        for failure in failures
    ]
