"""Scratch memory made from what its fields say."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from millrace.routing.net import Bools, Floats, Ints, WordTable
from millrace.routing.scratch import make, sized


class Inner(NamedTuple):
    """A struct within another."""

    words: WordTable = sized("rows", 2)


class Outer(NamedTuple):
    """A field of each kind, one of them with the name of a size."""

    flags: Bools = sized(3)
    rows: Floats = sized("rows", fill=-2.0)
    inner: Inner = sized()
    given: Ints = sized("unknown")


def test_arrays_are_of_the_type_and_size_that_their_fields_say() -> None:
    """Sizes by number or name, also in structs within; zeros, unless a field is full of another number."""
    given = np.ones(1, np.int32)
    made = make(Outer, {"given": given}, rows=4)
    assert (made.flags.dtype, made.flags.shape, made.flags.any()) == (np.bool_, (3,), False)
    assert (made.rows.dtype, made.rows.tolist()) == (np.float64, [-2.0] * 4)
    assert (made.inner.words.dtype, made.inner.words.shape) == (np.uint64, (4, 2))
    assert made.given is given


def test_a_size_that_nobody_gives_is_an_error() -> None:
    """No array is made of a guess."""
    with pytest.raises(KeyError, match="unknown"):
        make(Outer, rows=4)
