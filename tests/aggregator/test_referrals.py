"""Fees of referrals are read from the contract in the background; quotes take off what was read."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from millrace.aggregator import referrals, stream
from millrace.aggregator.answering import Answer, Answering, Prepared
from millrace.aggregator.referrals import PROBE, Referrals
from millrace.aggregator.responses import Simulation, UnsignedTransaction
from millrace.aggregator.settings import ANY_REFERRAL, AggregatorSettings, parse_referral
from millrace.aggregator.simulation import Simulations
from millrace.chain import call
from millrace.dex.aggregator_contract import decode_arguments
from millrace.runtime.http import HttpServer
from servers.aggregator_service import end, start

SENDER = AggregatorSettings().contract
WRAPPED = "WEGLD-bd4d79"
ASKED = {"from": "EGLD", "to": "USDC-c76f1f", "amountIn": "1000000000000000000"}
ON = AggregatorSettings(gateway="http://127.0.0.1:1", referral_sender=SENDER, referrals={"1": (10, 20)})


def says(fees: dict[int, int], value: str, data: str) -> str:
    """What a contract with these fees, in basis points, says of a probe."""
    program = decode_arguments(call.parse(base64.b64decode(data)).args)
    have = int(value) * (10_000 - fees.get(program.referral_id, 0)) // 10_000
    return f"Slippage limit exceeded: have {have}, need {program.min_amount_out}"


class Contract(Simulations):
    """Simulations of a contract with these fees; `words` are said in the place of its own."""

    def __init__(self, fees: dict[int, int], words: str = "") -> None:
        super().__init__(AggregatorSettings())
        self.fees = fees
        self.words = words
        self.probes = 0

    async def of(self, transaction: UnsignedTransaction) -> Simulation:
        self.probes += 1
        await asyncio.sleep(0)
        said = self.words or says(self.fees, transaction.value, transaction.data)
        return Simulation(status="fail", reason=said)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what is read in the background (at most 20 s)."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("bps", [0, 1, 30, 5_000, 10_000])
async def test_a_fee_is_read_to_the_basis_point(bps: int) -> None:
    """What is missing of the probe is the fee, whatever it is, with the time at which it was read."""
    adopted: list[AggregatorSettings] = []
    known = Referrals(ON, Contract({7: bps}), adopted.append, clock=lambda: 1_764_000_000.5)
    assert known.of(7).source == "unknown"
    known.note(7, WRAPPED)
    await until(lambda: known.of(7).source == "contract")
    answer = known.of(7)
    assert (answer.fee_bps, answer.read_at) == (bps, 1_764_000_000_500)
    assert sum(adopted[-1].referral_bps(7)) == bps
    await known.close()


@pytest.mark.parametrize(
    ("fees", "words"),
    [
        ({0: 10}, ""),  # a contract that takes fees without a referral is not the one that is known
        ({}, "execution failed"),
        ({}, "Slippage limit exceeded: have 9970, need 5"),  # of another call
        ({}, f"Slippage limit exceeded: have {PROBE + 1}, need {PROBE + 1}"),
    ],
)
async def test_what_says_nothing_is_not_believed(fees: dict[int, int], words: str) -> None:
    """The setting's word stands, the answer says why, and the failure is counted."""
    adopted: list[AggregatorSettings] = []
    known = Referrals(ON, Contract(fees, words), adopted.append)
    known.note(1, WRAPPED)
    await until(lambda: known.failures > 0)
    answer = known.of(1)
    assert (answer.source, answer.fee_bps, adopted) == ("setting", 30, [])
    assert answer.reason
    await known.close()


async def test_a_gateway_that_fails_later_leaves_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last reading stands with its own time, until there is a newer one."""
    settings = AggregatorSettings(gateway="http://127.0.0.1:1", referral_sender=SENDER, referral_seconds=1.0)
    contract, times = Contract({7: 25}), iter(range(1, 10_000))
    known = Referrals(settings, contract, lambda _: None, clock=lambda: float(next(times)))
    known.note(7, WRAPPED)
    await until(lambda: known.of(7).source == "contract")
    contract.words = "execution failed"
    await until(lambda: known.failures > 0)
    assert (known.of(7).fee_bps, known.of(7).read_at) == (25, 1000)
    await known.close()


async def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for many ids pushes out those asked for longest ago, and none of the setting's."""
    monkeypatch.setattr(referrals, "MAX_KNOWN", 4)
    known = Referrals(ON, Contract({1: 30, 2: 5, 9: 7}), lambda _: None)
    for number in range(2, 10):
        known.note(number, WRAPPED)
    await until(lambda: known.of(9).source == "contract")
    await until(lambda: known.of(1).source == "contract")
    assert [known.of(number).source for number in (2, 5, 6)] == ["unknown", "unknown", "contract"]
    await known.close()


