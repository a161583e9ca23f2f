"""A relayer in this process, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from millrace_client import Patience, Relayer
from servers.fake_relayer import FakeRelayer


@pytest.fixture
async def service() -> AsyncIterator[FakeRelayer]:
    """A relayer that accepts everything."""
    fake = FakeRelayer()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def relayer(service: FakeRelayer) -> AsyncIterator[Relayer]:
    """A client of it, with little patience."""
    async with Relayer(service.url, service.ws_url, timeout=5.0, patience=Patience(tries=3, seconds=5.0)) as client:
        yield client
