"""A running relayer's side of the claims it shares: one statement for all that wait, asked again until it is answered.

What was asked when the server went away may have come through: it is neither refused nor signed before the server, or
the one in its place, has said so. What comes meanwhile is refused at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from millrace.chain import address
from millrace.relayer.journal.allowances import Allowances
from millrace.relayer.journal.asking import RETRY_SECONDS, Asking
from millrace.relayer.journal.claim_errors import ClaimDamaged, ClaimsError, ProgrammeFull, TakenElsewhere
from millrace.relayer.journal.claim_rows import Claimed, Shared
from millrace.relayer.journal.common_programmes import Charged
from millrace.relayer.journal.others_written_off import OthersWrittenOff
from millrace.relayer.journal.own_claims import OwnClaims
from millrace.relayer.journal.portions import Portions
from millrace.relayer.journal.programmes import Charge, User
from millrace.relayer.journal.progress import Progress
from millrace.relayer.journal.questions import Questions
from millrace.relayer.journal.seats import Made, Seat, SeatError, Seats, TwinError
from millrace.relayer.journal.server_clock import wall_ms
from millrace.relayer.journal.submissions import Record
from millrace.relayer.journal.waiting import Waiting, charged_of, name_of, next_group, settle
from millrace.relayer.journal.writer import JournalError, JournalFull
from millrace.runtime.postgres import Damaged, Refused, Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

TELL_SECONDS = 1.0
"""How often the seat is renewed, and told how claims ended; a lease that ends is renewed five times in its time."""
WRITE_SECONDS = 0.5
"""Our own journal's disk is not waited for longer with the seat's renewal."""
KEEPS_SECONDS = 5 * TELL_SECONDS
"""For so long it is waited for another one to tell that it keeps what it has claimed: that goes with its renewals."""
MAX_WAITING = 20_000
"""Claims that wait for the server; beyond it new ones are refused."""
ASK_AGAIN = 5
"""Whose a nonce is that is not ours, and not free either: others let go of it between our claim and the question, but
not so often."""
AGREE_SECONDS = 2.0
"""Clocks of servers that are set by the network are less apart."""


_STOPS = "the relayer stops"


async def _nothing_to_write() -> None: ...


ALL_TAKEN = "stands by: all seats are taken"
TWIN = "waits: a seat is had by a copy of this folder, or still by this one's last relayer"
"""Which ends with that one's lease, or never: of two folders that were copied each needs an identity of its own."""
UNSERVED = "waits for the claims' server: the log says why"
"""It does not answer, or is not fit to be used."""

_UNREADABLE = Claimed(b"", -1, "", "journalled", None, None)
"""Who has a nonce that the server neither gives us nor tells anything of."""


