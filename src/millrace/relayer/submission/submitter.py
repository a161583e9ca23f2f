"""The way of a submission through its stages: take (parsed to reserved), then finish (journalled to gossiped).

`take` has no point at which another task could slip between a check and the reservation it allows; `finish`
waits for disk and signer. The two are apart so that one connection's transactions are taken in their order
while earlier ones are still being written.

Long batches go through in parts of about a millisecond, and only so many parts of one client are on their way at
once: whoever sends much waits for itself, everybody else waits for a few parts of each other client at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import Transaction, from_proto, signing_message
from millrace.relayer.journal.at_risk import is_written_off
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.writer import JournalError, JournalFull, NonceTaken
from millrace.relayer.ledger.accounts import Account
from millrace.relayer.ledger.lifecycle import Lifecycle, record_of
from millrace.relayer.network.account_source import AccountSource
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Reason, Refused
from millrace.relayer.rules import stages
from millrace.relayer.rules.slices import PART, STRETCH, Part, cost_of, next_part
from millrace.relayer.rules.stages import Authenticated, Examined, Journalled, Origin, Relayers, Reserved, Signed
from millrace.relayer.signing.handle import SignerError
from millrace.relayer.submission.batch import Accepted, Announce, Batch, Result, Taken
from millrace.relayer.submission.cosigner import Cosigner
from millrace.relayer.submission.shares import Company, Shares

log = logging.getLogger(__name__)

UNSPONSORED = 2
"""So many times its cost a transaction counts whose signatures the service itself verifies, in its event loop."""
TAKING, FINISHING = 2 * PART, 4 * PART
"""What one client may have between parsed and reserved, and between journalled and signed: enough that disk and
signing process always have the next part at hand."""
REST, LONGEST_REST = 3.0, 0.01
"""After a part of a long batch everything belongs to the others for so many times as long as the part took, at most for
so many seconds: it is better for them to meet a little of it often than much of it at once."""
ALONE_SECONDS = 0.25
"""Who has been alone for so long may have longer parts; somebody else's next submission ends that."""


STALE = {
    reasons.NONCE_TOO_LOW.code,
    reasons.NONCE_TOO_HIGH.code,
    reasons.INSUFFICIENT_BALANCE.code,
    reasons.INVALID_GUARDIAN.code,
}
"""Refusals that newer knowledge of the account could turn around."""
_WRITTEN_OFF = reasons.WRITTEN_OFF.but("its operator gave it up; it may still run, and is not sent again")
_SUPERSEDED = reasons.NONCE_TOO_LOW.but("the account's nonce went past this transaction; it is not sent again")


