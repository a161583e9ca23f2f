"""An environment for processes in which packages look as if they were not installed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from millrace.runtime.extras import MODULES

_CODE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if any(name == module or name.startswith(module + ".") for module in {modules}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def modules_of(*extras: str) -> list[str]:
    """What these extras bring; without any name, what all of them bring."""
    return sorted({module for extra in extras or MODULES for module in MODULES[extra]})


def without(folder: Path, modules: Iterable[str]) -> dict[str, str]:
    """The environment of a process, and of all that it starts, where these modules cannot be imported."""
    (folder / "sitecustomize.py").write_text(_CODE.format(modules=list(modules)))
    return os.environ | {"PYTHONPATH": str(folder), "HOME": str(folder)}
