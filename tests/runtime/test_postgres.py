"""A URL that names several servers: whichever is as it should be is found, whatever the others do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from millrace.runtime.postgres import Connection, Postgres, Refused, Unavailable
from millrace.runtime.settings import Secret
from millrace.system.ports import free_ports
from servers.postgres import Postgres as Server


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    """A server for all of them."""
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that takes connections and says nothing, as one that stands still does."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening.getsockname()[1]


def url_of(server: Server, *ports: int) -> Secret:
    """The server's URL, behind those of others on this machine."""
    before = "".join(f"127.0.0.1:{port}," for port in ports)
    return Secret(server.url.replace("127.0.0.1", f"{before}127.0.0.1"))


async def test_a_server_that_says_nothing_holds_nobody_up(postgres: Server, silent: int) -> None:
    """One behind it in the URL answers, and no other connection is left."""
    database = Postgres(url_of(postgres, silent, silent), "several", seconds=2.0)
    try:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'several'"
        assert await database.ask(lambda connection: connection.fetchval(query)) == 1
    finally:
        await database.leave()


async def test_a_server_that_is_not_as_it_should_be_is_not_taken(postgres: Server) -> None:
    """What is checked of a new connection is checked of each server, and who fails it is left out."""
    asked = []

    async def check(connection: Connection) -> None:
        asked.append(connection)
        if len(asked) == 1:
            raise Unavailable("it has forgotten")

    login = url_of(postgres, int(postgres.port))
    database = Postgres(login, "several", check)
    try:
        assert await database.ask(lambda connection: connection.fetchval("SELECT 1")) == 1
        assert len(asked) == 2 and asked[0].is_closed()
    finally:
        await database.leave()


async def test_it_may_pass_while_one_may_be_there_again(postgres: Server, silent: int) -> None:
    """One refuses for good: only where all do nobody waits for them."""

    async def refuse(_: Connection) -> None:
        raise Refused("fsync is off")

    async def work(_: Connection) -> None: ...

    with pytest.raises(Unavailable):
        await Postgres(url_of(postgres, silent), "several", refuse, seconds=0.5).ask(work)
    with pytest.raises(Refused, match="fsync"):
        await Postgres(url_of(postgres, int(postgres.port)), "several", refuse).ask(work)


async def test_who_is_cut_off_leaves_no_connection(postgres: Server, silent: int) -> None:
    """Nothing goes on when the question is given up."""
    database, begun = Postgres(url_of(postgres, silent), "cut off"), asyncio.Event()

    async def wait(_: Connection) -> None:
        begun.set()
        await asyncio.Event().wait()

    asking = asyncio.ensure_future(Postgres.ask(database, wait))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(asyncio.all_tasks()) == 1 and database._connection is None


@pytest.mark.parametrize("password", ["12/secret", "1?secret", "1#secret", "secret/x", "a[secret"])
async def test_a_password_that_is_not_escaped_is_not_shown(password: str) -> None:
    """What stands before the @ is for nobody's eyes, also where it ends the address in the middle."""
    database = Postgres(Secret(f"postgresql://127.0.0.1:{password}@db/relayer"), "several", seconds=1.0)

    async def work(_: Connection) -> None: ...

    with pytest.raises(OSError) as told:
        await database.ask(work)
    assert "secret" not in f"{database.place} {told.value}" and ":1" not in database.place
    assert Postgres(Secret("postgresql://me:pw@db:5433/relayer"), "several").place == "db:5433/relayer"


class Fake:
    """A connection to a server of a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_open = True

    def is_closed(self) -> bool:
        return not self.is_open

    def terminate(self) -> None:
        self.is_open = False


async def test_the_server_that_was_lost_is_the_last_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that are as they should be the other one is taken, though it is slower; alone the same one is."""
    database, there = Postgres(Secret("postgresql://me@a,b/db"), "several"), {"a", "b"}

    async def connect(url: str) -> Fake:
        host = url.partition("@")[2].partition("/")[0]
        if host not in there:
            raise ConnectionRefusedError
        for _ in range(3 if host == "b" else 0):
            await asyncio.sleep(0)
        return Fake(host)

    async def host(connection: Fake) -> str:
        return connection.url

    async def lost(_: Fake) -> None:
        raise TimeoutError

    monkeypatch.setattr(database, "_connect_to", connect)
    assert await database.ask(host) == "a"
    for expected in ("b", "a", "b"):
        with pytest.raises(Unavailable):
            await database.ask(lost)
        assert await database.ask(host) == expected
    there.remove("a")
    with pytest.raises(Unavailable):
        await database.ask(lost)
    assert await database.ask(host) == "b"


