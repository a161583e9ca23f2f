"""`millrace config`: values with their sources, meanings of all settings, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from millrace.cli import main
from millrace.cli.config import settings_of
from millrace.cli.masked import masked
from millrace.cli.services import SERVICES


def run(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["config", *arguments], env=env)
    return result.exit_code, result.output


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_has_a_meaning(service: str) -> None:
    """Every setting of every service says what it means."""
    assert [setting.name for setting in settings_of(service, None, ()) if not setting.meaning] == []


def test_where_a_value_comes_from(tmp_path: Path) -> None:
    """File, shared table, environment and flag are named, the later one wins; the rest are defaults."""
    file = tmp_path / "m.toml"
    file.write_text('[common]\nhost = "0.0.0.0"\n[relayer]\nport = 1\nhttp_port = 2\nmetrics_port = 3\n')
    env = {"MILLRACE_RELAYER__HTTP_PORT": "5", "MILLRACE_RELAYER__METRICS_PORT": "6"}
    code, output = run("relayer", "--config", str(file), "--set", "metrics_port=7", "--json", env=env)
    assert code == 0, output
    shown = json.loads(output)["relayer"]
    found = {name: (shown[name]["value"], shown[name]["source"]) for name in ("host", "port", "http_port", "profile")}
    assert found == {
        "host": ("0.0.0.0", f"{file} [common]"),
        "port": (1, f"{file} [relayer]"),
        "http_port": (5, "MILLRACE_RELAYER__HTTP_PORT"),
        "profile": ("documented", "default"),
    }
    assert (shown["metrics_port"]["value"], shown["metrics_port"]["source"]) == (7, "--set")


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    """A secret is shown, and written, as there or not there."""
    env = {"MILLRACE_NOTIFIER__NODE_SECRETS": '{"node": "hunter2"}'}
    target = tmp_path / "out.toml"
    for arguments in (["notifier"], ["notifier", "--json"], ["--write", str(target)]):
        code, output = run(*arguments, env=env)
        assert code == 0 and "hunter2" not in output
    assert "hunter2" not in target.read_text()


def test_credentials_in_addresses_are_not_shown(tmp_path: Path) -> None:
    """Of an address neither user, password nor query is shown or written, wherever it stands in a value."""
    given = "https://me:hun/ter@2@node.example/v1?key=hunter3"
    assert masked("url", given) == "https://***@node.example/v1?***"
    assert masked("urls", (given, {"a": "host=db password='hun ter' dbname=x"})) == (
        "https://***@node.example/v1?***",
        {"a": "host=db password=*** dbname=x"},
    )
    assert masked("url", "http://127.0.0.1:80/a") == "http://127.0.0.1:80/a"
    code, output = run("aggregator", "--set", f"pools_url={given}")  # a slash ends the host: it cannot be asked
    assert code == 1 and "pools_url: is no address" in output and "hunter3" not in output and "ter@2" not in output
    asked = "https://me:hun%2Fter%402@node.example/v1?key=hunter3"
    target, override = tmp_path / "out.toml", ("--set", f"pools_url={asked}")
    shown = [run("aggregator", *override), run("aggregator", *override, "--json")]
    shown.append(run("aggregator", *override, "--write", str(target)))
    served = CliRunner().invoke(main, ["aggregator", *override, "--show-settings"])
    for code, output in [*shown, (served.exit_code, served.output + target.read_text())]:
        assert code == 0 and "hunter3" not in output and "ter%402" not in output, output
    assert "# pools_url = …  # LEFT OUT" in target.read_text()
    assert "set aggregator.pools_url again" in shown[2][1]


def test_a_written_file_changes_nothing(tmp_path: Path) -> None:
    """A written file is read again with all that held; what is a default stays one."""
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text('[aggregator]\nport = 1234\ntrusted_proxies = ["10.0.0.0/8"]\n')
    assert run("--config", str(first), "--write", str(second))[0] == 0
    code, output = run("aggregator", "--config", str(second), "--changed")
    assert code == 0, output
    assert [line.split()[:2] for line in output.splitlines()[2:]] == [
        ["port", "1234"],
        ["trusted_proxies", "('10.0.0.0/8',)"],
    ]
    assert run("--write", str(second))[0] == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[relayr]\nport = 1", "unknown table [relayr]; did you mean relayer?"),
        ("[relayer]\nprot = 1", "unknown setting 'prot'; did you mean port?"),
        ("[common]\nhots = 1", "unknown setting 'hots'; did you mean host?"),
        ("[relayer]\nport = 70000", "port = 70000 is no port"),
        ("relayer = 1", "[relayer] is none"),
        ("[relayer", "not a TOML file"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """Unknown tables and names are refused with the one that is meant, and numbers that are no ports."""
    file = tmp_path / "m.toml"
    file.write_text(text)
    code, output = run("--config", str(file))
    assert code == 1 and said in output


def test_wrong_use() -> None:
    """A service that is none, and a setting of nobody, are wrong use."""
    assert run("relayr")[0] == 2
    assert run("--set", "port=1")[0] == 2
