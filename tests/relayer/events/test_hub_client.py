"""The hub client resumes after the last event it took, whoever was away."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from relayer_support import BlockMaker, as_json, connected, transfer, wallet

from millrace.chain import outport
from millrace.chain.proto import hub_pb2
from millrace.chain.transaction import TransactionJson, client_hash, from_json
from millrace.relayer.events.hub_client import HubClient
from millrace.relayer.journal.writer import JournalError
from millrace_client.places import Place
from waiting import until

ALICE = wallet(1)


async def relayed(world: Any, client: Any, tx: Any) -> Any:
    """Relay a transaction with a subscription; the whole transaction as it reached the chain."""
    await client.ask(action="subscribe", topic=f"tx-status/{client_hash(tx).hex()}")
    count = len(world.api.submitted)
    await client.ask(action="relay", tx=as_json(tx))
    sent = (await world.api.wait_submitted(count + 1))[-1]
    return from_json(msgspec.convert(sent, TransactionJson))


async def test_hub_away(world: Any) -> None:
    """What happened while the hub was unreachable is delivered after, exactly once."""
    await world.start()
    port = world.hub.server.port
    async with connected(world.ws) as client:
        whole = await relayed(world, client, transfer(ALICE))
        world.hub.save(BlockMaker(2).block(accounts={wallet(2).public: (1, 1)}))
        await until(lambda: world.hub.acked >= 2)
        await world.hub.stop()
        world.hub.links.clear()
        world.hub.save(BlockMaker(1).block([whole]))
        await world.hub.start(port)
        assert (await client.push())["data"]["status"] == "success"
        assert world.hub.resumed_after[-1] == 2
        assert client.pushed == []


async def test_relayer_away(world: Any) -> None:
    """After a restart reading begins at what is still needed: the fate of what is in flight is not missed."""
    await world.start()
    maker = BlockMaker(1)
    async with connected(world.ws) as client:
        whole = await relayed(world, client, transfer(ALICE))
    block = maker.block([whole], accounts={ALICE.public: (1, 10**18)})
    world.hub.push(outport.SAVE_BLOCK, block)
    await until(lambda: world.hub.acked >= 1)
    await world.stop()
    world.hub.finalise(block)
    service = await world.start()
    assert world.hub.resumed_after[-1] == 0, "the saved block was not final: it is read again"
    await until(lambda: not len(service.lifecycle.inflight))
    assert service.journal.find(whole.sender, whole.nonce, client_hash(whole)) is not None


@pytest.mark.parametrize("more", [(), ("ws://127.0.0.1:9/hub/ws",)])
async def test_an_unreadable_place(world: Any, caplog: pytest.LogCaptureFixture, more: tuple[str, ...]) -> None:
    """One that another version wrote otherwise ends no start: of one notifier the sequence is enough, of several it
    could be anybody's, and what may be missing is said to be, once."""
    journal = (await world.start()).journal
    async with connected(world.ws) as client:
        await relayed(world, client, transfer(ALICE))
    await world.stop()
    journal.open()
    journal.keep_cursor(7, "written by another version")
    await journal.close()
    service = await world.start(more_hub_urls=more)
    assert "cannot be read" in caplog.text
    assert world.hub.resumed_after[-1] == (None if more else 7)
    assert service.lifecycle.inflight and service.events.gaps == bool(more)


