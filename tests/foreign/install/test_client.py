"""The Python client's own wheel in a clean folder: what comes with it, and the swap of its README; no compiler."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.e2e.test_client_swap import GET, System, _swap_of_the_readme
from tests.foreign.install.test_wheel import ROOT, UV, run

from millrace.system.demo import PAY
from servers.typescript_client import running

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]
MOST_PACKAGES, MOST_MEGABYTES, MOST_LINES = 15, 20, 12


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the client and what it needs, from wheels alone, in a folder with a space."""
    folder = tmp_path_factory.mktemp("a clean folder")
    run(UV, "build", "--quiet", "--wheel", "--package", "millrace-client", "--out-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("millrace_client-*.whl")
    run(UV, "venv", "--quiet", str(folder / "env"))
    found = folder / "env" / "bin" / "python"
    run(
        UV, "pip", "install", "--quiet", "--only-binary", ":all:", "--python", str(found), str(wheel),
        environment=os.environ | {"PATH": "/nowhere"},
    )  # fmt: skip
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    """The services, under `mainnet` rules."""
    async with running(tmp_path_factory.mktemp("system")) as made:
        yield System(made.plan, made.processes, made.chain)


def test_it_is_light(python: Path) -> None:
    """At most 15 packages and 20 MB, all of them together."""
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    assert len(list(packages.glob("*.dist-info"))) <= MOST_PACKAGES
    size = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file() and file.suffix != ".pyc")
    assert size <= MOST_MEGABYTES * 10**6


@pytest.mark.asyncio(loop_scope="module")
async def test_the_swap_of_its_readme(python: Path, system: System, tmp_path: Path) -> None:
    """Twelve lines at most make a swap that the relayer pays for: with an empty home, and no compiler to be found."""
    text = _swap_of_the_readme()
    assert len([line for line in text.splitlines() if line.strip()]) <= MOST_LINES
    wallet = await system.funded()
    (tmp_path / "wallet.pem").write_text(wallet.to_pem(), encoding="utf-8")
    ports = system.plan.ports
    for usual, real in ((8100, ports.aggregator), (8201, ports.relayer_http), (8200, ports.relayer)):
        text = text.replace(f":{usual}", f":{real}")
    ran = await asyncio.to_thread(
        subprocess.run, [str(python), "-c", text], cwd=tmp_path, env={"HOME": str(tmp_path), "PATH": "/nowhere"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "success" in ran.stdout
    balances = await system.chain.balances(wallet.address)
    assert (balances["EGLD"], balances.get(PAY, 0)) == (0, 0)
    assert balances[GET] > 0
