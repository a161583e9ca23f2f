"""Questions of what is claimed: one statement for all that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, cast

import pytest

from millrace.relayer.journal import questions
from millrace.relayer.journal.claim_rows import Claimed
from millrace.relayer.journal.questions import Questions
from millrace.relayer.journal.seats import Seats
from millrace.relayer.journal.writer import JournalFull
from millrace.runtime.postgres import Damaged, Unavailable

Asked = tuple[bytes, int, int]


class Server:
    """Answers statements; what is asked of `broken` senders cannot be read."""

    def __init__(self) -> None:
        self.statements: list[int] = []
        self.broken: set[bytes] = set()
        self.error: OSError | None = None

    async def claimed(self, asked: Collection[Asked]) -> dict[bytes, dict[int, Claimed]]:
        self.statements.append(len(asked))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if any(sender in self.broken for sender, _, _ in asked):
            raise Damaged("it cannot be read")
        return {sender: {at: Claimed(sender, at, "relay", "journalled", None, None) for at in range(9)}
                for sender, _, _ in asked}  # fmt: skip


def about(server: Server) -> tuple[Questions, asyncio.Lock]:
    turn = asyncio.Lock()
    return Questions(cast(Seats, server), turn), turn


async def waiting(asked: Questions, senders: Collection[bytes], turn: asyncio.Lock) -> list[Any]:
    """What all get that ask while the connection is somebody else's."""
    async with turn:
        tasks = [asyncio.ensure_future(asked.about(sender, 2, 4)) for sender in senders]
        await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_all_that_wait_are_one_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each hears of its own nonces; of more than go into a statement the next ones are another."""
    monkeypatch.setattr(questions, "AT_ONCE", 3)
    server = Server()
    asked, turn = about(server)
    answers = await waiting(asked, [b"a", b"b", b"a", b"c", b"d"], turn)
    assert [sorted(answer) for answer in answers] == [[2, 3, 4]] * 5
    assert [answer[2].client_hash for answer in answers] == [b"a", b"b", b"a", b"c", b"d"]
    assert server.statements == [2, 2], "the same question is asked once"
    assert asked._waiting == []


async def test_what_is_asked_during_a_statement_is_asked_anew() -> None:
    """An answer is never older than its question."""
    server = Server()
    asked, _ = about(server)
    first = asyncio.ensure_future(asked.about(b"a", 0, 1))
    while not server.statements:
        await asyncio.sleep(0)
    await asyncio.gather(first, asked.about(b"a", 0, 1))
    assert server.statements == [1, 1]


async def test_what_cannot_be_read_is_told_to_who_asked_for_it() -> None:
    """A damaged claim of one sender is in nobody else's way."""
    server = Server()
    server.broken = {b"b"}
    asked, turn = about(server)
    answers = await waiting(asked, [b"a", b"b", b"c"], turn)
    assert [isinstance(answer, Damaged) for answer in answers] == [False, True, False]
    assert server.statements == [3, 1, 1, 1]


async def test_a_server_that_is_away_is_asked_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the patience of those before it, also who would be asked for with the next statement."""
    monkeypatch.setattr(questions, "AT_ONCE", 2)
    server = Server()
    server.error = Unavailable("away")
    asked, turn = about(server)
    answers = await waiting(asked, [b"a", b"b", b"c"], turn)
    assert [type(answer) for answer in answers] == [Unavailable] * 3 and server.statements == [2]
    server.error = None
    assert sorted(await asked.about(b"a", 2, 4)) == [2, 3, 4], "the next one asks anew"


async def test_a_server_that_goes_away_while_each_is_asked_alone_is_asked_once() -> None:
    """After a damaged claim the questions of a statement go alone: not those of a server that is away since then."""
    server = Server()
    server.error = Damaged("it cannot be read")
    asked, turn = about(server)
    claimed = server.claimed

    async def then_away(wanted: Collection[Asked]) -> dict[bytes, dict[int, Claimed]]:
        if server.statements:
            server.error = Unavailable("away")
        return await claimed(wanted)

    server.claimed = then_away  # type: ignore[method-assign]
    answers = await waiting(asked, [b"a", b"b", b"c"], turn)
    assert [type(answer) for answer in answers] == [Unavailable] * 3 and server.statements == [3, 1]


async def test_who_leaves_takes_nobodys_answer() -> None:
    """Also in the middle of the statement: the next one asks for those who are left."""
    server = Server()
    asked, turn = about(server)
    async with turn:
        tasks = [asyncio.ensure_future(asked.about(sender, 0, 1)) for sender in (b"a", b"b", b"c")]
        await asyncio.sleep(0)
    while not server.statements:
        await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[2].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(answers[1]) == [0, 1] and server.statements == [3, 1] and asked._waiting == []


async def test_questions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes when too many wait is refused at once."""
    monkeypatch.setattr(questions, "MAX_WAITING", 2)
    server = Server()
    asked, turn = about(server)
    answers = await waiting(asked, [b"a", b"b", b"c"], turn)
    assert [type(answer) for answer in answers] == [dict, dict, JournalFull]
