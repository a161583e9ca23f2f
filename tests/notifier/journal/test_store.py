"""The stores of the journal: what is committed stays, what is damaged is noticed, what is old leaves.

Every test here runs against both, the files and the PostgreSQL server.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.notifier.journal import file_store, memories, postgres_store, rows
from millrace.notifier.journal.file_store import Store
from millrace.notifier.journal.memories import FILE_NAME
from millrace.notifier.journal.postgres_store import PostgresStore
from millrace.notifier.journal.rows import JournalReader, JournalStore, JournalUnusable
from millrace.notifier.rules.dedup import Block, State
from millrace.runtime.settings import Secret
from servers.postgres import Postgres

from ..helpers import unique_name
from ..journal_files import damage


class Place:
    """Where one journal is kept: opens it, closes it, and changes it behind its back."""

    def __init__(self, directory: Path, postgres: Postgres | None) -> None:
        self._directory = directory
        self._postgres = postgres
        self._schema = unique_name()
        self._opened: list[JournalStore | JournalReader] = []

    def open(self) -> JournalStore:
        store: JournalStore
        if self._postgres is None:
            store = Store(self._directory)
        else:
            store = PostgresStore(Secret(self._postgres.url), self._schema, writer=True)
        self._opened.append(store)
        return store

    def reader_of(self, store: JournalStore) -> JournalReader:
        reader: JournalReader
        if isinstance(store, Store):
            reader = store.reader()
        else:
            assert self._postgres is not None
            reader = PostgresStore(Secret(self._postgres.url), self._schema, writer=False)
        self._opened.append(reader)
        return reader

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()

    def sql(self, *statements: str) -> None:
        """Statements that both databases understand; `facts` and so on mean this journal's."""
        if self._postgres is not None:
            self._postgres.sql(f"SET search_path TO {self._schema}", *statements)
            return
        db = sqlite3.connect(self._directory / FILE_NAME, isolation_level=None)
        for statement in statements:
            db.execute(statement)
        db.close()

    def damage(self, sequence: int) -> None:
        """Change an event's payload, below the checksums' sight."""
        if self._postgres is None:
            damage(self._directory, sequence)
        else:
            self.sql(f"UPDATE events SET payload = cast('damage' AS BYTEA) WHERE sequence = {sequence}")

    def foreign(self) -> None:
        """As if something else had made the tables."""
        if self._postgres is None:
            self.sql("PRAGMA application_id = 1")
        else:
            self.sql(f"COMMENT ON SCHEMA {self._schema} IS 'a shop'")

    def of_format_9(self) -> None:
        if self._postgres is None:
            self.sql("PRAGMA user_version = 9")
        else:
            self.sql(f"COMMENT ON SCHEMA {self._schema} IS 'millrace notifier journal, format 9'")


