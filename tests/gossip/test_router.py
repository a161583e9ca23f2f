"""The path of a message through the router, without a network."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import trio
import trio.testing
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.network.stream.exceptions import StreamReset
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V12
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils import encode_varint_prefixed

from millrace.gossip.host import new_host
from millrace.gossip.identity import from_seed
from millrace.gossip.queues import BoundedQueue, Lost
from millrace.gossip.router import Messages

TOPIC = "transactions_0_1"


class Node:
    """A router that is never run: remote peers are queues, and what it delivers is a list."""

    def __init__(self, seed: str) -> None:
        self.delivered: list[tuple[str, bytes, str]] = []
        self.messages = Messages(
            new_host(create_new_key_pair(from_seed(seed))),
            lambda *message: self.delivered.append(message),
            max_peer_queue=100,
            max_peer_queue_bytes=1_000_000,
        )
        self.id = self.messages.my_id

    def join(self, topic: str) -> None:
        """Subscribe without announcing it."""
        self.messages.subscribed_topics_receive[topic] = None  # type: ignore[assignment]
        self.messages.router.mesh[topic] = set()

    def meet(self, peer: ID, *topics: str, room: int = 100) -> BoundedQueue:
        """Connect a remote subscriber; the queue of what it is sent."""
        queue = self.messages.peer_queues[peer] = BoundedQueue(room, 1_000_000)
        self.messages.router.add_peer(peer, PROTOCOL_ID_V12)
        for topic in topics:
            self.messages.peer_topics.setdefault(topic, set()).add(peer)
            if topic in self.messages.router.mesh:
                self.messages.router.mesh[topic].add(peer)
        return queue

    def sent(self, data: bytes = b"data", topic: str = TOPIC) -> rpc_pb2.Message:
        """A message as this node sends it to others."""
        queue = self.meet(stranger("reader"), topic)
        assert self.messages.publish_signed(topic, data) == 1
        (message,) = content(queue)
        return message


def stranger(name: str) -> ID:
    return ID.from_pubkey(create_new_key_pair(from_seed(name)).public_key)


def content(queue: BoundedQueue) -> list[rpc_pb2.Message]:
    """All messages in a queue, as a reader of the wire decodes them."""
    found: list[rpc_pb2.Message] = []
    while (rpc := queue._queue.pop()) is not None:
        found += rpc_pb2.RPC.FromString(rpc.SerializeToString()).publish
    return found


def field(number: int, value: bytes) -> bytes:
    """A length-delimited protobuf field, written by hand."""
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


# ---- signing


def test_signature_covers_prefix_and_message_without_signature_and_key() -> None:
    """ECDSA over SHA-256 of `libp2p-pubsub:` and fields 1 to 4, by the key inside the peer id."""
    node = Node("signer")
    message = node.sent(b"payload")
    identity = node.id.to_bytes()
    # identity multihash (0x00, length) of the key's protobuf: type 2 (secp256k1), 33 compressed bytes
    assert identity[:6] == bytes([0x00, 37, 0x08, 0x02, 0x12, 33])
    assert node.id.to_base58().startswith("16Uiu2")
    signed = b"libp2p-pubsub:" + b"".join(
        field(number, value)
        for number, value in enumerate([identity, b"payload", message.seqno, TOPIC.encode()], start=1)
    )
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), identity[6:])
    key.verify(message.signature, signed, ec.ECDSA(hashes.SHA256()))
    with pytest.raises(InvalidSignature):
        key.verify(message.signature, signed + b"x", ec.ECDSA(hashes.SHA256()))


def test_message_has_what_nodes_ask_for_and_no_more() -> None:
    """from, data, an 8-byte sequence number, one topic, a signature; no key, no sender record."""
    node = Node("signer")
    queue = node.meet(stranger("reader"), TOPIC)
    node.messages.publish_signed(TOPIC, b"data")
    rpc = queue._queue.pop()
    assert rpc is not None
    assert [descriptor.name for descriptor, _ in rpc.ListFields()] == ["publish"]
    (message,) = rpc.publish
    assert [descriptor.name for descriptor, _ in message.ListFields()] == [
        "from_id", "data", "seqno", "topicIDs", "signature",
    ]  # fmt: skip
    assert len(message.seqno) == 8


def test_sequence_goes_on_after_a_restart() -> None:
    """A new process does not repeat numbers of the old one, however fast that one published."""
    before, queue = Node("signer"), []
    reader = before.meet(stranger("reader"), TOPIC)
    for _ in range(50):
        before.messages.publish_signed(TOPIC, b"")
    queue = content(reader)
    numbers = [int.from_bytes(message.seqno, "big") for message in queue]
    assert numbers == sorted(set(numbers))
    after = Node("signer").sent()
    assert int.from_bytes(after.seqno, "big") > numbers[-1]


def test_message_of_another_implementation_is_accepted() -> None:
    """A message signed by js-libp2p (without key field) verifies; with one bit changed it does not."""
    message = rpc_pb2.Message(
        from_id=ID.from_base58("16Uiu2HAkwaA6XCjNNvh4LyhzocLd8tEz53ATGwNXNHkSjSxJ1eD8").to_bytes(),
        data=b"made by js-libp2p",
        seqno=(1795229203191000001).to_bytes(8, "big"),
        topicIDs=[TOPIC],
        signature=bytes.fromhex(
            "3045022100dc30a89d1ce309c63d7574623e010a29fe4ce66b1bbd2cf0675e204b09e34dcd"
            "022053931cd725b1c961f6d6c857a0330c3f12253344b37b02da70c41682675e7002"
        ),
    )
    for bit, delivered in ((None, 1), (0, 0), (135, 0)):
        node = Node("node")
        node.join(TOPIC)
        data = bytearray(b"made by js-libp2p")
        if bit is not None:
            data[bit // 8] ^= 1 << bit % 8
        message.data = bytes(data)
        node.messages.receive(stranger("forwarder"), message)
        assert (len(node.delivered), node.messages.invalid) == (delivered, 1 - delivered)


# ---- receiving


def test_valid_message_is_delivered_once_and_counted() -> None:
    """The first copy is delivered with its originator, further copies only counted, per topic."""
    author, node = Node("author"), Node("node")
    node.join(TOPIC)
    message = author.sent(b"hello")
    for forwarder in ("x", "y", "z"):
        node.messages.receive(stranger(forwarder), message)
    assert node.delivered == [(TOPIC, b"hello", author.id.to_base58())]
    assert (node.messages.delivered, node.messages.duplicates) == ({TOPIC: 1}, {TOPIC: 2})
    assert node.messages.invalid == 0


def _resigned(message: rpc_pb2.Message, seed: str) -> None:
    key = create_new_key_pair(from_seed(seed)).private_key
    message.ClearField("signature")
    message.signature = key.sign(b"libp2p-pubsub:" + message.SerializeToString())


def _break_data(message: rpc_pb2.Message) -> None:
    message.data = b"other"


def _break_topic(message: rpc_pb2.Message) -> None:
    message.topicIDs[:] = ["other"]


def _break_sequence(message: rpc_pb2.Message) -> None:
    message.seqno = b"12345678"


def _short_sequence(message: rpc_pb2.Message) -> None:
    message.seqno = b"1234"
    _resigned(message, "author")


def _two_topics(message: rpc_pb2.Message) -> None:
    message.topicIDs.append("other")
    _resigned(message, "author")


def _no_signature(message: rpc_pb2.Message) -> None:
    message.ClearField("signature")


def _no_origin(message: rpc_pb2.Message) -> None:
    message.ClearField("from_id")


def _hashed_origin(message: rpc_pb2.Message) -> None:
    message.from_id = b"\x12\x20" + hashlib.sha256(b"no key inside").digest()


def _wrong_signer(message: rpc_pb2.Message) -> None:
    _resigned(message, "somebody else")


def _foreign_key(message: rpc_pb2.Message) -> None:
    message.key = create_new_key_pair(from_seed("somebody else")).public_key.serialize()


def _junk_signature(message: rpc_pb2.Message) -> None:
    message.signature = b"\x30\x06\x02\x01\x00\x02\x01\x00"


BREAKS = [
    _break_data, _break_topic, _break_sequence, _short_sequence, _two_topics, _no_signature, _no_origin,
    _hashed_origin, _wrong_signer, _foreign_key, _junk_signature,
]  # fmt: skip


@pytest.mark.parametrize("spoil", BREAKS)
def test_spoilt_message_is_counted_and_goes_nowhere(spoil: Callable[[rpc_pb2.Message], None]) -> None:
    """A message that breaks a rule of strict signing is neither delivered nor forwarded, and is no first
    copy: the true message is still delivered after it."""
    author, node = Node("author"), Node("node")
    for topic in (TOPIC, "other"):
        node.join(topic)
    neighbour = node.meet(stranger("neighbour"), TOPIC, "other")
    message = author.sent()
    spoilt = rpc_pb2.Message()
    spoilt.CopyFrom(message)
    spoil(spoilt)
    node.messages.receive(stranger("forwarder"), spoilt)
    assert (node.delivered, node.messages.invalid, content(neighbour)) == ([], 1, [])
    node.messages.receive(stranger("forwarder"), message)
    assert len(node.delivered) == 1


@given(st.binary(max_size=60), st.binary(max_size=12), st.binary(max_size=80), st.binary(max_size=60))
def test_no_message_of_random_bytes_is_delivered(origin: bytes, seqno: bytes, signature: bytes, key: bytes) -> None:
    """Whatever the fields hold, checking them raises nothing and delivers nothing."""
    node = SHARED
    node.messages.receive(
        stranger("forwarder"),
        rpc_pb2.Message(from_id=origin, seqno=seqno, signature=signature, key=key, data=b"x", topicIDs=[TOPIC]),
    )
    assert node.delivered == []


SHARED = Node("shared")
SHARED.join(TOPIC)


def test_matching_key_field_is_accepted() -> None:
    """Peers that send their key along are understood too."""
    author, node = Node("author"), Node("node")
    node.join(TOPIC)
    message = author.sent()
    message.key = create_new_key_pair(from_seed("author")).public_key.serialize()
    node.messages.receive(author.id, message)
    assert len(node.delivered) == 1


def test_topic_we_did_not_join_is_ignored() -> None:
    """A message for somebody else's topic is neither delivered nor an offence."""
    author, node = Node("author"), Node("node")
    node.messages.receive(author.id, author.sent())
    assert (node.delivered, node.messages.invalid) == ([], 0)


