"""The chain API's answers: whole, bounded, and judged by all their words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web
from relayer_support import transfer, wallet

from millrace.relayer.network.chain_api import MAX_ANSWER, ChainApi, ChainApiError, NotToldError
from millrace.runtime import http

ALICE = wallet(1)
LONG = 700_000
"""More than any one read of a socket brings."""

Serve = Callable[[int, str], None]


@pytest.fixture
async def answering() -> AsyncIterator[tuple[ChainApi, Serve]]:
    """A chain API that answers everything with a status and a text that the test sets."""
    answer = [200, ""]

    async def take(_: web.Request) -> web.Response:
        return web.Response(status=int(answer[0]), text=str(answer[1]), content_type="application/json")

    app = http.make_app()
    app.add_routes([web.route("*", "/{path:.*}", take)])
    server = http.HttpServer(app)
    api = ChainApi(f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}", 5.0)

    def serve(status: int, text: str) -> None:
        answer[:] = [status, text]

    yield api, serve
    await api.close()
    await server.stop()


async def test_an_answer_that_comes_in_many_pieces(answering: tuple[ChainApi, Serve]) -> None:
    """An account is read to its end, as that of a contract, which carries its code, comes in many pieces."""
    api, serve = answering
    serve(200, '{"code":"%s","nonce":7,"balance":"5"}' % ("00" * (LONG // 2)))
    account = await api.account(ALICE.public)
    assert (account.nonce, account.balance) == (7, 5)


async def test_an_answer_without_end(answering: tuple[ChainApi, Serve]) -> None:
    """Of an answer no more is read than `MAX_ANSWER` bytes, and what is cut off there is no account."""
    api, serve = answering
    serve(200, '{"nonce":7,"balance":"5"}' + " " * MAX_ANSWER)
    with pytest.raises(ChainApiError, match="longer"):
        await api.account(ALICE.public)


async def test_an_account_the_chain_does_not_know(answering: tuple[ChainApi, Serve]) -> None:
    """404 is an account with nothing, unless it speaks of the path: then nothing is known of any account."""
    api, serve = answering
    serve(404, '{"statusCode":404,"message":"Account not found","error":"Not Found"}')
    assert await api.account(ALICE.public) == (0, 0, b"", False)
    for path in (
        '{"statusCode":404,"message":"Cannot GET /v2/accounts/erd1","error":"Not Found"}',
        "404 page not found",
    ):
        serve(404, path)
        with pytest.raises(ChainApiError, match="knows no /accounts"):
            await api.account(ALICE.public)


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{", '{"x":' + "[" * 100_000, '{"nonce":"1","balance":"1"}', '{"nonce":1}', '{"nonce":1,"balance":"x"}'],
)
async def test_answers_that_are_no_account(answering: tuple[ChainApi, Serve], body: str) -> None:
    """Nonsense is the chain API's failure, never an account."""
    api, serve = answering
    serve(200, body)
    with pytest.raises(ChainApiError):
        await api.account(ALICE.public)


@pytest.mark.parametrize(
    "body", ['{"nonce":-1,"balance":"5"}', '{"nonce":1,"balance":"-5"}', '{"nonce":1,"balance":" 5"}']
)
async def test_numbers_that_no_account_has(answering: tuple[ChainApi, Serve], body: str) -> None:
    """A negative nonce or balance is nonsense, too."""
    api, serve = answering
    serve(200, body)
    with pytest.raises(ChainApiError):
        await api.account(ALICE.public)


async def test_a_refusal_is_judged_by_all_its_words(answering: tuple[ChainApi, Serve]) -> None:
    """A refused transaction is tried again when the reason that says so comes late in a long answer."""
    api, serve = answering
    serve(400, '{"message":"%s insufficient funds"}' % ("x" * 3_000))
    assert await api.submit(transfer(ALICE)) == "later"
    serve(400, '{"message":"nobody understands this"}')
    assert await api.submit(transfer(ALICE)) == "never"


async def test_refusals_make_a_line_a_second(
    answering: tuple[ChainApi, Serve], caplog: pytest.LogCaptureFixture
) -> None:
    """However many transactions are not taken, which clients decide, the log says so once in a while."""
    api, serve = answering
    serve(400, '{"message":"invalid signature"}')
    for nonce in range(20):
        assert await api.submit(transfer(ALICE, nonce)) == "never"
    assert api.refused == 20 and 1 <= len(caplog.records) <= 10


