"""The bounded queues and caches of the router."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from libp2p.pubsub.pb import rpc_pb2

from millrace.gossip.queues import BoundedQueue, Lost, SeenCache


def test_seen_ids_expire_from_the_first_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id is known for its time from when it came first, also if it is asked for meanwhile."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    seen = SeenCache(seconds=10, entries=100)
    assert seen.add(b"a")
    now = 1009.0
    assert seen.has(b"a")
    assert not seen.add(b"a")
    now = 1010.5
    assert not seen.has(b"a")
    assert seen.add(b"a")


def test_seen_ids_are_bounded() -> None:
    """Beyond its bound the cache forgets the oldest ids first."""
    seen = SeenCache(seconds=600, entries=100)
    for number in range(250):
        seen.add(number.to_bytes(2, "big"))
    assert seen.length() == 100
    assert [n for n in range(250) if seen.has(n.to_bytes(2, "big"))] == list(range(150, 250))


@given(st.lists(st.one_of(st.none(), st.integers(0, 400)), max_size=60))
def test_queue_of_a_peer_is_bounded_in_frames_and_bytes(steps: list[int | None]) -> None:
    """It refuses what does not fit, except a first frame, and forgets the size of what was taken."""
    queue = BoundedQueue(8, 1000)
    held: list[int] = []

    async def run() -> None:
        for size in steps:
            if size is None:
                if held:
                    taken = await queue.pop()
                    assert taken is not None
                    assert taken.ByteSize() == held.pop(0)
                continue
            rpc = rpc_pb2.RPC(publish=[rpc_pb2.Message(data=bytes(size))])
            fits = len(held) < 8 and (not held or sum(held) + rpc.ByteSize() <= 1000)
            assert queue.push(rpc) == fits
            if fits:
                held.append(rpc.ByteSize())
            assert len(queue) == len(held)

    trio.run(run)


@given(st.lists(st.sampled_from(["message", "control", "take"]), max_size=60))
def test_no_frame_disappears_uncounted(steps: list[str]) -> None:
    """Each frame pushed is either written or counted as lost, whenever the writer ends."""
    queue = BoundedQueue(4, 1000)
    pushed, taken = Lost(), Lost()

    async def run() -> None:
        nonlocal pushed, taken
        for step in steps:
            if step == "take":
                if len(queue):
                    rpc = await queue.pop()
                    assert rpc is not None
                    taken = taken.plus(Lost.of(rpc))
                continue
            rpc = rpc_pb2.RPC(publish=[rpc_pb2.Message(data=b"x")] if step == "message" else [])
            pushed = pushed.plus(Lost.of(rpc))
            queue.push(rpc)

    trio.run(run)
    # What was taken last is not known to be written: nobody came back for more.
    unwritten = Lost.of(queue._writing) if queue._writing is not None else Lost()
    assert queue.abandon().plus(taken) == pushed.plus(unwritten)
    assert not queue.push(rpc_pb2.RPC())
