"""Our peer and js-libp2p's understand each other.

Needs npm. Run with `MILLRACE_JS_PREFIX=<directory> ./run test -m foreign tests/foreign/gossip`: the packages of
`package.json` (Node among them) are installed into that directory the first time.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from millrace.gossip import GossipHandle, GossipMessage, GossipSettings, PeerSettings

if TYPE_CHECKING:
    from tests.foreign.gossip.conftest import ForeignPeer

pytestmark = pytest.mark.foreign

TOPIC = "transactions_0_1"


async def meshed(js: ForeignPeer, handle: GossipHandle) -> None:
    """Wait until each side has the other in its mesh."""

    async def both() -> bool:
        return (await js.ask("mesh"))["mesh"] == 1 and (await handle.stats()).topics[TOPIC].mesh == 1

    await js.until(both)


@pytest.mark.parametrize("we_dial", [True, False])
async def test_messages_both_ways(js: ForeignPeer, we_dial: bool) -> None:
    """Whoever dials: gossipsub 1.2 over noise and yamux, 100 of 100 signed messages each way, in order,
    and one of 1 MiB."""
    received: list[GossipMessage] = []
    settings = PeerSettings(subscribe=(TOPIC,), bootstrap=(js.address,) if we_dial else ())
    async with GossipHandle(GossipSettings(peers=(settings,)), received.append) as handle:
        if not we_dial:
            await js.ask("dial", address=handle.addresses[0])
        await meshed(js, handle)
        assert (await js.ask("mesh"))["protocols"] == ["/meshsub/1.2.0"]
        large = os.urandom(1024 * 1024)
        ours = [b"py %d" % number for number in range(100)] + [large]
        theirs = [b"js %d" % number for number in range(100)] + [large]
        assert set(await asyncio.gather(*(handle.publish(TOPIC, data) for data in ours))) == {1}
        assert [bytes.fromhex(message["data"]) for message in await js.received(101)] == ours
        assert {message["type"] for message in js.messages} == {"signed"}
        assert {message["from"] for message in js.messages} == {handle.peer_ids[0]}
        for data in theirs:
            assert (await js.ask("publish", data=data.hex()))["recipients"] == 1

        async def all_here() -> bool:
            return len(received) >= 101

        await js.until(all_here)
        assert [message.data for message in received] == theirs
        assert {message.source_peer for message in received} == {js.id}
        stats = await handle.stats()
        assert (stats.invalid, stats.dropped_inbound, stats.dropped_outbound) == (0, 0, 0)


async def test_publish_without_subscription_reaches_js(js: ForeignPeer) -> None:
    """Fanout: js gets what a peer publishes that is subscribed to nothing."""
    async with GossipHandle(GossipSettings(peers=(PeerSettings(bootstrap=(js.address,)),))) as handle:

        async def sent() -> bool:
            return await handle.publish(TOPIC, b"fanout") == 1

        await js.until(sent)
        assert (await js.received(1))[0]["data"] == b"fanout".hex()


async def test_js_finds_a_peer_through_our_table(js: ForeignPeer) -> None:
    """A js peer that knows only one of ours learns of our other one by Kademlia, under the network's id."""
    settings = GossipSettings(peers=(PeerSettings(dht=True), PeerSettings(key_seed="hidden", dht=True)))
    async with GossipHandle(settings) as handle:
        await handle.dial(handle.addresses_of(1)[0], peer=0)
        await js.ask("dial", address=handle.addresses[0])
        key = b"\x12\x20" + hashlib.sha256(b"anything").digest()
        found: dict[str, list[str]] = {}

        async def learned() -> bool:
            named = (await js.ask("closest", key=key.hex()))["peers"]
            found.update({peer["id"]: peer["addresses"] for peer in named})
            return handle.peer_ids[1] in found

        await js.until(learned)
        assert any(handle.addresses_of(1)[0].startswith(address) for address in found[handle.peer_ids[1]])
