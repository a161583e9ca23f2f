"""What each setting of a service is: its type, its default, and what the line below it in the source says it means."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect as shapes

from millrace.runtime.settings import Secret

LONGEST_DEFAULT = 60
"""Characters of a default that are shown; of a longer one only how many entries it has."""


class Setting(NamedTuple):
    """One setting, in words for an operator."""

    name: str
    type: str
    default: str
    """As it would be written in TOML; empty where there is none."""
    meaning: str
    """Empty where the source says nothing."""


def settings_of(kind: type[msgspec.Struct]) -> list[Setting]:
    """All settings of a struct, inherited ones last. Raises `OSError` where its source is not there."""
    texts = meanings(kind)
    shape = shapes.type_info(kind)
    assert isinstance(shape, shapes.StructType)
    fields = sorted(shape.fields, key=lambda field: field.name not in kind.__annotations__)
    return [Setting(field.name, _type(field.type), _default(field), texts.get(field.name, "")) for field in fields]


def meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The docstrings below the attributes of a struct and of those it extends, each as one line."""
    bases = [base for base in kind.__mro__ if issubclass(base, msgspec.Struct) and base is not msgspec.Struct]
    return {name: text for base in reversed(bases) for name, text in _meanings(base).items()}


def _meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for before, after in pairwise(body):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[before.target.id] = " ".join(value.value.split())
    return found


def _type(shape: shapes.Type) -> str:
    match shape:
        case shapes.IntType() | shapes.FloatType():
            bounds = [f"{sign} {bound:g}" for sign, bound in _bounds(shape) if bound is not None]
            name = "integer" if isinstance(shape, shapes.IntType) else "number"
            return " ".join([name, ", ".join(bounds)]).strip()
        case shapes.BoolType():
            return "boolean"
        case shapes.StrType():
            return "text"
        case shapes.VarTupleType(item_type=item) | shapes.ListType(item_type=item):
            return f"list of {_type(item)}"
        case shapes.TupleType(item_types=items):
            return f"[{', '.join(map(_type, items))}]"
        case shapes.DictType(value_type=value):
            return f"table of {_type(value)}"
        case shapes.StructType(fields=fields):
            return f"table of {', '.join(field.name for field in fields)}"
        case shapes.LiteralType(values=values):
            return " or ".join(f"`{value}`" for value in values)
        case shapes.UnionType(types=types):
            return " or ".join(_type(each) for each in types if not isinstance(each, shapes.NoneType)) + ", or none"
        case shapes.CustomType(cls=cls):
            return {Path: "path", Secret: "secret"}[cls]
        case _:
            raise TypeError(f"a setting cannot be a {type(shape).__name__}: say here how to write it")


def _bounds(shape: shapes.IntType | shapes.FloatType) -> list[tuple[str, float | None]]:
    return [(">", shape.gt), ("≥", shape.ge), ("<", shape.lt), ("≤", shape.le)]


def _default(field: shapes.Field) -> str:
    value: Any = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT or value is None:
        return ""
    if isinstance(value, Secret):
        value = ""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= LONGEST_DEFAULT else f"{len(value)} entries" if not isinstance(value, str) else text
