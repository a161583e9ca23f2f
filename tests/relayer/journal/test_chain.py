"""The chain: whatever statement changes a row, the last link says so; whatever else changes one is told."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from relayer_damage import row

from millrace.relayer.journal import audit, chain, claims, memory, outcomes, submissions
from millrace.relayer.journal.chain import Chain, Chained, ChainError, Link

WRITER = "ab" * 16
SCHEMA = (
    f"{audit.SCHEMA}{submissions.SCHEMA}{outcomes.SCHEMA}{chain.SCHEMA}{claims.SCHEMA}"
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
)


def outcome(nonce: int) -> outcomes.Outcome:
    """How a row ended."""
    item = row(nonce)
    return outcomes.Outcome(item.client_hash, 5, item.relayer or b"", item.sender, nonce, None, 7, True)


class Book:
    """A journal's tables and their chain, in memory."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, factory=Chained)
        assert isinstance(self.connection, Chained)
        self.connection.executescript(SCHEMA)
        self.chain = Chain(self.connection, memory.KINDS, WRITER, chain.begin(self.connection, memory.KINDS, WRITER))

    def commit(self, *steps: str) -> Link:
        """One commit of these `STEPS` or statements."""
        self.connection.execute("BEGIN")
        self.chain.begin()
        for step in steps:
            STEPS.get(step, lambda connection, sql=step: connection.execute(sql))(self.connection)  # type: ignore[misc]
        is_sealed = self.chain.seal()
        self.connection.execute("COMMIT")
        return self.chain.committed() if is_sealed else self.chain.link

    def check(self) -> None:
        link = chain.last(self.connection, WRITER)
        assert link == self.chain.link
        chain.check(self.connection, memory.KINDS, WRITER, link, lambda _: None)


STEPS = {
    "insert": lambda c: submissions.insert(c, [row(nonce) for nonce in range(3)]),
    "insert others": lambda c: submissions.insert(c, [row(nonce, b"other") for nonce in range(2, 5)]),
    "not ours": lambda c: submissions.insert(c, [row(7, relayer=None, cost=3, broadcast=False)]),
    "sign": lambda c: submissions.take_signatures(c, [(row(n).sender, n, b"%064d" % n) for n in range(4)]),
    "sign one": lambda c: submissions.take_signatures(c, [(row(1).sender, 1, b"%064d" % 1)]),
    "audit": lambda c: audit.write(c, [(1, "reserve", b"r", b"s", nonce, b"c", 10**20) for nonce in range(40)]),
    "outcome": lambda c: outcomes.write(c, [outcome(nonce) for nonce in (2, 2, 4, 9)]),
    "forget outcomes": lambda c: outcomes.prune(c, 10),
    "cursor": lambda c: c.execute("INSERT OR REPLACE INTO meta VALUES ('cursor', (SELECT count(*) FROM audit))"),
    "end": lambda c: submissions.end(
        c, [(row(n).sender, n, row(n).client_hash, "finished", "7", 9) for n in range(1, 40, 2)]
    ),
    "over": lambda c: c.execute(
        "UPDATE submissions SET state = 'superseded', cost = '0', ended_ms = 9 WHERE nonce < 2"
    ),
    "all over": lambda c: c.execute("UPDATE submissions SET state = 'dropped', ended_ms = 9"),
    "broadcast": lambda c: c.execute("UPDATE submissions SET broadcast = 1, state = 'signed', created_ms = 8"),
    "prune": lambda c: c.execute("DELETE FROM submissions WHERE ended_ms = 9"),
    "text": lambda c: c.execute(
        "UPDATE submissions SET ip = 'a''b' || char(10) || '\"' || char(0) || 'é' WHERE nonce = 1"
    ),
}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4), max_size=8))
def test_the_last_link_says_what_is_there(commits: list[list[str]]) -> None:
    """After commits of any statements, also those that replace rows, the total is that of the rows."""
    book = Book()
    for steps in commits:
        book.commit(*steps)
    book.check()
    book.connection.close()