async def test_a_standby_is_found_while_the_lost_primary_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who answered that it is not promoted yet is asked again before a server that stands still is given up."""
    database, asked = Postgres(Secret("postgresql://me@still,standby/db"), "several"), []

    async def connect(url: str) -> Fake:
        host = url.partition("@")[2].partition("/")[0]
        asked.append(host)
        if host == "still":
            await asyncio.Event().wait()
        if asked.count(host) < 3:
            raise ConnectionRefusedError
        return Fake(host)

    async def host(connection: Fake) -> str:
        return connection.url

    monkeypatch.setattr(database, "_connect_to", connect)
    async with asyncio.timeout(30):
        assert await database.ask(host) == "standby"
    assert asked == ["still", *["standby"] * 3] and len(asyncio.all_tasks()) == 1


def stop_waiting(server: Server, application: str) -> None:
    """What an operator does to a commit that hangs as no standby is there."""
    waits = f"application_name = '{application}' AND wait_event = 'SyncRep'"
    deadline = time.monotonic() + 20
    while server.sql(f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {waits}") != "t":
        assert time.monotonic() < deadline


@pytest.mark.parametrize("together", [False, True])
async def test_a_commit_that_no_standby_has_is_not_acknowledged(postgres: Server, together: bool) -> None:
    """The server says done when its wait for a standby is cut off: a promoted one would not have what was done."""
    database = Postgres(url_of(postgres), "hanging")

    async def work(connection: Connection) -> None:
        async with connection.transaction() if together else contextlib.nullcontext():
            await connection.execute("CREATE TABLE IF NOT EXISTS made (number INTEGER)")

    await database.ask(lambda connection: connection.execute("DROP TABLE IF EXISTS made"))
    postgres.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
    try:
        asked = asyncio.ensure_future(database.ask(work))
        await asyncio.to_thread(stop_waiting, postgres, "hanging")
        with pytest.raises(Unavailable, match="synchronous replication"):
            await asked
        assert postgres.sql("SELECT to_regclass('made')") == "made", "it is there, and may be lost with its server"
    finally:
        postgres.sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
    await database.ask(work)
    await database.leave()


@pytest.mark.parametrize("in_a_thread", [False, True])
async def test_what_is_given_up_is_ended_on_the_server(postgres: Server, in_a_thread: bool) -> None:
    """Each commit that waits for a standby has a session; of those that nobody listens to any more none is left."""
    database = Postgres(url_of(postgres), "giving up", seconds=0.5)

    async def ask(statement: str) -> None:
        if in_a_thread:
            await asyncio.to_thread(database.execute, statement)
        else:
            await database.ask(lambda connection: connection.execute(statement))

    await ask("CREATE TABLE IF NOT EXISTS given_up (number INTEGER)")
    postgres.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
    try:
        async with asyncio.timeout(40):
            given_up = 0
            while given_up < 6:
                try:
                    await ask("INSERT INTO given_up VALUES (1)")
                except Unavailable:
                    given_up += 1
            while await sessions_of(postgres, "giving up"):
                await asyncio.sleep(0.05)
    finally:
        postgres.sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        await (asyncio.to_thread(database.close) if in_a_thread else database.leave())


async def sessions_of(server: Server, application: str) -> int:
    query = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{application}'"
    return int(await asyncio.to_thread(server.sql, query))


async def test_who_waits_for_a_lock_and_is_killed_leaves_no_session(postgres: Server) -> None:
    """Its server looks for it, and does not take the lock for somebody who has gone."""
    holder, killed = Postgres(url_of(postgres), "holding"), Postgres(url_of(postgres), "killed")

    async def lock(connection: Connection) -> None:
        await connection.execute("SELECT pg_advisory_lock(11)")

    await holder.ask(lock)
    waiting = asyncio.ensure_future(killed.ask(lock))
    async with asyncio.timeout(20):
        while "t" not in await asyncio.to_thread(postgres.sql, "SELECT NOT granted FROM pg_locks WHERE objid = 11"):
            await asyncio.sleep(0.05)
        killed._connection.terminate()
        with pytest.raises(Unavailable):
            await waiting
        while await sessions_of(postgres, "killed"):
            await asyncio.sleep(0.05)
    await holder.leave()
    await killed.leave()


async def test_a_server_that_is_slow_is_waited_for_longer_each_time(postgres: Server) -> None:
    """What takes longer than usual is not begun for ever without an answer, as long as its server takes connections."""
    database = Postgres(url_of(postgres), "slow", seconds=0.5, most=4.0)

    async def work(connection: Connection) -> int:
        return int(await connection.fetchval("SELECT 1 FROM pg_sleep(1)"))

    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(Unavailable):
                assert await database.ask(work) == 1
                break
    await database.leave()


async def test_patience_is_for_the_server_that_took_the_next_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as much each time, up to a bound; another server has the usual one, and so has one that is quick again."""
    now, there = 100.0, {"a"}
    monkeypatch.setattr(time, "monotonic", lambda: now)
    database = Postgres(Secret("postgresql://me@a,b/db"), "several", seconds=3.0, most=10.0)

    async def connect(url: str) -> Fake:
        host = url.partition("@")[2].partition("/")[0]
        if host not in there:
            raise ConnectionRefusedError
        return Fake(host)

    async def silent(_: Fake) -> None:
        raise TimeoutError

    async def host(connection: Fake) -> str:
        return connection.url

    monkeypatch.setattr(database, "_connect_to", connect)
    found = []
    for _ in range(4):
        await database.ask(host)
        found.append(database._patience.seconds)
        with pytest.raises(Unavailable):
            await database.ask(silent)
    there = {"b"}
    assert await database.ask(host) == "b" and found == [3.0, 6.0, 10.0, 10.0] and database._patience.seconds == 3.0
    with pytest.raises(Unavailable):
        await database.ask(silent)
    await database.ask(host)
    assert database._patience.seconds == 6.0
    now += 61
    assert database._patience.seconds == 3.0


