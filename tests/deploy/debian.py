"""Programs of Debian packages that check what is deployed; `./run test` installs what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

DEPLOY = Path(__file__).parents[2] / "deploy"
FOLDERS = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
"""Debian keeps servers in folders that are not on the PATH of users."""


def check(*command: str | Path, folder: Path) -> str:
    """Run a program in a folder; what it printed. Fails with that where it does not end well."""
    program = shutil.which(command[0], path=FOLDERS)
    assert program, f"{command[0]} is missing: ./run test installs it"
    result = subprocess.run(
        [program, *map(str, command[1:])], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    output = result.stdout + result.stderr
    assert result.returncode == 0, output
    return output
