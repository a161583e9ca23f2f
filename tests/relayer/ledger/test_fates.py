"""What is told of transactions accepted here, from acceptance to the end, in whichever order the shards are heard."""

from __future__ import annotations

from typing import Any

import pytest
from relayer_support import transfer, wallet

from millrace.chain.transaction import early_hashes, to_proto
from millrace.relayer.blocks.facts import BlockFacts
from millrace.relayer.ledger import fates as module
from millrace.relayer.ledger.fates import FateBook
from millrace.relayer.ledger.inflight import Entry, InFlight
from millrace.relayer.protocol import reasons

ALICE = wallet(1)
BLOCK = BlockFacts(1, b"b" * 32, b"", 7, 600)


class Books:
    """A table of what is in flight, and the book beside it."""

    def __init__(self) -> None:
        self.inflight = InFlight()
        self.book = FateBook(self.inflight, lambda: 5)

    def sent(self, nonce: int = 0) -> Entry:
        tx = transfer(ALICE, nonce)
        client, sdk = early_hashes(tx)
        entry = Entry(tx, to_proto(tx), client, "relay", 1, 2, 100, 0, sdk_hash=sdk)
        self.inflight.add(entry)
        self.inflight.signed(entry, b"s" * 64)
        return entry

    def over(self, entry: Entry, how: str = "finished", fee: int | None = 50) -> None:
        self.inflight.remove(entry)
        self.book.over(entry, how, fee, BLOCK)

    async def state(self, entry: Entry) -> str | None:
        found = await self.book.find(entry.chain_hash)
        return None if found is None else found[0].state


async def test_included_first(books: Books) -> None:
    """In flight, included, ended: each is told from the moment it is known, the wait ends with the last."""
    entry = books.sent()
    assert await books.state(entry) == "pending"
    future = books.book.wait(entry, "a")
    assert future is not None
    books.over(entry)
    assert await books.state(entry) == "included" and not future.done() and books.book.followed == 1
    books.book.ended(entry.chain_hash, "success", "")
    fate = await future
    assert (fate.state, fate.fee, fate.place and fate.place.nonce) == ("success", "50", 7)
    assert books.book.followed == 0
    books.book.ended(entry.chain_hash, "fail", "again")
    assert future.result() is fate, "it ends once"


async def test_ended_first(books: Books) -> None:
    """The receiver's shard may be heard of before the sender's: the end is known, and stays when it is included."""
    entry = books.sent()
    future = books.book.wait(entry, "a")
    books.book.ended(entry.chain_hash, "fail", "why")
    assert await books.state(entry) == "fail" and future is not None and future.result().reason == "why"
    books.over(entry)
    assert books.book.followed == 0


async def test_not_executable_is_no_end(books: Books) -> None:
    """It is told as a failure while it is in flight, and forgotten when a block has executed it after all."""
    entry = books.sent()
    books.book.ended(entry.chain_hash, "fail", "not executable in block", is_final=False)
    assert await books.state(entry) == "fail"
    books.over(entry)
    assert await books.state(entry) == "included"


async def test_what_was_given_up_may_be_not_executable_and_then_run(books: Books) -> None:
    """What was dropped is followed until it has really ended: a block that could not execute it is no end."""
    entry = books.sent()
    books.over(entry, "dropped", None)
    books.book.ended(entry.chain_hash, "fail", "not executable in block", is_final=False)
    assert books.book.followed == 1 and await books.state(entry) == "dropped"
    books.book.ended(entry.chain_hash, "success", "")
    assert books.book.followed == 0


@pytest.mark.parametrize("how", ["superseded", "dropped", "written off"])
async def test_what_the_chain_says_nothing_of(books: Books, how: str) -> None:
    """What is given up ends the wait, too; what was never accepted is not spoken of at all."""
    entry, refused = books.sent(), books.sent(1)
    future, other = books.book.wait(entry, "a"), books.book.wait(refused, "a")
    assert future is not None and other is not None
    refused.refusal = reasons.SIGNER_REFUSED
    for item in (entry, refused):
        books.over(item, how, None)
    assert future.result().state == how and not other.done()
    books.book.ended(entry.chain_hash, "success", "")
    assert await books.state(entry) is None, "of a book without a file: it has ended"


