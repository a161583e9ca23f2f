"""What the modules with kernels define: constants, classes of fields, functions, and what they import of each other."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass, field
from pathlib import Path

from compiler.types import ANNOTATIONS, KernelError, Type

MARKS = ("kernel", "inlined")


@dataclass
class Function:
    """A kernel: its parameters and what it returns."""

    module: str
    node: ast.FunctionDef
    parameters: dict[str, Type]
    returns: Type

    @property
    def c(self) -> str:
        """Its name in the joined module."""
        return f"{self.module}__{self.node.name}_"

    @property
    def entered(self) -> bool:
        """Whether Python calls it."""
        return any(ast.unparse(mark) == "kernel" for mark in self.node.decorator_list)


@dataclass
class Module:
    """A file, as far as kernels use it."""

    name: str
    tree: ast.Module
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)  # name here: module, name there ('' for itself)
    values: dict[str, ast.expr] = field(default_factory=dict)  # what is assigned to names
    ranges: dict[str, tuple[ast.expr, int]] = field(default_factory=dict)  # names that get an element
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)


class Sources:
    """All modules of the package, read when they are asked for. `folder` is the one that holds the package."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.module = functools.cache(self._read)
        self.fields = functools.cache(self._fields)
        self.structs: dict[str, str] = {}
        """The modules of the classes of fields that are used."""
        self.files: set[Path] = set()
        """The files that were read."""

    def path(self, name: str) -> Path:
        """The file of a module."""
        return self._folder / Path(*name.split(".")).with_suffix(".py")

    def _read(self, name: str) -> Module:
        self.files.add(self.path(name))
        module = Module(name, ast.parse(self.path(name).read_text()))
        for node in module.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for alias in node.names:
                    inner = self.path(f"{node.module}.{alias.name}").exists()
                    there = (f"{node.module}.{alias.name}", "") if inner else (node.module, alias.name)
                    module.imports[alias.asname or alias.name] = there
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                module.values[ast.unparse(node.target)] = node.value
            elif isinstance(node, ast.Assign):
                self._note(module, node.targets[0], node.value)
            elif isinstance(node, ast.ClassDef):
                module.classes[node.name] = node
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef) and {ast.unparse(m) for m in node.decorator_list} & set(MARKS):
                self._take(module, node)
        return module

    @staticmethod
    def _note(module: Module, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple):
            for number, part in enumerate(target.elts):
                module.ranges[ast.unparse(part)] = value, number
        else:
            module.values[ast.unparse(target)] = value

    def _take(self, module: Module, node: ast.FunctionDef) -> None:
        parameters = {}
        for argument in node.args.args:
            if argument.annotation is None:
                raise KernelError(f"{module.name}.{node.name}: {argument.arg} needs a type")
            parameters[argument.arg] = self.type_of(module, argument.annotation)
        if node.returns is None:
            raise KernelError(f"{module.name}.{node.name}: say what it returns")
        returns = self.type_of(module, node.returns)
        module.functions[node.name] = Function(module.name.rpartition(".")[2], node, parameters, returns)

    def type_of(self, module: Module, annotation: ast.expr) -> Type:
        """What an annotation means. Raises `KernelError` for what kernels have not."""
        text = ast.unparse(annotation)
        if text in ANNOTATIONS:
            return ANNOTATIONS[text]
        if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "tuple":
            assert isinstance(annotation.slice, ast.Tuple)
            return Type("tuple", parts=tuple(self.type_of(module, part) for part in annotation.slice.elts))
        where, name = self.find(module, text)
        if name in where.classes:
            self.structs[name] = where.name
            return Type("struct", name)
        if name in where.values:
            return self.type_of(where, where.values[name])
        raise KernelError(f"{module.name}: kernels know no type {text}")

    def find(self, module: Module, name: str) -> tuple[Module, str]:
        """Where a name is defined, and what it is called there."""
        while name in module.imports:
            source, there = module.imports[name]
            if not there or not source.startswith("millrace."):
                break
            module, name = self.module(source), there
        return module, name

    def function(self, module: Module, name: str) -> Function | None:
        """The kernel that a name means, if it is one."""
        where, there = self.find(module, name)
        return where.functions.get(there)

    def _fields(self, name: str) -> dict[str, Type]:
        """The fields of a class."""
        module = self.module(self.structs[name])
        rows = [part for part in module.classes[name].body if isinstance(part, ast.AnnAssign)]
        return {ast.unparse(part.target): self.type_of(module, part.annotation) for part in rows}

    def constant(self, module: Module, node: ast.expr) -> int | float:
        """The value of a constant, or of arithmetic with constants. Raises `KernelError` where it is none."""
        text, known = ast.unparse(node), {}
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id not in ("range", "float", "int", "np"):
                known[part.id] = self._value(module, part.id)
        found = eval(compile(ast.Expression(node), text, "eval"), {"__builtins__": {}}, {**known, **_TOOLS})
        if not isinstance(found, int | float):
            raise KernelError(f"{module.name}: {text} is no number")
        return found

    def _value(self, module: Module, name: str) -> object:
        where, there = self.find(module, name)
        if there in where.imports:
            return _Space(self, self.module(where.imports[there][0]))
        if there in where.values:
            return self.constant(where, where.values[there])
        if there in where.ranges:
            value, number = where.ranges[there]
            if isinstance(value, ast.Tuple):
                return self.constant(where, value.elts[number])
            arguments = value.args if isinstance(value, ast.Call) else []
            return range(*[int(self.constant(where, part)) for part in arguments])[number]
        raise KernelError(f"{module.name}: {name} is no constant")


class _Space:
    """A module whose constants are attributes."""

    def __init__(self, sources: Sources, module: Module) -> None:
        self._sources, self._module = sources, module

    def __getattr__(self, name: str) -> object:
        return self._sources._value(self._module, name)


class _Numbers:
    uint64 = int


_TOOLS = {"np": _Numbers, "float": float, "int": int}
