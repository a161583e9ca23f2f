"""Short submissions of several clients through the stages together: each has the result that it has by itself."""

from __future__ import annotations

from typing import Any

import msgspec
from relayer_support import raw, sign, start, submit, transfer, wallet

from millrace.chain.transaction import Transaction
from millrace.relayer.journal.writer import JournalError
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Reason
from millrace.relayer.rules.stages import Origin
from millrace.relayer.signing.handle import SignerError
from millrace.relayer.submission.batch import Accepted, Batch
from millrace.relayer.submission.finisher import FINISHING

SENDERS = [wallet(1, number) for number in range(5)]


async def known(world: Any, policy: str = "", **changes: Any) -> None:
    """A relayer that has accepted something of each sender, whose accounts it knows."""
    await start(world, policy, **changes)
    for sender in SENDERS:
        assert await submit(world, transfer(sender)) == ["ok"]


def company(*txs: Transaction, ip: str = "") -> list[tuple[Batch, msgspec.Raw]]:
    """A submission of each transaction, of a client each or all of one."""
    return [(Batch(Origin("relay", ip or f"ip{number}"), 1, None), raw(tx)) for number, tx in enumerate(txs)]


async def together(world: Any, group: list[tuple[Batch, msgspec.Raw]]) -> list[str]:
    """What each is answered; `apart` what is to go by itself."""
    submitter = world.service.submitter
    apart = await submitter.take_together(group)
    taken = [batch for batch, _ in group if batch.taken]
    apart += await submitter.finish_together(taken)
    return ["apart" if batch in apart else outcome(batch.answers()[0]) for batch, _ in group]


def outcome(result: Any) -> str:
    return "ok" if isinstance(result, Accepted) and result.chain_hash else str(result.reason)


async def test_all_of_a_group_share_a_change_of_the_journal_and_two_questions(world: Any, monkeypatch: Any) -> None:
    """Their signatures are checked with one question, they are one change of the journal, and signed with one."""
    await known(world)
    service = world.service
    calls: list[tuple[str, int]] = []

    def watch(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        async def noted(items: Any, *rest: Any) -> Any:
            calls.append((name, len(items)))
            return await call(items, *rest)

        monkeypatch.setattr(owner, name, noted)

    watch(service.journal, "append")
    watch(service.signer, "check")
    watch(service.signer, "sign")
    group = company(*(transfer(sender, 1) for sender in SENDERS))
    assert await together(world, group) == ["ok"] * len(SENDERS)
    assert calls == [("check", 5), ("append", 5), ("sign", 5)]


async def test_each_refusal_is_its_own(world: Any) -> None:
    """Who cannot be read, is signed by another, or is given up changes nothing for the others."""
    await known(world)
    wrong = sign(transfer(SENDERS[1], 1), SENDERS[2])
    group = company(transfer(SENDERS[0], 1), wrong, transfer(SENDERS[2], 1), transfer(SENDERS[3], 1, gas_price=1))
    gone = Batch(Origin("relay", "ip"), 1, None, lambda: reasons.BUSY)
    group.append((gone, raw(transfer(SENDERS[4], 1))))
    assert await together(world, group) == ["ok", "invalid signature", "ok", "gas price too low", "relayer busy"]
    assert gone.unserved == 1


async def test_what_has_to_wait_for_more_is_not_begun(world: Any) -> None:
    """Accounts that nobody knows, news of them that could help, and another's same bytes: all of them go apart."""
    await known(world)
    first = transfer(SENDERS[0], 1)
    group = company(first, transfer(wallet(2, 7)), transfer(SENDERS[1], 3), first)
    assert await together(world, group) == ["ok", "apart", "apart", "apart"]
    assert [batch.results for batch, _ in group[1:]] == [[None]] * 3
    assert await submit(world, transfer(wallet(2, 7)), first) == ["ok", "ok"]


async def test_a_defect_with_one_is_left_to_itself(world: Any, monkeypatch: Any) -> None:
    """It goes apart, where it is told of, and the others go on."""
    await known(world)
    known_before = world.service.accounts.known

    def failing(sender: bytes) -> Any:
        assert sender != SENDERS[0].public
        return known_before(sender)

    monkeypatch.setattr(world.service.accounts, "known", failing)
    group = company(transfer(SENDERS[0], 1), transfer(SENDERS[1], 1))
    assert await together(world, group) == ["apart", "ok"]


async def test_row_23_nobody_waits_for_another_clients_share(world: Any) -> None:
    """Who has too much under way goes apart, also when only journal and signature are left to do."""
    await known(world)
    submitter = world.service.submitter
    finishing = submitter._finisher._shares
    await finishing.take("ip0", FINISHING)
    group = company(transfer(SENDERS[0], 1), transfer(SENDERS[1], 1))
    assert await together(world, group) == ["apart", "ok"]
    finishing.give_back("ip0", FINISHING)
    assert [outcome(result) for result in await submitter.finish(group[0][0])] == ["ok"]
    assert len(finishing) == len(submitter._taking) == 0


async def test_a_journal_that_takes_one_less_tells_that_one(world: Any, monkeypatch: Any) -> None:
    """A nonce that was signed before is refused alone; a disk that fails refuses all, and nothing stays taken."""
    await known(world)
    service = world.service
    taken = transfer(SENDERS[0], 1, data=b"the other", gas_limit=200_000)
    assert await submit(world, taken) == ["ok"]
    entry = service.lifecycle.inflight.of_sender(SENDERS[0].public)[1]
    service.lifecycle.inflight.remove(entry)  # as a block that is taken back again
    group = company(transfer(SENDERS[0], 1), transfer(SENDERS[1], 1))
    assert await together(world, group) == ["nonce too low", "ok"]

    async def failing(*_: Any) -> None:
        raise JournalError("the disk is gone")

    monkeypatch.setattr(service.journal, "append", failing)
    group = company(transfer(SENDERS[1], 2), transfer(SENDERS[2], 1))
    assert await together(world, group) == ["not ready"] * 2
    monkeypatch.undo()
    assert await submit(world, transfer(SENDERS[1], 2), transfer(SENDERS[2], 1)) == ["ok"] * 2


async def test_a_group_without_an_answer_of_the_signing_process_is_pending(world: Any, monkeypatch: Any) -> None:
    """It is journalled, and so accepted: each is told so, as by itself."""
    await known(world)

    async def lost(*_: Any) -> Any:
        raise SignerError("it went down")

    monkeypatch.setattr(world.service.signer, "sign", lost)
    group = company(*(transfer(sender, 1) for sender in SENDERS[:2]))
    submitter = world.service.submitter
    assert await submitter.take_together(group) == []
    assert await submitter.finish_together([batch for batch, _ in group]) == []
    results = [batch.answers()[0] for batch, _ in group]
    assert all(isinstance(result, Accepted) and not result.chain_hash for result in results)
    assert not any(isinstance(result, Reason) for result in results)
