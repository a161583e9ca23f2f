"""All kernels of a package as one Cython module: structs, kernels, and what Python calls.

One module, because a C compiler pastes functions only within one; a call across modules goes through a pointer.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from compiler.sources import MARKS, Function, Sources
from compiler.translate import Translator
from compiler.types import ELEMENTS, NONE, Type

HEAD = '''# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernels of the route search, translated from the modules beside this one."""
cimport numpy
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc cimport math

numpy.import_array()

cdef extern from *:
    """
    #define first_bit(bits) ((Py_ssize_t)__builtin_ctzll(bits))
    #define high_word(a, b) ((unsigned long long)(((unsigned __int128)(a) * (b)) >> 64))
    static __thread int keeps_gil;
    #define keep_gil_here(keeps) (keeps_gil = (keeps))
    #define let_go() (keeps_gil ? NULL : PyEval_SaveThread())
    #define take_back(state) do { if (state) PyEval_RestoreThread(state); } while (0)
    """
    ctypedef struct PyThreadState
    void keep_gil_here(bint keeps)
    PyThreadState* let_go()
    void take_back(PyThreadState* state)
    Py_ssize_t first_bit(unsigned long long bits) noexcept nogil
    unsigned long long high_word(unsigned long long a, unsigned long long b) noexcept nogil


cdef inline double max_float(double a, double b) noexcept nogil:
    return b if b > a else a

cdef inline double min_float(double a, double b) noexcept nogil:
    return b if b < a else a

