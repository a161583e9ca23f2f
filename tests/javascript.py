"""The official JavaScript SDK for tests that are marked `foreign`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "foreign" / "sdk"


def sdk_folder() -> Path:
    """Where it is installed, the first time it is asked for, with our programs beside it; else the test is skipped."""
    place = os.environ.get("MILLRACE_JS_PREFIX")
    if not place or shutil.which("npm") is None:
        pytest.skip("set MILLRACE_JS_PREFIX to a directory for the JavaScript packages, with Node and npm installed")
    folder = Path(place) / "sdk"
    folder.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS.iterdir():
        shutil.copy(program, folder)
    if not (folder / "node_modules").exists():
        subprocess.run(["npm", "install", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return folder