async def test_ids_that_cost_nothing_push_out_none_that_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for many of them takes the fee off nobody's quote; with room for none but those that cost, the one
    asked for longest ago goes."""
    monkeypatch.setattr(referrals, "MAX_KNOWN", 4)
    adopted: list[AggregatorSettings] = []
    known = Referrals(ON, Contract(dict.fromkeys(range(7, 12), 30)), adopted.append)
    known.note(7, WRAPPED)
    await until(lambda: known.of(7).source == "contract")
    for number in range(100, 106):
        known.note(number, WRAPPED)
    await until(lambda: known.of(105).source == "contract")
    assert adopted[-1].referral_bps(7) == (0, 30)
    for number in range(8, 12):
        known.note(number, WRAPPED)
        await until(lambda: known.of(number).source == "contract")  # noqa: B023
    assert [adopted[-1].referral_bps(number) for number in range(7, 12)] == [(0, 0), *[(0, 30)] * 4]
    await known.close()


async def test_an_id_that_cannot_be_read_ends_nothing() -> None:
    """Whatever goes wrong with one, those after it are read, and its own answer says that it was not."""

    class Faulty(Contract):
        async def of(self, transaction: UnsignedTransaction) -> Simulation:
            if decode_arguments(call.parse(base64.b64decode(transaction.data)).args).referral_id == 6:
                raise RecursionError
            return await super().of(transaction)

    known = Referrals(ON, Faulty({6: 5, 7: 30}), lambda _: None)
    for number in (6, 7):
        known.note(number, WRAPPED)
    await until(lambda: known.of(7).source == "contract")
    assert (known.of(6).source, known.of(6).reason, known.failures) == ("unknown", "it cannot be read", 1)
    await known.close()


async def test_without_a_sender_nobody_is_asked() -> None:
    """Only the setting tells then."""
    contract = Contract({1: 99})
    known = Referrals(AggregatorSettings(referrals={"1": (10, 20)}), contract, lambda _: None)
    known.note(1, WRAPPED)
    await asyncio.sleep(0)
    assert (known.of(1).fee_bps, known.of(1).source, contract.probes) == (30, "setting", 0)
    assert known.of(2).source == "unknown"


@pytest.mark.parametrize("text", ["0", "", "-1", "1.5", "x", "٣", str(ANY_REFERRAL + 1), "1" * 30])
def test_an_id_is_a_number_of_64_bits(text: str) -> None:
    """Anything else is none."""
    assert parse_referral(text) is None
    assert parse_referral(str(ANY_REFERRAL)) == ANY_REFERRAL


@pytest.fixture
async def service() -> AsyncIterator[Any]:
    """An aggregator whose gateway has two referrals with a fee."""

    async def account(_: web.Request) -> web.Response:
        return web.json_response({"data": {"account": {"nonce": 7}}, "error": ""})

    async def transaction(request: web.Request) -> web.Response:
        asked = await request.json()
        if request.match_info["what"] == "cost":
            return web.json_response({"data": {"txGasUnits": 0, "returnMessage": ""}, "error": ""})
        told = {"status": "fail", "failReason": says({7: 25, 8: 40}, asked["value"], asked["data"])}
        return web.json_response({"data": {"result": told}, "error": ""})

    app = web.Application()
    app.router.add_get("/address/{address}", account)
    app.router.add_post("/transaction/{what}", transaction)
    gateway = HttpServer(app)
    url = f"http://127.0.0.1:{await gateway.start('127.0.0.1', 0)}"
    running = await start(gateway=url, referral_sender=SENDER)
    await running[0].until("/health", 200)
    yield running[0]
    await end(*running)
    await gateway.stop()


async def test_quotes_take_off_what_was_read(service: Any) -> None:
    """A first quote does not wait; when the fee is known it is in quotes, batches, the record and the configuration."""
    _, first = await service.get("/api/v1/quote", **ASKED, referralId="7")
    assert first["feeBps"] in (0, 25)
    async with asyncio.timeout(20):
        while (await service.get("/api/v1/referrals/7"))[1]["source"] != "contract":
            await asyncio.sleep(0.02)
    _, record = await service.get("/api/v1/referrals/7")
    assert record["feeBps"] == 25
    assert record["readAt"] > 0
    _, quote = await service.get("/api/v1/quote", **ASKED, referralId="7")
    _, plain = await service.get("/api/v1/quote", **ASKED)
    gross = int(plain["amountOut"])
    assert (quote["feeBps"], int(quote["amountOut"])) == (25, gross - gross * 25 // 10_000)
    assert (await service.get("/api/v1/config"))[1]["referrals"] == {"7": 25}
    assert (await service.get("/api/v1/referrals/0"))[0] == 400


async def test_an_open_stream_is_told_of_a_fee_that_was_read(service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream alone has its referral read, and hears of the fee at once although the market stands still; who asks the
    same afterwards begins with it."""
    monkeypatch.setattr(stream, "KEEP_ALIVE_SECONDS", 1e6)
    url, question = service.base + "/api/v1/quote/stream", ASKED | {"referralId": "7"}
    async with asyncio.timeout(20), service.session.get(url, params=question) as told:
        while fee_of(await told.content.readuntil(b"\n\n")) != 25:
            pass
        async with service.session.get(url, params=question) as after:
            assert fee_of(await after.content.readuntil(b"\n\n")) == 25


