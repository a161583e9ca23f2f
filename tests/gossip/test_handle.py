"""Handles, their processes and the network between them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millrace.gossip import GossipBusy, GossipError, GossipMessage, PeerSettings
from millrace.gossip.settings import MAX_DATA_BYTES

if TYPE_CHECKING:
    from tests.gossip.conftest import Network

TOPIC = "transactions_0_1"
OTHER = "heartbeatV2_0"


def alive(pid: int) -> bool:
    """Whether the process runs: neither gone nor a zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.fixture(autouse=True)
def _own_temporary_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    tmp_path_factory.getbasetemp()  # made where it always is, before we move the directory
    with tempfile.TemporaryDirectory() as directory:  # a short path: a socket's has at most 107 bytes
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield


def temporary() -> list[Path]:
    """The socket directories left behind."""
    return list(Path(tempfile.gettempdir()).glob("millrace-gossip-*"))


# ---- messages


async def test_two_processes_exchange_all_messages(network: Network) -> None:
    """100 messages each way between two processes all arrive once, in order, with sender and time."""
    left_inbox, right_inbox = network.inbox(), network.inbox()
    left, right = await asyncio.gather(
        network.start(PeerSettings(key_seed="left", subscribe=(TOPIC,)), inbox=left_inbox),
        network.start(PeerSettings(key_seed="right", subscribe=(TOPIC,)), inbox=right_inbox),
    )
    await right.dial(left.addresses[0])
    await asyncio.gather(network.knows(left, TOPIC), network.knows(right, TOPIC))
    began = time.time_ns()
    from_left = [b"left %d" % number for number in range(100)]
    from_right = [b"right %d" % number for number in range(100)]
    counts = await asyncio.gather(
        *(left.publish(TOPIC, data) for data in from_left),
        *(right.publish(TOPIC, data) for data in from_right),
    )
    assert set(counts) == {1}
    assert await right_inbox.wait(100) == from_left
    assert await left_inbox.wait(100) == from_right
    for message in right_inbox.messages:
        assert (message.topic, message.peer, message.source_peer) == (TOPIC, 0, left.peer_ids[0])
        assert began <= message.received_ns <= time.time_ns()
    stats = await right.stats()
    assert (stats.delivered, stats.published, stats.invalid) == (100, 100, 0)
    assert (stats.dropped_inbound, stats.dropped_outbound, stats.connected_peers) == (0, 0, 1)
    assert stats.topics[TOPIC].delivered == 100


async def test_peers_of_one_process_are_told_apart(network: Network) -> None:
    """Several peers in one process: a message names the peer that got it, a publish the one it is by."""
    inbox = network.inbox()
    handle = await network.start(
        PeerSettings(key_seed="0", subscribe=("a",)),
        PeerSettings(key_seed="1", subscribe=("b",)),
        PeerSettings(key_seed="2", subscribe=("a", "b")),
        inbox=inbox,
    )
    assert len(set(handle.peer_ids)) == 3
    for peer in (0, 1):
        await handle.dial(handle.addresses_of(2)[0], peer=peer)
    await asyncio.gather(network.knows(handle, "a", peer=0), network.knows(handle, "b", peer=1))
    assert await handle.publish("a", b"by 0", peer=0) == 1
    assert await handle.publish("b", b"by 1", peer=1) == 1
    await inbox.wait(2)
    assert {(m.peer, m.topic, m.data, m.source_peer) for m in inbox.messages} == {
        (2, "a", b"by 0", handle.peer_ids[0]),
        (2, "b", b"by 1", handle.peer_ids[1]),
    }
    with pytest.raises(ValueError, match="no peer 3"):
        await handle.publish("a", b"", peer=3)


