"""Requests with many inputs over HTTP: as a live exchange's backend sends them, and as nobody should."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from clients.multi_swap import Answer, Struct, Transaction, parse
from millrace.aggregator.snapshot import Snapshot
from millrace.runtime.http import HttpServer
from servers.aggregator_service import MARKET, Service, end, start
from synthetic import WRAPPED

USDC = "USDC-c76f1f"
SENDER = "erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva"
TOKENS = [info.identifier for info in MARKET.tokens if info.identifier != USDC]
GOOD: dict[str, Any] = {"inputs": [{"token": WRAPPED, "amount": "1000000000000000"}], "to": USDC, "sender": SENDER}
LARGE = [{"token": next(token for token in TOKENS if token != WRAPPED), "amount": "9" * 30}]


async def swap(service: Service, body: Any) -> tuple[int, bytes]:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    async with service.session.post(service.base + "/api/v1/multi-swap", data=raw) as answer:
        return answer.status, await answer.read()


async def answered(service: Service, **changes: Any) -> Answer:
    status, body = await swap(service, GOOD | changes)
    assert status == 200, body
    return parse(body)


@pytest.mark.parametrize("seed", range(30))
async def test_every_answer_has_every_field_that_clients_copy(service: Service, seed: int) -> None:
    """Random requests, some of whose inputs are none: the typed client reads every answer."""
    dice = random.Random(seed)
    tokens = dice.sample(TOKENS, dice.choice([1, 2, 5, 20]))
    inputs = [{"token": token, "amount": str(10 ** dice.randrange(0, 24))} for token in tokens]
    inputs += [{"token": dice.choice(["NOPE-123456", "", "x" * 500]), "amount": dice.choice(["1", "", "-3", "1e5"])}]
    to = dice.choice([USDC, "EGLD", WRAPPED])
    slippage = dice.choice([0.01, 0, 0.5, "0.003", 1e-05])
    answer = await answered(service, inputs=inputs, to=to, slippage=slippage, dust_mode=True)
    assert answer.to == to
    assert answer.slippage == float(slippage)
    for sent in answer.batches:
        assert base64.b64decode(sent.transaction.data).decode() == sent.tx_data
        assert sent.transaction.chain_id == sent.transaction.old_chain_id == "1"
    named = [given.token for sent in answer.batches for given in sent.inputs]
    assert len(named) + len(answer.failed_tokens) == len(inputs)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"to": "NOPE-123456"}, "unknown token_out 'NOPE-123456'"),
        ({"to": ""}, "to must be provided"),
        ({"to": None}, "invalid body"),
        ({"to": 5}, "invalid body"),
        ({"inputs": []}, "inputs must not be empty"),
        ({"inputs": {}}, "invalid body"),
        ({"inputs": [{"token": WRAPPED}]}, "invalid body"),
        ({"inputs": [{"token": WRAPPED, "amount": 5}]}, "invalid body"),
        ({"inputs": [{"token": WRAPPED, "amount": "1"}] * 101}, "too many inputs: at most 100"),
        ({"sender": "erd1nonsense"}, "invalid sender: expected a bech32 address"),
        ({"sender": SENDER.upper()}, "invalid sender: expected a bech32 address"),
        ({"sender": 7}, "invalid body"),
        ({"slippage": "NaN"}, "invalid slippage"),
        ({"slippage": 1}, "invalid slippage"),
        ({"slippage": -0.1}, "invalid slippage"),
        ({"dust_mode": "yes"}, "invalid body"),
        ({"referralId": -1}, "invalid referralId"),
        ({"maxHops": 99}, "invalid maxHops"),
        ({"maxSplits": 0}, "invalid maxSplits: expected an integer from 1 to 50"),
        ({"maxPools": 101}, "invalid maxPools: expected an integer from 1 to 100"),
        ({"maxAgeMs": 0}, "invalid maxAgeMs: expected an integer from 1 to 3600000"),
        ({"maxPriceImpact": 1.5}, "invalid maxPriceImpact"),
        ({"includeExchanges": "Nasdaq"}, "invalid includeExchanges: 'Nasdaq' is none of"),
        ({"excludeExchanges": ["jex", "?"]}, "invalid excludeExchanges: '?' is none of"),
        ({"excludePools": [str(number) for number in range(65)]}, "invalid excludePools: at most 64 names"),
        ({"includePools": [7]}, "invalid body"),
        ({"gasPrice": 1}, "invalid gasPrice: expected an integer from 1000000000"),
        ({"dust_mode": False, "inputs": LARGE, "maxPriceImpact": 0.01}, "price impact too high"),
        ({"dust_mode": False, "inputs": [{"token": "NOPE-123456", "amount": "1"}]}, "unknown token_in 'NOPE-123456'"),
        ({"dust_mode": False, "inputs": [{"token": WRAPPED, "amount": "0"}]}, "invalid amount_in: expected unsigned"),
        ({"dust_mode": False, "inputs": GOOD["inputs"] * 2}, f"duplicate token_in '{WRAPPED}'"),
    ],
)
async def test_bad_requests_get_the_documented_words(service: Service, change: dict[str, Any], words: str) -> None:
    """A 400 with one field `error`; a part of it says what is wrong."""
    status, body = await swap(service, GOOD | change)
    found = msgspec.json.decode(body)
    assert (status, list(found)) == (400, ["error"])
    assert words in found["error"]


async def test_null_is_what_was_not_given(service: Service) -> None:
    """Clients that send every field of a type send null for what their user left open."""
    plain = await swap(service, {name: GOOD[name] for name in ("inputs", "to")})
    optional = ("slippage", "dust_mode", "sender", "maxHops", "maxBuiltinCalls", "referralId", "maxSplits", "gasPrice")
    optional += ("maxPools", "maxAgeMs", "maxPriceImpact", "simulate", "nobodyKnows")
    optional += ("includeExchanges", "excludeExchanges", "includePools", "excludePools")
    assert plain[0] == 200
    assert await swap(service, GOOD | dict.fromkeys(optional)) == plain


@pytest.mark.parametrize(
    ("route", "unused"), [("multi-swap", []), ("batch-quote", ["dust_mode", "gasPrice", "sender"])]
)
async def test_fields_without_effect_are_named(service: Service, route: str, unused: list[str]) -> None:
    """What is given in vain is in `ignoredParameters`, in the order of the body, as of a quote; else that is absent."""
    followed = GOOD | {"maxSplits": 2, "maxPools": 9, "maxAgeMs": 600_000, "maxPriceImpact": 0.5, "slippage": 0.02}
    followed |= {"includeExchanges": ["xExchange"], "excludeExchanges": "JEX", "includePools": None, "excludePools": []}
    asked = followed | {"dust_mode": True, "gasPrice": 10**9, "dustMode": False, "simulate": True, "x" * 500: 1}
    url = f"{service.base}/api/v1/{route}"
    async with service.session.post(url, json=asked) as answer:
        body = await answer.json()
    assert sorted(body["ignoredParameters"]) == sorted([*unused, "dustMode", "simulate", "x" * 64])
    async with service.session.post(url, json={name: GOOD[name] for name in ("inputs", "to")}) as answer:
        assert "ignoredParameters" not in await answer.json()


async def test_a_gas_price_is_that_of_transactions(service: Service) -> None:
    """It is in each of them; without a sender there is none, and it is named as without effect."""
    status, body = await swap(service, GOOD | {"gasPrice": 2 * 10**9})
    found = msgspec.json.decode(body)
    assert (status, [sent["transaction"]["gasPrice"] for sent in found["batches"]]) == (200, [2 * 10**9])
    assert "ignoredParameters" not in found
    _, body = await swap(service, GOOD | {"gasPrice": 2 * 10**9, "sender": None})
    assert msgspec.json.decode(body)["ignoredParameters"] == ["gasPrice"]


@pytest.mark.parametrize("route", ["multi-swap", "batch-quote"])
async def test_no_batches_on_a_market_older_than_allowed(
    service: Service, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """`maxAgeMs` is that of a quote: 503 with its words; a younger market is answered from."""
    monkeypatch.setattr(Snapshot, "age", lambda *_: 30.0)
    url = f"{service.base}/api/v1/{route}"
    async with service.session.post(url, json=GOOD | {"maxAgeMs": 29_000}) as answer:
        assert answer.status == 503
        assert "service unavailable" in (words := (await answer.json())["error"]) and "maxAgeMs 29000" in words
    async with service.session.post(url, json=GOOD | {"maxAgeMs": 31_000}) as answer:
        assert answer.status == 200


async def test_an_input_that_moves_its_pools_too_far_is_not_sold(service: Service) -> None:
    """With `maxPriceImpact` its reason is `price_impact`, and the others are sold."""
    inputs = [*LARGE, *GOOD["inputs"]]
    plain = await answered(service, inputs=inputs)
    assert plain.failed_tokens == []
    strict = await answered(service, inputs=inputs, maxPriceImpact=0.01)
    assert [(failed.token, failed.reason) for failed in strict.failed_tokens] == [(LARGE[0]["token"], "price_impact")]
    assert [given.token for sent in strict.batches for given in sent.inputs] == [WRAPPED]


def exchanges(body: Any) -> set[str]:
    """Of every swap in an answer of either route."""
    if isinstance(body, list):
        return set().union(*map(exchanges, body))
    if not isinstance(body, dict):
        return set()
    return set().union({body["dex"]} if "dex" in body else (), *map(exchanges, body.values())) - {"Wrapper"}


@pytest.mark.parametrize("route", ["multi-swap", "batch-quote"])
async def test_only_pools_that_are_allowed_are_used(service: Service, route: str) -> None:
    """Filters are those of a quote, and may be lists, too; what cannot be sold with them is named."""
    url = f"{service.base}/api/v1/{route}"
    asked = {"to": USDC, "inputs": [{"token": token, "amount": str(10**16)} for token in TOKENS[:12]]}

    async def sold(**filters: Any) -> Any:
        async with service.session.post(url, json=asked | filters) as answer:
            assert answer.status == 200
            return await answer.json()

    assert len(exchanges(await sold())) > 1
    only = await sold(includeExchanges=["jex", "xexchange"], excludeExchanges=["JEX"])
    assert exchanges(only) == {"xExchange"}
    assert only == await sold(includeExchanges="xExchange,JEX", excludeExchanges="jex")
    assert exchanges(await sold(excludeExchanges=["xExchange"])).isdisjoint({"xExchange"})
    nothing = await sold(includePools=["nobody's"])
    assert (nothing["batches"], {failed["reason"] for failed in nothing["failedTokens"]}) == ([], {"no_path"})


@pytest.mark.parametrize("most", [1, 2])
async def test_an_input_takes_no_more_paths_than_asked_for(service: Service, most: int) -> None:
    """`maxSplits` is of each input."""
    inputs = [{"token": WRAPPED, "amount": str(10**22)}]
    answer = await answered(service, inputs=inputs, maxSplits=most)
    assert [len(route.paths) for sent in answer.batches for route in sent.routes] == [most]


@pytest.mark.parametrize("missing", ["to", "inputs"])
async def test_what_is_missing_is_named(service: Service, missing: str) -> None:
    """A request without its output, or without inputs."""
    status, body = await swap(service, {name: value for name, value in GOOD.items() if name != missing})
    assert status == 400
    assert missing in msgspec.json.decode(body)["error"]


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 5000, b"\xff", b"null", b"[]"])
async def test_unreadable_bodies_are_400(service: Service, body: bytes) -> None:
    """Whatever the body, the answer is a 400 with one field `error`."""
    status, answer = await swap(service, body)
    assert (status, list(msgspec.json.decode(answer))) == (400, ["error"])


class ChainApi:
    """A chain API with accounts; the test chooses what it says."""

    def __init__(self) -> None:
        self.body: Any = {"address": SENDER, "nonce": 41}
        self.status = 200
        self.asked: list[str] = []

    async def account(self, request: web.Request) -> web.Response:
        self.asked.append(request.match_info["address"])
        return web.Response(body=msgspec.json.encode(self.body), status=self.status)


@pytest.fixture
async def chain() -> AsyncIterator[tuple[Service, ChainApi]]:
    api, app = ChainApi(), web.Application()
    app.router.add_get("/accounts/{address}", api.account)
    server = HttpServer(app)
    port = await server.start("127.0.0.1", 0)
    url = f"http://127.0.0.1:{port}/"
    running, *rest = await start(
        requests_per_second=10_000, chain_api_url=url, chain_api_timeout=20.0, inputs_per_transaction=1
    )
    await running.until("/health", 200)
    yield running, api
    await end(running, *rest)
    await server.stop()


class Quoted(Struct):
    transaction: dict[str, Any]


DEEP = msgspec.Raw(b'{"nonce":5,"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}")
QUESTION = {"from": WRAPPED, "to": USDC, "amountIn": "1000000000000000"}


async def test_transactions_have_their_senders_nonces(chain: tuple[Service, ChainApi]) -> None:
    """A quote's has the next one, batches count on from it; a question asked again has the nonce of by then."""
    service, api = chain
    inputs = [{"token": token, "amount": "1000000000000000"} for token in TOKENS[:3]]
    answer = await answered(service, inputs=inputs)
    assert [sent.transaction.nonce for sent in answer.batches] == [41 + k for k in range(len(answer.batches))]
    assert len(answer.batches) > 1
    one = await answered(service)
    assert isinstance(one.transaction, Transaction)
    assert one.transaction.nonce == 41
    for nonce in (41, 42):
        api.body = {"nonce": nonce}
        _, body = await service.get("/api/v1/quote", **QUESTION, sender=SENDER)
        assert body["transaction"]["nonce"] == nonce
    assert set(api.asked) == {SENDER}
    asked = len(api.asked)
    _, body = await service.get("/api/v1/quote", **QUESTION)
    assert "transaction" not in body
    assert len(api.asked) == asked


