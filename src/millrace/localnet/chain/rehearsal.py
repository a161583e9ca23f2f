"""What a transaction would do if it were executed now: run for real in all shards it comes to, and taken back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import Transaction, client_hash
from millrace.localnet.chain.content import Content, Result
from millrace.localnet.chain.processor import Processor
from millrace.localnet.chain.shard import Shard

UNCHARGED = "it could not be charged: its nonce, its guardian, or the fee its payer would need"
PATIENT = 1 << 60
"""A surplus of gas that nodes would take for an attack tells nothing of what a call needs."""


class Rehearsal(NamedTuple):
    """How it would end: `success` or `fail` with the reason, the gas of it, and the results it would leave."""

    status: str
    reason: str
    gas_used: int
    results: dict[bytes, Result]


def rehearse(shards: Mapping[int, Shard], network: NetworkProfile, tx: Transaction) -> Rehearsal:
    """Execute a transaction in every shard it comes to, as of the last executed blocks. Nothing stays of it."""
    patient = msgspec.structs.replace(network, gas=msgspec.structs.replace(network.gas, max_gas_surplus_factor=PATIENT))
    ledgers = [shard.state.ledger for shard in shards.values()]
    checkpoints = [ledger.checkpoint() for ledger in ledgers]
    try:
        contents = _run(shards, patient, tx)
    finally:
        for ledger, checkpoint in zip(ledgers, checkpoints, strict=True):
            ledger.rollback(checkpoint)
    if not contents:
        return Rehearsal("fail", UNCHARGED, 0, {})
    ends = [(status, reason) for content in contents for _, status, reason in content.statuses]
    entries = [entry for content in contents for entry in content.entries.values()]
    failures = [reason for status, reason in ends if status == "fail"]
    results = {entry.hash: entry.item for entry in entries if isinstance(entry.item, Result)}
    gas_used = tx.gas_limit - sum(entry.fee.gas_refunded for entry in entries)
    return Rehearsal("fail" if failures else "success", failures[0] if failures else "", gas_used, results)


def _run(shards: Mapping[int, Shard], network: NetworkProfile, tx: Transaction) -> list[Content]:
    """What the transaction makes, shard by shard; nothing where it cannot even begin."""
    tx_hash, home = client_hash(tx), network.shard_of(tx.sender)
    if home not in shards:  # a system contract: it counts to shard 0, as everywhere in this chain
        home = 0
    first = Content()
    if not _processor(shards[home], network, first).execute_new(tx_hash, tx):
        return []
    contents, waiting = [first], [(home, first)]
    for shard, content in waiting:  # grows while results travel on; what arrives is in the arrival's content, too
        for (source, target, _), hashes in content.miniblocks.items():
            if source != shard or target == shard or target not in shards:
                continue
            arrived = Content()
            processor = _processor(shards[target], network, arrived)
            for item_hash in hashes:
                item = content.entries[item_hash].item
                if isinstance(item, Result):
                    processor.execute_result(item_hash, item, source)
                else:
                    processor.execute_transaction(item_hash, item, source)
            contents.append(arrived)
            waiting.append((target, arrived))
    return contents


def _processor(shard: Shard, network: NetworkProfile, content: Content) -> Processor:
    return Processor(network, shard.id, shard.state, content, logs_invalid=True)
