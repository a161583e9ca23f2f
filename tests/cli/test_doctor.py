"""`millrace doctor`: each prepared fault is named with its remedy, and a healthy system has none."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import sqlite3
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millrace.cli import doctor, doctor_machine, findings, main
from millrace.cli.findings import Finding
from millrace.relayer.journal import chain as links
from millrace.relayer.journal import identity, memory
from millrace.relayer.journal.chain import NO_HEAD
from millrace.relayer.journal.mark import Mark, Seen
from millrace.relayer.rules import policy, policy_file
from millrace.system.plan import Plan, Ports
from millrace.system.up import places
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


MADE = [Wallet(bytes([number]) * 32) for number in range(1, 30)]
WALLETS = {shard: next(w for w in MADE if shard_of(w.public, "modulo") == shard) for shard in range(3)}
POOR = WALLETS[0].address


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What services answer by path; a text: they cannot be reached."""
    told = copy.deepcopy(GOOD)
    told["date"] = None

    def asked(base_url: str, path: str) -> Any:
        found = told.get(f"{base_url} {path}", told.get(path))
        return found if isinstance(found, str) else findings.Answer(200, found, told["date"])

    monkeypatch.setattr(findings, "asked", asked)
    yield told


def services() -> list[Finding]:
    return list(doctor.of_services("aggregator", "relayer", "notifier"))


def faults(findings: list[Finding]) -> list[Finding]:
    """What is wrong; each must say what to do."""
    wrong = [finding for finding in findings if finding.grade != "ok"]
    assert all(finding.remedy for finding in wrong), wrong
    return wrong


@pytest.mark.parametrize(
    ("named", "asked"),
    [
        ([], True),
        (["--aggregator", "http://127.0.0.1:7"], False),
        (["--relayer", "http://127.0.0.1:7"], False),
    ],
)
def test_the_usual_notifier_is_that_of_the_usual_services(
    answers: dict[str, Any], named: list[str], asked: bool
) -> None:
    """Of services elsewhere the notifier is where somebody said, and what listens at the usual port is not asked."""
    answers["http://127.0.0.1:8301 /ready"] = "refused"
    answers["/ready"] = GOOD["relayer /ready"]
    result = CliRunner().invoke(main, ["doctor", "--json", *named])
    told = {finding["grade"]: finding for finding in json.loads(result.stdout) if finding["subject"] == "notifier"}
    assert set(told) == ({"fault"} if asked else {"warning"}), result.output
    assert asked or "--notifier" in told["warning"]["remedy"]


def test_what_up_exports_leads_doctor_there(answers: dict[str, Any], tmp_path: Path) -> None:
    """The variables that `up` tells for other ports make `doctor` ask those services, and no others."""
    told = places(Plan(Ports.free(), tmp_path))
    for name in ("/ready", "/health", *GOOD):
        answers.pop(name, None)
    answers |= {f"{told['MILLRACE_AGGREGATOR_URL']} {path}": GOOD[path] for path in ("/health", "/api/v1/config")}
    asked = {path: GOOD[path] for path in ("/health", "/v1/network-stats/history?resolution=1", "/v1/relayers")}
    asked["/ready"] = GOOD["relayer /ready"]
    answers |= {f"{told['MILLRACE_RELAYER_URL']} {path}": answer for path, answer in asked.items()}
    answers[f"{told['MILLRACE_NOTIFIER_URL']} /ready"] = GOOD["notifier /ready"]
    result = CliRunner(env=told).invoke(main, ["doctor"])
    assert result.exit_code == 0, result.output
    assert "1 nodes" in result.output


def test_a_healthy_system(answers: dict[str, Any]) -> None:
    """Where nothing is wrong every finding is good, and the exit code is 0."""
    assert faults(services()) == []
    result = CliRunner().invoke(main, ["doctor", "--aggregator", "a", "--relayer", "relayer", "--notifier", "notifier"])
    assert result.exit_code == 0, result.output


