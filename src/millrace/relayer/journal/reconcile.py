"""Before a seat is used: the folder's own journal has what the seat's holders claimed, and the server what it signed.

Who takes a seat goes on where the last one stopped, on whatever machine that was: what may still run is in its journal
then, and what was spent within a day, as if it had made it itself. What follows is a start like any other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import msgspec

from millrace.chain import address
from millrace.relayer.journal import audit, programmes
from millrace.relayer.journal.claim_rows import Shared
from millrace.relayer.journal.common_programmes import Charged
from millrace.relayer.journal.journal import BUDGET_MS, QUOTA_MS, Journal
from millrace.relayer.journal.outcomes import Outcome
from millrace.relayer.journal.seats import Seat
from millrace.relayer.journal.sharing import Sharing
from millrace.relayer.journal.submissions import OPEN, End, Record
from millrace.relayer.journal.writer import JournalError
from millrace_client.places import Place

log = logging.getLogger(__name__)

AT_ONCE = 1_000
FOLLOWED_MS = 900_000
"""For so long what a block of the sender's shard has may take to end in others, as the tracker follows it: a time, not
a number of rounds."""
_Name = tuple[bytes, int]
_Ended = tuple[Record, str, int, int | None]
"""What was not over, and the state, cost and time of its end; without a time it was written off, and may still run."""


async def reconcile(journal: Journal, sharing: Sharing) -> bool:
    """Make journal and claims one; whether what this folder alone follows may have ended unheard.

    Raises `JournalError` where they contradict each other.
    """
    seat = sharing.seat
    assert seat is not None
    shared = await sharing.id()
    if journal.shared_with() is None:
        await _bring(journal, sharing)
    await _bring_programmes(journal, sharing)
    await journal.share_with(shared)
    knows_all = seat.left_by == journal.seat_word() and journal.reservations() >= seat.reservations
    now = time.time_ns() // 1_000_000
    work = _Reconciling(journal, sharing, seat.number, now, knows_all)
    await work.compare(journal.submitted(only_open=True) + journal.written_off())
    await work.take_over(now if knows_all else now - BUDGET_MS, seat.open_since)
    for sender, nonce in journal.failed_since(now - QUOTA_MS):  # its events are behind us: nobody else hears of it
        sharing.lose(sender, nonce)
    is_unheard = not knows_all and _go_on(journal, seat, work.taken, now)
    if seat.cursor is None and (knows_all or not work.taken):
        _tell_place(journal, sharing)
    journal.keep_seat_word(seat.word)  # behind what was read: who ends before that has to read it the next time
    await journal.flush()
    if work.taken:
        log.info("claims of the seat taken over", extra={"count": work.taken, "seat": seat.number})
    await sharing.settle_in()
    return is_unheard


def _go_on(journal: Journal, seat: Seat, taken: int, now_ms: int) -> bool:
    """Have reading go on where the seat's last holder was; whether that may be past ends that only we wait for."""
    if seat.cursor is None:
        if taken:
            journal.forget_cursor()  # ours may be behind how these ended
        return False
    is_alone = journal.follows_alone(now_ms - FOLLOWED_MS)
    if is_alone and _is_earlier(journal, seat.cursor, seat.cursor_place):
        return False  # all that is ended since then is heard again, or for the first time
    if is_alone:
        journal.keep_loss(now_ms)  # a start that ends before it is heard of finds a seat that is ours already
    journal.keep_cursor(seat.cursor, seat.cursor_place)
    return is_alone


def _tell_place(journal: Journal, sharing: Sharing) -> None:
    """Have the seat say where we go on, with the first claim: the notifier may answer only after that."""
    try:
        cursor = journal.cursor()
    except ValueError:  # another version's
        return
    if cursor is not None:
        sharing.keep_cursor(cursor, journal.cursor_place())


def _is_earlier(journal: Journal, cursor: int, text: str) -> bool:
    """Whether our place is surely not behind another: sequences say so where they are of one notifier's journal."""
    try:
        own, names = journal.cursor(), [_journal_of(journal.cursor_place()), _journal_of(text)]
    except ValueError:  # another version's
        return False
    return own is not None and own <= cursor and names[0] == names[1]


def _journal_of(text: str) -> str:
    return Place.of_text(text).journal if text else ""


