"""Compiles the routing kernels when the package is built: into a wheel, or beside their sources for a checkout."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "MILLRACE_KERNELS"
"""Environment variable; `plain` leaves the kernels uncompiled, for a package of Python alone; `checked` ones end the
process at an index outside of its array."""


class KernelHook(BuildHookInterface[Any]):
    """Puts the compiled kernels beside their sources, and into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile them. Without a compiler the package is made without them: they run as they are, slowly."""
        if os.environ.get(VARIABLE) == "plain":
            return
        missing = missing_tools()
        if missing:
            self.app.display_warning(f"the routing kernels stay uncompiled, as there is no {missing}: slow")
            return
        sys.path.insert(0, self.root)
        from compiler.build import build

        path = build(Path(self.root), checked=os.environ.get(VARIABLE) == "checked")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(str(path.relative_to(self.root)))


def missing_tools() -> str:
    """What compiling needs and this machine has not; empty if it has all."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(command) is None:
        return f"C compiler ({command})"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return "" if header.exists() else f"{header} (Debian's package python3-dev)"
