"""Submissions and their handles: lost connections, killed relayers, waits and refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web

from millrace_client import Handle, OutcomeUnknown, Patience, Refused, Relayer, Transaction, Unreachable, Wallet
from millrace_client.messages import RelayerKey, Relayers
from servers.fake_relayer import PAYER, FakeRelayer, status_of, usual

WALLET = Wallet(bytes(range(32)))
TX = Transaction(
    nonce=1,
    value="0",
    receiver=WALLET.address,
    sender=WALLET.address,
    gas_price=10**9,
    gas_limit=50_000,
    chain_id="local",
    version=2,
    signature="00" * 64,
)
HASH = TX.client_hash()
WAIT = 20.0


async def test_a_status_resolves_the_handle(service: FakeRelayer, relayer: Relayer) -> None:
    """The topic is subscribed to before the transaction is sent; the pushed status is the outcome."""
    handle = await relayer.relay(TX)
    assert [request["action"] for request in service.requests] == ["subscribe", "relay"]
    assert handle.accepted and handle.hash == "0" * 64
    await service.push(status_of(HASH, "fail", reason="execution failed", chainHash="ab"))
    outcome = await handle.final(WAIT)
    assert (outcome.state, outcome.reason, outcome.chain_hash) == ("fail", "execution failed", "ab")
    await service.until(lambda: service.requests[-1]["action"] == "unsubscribe")


async def test_who_reads_slowly_hears_the_end(service: FakeRelayer, relayer: Relayer) -> None:
    """An end that comes while the state before is still being read is given too."""
    handle = await relayer.relay(TX)
    states = handle.progress(WAIT)
    assert (await anext(states)).state == "pending"
    await service.push(status_of(HASH))
    await service.until(lambda: service.requests[-1]["action"] == "unsubscribe")
    assert [outcome.state async for outcome in states] == ["success"]


async def test_what_was_told_meanwhile_is_asked_for(service: FakeRelayer, relayer: Relayer) -> None:
    """A status that was told while the connection was away is asked for as soon as it is back."""
    handle = await relayer.relay(TX)
    service.outcomes[HASH] = {"state": "success", "fee": "7"}
    await service.stop()
    await service.start()
    outcome = await handle.final(WAIT)
    assert (outcome.state, outcome.fee) == ("success", 7)


async def test_a_lost_answer(service: FakeRelayer, relayer: Relayer) -> None:
    """A submission whose answer was lost is sent again, the same bytes."""
    lost = []

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["action"] == "relay" and not lost:
            lost.append(request)
            service.abort()
            return None
        return usual(request)

    service.answer = answer
    handle = await relayer.relay(TX)
    sent = [request["tx"] for request in service.requests if request["action"] == "relay"]
    assert handle.accepted and len(sent) == 2 and sent[0] == sent[1]


async def test_a_refusal_of_what_arrived_before(service: FakeRelayer, relayer: Relayer) -> None:
    """Sent again and refused as `nonce too low`: the first one had arrived, and its outcome is asked for."""

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["action"] != "relay":
            return usual(request)
        if len([asked for asked in service.requests if asked["action"] == "relay"]) == 1:
            service.abort()
            return None
        failed = [{"index": 0, "reason": "nonce too low", "code": "nonce_too_low"}]
        return {"action": "relay", "status": "failed", "hashes": [], "failed": failed, "results": []}

    service.answer = answer
    service.outcomes[HASH] = {"state": "success"}
    handle = await relayer.relay(TX)
    assert (await handle.final(WAIT)).state == "success"


async def test_a_relayer_that_does_not_come_back(service: FakeRelayer) -> None:
    """Killed between submission and answer, and gone for good: the handle says that nobody could know."""

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["action"] == "relay":
            service.abort()
            return None
        return usual(request)

    service.answer = answer
    async with Relayer(service.url, service.ws_url, timeout=0.3, patience=Patience(tries=1, seconds=0.3)) as client:
        handle = await client.relay(TX)
        assert handle.accepted is None
        await service.stop()
        with pytest.raises(OutcomeUnknown) as unknown:
            await handle.final(0.5)
    assert unknown.value.hash == HASH
    assert "acceptance not known" in str(unknown.value)


async def test_nothing_was_sent() -> None:
    """A relayer that cannot be reached at all is `Unreachable`, and no handle pretends otherwise."""
    async with Relayer("http://127.0.0.1:9", "ws://127.0.0.1:9/ws", timeout=0.3) as client:
        with pytest.raises(Unreachable, match="cannot be reached"):
            await client.relay(TX)


async def test_refusals(service: FakeRelayer, relayer: Relayer) -> None:
    """One refused transaction is an exception with reason, code, detail and retry time; of several it is a value."""
    refusal = {"index": 1, "reason": "fee too high", "code": "fee_too_high", "detail": "cap 5", "retryAfterMs": 1500}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["action"] != "relay":
            return usual(request)
        if "tx" in request:
            return {"action": "relay", "status": "failed", "failed": [refusal | {"index": 0}], "results": []}
        return {"action": "relay", "status": "partial", "hashes": ["aa"], "failed": [refusal]}

    service.answer = answer
    with pytest.raises(Refused) as refused:
        await relayer.relay(TX)
    error = refused.value
    assert (error.reason, error.code, error.detail, error.retry_after) == ("fee too high", "fee_too_high", "cap 5", 1.5)
    other = msgspec.structs.replace(TX, nonce=2)
    submitted = await relayer.relay_all([TX, other])
    assert [handle.hash for handle in submitted.handles] == ["aa"]
    assert [error.index for error in submitted.refused] == [1]


async def test_a_busy_relayer_is_waited_for(service: FakeRelayer, relayer: Relayer) -> None:
    """`relayer busy` with a time is sent again after it, as often as patience allows."""
    busy = {"index": 0, "reason": "relayer busy", "code": "relayer_busy", "retryAfterMs": 5}
    times = [2]

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["action"] == "relay" and times[0]:
            times[0] -= 1
            return {"action": "relay", "status": "failed", "failed": [busy]}
        return usual(request)

    service.answer = answer
    assert (await relayer.relay(TX)).accepted
    times[0] = 100
    with pytest.raises(Refused, match="relayer busy"):
        await relayer.relay(TX)
    assert times[0] == 100 - 3


def busy(*places: int) -> list[dict[str, Any]]:
    return [{"index": at, "reason": "relayer busy", "code": "relayer_busy", "retryAfterMs": 1} for at in places]


def in_turn(service: FakeRelayer, *answers: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Have submissions answered so, None by a lost connection, the last for ever; the list gets what is asked."""
    asked: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["action"] != "relay":
            return usual(request)
        asked.append(request)
        told = answers[min(len(asked), len(answers)) - 1]
        if told is None:
            service.abort()
        return told and {"action": "relay"} | told

    service.answer = answer
    return asked


