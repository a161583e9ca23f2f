"""The command where only some of its extras are installed: what works, and the line of what does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millrace.cli import _how_to_install
from millrace.runtime import extras
from servers.absent import modules_of, without

VERBS = sorted(path.stem for path in Path("src/millrace/cli").glob("[a-z]*.py"))


def _run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millrace", *words],
        env=environment, cwd=environment["HOME"], capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_base_loads_every_verb(tmp_path: Path) -> None:
    """The module of each verb, the client and the settings of each service load without any extra."""
    modules = [f"millrace.cli.{verb}" for verb in VERBS] + ["millrace.client", "millrace.relayer.commands"]
    modules += [
        f"millrace.{one}.settings" for one in ("aggregator", "relayer", "notifier", "collector", "localnet", "console")
    ]
    script = f"import importlib\nfor module in {modules}: importlib.import_module(module)"
    environment = without(tmp_path, modules_of())
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--version"], 0),
        (["relayer", "--help"], 0),
        (["relayer", "--show-settings"], 0),
        (["notifier", "--show-settings"], 0),
        (["config"], 0),
        (["keys", "new", "wallet.pem", "--form", "pem"], 0),
        (["relayer", "init"], 0),
        (["doctor"], 1),
        (["quote", "A-123456", "B-123456", "1", "--aggregator", "http://127.0.0.1:9"], 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_base_does(tmp_path: Path, words: list[str], code: int) -> None:
    """Help, settings, keys and the verbs of traders need no extra."""
    ran = _run(without(tmp_path, modules_of()), *words)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr and "the extra" not in ran.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["aggregator"], "aggregator"),
        (["relayer"], "relayer"),
        (["notifier"], "notifier"),
        (["pools"], "aggregator"),
        (["localnet"], "localnet"),
        (["console"], "console"),
        (["demo"], "localnet"),
        (["up"], "localnet"),
        (["policy", "explain", "sitecustomize.py"], "relayer"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_missing_extra_is_one_line(tmp_path: Path, words: list[str], extra: str) -> None:
    """A verb whose extra is missing ends with code 1 and one line that says what to install."""
    ran = _run(without(tmp_path, modules_of()), *words)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"Error: millrace {words[0]} needs ")
    assert line.endswith(f": {extras.remedy(extra)}")


def test_a_part_of_a_service(tmp_path: Path) -> None:
    """A service whose settings ask for what another extra brings ends with one line, too."""
    bus = "service_bus_connection=Endpoint=sb://x/;SharedAccessKeyName=a;SharedAccessKey=b"
    ports = [word for port in ("port", "http_port", "metrics_port") for word in ("--set", f"{port}=0")]
    environment = without(tmp_path, modules_of("azure"))
    ran = _run(environment, "notifier", "--set", bus, "--set", f"data_dir={tmp_path}", *ports)
    assert ran.returncode == 1
    assert extras.remedy("azure") in ran.stderr.splitlines()[-1]


def test_nothing_takes_the_transactions(tmp_path: Path) -> None:
    """A relayer with neither gossip nor a chain API does not start, and says what to install."""
    environment = without(tmp_path, modules_of("gossip"))
    folder = str(tmp_path / "relayer")
    assert _run(environment, "relayer", "--set", f"data_dir={folder}", "init").returncode == 0
    ran = _run(environment, "relayer", "--set", f"data_dir={folder}", "--set", "chain_api_url=")
    assert ran.returncode == 1, ran.stderr
    assert extras.remedy("gossip") in ran.stderr.splitlines()[-1]


def test_a_broken_package_is_not_called_missing() -> None:
    """What is installed and cannot be loaded is told in its own words, not with what to install."""
    broken = ImportError("cannot import name 'thing' from 'numpy'", name="numpy")
    assert _how_to_install("aggregator", broken) is broken
    missing = ModuleNotFoundError("No module named 'numpy'", name="numpy")
    assert extras.remedy("aggregator") in str(_how_to_install("aggregator", missing))