async def test_a_stream_hears_of_a_fee_that_was_read_while_it_was_answered(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer under way has the old fee, and is neither the last word nor anybody else's."""
    monkeypatch.setattr(stream, "KEEP_ALIVE_SECONDS", 1e6)
    plain, asked = Answering.answer, 0

    async def late(self: Answering, prepared: Prepared) -> Answer:
        nonlocal asked
        asked += 1
        found = await plain(self, prepared)
        while asked == 1 and (await service.get("/api/v1/config"))[1]["referrals"] != {"8": 40}:
            await asyncio.sleep(0.02)
        return found

    monkeypatch.setattr(Answering, "answer", late)
    params = ASKED | {"referralId": "8"}
    async with asyncio.timeout(20), service.session.get(service.base + "/api/v1/quote/stream", params=params) as told:
        assert [fee_of(await told.content.readuntil(b"\n\n")) for _ in range(2)] == [0, 40]


def fee_of(event: bytes) -> int | None:
    """What a quote of a stream takes off; None of what is none."""
    (said, *_) = [*re.findall(rb'"feeBps":(\d+)', event), None]
    return None if said is None else int(said)


@pytest.mark.parametrize(
    ("route", "asked"),
    [("price-ladder", {"from": "EGLD", "to": "USDC-c76f1f", "amounts": "1000000000000000000"}), ("quote.svg", ASKED)],
)
async def test_ladders_and_pictures_have_a_referral_read(service: Any, route: str, asked: dict[str, str]) -> None:
    """Nobody else need name it."""
    async with service.session.get(f"{service.base}/api/v1/{route}", params=asked | {"referralId": "7"}) as answer:
        assert answer.status == 200
    async with asyncio.timeout(20):
        while (await service.get("/api/v1/config"))[1]["referrals"] != {"7": 25}:
            await asyncio.sleep(0.02)


async def test_an_answer_that_was_begun_before_the_fee_was_read_is_not_remembered(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks the same afterwards has the fee taken off."""
    done, known = asyncio.Event(), asyncio.Event()
    plain = Answering.in_thread

    async def late(self: Answering, asked: Prepared) -> Answer:
        found = await plain(self, asked)
        done.set()
        await known.wait()
        return found

    monkeypatch.setattr(Answering, "in_thread", late)
    question = {"from": "EGLD", "to": "USDC-c76f1f", "amountOut": "1000000", "referralId": "8"}
    first = asyncio.create_task(service.get("/api/v1/quote", **question))
    await done.wait()
    async with asyncio.timeout(20):
        while (await service.get("/api/v1/referrals/8"))[1]["source"] != "contract":
            await asyncio.sleep(0.02)
    known.set()
    await first
    _, again = await service.get("/api/v1/quote", **question)
    assert again["feeBps"] == 40


async def test_a_referral_that_costs_nothing_leaves_answers_remembered(service: Any) -> None:
    """Whoever asks for any number of them makes nobody else's answer to be worked out again."""
    await service.get("/api/v1/quote", **ASKED)
    reused = await reuses(service)
    async with asyncio.timeout(20):
        while (await service.get("/api/v1/referrals/99"))[1]["source"] != "contract":
            await asyncio.sleep(0.02)
    await service.get("/api/v1/quote", **ASKED)
    assert await reuses(service) == reused + 1


async def reuses(service: Any) -> float:
    """How many answers were remembered ones."""
    async with service.session.get(service.operators + "/metrics") as answer:
        text = await answer.text()
    return float(re.search(r"^\S*reused\S* (\S+)$", text, re.MULTILINE)[1])  # type: ignore[index]
