"""What the compiler of kernels makes of Python, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiler.join import join, kernel_modules
from compiler.types import KernelError

HEAD = """
from typing import NamedTuple

FEW, MANY = range(2, 4)
HALF = 1.0 / FEW


class Box(NamedTuple):
    values: Floats
    rows: IntTable


def kernel(function): return function


"""


def translated(folder: Path, body: str, *, checked: bool = False) -> str:
    """The module for kernels with this text."""
    (folder / "shop").mkdir(exist_ok=True)
    (folder / "shop" / "box.py").write_text(HEAD + body)
    return join(folder, "shop", checked=checked)


def test_types_of_locals_follow_from_what_they_get(tmp_path: Path) -> None:
    """A sum of floats that begins as an integer is a float; an element of an array of integers is an index."""
    text = translated(
        tmp_path,
        """
@kernel
def total(box: Box, row: int) -> float:
    result = 0
    for k in range(box.values.size):
        at = box.rows[row, k]
        result += box.values[at]
    return result
""",
    )
    assert "cdef double result" in text
    assert "cdef Py_ssize_t at" in text
    assert "at = box.rows.at[(row) * box.rows.n1 + (k)]" in text


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("return box.values[row]", 'return box.values.at[{at}row, box.values.n0, b"shop.box, line 18")]'),
        (
            "return box.rows[row, 1]",
            "box.rows.at[({at}row, box.rows.n0, {b})) * box.rows.n1 + ({at}1, box.rows.n1, {b}))]",
        ),
        ("box.values[row] = 0.0", "box.values.at[{at}row, box.values.n0, {b})] = 0.0"),
        ("box.values[row] += 1.0", "box.values.at[{at}row, box.values.n0, {b})] += 1.0"),
        ("box.rows[row, :] = 0", "row_int(box.rows, {at}row, box.rows.n0, {b})), 0, _.n0, 0)"),
        ("box.values[row:2] = 0.0", "{end}row, box.values.n0, {b}), {end}2, box.values.n0, {b}), 0.0)"),
    ],
)
def test_checked_kernels_look_at_every_index(tmp_path: Path, body: str, line: str) -> None:
    """Of each dimension, where it is read and where it is written, with the place; others look at none."""
    kernel = f"@kernel\ndef look(box: Box, row: int) -> float:\n    {body}\n    return 0.0\n"
    place = 'b"shop.box, line 18"'
    row = f"row_int(box.rows, index_of_array(row, box.rows.n0, {place})).n0"
    wanted = line.format(at="index_of_array(", end="end_in_array(", b=place).replace("_.n0", row)
    assert wanted in translated(tmp_path, kernel, checked=True)
    assert "index_of_array" not in translated(tmp_path, kernel) and "end_in_array" not in translated(tmp_path, kernel)


def test_constants_are_written_as_numbers(tmp_path: Path) -> None:
    """Whatever they are computed of."""
    text = translated(tmp_path, "@kernel\ndef half(x: float) -> float:\n    return x * HALF + MANY\n")
    assert "return ((x * (0.5)) + (3))" in text


def test_values_are_read_before_any_of_them_is_assigned(tmp_path: Path) -> None:
    """Two elements change places, as in Python."""
    text = translated(tmp_path, "@kernel\ndef swap(v: Floats) -> None:\n    v[0], v[1] = v[1], v[0]\n")
    lines = [line.strip() for line in text.splitlines()]
    at = lines.index("_0 = v.at[1]")
    assert lines[at : at + 4] == ["_0 = v.at[1]", "_1 = v.at[0]", "v.at[0] = _0", "v.at[1] = _1"]


def test_every_kernel_runs_without_the_lock_of_the_interpreter(tmp_path: Path) -> None:
    """What Python calls gives it up before the search begins, and takes it back, unless its thread keeps it."""
    text = translated(tmp_path, "@kernel\ndef same(x: float) -> float:\n    return x\n")
    entry = text[text.index("def box__same(") :]
    steps = ["state = let_go()", "result = box__same_(x)", "take_back(state)", "return result"]
    assert [step for _, step in sorted((entry.index(step), step) for step in steps)] == steps


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("def f(x) -> float:\n    return x\n", "x needs a type"),
        ("def f(x: float):\n    return x\n", "say what it returns"),
        ("def f(x: str) -> None:\n    pass\n", "no type str"),
        ("def f(x: float) -> float:\n    y = sorted(x)\n    return y\n", "line 18: kernels cannot call sorted"),
        ("def f(x: float) -> float:\n    try:\n        return x\n    finally:\n        pass\n", "no Try"),
        ("def f(x: Floats) -> float:\n    return x[0, 0]\n", "float1 with 2 indices"),
        ("def f(x: float) -> int:\n    return x\n", "float where int is wanted"),
        ("def f(x: int) -> int:\n    x = 0.5\n    return x\n", "x is int and gets float"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_its_place(tmp_path: Path, body: str, why: str) -> None:
    """With the module, and mostly the line: nobody has to read what C says of it."""
    with pytest.raises(KernelError, match=why):
        translated(tmp_path, f"@kernel\n{body}")


def test_only_modules_with_marks_are_looked_at(tmp_path: Path) -> None:
    """A file without kernels may hold whatever Python can."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "plain.py").write_text("async def anything(): ...\n")
    assert kernel_modules(tmp_path, "shop") == []
