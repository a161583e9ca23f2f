"""The second half of a submission's way: journalled → signed → gossiped, and what each transaction is answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Sequence

import msgspec

from millrace.chain.transaction import Transaction, from_proto
from millrace.relayer.journal.at_risk import is_written_off
from millrace.relayer.journal.claim_errors import ClaimsError, ProgrammeFull, TakenElsewhere
from millrace.relayer.journal.claim_rows import Claimed
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.writer import JournalError, JournalFull, NonceTaken
from millrace.relayer.ledger.inflight import Entry, next_step
from millrace.relayer.ledger.lifecycle import Lifecycle, charge_of, record_of
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Reason, Refused
from millrace.relayer.rules.slices import PART, cost_of
from millrace.relayer.rules.stages import Journalled, Parsed, Signed, cosigned, hash_of
from millrace.relayer.signing.handle import SignerError
from millrace.relayer.submission.batch import Accepted, Batch, Result, Taken
from millrace.relayer.submission.cosigner import Cosigner
from millrace.relayer.submission.shares import Shares
from millrace.runtime.tracing import stage

log = logging.getLogger(__name__)

FINISHING = 4 * PART
"""What one client may have between journalled and signed: enough that disk and signing process always have the next
part at hand."""

TOLD_SECONDS = 5.0
"""For so long an answer waits for the claims' server to hear that its transaction was refused; then it is in doubt."""

_WRITTEN_OFF = reasons.WRITTEN_OFF.but("its operator gave it up; it may still run, and is not sent again")
_SUPERSEDED = reasons.NONCE_TOO_LOW.but("the account's nonce went past this transaction; it is not sent again")

_UNSEEN = reasons.BUSY.but(
    "its nonce is used, and whether by it is not known: send the same bytes again, or subscribe to tx-status/{hash}",
    1_000,
)

SIGNED_BEFORE = reasons.NONCE_TOO_LOW.but(
    "another transaction with this nonce was signed, and no second one is; where the nonce is not used yet, its sender "
    "can use it without this relayer"
)
_ELSEWHERE = reasons.BUSY.but("another relayer of this key has these very bytes; send them again", 1_000)
_PROGRAMME_FULL = reasons.BUSY.but(
    "its programme pays for no more of this sender's; sent again it is judged without", 100
)
_ONLY_SIGNED = reasons.SIGNER_UNAVAILABLE.but(
    "another relayer of this key signed these bytes, or signs them; `broadcast` them with that signature"
)
_SIGNING = reasons.SIGNER_UNAVAILABLE.but("another relayer of this key signs these bytes; send them again", 1_000)


