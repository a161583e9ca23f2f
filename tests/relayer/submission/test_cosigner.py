"""Entries get their signatures and leave, also those that were left over when the signing process went away."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from relayer_support import transfer, wallet

from millrace.chain.transaction import client_hash, to_proto
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.protocol.reasons import Reason
from millrace.relayer.rules.slices import PART
from millrace.relayer.signing.handle import SignerError
from millrace.relayer.signing.wire import Answer
from millrace.relayer.submission.cosigner import Cosigner


def entry(nonce: int, state: Any = "journalled", *, broadcast: bool = True) -> Entry:
    tx = transfer(wallet(1), nonce=nonce)
    return Entry(tx, to_proto(tx), client_hash(tx), "relay", 1, 1, 100, 0, state=state, broadcast=broadcast)


class Signer:
    """A signing process that refuses some, and goes away after so many questions."""

    def __init__(self, refused: tuple[bytes, ...] = (), questions: int = 1_000) -> None:
        self.refused, self.questions = refused, questions
        self.asked: list[list[bytes]] = []

    async def sign(self, transactions: list[bytes]) -> list[Answer]:
        if len(self.asked) >= self.questions:
            raise SignerError("it went down")
        self.asked.append(transactions)
        return [Answer(refusal="no" if item in self.refused else "", signature=b"s") for item in transactions]

    async def check(self, transactions: list[bytes]) -> list[str]:
        if not self.questions:
            raise SignerError("it went down")
        return ["" for _ in transactions]


class Around:
    """A cosigner, and a lifecycle that notes what it is told."""

    def __init__(self, signer: Signer | None, *entries: Entry) -> None:
        self.signer = signer
        self.withdrawn: list[Entry] = []
        self.sent: list[Entry] = []
        self.knows = asyncio.Event()
        """The claims' server, of what was refused."""
        self.knows.set()
        lifecycle = SimpleNamespace(
            inflight=SimpleNamespace(entries=lambda: list(entries)),
            withdraw=self._withdraw,
            withdrawn=self._told,
            doubted=dict,
            cosigned=lambda signed: [setattr(item, "state", "signed") for item, _ in signed],
            on_its_way=lambda item: setattr(item, "sending", True),
        )
        self.cosigner = Cosigner(cast(Any, lifecycle), lambda: cast(Any, self.signer), self.sent.append)

    def _withdraw(self, item: Entry) -> bool:
        item.state = "over"
        return True

    async def _told(self, refused: dict[Entry, Reason]) -> None:
        await self.knows.wait()
        assert all((reason.code, reason.detail) == ("signer_refused", "no") for reason in refused.values())
        self.withdrawn += refused


async def test_each_entry_is_signed_or_withdrawn() -> None:
    """What the signing process refuses is withdrawn, the rest is co-signed; that it may be signed is kept."""
    good, bad = entry(0), entry(1)
    around = Around(Signer(refused=(bad.proto,)))
    assert await around.cosigner.sign([good, bad]) == {good: "", bad: "no"}
    await around.cosigner.close()
    assert good.state == "signed" and around.withdrawn == [bad] and not around.sent
    assert [(item.sign_requests, item.asking) for item in (good, bad)] == [(1, False), (0, False)]


async def test_who_got_no_answer_has_no_signature() -> None:
    """What nobody has read is in nobody's hands: the entry stays journalled, as if it had not been asked for."""
    item = entry(0)
    around = Around(Signer(questions=0))
    with pytest.raises(SignerError):
        await around.cosigner.sign([item])
    assert (item.state, item.sign_requests, item.asking) == ("journalled", 0, False)


async def test_without_a_signing_process_nothing_was_asked() -> None:
    """A relayer without keys says so; no entry counts as asked for, and nobody vouches for signatures."""
    item = entry(0)
    around = Around(None, item)
    with pytest.raises(SignerError, match="no keys"):
        await around.cosigner.sign([item])
    await around.cosigner.sign_missed()
    assert item.sign_requests == 0 and await around.cosigner.check([item.proto]) is None
    around.signer = Signer(questions=0)
    assert await around.cosigner.check([item.proto]) is None
    around.signer = Signer()
    assert await around.cosigner.check([item.proto]) == [""]


async def test_what_was_missed_is_signed_in_parts_and_sent() -> None:
    """Only journalled entries nobody is asking for; sent is what is to be broadcast; an outage keeps the rest."""
    items = [entry(nonce) for nonce in range(2 * PART)]
    asking, quiet = entry(100), entry(101, broadcast=False)
    asking.asking = True
    around = Around(Signer(questions=1), asking, *items[:1], quiet, *items[1:])
    await around.cosigner.sign_missed()
    assert around.sent == items[: PART - 1] and quiet.state == "signed" and asking.state == "journalled"
    assert all(item.state == "journalled" for item in items[PART - 1 :])
    around.signer = Signer()
    await around.cosigner.sign_missed()
    assert around.sent == items and [len(part) for part in around.signer.asked] == [PART, 1]


async def test_what_was_missed_is_sent_while_it_is_not_known_what_a_refusal_means() -> None:
    """However long the claims' server is away, and the end of the service waits for it up to a bound."""
    bad, good = entry(0), entry(1)
    around = Around(Signer(refused=(bad.proto,)), bad, good)
    around.knows.clear()
    await asyncio.wait_for(around.cosigner.sign_missed(), 10)
    assert around.sent == [good] and not around.withdrawn
    around.knows.set()
    await around.cosigner.close()
    assert around.withdrawn == [bad]


async def test_a_start_sends_what_was_signed_before_it() -> None:
    """Signed entries that may not have left are sent once, those that are over or only signed are not."""
    signed, over, quiet = entry(0, "signed"), entry(1, "over"), entry(2, "signed", broadcast=False)
    around = Around(Signer(), signed, over, quiet)
    await around.cosigner.recover()
    await around.cosigner.recover()
    around.cosigner.send(over)
    assert around.sent == [signed] and not cast(Signer, around.signer).asked