def test_our_own_message_does_not_come_back() -> None:
    """A copy of our own message counts as a duplicate; a forged one in our name is invalid."""
    node = Node("node")
    node.join(TOPIC)
    message = node.sent()
    node.messages.receive(stranger("x"), message)
    assert (node.delivered, node.messages.duplicates[TOPIC]) == ([], 1)
    message.seqno = b"87654321"
    _resigned(message, "node")
    node.messages.receive(stranger("x"), message)
    assert (node.delivered, node.messages.invalid) == ([], 1)


# ---- sending on


def test_message_is_forwarded_to_the_mesh_but_not_back() -> None:
    """Mesh peers get a new message once; its forwarder and its author do not."""
    author, node = Node("author"), Node("node")
    node.join(TOPIC)
    queues = {name: node.meet(stranger(name), TOPIC) for name in ("a", "b", "c")}
    to_author = node.meet(author.id, TOPIC)
    message = author.sent()
    node.messages.receive(stranger("a"), message)
    node.messages.receive(stranger("b"), message)
    assert {name: content(queue) for name, queue in queues.items()} == {
        "a": [],
        "b": [message],
        "c": [message],
    }
    assert content(to_author) == []


def test_publish_without_subscribing_reaches_six_subscribers() -> None:
    """Fanout: a publisher that is no subscriber sends to the degree (6) of the topic's peers."""
    node = Node("node")
    queues = [node.meet(stranger(f"s{i}"), TOPIC) for i in range(9)]
    other = node.meet(stranger("other"), "another topic")
    assert node.messages.publish_signed(TOPIC, b"x") == 6
    assert sum(len(content(queue)) for queue in queues) == 6
    assert content(other) == []


