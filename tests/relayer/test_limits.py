"""Limits over time: exact windows and bounded buckets."""

from __future__ import annotations

import asyncio
import math

from hypothesis import given
from hypothesis import strategies as st

from millrace.relayer.limits import Company, Shares, SlidingWindow, TokenBuckets


@given(st.lists(st.floats(0, 3), max_size=200), st.integers(1, 5))
def test_window_never_exceeds_its_limit(pauses: list[float], limit: int) -> None:
    """In no window of five seconds more than the limit is admitted, and what fits is never refused."""
    window = SlidingWindow(limit, 5.0)
    now = 0.0
    admitted: list[float] = []
    for pause in pauses:
        now += pause
        recent = [time for time in admitted if time > now - 5.0]
        wait = window.admit(now)
        assert (wait == 0.0) == (len(recent) < limit)
        if wait == 0.0:
            admitted.append(now)
        else:
            assert abs(wait - (recent[0] + 5.0 - now)) <= 0.001


def test_the_64th_control_message_passes_and_the_65th_waits() -> None:
    """64 in five seconds, and the 65th as soon as the first is five seconds old."""
    window = SlidingWindow(64)
    assert [window.admit(0.0) for _ in range(64)] == [0.0] * 64
    assert window.admit(4.999) > 0
    assert window.admit(5.0) == 0.0


def test_bucket_takes_all_or_nothing() -> None:
    """A cost beyond what is left takes nothing and says how long to wait."""
    buckets = TokenBuckets(rate=10.0, burst=20.0)
    assert buckets.take("a", 20, 0.0) == 0.0
    assert buckets.take("a", 5, 0.0) == 0.5
    assert buckets.take("a", 5, 0.5) == 0.0
    assert buckets.take("b", 20, 0.0) == 0.0
    assert buckets.take("a", 21, 100.0) == math.inf


def test_buckets_are_bounded() -> None:
    """Beyond the bound the bucket unused for longest is forgotten."""
    buckets = TokenBuckets(rate=1.0, burst=1.0, max_names=2)
    for name in ("a", "b", "c"):
        assert buckets.take(name, 1, 0.0) == 0.0
    assert buckets.take("c", 1, 0.0) > 0
    assert buckets.take("a", 1, 0.0) == 0.0


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
