"""A running relayer under bad input, over real sockets, for twenty seconds (`MILLRACE_FUZZ_SECONDS` for longer).

Each message gets one clear answer and the connection lives on, but for what a ruling closes it for; each HTTP request
gets a status below 500 and a JSON body; nothing is sent to the chain that its sender did not sign; the service's log
holds no defect, and in the end it has no more files open than before.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from relayer_support import NETWORK, FakeChainApi, FakeHub, as_json, transfer, wallet, with_identity, write_keys

from millrace.chain.keys import verify
from millrace.chain.transaction import TransactionJson, from_json, signing_message
from millrace.relayer.protocol import reasons
from millrace.system.ports import free_ports
from relayer.nasty import VALUES, broken_frames, broken_requests, mutated, spoilt

SECONDS = float(os.environ.get("MILLRACE_FUZZ_SECONDS", "20"))
PER_CONNECTION = 100
"""Messages of one connection: more refusals in five seconds close it, which is another test's matter."""
PATIENCE = 60.0
"""Seconds after which an answer will never come: on a busy machine one may take as long as it likes."""
LARGEST = 4 * 1024 * 1024
CODES = {reason.code for reason in vars(reasons).values() if isinstance(reason, reasons.Reason)}
KINDS = {"message", "too large", "listened", "request", "frames", "connections"}
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


POSTED = ("/v1/sign", "/v1/broadcast", "/v1/relay", "/v1/prepare")
PATHS = (
    *POSTED, "/v1/network-stats/history", "/v1/network-stats/blocks", "/v1/relayers",
    f"/v1/transactions/{'0a' * 32}", "/v1/transactions/x", "/nowhere", "/health",
)  # fmt: skip