class Sharing(OwnClaims):
    """`sit` first, then `settle_in`, then `start`; `run` tells of the end, `close` when nothing is signed any more."""

    def __init__(
        self,
        seats: Seats,
        folder: str,
        place: str,
        reservations: Callable[[], int],
        written: Callable[[], Awaitable[None]] = _nothing_to_write,
        known: Callable[[str], int] = lambda _: 0,
        remember: Callable[[int], None] = lambda _: None,
        stale_seconds: float = 60.0,
    ) -> None:
        """All of these are of our journal: how many reservations it has; to wait for what it was told so far; how many
        commits those with an id had, as far as it was told to `remember` that. `stale_seconds`: for so long it may be
        without news of what others paid."""
        super().__init__()
        self._seats = seats
        self._asking = Asking(seats)
        self._questions = Questions(seats, self._asking.turn)
        self._folder = folder
        self._place = place
        self._reservations = reservations
        self._written = written
        self._known = known
        self._remember = remember
        self.seat: Seat | None = None
        """Ours, as its last holder left it."""
        self.no_seat = ""
        """Why it has none so far, `ALL_TAKEN`, `TWIN` or `UNSERVED`; empty before that is known, and with a seat."""
        self._has_cursor = False
        """Whether the seat says where reading the events goes on."""
        self._queue: list[Waiting] = []
        self._more = asyncio.Event()
        self._telling: Progress | None = None
        """What the server is being told."""
        self._forget_before = 0
        self._flushed: list[asyncio.Future[None]] = []
        self.waiting = 0
        """Claims that were asked for and not answered."""
        self._is_damaged = False
        """What others wrote off cannot be read."""
        self.portions = Portions()
        """Our part of all budgets."""
        self.allowances = Allowances()
        """What programmes may still pay, which all count together."""
        self.written_off = OthersWrittenOff(stale_seconds)
        self.sums: Callable[[], str] = lambda: ""
        """What others are told of the sums of our policy."""
        self.others_sums: tuple[str, ...] = ()
        """What others told of theirs."""
        self._work: asyncio.Task[None] | None = None
        self.lost: str | None = None
        """Why nothing is claimed any more, for good."""

    @property
    def failed(self) -> str | None:
        """Why the server does not answer, until it does."""
        return self._asking.failed

    @property
    def failures(self) -> int:
        """How often it did not."""
        return self._asking.failures

    def when_back(self, call: Callable[[], None]) -> None:
        """Have this called whenever the server answers again."""
        self._asking.on_return = call

    def why_not(self) -> str | None:
        """Why nothing may be claimed now, for anybody: without the server's address and words, which the log has."""
        if self.lost is not None:
            return "this relayer has lost its seat among those that share their claims"
        return self._asking.why_not()

    # ---- the seat

    async def sit(self) -> Seat:
        """Wait for a seat, and take it. Raises `OSError` where the server refuses.

        Not beside another relayer with this folder's identity: neither would know what the other signs, and takes for
        the folder's own what both did.
        """
        while True:
            try:
                self._seats.commits = max(
                    self._seats.commits, self._known(await self._asking.call(lambda seats: seats.open()))
                )
                self.seat = await self._asking.call(lambda seats: seats.sit(self._folder, self._place))
                self._remember(self._seats.commits)
                if self.seat is None:
                    self._wait(ALL_TAKEN)
            except Unavailable as error:
                self.no_seat = UNSERVED
                log.warning("the claims' server is waited for", extra={"error": str(error)})
            except TwinError as error:
                self._wait(TWIN, place=str(error))
            if self.seat is not None:
                self.no_seat = ""
                self._position, self._has_cursor = self.seat.position, self.seat.cursor is not None
                self.portions.begin(self.seat.portions)
                log.info("seat taken", extra={"seat": self.seat.number})
                return self.seat
            await asyncio.sleep(TELL_SECONDS)

    def _wait(self, why: str, **more: str) -> None:
        if self.no_seat != why:
            log.warning(why, extra=more)
        self.no_seat = why

    async def settle_in(self) -> None:
        """This folder's journal has all that the seat's holders before it claimed. Raises `JournalError`."""
        mine = self.sums()
        self._hear(
            mine, await self._asking.sure(lambda seats: seats.settle_in(self._folder, self._reservations(), mine))
        )
        self.written_off.hear(await self._asking.sure(lambda seats: seats.written_off()))

    def _hear(self, mine: str, others: tuple[str, ...]) -> None:
        """What others say of the sums of their policies, beside what we said."""
        if others == self.others_sums:
            return
        self.others_sums = others
        if any(text != mine for text in others):
            log.warning("policies of relayers that share budgets differ: of each sum the smallest holds")
        self.portions.on_change()

    async def id(self) -> str:
        """Of all who share."""
        return await self._asking.sure(lambda seats: seats.open())

    # ---- claims

    async def take(self, records: Sequence[Record], charges: Sequence[Charge] = ()) -> None:
        """Claim these for us; they are ours, on the server and its standby, when this returns, and what programmes are
        charged for them is counted.

        Raises `TakenElsewhere` or `ProgrammeFull`, then others of them may be ours all the same, and are when they are
        claimed again; or `JournalError`, then none is.
        """
        if self.lost is not None or self.failed is not None:
            raise ClaimsError(self.lost or self.failed or "")
        if self.waiting + len(records) > MAX_WAITING:
            raise JournalFull("the claims' server is too slow")
        self.waiting += len(records)
        try:
            try:
                await self._claimed(records, charges)
            except TakenElsewhere as taken:
                item, claimed = records[0], taken.claimed
                if len(records) > 1 or claimed.is_kept or claimed.client_hash != item.client_hash:
                    raise
                try:
                    now = await self.kept_elsewhere(item.sender, item.nonce, item.client_hash)
                except ClaimsError as error:
                    raise error.in_doubt() from None  # whether the other one accepts these bytes it alone knows
                if now is not None:
                    raise TakenElsewhere(now) from None
                await self._claimed(records, charges)
        finally:
            self.waiting -= len(records)

    async def _claimed(self, records: Sequence[Record], charges: Sequence[Charge]) -> None:
        done = asyncio.get_running_loop().create_future()
        self._queue.append(Waiting(records, charges, done))
        self._more.set()
        await done

    async def let_go(self, claims: Sequence[tuple[bytes, int, bytes]]) -> None:
        """The same as `void` of what our journal never had: at once, so that what is told of them is true.

        Raises `JournalError` where it is not known whether the server has heard it.
        """
        self._drop(claims)
        self._let_go += claims
        try:
            await self._told()
        except ClaimsError as error:
            raise error.in_doubt() from None

    async def voided(self, names: Collection[tuple[bytes, int]]) -> None:
        """Return when the server has let go of what was `void`. Raises `ClaimsError` where that is not known."""
        await self._told()
        if not self._untold.isdisjoint(names):
            raise ClaimsError("the journal is not written")

    async def flush(self) -> None:
        """Return when what is to be broadcast is known to the server. Raises `JournalError`, at once while it does not
        answer."""
        if not self._progress.sent and not (self._telling is not None and self._telling.sent):
            return
        await self._told()

    async def _told(self) -> None:
        """Return when the server knows all so far. Raises `JournalError`, at once while it does not answer."""
        if self._work is not None and self._work.done():
            raise ClaimsError(self.lost or _STOPS)
        if self.failed is not None:
            raise ClaimsError(self.failed)
        done = asyncio.get_running_loop().create_future()
        self._flushed.append(done)
        self._more.set()
        await done

    async def elsewhere(self, sender: bytes, first: int, last: int) -> dict[int, Claimed]:
        """Who has which of these nonces of a sender, but for what we follow ourselves. Raises `JournalError`, at once
        while the server does not answer."""
        if self.lost is not None or self.failed is not None:
            raise ClaimsError(self.lost or self.failed or "")
        try:
            found = await self._questions.about(sender, first, last)
        except (OSError, SeatError) as error:
            raise ClaimsError(str(error)) from error
        mine = self.seat.number if self.seat is not None else -1
        return {nonce: claimed for nonce, claimed in found.items() if claimed.seat != mine or not claimed.is_open}

    async def kept_elsewhere(self, sender: bytes, nonce: int, client_hash: bytes) -> Claimed | None:
        """The same of one nonce. Where another one has only claimed these bytes so far, it is waited for, up to a
        bound, until that keeps them or lets go."""
        loop = asyncio.get_running_loop()
        until = loop.time() + KEEPS_SECONDS
        while True:
            claimed = (await self.elsewhere(sender, nonce, nonce)).get(nonce)
            if claimed is None or claimed.is_kept or not claimed.is_open or claimed.client_hash != client_hash:
                return claimed
            if loop.time() >= until:
                return claimed
            await asyncio.sleep(RETRY_SECONDS)

    async def whose(self, names: Sequence[tuple[bytes, int]]) -> dict[tuple[bytes, int], Claimed]:
        """Who has these nonces, as far as anybody has. Raises `JournalError`."""
        return await self._asking.sure(lambda seats: seats.whose(names))

    async def each_since(
        self, created_ms: int, open_since: int, take: Callable[[list[Shared]], Awaitable[None]]
    ) -> None:
        """See `Seats.each_since`; `take` may ask for nothing else here, and may get a claim twice. Raises
        `JournalError`."""
        await self._asking.sure(lambda seats: seats.each_since(created_ms, open_since, take))

    async def bring(self, records: Sequence[Record], ended_ms: Sequence[int | None]) -> None:
        """Claim what was signed before claims were shared. Raises `JournalError`."""
        taken, _ = await self._claim(records, ended_ms)
        for item in records:
            claimed = taken.get(name_of(item))
            if claimed is not None and claimed.client_hash != item.client_hash:
                raise ClaimsError(
                    f"nonce {item.nonce} of {address.encode(item.sender)} is claimed for another transaction than the "
                    "one that this folder signed: it was used beside those who share"
                )

    async def bring_programmes(self, users: Sequence[User], charges: Sequence[Charged]) -> None:
        """Count what our programmes paid before claims were shared. Raises `JournalError`."""
        await self._asking.sure(lambda seats: seats.bring_programmes(self._folder, users, charges))

    def follows(self, records: Sequence[Record]) -> None:
        """These claims of ours are not over, oldest first."""
        ahead = self._seats.clock.least_ahead_ms
        for item in records:
            self._open[item.sender, item.nonce] = item.created_ms + ahead

    def forget(self, before_ms: int) -> None:
        """Have forgotten what was over before a time, with what is told next."""
        self._forget_before = before_ms

    # ---- the work

    def start(self) -> None:
        """Serve what waits and renew the seat from now on."""
        self._work = asyncio.create_task(self._run())

    async def run(self) -> None:
        """Raises `OSError` when the seat is lost: this relayer ends."""
        assert self._work is not None
        await asyncio.shield(self._work)

    async def close(self) -> None:
        """Tell what there is to tell, and leave the seat; nothing may be claimed any more."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        with contextlib.suppress(OSError, SeatError, JournalError):
            if self.lost is None and self._work is not None:
                progress = await self._take_progress()
                if self._telling is not None:  # cut off just now; told twice it is the same
                    progress.follow(self._telling)
                await self._asking.call(lambda seats: seats.renew(progress))
            await self._asking.call(lambda seats: seats.leave())
        await self._asking.call(lambda seats: seats.close())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        told = loop.time()
        try:
            while True:
                if not self._queue:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(told + TELL_SECONDS):
                            await self._more.wait()
                self._more.clear()
                if not self._has_cursor and self._progress.cursor is not None:
                    await self._tell()  # else who has the seat after us would not hear how our first claims ended
                if group := next_group(self._queue):
                    await self._serve(group)
                # However many more have come: who only claims loses its seat.
                if self._flushed or loop.time() >= told + TELL_SECONDS:
                    await self._tell()
                    told = loop.time()
        except JournalError as error:
            self.lost = f"{error}: this relayer claims no more"
            log.critical("claims are lost", extra={"error": self.lost})
            raise OSError(self.lost) from error
        finally:
            for done in [*(waiting.done for waiting in self._queue), *self._flushed]:
                settle(done, ClaimsError(self.lost or _STOPS))

    async def _serve(self, group: list[Waiting]) -> None:
        # In one order for all relayers: else two that claim the same nonces would wait for each other.
        records = sorted((item for waiting in group for item in waiting.records), key=name_of)
        try:
            if not self._untold.isdisjoint(map(name_of, records)):
                # The same bytes once more: told of later, their earlier end would be taken for that of this claim.
                await self._tell()
                if not self._untold.isdisjoint(map(name_of, records)):
                    self._refuse(group, ClaimsError("the journal is not written").in_doubt())
                    return
            for item in records:
                self._unkept.setdefault(name_of(item), self._position)
            taken, refused = await self._claim(records, charges=charged_of(records, group))
        except ClaimDamaged as error:
            if len(group) > 1:  # one of them
                for waiting in group:
                    await self._serve([waiting])
                return
            log.critical("the claims' server has damaged data", extra={"error": str(error)})
            self.kept(map(name_of, records))  # nothing is known of these: what follows is not kept back for them
            self._refuse(group, error)
            return
        except BaseException as error:
            self._refuse(group, error if isinstance(error, JournalError) else ClaimsError(_STOPS).in_doubt())
            raise
        ahead = self._seats.clock.least_ahead_ms
        for item in records:
            if name_of(item) not in taken and name_of(item) not in refused:
                self._open.setdefault(name_of(item), item.created_ms + ahead)
            else:
                self._unkept.pop(name_of(item), None)
        for waiting in group:
            others = next((taken[name_of(item)] for item in waiting.records if name_of(item) in taken), None)
            if others is None and not refused.isdisjoint(map(name_of, waiting.records)):
                settle(waiting.done, ProgrammeFull())
            else:
                settle(waiting.done, None if others is None else TakenElsewhere(others))

    def _refuse(self, group: list[Waiting], error: JournalError) -> None:
        for waiting in group:
            settle(waiting.done, error)

    async def _claim(
        self, records: Sequence[Record], ended_ms: Sequence[int | None] = (), charges: Sequence[Charged] = ()
    ) -> tuple[dict[tuple[bytes, int], Claimed], set[tuple[bytes, int]]]:
        """Claim these; who has those that did not become, or were not, ours, and what no programme pays.

        Raises `ClaimsError`, in doubt where some of them may have become ours.
        """
        refused: set[tuple[bytes, int]] = set()
        for asked in range(ASK_AGAIN):
            try:
                made = await self._claim_once(records, ended_ms, charges)
            except ClaimsError as error:
                raise (error.in_doubt() if asked else error) from error.__cause__  # the first may have claimed most
            refused |= made.refused
            if made.refused:
                records = [item for item in records if name_of(item) not in made.refused]
                charges = [item for item in charges if (item.sender, item.nonce) not in made.refused]
            if made.are_all_new:
                break
            try:
                whose = await self.whose([name_of(item) for item in records])
            except ClaimsError as error:
                raise error.in_doubt() from None
            if asked == ASK_AGAIN - 1:
                log.critical("the claims' server has damaged data: nobody has nonces that are not free")
                whose = {name_of(item): _UNREADABLE for item in records} | whose
            if all(name_of(item) in whose for item in records):
                others = {
                    name: claimed
                    for item in records
                    if not self._is_ours(claimed := whose[name := name_of(item)], item)
                }
                return others, refused
            # Who was in the way has let go meanwhile: what nobody has is not ours either.
        return {}, refused

    async def _claim_once(
        self, records: Sequence[Record], ended_ms: Sequence[int | None], charges: Sequence[Charged]
    ) -> Made:
        """Claim what nobody has and programmes pay. Raises `ClaimsError`, in doubt where a statement was not answered:
        it came through, or did not, or will."""
        needed = self.portions.claim(sum(item.fee for item in records))
        pause = 0.0
        while True:
            before = self._position
            try:
                made = await self._claim_at(before, records, ended_ms, needed, charges)
            except Unavailable as error:
                self._asking.note(error)
            except ClaimsError as error:
                if pause:
                    error.in_doubt()
                raise
            else:
                self._asking.answers()
                for item in charges:
                    if (item.sender, item.nonce) in made.refused:
                        self.allowances.refuse(item.programme, item.sender)
                return made
            await asyncio.sleep(pause)
            pause = RETRY_SECONDS
            try:
                # A server whose disk is full answers this, and claims nothing: it is not well yet.
                self._position = await self._asking.sure(lambda seats: seats.position(), makes_well=False)
                self._must_remember(before)
            except ClaimsError as error:
                raise error.in_doubt() from error.__cause__

    async def _claim_at(
        self,
        position: int,
        records: Sequence[Record],
        ended_ms: Sequence[int | None],
        needed: int | None,
        charges: Sequence[Charged],
    ) -> Made:
        """One statement. Raises `Unavailable` where it is not answered, or `ClaimsError`."""
        work = partial(
            Seats.claim_charged, records=records, position=position, ended_ms=ended_ms, needed=needed, charges=charges,
            limits=self.allowances.limits() if charges else {}, kept=self._kept(),
        )  # fmt: skip
        try:
            made = await self._asking.call(work)
        except Unavailable:
            raise
        except Damaged as error:
            raise ClaimDamaged(str(error)) from error
        except (Refused, SeatError) as error:
            raise ClaimsError(str(error)) from error
        self._position += 1
        return made

    def _must_remember(self, acknowledged: int) -> None:
        if self._position < acknowledged:
            raise ClaimsError(
                f"the claims' server has {self._position} commits of ours where {acknowledged} were acknowledged: it "
                "has forgotten some; see docs/relayer-operating.md"
            )

    def _is_ours(self, claimed: Claimed, item: Record) -> bool:
        assert self.seat is not None
        mine = self.seat.number, item.client_hash, item.state
        return (claimed.seat, claimed.client_hash, claimed.state) == mine

    async def _tell(self) -> None:
        """Tell how claims ended and renew the seat. Raises `JournalError` when it is lost."""
        flushed, self._flushed = self._flushed, []
        try:
            progress = self._telling = await self._take_progress()
            renewed = await self._asking.sure(lambda seats: seats.renew(progress))
            self._telling = None
            if abs(self._seats.clock.set_by) > AGREE_SECONDS:
                seconds = round(self._seats.clock.set_by, 1)
                log.error(
                    "the clock of the claims' server was set: leases and budgets follow it", extra={"seconds": seconds}
                )
            self._has_cursor |= progress.cursor is not None
            before, self._position = self._position, renewed.found
            self._must_remember(before)
            self._position = renewed.position
            self._kept_told = max(self._kept_told, progress.kept)
            self._remember(renewed.commits)
            self._hear(progress.sums, renewed.sums)
            self.allowances.hear(renewed.programmes)
            self.portions.others_want = renewed.others_want
            self.portions.hold(renewed.portions)
            await self._hear_written_off()
            if self._forget_before and not await self._forget(self._forget_before, progress.programmes):
                self._forget_before = 0  # else the rest with what is told next
        except Unavailable as error:
            self._asking.note(error)
        except BaseException as error:
            for done in flushed:
                settle(done, ClaimsError(_STOPS))
            if isinstance(error, Refused | SeatError | ClaimDamaged):  # not of one claim: nothing was told
                raise ClaimsError(str(error)) from error
            raise
        for done in flushed:
            settle(done, None)

    async def _hear_written_off(self) -> None:
        """What cannot be read stays as it was known; that is said, and stops nobody."""
        try:
            self.written_off.hear(await self._asking.call(lambda seats: seats.written_off()))
        except Refused as error:
            if not self._is_damaged:
                log.error("what others wrote off cannot be read", extra={"error": str(error)})
            self._is_damaged = True
        else:
            self._is_damaged = False

    async def _forget(self, before_ms: int, named: Sequence[str]) -> bool:
        """Have old claims forgotten, and whether there are more; that they cannot be read is said, and stops nobody."""
        try:
            return await self._asking.call(lambda seats: seats.forget(before_ms, named))
        except Damaged as error:
            log.error(
                "old claims cannot be forgotten: the claims' server has damaged data", extra={"error": str(error)}
            )
            return False

    async def _take_progress(self) -> Progress:
        """What is to be told. Of what is void our own journal has to know first: who is killed in between would have
        a row there that nobody has claimed."""
        asked = len(self._progress.void)
        written = asked if asked and await self._is_written() else 0
        progress = self._take(written, wall_ms() + self._seats.clock.least_ahead_ms)
        progress.reservations, progress.sums = self._reservations(), self.sums()
        progress.programmes = tuple(self.allowances.limits())
        progress.wants = self.portions.settle()
        progress.keeps, progress.needed = self.portions.held, self.portions.bound
        progress.may_vacate = asyncio.get_running_loop().time() - self._asking.failed_at > self._seats.seconds
        return progress

    async def _is_written(self) -> bool:
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._written()
        except (JournalError, TimeoutError):
            return False
        return True
