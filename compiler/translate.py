"""One kernel in Cython's words: the types of its locals, its statements and expressions.

Every expression is translated together with its type. A first pass over the statements, repeated until nothing changes,
finds the types of locals; the last pass writes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from compiler.expressions import OPERATORS, Expressions, Typed
from compiler.types import BOOL, INT, KernelError, Type


class Translator(Expressions):
    """Translates one function."""

    def translate(self) -> str:
        """The function. Raises `KernelError` that says where."""
        for _ in range(8):  # a type that is known from a later statement only is known in the next pass
            before = dict(self._locals)
            self._pass()
            if self._locals == before:
                break
        return "\n".join([*self._head(), *self._lines, ""])

    def _pass(self) -> None:
        self._lines, self._temporary = [], {}
        for statement in self._function.node.body:
            self._statement(statement)

    def _head(self) -> list[str]:
        function = self._function
        parameters = ", ".join(f"{kind.c} {name}" for name, kind in function.parameters.items())
        head = [f"cdef inline {self._c(function.returns)} {function.c}({parameters}) noexcept nogil:"]
        head += [f"    cdef {self._c(kind)} {name}" for name, kind in (self._locals | self._temporary).items()]
        return [*head, *(["    pass"] if not self._lines else [])]

    # -- statements --

    def _block(self, statements: Iterable[ast.stmt]) -> None:
        self._depth += 1
        before = len(self._lines)
        for statement in statements:
            self._statement(statement)
        if len(self._lines) == before:
            self._say("pass")
        self._depth -= 1

    def _statement(self, node: ast.stmt) -> None:
        write: Callable[..., None] | None = getattr(self, f"_write_{type(node).__name__}", None)
        if write is None:
            raise self._wrong(node, f"there is no {type(node).__name__} in kernels")
        try:
            write(node)
        except KernelError as error:
            raise error if ", line " in str(error) else self._wrong(node, str(error)) from error

    def _wrong(self, node: ast.AST, why: str) -> KernelError:
        line = getattr(node, "lineno", 0)
        return KernelError(f"{self._module.name}, line {line}: {why}: {ast.unparse(node).splitlines()[0]}")

    def _write_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self._say(self._value(node.value)[0])

    def _write_Break(self, _: ast.Break) -> None:
        self._say("break")

    def _write_Continue(self, _: ast.Continue) -> None:
        self._say("continue")

    def _write_Pass(self, _: ast.Pass) -> None:
        self._say("pass")

    def _write_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._say("return")
        elif self._chooses(node.value):
            self._branch(node.value, lambda value: ast.Return(value))
        else:
            self._say(f"return {self._as(node.value, self._function.returns)}")

    def _write_If(self, node: ast.If) -> None:
        self._say(f"if {self._condition(node.test)}:")
        self._block(node.body)
        if node.orelse:
            self._say("else:")
            self._block(node.orelse)

    def _write_While(self, node: ast.While) -> None:
        self._say(f"while {self._condition(node.test)}:")
        self._block(node.body)

    def _write_For(self, node: ast.For) -> None:
        name = self._fresh(INT) if ast.unparse(node.target) == "_" else ast.unparse(node.target)
        over = node.iter
        if isinstance(over, ast.Call) and ast.unparse(over.func) == "range":
            self._learn(name, INT)
            self._say(f"for {name} in range({', '.join(self._as(part, INT) for part in over.args)}):")
            self._block(node.body)
            return
        place = self._fresh(INT)
        if isinstance(over, ast.Tuple):
            values = [self._value(part) for part in over.elts]
            self._learn(name, self._least([kind for _, kind in values]))
            kept = [self._keep(value) for value in values]
            self._say(f"for {place} in range({len(kept)}):")
            chosen = kept[-1]
            for number in range(len(kept) - 2, -1, -1):
                chosen = f"({kept[number]} if {place} == {number} else {chosen})"
            self._depth += 1
            self._say(f"{name} = {chosen}")
        else:
            array, kind = self._value(over)
            element = self._element(kind, 1)
            self._learn(name, element)
            self._say(f"for {place} in range({array}.n0):")
            self._depth += 1
            self._say(f"{name} = {array}.at[{place}]")
        self._depth -= 1
        self._block(node.body)

    def _write_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._learn(ast.unparse(node.target), self._sources.type_of(self._module, node.annotation))
        if node.value is not None:
            self._assign(node.target, self._value(node.value))

    def _write_AugAssign(self, node: ast.AugAssign) -> None:
        target, kind = self._value(node.target)
        result, _ = self._value(ast.BinOp(node.target, node.op, node.value))
        operator = OPERATORS.get(type(node.op))
        if isinstance(node.target, ast.Name):
            self._learn(target, self._value(ast.BinOp(node.target, node.op, node.value))[1])
            self._say(f"{target} = {result}")
        elif operator is None or kind == BOOL:
            self._say(f"{target} = {result}")
        else:
            self._say(f"{target} {operator}= {self._value(node.value)[0]}")

    def _write_Assign(self, node: ast.Assign) -> None:
        if self._chooses(node.value):
            self._branch(node.value, lambda value: ast.Assign(node.targets, value))
            return
        first = node.targets[0]
        if len(node.targets) == 1 and isinstance(first, ast.Tuple) and isinstance(node.value, ast.Tuple):
            values = [self._value(part) for part in node.value.elts]
            if not self._apart(first.elts, node.value.elts):
                values = [(self._keep(value), value[1]) for value in values]
            for target, value in zip(first.elts, values, strict=True):
                self._assign(target, value)
            return
        value = self._value(node.value)
        if len(node.targets) > 1:
            value = self._keep(value), value[1]
        for target in node.targets:
            self._assign(target, value)

    @staticmethod
    def _apart(targets: list[ast.expr], values: list[ast.expr]) -> bool:
        """Whether no value could be changed by the assignments before it: all go to names that no value has."""
        names = {ast.unparse(target) for target in targets}
        plain = all(isinstance(target, ast.Name) for target in targets)
        return plain and not any(
            (isinstance(part, ast.Name) and part.id in names) or isinstance(part, ast.Call)
            for value in values[1:]
            for part in ast.walk(value)
        )

    def _assign(self, target: ast.expr, value: Typed) -> None:
        text, kind = value
        if isinstance(target, ast.Tuple):
            if kind.kind != "tuple":
                raise KernelError(f"{kind.label} has no parts")
            kept = self._keep(value)
            for number, (part, inner) in enumerate(zip(target.elts, kind.parts, strict=True)):
                if ast.unparse(part) != "_":
                    self._assign(part, (f"{kept}.f{number}", inner))
        elif isinstance(target, ast.Name):
            self._learn(target.id, kind)
            self._say(f"{target.id} = {text}")
        elif isinstance(target, ast.Subscript) and self._slices(target):
            self._fill(target, text)
        else:
            self._say(f"{self._value(target)[0]} = {text}")

    @staticmethod
    def _slices(node: ast.Subscript) -> bool:
        return any(isinstance(part, ast.Slice) for part in ast.walk(node.slice))

    def _fill(self, target: ast.Subscript, text: str) -> None:
        """Set a part of an array to a value."""
        array, kind = self._value(target.value)
        part = target.slice
        if isinstance(part, ast.Tuple):
            row, part = part.elts
            array, kind = self._row(array, kind, self._within(self._as(row, INT), f"{array}.n0", target))
        assert isinstance(part, ast.Slice)
        start = self._end(part.lower, array, target) if part.lower else "0"
        stop = self._end(part.upper, array, target) if part.upper else f"{array}.n0"
        self._say(f"fill_{kind.label}({array}, {start}, {stop}, {text})")

    def _end(self, node: ast.expr, array: str, target: ast.AST) -> str:
        return self._within(self._as(node, INT), f"{array}.n0", target, "end_in_array")

    def _chooses(self, node: ast.expr) -> bool:
        """Whether a value is one of two that are no scalars."""
        return isinstance(node, ast.IfExp) and self._kind(node.body).kind in ("tuple", "array", "struct")

    def _branch(self, node: ast.expr, make: Callable[[ast.expr], ast.stmt]) -> None:
        assert isinstance(node, ast.IfExp)
        branch = ast.If(node.test, [make(node.body)], [make(node.orelse)])
        self._statement(ast.fix_missing_locations(ast.copy_location(branch, node)))

    def _kind(self, node: ast.expr) -> Type:
        if isinstance(node, ast.Tuple):
            return Type("tuple")
        return self._value(node)[1]