class Target:
    """The relayer process and what it is bombarded with."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.hub, self.api = FakeHub(), FakeChainApi()
        self.log = folder / "relayer.log"
        self.ports = (0, 0)
        self.counts: dict[str, int] = {}
        self.until = 0.0
        good = [transfer(wallet(shard, number), nonce) for shard in range(3) for number in (0, 1) for nonce in (0, 1)]
        good += [
            transfer(wallet(0, 2), relayed=False),
            transfer(wallet(1, 2), data=b"claim@01"),
            transfer(wallet(2, 2), 9),
        ]
        self.transactions = [as_json(tx) for tx in good]
        self.signed = {signing_message(tx) for tx in good}

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        self.ports = free_ports(2)
        large = 10**9
        values = {
            "port": self.ports[0], "http_port": self.ports[1], "metrics_port": 0, "gossip": "false",
            "chain_id": NETWORK.chain_id,
            "hub_url": f"ws://127.0.0.1:{await self.hub.start()}/hub/ws", "chain_api_url": await self.api.start(),
            "data_dir": with_identity(self.folder / "data"), "lease_dir": self.folder / "leases",
            "key_files": json.dumps(write_keys(self.folder / "keys")),
            "max_control_messages": large, "submit_rate": large, "submit_burst": large, "receive_rate": large,
            "receive_burst": large, "connect_rate": large, "max_topics": large, "regossip_seconds": 3600,
        }  # fmt: skip
        arguments = [item for name, value in values.items() for item in ("--set", f"{name}={value}")]
        with self.log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "millrace", "relayer", *arguments, stderr=log
            )
            try:
                async with aiohttp.ClientSession() as session, asyncio.timeout(60):
                    while not await self._is_ready(session):
                        await asyncio.sleep(0.1)
                yield process
                assert process.returncode is None, "the service died"
            finally:
                process.terminate()
                await process.wait()
                await self.hub.stop()
                await self.api.stop()

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with session.get(f"http://127.0.0.1:{self.ports[1]}/ready") as response:
                return response.status == 200
        return False

    def goes_on(self) -> bool:
        """Until the time is over and something of each kind was sent, which on a busy machine is later."""
        return time.monotonic() < self.until or not (self.api.submitted and self.kinds() >= KINDS)

    def kinds(self) -> set[str]:
        """What was sent so far."""
        return {name.partition(":")[0] for name in self.counts}

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # ---- what is sent

    def message(self, chance: random.Random) -> bytes:
        """One message for /ws, seldom a good one."""
        tx = chance.choice(self.transactions)
        base: dict[str, Any] = chance.choice(
            [
                {"action": "subscribe", "topic": chance.choice(VALUES)},
                {"action": "unsubscribe", "topics": ["gasStats", "accounts", "tx-status/" + "0" * 64]},
                {"action": "relay", "tx": tx, "requestId": 1},
                {"action": "broadcast", "txs": [tx, chance.choice(self.transactions)], "autoSubscribe": True},
                {"action": chance.choice(VALUES), "requestId": chance.choice(VALUES)},
                {"action": chance.choice(("relay", "broadcast")), "tx": mutated(chance, tx)},
                {"action": "relay", "txs": [mutated(chance, tx) for _ in range(chance.choice((1, 5, 100, 101)))]},
            ]
        )
        data = json.dumps(mutated(chance, base) if chance.random() < 0.6 else base).encode()
        if chance.random() < 0.01:
            data = json.dumps({"action": "relay", "txs": [tx] * 10_000}).encode()
        return (spoilt(chance, data) if chance.random() < 0.4 else data)[:LARGEST]

    def body(self, chance: random.Random, path: str) -> bytes:
        """One body of a request that is posted."""
        if path == "/v1/prepare":
            question = {"transaction": mutated(chance, chance.choice(self.transactions))}
            data = json.dumps(mutated(chance, question)).encode()
            return spoilt(chance, data) if chance.random() < 0.2 else data
        transactions = [
            mutated(chance, chance.choice(self.transactions)) for _ in range(chance.choice((1, 2, 30, 101)))
        ]
        data = json.dumps(mutated(chance, {"transactions": transactions})).encode()
        return spoilt(chance, data) if chance.random() < 0.4 else data

    # ---- who sends

    async def messages(self, number: int) -> None:
        """Messages on /ws, each followed by one whose answer tells that the connection lives."""
        chance = random.Random(f"{self.seed} messages {number}")
        async with aiohttp.ClientSession() as session:
            while self.goes_on():
                async with session.ws_connect(f"ws://127.0.0.1:{self.ports[0]}/ws", max_msg_size=0) as link:
                    for _ in range(PER_CONNECTION):
                        await self._one_message(chance, link)
                    if chance.random() < 0.2:
                        await self._too_large(link)

    async def _one_message(self, chance: random.Random, link: aiohttp.ClientWebSocketResponse) -> None:
        data = self.message(chance)
        kind = aiohttp.WSMsgType.BINARY if chance.random() < 0.05 else aiohttp.WSMsgType.TEXT
        await link.send_frame(data, kind)
        answers = [await self._reply(link, data)]
        sentinel = chance.randrange(10**12)
        await link.send_str(f'{{"action":"unsubscribe","topic":"accounts","requestId":{sentinel}}}')
        while (answer := await self._reply(link, data)).get("requestId") != sentinel:
            answers.append(answer)
        for answer in answers:
            _check_answer(answer, data)
        by_topic = all("topic" in answer for answer in answers)
        assert len(answers) == 1 or by_topic, f"{len(answers)} answers to {data[:300]!r}: {answers[:3]}"
        self.count("message: " + (answers[0].get("code") or answers[0]["status"]))

    async def _reply(self, link: aiohttp.ClientWebSocketResponse, cause: bytes) -> dict[str, Any]:
        while True:
            message = await asyncio.wait_for(link.receive(), PATIENCE)
            assert message.type is aiohttp.WSMsgType.TEXT, f"{message} after {cause[:300]!r}"
            reply: dict[str, Any] = msgspec.json.decode(message.data)
            if "type" not in reply:
                return reply

    async def _too_large(self, link: aiohttp.ClientWebSocketResponse) -> None:
        with contextlib.suppress(OSError):  # it may be closed before all of it is sent
            await link.send_frame(b" " * (LARGEST + 1), aiohttp.WSMsgType.TEXT)
        message = await asyncio.wait_for(link.receive(), PATIENCE)
        while message.type is aiohttp.WSMsgType.TEXT:
            message = await asyncio.wait_for(link.receive(), PATIENCE)
        assert link.close_code in (1009, 1006), message
        self.count("too large")

    async def listeners(self) -> None:
        """Whatever is sent to /ws/stats, the stream goes on, in order."""
        chance = random.Random(f"{self.seed} listeners")
        async with aiohttp.ClientSession() as session:
            while self.goes_on():
                async with session.ws_connect(f"ws://127.0.0.1:{self.ports[0]}/ws/stats") as link:
                    last = -1
                    for _ in range(8):
                        for _ in range(20):
                            data = self.message(chance)[:4096]
                            kind = chance.choice((aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT))
                            await link.send_frame(data, kind)
                        message = await asyncio.wait_for(link.receive(), PATIENCE)
                        assert message.type is aiohttp.WSMsgType.TEXT, message
                        pushed = msgspec.json.decode(message.data)
                        assert pushed["type"] == "networkStats" and pushed["sequence"] > last
                        last = pushed["sequence"]
                        self.count("listened")

    async def requests(self) -> None:
        """REST: every answer is JSON, below 500 or a documented 503."""
        chance = random.Random(f"{self.seed} requests")
        base = f"http://127.0.0.1:{self.ports[1]}"
        types = ("application/json", "application/json", "application/json", "text/plain", "application/x", "")
        async with aiohttp.ClientSession() as session:
            while self.goes_on():
                path = chance.choice(PATHS)
                usual = "POST" if path in POSTED else "GET"
                method = usual if chance.random() < 0.8 else chance.choice(("GET", "POST", "PUT", "DELETE", "OPTIONS"))
                words = [str(value) for value in VALUES if isinstance(value, str | int) and len(str(value)) < 500]
                words = [word.encode("utf-8", "replace").decode() for word in words]
                query = (
                    {chance.choice(("from", "to", "resolution", "x")): chance.choice(words)} if method == "GET" else {}
                )
                if path == "/v1/relay":
                    query = {"wait": chance.choice(("final", "x")), "timeout": chance.choice(("0", "1", "-1"))}
                body = io.BytesIO(self.body(chance, path)) if method != "GET" else None
                headers = {"Content-Type": chance.choice(types)} if body is not None else {}
                async with session.request(method, base + path, params=query, data=body, headers=headers) as response:
                    text = await response.text()
                    assert response.status < 500 or response.status == 503, (response.status, text[:300])
                    answer = json.loads(text)
                    assert response.status < 400 or (answer["error"] and len(answer) == 1), text
                self.count(f"request: {response.status}")

    async def frames(self) -> None:
        """Bytes that are no frames, and connections that end in the middle of something."""
        chance = random.Random(f"{self.seed} frames")
        while self.goes_on():
            reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[0])
            try:
                writer.write(HANDSHAKE)
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
                assert head.startswith(b"HTTP/1.1 101")
                for _ in range(chance.randrange(1, 4)):
                    writer.write(broken_frames(chance, self.message(chance)[:60_000]))
                writer.write_eof()
                await asyncio.wait_for(reader.read(), PATIENCE)  # it ends the connection, in whatever words
            except OSError:  # closed before all of it was sent
                pass
            finally:
                await _close(writer)
            self.count("frames")

    async def connections(self) -> None:
        """Bytes that are no requests, to both ports."""
        chance = random.Random(f"{self.seed} connections")
        while self.goes_on():
            reader, writer = await asyncio.open_connection("127.0.0.1", chance.choice(self.ports))
            try:
                writer.write(broken_requests(chance))
                writer.write_eof()
                answer = await asyncio.wait_for(reader.read(), PATIENCE)
                assert b"Traceback" not in answer and b"HTTP/1.1 500" not in answer, answer[:300]
            except OSError:  # closed before all of it was sent
                pass
            finally:
                await _close(writer)
            self.count("connections")


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _check_answer(answer: dict[str, Any], cause: bytes) -> None:
    """An acknowledgement, the outcome of a submission, or a refusal with its words and a known code."""
    about = f"{answer} to {cause[:300]!r}"
    assert answer["status"] in ("ok", "completed", "partial", "failed", "fail"), about
    if answer["status"] == "fail":
        assert answer["reason"] and answer["code"] in CODES and answer["code"] != "internal_error", about
    for item in answer.get("failed", []):
        assert item["reason"] and item["code"] in CODES and item["code"] != "internal_error", about
        assert item["code"] not in ("signer_unavailable", "not_ready", "account_state_unavailable"), about


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.timeout(900 + 2 * SECONDS)
async def test_bad_input_of_every_kind(tmp_path: Path) -> None:
    """Bad messages, frames, requests and bytes: one clear answer each, nothing breaks, nothing leaks."""
    target = Target(tmp_path, seed=random.SystemRandom().randrange(10**9))
    print(f"seed {target.seed}")
    async with target.running() as process:
        before = _open_files(process.pid)
        target.until = time.monotonic() + SECONDS
        senders = (target.listeners(), target.requests(), target.frames(), target.connections())
        async with asyncio.TaskGroup() as group:
            for work in (*(target.messages(number) for number in range(3)), *senders):
                group.create_task(work)
        async with asyncio.timeout(PATIENCE):
            while _open_files(process.pid) > before + 2:
                await asyncio.sleep(0.1)
    print(target.counts)
    log = target.log.read_text()
    assert "Traceback" not in log
    assert [line for line in log.splitlines() if '"level":"error"' in line or '"level":"critical"' in line] == []
    for item in target.api.submitted:
        tx = from_json(msgspec.convert(item, TransactionJson))
        assert signing_message(tx) in target.signed and verify(tx.sender, signing_message(tx), tx.signature)
    assert target.api.submitted and target.kinds() == KINDS
