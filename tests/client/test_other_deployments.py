"""Services of others that speak the public interface: other paths and forms, null, HTML, no acknowledgements."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

from millrace_client import (
    Handle,
    Millrace,
    Mismatch,
    OutcomeUnknown,
    Patience,
    Refused,
    Relayer,
    RelayerKey,
    Relayers,
    Wallet,
    WalletError,
)
from millrace_client import address as addresses
from millrace_client.errors import ClientError
from millrace_client.messages import NetworkStats
from millrace_client.swap_checks import CONTRACTS
from servers.fake_relayer import status_of

WALLET, PAYER = Wallet(bytes(range(32))), Wallet(bytes(32))
CALL = b"ESDTTransfer@412d31@64@786f@59@@@01@422d32"  # 100 of A-1 for at least 89 of B-2
EGLD_CALL = b"xo@59@@@01@422d32"
CHAIN_HASH = "ab" * 32
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
WAIT = 20.0


class Deployment:
    """Behind a prefix; it tells what the interface promises, in its own words, and acknowledges nothing."""

    def __init__(self) -> None:
        self.quote: dict[str, Any] = {
            "txData": b64encode(CALL).decode(), "amountOutMin": "89", "priceImpact": "0.001",
            "estimatedGasLimit": None, "paths": [{"percent": 100, "pools": ["x"]}], "poolFees": None, "fee": {"bps": 3},
        }  # fmt: skip
        self.reply: Callable[[dict[str, Any]], dict[str, Any] | str | None] = lambda asked: {
            "action": asked["action"], "status": "ok", "hashes": [CHAIN_HASH], "failed": None,
        }  # fmt: skip
        self.requests: list[dict[str, Any]] = []
        self.headers: list[tuple[str, str | None]] = []
        self.chain: dict[str, str] = {}
        self.errors: list[web.Response] = []
        self.stats: list[dict[str, Any]] = []
        self.url = ""
        self.sockets: list[web.WebSocketResponse] = []

    async def ask(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/gw/")
        if path in ("stream/ws", "stream/ws/stats"):
            return await self._socket(request, is_stats=path.endswith("stats"))
        self.headers.append((path, request.headers.get("traceparent")))
        if self.errors:
            return self.errors.pop(0)
        if path == "agg/api/v1/quote":
            return web.json_response(self.quote)
        if path.startswith("chain/accounts/"):
            return web.json_response({"nonce": 7, "balance": "0", "shard": 1})
        found = self.chain.get(path.removeprefix("chain/transactions/"))
        if found is not None:
            return web.json_response({"status": found, "txHash": "x"})
        return web.Response(status=404, text="<html><h1>404 Not Found</h1>\xff</html>", content_type="text/html")

    async def _socket(self, request: web.Request, *, is_stats: bool) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.append(socket)
        for message in self.stats if is_stats else []:
            await socket.send_json(message)
        async for frame in socket:
            if frame.type is WSMsgType.TEXT:
                asked = msgspec.json.decode(frame.data)
                self.requests.append(asked)
                answer = self.reply(asked) if asked["action"] in ("relay", "broadcast") else None
                if isinstance(answer, str):
                    await socket.send_str(answer)
                elif answer is not None:
                    await socket.send_json({"requestId": asked["requestId"]} | answer)
        return socket

    def client(self, **more: Any) -> Millrace:
        """A client that knows of it what it does not tell."""
        key = RelayerKey(shard=addresses.shard_of(WALLET.public), address=PAYER.address)
        usual: dict[str, Any] = {
            "relayers": Relayers(chain_id="local", relayers=[key]), "chain_api_url": f"{self.url}/gw/chain/",
            "patience": Patience(tries=2, seconds=2.0), "timeout": 5.0,
        }  # fmt: skip
        return Millrace(
            f"{self.url}/gw/agg/", f"{self.url}/gw/relayer/", f"{self.url}/gw/stream/ws".replace("http", "ws"),
            **usual | more,
        )  # fmt: skip


@pytest.fixture
async def deployment() -> AsyncIterator[Deployment]:
    """One that runs."""
    made = Deployment()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.ask)
    async with TestServer(app) as server:
        made.url = str(server.make_url("")).rstrip("/")
        yield made


async def swapped(millrace: Millrace, **named: Any) -> Handle:
    quote = await millrace.quote("A-1", "B-2", amount_in=100, slippage="0.01", sender=WALLET.address)
    return await millrace.swap(quote, WALLET, **{"amount_out_min": 89, "gas_limit": 20_000_000} | named)


async def test_a_swap_by_what_the_interface_promises(deployment: Deployment) -> None:
    """`txData` is enough: contract, relayer, nonce and gas come from who asks, and the chain tells how it ended."""
    deployment.chain[CHAIN_HASH] = "success"
    async with deployment.client() as millrace:
        handle = await swapped(millrace)
        assert handle.accepted and handle.hash == CHAIN_HASH
        assert (await handle.final(WAIT)).state == "success"
    (sent,) = (asked["tx"] for asked in deployment.requests if asked["action"] == "relay")
    assert (sent["receiver"], sent["value"], sent["data"]) == (CONTRACTS["local"], "0", deployment.quote["txData"])
    assert (sent["relayer"], sent["nonce"], sent["gasLimit"]) == (PAYER.address, 7, 20_050_000)


async def test_egld_is_the_value(deployment: Deployment) -> None:
    """Of a swap of EGLD the payload holds the call alone."""
    deployment.quote |= {"txData": b64encode(EGLD_CALL).decode(), "estimatedGasLimit": "7000000"}
    async with deployment.client() as millrace:
        quote = await millrace.quote("EGLD", "B-2", amount_in=100, sender=WALLET.address)
        await millrace.swap(quote, WALLET, amount_out_min=89)
    (sent,) = (asked["tx"] for asked in deployment.requests if asked["action"] == "relay")
    assert (sent["value"], sent["gasLimit"]) == ("100", 7_050_000)


async def test_nothing_is_signed_on_its_word_alone(deployment: Deployment) -> None:
    """What is enough, the gas and an unknown chain's contract have to be named; the payload is compared as ever."""
    async with deployment.client() as millrace:
        with pytest.raises(Mismatch, match="amountOut"):
            await swapped(millrace, amount_out_min=None)
        with pytest.raises(Mismatch, match="amountOutMin"):
            await swapped(millrace, amount_out_min=90)
        with pytest.raises(ClientError, match="gas_limit"):
            await swapped(millrace, gas_limit=None)
        deployment.quote["txData"] = b64encode(CALL.replace(b"@64@", b"@65@")).decode()
        with pytest.raises(Mismatch, match=r"transaction\.data"):
            await swapped(millrace)
        deployment.quote |= {"amountOut": "90", "amountOutMin": "80"}
        with pytest.raises(Mismatch, match="amountOutMin"):
            await swapped(millrace)
    key = RelayerKey(shard=addresses.shard_of(WALLET.public), address=PAYER.address)
    async with deployment.client(relayers=Relayers(chain_id="T", relayers=[key])) as millrace:
        del deployment.quote["amountOut"]
        with pytest.raises(ClientError, match=r"chain T: name it \(contract\)"):
            await swapped(millrace)
    assert [asked for asked in deployment.requests if asked["action"] == "relay"] == []


