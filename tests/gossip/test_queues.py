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
                    count = len(taken.publish)
                    assert taken.ByteSize() == sum(held[:count])
                    del held[:count]
                continue
            rpc = rpc_pb2.RPC(publish=[rpc_pb2.Message(data=bytes(size))])
            fits = len(held) < 8 and (not held or sum(held) + rpc.ByteSize() <= 1000)
            assert queue.push(rpc) == fits
            if fits:
                held.append(rpc.ByteSize())
            assert len(queue) == len(held)

    trio.run(run)


def numbered(number: int, size: int) -> rpc_pb2.RPC:
    return rpc_pb2.RPC(publish=[rpc_pb2.Message(seqno=number.to_bytes(8, "big"), data=bytes(size))])


@given(st.lists(st.one_of(st.integers(0, 1000), st.integers(20_000, 100_000)), max_size=20))
def test_messages_that_wait_share_frames_in_their_order(sizes: list[int]) -> None:
    """Every message leaves once and in order, and a frame of several is smaller than two full ones."""
    queue = BoundedQueue(100, 2**30)
    frames: list[rpc_pb2.RPC] = []

    async def run() -> None:
        for number, size in enumerate(sizes):
            assert queue.push(numbered(number, size))
        while len(queue):
            frame = await queue.pop()
            assert frame is not None
            frames.append(frame)

    trio.run(run)
    assert [m.data for frame in frames for m in frame.publish] == [bytes(size) for size in sizes]
    assert [int.from_bytes(m.seqno) for frame in frames for m in frame.publish] == list(range(len(sizes)))
    assert all(len(frame.publish) == 1 or frame.ByteSize() < 2 * 65_536 for frame in frames)
    if all(size <= 1000 for size in sizes):
        assert len(frames) <= 1 + sum(sizes) // 60_000 + len(sizes) // 50


def test_a_frame_takes_one_control_message_and_changes_none_that_others_wait_for() -> None:
    """Nodes read ten ids of IDONTWANT a frame: these stay apart; and a message is shared by the queues of all peers."""
    message = numbered(7, 10)
    unwanted = rpc_pb2.ControlIDontWant(messageIDs=[b"id"])
    control = rpc_pb2.RPC(control=rpc_pb2.ControlMessage(idontwant=[unwanted]))
    queues = [BoundedQueue(8, 1000), BoundedQueue(8, 1000)]

    async def run() -> list[tuple[int, int]]:
        taken = []
        for queue in queues:
            for rpc in (message, message, message):
                assert queue.push(rpc)
            for rpc in (control, control):
                assert queue.push(rpc, priority=True)
            while len(queue):
                frame = await queue.pop()
                assert frame is not None
                taken.append((len(frame.control.idontwant), len(frame.publish)))
        return taken

    assert trio.run(run) == [(1, 0), (1, 0), (0, 3)] * 2
    assert (message, control) == (numbered(7, 10), rpc_pb2.RPC(control=rpc_pb2.ControlMessage(idontwant=[unwanted])))


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
                    taken = taken.plus(Lost(len(rpc.publish), len(rpc.control.graft)))
                continue
            rpc = rpc_pb2.RPC(publish=[rpc_pb2.Message(data=b"x")])
            if step == "control":
                rpc = rpc_pb2.RPC(control=rpc_pb2.ControlMessage(graft=[rpc_pb2.ControlGraft(topicID="t")]))
            pushed = pushed.plus(Lost.of(rpc))
            queue.push(rpc)

    trio.run(run)
    # What was taken last is not known to be written: nobody came back for more.
    unwritten = queue._writing
    assert queue.abandon().plus(taken) == pushed.plus(unwritten)
    assert not queue.push(rpc_pb2.RPC())
