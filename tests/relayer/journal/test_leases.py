"""A key has one holder at a time, of the newest copy of one folder: the same rules whoever keeps the leases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from millrace.relayer.journal.leases import FileLeases, Held, LeaseError, LeaseHeld, LeaseStore, default_folder
from millrace.relayer.journal.postgres_leases import PostgresLeases
from millrace.runtime.postgres import _LOCK_SPACE, Unavailable, Unfit
from millrace.runtime.postgres import Postgres as Database
from millrace.runtime.settings import Secret
from servers.postgres import Postgres

K1, K2 = b"\1" * 32, b"\2" * 32
A, B = "a" * 32, "b" * 32
SECONDS = 60.0
"""Of a lease on the server: no test lasts so long."""
OpenStore = Callable[..., LeaseStore]


@pytest.fixture(params=["files", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Opens stores of the same leases, as processes of their own would."""
    with ExitStack() as stack:

        def opened(seconds: float = SECONDS) -> LeaseStore:
            store: LeaseStore
            if request.param == "files":
                store = FileLeases(tmp_path / "leases")
            else:
                url = request.getfixturevalue("postgres").url
                store = PostgresLeases(Secret(url), tmp_path.name, seconds)
            stack.callback(store.close)
            return store

        yield opened


def held(id_: str = A, epoch: int = 1, position: int = 0) -> Held:
    return Held(id_, epoch, position, f"host:/folder-{id_[0]} (process 1)")


def test_one_holder_at_a_time(open_store: OpenStore) -> None:
    """While one holds a key nobody else gets it, whatever they say they are, and are told who has it."""
    first, second = open_store(), open_store()
    first.take([K1, K2], held())
    for other in (held(), held(epoch=9), held(B)):
        for force in (False, True):
            with pytest.raises(LeaseHeld, match="in use by host:/folder-a"):
                second.take([K2], other, force=force)
    first.give_back([K1, K2], held())
    second.take([K2], held())
    second.take([K1], held())
    with pytest.raises(LeaseHeld):
        first.take([K1], held())


def test_all_keys_or_none(open_store: OpenStore) -> None:
    """Where one of several keys is held by another none is taken."""
    first, second, third = open_store(), open_store(), open_store()
    first.take([K2], held())
    with pytest.raises(LeaseHeld):
        second.take([K1, K2], held())
    third.take([K1], held())


def test_another_folder_is_refused_for_ever(open_store: OpenStore) -> None:
    """A key that one folder used is not another's, whatever its epoch, but by force."""
    first, second = open_store(), open_store()
    first.take([K1], held(A))
    first.give_back([K1], held(A))
    for epoch in (1, 2, 7):
        with pytest.raises(LeaseError, match=r"another folder, host:/folder-a.*millrace relayer recover"):
            second.take([K1], held(B, epoch=epoch))
    second.take([K1], held(B, 2), force=True)
    second.give_back([K1], held(B, 2))
    with pytest.raises(LeaseError, match="another folder, host:/folder-b"):
        first.take([K1], held(A, 3))


def test_an_older_copy_is_refused(open_store: OpenStore) -> None:
    """A lower epoch, or in the same epoch a journal that ends earlier, is an older copy; the rest goes on."""
    first, second = open_store(), open_store()
    first.take([K1], held(epoch=2, position=5))
    first.renew(held(epoch=2, position=9))
    first.give_back([K1], held(epoch=2, position=10))
    for older in (held(epoch=1, position=99), held(epoch=2, position=9), held(epoch=2, position=0)):
        with pytest.raises(LeaseError, match=r"older copy.*host:/folder-a.*millrace relayer recover"):
            second.take([K1], older)
    second.take([K1], held(epoch=2, position=10))
    second.give_back([K1], held(epoch=2, position=12))
    second.take([K1], held(epoch=3, position=0))
    assert second.remembered([K1, K2])[K1].epoch == 3
    assert set(second.remembered([K1, K2])) == {K1}


def test_position_is_remembered_of_a_holder_that_was_killed(open_store: OpenStore) -> None:
    """What was renewed last holds also when nothing was given back."""
    first, second = open_store(0.2), open_store(0.2)
    first.take([K1], held(position=5))
    first.renew(held(position=9))
    if isinstance(first, FileLeases):
        first.close()
    while True:
        try:
            second.take([K1], held(position=8))
        except LeaseHeld as error:
            assert 0 < error.seconds <= 0.2
        except LeaseError as error:
            assert "reservation 9" in str(error)
            break
    second.take([K1], held(position=9))


