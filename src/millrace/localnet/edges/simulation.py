"""`POST /transaction/simulate` and `POST /transaction/cost`, as a gateway answers them."""

from __future__ import annotations

from typing import Any

import msgspec

from millrace.chain import address, fees
from millrace.chain.transaction import Transaction, client_hash
from millrace.localnet.chain import admission
from millrace.localnet.chain.content import Result
from millrace.localnet.chain.machine import Chain
from millrace.localnet.chain.rehearsal import rehearse


def simulate(chain: Chain, tx: Transaction, *, signed: bool) -> dict[str, Any]:
    """How a transaction would end: in its shard, or in the sender's and the receiver's. Changes nothing."""
    try:
        admission.check(tx, chain.network, chain.ledger_of(tx.sender), signed=signed)
    except admission.Refused as refused:
        return {"result": {"status": "fail", "failReason": str(refused), "hash": client_hash(tx).hex()}}
    done = rehearse(chain.shards, chain.network, tx)
    result = {
        "status": done.status,
        "hash": client_hash(tx).hex(),
        "scResults": {item_hash.hex(): _view(item) for item_hash, item in done.results.items()},
    }
    if done.reason:
        result["failReason"] = done.reason
    if chain.shard_of(tx.sender) == chain.network.receiver_shard_of(tx.receiver, tx.sender):
        return {"result": result}
    begun = {"status": "success", "hash": client_hash(tx).hex()}
    return {"result": {"senderShard": begun, "receiverShard": result}}


def cost(chain: Chain, tx: Transaction) -> dict[str, Any]:
    """The gas a transaction would use; without a gas limit of its own it has the highest there is."""
    gas_limit = tx.gas_limit or chain.network.gas.max_gas_per_tx
    done = rehearse(chain.shards, chain.network, msgspec.structs.replace(tx, gas_limit=gas_limit))
    used = done.gas_used if done.status == "success" else 0
    if used == gas_limit:  # nothing came back: a plain transfer, of which a node takes all there is
        used = fees.move_gas(tx, chain.network.gas)
    return {"txGasUnits": used, "returnMessage": done.reason}


def _view(result: Result) -> dict[str, Any]:
    return {
        "nonce": result.nonce,
        "value": result.value,
        "sender": address.encode(result.sender),
        "receiver": address.encode(result.receiver),
        "data": result.data.decode("utf-8", "replace"),
        "returnMessage": result.return_message,
    }
