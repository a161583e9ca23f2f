"""What was claimed and did not get into the journal is let go, and nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from relayer_support import transfer, wallet, with_identity

from millrace.chain.transaction import client_hash, to_proto
from millrace.relayer.journal.claim_errors import TakenElsewhere
from millrace.relayer.journal.claim_rows import Claimed
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.programmes import Charge
from millrace.relayer.journal.submissions import Record
from millrace.relayer.journal.writer import JournalError

ALICE = wallet(1)


class Claims:
    """Stands for `Sharing`: what it is told, and answers as a test wants them."""

    def __init__(self) -> None:
        self.answers: list[Exception] = []
        self.ours: set[tuple[bytes, int]] = set()
        self.let_go_of: list[int] = []
        self.kept_ones: list[int] = []

    async def take(self, records: Sequence[Record], _: Sequence[Charge] = ()) -> None:
        error = self.answers.pop(0) if self.answers else None
        if error is None or isinstance(error, TakenElsewhere):
            self.ours |= {(item.sender, item.nonce) for item in records}
        if error is not None:
            raise error

    def has(self, sender: bytes, nonce: int) -> bool:
        return (sender, nonce) in self.ours

    def kept(self, names: Collection[tuple[bytes, int]]) -> None:
        self.kept_ones += [nonce for _, nonce in names]

    async def let_go(self, claims: Sequence[tuple[bytes, int, bytes]]) -> None:
        self.let_go_of += [nonce for _, nonce, _ in claims]


def row(nonce: int) -> Record:
    tx = transfer(ALICE, nonce)
    return Record(
        tx.sender, nonce, client_hash(tx), None, to_proto(tx),
        "relay", tx.relayer, 10, None, "ip", 1000 + nonce, "journalled", True,
    )  # fmt: skip


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Any]:
    made = Journal(with_identity(tmp_path / "data") / "journal.sqlite")
    made.open()
    made.sharing = Claims()  # type: ignore[assignment]
    yield made
    await made.close()


async def test_what_the_journal_has_open_stays_claimed(journal: Any) -> None:
    """A row of the same bytes may be signed: its claim is not given to others with those beside it."""
    await journal.append([row(1)])
    with pytest.raises(JournalError):
        await journal.append([row(1), row(2)])
    assert journal.sharing.let_go_of == [2] and journal.sharing.kept_ones == [1]


async def test_what_an_earlier_try_claimed_is_let_go(journal: Any) -> None:
    """Of several one is another's, and before the others are written each alone the server is gone."""
    taken = TakenElsewhere(Claimed(b"other", 1, "relay", "journalled", None, None))
    journal.sharing.answers = [taken, JournalError("the server is gone"), JournalError("the server is gone")]
    with pytest.raises(TakenElsewhere):
        await journal.append([row(1), row(2)])
    assert journal.sharing.let_go_of == []
    with pytest.raises(JournalError):
        await journal.append([row(2)])
    with pytest.raises(JournalError):
        await journal.append([row(3)])
    assert journal.sharing.let_go_of == [2], "and of what never was claimed nothing is told"
