"""What every process that answers is made of."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import aiohttp
import pytest

from millrace.aggregator.api import Api
from millrace.aggregator.feed import Feed
from millrace.aggregator.service import SWITCH_SECONDS, Service, clients_of
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Builder, Snapshot
from millrace.runtime.http import Ask, Json
from millrace.runtime.undisturbed import PATIENT


@pytest.fixture(autouse=True)
def interval() -> Iterator[None]:
    """The interpreter's switch interval, as it was before."""
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


async def test_threads_are_patient_while_a_quote_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service's own server has threads wait for long while a quote is answered at once, and at no other time."""
    found = []

    def quote(_: Api, ask: Ask) -> Json:
        found.append((ask.query, sys.getswitchinterval()))
        return Json(b"{}")

    monkeypatch.setattr(Api, "quote", quote)
    settings = AggregatorSettings(port=0)
    feed: Feed[Snapshot] = Feed(settings, Builder())
    service = Service(settings, feed, clients_of(settings))
    base = f"http://127.0.0.1:{await service.start()}"
    async with aiohttp.ClientSession() as session:
        for text in ("first", "second"):  # parsed, and known from the one before
            assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
            async with session.get(f"{base}/api/v1/quote?{text}") as answer:
                assert answer.status == 200
    await service.stop()
    assert found == [("first", pytest.approx(PATIENT)), ("second", pytest.approx(PATIENT))]
