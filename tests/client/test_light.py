"""The client stays light: what it needs, and what its import loads."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_PACKAGES = 15


def test_what_is_installed_with_it() -> None:
    """The client and all that it needs, by the lock, are at most 15 packages."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    needs = {package["name"]: [need["name"] for need in package.get("dependencies", [])] for package in lock["package"]}
    wanted, found = ["millrace-client"], set()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += needs[name]
    assert len(found) <= MOST_PACKAGES, sorted(found)
    assert not found & {"numba", "libp2p", "protobuf", "pycryptodome"}


def test_what_its_import_loads() -> None:
    """To import the client and its sync face loads none of the services; the HTTP library comes when needed."""
    script = "import sys, millrace_client.sync; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert not loaded & {"millrace", "numba", "google", "Crypto", "libp2p", "aiohttp", "nacl", "email"}


@pytest.mark.parametrize(
    ("name", "others"), [("Millrace", {"hub", "places", "mnemonic"}), ("Hub", {"aggregator", "relayer", "quotes"})]
)
def test_a_face_loads_only_what_it_is_made_of(name: str, others: set[str]) -> None:
    """Who imports one class of the sync face does not wait for the modules of the others."""
    script = f"import sys; from millrace_client.sync import {name}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not set(ran.stdout.split()) & {f"millrace_client.{other}" for other in others}


LOADS_LATE = """
import asyncio, sys, threading
from millrace_client import Hub, Millrace

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "aiohttp":
            print(threading.current_thread() is threading.main_thread())

sys.meta_path.insert(0, Watch())

async def asked(millrace):
    {first}

async def main():
    async with Millrace("http://127.0.0.1:1", "http://127.0.0.1:1", "ws://127.0.0.1:1/ws") as millrace:
        task = asyncio.create_task(asked(millrace))
        while "aiohttp" not in sys.modules:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "first",
    [
        "await millrace.aggregator.health()",
        "await anext(await millrace.aggregator.stream('A', 'B', amount_in=1))",
        "await millrace.relayer.gas_stats()",
        "await anext(await Hub('ws://127.0.0.1:1').__aenter__())",
    ],
)
def test_what_comes_late_does_not_stop_the_loop(first: str) -> None:
    """Whatever is asked first, the HTTP library loads on a thread beside the event loop, once."""
    script = LOADS_LATE.format(first=first)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == ["False"]
