"""What was promised and is not over yet, for another relayer to go on with: signed transactions still to be sent.

Of claims only hashes are carried (`claims`); these are the transactions themselves, in the form in which any version
takes them: each line of the file is a body of `POST /v1/broadcast`. They have all their signatures, so whoever sends
them spends nothing that was not promised already.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from millrace.chain.transaction import TransactionJson, to_json
from millrace.relayer.journal.advice import told
from millrace.relayer.journal.journal import Journal, transaction_of
from millrace.relayer.journal.submissions import Record
from millrace.runtime import files

PER_LINE = 50
"""Transactions of one body; a relayer takes 100 by default."""


class CarryError(Exception):
    """Nothing was written; the text says why and what to do."""


class _Body(msgspec.Struct, frozen=True):
    transactions: list[TransactionJson]


def export(journal: Journal, file: Path, named: Collection[int]) -> int:
    """Write what is still to be sent to a new file; how many transactions that is. Raises `CarryError`, `JournalError`.

    A pause of a shard stays behind with the folder: it has to be `named` in the policy, which any version reads.

    What was only signed is its client's to send, and what was given up stays so. What is accepted and has no signature
    yet cannot be carried: the relayer that took it has to sign it.
    """
    if unnamed := sorted(journal.paused_shards().difference(named)):
        wanted = sorted({*unnamed, *named})
        raise CarryError(
            f"an operator paused shards {unnamed} here, and the relayer that goes on would not know: write "
            f"paused_shards = {wanted} into the policy that it will have, or end the pause in this one; then try again"
        )
    promised = [record for record in journal.open_records() if record.broadcast and record.state != "expired"]
    unsigned = sum(record.chain_hash is None for record in promised)
    if unsigned:
        raise CarryError(
            f"{unsigned} accepted transactions are not signed yet: start this relayer with its keys, stop it, try again"
        )
    promised.sort(key=lambda record: (record.sender, record.nonce))  # a relayer takes a sender's in this order only
    try:
        with files.replacing(file) as output:
            for start in range(0, len(promised), PER_LINE):
                output.write(_body(promised[start : start + PER_LINE]))
    except OSError as error:
        raise CarryError(told(error, file)) from None
    return len(promised)


def _body(records: Sequence[Record]) -> bytes:
    return msgspec.json.encode(_Body([to_json(transaction_of(record)) for record in records])) + b"\n"
