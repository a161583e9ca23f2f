"""The units: valid, and closed as far as each service can be."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from deploy.debian import DEPLOY, check

UNITS = DEPLOY / "systemd"
SERVICES = ("aggregator", "relayer", "notifier", "pools")
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
