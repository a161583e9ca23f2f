"""Killed or refused at any call to the system: nothing promised is lost, nothing refused is there, and it goes on.

Killed at each; refused, where a work makes many, at every fifth, or with `MILLRACE_CALLS=1` at each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STEP = int(os.environ.get("MILLRACE_CALLS", "5"))
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, made by the compiler that makes the kernels."""
    made = tmp_path_factory.mktemp("faults") / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", made, HERE / "faults.c", "-ldl"], check=True)
    return made


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("work", ["first start", "start", "move", "recover", "import"])
def test_row_53_killed_or_refused_at_any_call(work: str, preloaded: Path, tmp_path: Path) -> None:
    """Whichever call fails or is the last, the next start or the same command once more goes on with all of it."""
    command = [sys.executable, str(HERE / "each_call.py"), work, str(tmp_path), str(STEP)]
    environment = os.environ | {"LD_PRELOAD": str(preloaded)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["calls"] >= 10 and result["wrong"] == [], result
