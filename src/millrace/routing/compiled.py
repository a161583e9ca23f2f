"""The marks of kernels, and where their compiled form comes from.

Kernels are plain Python on arrays; `compiler/` translates and compiles them where the package is built. Where that was
not possible the same functions run as they are: the same answers, more than a hundred times slower.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., object])

MODULE = "millrace.routing._kernels"
VARIABLE = "MILLRACE_KERNELS"
"""Environment variable; `plain` leaves the compiled kernels aside."""

_SOURCES = Path(__file__).parents[2]
_CHECKOUT = _SOURCES.parent
_log = logging.getLogger(__name__)


class StaleKernels(ImportError):
    """The compiled kernels are not those of the sources beside them."""

    def __init__(self) -> None:
        super().__init__(
            f"the compiled kernels are not those of the sources: install the package again (uv sync, or ./run install),"
            f" or set {VARIABLE}=plain to run them uncompiled, slowly"
        )


def digest(files: list[str], folder: Path = _SOURCES) -> str:
    """What tells compiled kernels that are older than the files they were made of, or made by."""
    text = hashlib.sha256()
    for name in files:
        text.update((folder / name).read_bytes())
    return text.hexdigest()


def _same_compiler(made_by: str, folder: Path = _CHECKOUT) -> bool:
    """Whether `compiler/` would make the same of the sources again. A wheel has what it made, not `compiler/`."""
    tools = sorted(str(path.relative_to(folder)) for path in folder.glob("compiler/*.py"))
    return not (folder / "hatch_build.py").exists() or digest(tools, folder) == made_by


def _load() -> Any:
    """The compiled kernels; None where there are none. Raises `StaleKernels`."""
    if os.environ.get(VARIABLE) == "plain":
        return None
    try:
        found: Any = importlib.import_module(MODULE)
    except ModuleNotFoundError:
        _log.warning(
            "the routing kernels are not compiled: the same answers, more than a hundred times slower; install a C "
            "compiler with Python's headers, then the package again (uv sync --reinstall-package millrace)"
        )
        return None
    try:
        fresh = digest(found.FILES) == found.SOURCES and _same_compiler(getattr(found, "COMPILER", ""))
    except OSError:
        fresh = False
    if not fresh:
        raise StaleKernels
    return found


_kernels = _load()

COMPILED = _kernels is not None
"""Whether kernels run compiled."""


def kernel(function: F) -> F:
    """A kernel that Python calls. It works on the arrays of its arguments, makes none, and runs without the GIL.

    Unless its thread has said `keep_gil`.
    """
    if _kernels is None:
        return _quiet(function)
    name = f"{function.__module__.rpartition('.')[2]}__{function.__name__}"
    found = getattr(_kernels, name, None)
    if found is None:
        raise StaleKernels
    return cast(F, found)


def keep_gil(keeps: bool = True) -> None:
    """Whether kernels that this thread calls keep the GIL: for an event loop, whose questions take a moment.

    A thread that gives it up loses it to any other that computes, and has to win it back after every kernel: some
    dozen times a question, each time after a switch interval and whenever the system next runs the thread.
    """
    if _kernels is not None:
        _kernels.keep_gil(keeps)


def inlined(function: F) -> F:
    """Pasted into the kernels that call it; from Python it runs as it is."""
    return function


def _quiet(function: F) -> F:
    """Floating point as C has it: infinities and overflows are results, and nothing is said of them."""

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments)

    return cast(F, run)