async def test_a_quote_without_a_sender_is_of_the_question(deployment: Deployment) -> None:
    """A quote that names no sender can be swapped where `txData` is all there is: so it is compared, too."""
    others = CALL.replace(b"412d31", b"432d33").replace(b"@64@", b"@0f4240@")  # a million of C-3
    deployment.quote |= {"txData": b64encode(others).decode()}
    async with deployment.client() as millrace:
        for told, field in (({"from": "C-3", "amountIn": "1000000"}, "from"), ({"amountIn": "1000000"}, "amountIn")):
            usual = dict(deployment.quote)
            deployment.quote |= told
            with pytest.raises(Mismatch) as mismatch:
                quote = await millrace.quote("A-1", "B-2", amount_in=100)
                await millrace.swap(quote, WALLET, amount_out_min=89, gas_limit=20_000_000)
            assert mismatch.value.field == field
            deployment.quote = usual
        bounds: list[dict[str, int]] = [
            {"amount_out": 90, "amount_in_max": 99}, {"amount_out": 91}, {"amount_in": 100, "amount_out_min": 90},
        ]  # fmt: skip
        deployment.quote |= {"amountIn": "100", "amountOut": "90"}
        for bound in bounds:
            with pytest.raises(Mismatch):
                await millrace.quote("A-1", "B-2", **bound)
    assert deployment.requests == []


