"""Accounts that blocks leave out: asked for a few at a time, each for its newest block, and told once known."""

from __future__ import annotations

from typing import Any

from millrace.relayer.events.absent_accounts import MAX_WANTED, PER_TURN, AbsentAccounts, Where
from millrace.relayer.ledger.accounts import AccountBook
from millrace.relayer.network.account_source import LAG_SECONDS

Answer = tuple[bytes, int, int, Where]


class Source:
    """A source whose chain API answers or does not; `asked` is by whom."""

    def __init__(self) -> None:
        self.book = AccountBook()
        self.now = 0.0
        self.down = False
        self.balance = 4
        self.asked: list[bytes] = []

    async def refresh(self, pubkey: bytes) -> bool:
        self.asked.append(pubkey)
        if not self.down:
            self.book.learn_from_api(pubkey, 3, self.balance, self.book.get(pubkey), self.now)
        return True


def absent() -> tuple[AbsentAccounts, Source, list[Answer]]:
    source = Source()
    accounts: Any = AbsentAccounts(source, lambda: source.now)  # type: ignore[arg-type]
    answers: list[Answer] = []
    accounts.on_answer = lambda *answer: answers.append(answer)
    return accounts, source, answers


def at(number: int, since: float = 0.0) -> Where:
    return Where(1, number * 600, bytes([number]), since)


async def test_a_busy_account_is_asked_for_once_a_turn() -> None:
    """However many blocks name an account, a turn asks once, for the newest."""
    accounts, source, answers = absent()
    for number in range(1, 6):
        accounts.want(b"a", at(number))
    await accounts.turn()
    await accounts.turn()
    assert source.asked == [b"a"] and answers == [(b"a", 3, 4, at(5))]


async def test_a_turn_asks_for_few() -> None:
    """Those that wait longest come first, so many in a turn."""
    accounts, source, _ = absent()
    keys = [bytes([number]) for number in range(PER_TURN + 3)]
    for key in keys:
        accounts.want(key, at(1))
    accounts.want(keys[0], at(2))
    await accounts.turn()
    assert source.asked == keys[:PER_TURN] and len(accounts) == 3
    await accounts.turn()
    assert source.asked == keys and len(accounts) == 0


async def test_what_is_not_answered_is_asked_again() -> None:
    """No answer, or one from before the block, is none: the account waits behind the others, for its newest block."""
    accounts, source, answers = absent()
    source.down = True
    accounts.want(b"a", at(1, since=5.0))
    await accounts.turn()
    assert len(accounts) == 1 and answers == []
    source.down, source.now = False, 4.0
    await accounts.turn()
    assert answers == [] and len(accounts) == 1
    source.now = 5.0
    await accounts.turn()
    assert answers == [(b"a", 3, 4, at(1, since=5.0))]


async def test_row_33_what_waits_is_bounded() -> None:
    """Beyond the bound the one that waited longest is forgotten and counted; its next block asks again."""
    accounts, source, _ = absent()
    for number in range(MAX_WANTED + 2):
        accounts.want(number.to_bytes(4, "big"), at(1))
    assert len(accounts) == MAX_WANTED and accounts.forgotten == 2
    await accounts.turn()
    assert source.asked[0] == (2).to_bytes(4, "big")


async def test_an_answer_of_before_the_block_is_mended() -> None:
    """A chain API that was behind is asked once more when it can be so no longer: what it says then is told, once."""
    accounts, source, answers = absent()
    source.now = 100.0
    accounts.want(b"a", at(1, since=100.0))
    await accounts.turn()
    assert answers == [(b"a", 3, 4, at(1, since=100.0))]
    source.balance = 3
    source.now += LAG_SECONDS - 1
    await accounts.turn()
    assert len(answers) == 1, "not due yet"
    source.now += 1
    await accounts.turn()
    await accounts.turn()
    assert answers[1:] == [(b"a", 3, 3, at(1, since=100.0))] and len(source.asked) == 2


async def test_a_right_answer_is_told_once() -> None:
    """What the second answer says again is not told again, and a newer block's question takes its place."""
    accounts, source, answers = absent()
    for number in (1, 2):
        accounts.want(b"a", at(number, since=source.now))
        await accounts.turn()
        source.now += 1
    source.now += LAG_SECONDS
    await accounts.turn()
    assert [answer[3] for answer in answers] == [at(1, since=0.0), at(2, since=1.0)] and len(source.asked) == 3
