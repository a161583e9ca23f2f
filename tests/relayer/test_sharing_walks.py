"""Random walks through all that relayers with the same keys can do to each other, a statement of the server at a time.

Three relayers, two seats, two nonces at a time and two payloads for each. Every statement waits until it is let go on,
so that any relayer may stand still between any two, and be overtaken; connections are lost before a statement, behind
it, or with the statement under way, which comes through much later; leases run out, journals fail, signing processes
refuse or die, relayers are killed and start again, some in an empty folder. What submits, claims, writes and takes over
is the real code and the server a real one; signing, keys and the chain are stand-ins. No nonce is ever signed with two
payloads, and what was acknowledged is claimed, or over.

`MILLRACE_WALKS=500` is the long form; the seed is printed, `MILLRACE_SEED` repeats the choices of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from relayer_support import NETWORK, RELAYERS, raw, transfer, wallet, with_identity

from millrace.chain.transaction import Transaction, client_hash, from_proto
from millrace.relayer.journal import asking, identity, sharing
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.reconcile import reconcile
from millrace.relayer.journal.seats import Seats
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.ledger.accounts import AccountBook
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.network.account_source import AccountSource
from millrace.relayer.rules.stages import Origin, Relayers
from millrace.relayer.signing.handle import SignerError
from millrace.relayer.signing.wire import Answer
from millrace.relayer.submission.batch import Accepted
from millrace.relayer.submission.cosigner import Cosigner
from millrace.relayer.submission.submitter import Submitter
from millrace.runtime.postgres import Connection, Unavailable
from millrace.runtime.postgres import Postgres as Database
from millrace.runtime.settings import Secret
from servers.postgres import Postgres

WALKS = int(os.environ.get("MILLRACE_WALKS", "4"))
SEED = int(os.environ.get("MILLRACE_SEED") or secrets.randbelow(10**9))
STEPS = 300
RELAYERS_OF_A_WALK, SEATS, NONCES, PAYLOADS = 3, 2, 2, 2
LEASE = 600.0
"""No lease ends by itself: the walk says when."""
ALICE = wallet(1)
_Key = tuple[int, int]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the clock: the walk decides when something goes on."""
    monkeypatch.setattr(sharing, "TELL_SECONDS", 0.0)
    for module in (asking, sharing):
        monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)


def payload(key: _Key) -> Transaction:
    nonce, which = key
    return transfer(ALICE, nonce, gas_limit=100_000 + which)


class Gated:
    """A connection of which every statement waits for its turn."""

    def __init__(self, connection: Connection, database: GatedDatabase) -> None:
        self._connection, self._database, self._turn = connection, database, database.turn

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        work = getattr(self._connection, name)  # execute, fetch, fetchrow, fetchval
        return lambda *args, **more: self._turn(lambda: work(*args, **more))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        transaction = self._connection.transaction()
        await self._turn(transaction.start)
        self._database.is_inside = True
        try:
            yield
        except BaseException:
            if not self._connection.is_closed():
                with contextlib.suppress(Exception):
                    await transaction.rollback()
            raise
        finally:
            self._database.is_inside = False
        await self._turn(transaction.commit)

    async def pages(self, *args: Any, **more: Any) -> AsyncIterator[Any]:
        pages = self._connection.pages(*args, **more)
        while (page := await self._turn(lambda: anext(pages, None))) is not None:
            yield page


