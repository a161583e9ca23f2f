"""The sync face: every public method of the async classes, made from them."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import threading
from pathlib import Path
from typing import Any

import pytest

from millrace_client import Refused, portal, sync
from servers.fake_relayer import FakeRelayer, status_of

from .test_relayer import HASH, TX


def test_every_method_is_there() -> None:
    """Each public method of an async class is a plain function of the same signature in its sync class."""
    for name in portal.HOMES:
        assert getattr(sync, name) is getattr(sync, name)
    for face, of in portal.FACES.items():
        for name, member in inspect.getmembers(face, inspect.isfunction):
            if name.startswith("_"):
                continue
            made = getattr(of, name)
            assert not inspect.iscoroutinefunction(made) and not inspect.isasyncgenfunction(made), name
            assert inspect.signature(made) == inspect.signature(member)
            assert made.__doc__ == member.__doc__
    assert {of.__name__ for of in portal.FACES} == set(portal.HOMES)
    with pytest.raises(AttributeError):
        _ = sync.Nothing


def test_the_types_are_of_today() -> None:
    """`sync.pyi` is what the async classes say, method by method."""
    file = Path(__file__).parents[2] / "clients" / "python" / "sync_types.py"
    spec = importlib.util.spec_from_file_location("sync_types", file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.TARGET.read_text(encoding="utf-8") == made.text(), "run python clients/python/sync_types.py"


def _work(url: str, ws_url: str, relayed: threading.Event) -> dict[str, Any]:
    """What somebody without an event loop does, on a thread of a test."""
    before = threading.active_count()
    with sync.Relayer(url, ws_url) as relayer:
        handle = relayer.relay(TX)
        with relayer.account("erd1a") as account:
            relayed.set()
            states = [outcome.state for outcome in handle.progress(20)]
            deltas = [account.next(20).data.nonce, next(iter(account)).data.nonce]
        with pytest.raises(Refused):
            relayer.co_sign([])
        seen = {"states": states, "deltas": deltas, "hash": handle.hash, "chain": relayer.relayers().chain_id}
    return seen | {"threads": threading.active_count() - before}


async def test_the_sync_face_works(service: FakeRelayer) -> None:
    """Handles, progress, subscriptions and refusals work without a loop; nothing of it is left on the way out."""
    relayed = threading.Event()
    work = asyncio.create_task(asyncio.to_thread(_work, service.url, service.ws_url, relayed))
    await asyncio.to_thread(relayed.wait, 20)
    for nonce in (1, 2):
        await service.push({"type": "accountDelta", "data": {"address": "erd1a", "nonce": nonce, "balances": {}}})
    await service.push(status_of(HASH))
    async with asyncio.timeout(20):
        seen = await work
    assert seen["states"][-1] == "success" and seen["deltas"] == [1, 2]
    assert (seen["chain"], seen["threads"]) == ("local", 0)