def test_no_subscriber_means_nobody() -> None:
    """A topic without remote subscribers gives 0, and nothing is kept to be sent later."""
    node = Node("node")
    queue = node.meet(stranger("other"), "another topic")
    assert node.messages.publish_signed(TOPIC, b"x") == 0
    assert content(queue) == []
    assert not node.messages.router._pending_messages


def test_thin_mesh_is_filled_up_for_our_own_messages() -> None:
    """A subscriber whose mesh is empty (after prunes) still sends its own message to the topic's peers."""
    node = Node("node")
    node.join(TOPIC)
    queue = node.meet(stranger("a"), TOPIC)
    node.messages.router.mesh[TOPIC].clear()
    assert node.messages.publish_signed(TOPIC, b"x") == 1
    assert len(content(queue)) == 1


def test_full_queue_of_a_slow_peer_is_counted() -> None:
    """A copy for which a remote peer has no room is not counted as sent, but as dropped."""
    node = Node("node")
    node.meet(stranger("slow"), TOPIC, room=3)
    assert [node.messages.publish_signed(TOPIC, b"x") for _ in range(5)] == [1, 1, 1, 0, 0]
    assert node.messages.lost == Lost(2, 0)


def test_full_peer_is_made_up_for_by_another() -> None:
    """Where a mesh peer takes nothing, another subscriber gets our own message instead; the lost copy is counted."""
    node = Node("node")
    node.join(TOPIC)
    for number in range(6):
        node.meet(stranger(f"m{number}"), TOPIC, room=1 if number < 2 else 100)
    assert node.messages.publish_signed(TOPIC, b"x") == 6
    spare = [node.meet(stranger(f"s{number}"), TOPIC) for number in range(2)]
    for peer in (stranger("s0"), stranger("s1")):
        node.messages.router.mesh[TOPIC].remove(peer)
    assert node.messages.publish_signed(TOPIC, b"y") == 6
    assert [len(content(queue)) for queue in spare] == [1, 1]
    assert node.messages.lost == Lost(2, 0)