class GatedDatabase(Database):
    """Of a relayer: the walk lets its statements go on, or loses its connection."""

    def __init__(self, url: Secret, on_connect: Any) -> None:
        super().__init__(url, "walk", on_connect)
        self.waiting: asyncio.Future[str] | None = None
        """For one word: `go`, `cut` before the statement, `deaf` behind it, `late` with it under way."""
        self.late: list[Callable[[], Awaitable[Any]]] = []
        """Statements that were given up and have not reached the server."""
        self.closing: list[Connection] = []
        self.is_open = False
        """Whether nobody waits any more: all is let go on."""
        self.is_inside = False
        """In the middle of a transaction."""

    async def _run(self, work: Any) -> Any:
        return await super()._run(lambda connection: work(Gated(connection, self)))

    async def turn(self, statement: Callable[[], Awaitable[Any]]) -> Any:
        self.waiting = asyncio.get_running_loop().create_future()
        if self.is_open:
            self.waiting.set_result("go")
        try:
            word = await self.waiting
        finally:
            self.waiting = None
        if word == "late":
            self.late.append(statement)
            self.closing.append(self._connection)
            self._connection = None  # the server does not know yet that nobody listens
        if word in ("cut", "late"):
            raise Unavailable("the walk cut the connection")
        answer = await statement()
        if word == "deaf":
            raise Unavailable("the walk lost the answer")
        return answer

    async def ask(self, work: Any) -> Any:
        try:
            return await super().ask(work)
        except Unavailable:
            self._drop()
            raise


