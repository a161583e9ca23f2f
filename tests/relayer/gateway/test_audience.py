"""The conflated lane: each round reaches who has taken everything before, once, and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from millrace.relayer.gateway.audience import SLICE, Audience
from millrace.relayer.gateway.traffic import Egress, Meter


class Reader:
    """A listener that keeps what it was sent, and does what it is told to when something comes."""

    def __init__(self, meter: Meter | None = None) -> None:
        self.meter = meter
        self.buffered = 0
        self.heard: list[bytes] = []
        self.when_written: Callable[[], None] = lambda: None

    def write(self, frames: bytes) -> None:
        self.heard.append(frames)
        self.when_written()


def an_audience(egress: Egress | None = None) -> Audience:
    return Audience(Egress(1.0, 1.0, 0.0) if egress is None else egress)


STEPS = st.lists(
    st.tuples(st.sampled_from(["join", "leave", "block", "drain", "send"]), st.integers(0, 4)), max_size=60
)


@given(STEPS, st.lists(st.booleans(), min_size=5, max_size=5))
def test_row_27_a_round_reaches_who_is_ready(steps: list[tuple[str, int]], is_metered: list[bool]) -> None:
    """In any order of joining, leaving, falling behind and catching up, whoever is ready hears a round exactly once."""
    egress = Egress(1.0, 1e9, 0.0)
    audience = an_audience(egress)
    readers = [Reader(egress.enter("client") if metered else None) for metered in is_metered]
    members, expected, left_out = set[int](), [0] * 5, 0
    for action, number in steps:
        reader = readers[number]
        if action == "join" and number not in members:
            audience.join(reader)
            members.add(number)
        elif action == "leave":
            audience.leave(reader)
            members.discard(number)
        elif action == "block" and not reader.buffered:
            reader.buffered = 1
            audience.fall_behind(reader)
        elif action == "drain" and reader.buffered:
            reader.buffered = 0
            audience.catch_up(reader)
        elif action == "send":
            asyncio.run(audience.send(b"12345"))
            ready = {member for member in members if not readers[member].buffered}
            left_out += len(members - ready)
            for member in ready:
                expected[member] += 1
        assert len(audience) == len(members)
    assert [len(reader.heard) for reader in readers] == expected
    assert audience.left_out == left_out
    metered_rounds = sum(count for count, metered in zip(expected, is_metered, strict=True) if metered)
    assert egress.enter("client").spent == 5 * metered_rounds


async def test_row_27_changes_during_a_round() -> None:
    """Who leaves or falls behind while a round goes on is not written to any more; who only fell behind is counted."""
    audience = an_audience()
    readers = [Reader() for _ in range(2 * SLICE)]
    for reader in readers:
        audience.join(reader)
    gone, slow, recovered, already = readers[-1], readers[-2], readers[-3], readers[0]

    def change() -> None:
        audience.leave(gone)
        for reader in (slow, recovered, already):
            audience.fall_behind(reader)
        audience.catch_up(recovered)

    readers[1].when_written = change
    await audience.send(b"first")
    assert [len(reader.heard) for reader in (gone, slow, recovered, already)] == [0, 0, 0, 1]
    assert sum(len(reader.heard) for reader in readers) == 2 * SLICE - 3
    assert audience.left_out == 2
    readers[1].when_written = lambda: None
    await audience.send(b"second")
    assert [reader.heard for reader in (gone, slow, recovered, already)] == [[], [], [b"second"], [b"first"]]
    assert audience.left_out == 4


async def test_row_27_others_get_their_turn_during_a_round() -> None:
    """A round to many is written in slices, between which everything else goes on."""
    audience = an_audience()
    readers = [Reader() for _ in range(3 * SLICE)]
    for reader in readers:
        audience.join(reader)
    seen = []
    sending = asyncio.ensure_future(audience.send(b"x"))
    while not sending.done():
        await asyncio.sleep(0)
        seen.append(sum(len(reader.heard) for reader in readers))
    assert seen[:3] == [SLICE, 2 * SLICE, 3 * SLICE]


async def test_row_27_one_that_joins_with_something_waiting() -> None:
    """Whoever joins before it has taken what was sent, is behind from the start."""
    audience, reader = an_audience(), Reader()
    reader.buffered = 1
    audience.join(reader)
    await audience.send(b"first")
    reader.buffered = 0
    audience.catch_up(reader)
    await audience.send(b"second")
    assert reader.heard == [b"second"] and audience.left_out == 1


async def test_row_33_clients_sent_too_much_are_left_out() -> None:
    """No listener of a client that was sent too much hears a round, which is counted; those of others do."""
    egress = Egress(rate=1.0, burst=10.0, now=0.0)
    audience = an_audience(egress)
    readers = [Reader(egress.enter(client)) for client in "aab"] + [Reader()]
    for reader in readers:
        audience.join(reader)
    await audience.send(b"123456")
    egress.drain(0.0)
    await audience.send(b"123456")
    assert [len(reader.heard) for reader in readers] == [1, 1, 2, 2]
    assert (egress.skipped, audience.left_out) == (2, 2)
