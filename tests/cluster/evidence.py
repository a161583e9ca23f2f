"""What is known when a run is over: what relayers' journals, the claims, the chain and the broker have."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from cluster.checker import subscriptions
from cluster.clients import HOST, Front
from cluster.history import (
    Answered,
    Asked,
    Ended,
    Gone,
    History,
    Looked,
    Missed,
    Published,
    Read,
    Signed,
    Told,
    now_ms,
)
from cluster.tap import signed
from cluster.world import World, get
from millrace.chain.headers import read_header
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import from_proto
from millrace_client import Event, Hub

_PREFETCHED = 500
_AT_ONCE = 8
"""Questions to the chain under way together."""
_SIGNED = "SELECT tx, signature, created_ms FROM submissions JOIN signatures USING (id) WHERE relayer IS NOT NULL"
_CLAIMS = "SELECT encode(tx, 'hex'), created_ms FROM relayer_claims.claims"
OVER = {"success", "fail"}
SUBSCRIBED_MS = 55_000
"""A subscription that is older may have ended."""


async def read_hub(history: History, urls: list[str]) -> None:
    """Consume everything, with whichever notifier is there; until cancelled."""
    async with Hub(urls, resume_after=0) as hub:
        async for item in hub:
            if isinstance(item, Event):
                history.add(Read(id=item.id, height=_height(item)))
            else:
                history.add(Missed(why=item.why))


def _height(event: Event) -> int | None:
    if event.topic != "SaveBlock":
        return None
    header = read_header(pb.OutportBlock.FromString(event.payload).blockData)
    return None if header is None else header.nonce


def journals(world: World, history: History, relaying: range) -> None:
    """What each relayer has signed, from its own journal."""
    for number in relaying:
        with contextlib.closing(sqlite3.connect(f"file:{world.journal(number)}?mode=ro", uri=True)) as journal:
            for raw, signature, created_ms in journal.execute(_SIGNED):
                tx = from_proto(raw)
                history.add(signed(msgspec.structs.replace(tx, relayer_signature=signature), "journal", created_ms))


def claims(world: World, history: History) -> None:
    """What was claimed, from the database that is the primary now."""
    for line in world.databases.primary.sql(_CLAIMS).splitlines():
        raw, created_ms = line.split("|")
        history.add(signed(from_proto(bytes.fromhex(raw)), "claim", int(created_ms)))


class Ends:
    """What the chain says of transactions; what has ended is asked for once."""

    def __init__(self, world: World, history: History, session: aiohttp.ClientSession) -> None:
        self._world, self._history, self._session = world, history, session
        self._known: set[str] = set()

    def wanted(self) -> set[str]:
        """Payloads that were accepted to be sent and have not ended."""
        asked = {record.op: record for record in self._history.of(Asked)}
        answers = [asked[each.op] for each in self._history.of(Answered) if each.said == "accepted"]
        return {each.payload for each in answers if each.action != "sign"} - self._known

    async def look(self, payloads: set[str]) -> None:
        """Write down which of these have ended."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def ask(payload: str) -> None:
            async with gate:
                status, body = await get(self._session, f"{self._world.chain_url}/transactions/{payload}")
            if status == 200 and body["status"] in OVER:
                self._known.add(payload)
                self._history.add(_ended(body))

        await asyncio.gather(*(ask(payload) for payload in payloads - self._known))

    def untold(self) -> bool:
        """Whether somebody listens to what has ended and was not told, on a connection that stands."""
        heard = {(each.line, each.topic): each.number for each in self._history.of(Told)}
        gone = {each.line for each in self._history.of(Gone)}
        # Of a status there is no number: to have been told is enough.
        ended = {f"tx-status/{name}": (each.at, 0) for each in self._history.of(Ended) for name in each.names}
        ended |= {f"address/{each.sender}": (each.at, each.nonce + 1) for each in self._newest()}
        for each in subscriptions(self._history):
            at, number = ended.get(each.topic, (0, 0))
            lives = each.topic.startswith("address/") or each.at > now_ms() - SUBSCRIBED_MS
            if each.at < at and lives and each.line not in gone and heard.get((each.line, each.topic), -1) < number:
                return True
        return False

    def _newest(self) -> list[Ended]:
        """Of each sender what it sent last."""
        ended = sorted(self._history.of(Ended), key=lambda each: each.nonce)
        return list({each.sender: each for each in ended}.values())

    async def look_at_the_rest(self) -> None:
        """Of what anybody signed or was told of, the chain's word; of what it does not have, the service's."""
        payloads = {each.payload for each in self._history.of(Signed)}
        names = {each.topic.removeprefix("tx-status/") for each in self._history.of(Told) if each.status}
        known = {name for each in self._history.of(Ended) for name in each.names}
        await self.look(payloads | (names - known) | self.wanted())

    async def ask_the_service(self, front: Front) -> None:
        """What it says of what it accepted and the chain does not have."""
        for payload in self.wanted():
            status, body = await get(front.session, front.url(f"/v1/transactions/{payload}"), **HOST)
            state = body["state"] if status == 200 else str(status)
            words = (body.get("reason") or body.get("error") or "") if isinstance(body, dict) else ""
            self._history.add(Looked(payload=payload, state=state, words=words))


def _ended(body: dict[str, Any]) -> Ended:
    names = tuple(dict.fromkeys((body["txHash"], body["clientHash"])))
    return Ended(
        at=body["timestampMs"], payload=body["clientHash"], names=names, status=body["status"], sender=body["sender"],
        nonce=body["nonce"], seen=now_ms(),
    )  # fmt: skip


async def drain(world: World, history: History, patience: float) -> None:
    """Everything that came out of the broker, until all that consumers read is there."""
    wanted = {each.id for each in history.of(Read)}
    connection = await world.broker.connect()
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(_PREFETCHED)
        queue = await channel.get_queue("all", ensure=False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience), queue.iterator() as messages:
                while wanted:
                    message = await anext(messages)
                    await message.ack()
                    history.add(Published(id=message.message_id or ""))
                    wanted.discard(message.message_id or "")


def file_of(folder: Path) -> Path:
    """Where the history of a run is kept."""
    return folder / "history.jsonl"
