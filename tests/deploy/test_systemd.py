"""The units: valid, and closed as far as each service can be."""

from __future__ import annotations

import os
import re
import shutil
from configparser import ConfigParser
from pathlib import Path

import pytest

from deploy.debian import DEPLOY, check
from deploy.operated import Operated

UNITS = DEPLOY / "systemd"
SERVICES = ("aggregator", "relayer", "notifier", "pools", "console")
MOST_EXPOSED = 3.0
"""Of systemd's own scale from 0 (closed) to 10."""


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The units with their drop-ins, in which the program is one that this machine has."""
    folder = tmp_path / "units"
    shutil.copytree(UNITS, folder)
    template = folder / "millrace@.service"
    template.write_text(template.read_text().replace("/opt/millrace/bin/millrace", "/bin/true"))
    for service in SERVICES:
        (folder / f"millrace@{service}.service").symlink_to(template.name)
    monkeypatch.setenv("SYSTEMD_UNIT_PATH", f"{folder}{os.pathsep}")
    return folder


@pytest.mark.parametrize("service", SERVICES)
def test_a_unit_is_valid_and_closed(units: Path, service: str) -> None:
    """systemd finds nothing wrong with it, and an exposure of at most 3."""
    output = check("systemd-analyze", "verify", f"millrace@{service}.service", folder=units)
    assert f"millrace@{service}" not in output
    report = check(
        "systemd-analyze", "security", "--offline=true", "--no-pager", f"millrace@{service}.service", folder=units
    )
    exposure = re.search(r"Overall exposure level for .*: ([\d.]+)", report)
    assert exposure is not None, report
    assert float(exposure[1]) <= MOST_EXPOSED


def test_no_service_runs_what_it_has_written(units: Path) -> None:
    """Memory is never writable and executable: the route search is compiled when the package is built."""
    for folder in units.glob("millrace@*"):
        files = [folder] if folder.is_file() else sorted(folder.glob("*.conf"))
        lines = [line for file in files for line in file.read_text().splitlines()]
        assert all(line == "MemoryDenyWriteExecute=yes" for line in lines if line.startswith("MemoryDenyWriteExecute"))
    assert "MemoryDenyWriteExecute=yes" in (units / "millrace@.service").read_text()


def test_a_killed_notifier_is_back_at_once() -> None:
    """Without it the chain stands still: it is started sooner than others, and no less long."""
    others, own = ConfigParser(strict=False, interpolation=None), ConfigParser(interpolation=None)
    others.read(UNITS / "millrace@.service")
    own.read(UNITS / "millrace@notifier.service.d/restart.conf")
    seconds = [float(others["Service"]["RestartSec"]), float(own["Service"]["RestartSec"].removesuffix("ms")) / 1000]
    times = [int(one["Unit"]["StartLimitBurst"]) for one in (others, own)]
    assert seconds[1] <= 0.25
    assert seconds[1] * times[1] >= seconds[0] * times[0]


@pytest.mark.parametrize(
    ("words", "user", "called"),
    [
        (("backup", "/b c"), "millrace", ("relayer", "--config", "SETTINGS", "backup", "/b c")),
        (("recover", "--yes"), "millrace", ("relayer", "--config", "SETTINGS", "recover", "--yes")),
        (("policy", "at-risk"), "millrace", ("policy", "at-risk", "--config", "SETTINGS")),
        (("policy", "apply", "new.toml"), "root", ("policy", "apply", "--config", "SETTINGS", "new.toml")),
        (("policy", "new-key"), "millrace", ("policy", "new-key")),
        (("policy", "--help"), "millrace", ("policy", "--help")),
    ],
)
def test_verbs_have_the_settings_and_the_user_of_the_unit(
    operated: Operated, words: tuple[str, ...], user: str, called: tuple[str, ...]
) -> None:
    """A verb is done by the unit's user, whose folder it writes to; root writes the policy, as no service may."""
    found = operated(*words)
    assert (found.user, found.words) == (
        user,
        [str(operated.settings) if word == "SETTINGS" else word for word in called],
    )


def test_verbs_have_the_environment_of_the_unit(operated: Operated) -> None:
    """Lines of the unit's environment file are taken as systemd takes them: nothing in them is a shell's."""
    operated.environment(
        "# comment\n\nMILLRACE_RELAYER__LEASE_URL=postgresql://m:$(x)a'b@h/m?a=1&b=2\nQUOTED=\"two words\"\nLAST='1'"
    )
    found = operated("recover").environment
    assert found["MILLRACE_RELAYER__LEASE_URL"] == "postgresql://m:$(x)a'b@h/m?a=1&b=2"
    assert (found["QUOTED"], found["LAST"]) == ("two words", "1")


def test_cron_does_not_look_where_runuser_is(operated: Operated, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script finds what only root's folders have, whatever folders it is given."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    asked = "exec runuser -u millrace -- "
    assert asked in operated.script
    operated.script = operated.script.replace(asked, "command -v ldconfig; : ")
    assert operated.run("backup", "/b").stdout.strip().endswith("sbin/ldconfig")


def test_without_a_verb_nothing_is_run(operated: Operated) -> None:
    """The bare command would start a second relayer: it says what it is for."""
    done = operated.run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: millrace-relayer VERB" in done.stderr


def test_the_script_names_what_the_unit_names() -> None:
    """Program, settings, environment file and user are those of the unit."""
    unit = (UNITS / "millrace@.service").read_text()
    script = (UNITS / "millrace-relayer").read_text()
    assert "ExecStart=/opt/millrace/bin/millrace %i --config /etc/millrace/millrace.toml\n" in unit
    assert "program=/opt/millrace/bin/millrace\nsettings=/etc/millrace/millrace.toml\n" in script
    assert "EnvironmentFile=-/etc/millrace/%i.env\n" in unit and "environment=/etc/millrace/relayer.env\n" in script
    assert "User=millrace\n" in unit and "runuser -u millrace --" in script