def test_a_healthy_edge(answers: dict[str, Any]) -> None:
    """An edge has no keys and needs no signing process; those it forwards to are looked at instead."""
    edge = {"role": "edge", "signer": False, "signers": {"ws://one:8200": "ok", "ws://two:8200": "ok"}}
    answers["/health"] |= edge
    assert faults(services()) == []


@pytest.mark.parametrize(
    ("states", "grades"),
    [
        (("ok", "ok", "away"), ["warning"]),
        (("ok", "not ready", "away"), ["fault", "warning"]),
        (("not ready", "away"), ["fault", "fault"]),
        (("away", "away"), ["fault", "fault"]),
        (("ok", "stands by"), []),
        (("away", "stands by"), ["fault", "fault"]),
    ],
)
def test_relayers_that_an_edge_does_not_find_as_they_should_be(
    answers: dict[str, Any], states: tuple[str, ...], grades: list[str]
) -> None:
    """Beside one that answers one that is away is a warning, which ends no command with 1, and one that stands by is
    well; where none answers each is a fault."""
    signers = {f"ws://r{number}:8200": state for number, state in enumerate(states)}
    answers["/health"] |= {"role": "edge", "signer": False, "signers": signers}
    wrong = faults(services())
    assert [finding.grade for finding in wrong] == grades
    for finding in wrong:
        url = finding.subject.removeprefix("relayer at ")
        assert signers[url] != "ok" and signers[url] in finding.text
    result = CliRunner().invoke(main, ["doctor", "--aggregator", "a", "--relayer", "relayer", "--notifier", "notifier"])
    assert result.exit_code == ("fault" in grades), result.output


