"""Scratch memory of kernels: each field of its classes says what its size is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np

S = TypeVar("S")


class _Sized(NamedTuple):
    sizes: tuple[int | str, ...]
    fill: float


def sized(*sizes: int | str, fill: float = 0.0) -> Any:
    """The default of a field that is an array of these dimensions, numbers or names of them, full of one number.

    Without dimensions: a class of such fields in its turn.
    """
    return _Sized(sizes, fill)


_types = functools.cache(get_type_hints)


def make(kind: Callable[..., S], fields: Mapping[str, Any] | None = None, **sizes: int) -> S:
    """Scratch memory of a class where the dimensions with a name have these sizes; `fields` are given as they are."""
    made, of = dict(fields or {}), _types(kind)
    for name, asked in kind._field_defaults.items():  # type: ignore[attr-defined]
        if name not in made:
            shape = [sizes[size] if isinstance(size, str) else size for size in asked.sizes]
            made[name] = _array(of[name], shape, asked.fill) if shape else make(of[name], None, **sizes)
    return kind(**made)


def _array(of: Any, shape: list[int], fill: float) -> Any:
    """An array of that type; what is never used of one of zeros takes no memory."""
    elements = get_args(get_args(of)[1])[0]
    return np.full(shape, fill, elements) if fill else np.zeros(shape, elements)