async def test_copies_are_counted_not_delivered(network: Network) -> None:
    """In a full mesh of four a message comes on several ways: one copy is delivered, the rest counted."""
    inbox = network.inbox()
    handle = await network.start(
        *(PeerSettings(key_seed=str(number), subscribe=(TOPIC,)) for number in range(4)),
        inbox=inbox,
        interconnect=True,
    )

    async def meshed() -> bool:
        stats = [await handle.stats(peer) for peer in range(4)]
        return all(TOPIC in s.topics and s.topics[TOPIC].mesh == 3 for s in stats)

    await network.until(meshed)
    assert set(await asyncio.gather(*(handle.publish(TOPIC, b"%d" % n) for n in range(10)))) == {3}
    await inbox.wait(30)
    delivered = [(message.peer, message.data) for message in inbox.messages]
    assert len(delivered) == len(set(delivered)) == 30

    async def settled() -> bool:
        # Peers 1 to 3 each forward to the two others, but not to whom they have it from: where that is not the author
        # himself, a copy is saved, so that there are four to six further copies of each message.
        stats = [await handle.stats(peer) for peer in range(1, 4)]
        return 40 <= sum(s.duplicates for s in stats) <= 60

    await network.until(settled)
    assert len(inbox.messages) == 30


async def test_nobody_there_is_zero(network: Network) -> None:
    """Without a remote subscriber of that topic a publish goes to 0 peers, and is not sent later either; a
    publisher needs no subscription of its own (fanout)."""
    inbox = network.inbox()
    handle = await network.start(PeerSettings(subscribe=(OTHER,)), PeerSettings(), inbox=inbox)
    assert await handle.publish(OTHER, b"alone", peer=1) == 0
    await handle.dial(handle.addresses[0], peer=1)
    await network.knows(handle, OTHER, peer=1)
    assert await handle.publish(TOPIC, b"other topic", peer=1) == 0
    assert await handle.publish(OTHER, b"heard", peer=1) == 1
    assert await inbox.wait(1) == [b"heard"]


async def test_burst_loses_nothing(network: Network) -> None:
    """500 publishes at once are paced, and all arrive."""
    inbox = network.inbox()
    handle = await network.start(PeerSettings(subscribe=(TOPIC,)), PeerSettings(), inbox=inbox, publish_rate=900)
    await handle.dial(handle.addresses[0], peer=1)
    await network.knows(handle, TOPIC, peer=1)
    datas = [b"%d" % number for number in range(500)]
    began = time.monotonic()
    assert set(await asyncio.gather(*(handle.publish(TOPIC, data, peer=1) for data in datas))) == {1}
    assert time.monotonic() - began >= (500 - 50 - 1) / 900
    assert await inbox.wait(500) == datas


