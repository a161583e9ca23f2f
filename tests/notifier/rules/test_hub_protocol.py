"""The conversation with a consumer, without sockets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.hub_pb2 import SubscribeEvent, SubscribeReply
from millrace.notifier.rules.filters import ALL, Filter
from millrace.notifier.rules.hub_protocol import Changes, Consumer, Position, ProtocolViolation

HERE = Position(origin=1000, oldest=1005, head=1010, journal="0f")


def consumer(**bounds: int) -> Consumer:
    return Consumer(**{"window_frames": 4, "window_bytes": 100, "max_subscriptions": 3} | bounds)


def say(speaker: Consumer, topic: str, now: float = 0.0, **wish: object) -> tuple[Changes, SubscribeReply]:
    payload = SubscribeEvent(**wish).SerializeToString()  # type: ignore[arg-type]
    message = pb.WsMessage(type=outport.PAYLOAD, topic=topic, payload=payload).SerializeToString()
    changes = speaker.receive(message, HERE, now)
    answer = pb.WsMessage.FromString(changes.reply)
    assert (answer.topic, answer.type) == (topic, outport.PAYLOAD)
    return changes, SubscribeReply.FromString(answer.payload)


@pytest.mark.parametrize(("resume_after", "start"), [(None, 1010), (1010, 1010), (1007, 1007), (3, 3), (0, 1000)])
def test_where_delivery_begins(resume_after: int | None, start: int) -> None:
    """Delivery begins behind the sequence named, at the very beginning for 0, else with what comes next."""
    wish = {} if resume_after is None else {"resume_after": resume_after}
    changes, reply = say(consumer(), "subscribe", **wish)
    assert (changes.start, changes.added) == (start, ALL)
    assert (reply.ok, reply.head, reply.oldest) == (True, 1010, 1005)


def test_resume_beyond_the_head_is_refused() -> None:
    """A sequence that the journal never gave out is refused: its owner speaks of another journal."""
    speaker = consumer()
    changes, reply = say(speaker, "subscribe", resume_after=1011)
    assert not reply.ok and "never had it" in reply.reason and changes.start is None
    assert say(speaker, "subscribe", resume_after=1010)[1].ok, "a refusal changes nothing"


def test_resume_belongs_to_the_first_subscription() -> None:
    """A later subscription joins where the connection is; it cannot turn the stream back."""
    speaker = consumer()
    say(speaker, "subscribe", subscription_id="a")
    assert not say(speaker, "subscribe", subscription_id="b", resume_after=1005)[1].ok
    changes, reply = say(speaker, "subscribe", subscription_id="b")
    assert reply.ok and changes.start is None


def test_subscriptions_are_named_and_bounded() -> None:
    """An id holds one filter: using it again replaces; more than the bound are refused."""
    speaker = consumer(max_subscriptions=2)
    say(speaker, "subscribe", subscription_id="a", event_type="Identifier", identifier="x")
    changes, _ = say(speaker, "subscribe", subscription_id="a", event_type="Identifier", identifier="y")
    assert (changes.removed, changes.added) == (Filter(None, b"x"), Filter(None, b"y"))
    assert say(speaker, "subscribe", subscription_id="b")[1].ok
    assert "at most 2" in say(speaker, "subscribe", subscription_id="c")[1].reason
    assert not say(speaker, "subscribe", subscription_id="i" * 257)[1].ok


@pytest.mark.parametrize("kind", [0, outport.PAYLOAD])
def test_control_message_is_acknowledged_on_request(kind: int) -> None:
    """A control message that asks for an acknowledgement gets one under its counter; its type may be left out."""
    message = pb.WsMessage(type=kind, topic="subscribe", counter=9, withAcknowledge=True)
    changes = consumer().receive(message.SerializeToString(), HERE, 0.0)
    assert changes.ack == outport.ack_envelope(9) and changes.added == ALL
    message.withAcknowledge = False
    assert consumer().receive(message.SerializeToString(), HERE, 0.0).ack == b""


def test_filter_held_twice_stays() -> None:
    """Of two subscriptions to the same, unsubscribing one takes nothing away."""
    speaker = consumer()
    for name in ("a", "b"):
        say(speaker, "subscribe", subscription_id=name)
    assert say(speaker, "unsubscribe", subscription_id="a")[0].removed is None
    assert say(speaker, "unsubscribe", subscription_id="b")[0].removed == ALL
    assert say(speaker, "unsubscribe", subscription_id="b")[1].reason == "no such subscription"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\xff", 1007),
        (b"", 1008),
        (pb.WsMessage(type=2, topic="SaveBlock").SerializeToString(), 1008),
        (pb.WsMessage(type=7, topic="subscribe").SerializeToString(), 1008),
    ],
)
def test_what_ends_the_connection(message: bytes, code: int) -> None:
    """What is no part of the conversation ends it with a code."""
    with pytest.raises(ProtocolViolation) as caught:
        consumer().receive(message, HERE, 0.0)
    assert caught.value.code == code


def test_undecodable_wish_is_answered() -> None:
    """A payload that is no SubscribeEvent gets an answer, not a disconnection."""
    message = pb.WsMessage(type=2, topic="subscribe", payload=b"\xff").SerializeToString()
    changes = consumer().receive(message, HERE, 0.0)
    reply = SubscribeReply.FromString(pb.WsMessage.FromString(changes.reply).payload)
    assert not reply.ok and "SubscribeEvent" in reply.reason


def test_control_flood_ends_the_connection() -> None:
    """More than 256 control messages in five seconds end the connection; slower ones never do."""
    speaker = consumer()
    for number in range(600):
        say(speaker, "subscribe", now=number * 0.02)
    with pytest.raises(ProtocolViolation) as caught:
        for _ in range(300):
            say(speaker, "subscribe", now=12.0)
    assert caught.value.code == 1008


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=60))
def test_window(steps: list[tuple[bool, int]]) -> None:
    """There is room while fewer frames and bytes than the window are unacknowledged; acks are cumulative."""
    speaker, flying, sequence = consumer(), {}, 0
    for sends, number in steps:
        if sends and speaker.has_room:
            sequence += 1
            flying[sequence] = number
            speaker.sent(sequence, number)
        elif not sends:
            speaker.receive(outport.ack_envelope(number), HERE, 0.0)
            flying = {key: size for key, size in flying.items() if key > number}
        assert speaker.has_room == (len(flying) < 4 and sum(flying.values()) < 100)