async def test_an_unreadable_cursor_and_pause(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What was read and what was paused may be damaged: the start goes on with what is safe and says what it does:
    events are said to be missing, and nobody is paid for until an operator says which shards are to stay paused."""
    journal = (await world.start()).journal
    await world.stop()
    journal.open()
    rows = [("cursor", "seven"), ("paused_shards", "0 one")]
    journal.change(lambda c: c.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows))
    await journal.flush()
    with pytest.raises(JournalError, match="/control/pause"):
        journal.paused_shards()
    await journal.close()
    service = await world.start()
    assert world.hub.resumed_after[-1] is None and service.events.gaps == 1
    assert service.lifecycle.sponsor.paused == {0, 1, 2}
    assert "where reading was cannot be read" in caplog.text and "all shards are paused" in caplog.text
    await service.lifecycle.pause(frozenset({1}))
    assert service.journal.paused_shards() == {1}


async def test_gap_is_not_silent(world: Any) -> None:
    """A gap makes the relayer forget accounts and goes on behind it."""
    service = await world.start()
    async with connected(world.ws) as client:
        await relayed(world, client, transfer(ALICE))
        assert len(service.book) == 1
        gap = hub_pb2.Gap(first=1, last=5)
        for link in world.hub.links:
            link.send_binary(outport.payload_envelope("gap", gap.SerializeToString(), 0))
        await until(lambda: not len(service.book))
        assert service.hub.last == 5 and service.events.gaps == 1


async def test_poison_events_are_skipped(world: Any) -> None:
    """An unreadable event is counted, acknowledged and left behind."""
    service = await world.start()
    async with connected(world.ws) as client:
        await client.ask(action="subscribe", topic="accounts")

        class Poison:
            def SerializeToString(self) -> bytes:
                return b"\xff\xff\xff"

        world.hub.push(outport.SAVE_BLOCK, Poison())
        world.hub.push("Unheard", Poison())
        world.hub.save(BlockMaker(2).block(accounts={wallet(2).public: (1, 1)}))
        assert (await client.push())["type"] == "accountDelta"
    assert service.events.unreadable == 1
    await until(lambda: world.hub.acked >= 4)


class Sink:
    """Keeps what it is told; the event of sequence `broken` is one nobody foresaw."""

    def __init__(self, broken: int = 0) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.broken = broken
        self.marks = 0

    def on_event(self, topic: str, payload: bytes, sequence: int, marks: int) -> tuple[str, ...]:
        if sequence == self.broken:
            raise RuntimeError("nobody foresaw it")
        self.told.append((topic, payload, sequence))
        self.marks = marks
        return tuple(f"trace {number} of {sequence}" for number in range(marks))

    def on_gap(self, first: int, last: int) -> None:
        self.told.append(("gap", first, last))


class Link:
    """Keeps what is sent to the hub."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send_binary(self, data: bytes) -> None:
        self.sent.append(outport.decode_envelope(data))


def event(sequence: int, marks: int = 0) -> bytes:
    envelope = outport.decode_envelope(outport.payload_envelope("Topic", b"x", sequence))
    envelope.marks = marks
    return envelope.SerializeToString()


def reply(ok: bool, head: int) -> bytes:
    message = hub_pb2.SubscribeReply(ok=ok, head=head)
    return outport.payload_envelope("subscribe", message.SerializeToString(), 0)


def test_an_event_is_taken_once_and_always_acknowledged() -> None:
    """What comes again after a reconnect is acknowledged and not taken; what nobody foresaw is left behind."""
    sink, link = Sink(broken=7), Link()
    hub = HubClient([""], sink, Place(5, "", ()))
    for sequence in (4, 5, 6, 6, 7, 8):
        hub.take(link, event(sequence))  # type: ignore[arg-type]
    assert [told[-1] for told in sink.told] == [6, 8]
    assert [item.counter for item in link.sent] == [4, 5, 6, 6, 7, 8]
    assert (hub.last, hub.head) == (8, 8)


def test_marks_are_handed_on() -> None:
    """What the notifier has to say about an event comes with it."""
    sink, link = Sink(), Link()
    hub = HubClient([""], sink, Place(5, "", ()))
    hub.take(link, event(6, marks=9))  # type: ignore[arg-type]
    assert sink.marks == 9


def test_a_hub_that_cannot_resume_is_a_gap() -> None:
    """Refused, it asks for what is new from now on, and says that all in between is lost."""
    sink, link = Sink(), Link()
    hub = HubClient([""], sink, Place(5, "", ()))
    hub.take(link, reply(False, 3))  # type: ignore[arg-type]
    assert sink.told == [("gap", 6, 3)] and not hub.connected
    (asked,) = link.sent
    assert not hub_pb2.SubscribeEvent.FromString(asked.payload).HasField("resume_after")
    hub.take(link, reply(True, 3))  # type: ignore[arg-type]
    assert hub.connected and hub.last == 3
    hub.take(link, event(4))  # type: ignore[arg-type]
    assert sink.told[1:] == [("Topic", b"x", 4)]


def test_after_a_gap_reading_goes_on_behind_it() -> None:
    """The end of the gap is where a reconnect resumes."""
    sink, link = Sink(), Link()
    hub = HubClient([""], sink, Place(5, "", ()))
    gap = hub_pb2.Gap(first=6, last=9)
    hub.take(link, outport.payload_envelope("gap", gap.SerializeToString(), 0))  # type: ignore[arg-type]
    assert sink.told == [("gap", 6, 9)]
    wish = hub_pb2.SubscribeEvent.FromString(outport.decode_envelope(hub.subscription()).payload)
    assert wish.resume_after == 9


def told(sequence: int, name: int) -> bytes:
    envelope = outport.decode_envelope(event(sequence))
    envelope.id = f"SaveBlock:0:{name:064x}:1"
    return envelope.SerializeToString()


def wish_of(hub: HubClient) -> hub_pb2.SubscribeEvent:
    return hub_pb2.SubscribeEvent.FromString(outport.decode_envelope(hub.subscription()).payload)


def welcome(head: int, oldest: int, journal: str = "") -> bytes:
    message = hub_pb2.SubscribeReply(ok=True, head=head, oldest=oldest, journal=journal)
    return outport.payload_envelope("subscribe", message.SerializeToString(), 0)


def test_another_notifier_is_told_ids() -> None:
    """It goes on by ids; what it tells again is acknowledged and left out; numbers ascend on both."""
    sink, link = Sink(), Link()
    hub = HubClient(["a", "b"], sink, None)
    hub.take(link, welcome(500, 100))  # type: ignore[arg-type]
    for sequence in (501, 502, 503):
        hub.take(link, told(sequence, sequence))  # type: ignore[arg-type]
    hub._at = 1
    wish = wish_of(hub)
    assert (wish.resume_after, wish.resume_id) == (503, f"SaveBlock:0:{503:064x}:1")
    assert [(item.id[-5:], item.since) for item in wish.handled] == [("1f7:1", 0), ("1f6:1", 1), ("1f5:1", 2)]
    hub.take(link, welcome(13, 1))  # type: ignore[arg-type]
    for sequence, name in ((11, 502), (12, 503), (13, 504), (14, 505)):
        hub.take(link, told(sequence, name))  # type: ignore[arg-type]
    assert len(sink.told) == 5 and [item.counter for item in link.sent] == [501, 502, 503, 11, 12, 13, 14]
    numbers = [item[2] for item in sink.told]
    assert numbers == sorted(set(numbers)) and hub.last == numbers[-1] == hub.head
    place = hub.place(hub.last)
    assert place is not None and place.after == 14
    again = HubClient(["b", "a"], Sink(), Place.of_text(place.text()))
    assert wish_of(again).resume_after == 14 and wish_of(again).resume_id[-5:] == "1f9:1"


def test_a_notifier_without_ids() -> None:
    """One of an earlier version tells sequences only: they are enough as long as it is the only one."""
    for urls, kept in ((["a"], Place(6, "", ())), (["a", "b"], None)):
        hub, link = HubClient(urls, Sink(), Place(5, "", ())), Link()
        hub.take(link, welcome(6, 1))  # type: ignore[arg-type]
        hub.take(link, event(6))  # type: ignore[arg-type]
        assert wish_of(hub).resume_after == 6 and not wish_of(hub).resume_id
        assert hub.place(6) == kept


def test_a_move_to_a_notifier_without_ids() -> None:
    """It took the place for a sequence of its own: its first event tells, and a gap is told, once."""
    sink, link = Sink(), Link()
    hub = HubClient(["a", "b"], sink, None)
    hub.take(link, welcome(500, 100))  # type: ignore[arg-type]
    hub.take(link, told(501, 501))  # type: ignore[arg-type]
    hub._at = 1
    for _ in range(2):  # the first connection ends before an event comes
        assert wish_of(hub).resume_id
        hub.take(link, welcome(900, 1))  # type: ignore[arg-type]
    for sequence in (502, 503):
        hub.take(link, event(sequence))  # type: ignore[arg-type]
    numbers = [item[2] for item in sink.told]
    assert [item[0] for item in sink.told] == ["Topic", "gap", "Topic", "Topic"] and numbers == sorted(numbers)
    assert (wish_of(hub).resume_after, wish_of(hub).resume_id) == (503, "")


def test_a_notifier_goes_back_to_an_earlier_version() -> None:
    """The only one has the same sequences as before: its sequences go on as before, and there is no gap."""
    sink, link = Sink(), Link()
    hub = HubClient(["a"], sink, Place(501, f"SaveBlock:0:{501:064x}:1", ()))
    assert wish_of(hub).resume_after == 501
    hub.take(link, welcome(501, 1))  # type: ignore[arg-type]
    hub.take(link, event(502))  # type: ignore[arg-type]
    assert [item[0] for item in sink.told] == ["Topic"] and hub.last is not None
    assert (wish_of(hub).resume_after, wish_of(hub).resume_id) == (502, "") and hub.place(hub.last) == Place(
        502, "", ()
    )


def test_the_first_place_names_the_journal() -> None:
    """Before any event has an id the sequence is told with whose it is, now and by a later process."""
    hub, link = HubClient(["a"], Sink(), None), Link()
    hub.take(link, welcome(500, 100, "5d"))  # type: ignore[arg-type]
    assert (wish_of(hub).resume_after, wish_of(hub).resume_journal) == (500, "5d")
    place = hub.place(500)
    assert place == Place(500, "", (), "5d")
    again = HubClient(["a"], Sink(), Place.of_text(place.text()))
    assert (wish_of(again).resume_after, wish_of(again).resume_journal) == (500, "5d")


def test_a_journal_put_back_before_any_event() -> None:
    """Behind the gap of what it lost it goes on where it was put back to; numbers ascend all the same."""
    sink, link = Sink(), Link()
    hub = HubClient(["a"], sink, Place(500, "", (), "5d"))
    hub.subscription()
    hub.take(link, welcome(520, 100, "5e"))  # type: ignore[arg-type]
    gap = hub_pb2.Gap(first=451, last=500, resumes_after=450).SerializeToString()
    hub.take(link, outport.payload_envelope("gap", gap, 0))  # type: ignore[arg-type]
    assert (hub.last, hub.head) == (500, 570)
    assert (wish_of(hub).resume_after, wish_of(hub).resume_journal) == (450, "5e")
    assert hub.place(500) == Place(450, "", (), "5e")


def test_a_move_before_any_event() -> None:
    """Who was told nothing cannot say where it is: that is a gap, and reading goes on with what is new."""
    sink, link = Sink(), Link()
    hub = HubClient(["a", "b"], sink, None)
    hub.take(link, welcome(500, 100))  # type: ignore[arg-type]
    assert wish_of(hub).resume_after == 500 and hub.place(500) is None
    hub._at = 1
    assert not wish_of(hub).HasField("resume_after")
    hub.take(link, welcome(13, 1))  # type: ignore[arg-type]
    assert [item[0] for item in sink.told] == ["gap"]
    hub.take(link, told(14, 1))  # type: ignore[arg-type]
    assert sink.told[-1][2] == hub.last == hub.head
