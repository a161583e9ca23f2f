"""What kernels may not do, as nothing would tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_no_kernel_counts_from_the_end_of_an_array() -> None:
    """Compiled, an index below 0 would read what lies before the array: in plain Python none is met."""
    script = Path(__file__).with_name("plain_python.py")
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 20