@pytest.mark.parametrize("between_pages", [False, True])
async def test_a_server_that_goes_silent_in_a_transaction_is_waited_for_once(
    postgres: Server, between_pages: bool
) -> None:
    """Its end is not asked for on a connection that was given up; and only the first of many rows may take longer."""
    stalls = False

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", postgres.port)

        async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            nonlocal stalls
            while data := await source.read(65536):
                if not stalls:
                    sink.write(data)

        try:
            await asyncio.gather(pass_on(reader, back), pass_on(there, writer))
        except OSError:
            pass
        finally:
            back.close()
            writer.close()

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    database = Postgres(Secret(postgres.url.replace(str(postgres.port), str(port))), "stalled", seconds=2.0)

    async def work(connection: Connection) -> None:
        nonlocal stalls
        async with connection.transaction():
            if not between_pages:
                stalls = True
                await connection.execute("SELECT 1")
            async for _ in connection.pages("SELECT generate_series(1, 9)", size=3, first=60.0):
                stalls = True

    await database.ask(lambda connection: connection.execute("SELECT 1"))
    async with asyncio.timeout(3.5):
        with pytest.raises(Unavailable, match="no answer in time"):
            await database.ask(work)
    await database.leave()
    proxy.close()


async def test_what_a_server_ends_for_its_settings_may_pass(postgres: Server) -> None:
    """A transaction that stood still, and a lock that is waited for in vain: the next time it may go."""
    database, other = Postgres(url_of(postgres), "impatient"), Postgres(url_of(postgres), "locking")
    there = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'impatient'"

    async def stand_still(connection: Connection) -> None:
        await connection.execute("SET idle_in_transaction_session_timeout = '10ms'")
        async with connection.transaction():
            while await asyncio.to_thread(postgres.sql, there) != "0":
                pass
            await connection.execute("SELECT 1")

    async def lock(connection: Connection) -> None:
        await connection.execute("SET lock_timeout = '10ms'; SELECT pg_advisory_lock(7)")

    with pytest.raises(Unavailable):
        await database.ask(stand_still)
    await other.ask(lock)
    with pytest.raises(Unavailable, match="lock timeout"):
        await database.ask(lock)
    await database.leave()
    await other.leave()


async def test_each_server_is_told_with_what_it_said(postgres: Server) -> None:
    """An operator reads why none was taken, not only that one of them is away."""

    async def refuse(_: Connection) -> None:
        raise Refused("no standby is waited for")

    (nobody,) = free_ports(1)
    database = Postgres(url_of(postgres, nobody), "several", refuse)
    with pytest.raises(Unavailable) as told:
        await database.ask(lambda connection: connection.fetchval("SELECT 1"))
    words = str(told.value)
    assert f"127.0.0.1:{nobody}" in words and "no standby is waited for" in words and postgres.password not in words
    assert database.place == f"127.0.0.1:{nobody},127.0.0.1:{postgres.port}/postgres"


async def test_who_meets_several_takes_the_one_of_the_highest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though another is there first; one that says nothing is waited for shortly."""
    database = Postgres(Secret("postgresql://me@first,best,still/db"), "several")
    ranks = {"first": 1, "best": 2, "still": 3}

    async def connect(url: str) -> Fake:
        host = url.partition("@")[2].partition("/")[0]
        for _ in range(ranks[host]):
            await asyncio.sleep(0)
        if host == "still":
            await asyncio.Event().wait()
        database._ranks[url] = ranks[host]
        return Fake(host)

    async def host(connection: Fake) -> str:
        return connection.url

    monkeypatch.setattr(database, "_connect_to", connect)
    async with asyncio.timeout(30):
        assert await database.ask(host) == "best"
    assert len(asyncio.all_tasks()) == 1
