"""PostgreSQL for a thread that may wait: one connection behind plain calls; or for an event loop.

Services keep databases off their event loop, in threads. Such a thread has here an event loop of its own, for
asyncpg, which runs only while a call waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg as untyped_asyncpg

from millrace.runtime.settings import Secret

T = TypeVar("T")

asyncpg: Any = untyped_asyncpg  # its types say less than nothing under strict rules
Connection: TypeAlias = Any
"""A connection of asyncpg."""

_CONNECT_SECONDS = 10.0
_OTHERS_SECONDS = 0.5
"""A server that is there and has the network between it and us answers a connection within a tenth of that."""
_AGAIN_SECONDS = 0.2
"""Until a server that was not as it should be is asked once more, while another one says nothing."""
_COMMAND_SECONDS = 60.0
ANSWER_SECONDS = 3.0
"""Where others wait meanwhile: a server that says nothing for so long is asked anew, maybe another one of the URL."""
_SLOW_SECONDS = 60.0
"""For so long after an answer that took longer than usual the next one may, too."""
_PART_SECONDS = 1.0
"""A server that is there ends what it is asked to end, and a session, in a hundredth of that."""
END_IDLE = "SET idle_in_transaction_session_timeout = '5s'"
"""For who locks what others need: a process that stands still in a transaction must not hold them up."""
_LOCK_SECONDS = 5.0  # a session whose client was killed may live on for a moment
_LOCK_SPACE = 0x6D696C6C  # "mill": advisory locks of this project
_SESSION = {
    "synchronous_commit": "on",
    "client_min_messages": "warning",  # see `_UNSURE`
    # Who waited for a lock has to see what its holder wrote, whatever the server's default is.
    "default_transaction_isolation": "read committed",
    # A session of a vanished host would hold its lock for hours.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_LOOK_FOR_CLIENT = "SET client_connection_check_interval = '1s'"
"""Of a session that waits for a lock; where the server's system cannot tell it says so, and waits."""
_TIMELINE = """
SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int FROM pg_control_system()
"""
_UNSURE = "SyncRepWaitForLSN"
"""Where in the server a warning comes from that a commit was not waited for to be on the standby, as somebody cut the
wait off (`pg_cancel_backend`): nothing else tells it from one that is there, and with its server it would be lost."""
_PASSING = (
    OSError,  # TimeoutError is one
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shut down, or starting
    asyncpg.InsufficientResourcesError,  # disk full, too many connections
    asyncpg.TransactionRollbackError,
    asyncpg.IdleInTransactionSessionTimeoutError,  # we stood still
    asyncpg.LockNotAvailableError,  # by a lock_timeout of the role's
    asyncpg.ReadOnlySQLTransactionError,  # a standby that was not promoted yet
)


class Unavailable(OSError):
    """The server cannot be reached, or refuses for a reason that passes. Trying again makes sense."""


class Unfit(Unavailable):
    """A server answers and is not to be used, as others know better; the text tells an operator why."""


class Refused(OSError):
    """The server answers that it cannot be done; the text tells an operator what."""


class Damaged(Refused):
    """The server cannot read what is asked for; other questions it may answer."""


class _Patience:
    """How long an answer is waited for.

    Given up, a server may be gone, or slow: where it takes a new connection the next answer has twice the time. Else
    what takes longer than that would be begun for ever, and none of it heard of.
    """

    def __init__(self, seconds: float, most: float) -> None:
        self._least, self.most = seconds, max(seconds, most)
        self._seconds = seconds
        self._ends = -math.inf

    @property
    def seconds(self) -> float:
        """Of the next answer."""
        return self._seconds if time.monotonic() < self._ends else self._least

    def heard(self, seconds: float) -> None:
        """An answer took so long."""
        if seconds > self._least:
            self._ends = time.monotonic() + _SLOW_SECONDS

    def connected(self, *, again: bool) -> None:
        """After an answer was given up; `again`: to the same server."""
        self._seconds = min(2 * self.seconds, self.most) if again else self._least
        self._ends = time.monotonic() + _SLOW_SECONDS


