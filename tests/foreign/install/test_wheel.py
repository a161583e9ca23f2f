"""The built wheels in empty environments: what each extra installs, without any compiler. Needs uv and PyPI."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shlex
import shutil
import subprocess
import tomllib
import urllib.request
from pathlib import Path

import pytest
from tests.deploy.test_release import release

from millrace.system.ports import free_ports

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]
UV = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
PROCESS_SECONDS = 300
DEMO_SECONDS = 60
MOST = {"": 25, "azure": 40, "aggregator": 32, "relayer": 32, "notifier": 36, "console": 28, "localnet": 44}
"""Packages of an environment with an extra: some more than those of the lock, for what releases to come may need."""

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
NEEDS = {name: set(packages) for name, packages in EXTRAS.items()}
NEEDS["localnet"] |= set().union(*(NEEDS[name] for name in ("aggregator", "console", "notifier", "relayer")))
"""Packages by extra: some extras hold all of another one."""


def run(*words: str, environment: dict[str, str] | None = None, code: int = 0) -> str:
    """What a command wrote; it must end with this code."""
    ran = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=PROCESS_SECONDS, check=False)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels of this checkout."""
    folder = tmp_path_factory.mktemp("wheels")
    run(UV, "build", "--quiet", "--wheel", "--all-packages", "--out-dir", str(folder), str(ROOT))
    return folder


class Installed:
    """The program in an environment of its own, whose path has a space; its home is empty, and no compiler is found."""

    def __init__(self, folder: Path, wheels: Path, extra: str, *options: str) -> None:
        home = folder / "home"
        home.mkdir()
        self.folder = folder / "an environment"
        self.environment = {"HOME": str(home), "PATH": str(self.folder / "bin")}
        run(UV, "venv", "--quiet", str(self.folder))
        (wheel,) = wheels.glob("millrace-*.whl")
        run(
            UV, "pip", "install", "--quiet", *(options or ("--only-binary", ":all:")), "--find-links", str(wheels),
            "--python", str(self.folder / "bin/python"), f"millrace[{extra}] @ {wheel.as_uri()}",
            environment=os.environ | {"PATH": "/nowhere"},
        )  # fmt: skip

    def __call__(self, *words: str, code: int = 0) -> str:
        return run(str(self.folder / "bin/millrace"), *words, environment=self.environment, code=code)

    def packages(self) -> int:
        """How many are installed."""
        return len(list(self.folder.glob("lib/python*/site-packages/*.dist-info")))


@pytest.mark.parametrize("extra", MOST)
def test_an_extra(tmp_path: Path, wheels: Path, extra: str) -> None:
    """Each extra is installed from wheels alone and brings its verb, and no other extra."""
    millrace = Installed(tmp_path, wheels, extra)
    assert "millrace" in millrace("--version")
    assert millrace.packages() <= MOST[extra]
    for service in ("aggregator", "relayer", "notifier", "console", "localnet"):
        assert "port = " in millrace(service, "--show-settings")
        if not NEEDS[service] <= NEEDS.get(extra, set()):
            assert f"'millrace[{service}] @ file://" in millrace(service, code=1)


@pytest.mark.parametrize("has_pip", [True, False])
def test_what_is_told_where_an_extra_is_missing(tmp_path: Path, wheels: Path, has_pip: bool) -> None:
    """The command that is told brings the extra into this environment, whether that has pip or not."""
    millrace = Installed(tmp_path, wheels, "")
    python = str(millrace.folder / "bin/python")
    if has_pip:
        run(UV, "pip", "install", "--quiet", "--python", python, "pip")
    before = millrace.packages()
    words = shlex.split(millrace("console", code=1).partition("not installed: ")[2])
    assert words[0] == (python if has_pip else "uv")
    run(*(words if has_pip else [UV, *words[1:]]))
    run(python, "-c", "from millrace.runtime import extras; extras.require('console', 'it')")
    assert millrace.packages() == before + 1, "prometheus-client"


def test_a_relayer_alone(tmp_path: Path, wheels: Path) -> None:
    """A relayer without the packages of gossip serves, and its health says that it has none."""
    millrace = Installed(tmp_path, wheels, "relayer")
    ports = dict(zip(("port", "http_port", "metrics_port"), free_ports(3), strict=True))
    changes = {"data_dir": tmp_path / "relayer", "chain_api_url": "http://127.0.0.1:9", "hub_url": "", **ports}
    settings = [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
    millrace("relayer", *settings[:2], "init")
    service = subprocess.Popen(
        [str(millrace.folder / "bin/millrace"), "relayer", *settings],
        env=millrace.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert service.stdout is not None
    lines = []
    for line in service.stdout:
        lines.append(json.loads(line))
        if lines[-1]["event"] == "ready":
            break
    with contextlib.closing(service.stdout):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{ports['http_port']}/health", timeout=10) as answer:
                assert json.load(answer)["gossip"] == "not installed"
        finally:
            service.terminate()
            service.wait(30)
    assert [line["level"] for line in lines if line["event"].startswith("no gossip")] == ["warning"]


def test_the_demonstration(tmp_path: Path, wheels: Path) -> None:
    """With the extra `localnet` the demonstration ends well, and says that transactions go through the chain API."""
    told = Installed(tmp_path, wheels, "localnet")("demo")
    assert "transactions go through the chain API" in told and "for gossip: " in told
    assert "Every check held" in told


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_a_tool_of_uv(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, python: str) -> None:
    """`uv tool install` of the wheel, then `millrace demo`: one core, an empty home, packages nobody may write.

    It must not take more processor than a minute of that core has.
    """
    found = release.python_of(UV, python)
    if found is None:
        pytest.skip(f"there is no Python {python} here")
    wheels = tmp_path_factory.mktemp("wheels")
    run(UV, "build", "--quiet", "--wheel", "--all-packages", "--python", found, "--out-dir", str(wheels), str(ROOT))
    (wheel,) = wheels.glob("millrace-*.whl")
    tools, home = tmp_path / "some tools", tmp_path / "an empty home"
    home.mkdir()
    places = {"UV_TOOL_DIR": str(tools / "all"), "UV_TOOL_BIN_DIR": str(tools / "bin")}
    run(
        UV, "tool", "install", "--quiet", "--python", found, "--no-build", "--find-links", str(wheels),
        f"millrace[localnet] @ {wheel.as_uri()}", environment=os.environ | places | {"PATH": "/nowhere"},
    )  # fmt: skip
    for folder in (tools, *(path for path in tools.rglob("*") if path.is_dir() and not path.is_symlink())):
        folder.chmod(0o555)
    try:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        alone = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        told = run("taskset", "--cpu-list", _a_core(), str(tools / "bin/millrace"), "demo", environment=alone)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    finally:
        for folder in (tools, *(path for path in tools.rglob("*") if path.is_dir() and not path.is_symlink())):
            folder.chmod(0o755)
    assert "Every check held" in told
    assert list(home.iterdir()) == [], "nothing is left in a home"
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < DEMO_SECONDS


def _a_core() -> str:
    """One that this test may use."""
    return str(min(os.sched_getaffinity(0)))


def test_the_demonstration_with_gossip(tmp_path: Path, wheels: Path) -> None:
    """With every extra, and fastecdsa as README says, no compiler is needed either, and transactions are gossiped."""
    newer = tmp_path / "newer"
    newer.write_text("fastecdsa>=4\n")
    told = Installed(tmp_path, wheels, "all", "--overrides", str(newer))("demo")
    assert "through the chain API" not in told
    assert "Every check held" in told