@pytest.mark.parametrize(
    ("refusal", "state"), [(reasons.NONCE_TOO_LOW, "superseded"), (reasons.SIGNER_REFUSED, "dropped")]
)
async def test_what_was_accepted_and_ends_unsigned(books: Books, refusal: reasons.Reason, state: str) -> None:
    """Its wait ends and it is kept, with the reason; nobody waits for the chain to say more of it."""
    entry, kept = books.sent(), []
    entry.chain_hash, entry.broadcast, entry.refusal = b"", True, refusal
    books.book.store = type("Store", (), {"put": staticmethod(kept.append)})()  # type: ignore[assignment]
    future = books.book.wait(entry, "a")
    books.book.over(entry, "superseded", None, None)
    assert future is not None and kept == [await future]
    assert (kept[0].state, kept[0].reason, kept[0].may_end) == (state, refusal.reason, False)
    books.book.restore(kept)
    assert books.book.followed == 0


async def test_what_was_given_up_may_still_end(books: Books) -> None:
    """When a block has it after all, that is what it came to."""
    entry, kept = books.sent(), []
    books.over(entry, "written off", None)
    assert await books.state(entry) == "written off"
    books.book.store = type("Store", (), {"put": staticmethod(kept.append)})()  # type: ignore[assignment]
    books.book.ended(entry.chain_hash, "fail", "why")
    assert [(fate.state, fate.reason) for fate in kept] == [("fail", "why")]


async def test_waits_are_bounded_and_given_back(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound nobody waits; each wait that is given back makes room for another."""
    monkeypatch.setattr(module, "MAX_WAITERS", 2)
    monkeypatch.setattr(module, "CLIENT_PART", 1)
    one, other = books.sent(0), books.sent(1)
    one.state = "over"  # another relayer has it
    first, second = books.book.wait(one, "a"), books.book.wait(one, "a")
    assert first is not None and second is not None and books.book.wait(other, "a") is None
    books.book.forget(one.client_hash, "a", first)
    third = books.book.wait(other, "a")
    assert third is not None and books.book.waiters == 2
    books.book.forget(one.client_hash, "a", second)
    books.book.forget(other.client_hash, "a", third)
    kept = vars(books.book)
    assert books.book.waiters == 0 and not kept["_waiting"] and not kept["_elsewhere"]


async def test_what_another_relayer_has_ends_for_who_waits(books: Books) -> None:
    """Its end is told by the name that its client knows, and nothing is kept of it."""
    entry = books.sent()
    books.inflight.remove(entry)
    chain_hash, entry.chain_hash, entry.state = entry.chain_hash, b"", "over"
    future = books.book.wait(entry, "a")
    assert future is not None
    books.book.ended(b"another", "success", "", client_hash=b"another")
    assert not future.done()
    books.book.ended(chain_hash, "fail", "why", client_hash=entry.client_hash)
    fate = await future
    assert (fate.state, fate.reason, fate.chain_hash, fate.nonce) == ("fail", "why", chain_hash, 0)
    assert books.book.followed == 0 and await books.book.find(chain_hash) is None


async def test_waits_of_one_client_are_bounded(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """One client address gets no more than its part, whatever is free for others."""
    monkeypatch.setattr(module, "MAX_WAITERS", 20)
    entry = books.sent()
    futures = [books.book.wait(entry, "greedy") for _ in range(3)]
    assert [future is None for future in futures] == [False, False, True]
    assert books.book.wait(entry, "other") is not None
    assert futures[0] is not None
    books.book.forget(entry.client_hash, "greedy", futures[0])
    assert books.book.wait(entry, "greedy") is not None


async def test_what_is_followed_is_bounded(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than the bound the oldest is followed no more."""
    monkeypatch.setattr(module, "MAX_OPEN", 2)
    entries = [books.sent(nonce) for nonce in range(3)]
    for entry in entries:
        books.over(entry)
    assert [await books.state(entry) for entry in entries] == [None, "included", "included"]


@pytest.fixture
def books() -> Any:
    return Books()
