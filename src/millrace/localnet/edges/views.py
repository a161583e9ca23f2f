"""JSON of transactions, results and logs, in the chain API's and a gateway's words."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from millrace.chain import address
from millrace.chain.transaction import client_hash, to_json
from millrace.localnet.chain.content import Log, Result
from millrace.localnet.chain.index import Record
from millrace.localnet.chain.machine import Chain


def transaction_view(chain: Chain, record: Record) -> dict[str, Any]:
    """A transaction as `GET /transactions/{hash}` tells it."""
    tx = record.tx
    body: dict[str, Any] = {
        "txHash": record.hash.hex(),
        "clientHash": client_hash(tx).hex(),
        "senderShard": chain.network.shard_of(tx.sender),
        "receiverShard": chain.network.receiver_shard_of(tx.receiver, tx.sender),
        "status": record.status,
        "timestamp": record.timestamp_ms // 1000,
        "timestampMs": record.timestamp_ms,
        "gasUsed": record.gas_used,
        "fee": str(record.fee),
        "isRelayed": tx.is_relayed,
        # Executed, but not on every side yet.
        "inTransit": record.source is not None and bool(not record.outcome or record.under_way),
        "results": [_result_view(result_hash, result) for result_hash, result in record.results.items()],
        "logs": _log_view(record.logs),
    }
    body |= msgspec.to_builtins(to_json(tx))
    if record.source is not None:
        body |= {
            "senderBlockHash": record.source.hash.hex(),
            "senderBlockNonce": record.source.nonce,
            "round": record.source.round,
            "epoch": record.source.epoch,
        }
    if record.destination is not None:
        body |= {
            "receiverBlockHash": record.destination.hash.hex(),
            "receiverBlockNonce": record.destination.nonce,
        }
    if record.outcome == "success" and record.under_way:
        body["pendingResults"] = True
    if record.status == "fail":
        body["reason"] = record.reason
    return body


def _result_view(result_hash: bytes, result: Result) -> dict[str, Any]:
    return {
        "hash": result_hash.hex(),
        "nonce": result.nonce,
        "value": str(result.value),
        "receiver": address.encode(result.receiver),
        "sender": address.encode(result.sender),
        "data": base64.b64encode(result.data).decode(),
        "prevTxHash": result.previous.hex(),
        "originalTxHash": result.original.hex(),
        "returnMessage": result.return_message,
    }


def _log_view(logs: dict[bytes, Log]) -> dict[str, Any]:
    return {
        "events": [
            {
                "address": address.encode(event.address),
                "identifier": event.identifier,
                "topics": [base64.b64encode(topic).decode() for topic in event.topics],
                "data": base64.b64encode(event.data).decode(),
                "order": order,
            }
            for order, event in enumerate(event for log in logs.values() for event in log.events)
        ]
    }
