"""What children inherit, and secrets that leave the environment for good."""

from __future__ import annotations

import subprocess
import sys

import pytest

from millrace.runtime import environment

_TAKE = """
import os, pathlib
from millrace.runtime import environment
assert environment.take_secret("MILLRACE_SECRET") == "c0ffee", "its value"
assert environment.take_secret("MILLRACE_SECRET") is None, "is there once"
assert "MILLRACE_SECRET" not in os.environ
print(pathlib.Path("/proc/self/environ").read_bytes())
"""


def test_row_38_a_secret_that_was_taken_is_nowhere_in_the_environment() -> None:
    """Neither `os.environ` nor what the kernel shows of the process holds its value any more."""
    variables = environment.for_child() | {"MILLRACE_SECRET": "c0ffee", "MILLRACE_OTHER": "other"}
    done = subprocess.run([sys.executable, "-c", _TAKE], env=variables, capture_output=True, text=True, check=True)
    assert "c0ffee" not in done.stdout and "MILLRACE_OTHER=other" in done.stdout


def test_row_38_children_get_what_they_need_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable nobody listed is not handed on; the search path is."""
    monkeypatch.setenv("PATH", "/bin")
    assert environment.for_child().get("PATH") == "/bin"
    for name in ("MILLRACE_RELAYER__KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "LD_PRELOAD"):
        monkeypatch.setenv(name, "secret")
        assert name not in environment.for_child()
