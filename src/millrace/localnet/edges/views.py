"""JSON of transactions, results and logs, in the chain API's and a gateway's words."""

from __future__ import annotations

import base64
from collections.abc import Collection
from typing import Any

import msgspec

from millrace.chain import address, fees
from millrace.chain import call as calls
from millrace.chain.headers import read_header
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import Transaction, client_hash, to_json
from millrace.localnet.chain.block import Block
from millrace.localnet.chain.content import Log, Result
from millrace.localnet.chain.index import Record
from millrace.localnet.chain.machine import Chain
from millrace.localnet.contracts.guardians import Guarding


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
        "function": _function(tx),
        "isRelayed": tx.is_relayed,
        # Executed, but not on every side yet.
        "inTransit": record.source is not None and bool(not record.outcome or record.under_way),
        "results": [_result_view(result_hash, result) for result_hash, result in record.results.items()],
        "logs": _log_view(record.logs.values()),
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


def block_view(block: Block) -> dict[str, Any]:
    """A block that is kept whole, in the words of the chain API and of a gateway alike."""
    data = pb.BlockData(headerBytes=block.header, headerType=block.header_type, headerHash=block.hash)
    header = read_header(data)
    previous = header.prev_hash.hex() if header is not None else ""
    return {
        "shard": block.shard,
        "nonce": block.nonce,
        "round": block.round,
        "epoch": block.epoch,
        "hash": block.hash.hex(),
        "prevHash": previous,
        "prevBlockHash": previous,
        "timestamp": block.timestamp_ms // 1000,
        "timestampMs": block.timestamp_ms,
    }


def guardians_view(guarding: Guarding, epoch: int) -> dict[str, Any]:
    """Who guards an account, as the chain API tells those who ask."""
    body: dict[str, Any] = {"isGuarded": guarding.on}
    for name, guardian in (("active", guarding.active(epoch)), ("pending", guarding.pending(epoch))):
        if guardian is not None:
            body |= {
                f"{name}GuardianActivationEpoch": guardian.epoch,
                f"{name}GuardianAddress": address.encode(guardian.address),
                f"{name}GuardianServiceUid": guardian.service.decode("utf-8", "replace"),
            }
    return body


def _function(tx: Transaction) -> str:
    """What a transaction calls, also through a transfer of tokens; else the function of the chain that it names."""
    try:
        return calls.payments_of(tx).function or calls.parse(tx.data).function
    except calls.CallError:
        return ""


def gateway_status(record: Record) -> str:
    """How a transaction ended, as a node's `process-status` tells it."""
    return "not-executable-in-block" if record.outcome == "dropped" and record.status == "fail" else record.status


def gateway_transaction_view(chain: Chain, record: Record, *, results: bool) -> dict[str, Any]:
    """A transaction as a gateway's `GET /transaction/{hash}` tells it: a call that failed is a `success` there."""
    tx, status = record.tx, gateway_status(record)
    kind = "invalid" if record.invalid and status == "fail" else "normal"
    body: dict[str, Any] = msgspec.to_builtins(to_json(tx))
    relayer = body.pop("relayer", None)
    body |= {
        "type": kind,
        "function": _function(tx),
        "hash": record.hash.hex(),
        "sourceShard": chain.network.shard_of(tx.sender),
        "destinationShard": chain.network.receiver_shard_of(tx.receiver, tx.sender),
        "status": kind if kind == "invalid" else "success" if status == "fail" else status,
        "timestamp": record.timestamp_ms // 1000,
        "timestampMs": record.timestamp_ms,
        "gasUsed": record.gas_used,
        "fee": str(record.fee),
        "initiallyPaidFee": str(fees.initially_paid_fee(tx, chain.network.gas)),
    }
    if relayer is not None:
        body |= {"isRelayed": True, "relayerAddress": relayer}
    block = record.destination
    if block is not None:
        body |= {"blockHash": block.hash.hex(), "blockNonce": block.nonce, "round": block.round, "epoch": block.epoch}
    if not results:
        return body
    own = record.logs.get(record.hash)
    return (
        body
        | ({} if own is None else {"logs": _log_view([own])})
        | {"smartContractResults": [_gateway_result(record, hash_, result) for hash_, result in record.results.items()]}
    )


def _gateway_result(record: Record, result_hash: bytes, result: Result) -> dict[str, Any]:
    log = record.logs.get(result_hash)
    plain = {"data": result.data.decode("utf-8", "replace"), "value": result.value}
    return _result_view(result_hash, result) | plain | ({} if log is None else {"logs": _log_view([log])})


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


def _log_view(logs: Collection[Log]) -> dict[str, Any]:
    """All events in their order, filed under the account of the first log."""
    filed = {"address": address.encode(next(iter(logs)).address)} if logs else {}
    return filed | {
        "events": [
            {
                "address": address.encode(event.address),
                "identifier": event.identifier,
                "topics": [base64.b64encode(topic).decode() for topic in event.topics],
                "data": base64.b64encode(event.data).decode(),
                "order": order,
            }
            for order, event in enumerate(event for log in logs for event in log.events)
        ]
    }