def test_what_is_noted_of_clocks_is_remembered(open_store: OpenStore) -> None:
    """By how much its holder's clock was set back, whatever is written: taken, renewed, given back."""
    store = open_store()
    for number, write in enumerate((store.take, lambda _, mine: store.renew(mine), store.give_back)):
        mine = Held(A, 1, 0, "here", used_ms=number + 1, set_back_ms=number + 2, set_back_at_ms=number + 3)
        write([K1], mine)
        found = open_store().remembered([K1])[K1]
        assert (found.used_ms, found.set_back_ms, found.set_back_at_ms) == (number + 1, number + 2, number + 3)


def test_a_table_of_an_earlier_version_goes_on(tmp_path: Path, postgres: Postgres) -> None:
    """What it remembers stays; who still runs the earlier version goes on writing to it."""
    url, columns = Secret(postgres.url), ("used_ms", "set_back_ms", "set_back_at_ms")
    store, before = PostgresLeases(url, tmp_path.name, SECONDS), Database(url, "an earlier version")
    try:
        store.take([K1], held(position=5))
        store.give_back([K1], held(position=5))
        store.close()
        before.execute(f'SET search_path TO "{tmp_path.name}"')
        for column in columns:
            before.execute(f"ALTER TABLE leases DROP COLUMN {column}")
        store = PostgresLeases(url, tmp_path.name, SECONDS)
        with pytest.raises(LeaseError, match="reservation 5"):
            store.take([K1], held(position=4))
        before.execute("INSERT INTO leases VALUES ('\\x03', 'a', 1, 2, 'p', 'w', clock_timestamp(), clock_timestamp())")
        assert store.remembered([b"\3"])[b"\3"].used_ms == 0
    finally:
        before.close()
        store.close()


def test_who_lost_a_key_cannot_renew_it(open_store: OpenStore, tmp_path: Path) -> None:
    """A holder whose lease another has taken over, or whose files were removed, is told so at its next word."""
    first, second = open_store(0.01), open_store()
    first.take([K1], held())
    if isinstance(first, FileLeases):
        for file in (tmp_path / "leases").iterdir():
            file.unlink()
    while True:
        try:
            second.take([K1], held(epoch=2))
            break
        except LeaseHeld:
            continue
    with pytest.raises(LeaseError, match=r"removed|taken over"):
        first.renew(held())
    second.renew(held(epoch=2))
    assert second.remembered([K1])[K1].epoch == 2


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """Words of a lease that cannot be read are no words that allow anything."""
    store = FileLeases(tmp_path)
    store.take([K1], held())
    store.give_back([K1], held())
    file = tmp_path / f"{K1.hex()}.held"
    file.write_bytes(file.read_bytes().replace(b'"epoch":1', b'"epoch":0'))
    with pytest.raises(LeaseError, match="checksum"):
        store.take([K1], held())
    store.take([K1], held(), force=True)
    assert store.remembered([K1])[K1].epoch == 1
    store.close()


def test_a_server_that_is_away_gives_no_lease(tmp_path: Path) -> None:
    """What cannot be asked is not taken."""
    server = Postgres()
    try:
        server.start()
        store = PostgresLeases(Secret(server.url), "leases", SECONDS)
        store.take([K1], held())
        server.kill()
        with pytest.raises(Unavailable):
            store.renew(held())
        with pytest.raises(Unavailable):
            store.take([K2], held())
        server.start()
        store.renew(held(position=3))
        assert store.remembered([K1])[K1].position == 3
        store.close()
    finally:
        server.close()


def test_who_stands_still_while_it_makes_tables_holds_nobody_up(tmp_path: Path, postgres: Postgres) -> None:
    """Once the table is there a new connection renews, though another process is in the middle of making things."""
    url = Secret(postgres.url)
    store, other = PostgresLeases(url, tmp_path.name, SECONDS), Database(url, "a process that stands still")
    try:
        store.take([K1], held())
        other.execute(f"BEGIN; SELECT pg_advisory_xact_lock({_LOCK_SPACE}, 0)")
        store._db.close()
        store._db._loop = None
        store.renew(held(position=5))
        assert store.remembered([K1])[K1].position == 5
    finally:
        other.close()
        store.close()


@pytest.fixture
def together(tmp_path: Path, postgres: Postgres) -> Iterator[Callable[[], PostgresLeases]]:
    """Opens stores of relayers that hold their keys together."""
    with ExitStack() as stack:

        def opened() -> PostgresLeases:
            store = PostgresLeases(Secret(postgres.url), tmp_path.name, SECONDS, shared=A)
            stack.callback(store.close)
            return store

        yield opened


