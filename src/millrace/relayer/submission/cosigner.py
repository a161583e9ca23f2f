"""From a row in the journal to a signature and on to the network: of a submission's entries, and of those left over.

An entry is left over when the signing process, or the whole service, went away between its row and its signature.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Reason
from millrace.relayer.rules.slices import PART
from millrace.relayer.signing.handle import SignerError, SigningProcess
from millrace.relayer.signing.wire import Answer
from millrace.runtime.tasks import end_tasks

log = logging.getLogger(__name__)

MAX_TOLD = 8
"""Reasons of refusals that are logged at once."""
TELLING_SECONDS = 5.0
"""For so long the end of the service waits for the claims' server to hear of what was refused."""


class Cosigner:
    """Asks the signing process, of which there may be another each time, and sends what is signed."""

    def __init__(
        self, lifecycle: Lifecycle, signer: Callable[[], SigningProcess | None], send: Callable[[Entry], None]
    ) -> None:
        self._lifecycle = lifecycle
        self._signer = signer
        self._send = send
        self._refusals: Counter[str] = Counter()
        """Of what was missed, when it was asked for last."""
        self._telling: set[asyncio.Task[None]] = set()
        """The event loop alone does not hold them."""

    async def check(self, transactions: list[bytes]) -> list[str] | None:
        """What the signing process says of the signatures of transactions in protobuf form, see `SigningProcess`.

        `None` when it does not answer.
        """
        signer = self._signer()
        if signer is None:
            return None
        try:
            return await signer.check(transactions)
        except SignerError:
            return None

    async def sign(self, entries: list[Entry]) -> dict[Entry, str]:
        """Have journalled entries signed; of each why it was refused, or an empty text.

        That nothing will come of what was refused is told by itself: it takes as long as the claims' server is away.
        Raises `SignerError` when no answer came: then it is not known whether anything was signed.
        """
        signer = self._signer()
        if signer is None:
            raise SignerError("this relayer has no keys")
        answers = await _ask(signer, entries)
        signatures = []
        refused: dict[Entry, Reason] = {}
        for entry, answer in zip(entries, answers, strict=True):
            if answer.refusal:
                entry.sign_requests -= 1  # nothing was signed
                if self._lifecycle.withdraw(entry):
                    refused[entry] = reasons.SIGNER_REFUSED.but(answer.refusal)
            else:
                signatures.append((entry, answer.signature))
        self._lifecycle.cosigned(signatures)
        if refused:
            self._tell(refused)
        return {entry: answer.refusal for entry, answer in zip(entries, answers, strict=True)}

    def _tell(self, refused: Mapping[Entry, Reason]) -> None:
        task = asyncio.create_task(self._lifecycle.withdrawn(refused))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def tell_doubted(self) -> None:
        """Tell what was refused and is in doubt since then, if it can be told now."""
        if doubted := self._lifecycle.doubted():
            self._tell(doubted)

    async def close(self) -> None:
        """What was refused is told, or stays in doubt."""
        if self._telling:
            await asyncio.wait(self._telling, timeout=TELLING_SECONDS)
        await end_tasks(self._telling)

    def send(self, entry: Entry) -> None:
        """Put an entry that has all its signatures on the network, unless that is already going on."""
        if not entry.sending and entry.state != "over":
            self._lifecycle.on_its_way(entry)
            self._send(entry)

    async def recover(self) -> None:
        """After a start: sign what was journalled and never signed, send what may not have been sent."""
        await self.sign_missed()
        self._send_waiting(self._lifecycle.inflight.entries())

    async def sign_missed(self) -> None:
        """Sign and send what was journalled and is not signed, but for what is being signed.

        The signing process was away, or refused what it may have signed before a restart: by a policy that may be
        another one now.
        """
        self.tell_doubted()
        if self._signer() is None:
            return
        missed = [entry for entry in self._lifecycle.inflight.entries() if _is_missed(entry)]
        refusals: Counter[str] = Counter()
        try:
            for start in range(0, len(missed), PART):
                part = [entry for entry in missed[start : start + PART] if _is_missed(entry)]
                refusals.update(filter(None, (await self.sign(part)).values()))
                self._send_waiting(part)
        except SignerError as error:
            log.error("what was journalled is not signed yet", extra={"reason": str(error)})
            return
        if refusals != self._refusals:
            for reason, count in refusals.most_common(MAX_TOLD):
                log.warning("what was journalled is not signed", extra={"reason": reason, "count": count})
        self._refusals = refusals

    def _send_waiting(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.broadcast and entry.state == "signed":
                self.send(entry)


def _is_missed(entry: Entry) -> bool:
    return entry.state == "journalled" and not entry.asking


async def _ask(signer: SigningProcess, entries: list[Entry]) -> list[Answer]:
    """The signing process's answers; whatever comes of it, the entries were asked for. Raises `SignerError`."""
    for entry in entries:
        entry.sign_requests += 1
        entry.asking += 1
    try:
        return await signer.sign([entry.proto for entry in entries])
    except SignerError:
        for entry in entries:
            entry.sign_requests -= 1  # what nobody has read is in nobody's hands
        raise
    finally:
        for entry in entries:
            entry.asking -= 1
