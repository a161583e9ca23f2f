"""The REST interface against a stand-in upstream: documented answers, documented errors."""

from __future__ import annotations

import asyncio
import base64
import math
import os
import random
import re
import sys
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
import pytest
from multidict import CIMultiDict

from millrace.aggregator import answering, snapshot
from millrace.aggregator.responses import QuoteResponse
from millrace.aggregator.settings import AggregatorSettings
from millrace.chain import call
from millrace.chain.call import TokenPayment
from millrace.dex.aggregator_contract import decode_arguments
from millrace.dex.document import encode
from millrace.dex.market import DictMarket
from millrace.dex.vault import execute
from millrace.runtime import settings
from millrace.runtime.settings import SettingsError
from servers.aggregator_service import MARKET, Service, end, start
from synthetic import WRAPPED, make_market

USDC = "USDC-c76f1f"
SENDER = "erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva"
EGLD = 10**18
TOKENS_IN_REQUESTS = ["query.from", "query.to", "query.token", "query.tokens", "body.to", "body.inputs[*].token"]


def pays(answer: dict[str, Any]) -> int:
    """What the contract pays for the answer's `txData`."""
    text = base64.b64decode(answer["txData"], validate=True)
    parsed = call.parse(text)
    token, amount, args = "EGLD", int(answer["amountIn"]), parsed.args
    if parsed.function == "ESDTTransfer":
        token, amount = parsed.args[0].decode(), int.from_bytes(parsed.args[1], "big")
        assert parsed.args[2] == b"xo"
        args = parsed.args[3:]
    program = decode_arguments(args)
    assert program.min_amount_out == int(answer["amountOutMin"])
    return execute(program, [TokenPayment(token, 0, amount)], DictMarket(MARKET.pools, WRAPPED)).amount_out


async def test_a_forward_quote_promises_what_its_payload_pays(service: Service) -> None:
    """`txData` decodes, and the contract pays `amountOut` for it; the minimum is the exact floor."""
    query = {"from": "EGLD", "to": USDC, "amountIn": str(500 * EGLD), "slippage": "0.02"}
    status, body = await service.get("/api/v1/quote", **query, includePaths="true", sender=SENDER)
    assert status == 200
    assert pays(body) == int(body["amountOut"])
    assert int(body["amountOutMin"]) == int(int(body["amountOut"]) * (1 - Decimal("0.02")))
    assert sum(path["splitPpm"] for path in body["paths"]) == 1_000_000
    assert sum(int(path["amountIn"]) for path in body["paths"]) == 500 * EGLD
    assert sum(int(path["amountOut"]) for path in body["paths"]) == int(body["amountOut"])
    assert body["transaction"]["data"] == body["txData"]
    assert body["transaction"]["value"] == str(500 * EGLD)


async def test_a_reverse_quote_covers_what_was_asked(service: Service) -> None:
    """`amountOut` given: the answer pays at least that, exactly as quoted."""
    status, body = await service.get("/api/v1/quote", **{"from": USDC, "to": "EGLD", "amountOut": str(EGLD)})
    assert (status, body["mode"]) == (200, "reverse")
    assert pays(body) == int(body["amountOut"]) >= EGLD


async def test_a_referral_is_charged_as_the_contract_does() -> None:
    """With a referral on file the quote is what is left after both fees, for both directions."""
    running, stop, task, server = await start(requests_per_second=10_000, referrals={"7": (10, 25)})
    try:
        await running.until("/health", 200)
        pair = {"from": "EGLD", "to": USDC}
        _, plain = await running.get("/api/v1/quote", **pair, amountIn=str(EGLD))
        _, charged = await running.get("/api/v1/quote", **pair, amountIn=str(EGLD), referralId="7")
        gross = int(plain["amountOut"])
        assert int(charged["feeAmount"]) == gross * 10 // 10_000 + gross * 25 // 10_000
        assert int(charged["amountOut"]) == gross - int(charged["feeAmount"])
        assert charged["feeBps"] == 35
        _, back = await running.get("/api/v1/quote", **pair, amountOut="1000000", referralId="7")
        assert int(back["amountOut"]) >= 1_000_000
        _, other = await running.get("/api/v1/quote", **pair, amountIn=str(EGLD), referralId="8")
        assert other["amountOut"] == plain["amountOut"]
    finally:
        stop.set()
        await task
        await running.session.close()
        await server.stop()


@pytest.mark.parametrize("fees", ["[5000, 5001]", "[10000, 1]", "[-1, 10]"])
def test_a_referral_takes_no_more_than_there_is(fees: str) -> None:
    """Fees of more than all of an output, or that give some, are refused as a setting."""
    with pytest.raises(SettingsError, match="referrals"):
        settings.load("aggregator", AggregatorSettings, env={}, overrides={"referrals": f'{{"7": {fees}}}'})