@pytest.mark.parametrize(
    "said", [(500, {"nonce": 5}), (200, {"nonce": -1}), (200, {"nonce": "5"}), (200, []), (200, DEEP)]
)
async def test_an_answer_does_not_fail_for_a_nonce(chain: tuple[Service, ChainApi], said: tuple[int, Any]) -> None:
    """Where the chain API tells none, a quote's transaction has none, and batches count from 0."""
    service, api = chain
    api.status, api.body = said
    status, body = await service.get("/api/v1/quote", **QUESTION, sender=SENDER)
    assert status == 200
    assert "nonce" not in body["transaction"]
    assert (await answered(service)).batches[0].transaction.nonce == 0
    async with service.session.get(service.operators + "/metrics") as metrics:
        assert "aggregator_nonces_missed_total 2.0" in await metrics.text()


async def test_questions_to_the_chain_api_are_bounded(chain: tuple[Service, ChainApi], monkeypatch: Any) -> None:
    """Past the bound a transaction has no nonce, and the API is not asked."""
    service, api = chain
    monkeypatch.setattr("millrace.aggregator.nonces.MAX_WAITING", 0)
    answers = await asyncio.gather(*(service.get("/api/v1/quote", **QUESTION, sender=SENDER) for _ in range(3)))
    assert all("nonce" not in body["transaction"] for _, body in answers)
    assert api.asked == []