SEVERAL = [msgspec.structs.replace(TX, nonce=nonce) for nonce in range(4)]


async def test_of_several_only_those_that_wait_are_sent_again(service: FakeRelayer, relayer: Relayer) -> None:
    """Where a part was busy, that part alone goes again, and each keeps its place and its hash."""
    high = {"index": 2, "reason": "fee too high", "code": "fee_too_high"}
    asked = in_turn(
        service,
        {"status": "partial", "hashes": ["a"], "failed": [*busy(1, 3), high]},
        {"status": "partial", "results": [{"index": 1, "hash": "d"}], "failed": busy(0)},
        {"status": "completed", "hashes": ["b"], "failed": []},
    )
    submitted = await relayer.relay_all(SEVERAL)
    assert [handle.hash for handle in submitted.handles] == ["a", "b", "d"]
    assert [(error.index, error.code) for error in submitted.refused] == [(2, "fee_too_high")]
    assert [tx["nonce"] for tx in asked[1]["txs"]] == [1, 3]
    assert asked[2]["tx"]["nonce"] == 1


async def test_a_refusal_of_the_rest(service: FakeRelayer, relayer: Relayer) -> None:
    """What was accepted stays so when the rest is refused as a whole afterwards."""
    first = {"status": "partial", "hashes": ["a"], "failed": busy(1)}
    in_turn(service, first, {"status": "fail", "reason": "not ready", "code": "not_ready", "retryAfterMs": 10**6})
    submitted = await relayer.relay_all(SEVERAL[:2])
    assert [handle.accepted for handle in submitted.handles] == [True]
    assert [(error.index, error.code) for error in submitted.refused] == [(1, "not_ready")]


async def test_a_loss_among_several(service: FakeRelayer, relayer: Relayer) -> None:
    """After a lost answer what is refused, as a whole too, is refused only if nothing is known of it."""
    later = {"status": "fail", "reason": "rate limit exceeded", "code": "rate_limit_exceeded", "retryAfterMs": 10**6}
    in_turn(service, None, later)
    service.outcomes[SEVERAL[1].client_hash()] = {"state": "pending"}
    submitted = await relayer.relay_all(SEVERAL[:2])
    assert [handle.transaction.nonce for handle in submitted.handles] == [1]
    assert [(error.index, error.code) for error in submitted.refused] == [(0, "rate_limit_exceeded")]