class Submitter:
    """Takes submissions through the stages."""

    def __init__(
        self,
        network: NetworkProfile,
        relayers: Callable[[], Relayers],
        accounts: AccountSource,
        lifecycle: Lifecycle,
        journal: Journal,
        cosigner: Cosigner,
    ) -> None:
        self._network = network
        self._relayers = relayers
        self._accounts = accounts
        self._lifecycle = lifecycle
        self._journal = journal
        self._cosigner = cosigner
        self._taking = Shares(TAKING)
        self._finishing = Shares(FINISHING)
        self._company = Company(ALONE_SECONDS)

    # ---- parsed → authenticated → approved → reserved

    async def take(self, origin: Origin, raws: Sequence[Raw], announce: Announce | None = None) -> Batch:
        """Check and reserve each transaction; what is refused has its reason in the batch's results.

        `announce` is called for each accepted transaction before it can leave this process.
        """
        batch = Batch(origin, len(raws), announce)
        factor = 1 if origin.is_sponsored else UNSPONSORED
        position, took = 0, 0.0
        while position < len(raws):
            alone = self._company.is_alone(origin.ip)
            if position:
                batch.under_way.append(asyncio.create_task(self._finish(batch.taken, batch.stretch, batch)))
                await asyncio.sleep(0 if alone else min(REST * took, LONGEST_REST))
            batch.stretch = STRETCH if alone and origin.is_sponsored else 1
            part = next_part(raws, position, factor, batch.stretch * PART)
            position = part.positions.stop
            size = max(1, part.cost // batch.stretch)
            await self._taking.take(origin.ip, size)
            began = time.perf_counter()
            try:
                batch.taken = await self._take_part(raws, part, batch)
            finally:
                self._taking.give_back(origin.ip, size)
            took = time.perf_counter() - began
        return batch

    async def _take_part(self, raws: Sequence[Raw], part: Part, batch: Batch) -> list[Taken]:
        authenticated = await self._authenticate(raws, part, batch)
        await self._know_accounts({item.tx.sender for _, item in authenticated})
        taken = []
        for index, item in authenticated:
            try:
                taken.append(self._take_at_once(index, item) or await self._take_one(index, item))
            except Refused as refusal:
                batch.results[index] = refusal.reason
            except _Repeated as repeated:
                batch.results[index] = repeated.accepted
        return taken

    async def _authenticate(self, raws: Sequence[Raw], part: Part, batch: Batch) -> list[tuple[int, Authenticated]]:
        relayers = self._relayers()
        examined: list[tuple[int, Examined]] = []
        for index in part.positions:
            try:
                examined.append(
                    (index, stages.examine(stages.parse(raws[index], batch.origin), self._network, relayers))
                )
            except Refused as refusal:
                batch.results[index] = refusal.reason
        verdicts = await self._verdicts([item for _, item in examined]) if batch.origin.is_sponsored else None
        authenticated = []
        for place, (index, item) in enumerate(examined):
            try:
                if verdicts is not None:
                    done = stages.vouched(item, verdicts[place])
                else:
                    done = stages.verify(item, signing_message(item.parsed.tx))
            except Refused as refusal:
                batch.results[index] = refusal.reason
            else:
                authenticated.append((index, done))
        return authenticated

    async def _verdicts(self, items: Sequence[Examined]) -> list[str] | None:
        """What the signing process says of signatures; it verifies what it signs, so nobody need do it twice.

        `None` when it does not answer: then they are verified here, so that the reasons stay right without it.
        """
        return await self._cosigner.check([item.parsed.proto for item in items])

    async def _know_accounts(self, senders: set[bytes]) -> None:
        unknown = [sender for sender in senders if self._accounts.book.get(sender) is None]
        if unknown:
            await asyncio.gather(*(self._accounts.know(sender) for sender in unknown), return_exceptions=True)

    def _take_at_once(self, index: int, item: Authenticated) -> Taken | None:
        """`_take_one` of nearly all transactions: nobody is asked anything. `None` for the others. Raises `Refused`."""
        parsed = item.examined.parsed
        account = self._accounts.known(parsed.tx.sender)
        if account is None or not parsed.origin.is_sponsored:
            return None
        try:
            return self._reserve(index, item, account, None)
        except Refused as refusal:
            if refusal.reason.code in STALE:
                return None
            raise

    async def _take_one(self, index: int, item: Authenticated) -> Taken:
        """Reserve one transaction. Raises `Refused`, or `_Repeated` when its bytes were accepted before."""
        account = await self._accounts.know(item.tx.sender)
        foreign = item.tx.relayer if not item.parsed.origin.is_sponsored else b""
        payer = await self._accounts.know_payer(foreign) if foreign else None
        try:
            return self._reserve(index, item, account, payer)
        except Refused as refusal:
            if refusal.reason.code not in STALE:
                raise
            await self._raise_if_done(item)
            if not await self._accounts.refresh(item.tx.sender):
                raise
        return self._reserve(index, item, await self._accounts.know(item.tx.sender), payer)

    def _reserve(self, index: int, item: Authenticated, account: Account, payer: Account | None) -> Taken:
        """Approve and reserve in one step. Raises `Refused`."""
        existing = self._lifecycle.existing(item)
        if existing is not None:
            approved = self._lifecycle.approve_again(item, existing)
            return Taken(index, existing, Reserved(approved), False)
        approved = self._lifecycle.approve(item, account, payer)
        entry = self._lifecycle.reserve(approved)
        return Taken(index, entry, Reserved(approved), True)

    async def _raise_if_done(self, item: Authenticated) -> None:
        """The same bytes as a transaction that is over: the answer is the same as then."""
        with contextlib.suppress(JournalError):
            await self._journal.flush()  # its last words may still be on their way to the disk
        accepted = self._done_before(item.tx, item.parsed.client_hash, item.parsed.sdk_hash)
        if accepted is not None:
            raise _Repeated(accepted)

    def _done_before(self, tx: Transaction, client: bytes, sdk: bytes) -> Accepted | None:
        """What was answered to the same bytes, if a block has had them: the answer stays the same.

        Raises `Refused` for what was given up: it is not sent again.
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
        if record.state == "superseded":
            raise Refused(_SUPERSEDED)
        return Accepted(_with_signature_of(tx, record.tx), record.client_hash, record.chain_hash, sdk)

    # ---- journalled → signed → gossiped

    async def finish(self, batch: Batch) -> list[Result]:
        """Write, sign and send what was taken; one result per transaction, in order."""
        await self._finish(batch.taken, batch.stretch, batch)
        for task in batch.under_way:
            await task
        assert all(result is not None for result in batch.results)
        return [result for result in batch.results if result is not None]

    async def _finish(self, taken: list[Taken], stretch: int, batch: Batch) -> None:
        """Write, sign and send a part."""
        new = []
        for item in taken:
            if item.is_new and item.entry.state == "over":  # its nonce passed meanwhile: a row would never end
                batch.results[item.position] = item.entry.refusal or reasons.NONCE_TOO_LOW
            elif item.is_new:
                new.append(item)
        if new:
            size = _size(new, stretch)
            await self._finishing.take(batch.origin.ip, size)
            try:
                signed = await self._sign(await self._write(new, batch), batch)
            finally:
                self._finishing.give_back(batch.origin.ip, size)
            self._accept(signed, batch)
        # Another submission of the same bytes may have to be written first: nobody waits for that with room taken.
        repeated = [item for item in taken if not item.is_new]
        again = [(item, Journalled(item.reserved)) for item in repeated if await self._is_written(item, batch)]
        if again:
            size = _size([item for item, _ in again], stretch)
            await self._finishing.take(batch.origin.ip, size)
            try:
                signed = await self._promise(await self._sign(again, batch), batch)
            finally:
                self._finishing.give_back(batch.origin.ip, size)
            self._accept(signed, batch)

    def _accept(self, signed: Sequence[tuple[Taken, Signed]], batch: Batch) -> None:
        """The relayer stands for these: they are announced, sent and answered."""
        for item, done in signed:
            entry = item.entry
            if batch.announce is not None:
                batch.announce(entry)
            if item.reserved.approved.origin.kind != "sign":
                self._cosigner.send(entry)
            batch.results[item.position] = Accepted(done.tx, entry.client_hash, entry.chain_hash, entry.sdk_hash)

    async def _write(self, items: list[Taken], batch: Batch) -> list[tuple[Taken, Journalled]]:
        if not items:
            return []
        try:
            await self._journal.append([record_of(item.entry) for item in items])
        except NonceTaken:
            if len(items) > 1:  # one of them; each alone
                return [done for item in items for done in await self._write([item], batch)]
            reason = reasons.NONCE_TOO_LOW.but("another transaction with this nonce was signed")
            entry = items[0].entry
            self._lifecycle.release(entry, reason)
            try:
                batch.results[items[0].position] = (
                    self._done_before(entry.tx, entry.client_hash, entry.sdk_hash) or reason
                )
            except Refused as refusal:
                batch.results[items[0].position] = refusal.reason
            return []
        except JournalError as error:
            reason = _why(error)
            for item in items:
                self._lifecycle.release(item.entry, reason)
                batch.results[item.position] = reason
            return []
        written = []
        for item in items:
            self._lifecycle.journalled(item.entry)
            written.append((item, Journalled(item.reserved)))
        return written

    async def _is_written(self, item: Taken, batch: Batch) -> bool:
        """Of the same bytes as another submission's: wait until that has been decided; whether it stands."""
        reason = await self._lifecycle.decided(item.entry)
        if reason is not None:
            batch.results[item.position] = reason
        return reason is None

    async def _sign(self, items: list[tuple[Taken, Journalled]], batch: Batch) -> list[tuple[Taken, Signed]]:
        """Every item with all its signatures; those that get none are answered in the batch."""
        done = []
        unsigned = []
        for item, journalled in items:
            entry = item.entry
            if entry.chain_hash and entry.refusal is None:
                done.append((item, Signed(journalled, entry.tx)))  # an earlier submission has come this far
            elif entry.state == "over":
                batch.results[item.position] = entry.refusal or reasons.NONCE_TOO_LOW
            elif entry.kind == "broadcast":
                self._lifecycle.complete(entry)
                done.append((item, Signed(journalled, entry.tx)))
            else:
                unsigned.append((item, journalled))
        if not unsigned:
            return done
        try:
            # The same bytes may be there twice.
            refusals = await self._cosigner.sign(list(dict.fromkeys(item.entry for item, _ in unsigned)))
        except SignerError as error:
            reason = reasons.SIGNER_UNAVAILABLE.but(f"{error}; send the same bytes again", 1_000)
            for item, _ in unsigned:
                batch.results[item.position] = reason
            return done
        for item, journalled in unsigned:
            if refusals[item.entry]:
                batch.results[item.position] = reasons.SIGNER_REFUSED.but(refusals[item.entry])
            elif item.entry.state == "over":
                # Its nonce passed while the signer worked: nothing can come of it any more.
                batch.results[item.position] = item.entry.refusal or reasons.NONCE_TOO_LOW
            else:
                done.append((item, Signed(journalled, item.entry.tx)))
        return done

    async def _promise(self, signed: list[tuple[Taken, Signed]], batch: Batch) -> list[tuple[Taken, Signed]]:
        """Tell the disk what was only signed, or sent no more, and is to be broadcast now. What the disk has taken."""
        if batch.origin.kind == "sign":
            return signed
        states = [(item.entry, item.entry.broadcast, item.entry.state) for item, _ in signed]
        changed = [self._lifecycle.want_broadcast(item.entry) for item, _ in signed]  # each, also after the first
        if not any(changed):
            return signed
        try:
            await self._journal.flush()
        except JournalError as error:
            reason = _why(error)
            for (item, _), (entry, broadcast, state) in zip(signed, states, strict=True):
                batch.results[item.position] = reason
                if entry.state != "over" and not entry.sending:
                    entry.broadcast, entry.state = broadcast, state  # so that the next one waits for the disk again
            return []
        return signed


def _size(items: Sequence[Taken], stretch: int) -> int:
    """What a part takes of its client's share of journal and signing process."""
    return max(1, cost_of([item.entry.proto for item in items]) // stretch)


def _why(error: JournalError) -> Reason:
    """Why nothing is accepted that the journal does not take; its writer has logged that, once and not for each."""
    if isinstance(error, JournalFull):
        return reasons.BUSY.but("the journal is full", 1_000)
    return reasons.NOT_READY.but("the journal cannot be written", 5_000)


class _Repeated(Exception):
    """The same bytes were accepted before, and their transaction is over."""

    def __init__(self, accepted: Accepted) -> None:
        super().__init__("submitted before")
        self.accepted = accepted


def _with_signature_of(tx: Transaction, stored: bytes) -> Transaction:
    return msgspec.structs.replace(tx, relayer_signature=from_proto(stored).relayer_signature)
