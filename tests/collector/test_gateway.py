"""Asking a gateway: patience with a busy one, refusals that are final, and answers that are none."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from millrace.chain import address
from millrace.collector import gateway as module
from millrace.collector import known
from millrace.collector.gateway import Gateway, GatewayError, ViewError
from millrace.collector.settings import CollectorSettings
from millrace.dex.document import Block

ROUTER = address.decode(known.ONEDEX_ROUTER)


@pytest.fixture
async def gateway(standin: Any) -> AsyncIterator[Gateway]:
    async with aiohttp.ClientSession() as session:
        yield Gateway(session, CollectorSettings(gateway=standin.url, attempts=3))


async def test_values_of_a_view(gateway: Gateway) -> None:
    """Values come decoded, in order."""
    values = await gateway.view(ROUTER, "getMainPairTokens")
    assert values[:2] == [b"WEGLD-bd4d79", b"USDC-c76f1f"]
    assert await gateway.value(ROUTER, "getLastPairId") == b"\x03\xb3"


async def test_nothing_returned_stands_for_zero(gateway: Gateway, standin: Any) -> None:
    """A view without values, with null or with an empty one reads as empty bytes."""
    for values in ([], [b""]):
        standin.views[ROUTER, "getLastPairId", ()] = values
        assert await gateway.value(ROUTER, "getLastPairId") == b""


async def test_one_value_is_one(gateway: Gateway) -> None:
    """Several values where one is expected are an error, not a choice."""
    with pytest.raises(GatewayError, match="4 values for one"):
        await gateway.value(ROUTER, "getMainPairTokens")


async def test_a_refusal_is_final(gateway: Gateway, standin: Any) -> None:
    """What the contract refuses is not asked again."""
    with pytest.raises(ViewError, match="getNothing: invalid function"):
        await gateway.view(ROUTER, "getNothing")
    assert standin.asked["getNothing"] == 1


async def test_retry_after_is_honoured(gateway: Gateway, standin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway's own waiting time comes first, within a bound; without one the pause doubles."""
    waits = []

    async def no_wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(module.asyncio, "sleep", no_wait)
    monkeypatch.setattr(module.random, "random", lambda: 0.0)
    standin.faults += [web.Response(status=429, headers={"Retry-After": "2"}), web.Response(status=502)]
    await gateway.view(ROUTER, "getMainPairTokens")
    standin.faults += [web.Response(status=429, headers={"Retry-After": "9999"}), web.Response(status=502)]
    await gateway.view(ROUTER, "getMainPairTokens")
    own = [wait for wait in waits if wait]
    assert own == [2.0, 2 * module.FIRST_PAUSE, module.LONGEST_PAUSE, 2 * module.FIRST_PAUSE]


async def test_a_dead_gateway_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the allowed attempts the question is lost, with the reason and their number."""
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    async with aiohttp.ClientSession() as session:
        gateway = Gateway(session, CollectorSettings(gateway="http://127.0.0.1:9", attempts=2))
        with pytest.raises(GatewayError, match=r"\(2 attempts\)"):
            await gateway.view(ROUTER, "getMainPairTokens")


async def test_endless_answers_are_cut(gateway: Gateway, standin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer beyond the bound is refused, not read."""
    monkeypatch.setattr(module, "MAX_ANSWER", 1000)
    standin.faults.append(web.Response(body=b" " * 5000))
    with pytest.raises(GatewayError, match="exceeds 1000 bytes"):
        await gateway.view(ROUTER, "getMainPairTokens")


async def test_the_newest_block(gateway: Gateway, standin: Any) -> None:
    """Round, nonce and time of a shard's newest block; anything else is an error."""
    assert await gateway.block(1) == Block(21000000, 20990000, 1730000000)
    with pytest.raises(GatewayError):
        await gateway.block(2)
