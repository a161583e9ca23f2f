"""What a transaction would do now, without doing it: executed on the ledgers as they are, and all of it taken back.

As gateways do, what a transaction sends to one other shard is tried there at once; what that would send on is not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import msgspec

from millrace.chain.transaction import Transaction, chain_hash
from millrace.localnet.chain import admission
from millrace.localnet.chain.content import Content, Result
from millrace.localnet.chain.processor import Processor
from millrace.localnet.chain.shard import Shard

NOT_EXECUTABLE = "transaction is not executable"


class Outcome(msgspec.Struct, frozen=True):
    """What came of it in one shard; `fail` with its reason, or `success`."""

    status: str
    reason: str
    content: Content


def simulate(
    shards: Mapping[int, Shard], shard_of: Callable[[bytes], int], tx: Transaction, *, checks_signatures: bool
) -> list[Outcome]:
    """Its outcome in its sender's shard, and in each other one that it would reach. Raises `admission.Refused`."""
    source = shards[shard_of(tx.sender)]
    admission.check(tx, source.network, source.state.ledger, signatures=checks_signatures)
    tx_hash = chain_hash(tx)
    with _tried(source) as (processor, content):
        if not processor.execute_new(tx_hash, tx):
            content.refuse(tx_hash, tx, NOT_EXECUTABLE)
    outcomes = [_outcome(content)]
    for (_, receiver, _), hashes in content.miniblocks.items():
        if receiver == source.id or receiver not in shards:
            continue
        with _tried(shards[receiver]) as (processor, arrived):
            for item_hash in hashes:
                item = content.entries[item_hash].item
                if isinstance(item, Result):
                    processor.execute_result(item_hash, item, source.id)
                else:
                    processor.execute_transaction(item_hash, item, source.id)
        outcomes.append(_outcome(arrived))
    return outcomes


@contextlib.contextmanager
def _tried(shard: Shard) -> Iterator[tuple[Processor, Content]]:
    """A processor of this shard whose every change is taken back at the end."""
    ledger, content = shard.state.ledger, Content()
    checkpoint = ledger.checkpoint()
    try:
        yield Processor(shard.network, shard.id, shard.state, content, logs_invalid=True), content
    finally:
        ledger.rollback(checkpoint)


def _outcome(content: Content) -> Outcome:
    reason = next((reason for _, status, reason in content.statuses if status != "success"), None)
    return Outcome("success" if reason is None else "fail", reason or "", content)