async def test_wrapping_is_a_free_hop(service: Service) -> None:
    """EGLD to the wrapped token is one wrapper hop without fee."""
    query = {"from": "EGLD", "to": WRAPPED, "amountIn": "12345", "includePaths": "true"}
    status, body = await service.get("/api/v1/quote", **query)
    assert (status, body["amountOut"], body["paths"][0]["swaps"][0]["dex"]) == (200, "12345", "wrapper")
    assert pays(body) == 12345


GOOD = {"from": "EGLD", "to": USDC, "amountIn": "1000000000000000000"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"from": "INVALID-123456"}, "unknown token_in 'INVALID-123456'"),
        ({"to": "INVALID-123456"}, "unknown token_out 'INVALID-123456'"),
        ({"from": ""}, "unknown token_in"),
        ({"amountIn": "1.5"}, "invalid amount_in: expected unsigned integer amount"),
        ({"amountIn": "0"}, "invalid amount_in: expected unsigned integer amount"),
        ({"amountIn": "-5"}, "invalid amount_in: expected unsigned integer amount"),
        ({"amountIn": ""}, "invalid amount_in: expected unsigned integer amount"),
        ({"amountIn": "१२३"}, "invalid amount_in: expected unsigned integer amount"),
        ({"amountIn": "1" * 100}, "invalid amount_in: expected unsigned integer amount"),
        ({"amountOut": "5"}, "specify either amount_in or amount_out, not both"),
        ({"slippage": "NaN"}, "invalid slippage"),
        ({"slippage": "1e9"}, "invalid slippage"),
        ({"slippage": "-0.1"}, "invalid slippage"),
        ({"slippage": ""}, "invalid slippage"),
        ({"slippage": "e5"}, "invalid slippage"),
        ({"slippage": ".e-5"}, "invalid slippage"),
        ({"slippage": "."}, "invalid slippage"),
        ({"slippage": "0.1 %"}, "invalid slippage"),
        ({"maxPriceImpact": ".e-5"}, "invalid maxPriceImpact"),
        ({"algorithm": "magic"}, "invalid algorithm"),
        ({"sender": "erd1nonsense"}, "invalid sender"),
        ({"includePaths": "maybe"}, "invalid includePaths"),
        ({"maxHops": "0"}, "invalid maxHops"),
        ({"maxSplits": "99999"}, "invalid maxSplits"),
        ({"maxBuiltinCalls": "0"}, "invalid maxBuiltinCalls: expected an integer from 1 to 100"),
        ({"maxBuiltinCalls": "101"}, "invalid maxBuiltinCalls: expected an integer from 1 to 100"),
        ({"maxBuiltinCalls": "many"}, "invalid maxBuiltinCalls: expected an integer from 1 to 100"),
        ({"maxBuiltinCalls": "4"}, "routing failed: no path between tokens"),
        ({"to": "EGLD"}, "routing failed: no path between tokens"),
    ],
)
async def test_bad_input_gets_the_documented_words(service: Service, change: dict[str, str], words: str) -> None:
    """Every wrong parameter is a 400 with one field `error` that holds the documented pattern."""
    status, body = await service.get("/api/v1/quote", **(GOOD | change))
    assert status == 400
    assert list(body) == ["error"]
    assert words in body["error"]


@pytest.mark.parametrize("query", ["&", "&&includePaths=false&", "&amountIn=%311000000000000000000&"])
async def test_nothing_between_two_ampersands_is_no_parameter(service: Service, query: str) -> None:
    """Clients that put queries together leave such; they are not named among what is ignored."""
    asked = {name: value for name, value in GOOD.items() if name not in query}
    async with service.session.get(f"{service.base}/api/v1/quote?{urlencode(asked)}{query}") as answer:
        assert answer.status == 200
        assert "ignoredParameters" not in await answer.json()


async def test_filters_keep_exchanges_and_pools_out(service: Service) -> None:
    """Excluded exchanges and pools are on no path; nothing left is no path."""
    query = GOOD | {"amountIn": str(300 * EGLD), "includePaths": "true", "excludeExchanges": "JEX"}
    status, body = await service.get("/api/v1/quote", **query)
    assert status == 200
    used = {swap["dex"] for path in body["paths"] for swap in path["swaps"]}
    assert "JEX" not in used
    status, body = await service.get("/api/v1/quote", **GOOD, includePools="x:none")
    assert (status, body["error"]) == (400, "routing failed: no path between tokens")


