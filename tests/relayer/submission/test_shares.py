"""Fair turns between clients, and whether one is alone."""

from __future__ import annotations

import asyncio

from millrace.relayer.submission.shares import Company, Shares


async def test_row_23_shares_of_clients() -> None:
    """A client has its share under way, the rest in its order, others beside; nothing is kept afterwards."""
    shares, events = Shares(4), []
    gates = [asyncio.Event() for _ in range(5)]

    async def work(client: str, number: int, size: int) -> None:
        await shares.take(client, size)
        events.append(number)
        await gates[number].wait()
        shares.give_back(client, size)

    plan = [("a", 3), ("a", 2), ("a", 1), ("b", 9), ("a", 4)]
    tasks = [asyncio.create_task(work(client, number, size)) for number, (client, size) in enumerate(plan)]
    await asyncio.sleep(0)
    assert events == [0, 3], "two more would be too much, one more has to wait its turn; too large a piece comes alone"
    tasks[1].cancel()
    gates[0].set()
    await asyncio.gather(*tasks[:2], return_exceptions=True)
    await asyncio.sleep(0)
    assert events == [0, 3, 2], "who left the queue holds up nobody"
    for gate in gates:
        gate.set()
    await asyncio.gather(*tasks[2:])
    assert events == [0, 3, 2, 4] and len(shares) == 0


async def test_row_23_a_share_is_not_lost_when_its_turn_and_its_end_come_together() -> None:
    """Who is cancelled at the moment its turn comes gives its share back."""
    shares = Shares(1)
    await shares.take("a", 1)
    waiting = asyncio.create_task(shares.take("a", 1))
    await asyncio.sleep(0)
    shares.give_back("a", 1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled() and len(shares) == 0


def test_row_23_company_of_a_client() -> None:
    """A client is alone when for a while nobody else has asked; one question of another's ends that for both."""
    times = [0.0, 0.2, 0.25, 0.3, 0.31, 0.54, 0.56, 9.0]
    company = Company(0.25, clock=iter(times).__next__)
    alone = [company.is_alone(client) for client in "aaabaaab"]
    assert alone == [True, True, True, False, False, False, True, True]
