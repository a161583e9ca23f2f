"""Operations on bits for which a processor has an instruction; the compiler puts it in the place of these functions."""

from __future__ import annotations

import numpy as np


def first_bit(bits: np.uint64) -> int:
    """Number of the lowest bit that is set; there must be one."""
    value = int(bits)
    return (value & -value).bit_length() - 1


def high_word(a: np.uint64, b: np.uint64) -> np.uint64:
    """The upper 64 of the 128 bits of `a b`."""
    return np.uint64(int(a) * int(b) >> 64)
