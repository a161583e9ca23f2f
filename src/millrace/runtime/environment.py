"""What a child process may know of our environment, and how a secret leaves it."""

from __future__ import annotations

import ctypes
import os

_NEEDED = frozenset(
    {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "MILLRACE_KERNELS"}
)


def for_child() -> dict[str, str]:
    """What a Python child needs to run, and nothing else: whatever secret we were started with stays here."""
    return {name: value for name, value in os.environ.items() if name in _NEEDED}


def take_secret(name: str) -> str | None:
    """The value of a variable, which is then gone from our environment; `None` when it is not set.

    The first bytes of a process's environment stay readable in `/proc/PID/environ` whatever `unsetenv` does, so
    the value is overwritten where it stands.
    """
    value = os.environ.get(name)
    if value is None:
        return None
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    where = libc.getenv(os.fsencode(name))
    if where:
        ctypes.memset(where, 0, len(os.fsencode(value)))
    del os.environ[name]
    return value
