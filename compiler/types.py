"""Types that kernels may use, what annotations call them, and what Cython calls them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


class KernelError(Exception):
    """Something that a kernel may not do; says where, and what to write instead."""


@dataclass(frozen=True)
class Type:
    """`kind` is float, int, bool, word (64 bits, unsigned), none, array, struct or tuple.

    An array has the `name` of its elements and `dimensions`, a struct the name of its class, a tuple `parts`.
    """

    kind: str
    name: str = ""
    dimensions: int = 0
    parts: tuple[Type, ...] = ()

    @property
    def label(self) -> str:
        """The type as a part of names."""
        if self.kind == "array":
            return f"{self.name}{self.dimensions}"
        if self.kind == "tuple":
            return "of_" + "_".join(part.label for part in self.parts)
        return self.name or self.kind

    @property
    def c(self) -> str:
        """The type of a variable in Cython. Structs of the sources are passed by their address."""
        if self.kind == "struct":
            return f"{self.name}*"
        return SCALARS.get(self.kind, self.label)


FLOAT, INT, BOOL, WORD, NONE = Type("float"), Type("int"), Type("bool"), Type("word"), Type("none")

SCALARS: Final = {
    "float": "double",
    "int": "Py_ssize_t",
    "bool": "bint",
    "word": "unsigned long long",
    "none": "void",
}

# Elements of arrays: what Cython calls them, what NumPy's C interface calls them, and what reading one gives.
ELEMENTS: Final = {
    "float": ("double", "NPY_FLOAT64", FLOAT),
    "int": ("int", "NPY_INT32", INT),
    "long": ("long long", "NPY_INT64", INT),
    "bool": ("unsigned char", "NPY_BOOL", BOOL),
    "word": ("unsigned long long", "NPY_UINT64", WORD),
}

_SHAPES = {"Float": "float", "Int": "int", "Long": "long", "Bool": "bool", "Word": "word"}

ANNOTATIONS: Final = {
    "float": FLOAT,
    "int": INT,
    "bool": BOOL,
    "np.uint64": WORD,
    "None": NONE,
    **{
        f"{name}{suffix}": Type("array", element, dimensions)
        for name, element in _SHAPES.items()
        for dimensions, suffix in enumerate(("s", "Table"), 1)
    },
}


def common(one: Type, other: Type) -> Type:
    """The type of what may be of either. Raises `KernelError` where there is none."""
    if one == other:
        return one
    for kind in (FLOAT, INT):  # truth is a number in sums
        if {one, other} <= {FLOAT, INT, BOOL} and kind in (one, other):
            return kind
    if one.kind == other.kind == "tuple" and len(one.parts) == len(other.parts):
        return Type("tuple", parts=tuple(map(common, one.parts, other.parts)))
    raise KernelError(f"{one.label} and {other.label} have no type in common")
