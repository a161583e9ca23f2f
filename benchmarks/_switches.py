"""The routing kernels once more, with constants of theirs as switches: for measuring what a piece of them earns.

In the product they are part of the machine code. `load` compiles kernels, in a folder of its own, that read those of
`SWITCHES` from memory instead, and puts them in place before anything imports the others. It needs what building the
package needs: uv, a C compiler, Python's headers.
"""

from __future__ import annotations

import ast
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODULE = "millrace.routing._kernels"
SWITCHES = (
    ("find", "LARGE"),
    ("find", "WORTHWHILE"),
    ("exchange", "SMALLER"),
    ("prune", "EXACT_LOSSES_UP_TO"),
    ("refine", "KICK"),
    ("refine", "SMALL"),
    ("refine", "STEPS"),
)
"""Module and name of each constant that can be changed."""


kernels: Any = None
"""Those with switches, once they are loaded: `kernels.switch(name, value)`, the name being `module.CONSTANT`."""


def load(folder: Path) -> None:
    """Compile the kernels in `folder`, and have the package use them, if that is possible."""
    global kernels
    uv = shutil.which("uv") or shutil.which(str(ROOT / ".tools/bin/uv"))
    if uv is None or MODULE in sys.modules:
        return
    tools = folder / "tools"
    wanted = [uv, "pip", "install", "--quiet", "--target", str(tools), "cython>=3.3,<3.4", "setuptools>=80"]
    build = [sys.executable, str(ROOT / "benchmarks/_switches.py"), str(folder), str(tools)]
    for command in ([*wanted, "--python", sys.executable], build):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr.strip()[-500:], file=sys.stderr)
            return
    spec = importlib.util.spec_from_file_location(MODULE, done.stdout.split()[-1])
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    sys.modules[MODULE] = kernels


def compile_into(folder: Path) -> Path:
    """Compile kernels with switches below `folder`; the path of the extension."""
    from compiler.expressions import Expressions, Typed
    from compiler.sources import Sources
    from compiler.types import FLOAT, INT

    from compiler import build, join

    sources = Sources(ROOT / "src")
    known: dict[tuple[str, str], Typed] = {}
    declared, setter = [], ["def switch(str name, double value):"]
    for module, name in SWITCHES:
        origin, label = sources.module(f"millrace.routing.{module}"), f"switch_{module}_{name}"
        value = sources.constant(origin, ast.parse(name, mode="eval").body)
        kind = INT if isinstance(value, int) else FLOAT
        declared.append(f"cdef {kind.c} {label} = {value!r}")
        setter += [f"    global {label}", f'    if name == "{module}.{name}":', f"        {label} = <{kind.c}>value"]
        known[origin.name, name] = label, kind
    plain = Expressions._constant

    def constant(self: Expressions, node: ast.expr) -> Typed:
        where, name = self._sources.find(self._module, ast.unparse(node))
        return known.get((where.name, name)) or plain(self, node)

    Expressions._constant = constant  # type: ignore[method-assign]
    join.HEAD += "\n" + "\n".join([*declared, *setter, ""])
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return build.build(folder)


if __name__ == "__main__":
    sys.path[:0] = [sys.argv[2], str(ROOT)]
    print(compile_into(Path(sys.argv[1])))
