"""Finding peers by Kademlia, under any protocol ids.

Only what finding peers takes: we ask connected peers who is near a random key (FIND_NODE), connect to those
we do not know until we have enough, and answer the same question. The library's table is not used: it has
one constant protocol id, and stores what strangers ask it to store (values of 1 MB, 50 000 of them).
Values and providers are not part of what MultiversX nodes use the table for; such requests end the stream.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterable

import trio
from libp2p.abc import IHost, INetStream
from libp2p.custom_types import TProtocol
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.peer.id import ID
from libp2p.utils import encode_varint_prefixed
from multiaddr.multiaddr import Multiaddr

from millrace.gossip.frames import FrameReader

log = logging.getLogger(__name__)

_NEAREST = 20
_ASKED_AT_ONCE = 3
_DIALS_A_ROUND = 8
_ADDRESSES_A_PEER = 16
_MAX_FRAME_BYTES = 64 * 1024
_ANSWER_SECONDS = 10.0
_SERVED_AT_ONCE = 16
_FIRST_SECONDS = 0.25
_EAGER_SECONDS = 10.0
_HOSTS = ("ip4", "ip6", "dns", "dns4", "dns6")
_CONTENT_SECONDS = 60.0

Dial = Callable[[str], Awaitable[str]]


class Discovery:
    """Answers and asks FIND_NODE. `dial(multiaddress)` connects and gives "" or what went wrong."""

    def __init__(self, host: IHost, protocols: Iterable[str], dial: Dial, target: int) -> None:
        self._host = host
        self._protocols = [TProtocol(name) for name in protocols]
        self._dial = dial
        self._target = target
        self._serving = 0
        for protocol in self._protocols:
            host.set_stream_handler(protocol, self._serve)

    # ---- answering

    async def _serve(self, stream: INetStream) -> None:
        """Answer the questions of one remote; nonsense, or too many remotes at once, ends the stream."""
        if self._serving >= _SERVED_AT_ONCE:
            await stream.reset()
            return
        self._serving += 1
        reader = FrameReader(stream, _MAX_FRAME_BYTES)
        try:
            with trio.move_on_after(_CONTENT_SECONDS):
                while (body := await reader.next()) is not None:
                    answer = self.answer(Message.FromString(body), stream.muxed_conn.peer_id)
                    await stream.write(encode_varint_prefixed(answer.SerializeToString()))
            await stream.close()
        except Exception as error:
            log.debug("kademlia stream ended", extra={"reason": repr(error)})
            await stream.reset()
        finally:
            self._serving -= 1

    def answer(self, question: Message, asker: ID) -> Message:
        """The answer to a question. Raises ValueError for what we do not take part in."""
        if question.type == Message.PING:
            return Message(type=Message.PING)
        if question.type != Message.FIND_NODE:
            raise ValueError(f"kademlia request {question.type} is not served")
        others = [peer for peer in self._host.get_connected_peers() if peer != asker]
        nearest = sorted(others, key=lambda peer: _distance(peer.to_bytes(), question.key))[:_NEAREST]
        closer = [
            Message.Peer(
                id=peer.to_bytes(),
                addrs=[address.to_bytes() for address in self._addresses(peer)],
                connection=Message.CONNECTED,
            )
            for peer in nearest
        ]
        return Message(type=Message.FIND_NODE, key=question.key, closerPeers=closer)

    def _addresses(self, peer: ID) -> list[Multiaddr]:
        try:
            return self._host.get_peerstore().addrs(peer)[:_ADDRESSES_A_PEER]
        except Exception:
            return []  # none known, or expired

    # ---- asking

    async def run(self) -> None:
        """Ask for new peers for ever: soon, then every 10 s; every minute while there are enough."""
        delay = _FIRST_SECONDS
        while True:
            await trio.sleep(delay * random.uniform(0.9, 1.1))
            try:
                await self.look_around()
            except Exception as error:
                log.warning("looking for gossip peers failed", extra={"reason": repr(error)})
            enough = len(self._host.get_connected_peers()) >= self._target
            delay = _CONTENT_SECONDS if enough else min(delay * 2, _EAGER_SECONDS)

    async def look_around(self) -> None:
        """One round: ask a few connected peers about a random key, and dial some of those they name."""
        found: dict[bytes, str] = {}
        connected = self._host.get_connected_peers()
        key = b"\x12\x20" + os.urandom(32)  # has the form of a peer id
        async with trio.open_nursery() as nursery:
            for peer in random.sample(connected, min(_ASKED_AT_ONCE, len(connected))):
                nursery.start_soon(self._ask, peer, key, found)
        known = {peer.to_bytes() for peer in connected} | {self._host.get_id().to_bytes()}
        new = [address for peer, address in found.items() if peer not in known]
        room = min(_DIALS_A_ROUND, self._target - len(connected))
        async with trio.open_nursery() as nursery:
            for address in random.sample(new, max(0, min(room, len(new)))):
                nursery.start_soon(self._dial, address)

    async def _ask(self, peer: ID, key: bytes, found: dict[bytes, str]) -> None:
        """Add the peers that `peer` names to `found`, each with one address we can dial."""
        try:
            with trio.fail_after(_ANSWER_SECONDS):
                answer = await self._exchange(peer, Message(type=Message.FIND_NODE, key=key))
            for named in answer.closerPeers[:_NEAREST]:
                address = _dialable(named)
                if address:
                    found[named.id] = address
        except Exception as error:
            log.debug("a peer did not say whom it knows", extra={"remote": str(peer), "reason": repr(error)})

    async def _exchange(self, peer: ID, question: Message) -> Message:
        stream = await self._host.new_stream(peer, self._protocols)
        try:
            await stream.write(encode_varint_prefixed(question.SerializeToString()))
            body = await FrameReader(stream, _MAX_FRAME_BYTES).next()
            await stream.close()
        except BaseException:
            with trio.move_on_after(1) as last_moment:
                last_moment.shield = True
                await stream.reset()
            raise
        return Message.FromString(body or b"")


def _distance(peer: bytes, key: bytes) -> int:
    """XOR distance of the SHA-256 of both, as in libp2p's Kademlia."""
    left, right = hashlib.sha256(peer).digest(), hashlib.sha256(key).digest()
    return int.from_bytes(left, "big") ^ int.from_bytes(right, "big")


def _dialable(peer: Message.Peer) -> str:
    """The first TCP address of a named peer, ending in its id; empty when there is none."""
    for raw in peer.addrs[:_ADDRESSES_A_PEER]:
        try:
            address = Multiaddr(raw)
            names = [protocol.name for protocol in address.protocols()]
        except Exception:
            continue  # a stranger may name anything
        if names and names[0] in _HOSTS and names[1:] in (["tcp"], ["tcp", "p2p"]):
            return str(address).split("/p2p/")[0] + f"/p2p/{ID(peer.id).to_base58()}"
    return ""