async def test_large_messages_and_rude_company(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    """A message of 1 MiB and the largest allowed one arrive unchanged, a longer one is refused at once; neither
    garbage on our port nor an error in `on_message` stops the next message."""
    inbox = network.inbox()

    def fail_first(message: GossipMessage) -> None:
        inbox(message)
        if len(inbox.messages) == 1:
            raise RuntimeError("not today")

    handle = await network.start(PeerSettings(subscribe=(TOPIC,)), PeerSettings(), inbox=fail_first)
    port = int(handle.addresses[0].split("/tcp/")[1].split("/")[0])
    for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x13/multistream/1.0.0\n", os.urandom(5000), b"\xff" * 20):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(junk)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()
    await handle.dial(handle.addresses[0], peer=1)
    await network.knows(handle, TOPIC, peer=1)
    sent = [os.urandom(1024 * 1024), os.urandom(MAX_DATA_BYTES)]
    for data in sent:
        assert await handle.publish(TOPIC, data, peer=1) == 1
    assert await inbox.wait(2) == sent
    assert "not today" in caplog.text
    with pytest.raises(ValueError, match=str(MAX_DATA_BYTES)):
        await handle.publish(TOPIC, bytes(MAX_DATA_BYTES + 1), peer=1)
    assert (await handle.stats()).restarts == 0


async def test_too_many_publishes_are_refused(network: Network) -> None:
    """Beyond the bounds on publishes under way, in number or bytes, `GossipBusy` is raised and counted."""
    handle = await network.start(PeerSettings(), max_pending=10, max_pending_bytes=1000, publish_rate=20)
    results = await asyncio.gather(*(handle.publish(TOPIC, b"x") for _ in range(15)), return_exceptions=True)
    assert [type(result) for result in results] == [int] * 10 + [GossipBusy] * 5
    results = await asyncio.gather(*(handle.publish(TOPIC, bytes(400)) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [int, int, GossipBusy]
    assert (await handle.stats()).refused == 6


async def test_service_that_does_not_listen_loses_the_oldest_and_is_told(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages for a service that stopped reading are kept up to the bound; then the oldest go, counted."""
    inbox = network.inbox()
    reader, writer = await asyncio.gather(
        network.start(PeerSettings(subscribe=(TOPIC,)), inbox=inbox, max_inbound=5, max_inbound_bytes=10_000_000),
        network.start(PeerSettings()),
    )
    await writer.dial(reader.addresses[0])
    await network.knows(writer, TOPIC)
    assert reader._child is not None
    transport = reader._child._writer.transport
    transport.pause_reading()  # type: ignore[attr-defined]
    sent = [b"%3d" % number + bytes(100_000) for number in range(40)]
    assert set(await asyncio.gather(*(writer.publish(TOPIC, data) for data in sent))) == {1}

    async def all_written() -> bool:
        return (await writer.stats()).connected_peers == 1 and "dropping" in caplog.text

    await network.until(all_written)
    transport.resume_reading()  # type: ignore[attr-defined]

    async def accounted() -> bool:
        stats = await reader.stats()
        return stats.delivered == 40 and len(inbox.messages) + stats.dropped_inbound == 40

    await network.until(accounted)
    assert (await reader.stats()).dropped_inbound > 0
    received = [message.data for message in inbox.messages]
    assert received == [data for data in sent if data in received]
    assert received[-5:] == sent[-5:]


# ---- identity and addresses


async def test_identity_comes_from_seed_or_file(network: Network, tmp_path: Path) -> None:
    """The same seed or key file is the same secp256k1 peer id; without either each handle is new. Addresses
    are those listened on, or the announced ones."""
    file = str(tmp_path / "peer.key")
    first = await network.start(PeerSettings(key_seed="s"), PeerSettings(key_file=file), PeerSettings())
    await first.stop()
    announced = ("/dns4/relayer.example/tcp/10000",)
    second = await network.start(
        PeerSettings(key_seed="s"), PeerSettings(key_file=file), PeerSettings(announce=announced)
    )
    assert first.peer_ids[:2] == second.peer_ids[:2]
    assert first.peer_ids[2] != second.peer_ids[2]
    assert all(peer_id.startswith("16Uiu2") for peer_id in first.peer_ids)
    assert second.addresses[0].startswith("/ip4/127.0.0.1/tcp/")
    assert second.addresses[0].endswith("/p2p/" + second.peer_ids[0])
    assert second.addresses_of(2) == (f"{announced[0]}/p2p/{second.peer_ids[2]}",)


async def test_start_that_cannot_work_says_why(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that cannot start ends `start` with an error that says why, and is not started again."""
    bad = tmp_path / "bad.key"
    bad.write_text("not a key")
    handle = network.handle(PeerSettings(key_file=str(bad)))
    with pytest.raises(GossipError, match=r"bad\.key holds neither"):
        await handle.start()
    assert not handle.running
    assert handle.pid is None
    assert not temporary()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(GossipError, match="cannot start the gossip process"):
        await handle.start()


async def test_dial_that_cannot_work_says_why(network: Network) -> None:
    """A dial to nobody, nonsense, oneself or the wrong identity raises an error naming the address."""
    handle, third = await asyncio.gather(
        network.start(PeerSettings(key_seed="a"), PeerSettings(key_seed="b")), network.start(PeerSettings())
    )
    address, other = handle.addresses[0], handle.addresses_of(1)[0]
    with pytest.raises(GossipError, match="itself"):
        await handle.dial(address)
    with pytest.raises(GossipError, match="nonsense"):
        await handle.dial("nonsense")
    impostor = other.split("/p2p/")[0] + "/p2p/" + third.peer_ids[0]
    with pytest.raises(GossipError, match=impostor):
        await handle.dial(impostor)
    with pytest.raises(GossipError, match="/tcp/1/"):
        await handle.dial("/ip4/127.0.0.1/tcp/1/p2p/" + handle.peer_ids[1])
    await handle.dial(other)
    await network.connected(handle, 1)


# ---- life and death


async def test_killed_process_comes_back_and_rejoins(network: Network) -> None:
    """After kill -9 the process is started again with the same identity, address and topics; the peers it
    dials (also such as were added later) and those that dial it are connected again, and messages flow."""
    inbox = network.inbox()
    others, victim = await asyncio.gather(
        network.start(PeerSettings(), PeerSettings()),
        network.start(PeerSettings(subscribe=(TOPIC,)), inbox=inbox),
    )
    with pytest.raises(GossipError, match="nonsense is no multiaddress"):
        await victim.add_bootstrap("nonsense")
    await victim.add_bootstrap(others.addresses_of(0)[0])
    await others.add_bootstrap(victim.addresses[0], peer=1)
    await asyncio.gather(*(network.knows(others, TOPIC, peer=peer) for peer in (0, 1)))
    for number in range(3):
        await others.publish(TOPIC, b"%d" % number)
    await inbox.wait(3)
    assert (await victim.stats()).delivered == 3
    before = (victim.peer_ids, victim.addresses)
    pid = victim.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    async def restarted() -> bool:
        return victim.running and victim.pid != pid

    await network.until(restarted)
    assert (victim.peer_ids, victim.addresses) == before
    assert (await victim.stats()).restarts == 1
    for sender in (0, 1):
        inbox.messages.clear()

        async def heard(sender: int = sender) -> bool:
            return await others.publish(TOPIC, b"again", peer=sender) == 1

        await network.until(heard)
        await inbox.wait(1)
    stats = await victim.stats()
    assert stats.delivered == stats.topics[TOPIC].delivered == 5


async def test_peers_that_dial_each_other_get_along(network: Network) -> None:
    """Two peers each with the other as bootstrap, dialling at the same time, exchange everything."""
    inbox = network.inbox()
    handle = await network.start(*[PeerSettings(subscribe=(TOPIC,))] * 2, inbox=inbox)
    await asyncio.gather(*(handle.add_bootstrap(handle.addresses_of(1 - peer)[0], peer) for peer in (0, 1)))
    await asyncio.gather(*(network.knows(handle, TOPIC, peer=peer) for peer in (0, 1)))
    expected = [b"%d" % number for number in range(50)]
    for data in expected:
        assert await asyncio.gather(*(handle.publish(TOPIC, data, peer) for peer in (0, 1))) == [1, 1]
    await inbox.wait(100)
    for peer in (0, 1):
        assert [message.data for message in inbox.messages if message.peer == peer] == expected


async def test_publish_while_the_process_is_down_is_zero(network: Network) -> None:
    """A publish under way when the process dies, and one before the next is up, return 0; nothing hangs."""
    handle = await network.start(PeerSettings(), publish_rate=1, publish_burst=1)
    waiting = [asyncio.create_task(handle.publish(TOPIC, b"x")) for _ in range(3)]
    assert handle.pid is not None
    os.kill(handle.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        assert await asyncio.gather(*waiting) == [0, 0, 0]
        assert await handle.publish(TOPIC, b"x") == 0
        with pytest.raises(GossipError, match="started again"):
            await handle.dial("/ip4/127.0.0.1/tcp/1")
        stats = await handle.stats()
    assert (stats.peer_id, stats.connected_peers) == (handle.peer_ids[0], 0)


async def test_hanging_process_is_replaced(network: Network) -> None:
    """A process that is alive but no longer answers is killed and started again."""
    handle = await network.start(PeerSettings(), hang_timeout=0.6)
    pid = handle.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)

    async def replaced() -> bool:
        return handle.running and handle.pid != pid

    await network.until(replaced)
    assert not alive(pid)


async def test_frozen_remote_peer_is_dropped(network: Network) -> None:
    """A remote that keeps its connection but answers no ping is disconnected, and dialled again later."""
    remote, handle = await asyncio.gather(
        network.start(PeerSettings()), network.start(PeerSettings(), ping_interval=0.6)
    )
    await handle.add_bootstrap(remote.addresses[0])
    await network.connected(handle, 1)
    assert remote.pid is not None
    os.kill(remote.pid, signal.SIGSTOP)
    try:
        await network.connected(handle, 0)
    finally:
        os.kill(remote.pid, signal.SIGCONT)
    await network.connected(handle, 1)


async def test_connections_beyond_the_quota_are_closed(network: Network) -> None:
    """Of three peers that dial one which keeps two, one is let go of and counted; a bootstrap peer stays."""
    hub, dialers = await asyncio.gather(
        network.start(PeerSettings(subscribe=(TOPIC,), max_connections=2)),
        network.start(*(PeerSettings(subscribe=(TOPIC,)) for _ in range(3))),
    )
    await hub.add_bootstrap(dialers.addresses_of(0)[0])
    for peer in (1, 2):
        await dialers.dial(hub.addresses[0], peer=peer)

    async def trimmed() -> bool:
        stats = await hub.stats()
        return (stats.connections, stats.trimmed, stats.connected_peers) == (3, 1, 2)

    await network.until(trimmed)
    await network.connected(dialers, 1, peer=0)


async def test_stop_is_quick_and_leaves_nothing(network: Network) -> None:
    """`stop` takes under 2 s, also for a process that does not react, and leaves no process and no file; a
    handle can be stopped twice and started again as the same peer, but not started twice."""
    willing, frozen = network.handle(PeerSettings()), network.handle(PeerSettings())
    await asyncio.gather(willing.start(), frozen.start())
    pids = [willing.pid, frozen.pid]
    assert frozen.pid is not None
    os.kill(frozen.pid, signal.SIGSTOP)
    for handle in (willing, frozen):
        began = time.monotonic()
        await handle.stop()
        assert time.monotonic() - began < 2
        assert not handle.running
    assert not any(alive(pid) for pid in pids if pid)
    assert not temporary()
    await willing.stop()
    peer_ids = willing.peer_ids
    await willing.start()
    assert willing.peer_ids == peer_ids
    with pytest.raises(GossipError, match="already started"):
        await willing.start()


async def test_what_was_published_before_stop_arrives(network: Network) -> None:
    """A publish that returned 1 is on its way: stopping at once does not take it back."""
    inbox = network.inbox()
    reader, writer = await asyncio.gather(
        network.start(PeerSettings(subscribe=(TOPIC,)), inbox=inbox),
        network.start(PeerSettings(), publish_burst=200),
    )
    await writer.dial(reader.addresses[0])
    await network.knows(writer, TOPIC)
    datas = [b"%d" % number for number in range(150)]
    assert set(await asyncio.gather(*(writer.publish(TOPIC, data) for data in datas))) == {1}
    await writer.stop()
    assert await inbox.wait(150) == datas


def test_process_dies_with_its_parent() -> None:
    """When the parent is killed, its gossip process ends too: no orphan."""
    program = textwrap.dedent("""
        import asyncio
        from millrace.gossip import GossipHandle, GossipSettings

        async def main():
            handle = GossipHandle(GossipSettings())
            await handle.start()
            print(handle.pid, flush=True)
            await asyncio.sleep(60)

        asyncio.run(main())
    """)
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(pid)


async def test_log_lines_of_the_process_reach_logging(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    """What the process logs appears under the logger and level it used there, with its context."""
    unreachable = "/ip4/127.0.0.1/tcp/1/p2p/16Uiu2HAm979nYv6WosJcoTvk72QtFJ5X7xLprMHPHTi7YYMus6D2"
    await network.start(PeerSettings(bootstrap=(unreachable,)))

    async def complained() -> bool:
        return any(record.name == "millrace.gossip.peer" for record in caplog.records)

    await network.until(complained)
    record = next(record for record in caplog.records if record.name == "millrace.gossip.peer")
    assert record.levelno == logging.WARNING
    assert unreachable in record.__dict__["reason"]