def test_of_those_who_hold_keys_together_one_renews(
    together: Callable[[], PostgresLeases], tmp_path: Path, postgres: Postgres
) -> None:
    """The others, and who starts, wait for no lock while that was a moment ago: they are told how much is left."""
    first, second, other = together(), together(), Database(Secret(postgres.url), "a commit that takes long")
    table = f'"{tmp_path.name}".leases'
    assert first.take([K1, K2], held()) == SECONDS
    other.execute(f"BEGIN; SELECT 1 FROM {table} FOR UPDATE")
    assert SECONDS * 0.75 < second.take([K1, K2], held()) <= SECONDS
    assert SECONDS * 0.75 < second.renew(held()) <= SECONDS
    other.execute(f"UPDATE {table} SET expires_at = expires_at - interval '30 s'; COMMIT")
    assert second.renew(held()) == SECONDS and SECONDS * 0.75 < first.renew(held()) <= SECONDS
    first.give_back([K1], held())
    assert second.renew(held()) > SECONDS * 0.75, "who leaves takes nothing from the others"
    other.execute(f"UPDATE {table} SET word = 'another'")
    with pytest.raises(LeaseError, match="taken over"):
        second.renew(held())
    other.close()


def test_what_others_renewed_counts_once_it_is_on_the_standby(
    together: Callable[[], PostgresLeases], postgres: Postgres
) -> None:
    """Somebody may have cut off their wait for it: to read what they wrote waits as they had to."""
    first, second = together(), together()
    first.take([K1], held())
    second.take([K1], held())
    postgres.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
    deadline = time.monotonic() + SECONDS / 6  # with a quarter over it would be renewed
    try:
        with pytest.raises(Unavailable):
            while time.monotonic() < deadline:  # the server takes a moment to hear of its settings
                second.renew(held())
    finally:
        postgres.sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
    assert second.renew(held()) <= SECONDS


def test_who_takes_a_key_keeps_nobody_from_renewing_another(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relayer that stands still in the middle of its start has locked nothing but what it takes."""
    other, starting = open_store(), open_store()
    starting.take([K1], held())
    starting.give_back([K1], held())
    other.take([K2], held())
    renewed = []

    def renew(*_: object) -> None:
        renewed.append(pool.submit(other.renew, held()).result())

    for module in ("leases", "postgres_leases"):
        monkeypatch.setattr(f"millrace.relayer.journal.{module}.check", renew)
    with ThreadPoolExecutor(1) as pool:
        starting.take([K1], held())
    assert renewed == [other.seconds]


def test_a_key_that_nobody_had_is_taken_by_one_of_several_at_once(tmp_path: Path, postgres: Postgres) -> None:
    """Also in the moment in which there is nothing of it that could be locked."""
    url = Secret(postgres.url)
    stores = [PostgresLeases(url, tmp_path.name, SECONDS) for _ in range(4)]

    def take(store: PostgresLeases, key: bytes) -> bool:
        try:
            store.take([key], held())
        except LeaseHeld:
            return False
        return True

    with ThreadPoolExecutor(len(stores)) as pool:
        for number in range(20):
            assert sum(pool.map(take, stores, [bytes([number]) * 32] * len(stores))) == 1
    for store in stores:
        store.close()


def test_nobody_goes_back_to_an_old_primary(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may acknowledge what the promoted one never hears of."""
    timelines = iter([(1, 2), (1, 1), (1, 2)])

    async def timeline_of(_: object) -> tuple[int, int]:
        return next(timelines)

    monkeypatch.setattr("millrace.runtime.postgres.timeline_of", timeline_of)
    store = PostgresLeases(Secret(postgres.url), tmp_path.name, SECONDS)
    store.take([K1], held())
    store._db._connection.terminate()
    with pytest.raises(Unfit, match="an old primary, of timeline 1, and another was promoted, of timeline 2"):
        store.renew(held())
    store.renew(held())
    store.close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """The text names the setting."""
    (tmp_path / "file").touch()
    with pytest.raises(LeaseError, match="lease_dir"):
        FileLeases(tmp_path / "file" / "leases").take([K1], held())


def test_default_folder() -> None:
    """Of the user's state, where the base directory specification has it."""
    assert default_folder({"XDG_STATE_HOME": "/s"}) == Path("/s/millrace/leases")
    assert default_folder({}).match(".local/state/millrace/leases")