cdef inline Py_ssize_t max_int(Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    return b if b > a else a

cdef inline Py_ssize_t min_int(Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    return b if b < a else a

def keep_gil(bint keeps):
    keep_gil_here(keeps)

cdef int refuse(object array, str wanted) except -1:
    raise TypeError(f"a kernel wants a writable array of {wanted} in C's and the machine's order, "
                    f"not {array!r:.100}")
'''
ARRAYS = """
cdef struct {kind}1:
    {c}* at
    Py_ssize_t n0

cdef struct {kind}2:
    {c}* at
    Py_ssize_t n0
    Py_ssize_t n1

cdef struct {kind}3:
    {c}* at
    Py_ssize_t n0
    Py_ssize_t n1
    Py_ssize_t n2

cdef inline {kind}1 row_{kind}({kind}2 array, Py_ssize_t row) noexcept nogil:
    cdef {kind}1 found
    found.at = array.at + row * array.n1
    found.n0 = array.n1
    return found

cdef inline void fill_{kind}1({kind}1 array, Py_ssize_t start, Py_ssize_t stop, {c} value) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(start, stop):
        array.at[k] = value
"""
TAKE = """
cdef inline int take_{kind}{dimensions}(object array, {kind}{dimensions}* into) except -1:
    if not (numpy.PyArray_Check(array) and numpy.PyArray_TYPE(<numpy.ndarray>array) == numpy.{code}
            and numpy.PyArray_NDIM(<numpy.ndarray>array) == {dimensions}
            and numpy.PyArray_ISCARRAY(<numpy.ndarray>array)):
        refuse(array, "{c}, {dimensions} dimensions,")
    into.at = <{c}*>numpy.PyArray_DATA(<numpy.ndarray>array)
"""


# What looks at every index of kernels that are compiled to be checked.
CHECKS = '''
cdef extern from *:
    """
    #include <stdio.h>
    #include <stdlib.h>
    static inline Py_ssize_t index_of_array(Py_ssize_t at, Py_ssize_t size, const char *where) {
        if (at < 0 || at >= size) {
            fprintf(stderr, "%s: index %zd of an array of %zd\\\\n", where, at, size);
            abort();
        }
        return at;
    }
    static inline Py_ssize_t end_in_array(Py_ssize_t at, Py_ssize_t size, const char *where) {
        return at == size ? at : index_of_array(at, size, where);
    }
    """
    Py_ssize_t index_of_array(Py_ssize_t at, Py_ssize_t size, const char *where) noexcept nogil
    Py_ssize_t end_in_array(Py_ssize_t at, Py_ssize_t size, const char *where) noexcept nogil
'''


def join(folder: Path, package: str, *, checked: bool = False) -> str:
    """The module for all kernels of `package`, a folder with Python files below `folder`; `checked` at every index."""
    sources = Sources(folder)
    names = kernel_modules(folder, package)
    tuples: set[Type] = set()
    functions = [(module, function) for module in map(sources.module, names) for function in module.functions.values()]
    bodies = [
        Translator(sources, module, function, tuples, checked=checked).translate() for module, function in functions
    ]
    entries = [_entry(function) for _, function in functions if function.entered]
    for _, function in functions:
        _note(function.returns, tuples)
        for kind in function.parameters.values():
            _note(kind, tuples)
    text = [HEAD, *([CHECKS] if checked else []), *map(_arrays, ELEMENTS)]
    text += [_tuple(kind) for kind in sorted(tuples, key=lambda kind: (kind.label.count("of_"), kind.label))]
    text += _structs(sources)
    files = sorted(str(path.relative_to(folder)) for path in sources.files)
    tools = sorted(f"compiler/{path.name}" for path in Path(__file__).parent.glob("*.py"))
    text += [*bodies, *entries, f"FILES = {files}", f'SOURCES = "{digest(folder, files)}"']
    text += [f'COMPILER = "{digest(Path(__file__).parents[1], tools)}"']
    return "\n\n\n".join(text) + "\n"


def kernel_modules(folder: Path, package: str) -> list[str]:
    """The modules with kernels in them."""
    paths = sorted((folder / Path(*package.split("."))).glob("*.py"))
    marked = [path for path in paths if any(f"\n@{mark}\n" in path.read_text() for mark in MARKS)]
    return [f"{package}.{path.stem}" for path in marked]


def digest(folder: Path, files: list[str]) -> str:
    """What tells compiled kernels that are older than their sources; `compiled.py` works it out in the same way."""
    text = hashlib.sha256()
    for name in files:
        text.update((folder / name).read_bytes())
    return text.hexdigest()


def _note(kind: Type, tuples: set[Type]) -> None:
    if kind.kind == "tuple":
        tuples.add(kind)
        for part in kind.parts:
            _note(part, tuples)


def _arrays(kind: str) -> str:
    c, code, _ = ELEMENTS[kind]
    text = [ARRAYS.format(kind=kind, c=c)]
    for dimensions in (1, 2, 3):
        text.append(TAKE.format(kind=kind, c=c, code=code, dimensions=dimensions))
        sizes = range(dimensions)
        text += [f"    into.n{k} = numpy.PyArray_DIM(<numpy.ndarray>array, {k})\n" for k in sizes]
        text.append("    return 0\n")
    return "".join(text)


def _tuple(kind: Type) -> str:
    fields = [f"    {part.c} f{number}" for number, part in enumerate(kind.parts)]
    parameters = ", ".join(f"{part.c} f{number}" for number, part in enumerate(kind.parts))
    lines = [f"cdef struct {kind.label}:", *fields, ""]
    lines.append(f"cdef inline {kind.label} make_{kind.label}({parameters}) noexcept nogil:")
    lines.append(f"    cdef {kind.label} made")
    lines += [f"    made.f{number} = f{number}" for number in range(len(kind.parts))]
    return "\n".join([*lines, "    return made"])


def _structs(sources: Sources) -> list[str]:
    """The classes of fields: a struct, and what reads one from a named tuple."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        fields = sources.fields(name)
        for kind in fields.values():
            if kind.kind == "struct" and kind.name not in done:
                add(kind.name)
        rows = [f"    {kind.name if kind.kind == 'struct' else kind.c} {field}" for field, kind in fields.items()]
        lines = [f"cdef struct {name}:", *rows, "", f"cdef int take_{name}(object row, {name}* into) except -1:"]
        lines += [f"    if not isinstance(row, tuple) or PyTuple_GET_SIZE(row) != {len(fields)}:"]
        lines += [f'        raise TypeError(f"a kernel wants a {name}, not {{type(row).__name__}}")']
        for number, (field, kind) in enumerate(fields.items()):
            item = f"<object>PyTuple_GET_ITEM(row, {number})"
            if kind.kind in ("array", "struct"):
                lines.append(f"    take_{kind.label}({item}, &into.{field})")
            else:
                lines.append(f"    into.{field} = {item}")
        done[name] = "\n".join([*lines, "    return 0"])

    for name in sorted(sources.structs):
        if name not in done:
            add(name)
    return list(done.values())


def _entry(function: Function) -> str:
    """What Python calls: it reads the arguments, and the kernel runs without the GIL, unless its thread keeps it."""
    parameters, reads, passed = [], [], []
    for name, kind in function.parameters.items():
        if kind.kind in ("array", "struct"):
            parameters.append(f"object {name}")
            reads += [f"    cdef {kind.label} c_{name}"]
            passed.append(f"&c_{name}" if kind.kind == "struct" else f"c_{name}")
        elif kind.kind == "tuple":
            parameters.append(f"tuple {name}")
            passed.append(f"make_{kind.label}({', '.join(f'p{n}_{name}' for n in range(len(kind.parts)))})")
            reads += [f"    cdef {part.c} p{n}_{name} = {name}[{n}]" for n, part in enumerate(kind.parts)]
        else:
            parameters.append(f"{kind.c} {name}")
            passed.append(name)
    lines = [f"def {function.c[:-1]}({', '.join(parameters)}):", *reads]
    returns = function.returns
    if returns != NONE:
        lines.append(f"    cdef {returns.c} result")
    for name, kind in function.parameters.items():
        if kind.kind in ("array", "struct"):
            lines.append(f"    take_{kind.label}({name}, &c_{name})")
    called = f"{function.c}({', '.join(passed)})"
    lines += ["    cdef PyThreadState* state = let_go()"]
    lines += [f"    {called if returns == NONE else 'result = ' + called}", "    take_back(state)"]
    if returns != NONE:
        lines.append(f"    return {_given('result', returns)}")
    return "\n".join(lines)


def _given(text: str, kind: Type) -> str:
    """A value as Python gets it."""
    if kind.kind != "tuple":
        return text
    return f"({', '.join(_given(f'{text}.f{number}', part) for number, part in enumerate(kind.parts))},)"
