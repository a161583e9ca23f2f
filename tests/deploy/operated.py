"""`millrace-relayer` of the deployment, with stand-ins for the program and for `runuser`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from deploy.debian import DEPLOY

PROGRAM = """#!{python} -IS
import json, os, sys
print(json.dumps([os.environ.get("AS", "root"), sys.argv[1:], dict(os.environ)]))
"""
RUNUSER = """#!/bin/sh
[ "$1 $2 $3" = "-u millrace --" ] && shift 3 && AS=millrace exec "$@"
"""


class Called(NamedTuple):
    """What the program was called with."""

    user: str
    words: list[str]
    environment: dict[str, str]


class Operated:
    """Calls the script in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.settings = DEPLOY / "millrace.toml"
        self._folder = folder
        for name, text in (("millrace", PROGRAM.format(python=sys.executable)), ("runuser", RUNUSER)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        text = (DEPLOY / "systemd/millrace-relayer").read_text()
        self.script = (
            text.replace("/opt/millrace/bin/millrace", str(folder / "millrace"))
            .replace("/etc/millrace/millrace.toml", str(self.settings))
            .replace("/etc/millrace/relayer.env", str(folder / "relayer.env"))
        )

    def environment(self, text: str) -> None:
        """The unit has an environment file."""
        (self._folder / "relayer.env").write_text(text)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What the script did."""
        path = f"{self._folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return subprocess.run(
            ["/bin/sh", "-c", self.script, "millrace-relayer", *words],
            env={"PATH": path}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def __call__(self, *words: str) -> Called:
        """How the script called the program."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return Called(*json.loads(done.stdout))