@pytest.mark.parametrize(
    ("path", "change", "subject", "said"),
    [
        ("/health", {"hub": {"connected": False}}, "relayer", "no connection to the hub"),
        ("/health", {"hub": {"connected": True, "last": 0, "head": 999}}, "relayer", "999 events behind"),
        ("/health", {"journal": "disk full"}, "relayer", "disk full"),
        ("/health", {"signer": False}, "relayer", "no signing process"),
        ("/health", {"gossip": "not installed"}, "relayer", "go through chain_api_url"),
        ("/health", {"sponsoring": "budget exhausted"}, "relayer", "budget exhausted"),
        ("/health", {"execution": "behind what is proposed: shard 1 by 21 blocks"}, "relayer", "shard 1 by 21 blocks"),
        ("/health", {"round": {"ms": 600, "problem": "the chain API is away"}}, "relayer", "API is away"),
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
        ("/health", {"serviceVersion": "9.9"}, "relayer's version", "it is version 9.9"),
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
    files = []
    for shard, wallet in WALLETS.items():
        file = tmp_path / f"{shard}.pem"
        file.write_text(wallet.to_pem())
        file.chmod(0o600)
        files.append(str(file))
    (tmp_path / "policy.toml").write_text("")
    identity.make(tmp_path / "data")
    paths = {"key_files": files, "data_dir": str(tmp_path / "data"), "policy_file": str(tmp_path / "policy.toml")}
    return paths | {"max_connections": 1, "chain_api_url": ""}


def here(tmp_path: Path, settings: dict[str, Any]) -> list[Finding]:
    file = tmp_path / "m.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    file.write_text("\n".join(["[relayer]", *lines]))
    return faults(list(doctor_machine.of_this_machine(file)))


def test_a_healthy_machine(tmp_path: Path, machine: dict[str, Any]) -> None:
    """Keys of every shard, a data directory, room and a whole policy: nothing is wrong."""
    assert here(tmp_path, machine) == []


@pytest.mark.parametrize("profile", ["documented", "mainnet"])
def test_keys_by_the_remedies(tmp_path: Path, machine: dict[str, Any], profile: str) -> None:
    """Whichever rule a network has, keys that are made as `doctor` says are of the shards that lacked one."""
    machine |= {"profile": profile, "key_files": []}
    for number in range(6):  # keys are random: by another rule six are hardly ever of the right shards
        first = tmp_path / f"first{number}.pem"
        first.write_text(Wallet(bytes([number + 1]) * 32).to_pem())
        first.chmod(0o600)
        machine["key_files"] = [str(first)]
        for finding in here(tmp_path, machine):
            command = re.findall("`millrace (.*)`", finding.remedy)[0]
            file = str(tmp_path / f"{number} {finding.text}.pem")
            made = CliRunner().invoke(main, [file if word == "FILE" else word for word in command.split()])
            assert made.exit_code == 0, made.output
            machine["key_files"].append(file)
        assert len(machine["key_files"]) == 3 and here(tmp_path, machine) == []


@pytest.mark.parametrize(
    ("fault", "subject", "said"),
    [
        ("a misspelt setting", "settings", "did you mean port"),
        ("no keys", "keys", "pays for nobody"),
        ("a shard without a key", "keys", "nobody pays for shard 2"),
        ("two keys of a shard", "keys", "both of shard 0"),
        ("a key that is not there", "keys", "cannot be opened"),
        ("a key that others may read", "keys", "others may read"),
        ("no data directory", "data directory", "elsewhere"),
        ("a data directory that was moved", "data directory", "was moved to /new"),
        ("another folder's journal", "data directory", "is of the folder"),
        ("a damaged journal", "journal", "journal.sqlite: "),
        ("a journal without its log", "journal", "journal.sqlite-wal"),
        ("a journal without its mark", "journal", "is missing"),
        ("an older mark", "journal", "the mark is an older copy"),
        ("no journal", "journal", "journal.sqlite is missing"),
        ("a policy that is none", "policy", "0.pem"),
        ("a policy that was edited", "policy", "its checksum does not fit"),
        ("a policy by hand that is looser", "policy", "looser in caps.value"),
        ("a policy that is too small to share", "policy", "budget.per_minute"),
        ("a full disk", "disk", "0 MiB are free"),
        ("few files", "files", "0 files may be open"),
        ("no chain API", "chain API", "cannot be reached (refused)"),
        ("another chain", "chain API", "is of chain D, and the services are set for 1"),
        ("no chain API at that address", "chain API", "names no chain"),
        ("a node that lags", "node lag", "of shard 1 that http://chain has is"),
        ("a node that says nothing", "node lag", "says nothing of shard 1"),
        ("a slow clock", "clock", "ahead of this machine's clock"),
        ("an empty key", "balance of shard 0", "holds 0.5 EGLD, below alert_balance (1)"),
    ],
)
def test_each_fault_of_a_machine(
    tmp_path: Path, machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch, fault: str, subject: str, said: str
) -> None:
    """One prepared fault is found under its name, with what to do, and nothing else is."""
    keys = machine["key_files"]
    data = Path(machine["data_dir"])
    usage = namedtuple("usage", "total used free")
    match fault:
        case "a misspelt setting":
            machine["prot"] = 1
        case "no keys":
            machine["key_files"] = []
        case "a shard without a key":
            machine["key_files"] = keys[:2]
        case "two keys of a shard":
            keys.append(keys[0])
        case "a key that is not there":
            keys.append(str(tmp_path / "none.pem"))
        case "a key that others may read":
            Path(keys[1]).chmod(0o640)
        case "no data directory":
            machine["data_dir"] = str(tmp_path / "elsewhere")
        case "a data directory that was moved":
            identity.write(data, identity.Identity("ab" * 16, 2, "moved", "/new"))
        case "another folder's journal":
            journal(data, "cd" * 16)
        case "a damaged journal":
            journal(data, identity.read(data).id)
            with (data / identity.JOURNAL).open("r+b") as file:
                file.seek(-8192, 2)
                file.write(b"\xff" * 4096)
        case "a journal without its log":
            begun(data, acknowledged=3)
        case "a journal without its mark":
            begun(data, acknowledged=2).unlink()
        case "an older mark":
            begun(data, acknowledged=0)
        case "no journal":
            begun(data, acknowledged=2)
            (data / identity.JOURNAL).unlink()
        case "a policy that was edited":
            (tmp_path / "policy.toml").write_text(policy_file.seal("[caps]\nvalue = 5\n").replace("5", "6", 1))
            policy_file.write(data / policy.KEPT, "[caps]\nvalue = 5\n")
        case "a policy by hand that is looser":
            (tmp_path / "policy.toml").write_text("[caps]\nvalue = 6\n")
            policy_file.write(data / policy.KEPT, "[caps]\nvalue = 5\n")
        case "a policy that is none":
            machine["policy_file"] = str(tmp_path / "0.pem")
        case "a policy that is too small to share":
            machine |= {"claims_url": "postgresql://h/d", "claims_seats": 3}
            (tmp_path / "policy.toml").write_text("[caps]\nfee = 10\n[budget]\nper_minute = 29")
        case "a full disk":
            monkeypatch.setattr("shutil.disk_usage", lambda _: usage(1, 1, 5))
        case "few files":
            monkeypatch.setattr("resource.getrlimit", lambda _: (0, 0))
        case _:
            machine["chain_api_url"] = "http://chain"
            monkeypatch.setattr(findings, "asked", chain(fault))
    wrong = here(tmp_path, machine)
    assert [(finding.subject, said in finding.text) for finding in wrong] == [(subject, True)], wrong


def journal(data: Path, owner: str) -> None:
    """A journal that says whose it is, with a page of rows."""
    with contextlib.closing(sqlite3.connect(data / identity.JOURNAL)) as connection:
        connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)")
        connection.execute("INSERT INTO meta VALUES ('identity', ?)", (owner,))
        connection.execute("CREATE TABLE rows (value TEXT)")
        connection.executemany("INSERT INTO rows VALUES (?)", [("x" * 900,)] * 40)
        connection.commit()


def begun(data: Path, *, acknowledged: int) -> Path:
    """A journal that is at its second commit, and the mark of another one; where that lies."""
    owner = identity.read(data)
    identity.write(data, identity.Identity(owner.id, owner.epoch, "ready"))
    journal(data, owner.id)
    mark = Mark(data / "mark", owner.id)
    memory.accept(data / identity.JOURNAL, mark, owner)
    with contextlib.closing(sqlite3.connect(data / identity.JOURNAL)) as connection:
        link = links.last(connection, owner.id)
        assert link is not None
        link = links.extend(connection, owner.id, link, 0)
        connection.commit()
    mark.make(Seen(acknowledged, link.head if acknowledged == link.sequence else NO_HEAD))
    return mark.path


@pytest.mark.parametrize("at", [1, 2])
def test_a_journal_that_is_at_its_mark(tmp_path: Path, machine: dict[str, Any], at: int) -> None:
    """With all that was acknowledged, or one commit past it, as beside a relayer that runs, nothing is wrong."""
    data = Path(machine["data_dir"])
    mark = begun(data, acknowledged=2)
    if at == 1:
        owner = identity.read(data)
        with contextlib.closing(sqlite3.connect(data / identity.JOURNAL)) as connection:
            link = links.last(connection, owner.id)
        assert link is not None
        Mark(mark, owner.id).make(Seen(1, link.before))
    assert here(tmp_path, machine) == []


def chain(fault: str) -> Callable[[str, str], Any]:
    """A chain API with a fault."""
    late = {"a node that lags": 99, "a slow clock": -60}.get(fault, 0)

    def asked(base_url: str, path: str) -> Any:
        if fault == "no chain API":
            return "refused"
        body: dict[str, Any] = {}
        if path == "/network/config" and fault != "no chain API at that address":
            config = {"erd_chain_id": "D" if fault == "another chain" else "1", "erd_num_shards_without_meta": 3}
            body = {"data": {"config": config}}
        elif path.startswith("/network/status/") and not (fault == "a node that says nothing" and path.endswith("1")):
            stamp = int(time.time()) - (late if path.endswith("1") else 0)
            unit = 1000 if path.endswith("0") else 1  # nodes of the present format write milliseconds
            body = {"data": {"status": {"erd_block_timestamp": stamp * unit}}}
        elif path.startswith("/accounts/"):
            is_poor = fault == "an empty key" and path.endswith(POOR)
            body = {"balance": str(10**18 // 2 if is_poor else 10**18)}
        return findings.Answer(200, body, None)

    return asked
