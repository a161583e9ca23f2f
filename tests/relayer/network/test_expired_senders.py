"""Asking what became of transactions that are sent no more."""

from __future__ import annotations

from typing import Any

from relayer_support import start, submit, transfer, wallet

from millrace.chain import address
from millrace.relayer.network.expired_senders import ExpiredSenders

SENDERS = [wallet(1, number) for number in range(10)]


class Rounds:
    """A relayer that sends nothing of ten senders any more, asked about three at a time, an hour apart."""

    def __init__(self, service: Any) -> None:
        self._given_up = ExpiredSenders(service.lifecycle.inflight, service.accounts)
        self._now = 1e9
        service.accounts._clock = lambda: self._now

    async def next(self) -> None:
        self._now += 3600.0
        await self._given_up.ask(3)


async def given_up(world: Any) -> Rounds:
    await start(world)
    service = world.service
    for pair in SENDERS:
        assert await submit(world, transfer(pair), transfer(pair, 1)) == ["ok", "ok"]
    for entry in service.lifecycle.inflight.entries():
        service.lifecycle.expire(entry)
    service.lifecycle.events_lost()  # else the events would tell
    world.api.asked.clear()
    return Rounds(service)


async def test_everybodys_turn_comes_before_anybodys_second(world: Any) -> None:
    """Senders that never move do not keep the others from being asked about, each once in a turn."""
    rounds = await given_up(world)
    for _ in range(4):
        await rounds.next()
    names = [address.encode(pair.public) for pair in SENDERS]
    assert world.api.asked == [*names, *names[:2]]


async def test_what_the_chain_is_past_is_let_go(world: Any) -> None:
    """The last of many senders moves on the chain, and what it had in flight ends."""
    rounds = await given_up(world)
    world.api.set(SENDERS[-1].public, 2, 10**18)
    for _ in range(4):
        await rounds.next()
    inflight = world.service.lifecycle.inflight
    assert not inflight.of_sender(SENDERS[-1].public) and len(inflight) == 18


async def test_a_question_without_answer_costs_one_turn(world: Any) -> None:
    """While the chain API fails a round ends at the first question, and the next begins with the next sender."""
    rounds = await given_up(world)
    world.api.down = True
    await rounds.next()
    assert world.service.accounts.failures == 1
    world.api.down = False
    await rounds.next()
    assert world.api.asked == [address.encode(pair.public) for pair in SENDERS[1:4]]