async def _bring(journal: Journal, sharing: Sharing) -> None:
    """The first time: claim what keys of ours may have signed so far."""
    rows = journal.submitted()
    for start in range(0, len(rows), AT_ONCE):
        part = sorted(rows[start : start + AT_ONCE], key=lambda item: (item.record.sender, item.record.nonce))
        await sharing.bring([item.record for item in part], [item.ended_ms for item in part])
    sharing.follows([item.record for item in rows if item.ended_ms is None])


async def _bring_programmes(journal: Journal, sharing: Sharing) -> None:
    """Have what programmes paid by this folder's own count added to what all count; the server adds it once."""
    charges = {item.client_hash: item for item in programmes.charges(journal.read)}
    nonces = {item.record.client_hash: item.record.nonce for item in journal.submitted(only_open=True)}
    users = programmes.users(journal.read)
    over = [charge for name, charge in charges.items() if name not in nonces]  # nobody knows whether it ran
    users += [programmes.User(item.programme, item.sender, 1, item.fee, 0) for item in over]
    still = [
        Charged(item.programme, item.sender, nonces[name], name, item.fee)
        for name, item in charges.items()
        if name in nonces
    ]
    if users or still:
        await sharing.bring_programmes(_merged(users), still)


def _merged(users: Sequence[programmes.User]) -> list[programmes.User]:
    """Each programme's sender once."""
    found: dict[tuple[str, bytes], programmes.User] = {}
    for user in users:
        before = found.get(user[:2])
        if before is not None:
            number, spent = before.transactions + user.transactions, before.spent + user.spent
            user = user._replace(transactions=number, spent=spent)
        found[user[:2]] = user
    return list(found.values())