class _Session(asyncpg.Connection):  # type: ignore[misc]
    """A connection on which nothing more is asked once an answer was given up.

    Else the end of a transaction would be asked of the server that says nothing, and waited for as long once more.
    """

    patience: _Patience | None = None
    given_up: type[BaseException] | None = None
    """How the last question ended."""

    async def execute(self, query: str, *values: Any, timeout: float | None = None) -> Any:
        return await self._patiently(super().execute, query, values, timeout)

    async def fetch(self, query: str, *values: Any, timeout: float | None = None) -> Any:
        return await self._patiently(super().fetch, query, values, timeout)

    async def fetchrow(self, query: str, *values: Any, timeout: float | None = None) -> Any:
        return await self._patiently(super().fetchrow, query, values, timeout)

    async def fetchval(self, query: str, *values: Any, timeout: float | None = None) -> Any:
        return await self._patiently(super().fetchval, query, values, timeout)

    async def pages(self, query: str, *values: Any, size: int, first: float) -> AsyncIterator[list[Any]]:
        """The rows of an answer, so many at once, in a transaction; for the first ones it has `first` seconds."""
        try:
            rows = await self.cursor(query, *values, timeout=first)
            while page := await rows.fetch(size, timeout=first):
                first = ANSWER_SECONDS if self.patience is None else self.patience.seconds
                yield page
        except (TimeoutError, asyncio.CancelledError) as error:
            self.given_up = type(error)
            raise

    async def _patiently(self, ask: Any, query: str, values: tuple[Any, ...], timeout: float | None) -> Any:
        if self.given_up is not None:
            raise self.given_up
        if self.patience is None:  # asyncpg's own questions while it connects
            return await ask(query, *values, timeout=timeout)
        began = time.monotonic()
        try:
            answer = await ask(query, *values, timeout=timeout or self.patience.seconds)
        except (TimeoutError, asyncio.CancelledError) as error:
            self.given_up = type(error)
            raise
        self.patience.heard(time.monotonic() - began)
        return answer


