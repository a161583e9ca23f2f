"""Bytes of each client: what is half sent, and what it was sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.relayer.gateway.traffic import Egress, HeldBytes


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans()), max_size=60))
def test_row_26_held_bytes(steps: list[tuple[str, int, bool]]) -> None:
    """Nobody holds more than one may, all together not more than all may, and who holds nothing leaves nothing."""
    held, mine = HeldBytes(12, 20), dict.fromkeys("abc", 0)
    for client, size, take in steps:
        if take:
            fits = mine[client] + size <= 12 and sum(mine.values()) + size <= 20
            assert held.take(client, size) == fits
            mine[client] += size if fits else 0
        else:
            held.give(client, mine[client])
            mine[client] = 0
        assert held.total == sum(mine.values())
        assert len(held._held) == sum(1 for size in mine.values() if size)


def test_row_33_egress_is_a_leaky_bucket() -> None:
    """A client with all its connections is over until so much has drained; gone and even, it is forgotten."""
    egress = Egress(rate=10.0, burst=100.0, now=0.0)
    first, second, other = egress.enter("a"), egress.enter("a"), egress.enter("b")
    assert first is second is not other
    first.spent += 130
    egress.drain(2.0)
    assert first.is_over and not other.is_over and first.spent == 110
    egress.drain(4.0)
    assert not first.is_over and first.spent == 90
    first.connections -= 2
    other.connections -= 1
    egress.drain(5.0)
    assert len(egress) == 1, "who has left and is not forgiven yet is remembered"
    egress.drain(20.0)
    assert len(egress) == 0