async def test_busy_may_have_been_accepted(service: FakeRelayer, relayer: Relayer) -> None:
    """An edge whose relayer does not come back says `relayer busy` of what may run: what is known of is not refused."""
    in_turn(service, {"status": "failed", "failed": [busy(0)[0] | {"retryAfterMs": 10**6}]})
    with pytest.raises(Refused, match="relayer busy"):
        await relayer.relay(TX)
    service.outcomes[HASH] = {"state": "success"}
    assert (await (await relayer.relay(TX)).final(WAIT)).state == "success"


async def test_a_loss_after_a_refusal(service: FakeRelayer, relayer: Relayer) -> None:
    """A refusal that came stays one, whatever was lost of the others afterwards."""
    low = {"index": 0, "reason": "nonce too low", "code": "nonce_too_low"}
    in_turn(service, {"status": "failed", "failed": [low, *busy(1)]}, None, {"status": "completed", "hashes": ["b"]})
    submitted = await relayer.relay_all(SEVERAL[:2])
    assert [handle.hash for handle in submitted.handles] == ["b"]
    assert [(error.index, error.code) for error in submitted.refused] == [(0, "nonce_too_low")]


async def test_http_waits_as_told(service: FakeRelayer, relayer: Relayer) -> None:
    """429 and 503 are asked again after `Retry-After`; a wait beyond patience is raised with its time; 400 is not."""
    later = {"Retry-After": "0"}
    service.http = [web.json_response({"error": "busy"}, status=status, headers=later) for status in (429, 503)]
    assert (await relayer.prepare(TX)).relayer == PAYER
    service.http = [web.json_response({"error": "rate limit exceeded"}, status=429, headers={"Retry-After": "60"})]
    with pytest.raises(Refused, match="rate limit") as refused:
        await relayer.prepare(TX)
    assert (refused.value.retry_after, refused.value.status) == (60.0, 429)
    service.http = [web.json_response({"error": "no"}, status=400)]
    with pytest.raises(Refused, match="no"):
        await relayer.prepare(TX)


async def test_a_transaction_is_prepared(service: FakeRelayer, relayer: Relayer) -> None:
    """What the relayer tells is what is signed; what it would not sponsor is refused in its words."""
    assert (await relayer.prepare(msgspec.structs.replace(TX, nonce=None))).nonce == 3
    told = {"sponsored": False, "shard": 1, "reason": "fee too high", "code": "fee_too_high", "retryAfterMs": 10}
    service.http = [web.json_response(told)]
    with pytest.raises(Refused, match="fee too high"):
        await relayer.prepare(TX)


async def test_a_relayer_that_does_not_prepare(service: FakeRelayer) -> None:
    """Where a deployment has no `/v1/prepare`, the given rules name the relayer and add the gas."""
    key = RelayerKey(shard=WALLET.public[-1] % 3, address=PAYER)
    rules = Relayers(chain_id="local", shard_rule="modulo", relayers=[key])
    service.http = [web.Response(status=404)]
    async with Relayer(service.url, service.ws_url, relayers=rules) as client:
        prepared = await client.prepare(TX)
    assert (prepared.relayer, prepared.gas_limit, prepared.nonce) == (PAYER, 100_000, 1)


async def test_a_service_that_acknowledges_nothing(service: FakeRelayer, relayer: Relayer) -> None:
    """The interface promises no answer to `subscribe`: without one the transaction is sent all the same."""
    service.answer = lambda request: None if request["action"] == "subscribe" else usual(request)
    handle: Handle = await relayer.relay(TX)
    assert handle.accepted


async def test_a_closed_client_connects_no_more(service: FakeRelayer) -> None:
    """Whatever its handles want to know: what was closed makes no connection."""
    async with Relayer(service.url, service.ws_url) as client:
        handle = await client.relay(TX)
    connections = len(service.sockets)
    with pytest.raises(OutcomeUnknown):
        await handle.final(0.05)
    with pytest.raises(Unreachable, match="closed"):
        await client.relay(TX)
    with pytest.raises(Unreachable, match="closed"):
        await client.listen(handle.topic, handle)
    assert len(service.sockets) == connections


async def test_a_transaction_is_followed(service: FakeRelayer, relayer: Relayer) -> None:
    """The handle of a transaction that somebody else sent hears how it ended, and nothing is sent."""
    handle = await relayer.follow(TX)
    await service.push(status_of(HASH, "fail", reason="execution failed"))
    assert (await handle.final(WAIT)).reason == "execution failed"
    assert {request["action"] for request in service.requests} <= {"subscribe", "unsubscribe"}


