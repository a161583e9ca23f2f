"""The TypeScript client as others get it: installed by its lock, built, packed; and a system for it to work on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from servers.typescript_client import CLIENT, System, npm, running


@pytest.fixture(scope="session")
def client() -> Path:
    """The client's folder, with the locked packages and what the build makes of it."""
    lock, installed = CLIENT / "package-lock.json", CLIENT / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        npm("ci", "--no-audit", "--no-fund", "--ignore-scripts")
    npm("run", "build")
    return CLIENT


@pytest.fixture(scope="session")
def installed(client: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the packed client is installed, and nothing else: no registry is asked."""
    folder = tmp_path_factory.mktemp("a folder with spaces")
    packed = npm("pack", "--pack-destination", str(folder), "--ignore-scripts").split()[-1]
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    npm("install", "--offline", "--no-audit", "--no-fund", f"./{packed}", folder=folder)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    """The services, started once for a module."""
    async with running(tmp_path_factory.mktemp("system")) as system:
        yield system
