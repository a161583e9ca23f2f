"""The journal on a PostgreSQL server: who owns it, what a lost connection leaves behind, what is never shown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from millrace.notifier.app import Notifier
from millrace.notifier.journal.postgres_store import PostgresStore
from millrace.notifier.journal.rows import JournalUnusable
from millrace.notifier.rules.entry import Entry
from millrace.notifier.settings import NotifierSettings
from millrace.runtime import postgres as runtime_postgres
from millrace.runtime.postgres import Unavailable
from millrace.runtime.settings import Secret
from servers.postgres import Postgres

from ..helpers import WAIT, event, notifier, peers, save_block, unique_name
from ..test_torture import Torture, check, torment
from .test_store import fill

OpenStore = Callable[..., PostgresStore]


@pytest.fixture
def open_store(postgres: Postgres) -> Iterator[OpenStore]:
    """Opens journals, by default one after the other in the same schema, and closes them at the end."""
    own = unique_name()
    with ExitStack() as stack:

        def opened(schema: str = own, *, writer: bool = True) -> PostgresStore:
            store = PostgresStore(Secret(postgres.url), schema, writer=writer)
            stack.callback(store.close)
            return store

        yield opened


@pytest.fixture
def own_server() -> Iterator[Postgres]:
    """A server that a test may kill."""
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.close()


def cut_after(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the connection right after the next commit came through, before its answer is seen."""
    run = store._db.run

    def lost(work: object) -> object:
        monkeypatch.setattr(store._db, "run", run)
        run(work)  # type: ignore[arg-type]
        store._db._drop()
        raise Unavailable("connection was closed in the middle of operation")

    monkeypatch.setattr(store._db, "run", lost)


def test_one_writer(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second writer of the same schema is refused with the reason; readers and other schemas are not."""
    monkeypatch.setattr(runtime_postgres, "_LOCK_SECONDS", 0.0)
    first = open_store()
    with pytest.raises(JournalUnusable, match="in use by another notifier: stop it"):
        open_store()
    open_store(writer=False)
    open_store(unique_name())
    first.close()
    open_store()


def test_lost_answer(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose answer was lost is found to be on disk, and counts once."""
    store = open_store()
    fill(store, 1)
    cut_after(store, monkeypatch)
    with pytest.raises(Unavailable):
        fill(store, 2)
    store.rollback()
    assert store.landed() and not store.landed()
    fill(store, 1)
    entries, _ = store.read(0, 10**6)
    assert [entry.sequence - store.origin for entry in entries] == [1, 2, 3, 4]


def test_lost_transaction(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that never reached the server is taken back, sequences included."""
    store = open_store()
    fill(store, 1)
    with monkeypatch.context() as patch:
        patch.setattr(store._db, "run", lambda work: (_ for _ in ()).throw(Unavailable("gone")))
        with pytest.raises(Unavailable):
            fill(store, 2)
    assert not store.landed()
    assert store.add_content("t", 0, b"new") and store.next_sequence == store.origin + 2
    fill(store, 1)
    assert len(store.read(0, 10**6)[0]) == 2


def test_written_by_another_meanwhile(postgres: Postgres, open_store: OpenStore) -> None:
    """A writer whose journal grew while its connection was lost never writes to it again."""
    schema = unique_name()
    store = open_store(schema)
    fill(store, 1)
    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    postgres.sql(f"UPDATE {schema}.facts SET value = value + 1 WHERE name = 'commits'")
    with pytest.raises(Unavailable):
        store.block(0, b"x")
    with pytest.raises(JournalUnusable, match="another notifier wrote"):
        store.block(0, b"x")


def test_server_that_forgets_is_refused(own_server: Postgres) -> None:
    """A server without fsync would lose what was acknowledged: no start."""
    own_server.sql("ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
    with pytest.raises(JournalUnusable, match="fsync = off"):
        PostgresStore(Secret(own_server.url), "notifier", writer=True)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda url: url.replace("millrace:", "millrace:wrong-"), "password authentication failed"),
        (lambda url: url.replace("/postgres", "/nowhere"), 'database "nowhere" does not exist'),
        (lambda url: url.replace("postgresql://", "mysql://"), "write the URL as postgresql://"),
        (lambda url: url.replace(url.split(":")[-1].split("/")[0], "1"), "Start the server, or correct journal_url"),
    ],
)
async def test_words_for_operators(
    postgres: Postgres, tmp_path: Path, damage: Callable[[str], str], words: str
) -> None:
    """A server that cannot be used refuses the start with the reason; no text shows the password."""
    settings = NotifierSettings(
        port=0, http_port=0, metrics_port=0, data_dir=tmp_path, journal_url=Secret(damage(postgres.url))
    )
    running = Notifier(settings)
    with pytest.raises(JournalUnusable, match=words) as refusal:
        await running.journal.start()
    cause: BaseException | None = refusal.value
    shown = repr(settings)
    while cause is not None:
        shown += f"{cause!r} {cause}"
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    assert postgres.password not in shown
    running.journal._readers.shutdown()


async def test_server_restarts(own_server: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While the server is down no node is answered; over five kills of it nothing is lost, doubled or reordered."""
    rng = random.Random(1)
    settings = {"journal_url": Secret(own_server.url), "tail_bytes": 20_000, "window_frames": 20}
    async with notifier(tmp_path, **settings) as running, peers(running) as connect:
        nodes = [await connect.node() for _ in range(2)]
        live, late = await connect.consumer(), await connect.consumer()
        await live.subscribe(resume_after=0)
        acknowledged = 0

        async def tell(node) -> None:
            nonlocal acknowledged
            for nonce in range(150):
                await asyncio.wait_for(node.save(save_block(0, nonce, events=[event(b"\1" * 32, "e")])), 6 * WAIT)
                acknowledged += 1

        async def kill() -> None:
            for number in range(5):
                while acknowledged < 40 * number + rng.randrange(30):
                    await asyncio.sleep(0.001)
                own_server.kill()
                await own_server.restart()

        await asyncio.gather(kill(), *map(tell, nodes))
        received = await live.events(150)
        await late.subscribe(resume_after=0)
        assert [m.payload for m in await late.events(150)] == [m.payload for m in received]
        sequences = [message.counter for message in received]
        assert sequences == list(range(sequences[0], sequences[0] + 150))
        assert running.journal.head == sequences[-1] and not running.journal.failing
    assert "the disk refuses" in caplog.text and own_server.password not in caplog.text


class PostgresTorture(Torture):
    """Whose journal is on a server that is killed too."""

    def __init__(self, directory: Path, server: Postgres) -> None:
        super().__init__(directory, journal_url=Secret(server.url))
        self.server = server

    async def disturb(self) -> None:
        if self.kills % 4 == 3:
            self.server.kill()
            await self.server.restart()


async def test_torture(own_server: Postgres, tmp_path: Path) -> None:
    """Whoever is killed, notifier or server: nothing acknowledged is lost, doubled or out of order."""
    tales, kept = await torment(PostgresTorture(tmp_path, own_server))
    entries, corrupt = await asyncio.to_thread(everything, own_server)
    assert not corrupt
    check([(e.sequence, e.topic, e.shard, e.message_id, e.payload) for e in entries], tales, kept)


def everything(server: Postgres) -> tuple[list[Entry], list[int]]:
    """All events of the journal, and those found corrupt; not for a thread with an event loop."""
    store = PostgresStore(Secret(server.url), "notifier", writer=False)
    try:
        return store.read(0, 1 << 40, max_rows=1 << 40)
    finally:
        store.close()
