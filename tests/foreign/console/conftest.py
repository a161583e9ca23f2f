"""The console with the whole system behind it, Chromium in front of it, and what judges accessibility."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from servers.chromium import Page, opened
from servers.typescript_client import System, npm, running

TOOLS = Path(__file__).parents[3] / "clients" / "page"
PICTURES = Path(__file__).parents[3] / "build" / "console"
Open = Callable[[str], Awaitable[Page]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    """The services and the console, started once for a module."""
    async with running(tmp_path_factory.mktemp("system")) as system:
        yield system


@pytest_asyncio.fixture(loop_scope="module")
async def open_page(system: System, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the console's page at a tab, in a browser of its own."""
    async with AsyncExitStack() as stack:

        async def open_(tab: str) -> Page:
            return await stack.enter_async_context(opened(f"{system.plan.console_url}/#/{tab}", tmp_path / tab))

        yield open_


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder of the page's tools, installed by their lock."""
    lock, installed = TOOLS / "package-lock.json", TOOLS / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        npm("ci", "--no-audit", "--no-fund", "--ignore-scripts", folder=TOOLS)
    return TOOLS


@pytest.fixture(scope="session")
def axe(tools: Path) -> str:
    """axe-core's script."""
    return (tools / "node_modules" / "axe-core" / "axe.min.js").read_text()
