"""What an edge says of a relayer that it cannot use: why, once, and what to do about it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from relayer_edges import FakeSigner

from millrace.relayer.forwarding import upstream, wire
from millrace.relayer.forwarding.upstream import Upstream
from waiting import until

EARLIER = wire.HELLO + msgspec.json.encode({"run": "r", "relayers": {}, "httpPort": 1})


async def said_of(fake: FakeSigner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> str:
    """What an edge logs of a relayer that it has tried to use five times."""
    monkeypatch.setattr(upstream, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(upstream, "LONGEST_PAUSE", 0.001)
    events = SimpleNamespace(found=lambda _: None, lost=lambda _: None, heard=lambda *_: None)
    caplog.set_level(logging.WARNING, upstream.__name__)
    running = asyncio.create_task(Upstream(await fake.start(), cast(Any, events), time.monotonic, "1").run())
    try:
        await until(lambda: len(fake.heard) >= 5)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await fake.kill()
    (record,) = caplog.records
    return f"{record.message}: {cast(Any, record).error}"


async def test_an_earlier_version(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Who greets in another form may be of an earlier version: its settings are not to blame."""
    monkeypatch.setattr(wire, "hello", lambda _: EARLIER)
    said = await said_of(FakeSigner({}), monkeypatch, caplog)
    assert "not understood" in said and "byNumber" in said and "update relayers before their edges" in said
    assert "setting" not in said


async def test_turned_away(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Who is closed without a greeting is in no network that the relayer believes."""
    fake = FakeSigner({})
    fake.greets = False
    assert "see the relayer's setting edges" in await said_of(fake, monkeypatch, caplog)


async def test_of_another_network(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An address that another network's relayer has by now is sent nothing, and its keys are told to nobody."""
    fake = FakeSigner({})
    fake.hello = msgspec.structs.replace(fake.hello, chain_id="D")
    said = await said_of(fake, monkeypatch, caplog)
    assert "it is of the chain 'D', and this edge of '1'" in said and "forward_to" in said and "version" not in said
