"""Calls of kernels from Python, without looking at the arguments' types every time.

Numba finds the types of dozens of arrays in every call, which takes longer than many a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from millrace.routing.jit import entry

T = TypeVar("T")

_entries: dict[Callable[..., Any], Callable[..., Any]] = {}  # one for each kernel that is called here


def call(kernel: Callable[..., T], *arguments: object) -> T:
    """Call a kernel whose arguments always have the same types: those of its first call."""
    found = _entries.get(kernel)
    if found is None:
        found = _entries[kernel] = entry(kernel, *arguments)
    return found(*arguments)