class Finisher:
    """Writes, signs and sends what was taken."""

    def __init__(self, lifecycle: Lifecycle, journal: Journal, cosigner: Cosigner, sign_wait: float) -> None:
        """`sign_wait`: seconds a result waits for a signing process that is being replaced."""
        self._lifecycle = lifecycle
        self._journal = journal
        self._cosigner = cosigner
        self._sign_wait = sign_wait
        self._shares = Shares(FINISHING)
        self._promising: set[Entry] = set()
        """What is to be broadcast now, which the disk has yet to be told: who asks for the same waits for that, too."""

    def done_before(self, tx: Transaction, client: bytes, sdk: bytes, *, is_past: bool = False) -> Accepted | None:
        """What was answered to the same bytes, if a block has had them: the answer stays the same.

        So it does if a block may have had them unseen, as then their fee counts; `is_past`: their nonce is used. Raises
        `Refused` for what was given up: it is not sent again.
        """
        try:
            record = self._journal.find(tx.sender, tx.nonce, client)
            if record is not None and is_written_off(self._journal.read, record):
                raise Refused(_WRITTEN_OFF)
        except JournalError as error:
            log.error("the journal cannot be read", extra={"error": str(error)})
            raise Refused(reasons.NOT_READY.but("the journal cannot be read", 5_000)) from None
        if record is None or record.chain_hash is None or record.state == "dropped":
            return None
        if record.state == "superseded" and not (record.cost and is_past):
            raise Refused(_SUPERSEDED)
        return Accepted(_with_signature_of(tx, record.tx), record.client_hash, record.chain_hash, sdk)

    async def finish(self, taken: list[Taken], stretch: int, batch: Batch) -> None:
        """Write, sign and send a part."""
        late: list[Taken] = []
        new = [item for item in taken if item.is_new]
        if new:
            size = _size(new, stretch)
            await self._shares.take(batch.origin.ip, size)
            try:
                new = _not_over(new, late)
                reason = batch.given_up()
                if reason is not None:
                    new = self._give_up(new, reason, batch)
                with stage(batch.origin.trace, "journal"):
                    written = await self._write(new)
                signed = await self._sign(written, late)
            finally:
                self._shares.give_back(batch.origin.ip, size)
            self._accept(signed)
        # Another submission of the same bytes may have to be written first: nobody waits for that with room taken.
        repeated = [item for item in taken if not item.is_new]
        again = [(item, Journalled(item.reserved)) for item in repeated if await self._is_written(item, late)]
        if again:
            size = _size([item for item, _ in again], stretch)
            await self._shares.take(batch.origin.ip, size)
            try:
                signed = await self._promise(await self._sign(again, late))
            finally:
                self._shares.give_back(batch.origin.ip, size)
            self._accept(signed)
        if late:
            await self._answer_late(late)

    async def finish_together(self, batches: Sequence[Batch]) -> list[Batch]:
        """The same of short submissions of several clients, with one new transaction each; they share every wait.

        Returns those that are to be finished by themselves: their client has too much under way already, or theirs was
        refused and the claims' server has yet to hear so.
        """
        sizes = Counter([batch.origin.ip for batch in batches])
        without = await self._shares.take_together(sizes)
        late: list[Taken] = []
        try:
            taken: list[Taken] = []
            for batch in batches:
                if batch.origin.ip not in without:
                    new, reason = _not_over(batch.taken, late), batch.given_up()
                    taken += new if reason is None else self._give_up(new, reason, batch)
            signed = await self._sign(await self._write(taken), late)
        finally:
            for client in sizes.keys() - without:
                self._shares.give_back(client, sizes[client])
        self._accept(signed)
        refused = {item.batch for item in late if self._lifecycle.is_untold(item.entry)}
        if late := [item for item in late if item.batch not in refused]:
            await self._answer_late(late)
        return [batch for batch in batches if batch.origin.ip in without or batch in refused]

    def _give_up(self, new: list[Taken], reason: Reason, batch: Batch) -> list[Taken]:
        """Nobody waits for the answer and nothing is promised: no work is done. What somebody else waits for."""
        for item in new:
            if not item.entry.waiters:
                self._lifecycle.release(item.entry, reason)
                item.answer(reason)
                batch.count_given_up(reason, 1)
        return [item for item in new if item.entry.waiters]

    def _accept(self, signed: Sequence[tuple[Taken, Signed]]) -> None:
        """The relayer stands for these: they are announced, sent and answered."""
        for item, done in signed:
            self._answer_accepted(item, done.tx)
            if item.reserved.approved.origin.kind != "sign":
                self._cosigner.send(item.entry)

    def _answer_accepted(self, item: Taken, tx: Transaction) -> None:
        entry, batch = item.entry, item.batch
        entry.handed_out = True
        if batch.announce is not None:
            batch.announce(entry)
        item.answer(Accepted(tx, entry.client_hash, entry.chain_hash, entry.sdk_hash))

    async def _write(self, items: list[Taken]) -> list[tuple[Taken, Journalled]]:
        if not items:
            return []
        try:
            await self._journal.append(
                [record_of(item.entry) for item in items],
                [charge_of(item.entry) for item in items if item.entry.programme],
            )
        except NonceTaken as taken:
            if len(items) > 1:  # one of them; each alone
                alone = await asyncio.gather(*(self._write([item]) for item in items))
                return [done for part in alone for done in part]
            if isinstance(taken, TakenElsewhere):
                self._answer_elsewhere(items[0], taken.claimed)
                return []
            if isinstance(taken, ProgrammeFull):
                self._lifecycle.release(items[0].entry, _PROGRAMME_FULL)
                items[0].answer(_PROGRAMME_FULL)
                return []
            entry, reason = items[0].entry, SIGNED_BEFORE
            self._lifecycle.release(entry, reason)
            try:
                items[0].answer(self.done_before(entry.tx, entry.client_hash, entry.sdk_hash) or reason)
            except Refused as refusal:
                items[0].answer(refusal.reason)
            return []
        except JournalError as error:
            reason = _why(error)
            for item in items:
                self._lifecycle.release(item.entry, reason)
                item.answer(reason)
            return []
        written = []
        for item in items:
            self._lifecycle.journalled(item.entry)
            written.append((item, Journalled(item.reserved)))
        return written

    def _answer_elsewhere(self, item: Taken, claimed: Claimed) -> None:
        """Another relayer of our keys has the nonce. What it accepted is accepted, without the signature it has.

        It is announced while its end is still to come: else who waits for that would wait for nothing.
        """
        may_end = item.entry.state == "reserved" and claimed.is_open
        self._lifecycle.release(item.entry, _ELSEWHERE)
        answer = answer_elsewhere(item.reserved.approved.authenticated.parsed, claimed)
        if isinstance(answer, Accepted) and item.entry.kind == "relay" and may_end:
            self._answer_accepted(item, answer.tx)
        else:
            item.answer(answer)

    async def _is_written(self, item: Taken, late: list[Taken]) -> bool:
        """Of the same bytes as another submission's: wait until it is decided; whether it stands, else it is late."""
        if await self._lifecycle.decided(item.entry) is None:
            return True
        late.append(item)
        return False

    async def _sign(self, items: list[tuple[Taken, Journalled]], late: list[Taken]) -> list[tuple[Taken, Signed]]:
        """Every item with all its signatures; those that may have one from before a restart are answered.

        Those that are over, and those of which the signing process says nothing, as it went away, are `late`.
        """
        done = []
        unsigned = []
        for item, journalled in items:
            entry = item.entry
            if entry.chain_hash and entry.refusal is None:
                done.append((item, Signed(journalled, entry.tx)))  # an earlier submission has come this far
            elif entry.state == "over":
                late.append(item)
            elif entry.kind == "broadcast":
                self._lifecycle.complete(entry)
                done.append((item, Signed(journalled, entry.tx)))
            else:
                unsigned.append((item, journalled))
        if not unsigned:
            return done
        try:
            # The same bytes may be there twice.
            with stage(unsigned[0][0].batch.origin.trace, "co-sign"):  # several submissions are not traced
                refusals = await self._cosigner.sign(list(dict.fromkeys(item.entry for item, _ in unsigned)))
        except SignerError:
            late += [item for item, _ in unsigned]
            return done
        for item, journalled in unsigned:
            if item.entry.state == "over" or (refusals[item.entry] and item.entry.asking):
                late.append(item)  # refused, its nonce passed meanwhile, or the last who asked for it decides
            elif refusals[item.entry]:
                self._answer_refused(item, refusals[item.entry])
            else:
                done.append((item, Signed(journalled, item.entry.tx)))
        return done

    def _answer_refused(self, item: Taken, why: str) -> None:
        """The signing process refused what it may have signed before a restart: that may still run."""
        if item.entry.broadcast and item.batch.origin.kind != "sign":
            self._answer_accepted(item, item.entry.tx)
        else:
            text = f"{why}; it may have been signed before a restart, so that its nonce stays taken"
            item.answer(reasons.SIGNER_UNAVAILABLE.but(text))

    async def _answer_late(self, late: list[Taken]) -> None:
        """What is journalled is accepted: it is signed and sent when there is a signing process again.

        Its result waits for that, up to a bound. What is only signed is of no use to anybody without its signature. Of
        what was refused the claims' server hears, up to another bound.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._sign_wait):
                for item in late:
                    if item.entry.state == "journalled":
                        await next_step(item.entry)
        with_hash = [item for item in late if item.entry.chain_hash]
        signed = [(item, Signed(Journalled(item.reserved), item.entry.tx)) for item in with_hash]
        self._accept(await self._promise(signed))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TOLD_SECONDS):
                for item in late:
                    await self._lifecycle.told(item.entry)
        for item in late:
            entry = item.entry
            if entry.chain_hash:
                continue
            if entry.state == "over":
                item.answer(entry.refusal or _UNSEEN)
            elif entry.broadcast and item.batch.origin.kind != "sign":
                self._answer_accepted(item, entry.tx)
            else:
                item.answer(reasons.SIGNER_UNAVAILABLE.but("send the same bytes again", 1_000))

    async def _promise(self, signed: list[tuple[Taken, Signed]]) -> list[tuple[Taken, Signed]]:
        """Tell the disk what was only signed, or sent no more, and is to be broadcast now, and the claims' server what
        was only signed. What both have taken."""
        if all(item.batch.origin.kind == "sign" for item, _ in signed):
            return signed
        before = {item.entry: (item.entry.broadcast, item.entry.state) for item, _ in signed}
        changed = {entry for entry in before if self._lifecycle.want_broadcast(entry)}
        if not changed and self._promising.isdisjoint(before):
            return signed
        self._promising |= changed
        try:
            if any(entry.kind == "sign" for entry in before):
                await self._journal.flush()
            else:
                await self._journal.written()
        except JournalError as error:
            reason = _why(error)
            for item, _ in signed:
                item.answer(reason)
            for entry in changed:
                if entry.state != "over" and not entry.sending:
                    entry.broadcast, entry.state = before[entry]  # so that the next one waits for the disk again
            return []
        finally:
            self._promising -= changed
        return signed


def answer_elsewhere(parsed: Parsed, claimed: Claimed, *, is_past: bool = False) -> Result:
    """What these bytes are answered, whose nonce another relayer of our keys has, or had: as it would itself.

    `is_past`: the account is past the nonce, so that what may still run by the claim is over, and it is to be told how.
    """
    tx, kind, proto = parsed.tx, parsed.origin.kind, parsed.proto
    if claimed.client_hash != parsed.client_hash:
        return answer_to_other(tx.nonce, claimed)
    if claimed.is_open and not claimed.is_kept:
        return _ELSEWHERE
    if claimed.state == "superseded" and claimed.ended_ms is None:
        return _WRITTEN_OFF
    if claimed.state == "superseded" and not claimed.may_have_run:
        return _SUPERSEDED
    if kind == "broadcast":
        if claimed.is_open and claimed.kind == "sign":
            return _ELSEWHERE
        return Accepted(tx, parsed.client_hash, hash_of(proto), parsed.sdk_hash)
    if claimed.signature is not None and (kind == "sign" or not claimed.is_open):
        proto = cosigned(proto, claimed.signature)
        return Accepted(from_proto(proto), parsed.client_hash, hash_of(proto), parsed.sdk_hash)
    if kind == "sign":
        return _SIGNING if claimed.kind == "sign" and claimed.is_open else _ONLY_SIGNED
    if claimed.kind == "sign" and claimed.is_open:
        return _ELSEWHERE if is_past else _ONLY_SIGNED
    return Accepted(tx, parsed.client_hash, b"", parsed.sdk_hash)


def answer_to_other(nonce: int, claimed: Claimed) -> Reason:
    """Why other bytes do not get a nonce that another relayer of our keys has, or had."""
    if not claimed.is_open:
        return SIGNED_BEFORE
    who = claimed.client_hash.hex() or "a claim that cannot be read"
    return reasons.CONFLICTING.but(f"nonce {nonce} is held by {who}, which may still run")


def _not_over(new: list[Taken], late: list[Taken]) -> list[Taken]:
    """Those whose nonce has not passed since they were taken: the row of such a one would never end. The others are
    `late`."""
    late += [item for item in new if item.entry.state == "over"]
    return [item for item in new if item.entry.state != "over"]


def _size(items: Sequence[Taken], stretch: int) -> int:
    """What a part takes of its client's share of journal and signing process."""
    return max(1, cost_of([item.entry.proto for item in items]) // stretch)


def _why(error: JournalError) -> Reason:
    """Why nothing is accepted that the journal does not take; its writer has logged that, once and not for each."""
    if isinstance(error, JournalFull):
        return reasons.BUSY.but("the journal is full", 1_000)
    if isinstance(error, ClaimsError):
        if error.is_in_doubt:
            return reasons.IN_DOUBT
        return reasons.NOT_READY.but("the claims cannot be written", 5_000)
    return reasons.NOT_READY.but("the journal cannot be written", 5_000)


def _with_signature_of(tx: Transaction, stored: bytes) -> Transaction:
    return msgspec.structs.replace(tx, relayer_signature=from_proto(stored).relayer_signature)
