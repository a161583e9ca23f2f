"""The client stays light: what it needs, and what its import loads."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

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
    assert not loaded & {"millrace", "numba", "google", "Crypto", "libp2p", "aiohttp", "nacl"}