@pytest.fixture
def book() -> Iterator[Book]:
    made = Book()
    made.commit("insert", "sign", "not ours", "outcome", "cursor")
    made.commit("audit", "over")
    yield made
    made.connection.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE submissions SET state = 'dropped' WHERE nonce = 2",
        "UPDATE submissions SET nonce = 8 WHERE nonce = 2",
        "UPDATE submissions SET fee = '11' WHERE nonce = 2",
        "UPDATE submissions SET relayer = NULL WHERE nonce = 2",
        "UPDATE submissions SET cost = '6' WHERE nonce = 2",
        "UPDATE submissions SET broadcast = 0 WHERE nonce = 2",
        "UPDATE submissions SET ended_ms = 1 WHERE nonce = 2",
        "UPDATE submissions SET ip = 'elsewhere' WHERE nonce = 2",
        "UPDATE submissions SET tx = substr(tx, 1, length(tx) - 64) || zeroblob(64) WHERE nonce = 7",
        "DELETE FROM submissions WHERE nonce = 2",
        "CREATE TEMP TABLE more AS SELECT * FROM submissions WHERE nonce = 2; UPDATE more SET id = 99, nonce = 9; "
        "INSERT INTO submissions SELECT * FROM more",
        "DELETE FROM signatures WHERE id = 1",
        "UPDATE signatures SET signature = zeroblob(64) WHERE id = 1",
        "UPDATE signatures SET id = 99 WHERE id = 1",
        "DROP TRIGGER audit_is_append_only_1; UPDATE audit SET amount = '1' WHERE id = 3",
        "DROP TRIGGER audit_is_append_only_2; DELETE FROM audit WHERE id = 3",
        "DELETE FROM results",
        "UPDATE results SET failed = 0",
        "UPDATE results SET id = 1",
        "UPDATE meta SET value = '99'",
        "DROP TRIGGER signatures_go_with_submissions",
        "UPDATE chain SET sequence = sequence + 1",
        "UPDATE chain SET total = zeroblob(32)",
        "UPDATE chain SET before = zeroblob(32)",
    ],
)
def test_row_53_what_nobody_committed_is_told(book: Book, change: str, tmp_path: Path) -> None:
    """A change that another connection makes to a row, a trigger or the chain itself does not fit the last link."""
    book.check()
    with sqlite3.connect(tmp_path / "copy") as copy:
        book.connection.backup(copy)
        copy.executescript(change)
        link = chain.last(copy, WRITER)
        assert link is not None
        with pytest.raises(ChainError):
            chain.check(copy, memory.KINDS, WRITER, link, lambda _: None)
    copy.close()


def test_a_link_for_each_commit_that_changed_something(book: Book) -> None:
    """Links follow each other by number and head; where nothing changed there is none."""
    first = book.chain.link
    second = book.commit("cursor")
    assert second.sequence == first.sequence + 1 and second.before == first.head
    assert book.commit("SELECT 1") == second
    assert book.commit("sign one") == second, "it is there already"


def test_what_is_rolled_back_is_in_no_link(book: Book) -> None:
    """A commit that failed leaves nothing for the next one to say."""
    book.connection.execute("BEGIN")
    book.chain.begin()
    STEPS["insert others"](book.connection)
    STEPS["prune"](book.connection)
    book.chain.seal()
    book.connection.execute("ROLLBACK")
    book.commit("cursor", "audit")
    book.check()


def test_another_writers_chain(book: Book) -> None:
    """A journal of another folder is not taken for one of ours, nor for one without a chain."""
    with pytest.raises(ChainError, match="belongs to the data directory ab"):
        chain.last(book.connection, "cd" * 16)
    book.connection.execute("DELETE FROM chain")
    with pytest.raises(ChainError, match="gone"):
        chain.last(book.connection, WRITER)
    book.connection.execute("DROP TABLE chain")
    assert chain.last(book.connection, WRITER) is None


def test_a_long_check_says_how_far_it_is(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for many rows to be read hears how many were."""
    monkeypatch.setattr(chain, "PROGRESS_SECONDS", 0.0)
    told: list[int] = []
    link = chain.last(book.connection, WRITER)
    assert link is not None
    chain.check(book.connection, memory.KINDS, WRITER, link, told.append)
    assert told == sorted(told) and told[-1] == 4 + 4 + 3 + 40 + 1 + 1
