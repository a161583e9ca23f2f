"""Frames between the handle and the peer process."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.gossip.settings import GossipSettings, PeerSettings
from millrace.gossip.wire import (
    MAX_FRAME,
    Command,
    GossipStats,
    Message,
    Publish,
    Report,
    Start,
    TopicStats,
    Unframer,
    frame,
)


@given(st.lists(st.binary(max_size=300), max_size=10), st.lists(st.integers(1, 400), max_size=20))
def test_any_cut_of_the_stream_gives_the_same_frames(datas: list[bytes], cuts: list[int]) -> None:
    """However the bytes arrive, each frame comes out once, whole and in order."""
    stream = b"".join(frame(Publish(i, 0, "topic", data)) for i, data in enumerate(datas))
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(stream[at : at + cut])
        at += cut
    unframer = Unframer()
    bodies = [body for piece in [*pieces, stream[at:]] for body in unframer.feed(piece)]
    decoded = [msgspec.msgpack.decode(body, type=Command) for body in bodies]
    assert decoded == [Publish(i, 0, "topic", data) for i, data in enumerate(datas)]


def test_settings_survive_the_way() -> None:
    """The settings arrive as they were sent."""
    start = Start(GossipSettings(peers=(PeerSettings(key_seed="a", subscribe=("t",)), PeerSettings())))
    (body,) = Unframer().feed(frame(start))
    assert msgspec.msgpack.decode(body, type=Command) == start


def test_reports_and_commands_do_not_mix() -> None:
    """A report is no command."""
    (body,) = Unframer().feed(frame(Message(0, "t", b"", "p", 1)))
    assert msgspec.msgpack.decode(body, type=Report) == Message(0, "t", b"", "p", 1)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(body, type=Command)


def test_counters_continue_and_state_does_not() -> None:
    """Counters of a new process are added to those before, per topic too; peers and mesh are those of now."""
    past = GossipStats(
        peer_id="p", connected_peers=9, delivered=10, duplicates=3, invalid=1,
        topics={"old": TopicStats(peers=5, delivered=4), "both": TopicStats(peers=2, mesh=2, delivered=6)},
    )  # fmt: skip
    now = GossipStats(
        peer_id="p", connected_peers=1, delivered=1, published=7, topics={"both": TopicStats(peers=1, delivered=1)}
    )
    assert now.continuing(past) == GossipStats(
        peer_id="p", connected_peers=1, delivered=11, duplicates=3, published=7, invalid=1,
        topics={"old": TopicStats(delivered=4), "both": TopicStats(peers=1, delivered=7)},
    )  # fmt: skip
    assert now.continuing(GossipStats()) == now


def test_too_long_a_frame_ends_the_stream() -> None:
    """A length beyond the bound is an error, not an allocation."""
    with pytest.raises(ValueError, match=str(MAX_FRAME + 1)):
        list(Unframer().feed((MAX_FRAME + 1).to_bytes(4, "big")))
