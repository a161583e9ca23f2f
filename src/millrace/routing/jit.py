"""Compilation of the numeric kernels: one decorator, one on-disk cache.

The cache directory carries a digest of the sources with kernels in them, because Numba notices a change in the file
of a function but not in the file of a function it calls.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

F = TypeVar("F", bound=Callable[..., object])

CACHE_VARIABLE = "MILLRACE_KERNEL_CACHE"


def _cache_directory() -> Path:
    """The first writable one of: the environment's choice, the user's cache, the temporary directory."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        text = source.read_bytes()
        if b"@kernel" in text or b"@inlined" in text or b"class Net(" in text:
            digest.update(text)
    chosen = os.environ.get(CACHE_VARIABLE)
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    candidates = [Path(chosen)] if chosen else [user_cache / "millrace"]
    candidates.append(Path(tempfile.gettempdir()) / f"millrace-{os.getuid()}")
    for base in candidates:
        directory = base / f"kernels-{digest.hexdigest()[:16]}"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(directory, os.W_OK) and directory.stat().st_uid == os.getuid():
            return directory
    raise OSError(f"no writable directory for compiled kernels; set {CACHE_VARIABLE} to one")


CACHE_DIRECTORY = _cache_directory()
vars(numba.config)["CACHE_DIR"] = str(CACHE_DIRECTORY)


def _index(context: Any, builder: Any, kind: Any, index: Any, _size: Any) -> Any:
    """An index as it is."""
    return context.cast(builder, index, kind, types.intp)


# Numba asks of every signed index whether it counts from the end. Here none does, and it takes a third of the time.
arrayobj.fix_integer_index = _index

_njit: Any = numba.njit  # its type knows not all of its options
# Without Numba's runtime no references of arrays are counted, which for a net and a work area are dozens a call.
_BORROWING = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
_PASTED = {**_BORROWING, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: F) -> F:
    """Compile `function` on its first call (or load it from the cache); it runs without the GIL.

    It works on the arrays of its arguments and makes none.
    """
    return cast(F, _njit(**_BORROWING)(function))


def allocating(function: F) -> F:
    """A kernel that makes arrays."""
    return cast(F, _njit(cache=True, nogil=True, error_model="numpy")(function))


def inlined(function: F) -> F:
    """Pasted by LLVM into the kernels that call it: a call would pass every array of a net and a work area.

    It is no function of its own: Python cannot call it, not even to fail.
    """
    return cast(F, _njit(**_PASTED)(function))


def vectorised(function: F) -> F:
    """Inlined, and sums may be added up in any order: LLVM then turns a plain loop into SIMD instructions."""
    return cast(F, _njit(**_PASTED, fastmath={"reassoc", "contract", "nsz"})(function))


def entry(compiled: F, *arguments: object) -> F:
    """The way into a kernel for arguments of exactly these types, which nobody checks again.

    Looking up the types of dozens of arrays in every call takes longer than many a search.
    """
    typeof: Any = numba.typeof
    return cast(F, cast(Any, compiled).compile(tuple([typeof(value) for value in arguments])))


@intrinsic
def _trailing_zeros(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.true_bit)

    return types.int64(types.uint64), generate


@intrinsic
def _high_word(context: Any, a: Any, b: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*[builder.zext(word, wide) for word in arguments])
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@inlined
def high_word(a: np.uint64, b: np.uint64) -> np.uint64:
    """The upper 64 of the 128 bits of `a b`."""
    return _high_word(a, b)  # type: ignore[call-arg]


@inlined
def first_bit(bits: np.uint64) -> int:
    """Number of the lowest bit that is set; there must be one."""
    return _trailing_zeros(bits)  # type: ignore[call-arg]