@pytest.fixture(params=["files", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place for a journal, of either kind."""
    postgres = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    made = Place(tmp_path, postgres)
    yield made
    made.close()


def fill(store: JournalStore, count: int, size: int = 100, now: int = 5) -> None:
    store.begin()
    for number in range(count):
        store.append("SaveBlock", 1, 0, f"SaveBlock:1:{number:02x}:1", now, bytes([number % 256]) * size)
    store.commit()


@pytest.mark.parametrize(("bytes_bound", "count"), [(10**6, 7), (450, 5), (1, 1)])
def test_newest_are_bounded_in_events_and_in_bytes(
    place: Place, monkeypatch: pytest.MonkeyPatch, bytes_bound: int, count: int
) -> None:
    """A start reads the newest events, oldest first, and ends with the one that reaches the bound of bytes."""
    for module in (postgres_store, rows, file_store):
        monkeypatch.setattr(module, "NEWEST_EVENTS", 7, raising=False)
        monkeypatch.setattr(module, "NEWEST_BYTES", bytes_bound, raising=False)
    store = place.open()
    fill(store, 10)
    head = store.next_sequence
    place.close()
    assert [entry.sequence for entry in place.open().newest] == list(range(head - count, head))


def test_damage_at_the_end_refuses_to_start(place: Place) -> None:
    """A newest event that fails its checksum refuses the start and says what to do."""
    store = place.open()
    fill(store, 5)
    newest = store.next_sequence - 1
    place.close()
    place.damage(newest)
    with pytest.raises(JournalUnusable, match=f"event {newest} fails its checksum.*[Rr]estore it from a backup"):
        place.open()


def test_damage_further_back_is_reported(place: Place) -> None:
    """An old event that fails its checksum is left out of what is read, and named."""
    store = place.open()
    fill(store, 300)
    first = store.oldest
    place.close()
    place.damage(first + 3)
    entries, damaged = place.open().read(first - 1, 10**6, max_rows=10)
    assert damaged == [first + 3] and [e.sequence - first for e in entries] == [0, 1, 2, 4, 5, 6, 7, 8, 9]


UNUSABLE = {
    "something else": Place.foreign,
    "format 9": Place.of_format_9,
    "fact": lambda place: place.sql("DELETE FROM facts"),
    "damaged": lambda place: place.sql("DROP TABLE blocks"),
}


@pytest.mark.parametrize("words", UNUSABLE)
def test_unusable_journals(place: Place, words: str) -> None:
    """What is not a whole journal of this version refuses the start with the reason and a way out."""
    place.open()
    place.close()
    UNUSABLE[words](place)
    with pytest.raises(JournalUnusable, match=f"{words}.*(choose another|start again)"):
        place.open()


def test_rollback_forgets_everything(place: Place) -> None:
    """After a rollback, whole or to a mark, events, memories and sequences are as before."""
    store = place.open()
    fill(store, 1)
    before = store.next_sequence, store.payload_bytes
    store.begin()
    mark = store.mark()
    store.append("SaveBlock", 0, 0, "x", 1, b"x")
    store.add_content("t", 0, b"d")
    store.back_to(mark)
    assert (store.next_sequence, store.payload_bytes) == before
    assert store.add_content("t", 0, b"d")
    store.append("SaveBlock", 0, 0, "x", 1, b"x")
    store.rollback()
    assert (store.next_sequence, store.payload_bytes) == before
    store.begin()
    assert store.add_content("t", 0, b"d")
    store.commit()


def test_retention(place: Place) -> None:
    """Events leave by age and by size, oldest first; sequences never start again, even when all have left."""
    store = place.open()
    fill(store, 10, size=100, now=1)
    fill(store, 10, size=100, now=50)
    first = store.oldest
    store.begin()
    assert store.prune(before_ms=2, max_bytes=10**6, dedup_window=10**6) == 10
    assert store.prune(before_ms=2, max_bytes=350, dedup_window=10**6) == 7
    store.commit()
    entries, _ = store.read(0, 10**6)
    assert [e.sequence - first for e in entries] == [17, 18, 19]
    assert (store.oldest, store.payload_bytes) == (first + 17, 300)
    store.begin()
    store.prune(before_ms=100, max_bytes=10**6, dedup_window=10**6)
    store.commit()
    following = store.next_sequence
    place.close()
    again = place.open()
    assert (again.next_sequence, again.oldest, again.payload_bytes) == (following, following, 0)


def test_memories_leave_behind_the_window(place: Place) -> None:
    """What was seen is forgotten once so many events followed; a mark still waiting is not."""
    store = place.open()
    store.begin()
    for name, held in ((b"old", 0), (b"held", 7)):
        store.put_block(0, name, Block(1, State.SAVED, 4, b"", store.next_sequence, bool(held), held))
    store.add_content("t", 0, b"old")
    store.commit()
    fill(store, 30)
    store.begin()
    store.put_block(0, b"new", Block(1, State.SAVED, 5, b"", store.next_sequence))
    store.prune(0, 10**9, dedup_window=20)
    store.commit()
    assert store.block(0, b"old") is None
    assert store.block(0, b"held") is not None and store.block(0, b"new") is not None
    assert store.add_content("t", 0, b"old")


NONCES = st.one_of(st.integers(0, 4), st.integers(0, 2**64 - 1))


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nonce=NONCES)
def test_nonces_are_unsigned(place: Place, nonce: int) -> None:
    """Any 64-bit nonce comes back as it was stored."""
    store = place.open()
    store.begin()
    block = Block(1, State.FINAL, nonce, b"digest", store.next_sequence, True, 9)
    store.put_block(1, b"hash", block)
    store.set_newest_nonce(1, nonce)
    store.commit()
    place.close()
    again = place.open()
    assert (again.block(1, b"hash"), again.newest_nonce(1)) == (block, nonce)
    assert again.live_at(1, nonce) == [b"hash"]
    place.close()


ORIGIN = 1_700_000_000_000  # the first sequence, when that is the time in ms
SHARDS, HASHES = st.integers(0, 1), st.sampled_from([b"a", b"b", b"c"])
BLOCKS = st.builds(
    Block, st.integers(0, 3), st.sampled_from(State), st.none() | st.integers(0, 2), HASHES,
    st.integers(ORIGIN, ORIGIN + 20), st.booleans(), st.integers(0, 3),
)  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.just("put_block"), SHARDS, HASHES, BLOCKS),
    st.tuples(st.just("block"), SHARDS, HASHES),
    st.tuples(st.just("live_at"), SHARDS, st.integers(0, 2)),
    st.tuples(st.just("waiting"), st.integers(0, 4)),
    st.tuples(st.just("add_content"), st.just("t"), SHARDS, HASHES),
    st.tuples(st.just("swap_latest"), st.just("t"), SHARDS, HASHES),
    st.tuples(st.just("newest_nonce"), SHARDS),
    st.tuples(st.just("set_newest_nonce"), SHARDS, NONCES),
    st.tuples(st.just("append"), st.just("t"), SHARDS, st.just(0), HASHES.map(repr), st.integers(1, 9), HASHES),
    st.tuples(st.just("prune"), st.integers(0, 10), st.integers(0, 9), st.integers(1, 6)),
    st.tuples(st.sampled_from(["mark", "back_to", "commit", "rollback", "reopen"])),
)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=40), recent=st.sampled_from([1, 3, 4096]), era=st.sampled_from([1, 3, 16]))
def test_both_stores_agree(
    postgres: Postgres, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple], recent: int, era: int
) -> None:
    """Whatever is done, in whatever transactions, server and files remember the same, in the log or in tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_store, "_MAX_RECENT", recent)
        patch.setattr(memories, "ERA_BITS", era)
        patch.setattr("time.time_ns", lambda: ORIGIN * 1_000_000)  # both begin at one sequence
        places = [Place(tmp_path_factory.mktemp("journal"), None), Place(Path(), postgres)]
        try:
            seen = [replay(place, steps) for place in places]
        finally:
            for place in places:
                place.close()
    assert seen[0] == seen[1]


def replay(place: Place, steps: list[tuple]) -> list[object]:
    """Do the steps; returns all that can be seen of the store on the way and at the end."""
    store = place.open()
    store.begin()
    seen: list[object] = []
    mark: tuple[int, ...] | None = None
    for name, *arguments in steps:
        if name in ("mark", "back_to"):
            if mark is not None and name == "back_to":
                store.back_to(mark)
            mark = store.mark() if name == "mark" else None
        elif name in ("commit", "rollback", "reopen"):
            mark = None
            (store.rollback if name == "rollback" else store.commit)()
            if name == "reopen":
                place.close()
                store = place.open()
            store.begin()
        else:
            if name == "prune":  # has a transaction of its own
                mark = None
                store.commit()
                store.begin()
            result = getattr(store, name)(*arguments)
            if name == "append":
                result = result.sequence
            elif name in ("waiting", "live_at"):
                result = sorted(result, key=repr)
            elif name == "prune":
                store.commit()
                store.begin()
            seen.append((name, result))
        seen.append((store.next_sequence, store.oldest, store.payload_bytes))
    store.commit()
    entries, corrupt = store.read(0, 10**9)
    return [*seen, [(entry.sequence, entry.payload) for entry in entries], corrupt, store.shards()]


def test_a_reader_knows_blocks_as_committed(place: Place) -> None:
    """Asked for many at once it answers with those that are remembered, as they are now."""
    store = place.open()
    reader = place.reader_of(store)
    keys = [(shard, bytes((number,)) * 32) for shard in (0, 0xFFFFFFFF) for number in range(3)]
    blocks = {key: Block(1, State.SAVED, number, b"digest", 100 + number) for number, key in enumerate(keys)}
    for key, block in blocks.items():
        store.begin()
        store.put_block(*key, block)
        store.commit()
    assert reader.blocks([*keys, (1, b"\0" * 32), (0, b"")]) == blocks
    store.begin()
    store.put_block(*keys[0], Block(2, State.FINAL, 9, b"digest", 100))
    assert reader.blocks(keys[:1]) == {keys[0]: blocks[keys[0]]}
    store.commit()
    assert reader.blocks(keys[:1]) == {keys[0]: Block(2, State.FINAL, 9, b"digest", 100)}
    assert reader.blocks([]) == {}


def test_runs(place: Place) -> None:
    """Each start has a name, and the journal knows where it began: an earlier one's sequences count to there."""
    names, heads = [], []
    for number in range(3):
        store = place.open()
        names.append(store.runs.present.name)
        assert store.runs.present.after == store.next_sequence - 1
        store.begin()
        for _ in range(number + 1):
            store.append("SaveBlock", 0, 0, "SaveBlock:0:aa:1", 5, b"payload")
        store.commit()
        heads.append(store.next_sequence - 1)
        place.close()
    runs = place.open().runs
    assert len(set(names)) == 3
    for name, head in zip(names, heads, strict=True):
        assert (runs.shared(name, head - 1), runs.shared(name, head + 9)) == (head - 1, head)
    assert runs.shared("0" * 16, 5) is None