class _Reconciling:
    """One start's comparison of both sides."""

    def __init__(self, journal: Journal, sharing: Sharing, seat: int, now_ms: int, knows_all: bool) -> None:
        self._journal = journal
        self._sharing = sharing
        self._seat = seat
        self._now_ms = now_ms
        self._knows_all = knows_all
        """Whether nobody had the seat since this very journal knew all that was claimed for it: not another folder, nor
        a copy of this one, which has its identity, and may have more or fewer reservations."""
        self._line_ms = journal.last_line_ms()
        """Lines of the audit log are about in the order of time: those of long ago count from here on."""
        self.taken = 0

    async def compare(self, own: Sequence[Shared]) -> None:
        """What may still run by our journal is claimed; whose it is now decides who goes on with it."""
        for start in range(0, len(own), AT_ONCE):
            part = [item.record for item in own[start : start + AT_ONCE]]
            whose = await self._sharing.whose([_name(record) for record in part])
            ends: list[_Ended] = []
            others: list[Record] = []
            forgotten: list[Record] = []
            for record in part:
                claimed = whose.get(_name(record))
                if claimed is None and record.created_ms < self._now_ms - BUDGET_MS:
                    forgotten.append(record)  # who had the seat after us saw its end, or it may still run
                    continue
                if claimed is None:
                    raise JournalError(
                        f"the claims' server does not know {_words(record)}, which this folder claimed there: it has "
                        "forgotten what it acknowledged; see docs/relayer-operating.md"
                    )
                if claimed.client_hash != record.client_hash:
                    raise _contradiction(record)
                if claimed.seat != self._seat:  # who has that seat now follows it, and pays for it from its part
                    others.append(record)
                elif claimed.cost is not None and _is_news(record, claimed.state, claimed.ended_ms):
                    ends.append((record, claimed.state, int(claimed.cost), claimed.ended_ms))
            await self._end(ends)
            if forgotten:
                forgotten.sort(key=_name)
                await self._sharing.bring(forgotten, [None] * len(forgotten))
                self._sharing.follows(forgotten)
            if others:
                lines: list[audit.Line] = [
                    (self._now_ms, "refund", record.relayer or b"", *_name(record), record.client_hash, record.fee)
                    for record in others
                    if record.state in OPEN
                ]
                await self._journal.hand_over(others, lines)

    async def take_over(self, since_ms: int, open_since: int) -> None:
        """Have in our journal what the seat's holders claimed since then, and what of it is not over."""
        await self._sharing.each_since(since_ms, open_since, self._take)

    async def _take(self, page: list[Shared]) -> None:
        known = {_name(item.record): item for item in self._journal.found([_name(item.record) for item in page])}
        missing: list[Shared] = []
        ends: list[_Ended] = []
        follows: list[Record] = []
        passed_on: list[Record] = []
        for item in page:
            record, own = item.record, known.get(_name(item.record))
            if own is not None and own.record.relayer is None:  # only broadcast here: our keys stand for the claim
                passed_on.append(own.record)
                if own.record.client_hash == record.client_hash and not record.broadcast:
                    record = msgspec.structs.replace(record, broadcast=True)
                    self._sharing.sent(*_name(record))
                own = None
            if own is None or own.record.client_hash != record.client_hash:
                # A row of ours that is in the way is told of when this is written.
                missing.append(Shared(record, item.ended_ms))
            elif own.ended_ms is None and _is_news(own.record, record.state, item.ended_ms):
                ends.append((own.record, record.state, record.cost or 0, item.ended_ms))
            elif self._was_refused(item, own):
                if self._knows_all:
                    self._sharing.void([(*_name(record), record.client_hash)])
                    continue
                missing.append(item)  # who had the seat since then may have signed it
            elif item.ended_ms is None and _is_news(record, own.record.state, own.ended_ms):
                cost = None if own.record.cost is None else str(own.record.cost)
                end = (*_name(record), record.client_hash, own.record.state, cost, own.ended_ms)
                self._sharing.ended([end])
                if own.ended_ms is not None:
                    continue
            if item.ended_ms is None:
                follows.append(record)
        if passed_on:
            await self._journal.hand_over(passed_on, [])
        await self._write(missing)
        await self._end(ends)
        await self._lose([item for item in page if item.failed])
        self._sharing.follows(follows)

    def _was_refused(self, claimed: Shared, own: Shared) -> bool:
        """Whether what is claimed and open was let go of here, unsigned, before the server heard so."""
        if claimed.record.state not in OPEN or own.record.state in OPEN or own.ended_ms is None:
            return False
        return self._journal.gives_way(*_name(own.record))

    async def _write(self, items: Sequence[Shared]) -> None:
        lines: list[audit.Line] = []
        ends: list[End] = []
        for record, ended_ms, _ in items:
            self._line_ms = max(self._line_ms, record.created_ms)
            assert record.relayer is not None
            who = record.relayer, record.sender, record.nonce, record.client_hash
            lines.append((self._line_ms, "reserve", *who, record.fee))
            if record.state not in OPEN:
                cost = record.cost or 0
                event: audit.Event = "write-off" if ended_ms is None else "settle" if cost else "refund"
                lines.append((self._line_ms, event, *who, cost or record.fee))
                ends.append((*who[1:], record.state, str(cost), ended_ms))
        if items:
            self.taken += len(items)
            await self._journal.adopt([item.record for item in items], ends, lines)

    async def _lose(self, items: Sequence[Shared]) -> None:
        """Have the losses: which function it was that failed is not told, and learned by none of them."""
        lost = [
            Outcome(
                item.record.client_hash, item.ended_ms or self._now_ms, item.record.relayer or b"", item.record.sender,
                item.record.nonce, None, item.record.cost or 0, failed=True,
            )
            for item in items
        ]  # fmt: skip
        if lost:
            await self._journal.adopt([], [], [], lost)

    async def _end(self, items: Sequence[_Ended]) -> None:
        lines: list[audit.Line] = []
        ends: list[End] = []
        for record, state, cost, ended_ms in items:
            assert record.relayer is not None
            who = record.relayer, record.sender, record.nonce, record.client_hash
            event: audit.Event = "write-off" if ended_ms is None else "settle" if cost else "refund"
            if record.state in OPEN:  # what was written off has had its line
                lines.append((self._now_ms, event, *who, cost or record.fee))
            ends.append((*who[1:], state, str(cost), ended_ms))
        if items:
            await self._journal.adopt([], ends, lines)


def _is_news(record: Record, state: str, ended_ms: int | None) -> bool:
    """Whether what the other side says of a row that is not over goes further: open, then written off, then over."""
    return ended_ms is not None or (record.state in OPEN and state not in OPEN)


def _name(record: Record) -> _Name:
    return record.sender, record.nonce


def _words(record: Record) -> str:
    return f"nonce {record.nonce} of {address.encode(record.sender)}"


def _contradiction(record: Record) -> JournalError:
    return JournalError(
        f"{_words(record)} is claimed for another transaction than the one in this folder's journal: the folder was "
        "used without the claims it shares; see docs/relayer-operating.md"
    )