async def test_a_list_of_peers_that_is_none(answering: tuple[ChainApi, Serve]) -> None:
    """Nonsense instead of a list of peers is the chain API's failure."""
    api, serve = answering
    for body in ("", "[]", '{"peers":[1]}', '{"x":' + "[" * 100_000):
        serve(200, body)
        with pytest.raises(ChainApiError):
            await api.gossip_peers(f"{api._base_url}/peers")
    serve(200, '{"peers":["/ip4/1.2.3.4"]}')
    assert await api.gossip_peers(f"{api._base_url}/peers") == ("/ip4/1.2.3.4",)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"status": "success"}, True),
        ({"status": "success", "failReason": "", "logs": {"events": [{"identifier": "writeLog"}]}}, True),
        ({"status": "success", "logs": {"events": None}}, True),
        ({"status": "fail", "failReason": "higher nonce in transaction"}, False),
        ({"status": "success", "failReason": "out of gas"}, False),
        ({"status": "success", "logs": {"events": [{"identifier": "signalError"}]}}, False),
        ({"senderShard": {"status": "success"}, "receiverShard": {"status": "success"}}, True),
        ({"senderShard": {"status": "success"}, "receiverShard": {"status": "fail"}}, False),
        ({"senderShard": {"status": "fail"}, "receiverShard": {"status": "success"}}, False),
    ],
)
async def test_what_a_simulation_says(answering: tuple[ChainApi, Serve], answer: Any, verdict: bool) -> None:
    """A transaction would succeed when every shard that is asked says so, and no call of it failed."""
    api, serve = answering
    serve(200, msgspec.json.encode({"data": {"result": answer}, "code": "successful"}).decode())
    assert await api.simulate(transfer(ALICE)) is verdict


@pytest.mark.parametrize(
    ("status", "text"), [(404, "Cannot POST"), (503, "down"), (200, "{}"), (200, '{"data":{"result":{}}}'), (429, "")]
)
async def test_no_simulation(answering: tuple[ChainApi, Serve], status: int, text: str) -> None:
    """An answer that speaks of the API, or of nothing, says nothing of the transaction."""
    api, serve = answering
    serve(status, text)
    with pytest.raises(ChainApiError):
        await api.simulate(transfer(ALICE))


@pytest.mark.parametrize(("status", "of_one"), [(400, True), (500, True), (401, False), (429, False), (503, False)])
async def test_whom_a_failure_concerns(answering: tuple[ChainApi, Serve], status: int, of_one: bool) -> None:
    """What cannot be told of one account, as its shard's nodes are away, says nothing of the chain API as a whole."""
    api, serve = answering
    serve(status, "no observer is online")
    with pytest.raises(ChainApiError) as raised:
        await api.account(ALICE.public)
    assert isinstance(raised.value, NotToldError) is of_one


async def test_what_no_node_would_take_would_not_run(answering: tuple[ChainApi, Serve]) -> None:
    """A refusal of the transaction itself is an answer."""
    api, serve = answering
    serve(400, "transaction generation failed: transaction is not executable and gas will not be consumed")
    assert not await api.simulate(transfer(ALICE))


async def test_the_length_of_a_round(answering: tuple[ChainApi, Serve]) -> None:
    """Of the network's configuration, in a gateway's envelope; whatever else is answered is an error."""
    api, serve = answering
    serve(200, '{"data":{"config":{"erd_round_duration":600,"erd_chain_id":"1"}},"error":"","code":"successful"}')
    assert await api.round_ms() == 600
    for status, text in (
        (404, "Cannot GET /network/config"), (503, ""), (200, ""), (200, "[" * 10_000), (200, '{"data":null}'),
        (200, '{"data":{"config":{}}}'), (200, '{"data":{"config":{"erd_round_duration":"600"}}}'),
        (200, '{"data":{"config":{"erd_round_duration":600.5}}}'),
        (200, '{"data":{"config":{"erd_round_duration":1e999}}}'),
    ):  # fmt: skip
        serve(status, text)
        with pytest.raises(ChainApiError):
            await api.round_ms()


async def test_an_account_whose_guardian_is_not_told(answering: tuple[ChainApi, Serve]) -> None:
    """That an account is guarded, and not by whom, is no answer: what it sends could be checked against nobody."""
    api, serve = answering
    serve(200, '{"nonce":7,"balance":"5","isGuarded":true}')
    with pytest.raises(NotToldError, match="guard"):
        await api.account(ALICE.public)
    serve(200, '{"nonce":7,"balance":"5"}')
    assert (await api.account(ALICE.public)).guardian is None, "an API that knows of no guardians"
