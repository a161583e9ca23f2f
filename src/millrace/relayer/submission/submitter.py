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
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Raw

from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import signing_message
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.ledger.accounts import Account
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.network.account_source import AccountSource
from millrace.relayer.network.simulator import Simulator
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Reason, Refused
from millrace.relayer.rules import stages
from millrace.relayer.rules.policy import name_of
from millrace.relayer.rules.slices import PART, STRETCH, Part, next_part
from millrace.relayer.rules.stages import Authenticated, Examined, Origin, Relayers, Reserved
from millrace.relayer.submission.admission import Admission
from millrace.relayer.submission.batch import Accepted, Announce, Batch, GivenUp, Result, Taken
from millrace.relayer.submission.cosigner import Cosigner
from millrace.relayer.submission.finisher import Finisher, answer_elsewhere
from millrace.relayer.submission.shares import Company, Shares
from millrace.runtime.tracing import stage

log = logging.getLogger(__name__)

UNSPONSORED = 2
"""So many times its cost a transaction counts whose signatures the service itself verifies, in its event loop."""
TAKING = 2 * PART
"""What one client may have between parsed and reserved: enough that the signing process always has the next part at
hand."""
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
CLAIMS_UNREAD = reasons.NOT_READY.but("the claims cannot be read", 5_000)
THROTTLED = {reasons.SENDER_THROTTLED.code, reasons.CALL_THROTTLED.code}
"""Refusals that a simulation could."""


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
        sign_wait: float = 0.0,
        max_wait: float = math.inf,
        simulator: Simulator | None = None,
    ) -> None:
        """`sign_wait`: seconds a result waits for a signing process that is being replaced; `max_wait`: `Admission`.

        Without a `simulator` who keeps failing waits.
        """
        self.admission = Admission(max_wait)
        self._network = network
        self._relayers = relayers
        self._accounts = accounts
        self._lifecycle = lifecycle
        self._journal = journal
        self._cosigner = cosigner
        self._taking = Shares(TAKING)
        self._finisher = Finisher(lifecycle, journal, cosigner, sign_wait)
        self._company = Company(ALONE_SECONDS)
        self._simulator = simulator

    def person_of(self, authorization: str | None) -> str:
        """Who shows this `Authorization` header: a name of the policy, or empty for strangers. Raises `Refused`."""
        people = self._lifecycle.sponsor.policy.people
        scheme, _, key = (authorization or "").partition(" ")
        if not people or scheme.lower() != "bearer":
            return ""
        name = name_of(key.strip(), people)
        if name is None:
            raise Refused(
                reasons.INVALID_API_KEY.but("the policy names nobody with it; without a key you are a stranger")
            )
        return name

    # ---- parsed → authenticated → approved → reserved

    async def take(
        self,
        origin: Origin,
        raws: Sequence[Raw],
        announce: Announce | None = None,
        given_up: GivenUp = lambda: None,
    ) -> Batch:
        """Check and reserve each transaction; what is refused has its reason in the batch's results.

        `announce` is called for each accepted transaction before it can leave this process; `given_up` says why, if so,
        nothing more is to be begun.
        """
        batch = Batch(origin, len(raws), announce, given_up)
        factor = 1 if origin.is_sponsored else UNSPONSORED
        position, took = 0, 0.0
        while position < len(raws):
            alone = self._company.is_alone(origin.ip)
            if position:
                batch.under_way.append(asyncio.create_task(self._finisher.finish(batch.taken, batch.stretch, batch)))
                await asyncio.sleep(0 if alone else min(REST * took, LONGEST_REST))
            batch.stretch = STRETCH if alone and origin.is_sponsored else 1
            part = next_part(raws, position, factor, batch.stretch * PART)
            position = part.positions.stop
            size = max(1, part.cost // batch.stretch)
            await self._taking.take(origin.ip, size)
            began = time.perf_counter()
            try:
                reason = batch.given_up()
                if reason is not None:
                    batch.taken, start = [], part.positions.start
                    batch.count_given_up(reason, len(raws) - start)
                    batch.results[start:] = [reason] * (len(raws) - start)
                    break
                with stage(origin.trace, "verify"):
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
                taken.append(self._take_at_once(index, item, batch) or await self._take_one(index, item, batch))
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

    def _take_at_once(self, index: int, item: Authenticated, batch: Batch) -> Taken | None:
        """`_take_one` of nearly all transactions: nobody is asked anything. `None` for the others. Raises `Refused`."""
        parsed = item.examined.parsed
        account = self._accounts.known(parsed.tx.sender)
        if account is None or not parsed.origin.is_sponsored:
            return None
        try:
            return self._reserve(index, item, account, None, batch)
        except Refused as refusal:
            if refusal.reason.code in STALE or (self._simulator and refusal.reason.code in THROTTLED):
                return None
            raise

    async def _take_one(self, index: int, item: Authenticated, batch: Batch) -> Taken:
        """Reserve one transaction. Raises `Refused`, or `_Repeated` when its bytes were accepted before."""
        account = await self._accounts.know(item.tx.sender)
        foreign = item.tx.relayer if not item.parsed.origin.is_sponsored else b""
        payer = await self._accounts.know_payer(foreign) if foreign else None
        try:
            return self._reserve(index, item, account, payer, batch)
        except Refused as refusal:
            first = refusal.reason.code
            if first in THROTTLED:
                if not await self._would_run(item, account, batch):
                    raise
            elif first not in STALE:
                raise
            else:
                await self._raise_if_done(item, account)
                await self._ask_elsewhere(item, account, refusal.reason)
                await self._accounts.refresh(item.tx.sender)
        account = await self._accounts.know(item.tx.sender)
        try:
            return self._reserve(index, item, account, payer, batch)
        except Refused as refusal:
            if refusal.reason.code == reasons.NONCE_TOO_LOW.code != first:  # by the newer knowledge: asked of nobody
                await self._raise_if_done(item, account)
                await self._ask_elsewhere(item, account, refusal.reason)
            raise

    async def _ask_elsewhere(self, item: Authenticated, account: Account, refusal: Reason) -> None:
        """Before a transaction is refused for its account: what other relayers of our keys have of its sender.

        Raises `Refused`, or `_Repeated` when a block has had what another one of them accepted.
        """
        tx, lifecycle, claimed = item.tx, self._lifecycle, None
        try:
            if refusal.code == reasons.NONCE_TOO_LOW.code:
                if tx.relayer in self._relayers().keys:
                    claimed = await lifecycle.claim_elsewhere(tx.sender, tx.nonce, item.parsed.client_hash)
            elif refusal.code == reasons.NONCE_TOO_HIGH.code or lifecycle.inflight.elsewhere(tx.sender):
                await lifecycle.ask_elsewhere(tx.sender, account.nonce)
        except JournalError:
            raise Refused(CLAIMS_UNREAD) from None
        if claimed is not None and claimed.client_hash == item.parsed.client_hash:
            answer = answer_elsewhere(item.parsed, claimed, is_past=True)
            raise _Repeated(answer) if isinstance(answer, Accepted) else Refused(answer)

    async def _would_run(self, item: Authenticated, account: Account, batch: Batch) -> bool:
        """Whether a simulation lets in what else has to wait: the next transaction of a sender, nothing before it.

        Of what is only signed it says nothing, as nobody knows when that will run. What a batch waits for its
        simulations is bounded, as it holds up its client's further parts.
        """
        tx, is_sent = item.tx, item.parsed.origin.kind == "relay"
        if self._simulator is None or not is_sent:
            return False
        if tx.nonce != account.nonce or self._lifecycle.inflight.of_sender(tx.sender):
            return False
        began = time.perf_counter()
        try:
            return await self._simulator.would_run(item.parsed, self._simulator.seconds - batch.simulated)
        finally:
            batch.simulated += time.perf_counter() - began

    def _reserve(self, index: int, item: Authenticated, account: Account, payer: Account | None, batch: Batch) -> Taken:
        """Approve and reserve in one step. Raises `Refused`."""
        existing = self._lifecycle.approvals.existing(item)
        if existing is not None:
            approved = self._lifecycle.approvals.again(item, existing)
            return Taken(index, existing, Reserved(approved), False, batch)
        approved = self._lifecycle.approvals.approve(item, account, payer)
        entry = self._lifecycle.reserve(approved)
        return Taken(index, entry, Reserved(approved), True, batch)

    async def _raise_if_done(self, item: Authenticated, account: Account) -> None:
        """The same bytes as a transaction that is over: the answer is the same as then."""
        with contextlib.suppress(JournalError):
            await self._journal.written()  # its last words may still be on their way to the disk
        accepted = self._finisher.done_before(
            item.tx, item.parsed.client_hash, item.parsed.sdk_hash, is_past=item.tx.nonce < account.nonce
        )
        if accepted is not None:
            raise _Repeated(accepted)

    # ---- journalled → signed → gossiped

    async def finish(self, batch: Batch) -> list[Result]:
        """Write, sign and send what was taken; one result per transaction, in order."""
        await self._finisher.finish(batch.taken, batch.stretch, batch)
        for task in batch.under_way:
            await task
        return batch.answers()

    # ---- several short ones

    async def take_together(self, company: Sequence[tuple[Batch, Raw]]) -> list[Batch]:
        """Take short submissions of several clients, of one transaction to be paid for each, as one.

        They wait for nothing but the signing process. What would have to wait for more is returned, and nothing of it
        was begun: it is to be taken by itself.
        """
        sizes = Counter([batch.origin.ip for batch, _ in company])
        for client in sizes:
            self._company.is_alone(client)  # who comes with others has company
        without = await self._taking.take_together(sizes)
        try:
            begun: list[tuple[Batch, Examined]] = []
            for batch, raw in company:
                item = None if batch.origin.ip in without else self._begin(batch, raw)
                if item is not None:
                    begun.append((batch, item))
            verdicts = await self._verdicts([item for _, item in begun]) if begun else []
            for (batch, item), verdict in zip(begun, verdicts or (), strict=verdicts is not None):
                self._reserve_in_turn(batch, item, verdict)
        finally:
            for client in sizes.keys() - without:
                self._taking.give_back(client, sizes[client])
        return [batch for batch, _ in company if not batch.taken and batch.results[0] is None]

    def _begin(self, batch: Batch, raw: Raw) -> Examined | None:
        """The transaction of a short submission before its signature is checked, if it can go on in company."""
        reason = batch.given_up()
        if reason is not None:
            batch.count_given_up(reason, 1)
            batch.results[0] = reason
            return None
        try:
            item = stages.examine(stages.parse(raw, batch.origin), self._network, self._relayers())
            is_known = self._accounts.known(item.parsed.tx.sender) is not None
        except Refused as refusal:
            batch.results[0] = refusal.reason
            return None
        except Exception:  # a defect, which is told of when this one meets it alone
            return None
        return item if is_known else None

    def _reserve_in_turn(self, batch: Batch, item: Examined, verdict: str) -> None:
        """Reserve the transaction of a short submission or say why not, where one of both can be done at once."""
        try:
            taken = self._take_at_once(0, stages.vouched(item, verdict), batch)
        except Refused as refusal:
            batch.results[0] = refusal.reason
        except Exception:
            return  # as above
        else:
            if taken is not None and taken.is_new:  # what has the bytes of another one waits for that
                batch.taken = [taken]

    async def finish_together(self, batches: Sequence[Batch]) -> list[Batch]:
        """Write, sign and send what `take_together` took; those are returned that are to be finished by themselves."""
        return await self._finisher.finish_together(batches)


class _Repeated(Exception):
    """The same bytes were accepted before, and their transaction is over."""

    def __init__(self, accepted: Accepted) -> None:
        super().__init__("submitted before")
        self.accepted = accepted