class Postgres:
    """One connection, opened at the first call and again after it was lost. Not for two threads at once.

    `on_connect` runs first on every new connection: it takes locks and checks what others may have changed. Who meets
    several servers for the first time takes the one for which it returns most.
    """

    def __init__(
        self,
        url: Secret,
        application: str,
        on_connect: Callable[[Connection], Awaitable[int | None]] | None = None,
        seconds: float = _COMMAND_SECONDS,
        most: float = 0.0,
    ) -> None:
        """`seconds`: a server that has not answered a command by then is taken for one that is gone. One that is there
        all the same is given more time, up to `most`."""
        self._url = url
        self._seconds = seconds
        self._patience = _Patience(seconds, most)
        self._was_silent = False
        """The last answer was given up."""
        self._parting: set[asyncio.Task[None]] = set()
        self._session = {**_SESSION, "application_name": application}
        self._on_connect = on_connect
        self._loop: asyncio.AbstractEventLoop | None = None
        """Ours, where no other one runs."""
        self._connection: Connection | None = None
        self._at = ""
        """Which of the URL's servers it is to."""
        self._lost = ""
        """To which of them one was lost last."""
        self._ranks: dict[str, int] = {}
        """What `on_connect` returned of each of them last."""
        self._unsure = ""
        """The server's words about a commit that its standby may not have."""
        self.place = _place(url)
        """`host:port/database`, for messages: no user, no password."""

    def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Return what `work` does with the connection; a defect or a refusal leaves no transaction open.

        Raises `Unavailable`, or `Refused`. After `Unavailable` the connection is gone, and what `work` had begun
        is undone by the server, except for a commit under way, which may have come through.
        """
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            return self._loop.run_until_complete(self.ask(work))
        finally:
            if self._parting:  # nothing goes on by itself between two calls
                self._loop.run_until_complete(self._parted())

    async def ask(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The same in an event loop that runs, always the same one; not twice at once. End with `leave`."""
        try:
            return await self._run(work)
        except asyncio.CancelledError:
            self._drop()  # whatever is still under way there must not meet the next question
            raise
        except _PASSING as error:
            if isinstance(error, Unavailable | Refused):
                raise
            self._was_silent = isinstance(error, TimeoutError)
            self._drop()
            raise Unavailable(f"{self.place}: {_words(error)}") from None
        except (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError) as error:
            raise Damaged(f"{self.place}: {_words(error)}") from None
        except asyncpg.PostgresError as error:
            raise Refused(f"{self.place}: {_words(error)}") from None

    async def _run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        if self._connection is not None and self._connection.is_closed():
            self._drop()
        if self._connection is None:
            was_silent, self._was_silent = self._was_silent, False
            self._connection = await self._connect()
            if was_silent:
                self._patience.connected(again=self._at == self._lost)
        self._unsure = ""
        result = await work(self._connection)
        if self._unsure:
            self._drop()
            raise Unavailable(f"{self.place}: {self._unsure}")
        return result

    def _hear(self, _: Connection, message: Any) -> None:
        """A warning, which comes before the answer that it belongs to."""
        if message.server_source_function == _UNSURE:
            self._unsure = message.message

    async def _connect(self) -> Connection:
        """A connection to the first of the URL's servers that is as it should be.

        All are asked at once: asked one after the other in one time, as asyncpg does it, one that says nothing would
        leave none for those behind it, and a standby that was promoted would not be found. One that answers that it is
        not ready is asked again while another says nothing: it may be promoted before that one is given up. The one
        that was lost last is taken if no other answers soon: an old primary that is back beside the promoted one
        acknowledges nothing. Who has lost none yet waits as long for all, and takes the one of the highest rank.
        """
        tasks = {asyncio.ensure_future(self._connect_to(url)): url for url in _each(self._url.reveal())}
        asked, errors = set(tasks), dict[str, BaseException]()
        chosen: Connection | None = None
        try:
            waiting = set(tasks)
            first: asyncio.Task[Connection] | None = None
            while waiting and (first is None or (tasks[first] == self._lost if self._lost else waiting & asked)):
                soon = None if first is None else _OTHERS_SECONDS
                done, waiting = await asyncio.wait(waiting, timeout=soon, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                good = [task for task in done if task.exception() is None]
                first = max(
                    good if first is None else [first, *good],
                    key=lambda task: (tasks[task] != self._lost, self._ranks.get(tasks[task], 0)),
                    default=None,
                )
                for task in done - set(good):
                    url, error = tasks.pop(task), task.exception()
                    assert error is not None
                    errors[url] = error
                    if first is None and asked & waiting and _may_pass(error):
                        again = asyncio.ensure_future(self._connect_later(url))
                        tasks[again] = url
                        waiting.add(again)
            if first is not None:
                self._at, chosen = tasks[first], first.result()
                return chosen
        finally:
            for each in tasks:
                each.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results:
                if not isinstance(result, BaseException) and result is not chosen:
                    result.terminate()
        if any(map(_may_pass, errors.values())):
            kind = Unfit if any(isinstance(error, Unfit) for error in errors.values()) else Unavailable
            raise kind("; ".join(_words_of(url, error) for url, error in errors.items()))
        raise next(iter(errors.values()))

    async def _connect_later(self, url: str) -> Connection:
        await asyncio.sleep(_AGAIN_SECONDS)
        return await self._connect_to(url)

    async def _connect_to(self, url: str) -> Connection:
        try:
            connection = await asyncpg.connect(
                url,
                timeout=min(_CONNECT_SECONDS, self._seconds),
                command_timeout=self._patience.most,
                server_settings=self._session,
                connection_class=_Session,
            )
        except ValueError:  # its text may show the URL
            raise Refused("write the URL as postgresql://user:password@host:port/database") from None
        connection.add_log_listener(self._hear)
        connection.patience = self._patience
        try:
            with contextlib.suppress(asyncpg.PostgresError):
                await connection.execute(_LOOK_FOR_CLIENT)
            if self._on_connect is not None:
                self._ranks[url] = await self._on_connect(connection) or 0
        except BaseException:
            connection.terminate()
            raise
        return connection

    def fetch(self, query: str, *values: object) -> list[Any]:
        """The rows of one query. Raises as `run`."""
        return self.run(lambda connection: connection.fetch(query, *values))

    def execute(self, script: str) -> None:
        """Run statements without parameters. Raises as `run`."""
        self.run(lambda connection: connection.execute(script))

    def _drop(self) -> None:
        """Give the connection up, and have the server end what it was asked: it does not look for us while it waits for
        a standby, and would go on with one session for each that was given up, until it has no more."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._lost = self._at
        if getattr(connection, "given_up", None) is None:
            connection.terminate()
            return
        parting = asyncio.ensure_future(_part(connection))
        self._parting.add(parting)
        parting.add_done_callback(self._parting.discard)

    def close(self) -> None:
        """Say goodbye if the server listens, and end."""
        if self._loop is None or self._loop.is_closed():
            return
        self._loop.run_until_complete(self.leave())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def leave(self) -> None:
        """The same for who used `ask`."""
        if self._connection is not None:
            with contextlib.suppress(*_PASSING, asyncpg.PostgresError):
                await self._connection.close(timeout=_PART_SECONDS)
        self._drop()
        await self._parted()

    async def _parted(self) -> None:
        await asyncio.gather(*self._parting)


async def _part(connection: Connection) -> None:
    """Have ended what was given up, and leave: it takes back what it was asked, which counted for nobody any more."""
    with contextlib.suppress(*_PASSING, asyncpg.PostgresError):
        await connection.close(timeout=_PART_SECONDS)


class Timelines:
    """Those that were met, by database: nobody goes back to an old primary who knows the promoted one."""

    def __init__(self) -> None:
        self._highest: dict[int, int] = {}

    async def check(self, connection: Connection, place: str) -> int:
        """The server's timeline. Raises `Unfit`."""
        database, timeline = await timeline_of(connection)
        if timeline < self._highest.get(database, 0):
            raise Unfit(
                f"{place}: one of these servers is an old primary, of timeline {timeline}, and another was promoted, "
                f"of timeline {self._highest[database]}: stop the old one, or start this relayer anew if that one is "
                "gone for good"
            )
        self._highest[database] = timeline
        return timeline


async def use_schema(connection: Connection, name: str) -> None:
    """Have what follows on this connection in a schema, which is made when it is missing, also by several at once."""
    schema = '"' + name.replace('"', '""') + '"'
    if not await connection.fetchval("SELECT true FROM pg_namespace WHERE nspname = $1", name):
        async with making(connection):
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    await connection.execute(f"SET search_path TO {schema}")


@contextlib.asynccontextmanager
async def making(connection: Connection) -> AsyncIterator[None]:
    """A transaction that makes what is missing: IF NOT EXISTS alone fails for those who say it at the same time."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1, 0)", _LOCK_SPACE)
        yield


async def timeline_of(connection: Connection) -> tuple[int, int]:
    """Which database a primary is of, and how often a standby of it was promoted: of two primaries the old one has the
    lower number. A server that does not tell has none of both."""
    try:
        return tuple(await connection.fetchrow(_TIMELINE))
    except asyncpg.PostgresError:
        return 0, 0


async def take_lock(connection: Connection, name: str) -> bool:
    """Take the lock `name` for as long as the connection lives; false when another holds it all the time."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while not await connection.fetchval("SELECT pg_try_advisory_lock($1, hashtext($2))", _LOCK_SPACE, name):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


def _each(url: str) -> list[str]:
    """A URL for each server that a URL names."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return [url]
    login, at, hosts = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{login}{at}{host}")) for host in hosts.split(",")]


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, _PASSING) and not isinstance(error, Refused)


def _place(url: Secret) -> str:
    """What of a URL may be shown."""
    try:
        parts = urlsplit(url.reveal())
        hosts = [urlsplit(f"//{host}") for host in parts.netloc.rpartition("@")[2].split(",")]
        places = [f"{host.hostname or 'localhost'}:{host.port or 5432}" for host in hosts]
    except ValueError:
        return "postgresql"
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":  # a password with a / in it, say, that is not escaped
        return "postgresql"
    return f"{','.join(places)}{parts.path}"


def _words_of(url: str, error: BaseException) -> str:
    """With the server that is meant, unless the words say it."""
    ours = isinstance(error, Unavailable | Refused)
    return str(error) if ours else f"{_place(Secret(url))}: {_words(error)}"


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error).partition("\n")[0] or type(error).__name__
