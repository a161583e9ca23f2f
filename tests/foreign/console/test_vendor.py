"""The bundled libraries are what the locks name."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from servers.typescript_client import CLIENT, npm

pytestmark = pytest.mark.foreign
COMMITTED = Path(__file__).parents[3] / "src" / "millrace" / "console" / "page" / "vendor"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_vendored_files_are_built_from_the_locks(tools: Path, tmp_path: Path) -> None:
    """Bundled again, every file is the same byte for byte: `./run page` writes them."""
    if not (CLIENT / "node_modules").exists():
        npm("ci", "--no-audit", "--no-fund", "--ignore-scripts")
    npm("run", "build")
    node = shutil.which("node")
    assert node
    subprocess.run([node, "build.mjs", str(tmp_path / "vendor")], cwd=tools, check=True)
    assert contents(tmp_path / "vendor") == contents(COMMITTED)
