"""A running aggregator for tests of its interface."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from servers.aggregator_service import Service, end, start


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    running, *rest = await start(requests_per_second=10_000, client_search_seconds=2.0)
    await running.until("/health", 200)
    yield running
    await end(running, *rest)