class Signer:
    """Stands for a signing process; what it signs is in the hands of the world."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self.next = "sign"

    async def check(self, transactions: list[bytes]) -> list[str]:
        return [""] * len(transactions)

    async def sign(self, transactions: list[bytes]) -> list[Answer]:
        word, self.next = self.next, "sign"
        if word == "refuse":
            return [Answer(refusal="no") for _ in transactions]
        if word == "die":
            raise SignerError("it is gone, and what it signed with it, which nobody has read")
        for proto in transactions:
            self._walk.sign(from_proto(proto))
        return [Answer(signature=hashlib.sha512(proto).digest()) for proto in transactions]


class Relayer:
    """The parts of a relayer that submit, write, claim and take over."""

    def __init__(self, walk: Walk, folder: Path) -> None:
        self.walk = walk
        self.folder = with_identity(folder)
        self.journal = Journal(folder / "journal.sqlite")
        self.tasks: set[asyncio.Task[Any]] = set()
        self.submitter: Submitter | None = None
        """Not before it has started."""
        self.signer = Signer(walk)
        self.journal_fails = False

    def begin(self) -> None:
        self.journal.open()
        commit = self.journal._writer.commit  # type: ignore[union-attr]

        async def failing(*writes: Any) -> None:
            if self.journal_fails and len(writes) > 1:
                self.journal_fails = False
                raise JournalError("the walk fills the disk")
            await commit(*writes)

        self.journal._writer.commit = failing  # type: ignore[union-attr, method-assign]
        seats = Seats(self.walk.url, self.walk.schema, SEATS, LEASE)
        self.database = seats._db = GatedDatabase(self.walk.url, seats._on_connect)
        name = identity.read(self.folder).id
        self.sharing = sharing.Sharing(seats, name, "here", self.journal.reservations, self.journal.written)
        self.spawn(self._start())

    async def _start(self) -> None:
        await self.sharing.sit()
        self.journal.sharing = self.sharing
        await reconcile(self.journal, self.sharing)
        self.sharing.start()
        lifecycle = Lifecycle(NETWORK, self.journal, max_nonce_gap=NONCES)
        lifecycle.sponsor.balances.lower_bound = lambda key: 10**21  # type: ignore[method-assign]
        lifecycle.restore(self.journal.open_records())
        book = AccountBook()
        book.learn_from_api(ALICE.public, self.walk.nonce, 10**21, None, 0.0, b"")
        lifecycle.on_refused = self._refused
        withdraw = lifecycle.withdraw

        def withdrawn(entry: Entry) -> bool:
            """Who is killed before it has told so is asked for the same bytes again."""
            is_given_back = withdraw(entry)
            if is_given_back:
                self._refused(entry)
            return is_given_back

        lifecycle.withdraw = withdrawn  # type: ignore[method-assign]
        self.lifecycle, self.book = lifecycle, book
        cosigner = Cosigner(lifecycle, lambda: self.signer, self._send)  # type: ignore[arg-type, return-value]
        accounts = AccountSource(book, None)
        relayers = Relayers({shard: pair.public for shard, pair in RELAYERS.items()})
        self.submitter = Submitter(NETWORK, lambda: relayers, accounts, lifecycle, self.journal, cosigner)
        self.cosigner = cosigner
        lifecycle.nonce_moved(ALICE.public, self.walk.nonce)
        await cosigner.recover()

    def _send(self, entry: Entry) -> None:
        assert entry.chain_hash

    def _refused(self, entry: Entry) -> None:
        """That is an end, of which its client is told."""
        self.walk.log.append(f"refused {entry.tx.nonce}/{entry.tx.gas_limit - 100_000}")
        self.walk.accepted.discard((entry.tx.nonce, entry.tx.gas_limit - 100_000))

    def spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)

    async def submit(self, keys: list[_Key], kind: Any) -> None:
        submitter = self.submitter
        assert submitter is not None
        batch = await submitter.take(Origin(kind, "ip"), [raw(payload(key)) for key in keys])
        for key, result in zip(keys, await submitter.finish(batch), strict=True):
            self.walk.count(result)
            if isinstance(result, Accepted):
                self.walk.log.append(f"accepted {key}")
                self.walk.accepted.add(key)

    def has_ended(self) -> bool:
        """Whether it lost its seat, or failed to start: its process would be gone."""
        return self.sharing.lost is not None or any(
            task.done() and not task.cancelled() and task.exception() is not None for task in self.tasks
        )

    async def die(self) -> None:
        """As `kill -9`: what it has not told and not written is gone."""
        work = self.sharing._work
        for task in [*self.tasks, *([work] if work is not None else [])]:
            task.cancel()
        results = await asyncio.gather(*self.tasks, *([work] if work is not None else []), return_exceptions=True)
        self.walk.surprises += [
            item for item in results
            if isinstance(item, BaseException) and not isinstance(item, JournalError | OSError | asyncio.CancelledError)
        ]  # fmt: skip
        self.walk.errors += [str(item) for item in results if isinstance(item, JournalError | OSError)]
        self.walk.late += self.database.late
        self.walk.connections += self.database.closing
        if self.database._connection is not None:
            self.database._connection.terminate()
        writer = self.journal._writer
        assert writer is not None
        writer._later = [change for change in writer._later if change.done is not None]
        await self.journal.close()


class Walk:
    """One walk: the relayers, the chain, and what was ever signed."""

    def __init__(self, chance: random.Random, folder: Path, url: Secret) -> None:
        self.chance, self.folder, self.url = chance, folder, url
        self.schema = secrets.token_hex(6)
        self.monitor = Database(url, "monitor")
        self.nonce = 0
        self.signed: dict[int, set[bytes]] = {}
        self.accepted: set[_Key] = set()
        self.results: dict[str, int] = {}
        self.surprises: list[BaseException] = []
        self.errors: list[str] = []
        self.late: list[Callable[[], Awaitable[Any]]] = []
        self.connections: list[Connection] = []
        self.relayers: list[Relayer] = []
        self.folders = 0
        self.blocked: set[Relayer] = set()
        """Those whose statement waits for a lock that another holds who stands still."""
        self.log: list[str] = []

    def sign(self, tx: Transaction) -> None:
        self.signed.setdefault(tx.nonce, set()).add(client_hash(tx))
        self.log.append(f"signed {tx.nonce}/{tx.gas_limit - 100_000}")
        assert len(self.signed[tx.nonce]) == 1, f"two payloads of nonce {tx.nonce}: {self.log}"

    def count(self, result: Any) -> None:
        name = "accepted" if isinstance(result, Accepted) else str(result.reason)
        self.results[name] = self.results.get(name, 0) + 1

    def start(self) -> Relayer:
        self.folders += 1
        relayer = Relayer(self, self.folder / f"{self.schema}-{self.folders}")
        relayer.begin()
        return relayer

    async def restart(self, place: int) -> None:
        old = self.relayers[place]
        await old.die()
        if self.chance.random() < 0.3:
            self.relayers[place] = self.start()
        else:
            self.relayers[place] = Relayer(self, old.folder)
            self.relayers[place].begin()

    async def run(self) -> None:
        self.relayers = [self.start() for _ in range(RELAYERS_OF_A_WALK)]
        try:
            for _ in range(STEPS):
                await self.step()
                await self.quiet()
            await self.settle()
        finally:
            for relayer in self.relayers:
                await relayer.die()
            for connection in self.connections:
                connection.terminate()
            drop = f'SET lock_timeout = 0; DROP SCHEMA "{self.schema}" CASCADE'  # the server may yet hear who is gone
            await self.monitor.ask(lambda connection: connection.execute(drop))
            await self.monitor.leave()

    async def step(self) -> None:
        chance = self.chance
        place = chance.randrange(len(self.relayers))
        relayer, dice = self.relayers[place], chance.random()
        if relayer.has_ended():
            self.log.append(f"{place} starts again")
            await self.restart(place)
        elif dice < 0.55:
            for _ in range(chance.choice((1, 1, 2, 4, 8, 16))):
                await self.let_go(place, "go")
                await self.quiet()
        elif dice < 0.61:
            await self.let_go(place, chance.choice(("cut", "deaf", "late")))
        elif dice < 0.78 and relayer.submitter is not None:
            self.ask(place)
        elif dice < 0.84:
            relayer.signer.next = chance.choice(("refuse", "die"))
        elif dice < 0.88:
            relayer.journal_fails = True
        elif dice < 0.90:
            seat = chance.randrange(SEATS)
            self.log.append(f"lease of seat {seat} ends")
            await self.say(f"UPDATE \"{self.schema}\".seats SET expires_at = '-infinity' WHERE seat = {seat}")
            for _ in range(chance.choice((0, 40))):  # often another takes it at once
                await self.let_go(place, "go")
                await self.quiet()
        elif dice < 0.96 and relayer.database.is_inside:
            await self.overtake(place)
        elif dice < 0.95 and (self.late or relayer.database.late):
            await self.arrive(relayer)
        elif dice < 0.97:
            self.log.append(f"{place} killed")
            await self.restart(place)
        elif relayer.submitter is not None and dice < 0.98:
            relayer.spawn(relayer.cosigner.sign_missed())
        elif dice > 0.99 and self.signed.get(self.nonce):
            self.nonce += 1
            for one in self.relayers:
                if one.submitter is not None:
                    one.book.learn_from_event(ALICE.public, self.nonce, 10**21)
                    one.lifecycle.nonce_moved(ALICE.public, self.nonce)

    async def overtake(self, place: int) -> None:
        """One stands still in the middle of a transaction until its lease is over; the others go on meanwhile."""
        self.log.append(f"{place} is overtaken")
        number = self.relayers[place].sharing._seats.number
        await self.say(f"UPDATE \"{self.schema}\".seats SET expires_at = '-infinity' WHERE seat = {number}")
        others = [other for other in range(len(self.relayers)) if other != place]
        for _ in range(2):
            for other in others:
                for _ in range(30):
                    await self.let_go(other, "go")
                    await self.quiet()
                if self.relayers[other].submitter is not None and not self.relayers[other].has_ended():
                    self.ask(other)
            await self.let_go(place, "go")
            await self.quiet()

    def ask(self, place: int) -> None:
        """Submit some of the payloads that there are now."""
        chance = self.chance
        keys = [
            (nonce, chance.randrange(PAYLOADS))
            for nonce in range(self.nonce, self.nonce + NONCES)
            if chance.random() < 0.6
        ]
        kind = chance.choice(("relay", "relay", "sign"))
        self.log.append(f"{place} asked to {kind} {keys}")
        if keys:
            self.relayers[place].spawn(self.relayers[place].submit(keys, kind))

    async def let_go(self, place: int, word: str) -> None:
        waiting = self.relayers[place].database.waiting
        if waiting is not None and not waiting.done():
            self.log.append(f"{place} {word}")
            waiting.set_result(word)

    async def arrive(self, relayer: Relayer) -> None:
        """What was under way when its connection was given up reaches the server now."""
        late = self.late or relayer.database.late
        statement = late.pop(self.chance.randrange(len(late)))
        self.log.append("a late statement arrives")
        with contextlib.suppress(Exception):
            async with asyncio.timeout(0.5):  # it may wait for a lock of who stands still
                await statement()

    async def say(self, query: str) -> None:
        """As the clock of the server; not of what does not exist yet, or is locked now."""

        async def work(connection: Connection) -> None:
            await connection.execute("SET lock_timeout = '20ms'")
            await connection.execute(query)

        with contextlib.suppress(OSError):
            await self.monitor.ask(work)

    async def quiet(self) -> None:
        """Every relayer waits: for its turn, for something to do, or for a lock, which is found out once."""
        self.blocked = {one for one in self.blocked if one.database.waiting is None}
        for _ in range(60):
            await asyncio.sleep(0)
            busy = {one for one in self.relayers if one.database.waiting is None and not one.has_ended()}
            if busy <= self.blocked:
                return
            await asyncio.sleep(0.0005)
        self.blocked |= busy

    async def settle(self) -> None:
        """Nothing fails any more: what was acknowledged is claimed with its bytes, and those alone were ever signed."""
        while self.late or any(one.database.late for one in self.relayers):
            await self.arrive(next(one for one in self.relayers if self.late or one.database.late))
        for place, one in enumerate(self.relayers):
            if one.has_ended():
                await self.restart(place)
        for one in self.relayers:
            one.database.is_open = True
            if one.database.waiting is not None and not one.database.waiting.done():
                one.database.waiting.set_result("go")
        async with asyncio.timeout(20):
            while sum(one.submitter is not None for one in self.relayers) < SEATS:
                for place, one in enumerate(self.relayers):
                    if one.has_ended():
                        await self.restart(place)
                        self.relayers[place].database.is_open = True
                await self.say(
                    f"UPDATE \"{self.schema}\".seats SET expires_at = '-infinity' "
                    f"WHERE word NOT IN ({', '.join(repr(one.sharing._seats._word) for one in self.relayers)})"
                )
                await asyncio.sleep(0.01)
        serving = [one for one in self.relayers if one.submitter is not None]
        for one in serving:
            await asyncio.gather(*one.tasks, return_exceptions=True)
        hashes = {(nonce, client_hash(payload((nonce, which)))) for nonce, which in self.accepted}
        whose = await serving[0].sharing.whose([(ALICE.public, nonce) for nonce, _ in hashes])
        for nonce, name in hashes:
            assert whose[ALICE.public, nonce].client_hash == name, f"nonce {nonce} was acknowledged: {self.log}"


async def test_row_10_no_walk_signs_two_payloads(tmp_path: Path, postgres: Postgres) -> None:
    """Whatever stands still, is lost or comes late, and wherever: a nonce has one payload."""
    totals: dict[str, int] = {}
    errors: dict[str, int] = {}
    for number in range(WALKS):
        print(f"seed {SEED}, walk {number}")
        walk = Walk(random.Random(f"{SEED} {number}"), tmp_path, Secret(postgres.url))
        try:
            await walk.run()
        except BaseException:
            print("\n".join(walk.log))
            raise
        assert not walk.surprises, (walk.surprises, walk.log)
        for name, count in walk.results.items():
            totals[name] = totals.get(name, 0) + count
        for text in walk.errors:
            words = text.partition(":")[0]
            errors[words] = errors.get(words, 0) + 1
    print(totals, errors)
    assert totals["accepted"] >= WALKS and totals["conflicting transaction"] >= WALKS
