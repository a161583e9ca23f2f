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


def test_only_the_aggregator_runs_what_it_has_written(units: Path) -> None:
    """Its route search is compiled while it starts; no other service may make memory executable."""
    for service in SERVICES:
        lines = (units / "millrace@.service").read_text().splitlines()
        for drop_in in sorted((units / f"millrace@{service}.service.d").glob("*.conf")):
            lines += drop_in.read_text().splitlines()
        last = [line for line in lines if line.startswith("MemoryDenyWriteExecute=")][-1]
        assert last == f"MemoryDenyWriteExecute={'no' if service == 'aggregator' else 'yes'}"
