"""What is known when a run is over: what relayers' journals, the claims, the chain and the broker have."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from cluster import stream, subscriptions
from cluster.clients import HOST, Front
from cluster.history import (
    ROUND_MS,
    Answered,
    Asked,
    Ended,
    History,
    Looked,
    Made,
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
from millrace.chain.shard import METACHAIN
from millrace.chain.transaction import from_proto
from millrace_client import Event, Hub

_PREFETCHED = 500
_AT_ONCE = 8
"""Questions to the chain under way together."""
_SIGNED = "SELECT tx, signature, created_ms FROM submissions JOIN signatures USING (id) WHERE relayer IS NOT NULL"
_CLAIMS = "SELECT encode(tx, 'hex'), created_ms FROM relayer_claims.claims"
OVER = {"success", "fail"}


async def read_hub(history: History, urls: list[str]) -> None:
    """Consume everything, with whichever notifier is there; until cancelled."""
    async with Hub(urls, resume_after=0) as hub:
        async for item in hub:
            if isinstance(item, Event):
                height, made = _saved(item.id, item.payload)
                history.add(Read(id=item.id, height=height, made=made))
            else:
                history.add(Missed(why=item.why))


def _saved(id_: str, payload: bytes) -> tuple[int | None, int]:
    """Of a saved block its height, and the time that it bears."""
    if not id_.startswith("SaveBlock:"):
        return None, 0
    header = read_header(pb.OutportBlock.FromString(payload).blockData)
    return (None, 0) if header is None else (header.nonce, header.timestamp_ms)


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
        self._genesis_ms = 0
        """The time that the chain's round 0 would bear."""

    async def begin(self) -> None:
        """The chain tells when its rounds began, or a bit earlier: its newest block may not be of its newest round."""
        while (found := await get(self._session, f"{self._world.chain_url}/network/status/{METACHAIN}"))[0] != 200:
            await asyncio.sleep(0.2)
        status = found[1]["data"]["status"]
        self._genesis_ms = status["erd_block_timestamp_ms"] - ROUND_MS * status["erd_current_round"]

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
                self._history.add(self._ended(body))

        await asyncio.gather(*(ask(payload) for payload in payloads - self._known))

    def untold(self) -> bool:
        """Whether somebody listens to what has ended and was not told, on a connection that stands."""
        return any(subscriptions.untold(self._history, now_ms()))

    async def look_at_shards(self) -> None:
        """Write down which blocks there are, as only the chain knows."""
        while (found := await get(self._session, f"{self._world.chain_url}/health"))[0] != 200:
            await asyncio.sleep(0.2)
        for name, height in found[1]["blocks"].items():
            self._history.add(Made(shard=str(METACHAIN) if name == "meta" else name, height=height))

    def unread(self) -> bool:
        """Whether the consumer of the hub lacks something of these."""
        return any(stream.no_block_left_out(self._history))

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

    def _ended(self, body: dict[str, Any]) -> Ended:
        names = tuple(dict.fromkeys((body["txHash"], body["clientHash"])))
        at = self._genesis_ms + ROUND_MS * body["round"] if "round" in body else body["timestampMs"]
        return Ended(
            at=at, payload=body["clientHash"], names=names, status=body["status"], sender=body["sender"],
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
                    id_ = message.message_id or ""
                    height, _ = _saved(id_, message.body)
                    history.add(Published(id=id_, height=height))
                    wanted.discard(id_)


def file_of(folder: Path) -> Path:
    """Where the history of a run is kept."""
    return folder / "history.jsonl"