async def test_what_was_not_looked_at_is_not_signed(deployment: Deployment) -> None:
    """Of an aggregator's transaction only the fields that were compared go to the wallet."""
    deployment.quote |= {
        "amountIn": "100", "amountOut": "89", "slippage": 0.01,
        "transaction": {
            "sender": WALLET.address, "receiver": CONTRACTS["local"], "value": "0", "data": deployment.quote["txData"],
            "gasPrice": 10**9, "gasLimit": 20_000_000, "chainID": "local", "chainId": "local", "version": 2, "nonce": 3,
            "options": 3, "guardian": PAYER.address, "relayer": WALLET.address, "senderUsername": "YQ==",
        },
    }  # fmt: skip
    async with deployment.client() as millrace:
        await swapped(millrace)
    (sent,) = (asked["tx"] for asked in deployment.requests if asked["action"] == "relay")
    assert sent.keys() & {"options", "guardian", "guardianSignature", "senderUsername"} == set()
    assert sent["relayer"] == PAYER.address


async def test_whom_a_payload_credits(deployment: Deployment) -> None:
    """A fee goes to nobody, or to whom the question named."""
    deployment.quote["txData"] = b64encode(CALL.replace(b"@59@@@", b"@59@@07@")).decode()
    async with deployment.client() as millrace:
        with pytest.raises(Mismatch, match="referralId"):
            await swapped(millrace)
        with pytest.raises(Mismatch, match="referralId"):
            await swapped(millrace, referral_id=8)
        await swapped(millrace, referral_id=7)


async def test_what_is_told_in_another_form(deployment: Deployment) -> None:
    """Fields that the interface does not show are left out where they cannot be read, and named."""
    async with deployment.client() as millrace:
        quote = await millrace.quote("A-1", "B-2", amount_in=100)
        assert (quote.amount_out_min, quote.price_impact, quote.paths, quote.unread) == (89, 0.001, [], ["paths"])
        deployment.quote["amountOutMin"] = "a lot"
        with pytest.raises(ClientError, match="does not understand"):
            await millrace.quote("A-1", "B-2", amount_in=100)


async def test_topics_that_nobody_acknowledges_are_waited_for_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first one no further subscription waits for an acknowledgement, however long that would be."""
    async with deployment.client() as millrace:
        await millrace.relayer.subscribe("tx-status/first")
        monkeypatch.setattr("millrace_client.link._QUIET_ACKNOWLEDGEMENT", 3_600)
        async with asyncio.timeout(WAIT):
            for number in range(50):
                await millrace.relayer.subscribe(f"tx-status/{number}")
    assert len(deployment.requests) == 51


async def test_refused_without_a_list(deployment: Deployment) -> None:
    """A submission that is `failed` as a whole is refused, with its reason or without."""
    deployment.reply = lambda asked: {"action": "relay", "status": "failed", "failed": [], "reason": "no"}
    async with deployment.client() as millrace:
        with pytest.raises(Refused, match="no"):
            await swapped(millrace)
        deployment.reply = lambda asked: {"action": "relay", "status": "failed", "hashes": None}
        with pytest.raises(Refused, match="refused"):
            await swapped(millrace)


async def test_a_reply_that_cannot_be_read(deployment: Deployment) -> None:
    """What it said of the submission is not known, and the handle says so; it is not sent again and again."""
    deployment.reply = lambda asked: {"action": "relay", "status": ["?"], "hashes": 7}
    async with deployment.client() as millrace:
        handle = await swapped(millrace)
        assert handle.accepted is None
        with pytest.raises(OutcomeUnknown, match="acceptance not known"):
            await handle.final(0.2)
        await deployment.sockets[0].send_json(status_of(handle.client_hash))
        assert (await handle.final(WAIT)).state == "success"
    assert len([asked for asked in deployment.requests if asked["action"] == "relay"]) == 1


async def test_the_chain_tells_what_a_dead_relayer_cannot(deployment: Deployment) -> None:
    """With a chain API a relayer that is gone for good, or answers pages, leaves nothing unknown."""
    deployment.chain[CHAIN_HASH] = "fail"
    async with deployment.client(timeout=0.5) as millrace:
        handle = await swapped(millrace)
        deployment.errors = [web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")]
        await deployment.sockets[0].close()
        assert (await handle.final(WAIT)).state == "fail"
        gone = Relayer(
            "http://127.0.0.1:9", "ws://127.0.0.1:9", timeout=0.2, chain_api_url=f"{deployment.url}/gw/chain"
        )
        async with gone:
            known = await gone.outcome(handle.client_hash, CHAIN_HASH)
            assert known is not None and known.state == "fail"


async def test_pages_in_the_place_of_answers(deployment: Deployment) -> None:
    """A proxy's page is an exception with its status, whatever its letters; one with 200 says whose answer it is."""
    async with deployment.client() as millrace:
        deployment.errors = [web.Response(status=502, body=b"<html>\xff\xfe</html>", content_type="text/html")]
        with pytest.raises(Refused, match="HTTP 502") as refused:
            await millrace.aggregator.pair_config("A-1", "B-2")
        assert refused.value.status == 502
        deployment.errors = [web.Response(status=400, text='{"error": {"message": "no"}}')]
        with pytest.raises(Refused, match="HTTP 400"):
            await millrace.aggregator.pair_config("A-1", "B-2")
        deployment.errors = [web.Response(text="<html>Welcome</html>")]
        with pytest.raises(ClientError, match="pair-config answers what this client does not understand"):
            await millrace.aggregator.pair_config("A-1", "B-2")