async def test_missing_amounts(service: Service) -> None:
    """Neither amount: the documented words."""
    status, body = await service.get("/api/v1/quote", **{"from": "EGLD", "to": USDC})
    assert (status, body["error"]) == (400, "amount_in or amount_out must be provided")


async def test_pair_config(service: Service) -> None:
    """Supported pairs carry decimals and a minimum, unsupported ones a reason; always HTTP 200."""
    status, body = await service.get("/api/v1/pair-config", **{"from": "EGLD", "to": USDC})
    assert (status, body["supported"], body["decimalsIn"], body["decimalsOut"]) == (200, True, 18, 6)
    assert body["minAmountInShort"] == pytest.approx(int(body["minAmountIn"]) / 10**18)
    query = {"from": "EGLD", "to": USDC, "amountIn": body["minAmountIn"]}
    assert (await service.get("/api/v1/quote", **query))[0] == 200
    status, body = await service.get("/api/v1/pair-config", **{"from": "EGLD", "to": WRAPPED})
    assert body["minAmountIn"] == "1000000000"
    status, body = await service.get("/api/v1/pair-config", **{"from": "EGLD", "to": "NOPE-123456"})
    assert (status, body["supported"], body["error"]) == (200, False, "unknown tokenOut")


@pytest.mark.parametrize(
    ("path", "query", "words"),
    [
        ("/api/v1/quote", "from=EGLD&from=EGLD&to=A&amountIn=1", "unknown token_in 'EGLD,EGLD'"),
        ("/api/v1/quote", "from=EGLD&to=EGLD&amountIn=1&amountIn=1", "invalid amount_in"),
        ("/api/v1/quote", "from=EGLD&to=EGLD&amountIn=1&slippage=0&slippage=0", "invalid slippage"),
        ("/api/v1/pair-config", "from=EGLD&from=EGLD&to=A", "unknown token_in 'EGLD,EGLD'"),
        ("/api/v1/pair-config", "from=EGLD&to=A&to=A", "unknown token_out 'A,A'"),
        ("/api/v1/price-ladder", "from=EGLD&to=EGLD&amounts=1&amounts=2", "invalid amounts: given more than once"),
    ],
)
async def test_a_parameter_given_twice_is_refused(service: Service, path: str, query: str, words: str) -> None:
    """No route picks one of two values by itself."""
    async with service.session.get(f"{service.base}{path}?{query}") as answer:
        assert answer.status == 400
        assert words in (await answer.json())["error"]


@pytest.mark.parametrize(("query", "missing"), [("to=EGLD", "from"), ("from=EGLD", "to")])
async def test_a_pair_is_two_tokens(service: Service, query: str, missing: str) -> None:
    """A pair record without one of its tokens is a bad request and no unsupported pair."""
    assert await service.get("/api/v1/pair-config?" + query) == (400, {"error": f"{missing} must be provided"})


async def test_equal_questions_have_equal_bytes(service: Service) -> None:
    """Same snapshot, same request: the same bytes, whatever was asked in between."""
    bodies = []
    for _ in range(3):
        async with service.session.get(service.base + "/api/v1/quote", params=GOOD) as answer:
            bodies.append(await answer.read())
        await service.get("/api/v1/quote", **{"from": USDC, "to": "EGLD", "amountIn": "777777"})
    assert bodies[0] == bodies[1] == bodies[2]


@pytest.mark.parametrize("document", [b'{"version": 1', encode(msgspec.structs.replace(MARKET, pools=()))])
async def test_a_bad_document_changes_nothing(service: Service, document: bytes) -> None:
    """A broken upstream, or one that lost its pools, leaves the last good snapshot serving and shows on /health."""
    before = (await service.get("/health"))[1]["snapshotId"]
    service.upstream.body = document
    deadline = time.monotonic() + 20
    status, health = await service.get("/health")
    while not health["lastError"] and time.monotonic() < deadline:
        status, health = await service.get("/health")
    assert (status, health["snapshotId"]) == (200, before)
    assert health["lastError"]
    assert (await service.get("/api/v1/quote", **GOOD))[0] == 200


async def test_a_slow_upstream_is_named() -> None:
    """A document that does not come in time is an error that says how long was waited."""
    running, stop, task, server = await start(fetch_timeout_seconds=0.05)
    running.upstream.delay = 0.5
    try:
        async with asyncio.timeout(20):
            while not (body := (await running.get("/health"))[1])["lastError"]:
                await asyncio.sleep(0.01)
        assert "not there after 0.05 s" in body["lastError"]
    finally:
        stop.set()
        await task
        await running.session.close()
        await server.stop()


