"""`millrace doctor`: each prepared fault is named with its remedy, and a healthy system has none."""

from __future__ import annotations

import copy
import json
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millrace.cli import doctor, main
from millrace.cli.doctor import Finding
from millrace.relayer.journal import identity
from millrace_client import Wallet
from millrace_client.address import shard_of

GOOD: dict[str, Any] = {
    "/health": {
        "status": "ok",
        "pools": 5,
        "tokens": 4,
        "snapshotAgeSeconds": 1.0,
        "source": "http://pools",
        "hub": {"connected": True, "last": 9, "head": 10},
        "signer": True,
        "journal": "ok",
        "sponsoring": "ok",
    },
    "relayer /ready": {"ready": True, "relayers": {"0": {"address": "erd1a", "state": "ok", "missing": "0"}}},
    "notifier /ready": {"status": "ready", "reasons": [], "secondsSinceBlock": {"0": 0.5}, "nodes": 1, "consumers": 1},
    "/v1/network-stats/history?resolution=1": {"points": [{"connectedPeers": 3.0}]},
    "/api/v1/config": {"chainID": "1"},
    "/v1/relayers": {"chainId": "1"},
}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What services answer by path; a text: they cannot be reached."""
    told = copy.deepcopy(GOOD)
    told["date"] = None

    def asked(base_url: str, path: str) -> Any:
        found = told.get(f"{base_url} {path}", told.get(path))
        return found if isinstance(found, str) else doctor._Answer(200, found, told["date"])

    monkeypatch.setattr(doctor, "_asked", asked)
    yield told


def services() -> list[Finding]:
    return list(doctor.of_services("aggregator", "relayer", "notifier"))


def faults(findings: list[Finding]) -> list[Finding]:
    """What is wrong; each must say what to do."""
    wrong = [finding for finding in findings if finding.grade != "ok"]
    assert all(finding.remedy for finding in wrong), wrong
    return wrong


def test_a_healthy_system(answers: dict[str, Any]) -> None:
    """Where nothing is wrong every finding is good, and the exit code is 0."""
    assert faults(services()) == []
    result = CliRunner().invoke(main, ["doctor", "--aggregator", "a", "--relayer", "relayer", "--notifier", "notifier"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("path", "change", "subject", "said"),
    [
        ("/health", {"hub": {"connected": False}}, "relayer", "no connection to the hub"),
        ("/health", {"hub": {"connected": True, "last": 0, "head": 999}}, "relayer", "999 events behind"),
        ("/health", {"journal": "disk full"}, "relayer", "disk full"),
        ("/health", {"signer": False}, "relayer", "no signing process"),
        ("/health", {"gossip": "not installed"}, "relayer", "go through chain_api_url"),
        ("/health", {"sponsoring": "budget exhausted"}, "relayer", "budget exhausted"),
        ("/health", {"status": "stale", "lastError": "HTTP 500"}, "aggregator", "stale: HTTP 500"),
        ("/health", {"quarantined": 2}, "aggregator", "2 pools or tokens"),
        (
            "relayer /ready",
            {"relayers": {"1": {"address": "erd1a", "state": "short of funds", "missing": "2" + "0" * 18}}},
            "key of shard 1",
            "short of funds",
        ),
        ("/v1/network-stats/history?resolution=1", {"points": [{"connectedPeers": 0}]}, "peers", "none is connected"),
        ("/v1/relayers", {"chainId": "D"}, "network", "chain 1, the relayer on D"),
        ("notifier /ready", {"secondsSinceBlock": {"4294967295": 99.0}}, "nodes", "metachain for 99 s"),
        ("notifier /ready", {"status": "not ready", "reasons": ["no nodes"]}, "notifier", "no nodes"),
        ("date", "Mon, 01 Jan 2001 00:00:00 GMT", "aggregator's clock", "apart"),
    ],
)
def test_each_fault_of_a_service(answers: dict[str, Any], path: str, change: Any, subject: str, said: str) -> None:
    """One prepared fault is found under its name, with what to do."""
    answers[path] = change if isinstance(change, str) else answers[path] | change
    wrong = faults(services())
    assert any(finding.subject == subject and said in finding.text for finding in wrong), wrong


def test_nobody_answers() -> None:
    """Services that cannot be reached are one fault each, and the exit code is 1; JSON holds the same."""
    nowhere = ["--aggregator", "http://127.0.0.1:9", "--relayer", "http://127.0.0.1:9", "--notifier", ""]
    result = CliRunner().invoke(main, ["doctor", *nowhere])
    assert result.exit_code == 1
    assert result.output.count("cannot be reached") == 2 and "→ start it" in result.output
    told = json.loads(CliRunner().invoke(main, ["doctor", *nowhere, "--json"]).stdout)
    assert [finding["grade"] for finding in told] == ["fault", "fault"]


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, Any]:
    """Settings of a relayer whose keys, folder and policy are right."""
    files, shard = [], 0
    while shard < 3:
        wallet = Wallet.generate()
        if shard_of(wallet.public, "modulo") == shard:
            file = tmp_path / f"{shard}.pem"
            file.write_text(wallet.to_pem())
            file.chmod(0o600)
            files.append(str(file))
            shard += 1
    (tmp_path / "policy.toml").write_text("")
    identity.make(tmp_path / "data")
    paths = {"key_files": files, "data_dir": str(tmp_path / "data"), "policy_file": str(tmp_path / "policy.toml")}
    return paths | {"max_connections": 1}


def here(tmp_path: Path, settings: dict[str, Any]) -> list[Finding]:
    file = tmp_path / "m.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    file.write_text("\n".join(["[relayer]", *lines]))
    return faults(list(doctor.of_this_machine(file)))


def test_a_healthy_machine(tmp_path: Path, machine: dict[str, Any]) -> None:
    """Keys of every shard, a data directory, room and a whole policy: nothing is wrong."""
    assert here(tmp_path, machine) == []


def test_each_fault_of_a_machine(tmp_path: Path, machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings, keys, folder, disk, files and policy: each fault is found under its name."""
    keys = machine["key_files"]
    for change, subject, said in (
        ({"prot": 1}, "settings", "did you mean port"),
        ({"key_files": []}, "keys", "pays for nobody"),
        ({"key_files": keys[:2]}, "keys", "nobody pays for shard 2"),
        ({"key_files": [*keys, keys[0]]}, "keys", "both of shard 0"),
        ({"key_files": [*keys, str(tmp_path / "none.pem")]}, "keys", "cannot be opened"),
        ({"data_dir": str(tmp_path / "elsewhere")}, "data directory", "elsewhere"),
        ({"policy_file": str(tmp_path / "0.pem")}, "policy", "0.pem"),
    ):
        wrong = here(tmp_path, machine | change)
        assert any(finding.subject == subject and said in finding.text for finding in wrong), (change, wrong)
    Path(keys[1]).chmod(0o640)
    assert ["others may read" in finding.text for finding in here(tmp_path, machine)] == [True]
    Path(keys[1]).chmod(0o600)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(1, 1, 5))
    monkeypatch.setattr("resource.getrlimit", lambda _: (0, 0))
    assert [finding.subject for finding in here(tmp_path, machine)] == ["disk", "files"]