async def test_one_request_over_http(service: FakeRelayer) -> None:
    """`relay_once` has the time that it waits for; ready and health answer with 503, too; a key goes along."""
    service.more = {
        "/v1/relay": web.json_response({"action": "relay", "status": "completed", "hashes": ["aa"]}),
        "/ready": web.json_response(
            {"ready": False, "relayers": {"0": {"address": PAYER, "state": "paused"}}}, status=503
        ),
        "/health": web.json_response({"status": "ok"}, status=503),
    }
    async with Relayer(service.url, service.ws_url, api_key="k", patience=Patience(tries=1)) as client:
        assert (await client.relay_once([TX], wait=30)).hashes == ["aa"]
        assert service.seen[-1].query == {"wait": "final", "timeout": "30"}
        assert service.seen[-1].headers["Authorization"] == "Bearer k"
        ready = await client.ready()
        assert (ready.ready, ready.relayers["0"].state) == (False, "paused")
        assert (await client.health())["status"] == "ok"
        assert await client.nonce_of(PAYER) is None


async def test_a_reply_that_contradicts_itself(service: FakeRelayer, relayer: Relayer) -> None:
    """All failed, but another one is named: of this one nothing is known, and its outcome is asked for."""
    failed = [{"index": 9, "reason": "no", "code": "no"}]
    service.answer = lambda asked: (
        {"action": "relay", "status": "failed", "failed": failed} if asked["action"] == "relay" else usual(asked)
    )
    handle = await relayer.relay(TX)
    assert handle.accepted is None
    service.outcomes[HASH] = {"state": "success"}
    assert (await handle.final(WAIT)).state == "success"


@pytest.mark.parametrize(
    "said",
    [
        {"failed": "no"}, {"failed": [None]}, {"failed": [{"reason": "no", "code": "no"}]}, {"failed": [{"index": 0}]},
        {"results": "no"}, {"results": [None]}, {"results": [{"index": 0}]}, {"results": [{"index": 0, "hash": 7}]},
        {"hashes": 5}, {"hashes": [5]}, {"status": 7},
        {"status": "failed", "hashes": ["ab"], "failed": [{"index": 1, "reason": "no"}]},
    ],
    ids=str,
)  # fmt: skip
async def test_a_reply_that_is_none(service: FakeRelayer, relayer: Relayer, said: dict[str, Any]) -> None:
    """Of what was sent nothing is known where the reply is not of the interface, or contradicts itself."""
    service.answer = lambda asked: (
        {"action": "relay", "status": "completed"} | said if asked["action"] == "relay" else usual(asked)
    )
    handle = await relayer.relay(TX)
    assert (handle.accepted, handle.hash) == (None, HASH)


async def test_waits_that_are_odd(service: FakeRelayer) -> None:
    """A negative wait saves up none for a longer one later: all waits together are within the patience."""
    waits = [-(10**12), 10**11]

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["action"] != "relay":
            return usual(asked)
        busy = {"index": 0, "reason": "relayer busy", "code": "relayer_busy", "retryAfterMs": waits.pop(0)}
        return {"action": "relay", "status": "failed", "failed": [busy]}

    service.answer = answer
    async with asyncio.timeout(WAIT), Relayer(service.url, service.ws_url) as client:
        with pytest.raises(Refused, match="relayer busy"):
            await client.relay(TX)


@pytest.mark.parametrize(
    "after", ["-5", "1e9", "soon", "\u00b2", "9" * 400, "Mon, 01 Jan 0001 00:00:00 +9999999999", "NaN"]
)
async def test_an_odd_retry_after(service: FakeRelayer, after: str) -> None:
    """Whatever stands in `Retry-After`, a refusal ends within the patience as what it is."""
    service.http = [web.json_response({"error": "busy"}, status=503, headers={"Retry-After": after}) for _ in range(2)]
    async with asyncio.timeout(WAIT), Relayer(service.url, service.ws_url, patience=Patience(tries=2)) as client:
        with pytest.raises(Refused, match="busy"):
            await client.relayers()


async def test_a_topic_that_is_always_too_much(service: FakeRelayer, relayer: Relayer) -> None:
    """A relayer that says for ever that there were too many control messages is given up in time."""
    busy = {"status": "fail", "reason": "rate limit exceeded", "code": "rate_limit_exceeded", "retryAfterMs": 1}
    service.answer = lambda asked: busy | {"action": asked["action"]}
    async with asyncio.timeout(WAIT):
        with pytest.raises(Refused, match="rate limit"):
            await relayer.subscribe("accounts")
    assert len(service.topics()) == 3


async def test_an_offer_that_is_none(service: FakeRelayer, relayer: Relayer) -> None:
    """What is not sponsored is not signed, whatever transaction comes with it."""
    told = {"sponsored": False, "shard": 0, "transaction": msgspec.to_builtins(TX) | {"relayer": PAYER}}
    service.http = [web.json_response(told)]
    with pytest.raises(Refused, match="not sponsored"):
        await relayer.prepare(TX)