async def test_a_date_to_come_again_by_another_clock(deployment: Deployment) -> None:
    """`Retry-After` may be a date; it counts from the service's own `Date`, which may be years away from ours."""
    date, until = "Sat, 01 Jan 2000 00:00:00 GMT", "Sat, 01 Jan 2000 01:00:00 GMT"
    for headers, seconds in (
        ({"Date": date, "Retry-After": until}, 3600.0), ({"Date": until, "Retry-After": date}, 0.0),
        ({"Retry-After": "soon"}, None),
    ):  # fmt: skip
        deployment.errors = [web.Response(status=503, headers=headers) for _ in range(5)]
        async with deployment.client(patience=Patience(tries=0)) as millrace:
            with pytest.raises(Refused) as refused:
                await millrace.aggregator.config()
        assert refused.value.retry_after == seconds


async def test_statistics_of_an_older_and_a_newer_schema(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    """Groups that are null or missing have no values; a higher major version is warned of once."""
    data: dict[str, Any] = {"network": {"currentTps": 5, "news": 1}, "mempool": None, "blocks": {"latestShard": None}}
    told = {"type": "networkStats", "schemaVersion": "2.0.0", "ts": 1, "data": data}
    deployment.stats = [told | {"sequence": 1}, told | {"sequence": 2}]
    with caplog.at_level(logging.WARNING, "millrace_client"):
        async with deployment.client() as millrace:
            stream = await millrace.relayer.network_stats()
            items = [await stream.next(WAIT), await stream.next(WAIT)]
    assert all(isinstance(item, NetworkStats) and item.data.network.current_tps == 5 for item in items)
    assert [record for record in caplog.messages if "schema 2.0.0" in record] == caplog.messages != []


async def test_a_trace_goes_along(deployment: Deployment) -> None:
    """`traceparent` is asked for at each question, and goes as a header, and as a field of what is submitted."""
    told = iter([TRACE, *[None] * 100])
    async with deployment.client(traceparent=lambda: next(told)) as millrace:
        quote = await millrace.quote("A-1", "B-2", amount_in=100, sender=WALLET.address)
        assert deployment.headers == [("agg/api/v1/quote", TRACE)]
    async with deployment.client(traceparent=lambda: TRACE) as millrace:
        await millrace.swap(quote, WALLET, amount_out_min=89, gas_limit=20_000_000)
    assert ("relayer/v1/prepare", TRACE) in deployment.headers
    assert {trace for path, trace in deployment.headers if path.startswith("chain/")} == {None}
    (sent,) = (asked for asked in deployment.requests if asked["action"] == "relay")
    assert sent["traceparent"] == TRACE


class Refusing:
    """A wallet whose owner says no."""

    address = WALLET.address

    async def sign(self, data: bytes) -> bytes:
        await asyncio.sleep(0)
        raise PermissionError("rejected on the device")


class Empty(Refusing):
    """One that gives nothing."""

    async def sign(self, data: bytes) -> bytes:
        return b""


async def test_a_wallet_that_refuses(deployment: Deployment) -> None:
    """Its own exception arrives, or one that says what it gave; nothing was sent."""
    async with deployment.client() as millrace:
        quote = await millrace.quote("A-1", "B-2", amount_in=100, sender=WALLET.address)
        for wallet, error in ((Refusing(), PermissionError), (Empty(), WalletError)):
            with pytest.raises(error):
                await millrace.swap(quote, wallet, amount_out_min=89, gas_limit=20_000_000)
    assert deployment.requests == []
