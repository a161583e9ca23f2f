"""Expressions of kernels in Cython's words, each with its type, and the types of locals."""

from __future__ import annotations

import ast
from collections.abc import Callable

from compiler.sources import Function, Module, Sources
from compiler.types import BOOL, ELEMENTS, FLOAT, INT, WORD, KernelError, Type, common

OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=",
    ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
# Functions that C has, by what they are called in the sources: what they return.
BUILT_IN = {"first_bit": INT, "high_word": WORD}

Typed = tuple[str, Type]


class Expressions:
    """Translates the expressions of one function. `tuples` gets the types of tuples that it uses.

    `checked`: an index outside of its array ends the process and says where; else nobody looks, as in C.
    """

    def __init__(
        self, sources: Sources, module: Module, function: Function, tuples: set[Type], *, checked: bool = False
    ) -> None:
        self._sources, self._module, self._function, self._tuples = sources, module, function, tuples
        self._checked = checked
        self._locals: dict[str, Type] = {}
        self._temporary: dict[str, Type] = {}
        self._lines: list[str] = []
        self._depth = 1

    def _say(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def _c(self, kind: Type) -> str:
        if kind.kind == "tuple":
            self._tuples.add(kind)
            for part in kind.parts:
                self._c(part)
        return kind.c

    def _learn(self, name: str, kind: Type) -> None:
        """A local may be of this type."""
        given = self._function.parameters.get(name)
        if given is not None:
            if common(given, kind) != given:
                raise KernelError(f"{name} is {given.label} and gets {kind.label}")
        elif name not in self._temporary:
            self._locals[name] = common(self._locals.get(name, kind), kind)

    def _fresh(self, kind: Type) -> str:
        name = f"_{len(self._temporary)}"
        self._temporary[name] = kind
        return name

    def _keep(self, value: Typed) -> str:
        """A name for a value."""
        name = self._fresh(value[1])
        self._say(f"{name} = {value[0]}")
        return name

    def _as(self, node: ast.expr, wanted: Type) -> str:
        """An expression where this type is wanted. Raises `KernelError` where it is another."""
        if wanted.kind == "tuple" and isinstance(node, ast.Tuple):
            self._c(wanted)
            return f"make_{wanted.label}({', '.join(map(self._as, node.elts, wanted.parts))})"
        text, kind = self._value(node)
        if kind == wanted or ({kind, wanted} == {INT, WORD} and isinstance(node, ast.Constant)):
            return text
        if common(kind, wanted) != wanted:
            raise KernelError(f"{kind.label} where {wanted.label} is wanted")
        return text

    def _condition(self, node: ast.expr) -> str:
        text, kind = self._value(node)
        plain = isinstance(node, ast.Name | ast.Subscript | ast.Attribute)  # a byte of an array is no truth to Cython
        return text if kind == BOOL and not plain else f"({text} != 0)"

    def _least(self, kinds: list[Type]) -> Type:
        result = kinds[0]
        for kind in kinds[1:]:
            result = common(result, kind)
        return result

    def _value(self, node: ast.expr) -> Typed:
        read: Callable[..., Typed] | None = getattr(self, f"_read_{type(node).__name__}", None)
        if read is None:
            raise KernelError(f"there is no {type(node).__name__} in kernels")
        return read(node)

    def _read_Constant(self, node: ast.Constant) -> Typed:
        if isinstance(node.value, bool):
            return str(int(node.value)), BOOL
        if isinstance(node.value, int | float):
            return repr(node.value), INT if isinstance(node.value, int) else FLOAT
        raise KernelError("there are only numbers in kernels")

    def _read_Name(self, node: ast.Name) -> Typed:
        kind = self._function.parameters.get(node.id) or self._locals.get(node.id) or self._temporary.get(node.id)
        return (node.id, kind) if kind else self._constant(node)

    def _constant(self, node: ast.expr) -> Typed:
        value = self._sources.constant(self._module, node)
        where, name = self._sources.find(self._module, ast.unparse(node))
        made = where.values.get(name)
        if made is not None and ast.unparse(made).startswith("np.uint64"):
            return f"<unsigned long long>{value}", WORD
        return f"({value!r})", INT if isinstance(value, int) else FLOAT

    def _read_Attribute(self, node: ast.Attribute) -> Typed:
        if isinstance(node.value, ast.Name) and node.value.id in self._module.imports:
            return self._constant(node)
        text, kind = self._value(node.value)
        if kind.kind == "array" and node.attr == "size":
            return f"{text}.n0", INT
        if kind.kind != "struct":
            raise KernelError(f"{kind.label} has no {node.attr}")
        field = self._sources.fields(kind.name)[node.attr]
        return (f"(&{text}.{node.attr})" if field.kind == "struct" else f"{text}.{node.attr}"), field

    def _read_Subscript(self, node: ast.Subscript) -> Typed:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            return f"{self._value(node.value.value)[0]}.n{ast.unparse(node.slice)}", INT
        text, kind = self._value(node.value)
        if kind.kind == "tuple":
            number = int(ast.unparse(node.slice))
            return f"{text}.f{number}", kind.parts[number]
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        indices = [self._as(place, INT) for place in places]
        if kind.dimensions == 2 and len(indices) == 1:
            return self._row(text, kind, self._within(indices[0], f"{text}.n0", node))
        element = self._element(kind, len(indices))
        at, *further = [self._within(index, f"{text}.n{number}", node) for number, index in enumerate(indices)]
        for number, index in enumerate(further, 1):
            at = f"({at}) * {text}.n{number} + ({index})"
        return f"{text}.at[{at}]", element

    def _within(self, index: str, size: str, node: ast.AST, function: str = "index_of_array") -> str:
        """An index, or the end of a range, of an array of this size."""
        if not self._checked:
            return index
        return f'{function}({index}, {size}, b"{self._module.name}, line {getattr(node, "lineno", 0)}")'

    def _element(self, kind: Type, indices: int) -> Type:
        if kind.kind != "array" or kind.dimensions != indices:
            raise KernelError(f"{kind.label} with {indices} indices")
        return ELEMENTS[kind.name][2]

    def _row(self, text: str, kind: Type, index: str) -> Typed:
        if kind.dimensions != 2:
            raise KernelError(f"{kind.label} has no rows")
        return f"row_{kind.name}({text}, {index})", Type("array", kind.name, 1)

    def _read_BinOp(self, node: ast.BinOp) -> Typed:
        (left, one), (right, other) = self._value(node.left), self._value(node.right)
        if isinstance(node.op, ast.Div | ast.Pow):
            left, right = f"<double>({left})", f"<double>({right})"
            return (f"({left} / {right})" if isinstance(node.op, ast.Div) else f"math.pow({left}, {right})"), FLOAT
        if WORD in (one, other) and one != other:
            if not (isinstance(node.left, ast.Constant) or isinstance(node.right, ast.Constant)):
                raise KernelError("a word and an int: say np.uint64 or int")
            kind = WORD
        else:
            kind = common(common(one, other), INT) if one != WORD else WORD
        return f"({left} {OPERATORS[type(node.op)]} {right})", kind

    def _read_UnaryOp(self, node: ast.UnaryOp) -> Typed:
        if isinstance(node.op, ast.Not):
            return f"(not {self._condition(node.operand)})", BOOL
        text, kind = self._value(node.operand)
        return f"({'~' if isinstance(node.op, ast.Invert) else '-'}{text})", kind

    def _read_BoolOp(self, node: ast.BoolOp) -> Typed:
        word = " and " if isinstance(node.op, ast.And) else " or "
        return f"({word.join(map(self._condition, node.values))})", BOOL

    def _read_Compare(self, node: ast.Compare) -> Typed:
        text, left = "", self._value(node.left)[0]
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, ast.In | ast.NotIn):
                assert isinstance(right, ast.Tuple) and not text
                same = " or ".join(f"{left} == {self._value(part)[0]}" for part in right.elts)
                return (f"({same})" if isinstance(operator, ast.In) else f"(not ({same}))"), BOOL
            text += f" {OPERATORS[type(operator)]} {self._value(right)[0]}"
        return f"({left}{text})", BOOL

    def _read_IfExp(self, node: ast.IfExp) -> Typed:
        (yes, one), (no, other) = self._value(node.body), self._value(node.orelse)
        kind = common(one, other)
        cast = f"<{kind.c}>"
        return f"({cast}({yes}) if {self._condition(node.test)} else {cast}({no}))", kind

    def _read_Tuple(self, node: ast.Tuple) -> Typed:
        kind = Type("tuple", parts=tuple(self._value(part)[1] for part in node.elts))
        return self._as(node, kind), kind

    def _read_Call(self, node: ast.Call) -> Typed:
        name = ast.unparse(node.func)
        function = self._sources.function(self._module, name)
        if function is not None:
            if len(node.args) != len(function.parameters) or node.keywords:
                raise KernelError(f"{name} takes {len(function.parameters)} arguments, by place")
            arguments = map(self._as, node.args, function.parameters.values())
            return f"{function.c}({', '.join(arguments)})", function.returns
        if name in ("min", "max"):
            return self._extreme(name, node.args)
        values = [self._value(part) for part in node.args]
        texts = ", ".join(text for text, _ in values)
        if name in BUILT_IN:
            return f"{name}({texts})", BUILT_IN[name]
        if name.startswith("math.") or name == "np.rint":
            result = BOOL if name == "math.isfinite" else FLOAT
            return f"math.{name.partition('.')[2]}({texts})", result
        if name == "abs" and values[0][1] == FLOAT:
            return f"math.fabs({texts})", FLOAT
        cast = {"float": FLOAT, "int": INT, "bool": BOOL, "np.uint64": WORD}.get(name)
        if cast is None:
            raise KernelError(f"kernels cannot call {name}: it has no mark, or is none of theirs")
        return (f"({texts} != 0)" if cast == BOOL and values[0][1] != BOOL else f"(<{cast.c}>({texts}))"), cast

    def _extreme(self, name: str, arguments: list[ast.expr]) -> Typed:
        text, kind = self._value(arguments[0])
        for part in arguments[1:]:
            other, more = self._value(part)
            kind = common(common(kind, more), INT)
            text = f"{name}_{kind.label}({text}, {other})"
        return text, kind