async def test_the_same_question_is_computed_once_a_snapshot(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been asked on a snapshot is answered from memory, errors and other snapshots are not."""
    asked: list[object] = []
    answer = answering.quote.answer
    monkeypatch.setattr(answering.quote, "answer", lambda *a, **k: (asked.append(a), answer(*a, **k))[1])
    bodies = [(await service.get("/api/v1/quote", **GOOD))[1] for _ in range(3)]
    assert bodies[0] == bodies[1] == bodies[2]
    assert len(asked) == 1
    cycle = GOOD | {"to": "EGLD"}
    assert [(await service.get("/api/v1/quote", **cycle))[0] for _ in range(2)] == [400, 400]
    assert len(asked) == 3
    block = msgspec.structs.replace(MARKET.block, nonce=MARKET.block.nonce + 1)
    service.upstream.body = encode(msgspec.structs.replace(MARKET, block=block))
    while (await service.get("/health"))[1]["blockNonce"] != block.nonce:
        await asyncio.sleep(0.01)
    _, fresh = await service.get("/api/v1/quote", **GOOD)
    assert fresh["snapshot"]["blockNonce"] == block.nonce
    assert len(asked) == 4


@pytest.mark.parametrize("change", [{}, {"amountIn": "", "amountOut": "1000000"}], ids=["loop", "thread"])
async def test_an_answer_cut_short_is_not_remembered(
    service: Service, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    """An answer that was not there by its deadline is given, but whoever asks next has the question searched again."""
    asked: list[object] = []
    answer = answering.quote.answer

    def late(*given: Any, **named: Any) -> object:
        asked.append(given)
        found = answer(*given, **named)
        while time.monotonic() <= given[3]:  # until the deadline has passed
            time.sleep(0.01)
        return found

    monkeypatch.setattr(answering.quote, "answer", late)
    query = {name: value for name, value in (GOOD | change).items() if value}
    bodies = [(await service.get("/api/v1/quote", **query))[1] for _ in range(2)]
    assert bodies[0] == bodies[1]
    assert int(bodies[0]["amountOut"]) > 0
    assert len(asked) == 2


@pytest.mark.parametrize("text", ["0.9999999999999999999999999999", "1e-30", ".5", "0.30000000000000000001", "0"])
async def test_a_slippage_is_shown_with_all_its_digits(service: Service, text: str) -> None:
    """The answer's `slippage` is the number that was asked for, not the binary float next to it."""
    async with service.session.get(service.base + "/api/v1/quote", params=GOOD | {"slippage": text}) as answer:
        body = msgspec.json.decode(await answer.read(), type=QuoteResponse)
    assert body.slippage == Decimal(text)
    assert int(body.amount_out_min) == int(body.amount_out) - math.ceil(int(body.amount_out) * Fraction(text))


def test_remembered_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound on bytes the oldest answers are forgotten."""
    monkeypatch.setattr(snapshot, "ANSWER_BYTES", 100)
    made = snapshot.build(encode(MARKET), 0.0)
    for k in range(10):
        made.remember(f"a={k}", bytes(30))
        made.remember(f"a={k}", bytes(90))
    assert [k for k in range(10) if made.answered(f"a={k}") is not None] == [8 - 1, 8, 9]
    made.remember("b", bytes(200))
    assert made.answered("b") is None


async def test_unavailable_before_the_first_snapshot_and_past_the_age_limit() -> None:
    """503 `service unavailable` until a document came, and again when it is too old."""
    running, stop, task, server = await start(max_snapshot_age_seconds=0.3)
    try:
        running.upstream.status = 500
        await running.until("/health", 503)
        status, body = await running.get("/api/v1/quote", **GOOD)
        assert (status, body) == (503, {"error": "service unavailable"})
        running.upstream.status = 200
        await running.until("/health", 200)
        running.upstream.status = 500
        assert (await running.until("/health", 503))["status"] == "stale"
    finally:
        stop.set()
        await task
        await running.session.close()
        await server.stop()


async def test_more_than_the_rate_gets_429_with_retry_after() -> None:
    """The request over the limit within a second is refused and told when to come back."""
    running, stop, task, server = await start(requests_per_second=5)
    try:
        answers = [await running.get("/api/v1/pair-config", **GOOD) for _ in range(6)]
        assert [status for status, _ in answers].count(429) == 1
        assert answers[-1][1] == {"error": "rate limit exceeded"}
        async with running.session.get(running.base + "/api/v1/quote") as answer:
            assert int(answer.headers["Retry-After"]) >= 1
    finally:
        stop.set()
        await task
        await running.session.close()
        await server.stop()


async def test_the_rate_is_of_the_address_the_last_proxy_names() -> None:
    """A header line that the client made up above the proxy's own gains it no further requests."""
    running, stop, task, server = await start(requests_per_second=5, trusted_proxies=("127.0.0.0/8",))
    statuses = []
    try:
        for number in range(8):
            lines = [("X-Forwarded-For", f"9.9.9.{number}"), ("X-Forwarded-For", "1.2.3.4")]
            async with running.session.get(
                running.base + "/api/v1/pair-config", params=GOOD, headers=CIMultiDict(lines)
            ) as answer:
                statuses.append(answer.status)
        assert statuses.count(429) == 3
    finally:
        stop.set()
        await task
        await running.session.close()
        await server.stop()


async def test_a_price_ladder_answers_every_amount(service: Service) -> None:
    """Each step equals the quote of its own amount."""
    amounts = [10**16, 10**18, 10**20]
    query = {"from": "EGLD", "to": USDC, "amounts": ",".join(map(str, amounts))}
    status, body = await service.get("/api/v1/price-ladder", **query, slippage="0.02")
    assert (status, body["ignoredParameters"]) == (200, ["slippage"])
    for amount, step in zip(amounts, body["steps"], strict=True):
        _, alone = await service.get("/api/v1/quote", **{"from": "EGLD", "to": USDC, "amountIn": str(amount)})
        assert step["amountOut"] == alone["amountOut"]


async def test_a_batch_sells_many_inputs_in_one_call(service: Service) -> None:
    """A batch's `txData` pays its `amountOut` after those before it; unsellable inputs are listed with a reason."""
    tokens = [info.identifier for info in MARKET.tokens if not info.is_lp and info.identifier != USDC][:12]
    inputs = [{"token": token, "amount": str(10**16)} for token in tokens]
    inputs += [{"token": "NOPE-123456", "amount": "5"}, {"token": "EGLD", "amount": "x"}]
    async with service.session.post(
        service.base + "/api/v1/batch-quote", json={"inputs": inputs, "to": USDC}
    ) as answer:
        assert answer.status == 200
        body = msgspec.json.decode(await answer.read())
    reasons = {failed["token"]: failed["reason"] for failed in body["failedTokens"]}
    assert reasons["NOPE-123456"] == "unknown_token"
    assert reasons["EGLD"] == "invalid_amount"
    assert len(body["batches"]) >= 1
    market = DictMarket(MARKET.pools, WRAPPED)
    for batch in body["batches"]:
        data = call.parse(base64.b64decode(batch["txData"]))
        count = int.from_bytes(data.args[1], "big")
        assert count == len(batch["inputs"])
        rest = data.args[2 + 3 * count :]
        payments = [TokenPayment(item["token"], 0, int(item["amount"])) for item in batch["inputs"]]
        result = execute(decode_arguments(rest[1:]), payments, market)
        assert result.amount_out == int(batch["amountOut"])
        assert result.kept == {}
        market = market.left_by(result.pools)


async def test_what_is_in_flight_is_answered_when_the_service_stops() -> None:
    """Long questions that wait for the thread get their answers before the service ends."""
    running, stop, task, server = await start(requests_per_second=10_000)
    await running.until("/health", 200)
    asked = [
        asyncio.create_task(running.get("/api/v1/quote", **{"from": USDC, "to": "EGLD", "amountOut": str(EGLD + k)}))
        for k in range(20)
    ]
    async with asyncio.timeout(20):
        while True:
            async with running.session.get(running.operators + "/metrics") as answer:
                text = await answer.text()
            found = re.findall(r"^aggregator_quote(?:s_waiting|_seconds_count) (\S+)$", text, re.MULTILINE)
            if sum(map(float, found)) == len(asked):  # those that wait and those that are done
                break
    stop.set()
    assert {status for status, _ in await asyncio.gather(*asked)} == {200}
    await task
    await running.session.close()
    await server.stop()


async def test_a_connection_too_many_is_closed() -> None:
    """Past the bound a connection is closed at once and counted; those that are open are served on."""
    running, stop, task, server = await start(max_connections=1)
    try:
        with pytest.raises(aiohttp.ClientError):
            async with aiohttp.ClientSession() as other, other.get(running.base + "/health"):
                pass
        async with running.session.get(running.operators + "/metrics") as answer:
            refused = re.search(r"^aggregator_connections_refused_total (\S+)$", await answer.text(), re.MULTILINE)
        assert refused is not None
        assert float(refused[1]) >= 1  # the client may have tried again
    finally:
        stop.set()
        await task
        await running.session.close()
        await server.stop()


@pytest.mark.parametrize("hops", [0, -5, 11, 10**12])
async def test_a_batch_refuses_hops_out_of_range(service: Service, hops: int) -> None:
    """`maxHops` of a batch has the bounds of a quote's."""
    body = {"inputs": [{"token": "EGLD", "amount": "5"}], "to": USDC, "maxHops": hops}
    async with service.session.post(service.base + "/api/v1/batch-quote", json=body) as answer:
        assert answer.status == 400
        assert await answer.json() == {"error": "invalid maxHops: expected an integer from 1 to 10"}


async def test_a_stream_pushes_a_quote_per_snapshot(service: Service) -> None:
    """The first event comes at once, the next with the next snapshot; the service stops cleanly."""
    async with service.session.get(service.base + "/api/v1/quote/stream", params=GOOD) as answer:
        assert answer.content_type == "text/event-stream"
        first = await answer.content.readuntil(b"\n\n")
        service.upstream.body = encode(make_market(60, seed=12))
        second = await answer.content.readuntil(b"\n\n")
    assert first.startswith(b"event: quote")
    assert second.startswith((b"event: quote", b"event: error"))
    assert first.split(b"\n")[1] != second.split(b"\n")[1]


async def test_pages_of_other_sites_may_read_answers(service: Service) -> None:
    """By default every answer, a stream too, may be read by the script of any page, which may post JSON as well."""
    page = {"Origin": "https://app.example"}
    for path, params in (
        ("/api/v1/quote", GOOD),
        ("/api/v1/quote", {}),
        ("/api/v1/quote/stream", GOOD),
        ("/health", {}),
    ):
        async with service.session.get(service.base + path, params=params, headers=page) as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
    asked = page | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    async with service.session.options(service.base + "/api/v1/batch-quote", headers=asked) as answer:
        assert (answer.status, answer.headers["Access-Control-Allow-Methods"]) == (204, "POST")


async def test_a_stream_that_can_never_answer_is_refused(service: Service) -> None:
    """A question with an unknown token gets its error at once, not a stream of errors."""
    answer = await service.get("/api/v1/quote/stream", **(GOOD | {"from": "NOPE-123456"}))
    assert answer == (400, {"error": "unknown token_in 'NOPE-123456'"})


async def test_streams_of_one_client_are_bounded(service: Service) -> None:
    """One address may hold eight streams; the ninth gets 503."""
    opened = [await service.session.get(service.base + "/api/v1/quote/stream", params=GOOD) for _ in range(8)]
    first = [await stream.content.readuntil(b"\n\n") for stream in opened]
    assert len(set(first)) == 1
    async with service.session.get(service.base + "/api/v1/quote/stream", params=GOOD) as refused:
        assert refused.status == 503
        assert "too many streams of this client" in (await refused.json())["error"]
        assert int(refused.headers["Retry-After"]) >= 1
    for stream in opened:
        stream.close()


async def test_the_openapi_document_describes_the_routes(service: Service) -> None:
    """/openapi.json names every route and every documented response type."""
    status, body = await service.get("/openapi.json")
    assert status == 200
    assert {"/api/v1/quote", "/api/v1/pair-config", "/health"} <= set(body["paths"])
    fields = body["components"]["schemas"]["QuoteResponse"]["properties"]
    assert {"txData", "amountOutMin", "priceImpact", "estimatedGasLimit", "optimalityGap"} <= set(fields)


async def test_egld_and_its_wrapped_form_are_sold_together(service: Service) -> None:
    """They share one balance in the vault: they are planned as one, in one transaction, which pays what it says."""
    inputs = [{"token": "EGLD", "amount": str(10**15)}, {"token": WRAPPED, "amount": str(10**15)}]
    async with service.session.post(service.base + "/api/v1/batch-quote", json={"inputs": inputs, "to": USDC}) as reply:
        assert reply.status == 200, await reply.text()
        body = await reply.json()
    (batch,) = body["batches"]
    assert [item["token"] for item in batch["inputs"]] == ["EGLD", WRAPPED]
    assert body["failedTokens"] == []
    data = call.parse(base64.b64decode(batch["txData"]))
    payments = [TokenPayment(item["token"], 0, int(item["amount"])) for item in batch["inputs"]]
    result = execute(
        decode_arguments(data.args[2 + 3 * len(payments) + 1 :]), payments, DictMarket(MARKET.pools, WRAPPED)
    )
    assert result.amount_out == int(batch["amountOut"])


@pytest.mark.parametrize("path", ["/api/v1/batch-quote"])
@pytest.mark.parametrize("body", [b"", b"{", b"[" * 5000, b'{"inputs": [], "to": "EGLD"}', b"\xff", b'{"to": 5}'])
async def test_unreadable_bodies_are_400(service: Service, path: str, body: bytes) -> None:
    """Whatever the body, the answer is a 400 with one field `error`."""
    async with service.session.post(service.base + path, data=body) as answer:
        assert answer.status == 400
        assert list(msgspec.json.decode(await answer.read())) == ["error"]


async def test_arbitrage_refuses_a_wanted_output(service: Service) -> None:
    """`from` equal to `to` with `amountOut` is `invalid amount_out`."""
    status, body = await service.get("/api/v1/quote", **{"from": "EGLD", "to": "EGLD", "amountOut": "5"})
    assert status == 400
    assert "invalid amount_out" in body["error"]


DOCUMENTED = re.compile(
    r"unknown token_(in|out) '|routing failed: no path between tokens|simulation failed|too many amounts: at most"
    r"|invalid amount_(in|out): expected unsigned integer amount|specify either amount_in or amount_out, not both"
    r"|amount_in or amount_out must be provided|(from|to) must be provided"
    r"|invalid (slippage|algorithm|sender|max(Hops|Splits|Pools|BuiltinCalls)|include(Paths|LpRoutes))\b"
    r"|invalid (referralId|minProfitBps)\b"
    r"|invalid (includeExchanges|excludeExchanges|includePools|excludePools|amounts)\b"
)


async def test_a_query_of_noise_gets_documented_errors_only(service: Service) -> None:
    """Random parameters of every name on every route: an answer, or 400 in words that the page lists."""
    rng = random.Random(0)
    lp_token, pool = MARKET.pools[0].lp_token, MARKET.pools[1].id
    tokens = ["EGLD", USDC, WRAPPED, lp_token, MARKET.pools[1].lp_token, "", "NOPE-123456", "a" * 300, "\x00", "é"]
    amounts = ["1", "0", "-1", "1.5", "1e18", "NaN", "9" * 77, "9" * 79, "١", "10" + "0" * 17, "+5", " 7", ""]
    texts = {
        "from": tokens, "to": tokens, "amountIn": amounts, "amountOut": amounts,
        "amounts": ["1,2,3", "1,,2", "1000000000000000000", ",".join(["5"] * 101), "1,x"],
        "slippage": ["0", "0.5", "1", "-0", "1e-3", "1e9", "nan", "inf", ""],
        "algorithm": ["greedy", "lagrangian", "hybrid", "Greedy", ""],
        "includePaths": ["true", "false", "1", "maybe", ""], "includeLpRoutes": ["true", "false", "TRUE", "2"],
        "maxHops": ["1", "3", "10", "11", "0", "x"], "maxSplits": ["1", "50", "51"], "maxPools": ["1", "100", "101"],
        "maxBuiltinCalls": ["1", "2", "9", "100", "0", "101", "x"],
        "sender": [SENDER, "erd1", ""], "referralId": ["0", "7", "-7", "9" * 30], "minProfitBps": ["0", "99", "x"],
        "includeExchanges": ["JEX", "xExchange,OneDex", "Nasdaq", ""], "excludeExchanges": ["AshSwap", "jex,", "?"],
        "includePools": [pool, "none", ""], "excludePools": [pool, ",".join(map(str, range(65)))], "more": ["x"],
    }  # fmt: skip
    for _ in range(400):
        path = rng.choice(["quote"] * 6 + ["pair-config", "price-ladder"])
        query = [("from", rng.choice(tokens)), ("to", rng.choice(tokens))] if rng.random() < 0.9 else []
        query += [(name, rng.choice(texts[name])) for name in rng.choices(list(texts), k=rng.randrange(1, 6))]
        async with service.session.get(f"{service.base}/api/v1/{path}", params=query) as answer:
            body = msgspec.json.decode(await answer.read())
            assert answer.status in (200, 400), (path, query, body)
            if answer.status == 400:
                assert list(body) == ["error"]
                assert DOCUMENTED.search(body["error"]), (path, query, body)


EXAMPLES = int(os.environ.get("MILLRACE_API_EXAMPLES", "10"))
"""Generated requests of each operation; 1000 in the long form."""


@pytest.mark.timeout(900 + 10 * EXAMPLES)
async def test_schemathesis_finds_nothing(service: Service, tmp_path: Path) -> None:
    """Generated requests, right and wrong, get only what /openapi.json says: status, type, schema, never a 5xx.

    A schema cannot say which tokens exist: three of four are told to the generator, and one check is off, that what
    fits the schema is accepted. And nobody asks for prices younger than they can be, which gets a 503 as it should.
    """
    tokens = ["EGLD", *(info.identifier for info in MARKET.tokens[:8]), MARKET.pools[0].lp_token]
    known = dict.fromkeys(TOKENS_IN_REQUESTS, '{ dictionary = "tokens", probability = 0.75 }')
    known["body.maxAgeMs"] = '{ dictionary = "ages" }'  # where one is sent; wrong ones stay what they are
    known["query.includePools"] = known["query.excludePools"] = '{ dictionary = "pools", probability = 0.5 }'
    lines = [
        *("[dictionaries]", f"tokens = {{ values = {tokens} }}"),
        f"pools = {{ values = {[pool.id for pool in MARKET.pools[:3]]} }}",
        "ages = { values = [3600000] }",
        *("[parameters]", '"query.maxAgeMs" = 3600000', *(f'"{name}" = {value}' for name, value in known.items())),
        *("[[operations]]", 'include-path = "/api/v1/quote/stream"', "max-stream-events = 1"),  # the next is far off
    ]
    (tmp_path / "schemathesis.toml").write_text("\n".join(lines))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", service.base + "/openapi.json"),
        *("--checks", "all", "--exclude-checks", "positive_data_acceptance"),
        *("--max-examples", str(EXAMPLES), "--seed", "1", "--request-timeout", "10", "--continue-on-failure"),
        "--no-color",
        cwd=tmp_path,  # it leaves a cache behind
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()


# Faulty documents.


async def test_one_bad_pool_cannot_stop_the_market(service: Service) -> None:
    """A pool with a zero reserve is left out and named; quotes go on, of the newest document."""
    content = msgspec.json.decode(encode(MARKET))
    content["block"]["nonce"] += 1
    content["pools"][0]["reserves"][0] = "0"
    content["pools"][1]["state"], content["pools"][1]["reserves"] = "inactive", ["0", "0"]
    service.upstream.body = msgspec.json.encode(content)
    async with asyncio.timeout(20):
        while (health := (await service.get("/health"))[1])["blockNonce"] != content["block"]["nonce"]:
            await asyncio.sleep(0.02)
    assert health["status"] == "ok" and health["quarantined"] == 2
    assert {item["name"] for item in health["quarantine"]} == {pool["id"] for pool in content["pools"][:2]}
    assert "reserves[0]" in health["quarantine"][0]["reason"]
    assert health["pools"] == len(MARKET.pools) - 2
    status, _ = await service.get("/api/v1/quote", **{"from": WRAPPED, "to": USDC, "amountIn": str(EGLD)})
    assert status == 200
    async with service.session.get(service.operators + "/metrics") as answer:
        shown = await answer.text()
    assert "aggregator_quarantined 2.0" in shown
    for item in health["quarantine"]:
        assert f'aggregator_quarantined_pool{{name="{item["name"]}",reason="{item["reason"]}"}} 1.0' in shown


async def test_no_more_faults_are_named_in_metrics_than_on_health() -> None:
    """The count says how many there are; a hundred of them have names."""
    content = msgspec.json.decode(encode(make_market(300, seed=3)))
    for pool in content["pools"][::2]:
        pool["reserves"][0] = "0"
    running, stop, task, server = await start(msgspec.json.encode(content))
    try:
        await running.until("/health", 200)
        async with running.session.get(running.operators + "/metrics") as answer:
            shown = await answer.text()
        assert "aggregator_quarantined 150.0" in shown
        assert shown.count("aggregator_quarantined_pool{") == 100
    finally:
        await end(running, stop, task, server)


async def test_half_a_market_is_held_back_and_then_believed() -> None:
    """A document that lost half of its pools is taken when enough fetches agree; until then the last one serves."""
    running, stop, task, server = await start(held_back_fetches=1_000_000)
    try:
        before = await running.until("/health", 200)
        content = msgspec.json.decode(encode(MARKET))
        content["pools"] = content["pools"][::2]
        running.upstream.body = msgspec.json.encode(content)
        async with asyncio.timeout(20):
            while "pools are gone" not in str((health := (await running.get("/health"))[1])["lastError"]):
                await asyncio.sleep(0.02)
        assert health["pools"] == before["pools"] and health["status"] == "ok"
    finally:
        stop.set()
        await task
        await server.stop()
        await running.session.close()


async def test_a_request_counts_once_whatever_it_asks() -> None:
    """A reverse quote, LP routes, a new filter, and a ladder count as one request each."""
    running, stop, task, server = await start(requests_per_second=6)
    try:
        reverse = {"from": "EGLD", "to": USDC, "amountOut": "1000000"}
        ladder = {"from": "EGLD", "to": USDC, "amounts": ",".join(str(10**16 + k) for k in range(40))}
        await running.until("/health", 200)
        statuses = [(await running.get("/api/v1/quote", **reverse, **extra))[0] for extra in DEAR]
        statuses.append((await running.get("/api/v1/price-ladder", **ladder))[0])
        assert statuses == [200] * 5
    finally:
        await end(running, stop, task, server)


DEAR: tuple[dict[str, str], ...] = (
    {},
    {"includeLpRoutes": "true"},
    {"excludeExchanges": "JEX"},
    {"excludeExchanges": "OneDex"},
)