def test_peer_without_a_queue_is_counted() -> None:
    """A mesh peer that has just gone gets nothing, and that is counted too."""
    node = Node("node")
    node.join(TOPIC)
    node.meet(stranger("gone"), TOPIC)
    del node.messages.peer_queues[stranger("gone")]
    assert node.messages.publish_signed(TOPIC, b"x") == 0
    assert node.messages.lost == Lost(1, 0)


@pytest.mark.parametrize("written", [0, 1, 4])
def test_what_a_failed_stream_did_not_take_is_counted(written: int) -> None:
    """Of five messages and a frame of control, those that the stream did not take before it failed are lost."""
    node, peer = Node("node"), stranger("remote")
    queue = node.meet(peer, TOPIC)
    stream = Sink(peer, written)
    for _ in range(5):
        node.messages.publish_signed(TOPIC, bytes(65_536))  # a frame for each: no other has room in it
    queue.push(rpc_pb2.RPC(control=rpc_pb2.ControlMessage()))
    trio.run(node.messages.handle_sending_messages, peer, stream, queue)
    assert node.messages.lost == Lost(5 - written, 1)
    assert stream.was_reset, "the remote need not wait for more on it"
    assert node.messages.publish_signed(TOPIC, b"x") == 0


def test_room_is_asked_of_the_peers_of_the_topic() -> None:
    """A topic has room while one of its peers has, and when nobody is subscribed: then 0 is the right answer."""
    node = Node("node")
    assert node.messages.has_room(TOPIC, 100)
    node.meet(stranger("full"), TOPIC, room=0)
    node.meet(stranger("elsewhere"), "another topic")
    assert not node.messages.has_room(TOPIC, 100)
    node.meet(stranger("free"), TOPIC)
    assert node.messages.has_room(TOPIC, 100)


def test_large_message_tells_the_mesh_not_to_send_it() -> None:
    """IDONTWANT goes to the other mesh peers for messages above 1 KiB, and for those only."""
    author, node = Node("author"), Node("node")
    node.join(TOPIC)
    queues = [node.meet(stranger(name), TOPIC) for name in ("a", "b")]
    node.messages.receive(stranger("a"), author.sent(bytes(1024)))
    assert all(not rpc.HasField("control") for queue in queues for rpc in queue._queue._priority)
    large = author.sent(bytes(1025))
    node.messages.receive(stranger("a"), large)
    assert [len(queue._queue._priority) for queue in queues] == [0, 1]
    (unwanted,) = queues[1]._queue._priority[0].control.idontwant
    assert list(unwanted.messageIDs) == [large.from_id + large.seqno]


# ---- strangers


