"""REST at an edge before several relayers: each part goes to who has the key, questions to whoever may know."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from relayer_edges import FakeSigner
from relayer_support import RELAYERS, as_json, transfer, wallet

from millrace.chain import address
from millrace.relayer.forwarding import rest
from millrace.runtime import http
from relayer.conftest import Front

KEYS = {shard: address.encode(pair.public) for shard, pair in RELAYERS.items()}
KNOWN = "ab" * 32


class Rest:
    """A relayer's REST interface: it accepts all, knows what it is told to know, and breaks off when told to."""

    def __init__(self, shards: tuple[int, ...]) -> None:
        self.shards = shards
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.knows = False
        self.breaks = False
        self.garbles = False
        """Whether its answers are not understood."""
        self.holds: asyncio.Event | None = None
        """Until this is set, nothing is answered."""
        self.left = False
        """Whether somebody did not wait for that."""
        self.refuses: tuple[int, str] | None = None
        self._server: http.HttpServer | None = None
        self.signer = FakeSigner({shard: KEYS[shard] for shard in shards})

    async def start(self) -> str:
        app = http.make_app()
        app.add_routes(
            [
                web.post("/v1/{kind}", self._submit),
                web.get("/v1/transactions/{hash}", self._transaction),
                web.get("/v1/relayers", self._relayers),
            ]
        )
        self._server = http.HttpServer(app)
        port = await self._server.start("127.0.0.1", 0)
        self.signer.hello = msgspec.structs.replace(self.signer.hello, http_port=port)
        return await self.signer.start()

    async def stop(self) -> None:
        await self.signer.kill()
        if self._server is not None:
            await self._server.stop()

    async def _submit(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append((request.path_qs, dict(request.headers), body))
        if self.breaks:
            assert request.transport is not None
            request.transport.close()
        while self.holds is not None and not self.left and not self.holds.is_set():
            await asyncio.sleep(0.005)
            self.left = request.transport is None
        if self.garbles:
            return http.json_response({"results": [{"index": 77}]})
        if self.refuses is not None:
            return http.error_response(self.refuses[1], self.refuses[0], {"Retry-After": "2"})
        kind, items = request.match_info["kind"], body.get("transactions", [])
        names = [f"{item['nonce']:064x}" for item in items]
        answer: dict[str, Any] = {"failed": [], "results": [{"index": i, "hash": n} for i, n in enumerate(names)]}
        if kind == "sign":
            return http.json_response({"transactions": items} | answer)
        return http.json_response({"action": kind, "status": "completed", "hashes": names} | answer)

    async def _transaction(self, request: web.Request) -> web.Response:
        if not self.knows:
            return http.error_response("transaction not known", 404)
        return http.json_response({"hash": request.match_info["hash"], "state": "pending"})

    async def _relayers(self, _: web.Request) -> web.Response:
        if self.garbles:
            return http.json_response({"relayers": 7})
        items = [{"shard": s, "address": KEYS[s], "state": "ready", "maxGasPrice": 2} for s in self.shards]
        caps = {"gasPrice": 9, "gasLimit": 9, "fee": "1", "value": "1", "dataBytes": 9}
        gas = {"minGasPrice": 1, "minGasLimit": 1, "gasPerDataByte": 1, "extraGasRelayed": 1, "extraGasGuarded": 1}
        told = {"profile": "documented", "chainId": "local", "shardRule": "modulo", "shards": 3, "maxNonceGap": 0}
        return http.json_response(told | {"relayers": items, "caps": caps, "gas": gas})


class Setting:
    """An edge before two relayers, of shard 0 and of the others."""

    def __init__(self, front: Front, zero: Rest, others: Rest, client: aiohttp.ClientSession) -> None:
        self.front, self.zero, self.others, self.client = front, zero, others, client

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        async with self.client.request(method, path, json=body, headers=headers) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    zero, others, front = Rest((0,)), Rest((1, 2)), Front(tmp_path)
    try:
        await front.start([await zero.start(), await others.start()], trusted_proxies=("127.0.0.0/8",))
        async with aiohttp.ClientSession(front.http) as client:
            yield Setting(front, zero, others, client)
    finally:
        await front.stop()
        for each in (zero, others):
            await each.stop()


BATCH = [as_json(transfer(wallet(shard), nonce)) for nonce, shard in enumerate((1, 0, 2, 0))]


@pytest.mark.parametrize("kind", ["relay", "broadcast", "sign"])
async def test_a_batch_goes_to_each_its_part(setting: Setting, kind: str) -> None:
    """Each relayer gets what names its keys; the answer is one, in the order of the batch, in the words of one."""
    status, told = await setting.ask("POST", f"/v1/{kind}", {"transactions": BATCH})
    assert status == 200 and [item["index"] for item in told["results"]] == [0, 1, 2, 3]
    names = [f"{nonce:064x}" for nonce in range(4)]
    if kind == "sign":
        assert told["transactions"] == BATCH and "hashes" not in told
    else:
        assert (told["action"], told["status"], told["hashes"]) == (kind, "completed", names)
    assert setting.zero.asked[0][2]["transactions"] == [BATCH[1], BATCH[3]]


async def test_what_goes_along(setting: Setting) -> None:
    """The query, the client's address (of IPv6 one of its network), its key and its trace go along; nothing else."""
    sent = {"X-Forwarded-For": "2001:db8::7", "Authorization": "Bearer k", "traceparent": "00-t", "X-Other": "x"}
    await setting.ask("POST", "/v1/relay?wait=final&timeout=1", {"transactions": BATCH[:1]}, **sent)
    path, headers, _ = setting.others.asked[0]
    assert path == "/v1/relay?wait=final&timeout=1"
    assert headers["X-Forwarded-For"] == "2001:db8::" and "X-Other" not in headers
    assert (headers["Authorization"], headers["traceparent"]) == ("Bearer k", "00-t")


async def test_a_part_that_is_refused_or_lost(setting: Setting) -> None:
    """A part refused over HTTP has failed in those words; one lost on the way is told as not known; one part alone
    keeps its status."""
    setting.zero.refuses = 429, "rate limit exceeded: too many transactions from this address"
    status, told = await setting.ask("POST", "/v1/relay", {"transactions": BATCH})
    assert (status, told["status"]) == (200, "partial")
    assert [(item["index"], item["code"], item["retryAfterMs"]) for item in told["failed"]] == [
        (1, "rate_limit_exceeded", 2000), (3, "rate_limit_exceeded", 2000),
    ]  # fmt: skip
    status, told = await setting.ask("POST", "/v1/relay", {"transactions": [BATCH[1]]})
    assert status == 429 and told["error"].startswith("rate limit exceeded: ")
    setting.zero.refuses, setting.zero.breaks = None, True
    status, told = await setting.ask("POST", "/v1/relay", {"transactions": [BATCH[1]]})
    assert status == 503 and "not known" in told["error"]
    await setting.zero.signer.kill()
    status, told = await setting.ask("POST", "/v1/relay", {"transactions": [BATCH[1]]})
    assert status == 503 and "cannot be reached" in told["error"]


async def test_prepare_goes_to_who_would_pay(setting: Setting) -> None:
    """Without a relayer in the question the sender's shard says who is asked."""
    for shard, asked in ((0, setting.zero), (2, setting.others)):
        sender = address.encode(wallet(shard).public)
        status, _ = await setting.ask("POST", "/v1/prepare", {"transaction": {"sender": sender, "receiver": sender}})
        assert status == 200 and asked.asked[-1][0] == "/v1/prepare"
    assert (len(setting.zero.asked), len(setting.others.asked)) == (1, 1)


async def test_a_lookup_asks_all(setting: Setting) -> None:
    """Whoever knows it answers; 404 is said when all have said so, 503 while one that may know it is away."""
    setting.others.knows = True
    assert (await setting.ask("GET", f"/v1/transactions/{KNOWN}"))[0] == 200
    setting.others.knows = False
    assert (await setting.ask("GET", f"/v1/transactions/{KNOWN}"))[0] == 404
    await setting.others.signer.kill()
    await setting.front.connected(1)
    assert (await setting.ask("GET", f"/v1/transactions/{KNOWN}"))[0] == 503


async def test_relayers_of_all(setting: Setting) -> None:
    """One list, by shard; of a relayer that is away the keys it named are not ready."""
    told = (await setting.ask("GET", "/v1/relayers"))[1]["relayers"]
    assert [(item["shard"], item["address"], item["state"]) for item in told] == [
        (shard, KEYS[shard], "ready") for shard in range(3)
    ]
    await setting.others.signer.kill()
    await setting.front.connected(1)
    told = (await setting.ask("GET", "/v1/relayers"))[1]["relayers"]
    assert [item["state"] for item in told] == ["ready", "not ready", "not ready"]


async def test_too_many_at_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound of requests under way one more is `relayer busy`, and room comes back."""
    monkeypatch.setattr(rest, "MAX_UNDER_WAY", 0)
    status, told = await setting.ask("POST", "/v1/relay", {"transactions": BATCH[:1]})
    assert status == 503 and told["error"].startswith("relayer busy")
    monkeypatch.undo()
    assert (await setting.ask("POST", "/v1/relay", {"transactions": BATCH[:1]}))[0] == 200


async def test_a_client_that_hangs_up_ends_the_question(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked on behalf of a client that has gone, and its room is another's."""
    monkeypatch.setattr(rest, "LOOK_SECONDS", 0.02)
    setting.zero.holds = asyncio.Event()
    asking = asyncio.create_task(setting.ask("POST", "/v1/relay", {"transactions": [BATCH[1]]}))
    async with asyncio.timeout(10):
        while not setting.zero.asked:
            await asyncio.sleep(0.005)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        while not setting.zero.left:
            await asyncio.sleep(0.005)


async def test_a_part_without_room_fails_alone(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is room for one part only, the other has failed in as many words: what was accepted is told."""
    monkeypatch.setattr(rest, "MAX_UNDER_WAY", 1)
    status, told = await setting.ask("POST", "/v1/relay", {"transactions": BATCH})
    assert (status, told["status"]) == (200, "partial")
    assert {item["reason"] for item in told["failed"]} == {"relayer busy"}
    assert len(told["failed"]) + len(told["hashes"]) == len(BATCH)


async def test_answers_that_are_none(setting: Setting) -> None:
    """What a relayer says and nobody understands is said as such: not known, over HTTP, of the whole."""
    setting.zero.garbles = True
    status, told = await setting.ask("POST", "/v1/relay", {"transactions": BATCH})
    assert status == 503 and "not understood" in told["error"]
    told = (await setting.ask("GET", "/v1/relayers"))[1]["relayers"]
    assert [item["state"] for item in told] == ["not ready", "ready", "ready"]
    setting.others.garbles = True
    assert (await setting.ask("GET", "/v1/relayers"))[0] == 503