class Sink:
    """A remote peer's stream that takes so many frames and then fails."""

    def __init__(self, peer: ID, frames: int) -> None:
        self.muxed_conn = SimpleNamespace(peer_id=peer)
        self.was_reset = False
        self._frames = frames

    async def reset(self) -> None:
        self.was_reset = True

    async def write(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self._frames == 0:
            raise StreamReset("the remote has gone")
        self._frames -= 1


class Waiting:
    """A remote peer's stream that gives what it was made with, and then ends when it is told to."""

    def __init__(self, peer: ID, data: bytes) -> None:
        self.muxed_conn = SimpleNamespace(peer_id=peer)
        self.taken, self.end = trio.Event(), trio.Event()
        self._data = data

    async def read(self, n: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._data:
            self.taken.set()
            await self.end.wait()
        piece, self._data = self._data[:n], self._data[n:]
        return piece


class Stream:
    """A remote peer's stream that gives what it was made with, in pieces, and then ends."""

    def __init__(self, peer: ID, data: bytes, piece: int) -> None:
        self.muxed_conn = SimpleNamespace(peer_id=peer)
        self.was_reset = False
        self._data = data
        self._piece = piece

    async def read(self, n: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        assert n is not None
        size = min(n, self._piece)
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    async def reset(self) -> None:
        self.was_reset = True


def framed(*rpcs: rpc_pb2.RPC) -> bytes:
    return b"".join(encode_varint_prefixed(rpc.SerializeToString()) for rpc in rpcs)


def read(node: Node, stream: Stream) -> None:
    trio.run(node.messages.continuously_read_stream, stream)


@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_frames_are_taken_in_order_however_they_are_cut(piece: int) -> None:
    """Messages come out of the stream in the order they were written, through frames of any cut."""
    author, node = Node("author"), Node("node")
    node.join(TOPIC)
    messages = [author.sent(b"%d" % number + bytes(number)) for number in range(80)]
    frames = framed(*(rpc_pb2.RPC(publish=messages[start : start + 40]) for start in (0, 40)))
    stream = Stream(stranger("forwarder"), frames, piece)
    read(node, stream)
    assert [data for _, data, _ in node.delivered] == [message.data for message in messages]
    assert not stream.was_reset


@pytest.mark.parametrize("streams", [1, 2])
def test_subscriptions_last_as_long_as_the_streams_that_told_them(streams: int) -> None:
    """When our own stream to a peer fails alone it is a subscriber still; when its last one ends, too, it is none."""
    node, peer = Node("node"), stranger("remote")
    incoming = [Waiting(peer, framed(rpc_pb2.RPC())) for _ in range(streams)]

    async def scene() -> None:
        async with trio.open_nursery() as nursery:
            for stream in incoming:
                nursery.start_soon(node.messages.continuously_read_stream, stream)
                await stream.taken.wait()
            node.messages.peers[peer] = None  # type: ignore[assignment]
            queue = node.meet(peer, TOPIC)
            queue.push(rpc_pb2.RPC(publish=[rpc_pb2.Message()]))
            await node.messages.handle_sending_messages(peer, Sink(peer, 0), queue)  # type: ignore[arg-type]
            for stream in incoming:
                assert node.messages.peer_topics == {TOPIC: {peer}}
                stream.end.set()
                await trio.testing.wait_all_tasks_blocked()

    trio.run(scene)
    assert node.messages.peer_topics == {}
    assert node.messages.heard == {}


@given(st.binary(max_size=200))
def test_random_bytes_end_the_stream_and_nothing_else(junk: bytes) -> None:
    """Whatever a stranger sends, reading it ends by itself and delivers nothing."""
    stream = Stream(stranger("forwarder"), junk, 50)
    read(SHARED, stream)
    assert SHARED.delivered == []


@pytest.mark.parametrize(
    "junk",
    [
        b"\x80" * 11,
        b"\x03\xff\xff\xff",
        b"\x81\x80\x80\x01" + bytes(10),
        framed(rpc_pb2.RPC(subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid="x" * 257)])),
        framed(rpc_pb2.RPC(subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid="x")] * 5001)),
    ],
    ids=["endless prefix", "bad field", "too long a frame", "long topic", "many topics"],
)
def test_nonsense_is_counted_and_the_stream_reset(junk: bytes) -> None:
    """A frame that is none resets its stream and counts as invalid."""
    node = Node("node")
    stream = Stream(stranger("forwarder"), junk, 100_000)
    read(node, stream)
    assert (stream.was_reset, node.messages.invalid) == (True, 1)


def test_control_of_unknown_topics_leaves_no_trace() -> None:
    """PRUNE and IHAVE for topics that are not ours, and offers of other peers, change nothing."""
    node = Node("node")
    sender = stranger("sender")
    node.meet(sender)
    control = rpc_pb2.ControlMessage(
        prune=[
            rpc_pb2.ControlPrune(topicID=f"t{n}", backoff=60, peers=[rpc_pb2.PeerInfo(peerID=b"\x00\x01a")])
            for n in range(50)
        ],
        ihave=[rpc_pb2.ControlIHave(topicID="t", messageIDs=[b"id"])],
    )
    read(node, Stream(sender, framed(rpc_pb2.RPC(control=control)), 100_000))
    assert node.messages.invalid == 0
    assert node.messages.router.back_off == {}
    assert len(node.messages.peer_queues[sender]) == 0
