"""Random well-typed Relay programs as text, with arguments that they accept.

The generator knows the type that Relay sees (dims may be `?` or `?n`) and the actual size of every axis, so it may
narrow and widen wherever the actual sizes agree: a program never fails. Conditions are made of integers only, so
rounding can't change the path; floats stay small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

INTS = ("int32", "int64", "int8", "uint8")
FLOATS = ("float16", "float32", "float64")

T = TypeVar("T")


@dataclass(frozen=True)
class Tensor:
    """dtype, the dims as written ("3", "?", "?n") and the actual sizes."""

    dtype: str
    dims: tuple[str, ...]
    sizes: tuple[int, ...]

    def text(self) -> str:
        return f"Tensor[({', '.join(self.dims)}), {self.dtype}]" if self.dims else self.dtype


@dataclass(frozen=True)
class Pair:
    left: Type
    right: Type

    def text(self) -> str:
        return f"({self.left.text()}, {self.right.text()})"


@dataclass(frozen=True)
class Fn:
    """A function of one argument or of none."""

    arg: Type | None
    result: Type

    def text(self) -> str:
        return f"fn ({self.arg.text() if self.arg else ''}) -> {self.result.text()}"


@dataclass(frozen=True)
class Ref:
    value: Type

    def text(self) -> str:
        return f"ref({self.value.text()})"


@dataclass(frozen=True)
class Lst:
    """Seq[element]; values have 0 to 3 cells."""

    element: Type

    def text(self) -> str:
        return f"Seq[{self.element.text()}]"


Type = Tensor | Pair | Fn | Ref | Lst

PRELUDE = """type Seq[A] {
  Nil,
  Cons(A, Seq[A]),
}
"""


@dataclass(frozen=True)
class Program:
    """`text` and the arguments of main."""

    text: str
    args: tuple[np.ndarray, ...]


@dataclass
class Generator:
    draw: st.DrawFn
    named: dict[str, int] = field(default_factory=dict)
    scope: list[tuple[str, Type]] = field(default_factory=list)
    counter: int = 0
    budget: int = 40

    def name(self, prefix: str = "v") -> str:
        self.counter += 1
        return f"%{prefix}{self.counter}"

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    # --- types ---------------------------------------------------------------------------------

    def dim(self) -> tuple[str, int]:
        kind = self.integer(0, 3)
        if kind == 0 and self.named:
            name = self.pick(sorted(self.named))
            return f"?{name}", self.named[name]
        size = self.integer(0, 3)
        return ("?" if kind == 1 else str(size)), size

    def tensor(self, max_rank: int = 2, dtypes: tuple[str, ...] = (*INTS, *FLOATS)) -> Tensor:
        axes = [self.dim() for _ in range(self.integer(0, max_rank))]
        return Tensor(self.pick(dtypes), tuple(d for d, _ in axes), tuple(s for _, s in axes))

    def type(self, depth: int) -> Type:
        if depth <= 0:
            return self.tensor()
        match self.integer(0, 7):
            case 0:
                return Pair(self.type(depth - 1), self.type(depth - 1))
            case 1:
                return Lst(self.tensor(1))
            case 2:
                return Fn(self.tensor(1), self.type(depth - 1))
            case 3:
                return Ref(self.tensor(1))
        return self.tensor()

    # --- expressions ---------------------------------------------------------------------------

    def fits(self, have: Type, want: Type) -> bool:
        """May a value of `have` stand where `want` is expected?"""
        if isinstance(have, Tensor) and isinstance(want, Tensor):
            return have.dtype == want.dtype and have.sizes == want.sizes
        if isinstance(have, Pair) and isinstance(want, Pair):
            return self.fits(have.left, want.left) and self.fits(have.right, want.right)
        return have == want

    def expr(self, want: Type, depth: int) -> str:
        """An expression of type `want` (or one that flows into it), closed over the scope."""
        self.budget -= 1
        if depth > 0 and self.budget > 0:
            match self.integer(0, 9):
                case 0 | 1:
                    return self.let(want, depth)
                case 2:
                    cond = self.condition(depth - 1)
                    then, other = self.block(want, depth - 1), self.block(want, depth - 1)
                    return f"if ({cond}) {then} else {other}"
                case 3:
                    return self.call(want, depth)
                case 4:
                    return self.loop(want, depth)
                case 5:
                    return self.matching(want, depth)
                case 6:
                    return self.cell(want, depth)
                case 7:
                    return self.projection(want, depth)
        return self.simple(want, depth - 1)

    def block(self, want: Type, depth: int) -> str:
        """{ expr } in a scope of its own."""
        mark = len(self.scope)
        text = "{ " + self.expr(want, depth) + " }"
        del self.scope[mark:]
        return text

    def operand(self, want: Type, depth: int) -> str:
        """An expression that can be an operand; what is none is wrapped in a function that is called at once."""
        mark = len(self.scope)
        text = self.expr(want, depth)
        del self.scope[mark:]
        if text.startswith(("let ", "if ", "match ")):
            return f"(fn () {{ {text} }})()"
        return text

    def let(self, want: Type, depth: int) -> str:
        type_ = self.type(1)
        value = self.operand(type_, depth - 1)
        name = self.name()
        note = f": {type_.text()}" if self.integer(0, 1) else ""
        # Without a note the variable has the value's own type, which the generator knows only up to sizes.
        self.scope.append((name, type_ if note else self.blurred(type_)))
        return f"let {name}{note} = {value};\n{self.expr(want, depth - 1)}"

    def blurred(self, type_: Type) -> Type:
        """The type with dims that are not known to be static any more written `?`."""
        if isinstance(type_, Tensor):
            return Tensor(type_.dtype, tuple("?" for _ in type_.dims), type_.sizes)
        if isinstance(type_, Pair):
            return Pair(self.blurred(type_.left), self.blurred(type_.right))
        return type_

    def condition(self, depth: int) -> str:
        scalar = Tensor(self.pick(INTS), (), ())
        op = self.pick(("less", "equal", "less_equal", "not_equal", "greater"))
        return f"{op}({self.operand(scalar, depth)}, {self.operand(scalar, depth)})"

    def call(self, want: Type, depth: int) -> str:
        arg = self.type(1)
        param = self.name("p")
        value = self.operand(arg, depth - 1)
        self.scope.append((param, arg))
        body = self.block(want, depth - 1)
        self.scope.pop()
        function = self.name("f")
        result = f" -> {want.text()}" if self.integer(0, 1) else ""
        return f"let {function} = fn ({param}: {arg.text()}){result} {body};\n{function}({value})"

    def loop(self, want: Type, depth: int) -> str:
        """Recursion with fuel: a tail call, or (for tensors) a sum over the turns."""
        loop, fuel, state = self.name("loop"), self.name("k"), self.name("s")
        start = self.operand(want, depth - 1)
        self.scope += [(fuel, Tensor("int32", (), ())), (state, want)]
        step = self.operand(want, depth - 1)
        turn = f"{loop}({fuel} - 1, {step})"
        if isinstance(want, Tensor) and want.dtype != "bool" and self.integer(0, 1):
            turn = f"maximum({state}, {turn})"
        del self.scope[-2:]
        note = want.text()
        return (
            f"let {loop} = fn ({fuel}: int32, {state}: {note}) -> {note} {{\n"
            f"if (less_equal({fuel}, 0)) {{ {state} }} else {{ {turn} }} }};\n"
            f"{loop}({self.integer(0, 3)}, {start})"
        )

    def matching(self, want: Type, depth: int) -> str:
        element = self.tensor(1)
        data = self.operand(Lst(element), depth - 1)
        nil = self.block(want, depth - 1)
        head, tail = self.name("h"), self.name("t")
        self.scope += [(head, element), (tail, Lst(element))]
        cons = self.block(want, depth - 1)
        del self.scope[-2:]
        arms = [f"Nil => {nil}", f"Cons({head}, {tail}) => {cons}"]
        if self.integer(0, 1):
            arms.insert(1, f"Cons(_, Nil) => {self.block(want, depth - 1)}")
        return f"match ({data}) {{\n" + "".join(f"{arm},\n" for arm in arms) + "}"

    def cell(self, want: Type, depth: int) -> str:
        type_ = self.tensor(1)
        name, first = self.name("r"), self.operand(type_, depth - 1)
        note = f": {Ref(type_).text()}"
        self.scope.append((name, Ref(type_)))
        text = f"let {name}{note} = ref({first});\n"
        if self.integer(0, 1):
            text += f"let {self.name('u')} = ref_write({name}, {self.operand(type_, depth - 1)});\n"
        read = self.name()
        self.scope.append((read, type_))
        return (
            text + f"let {read}: {type_.text()} = ref_read({name});\n{self.expr(want, depth - 1)}"
        )

    def projection(self, want: Type, depth: int) -> str:
        other = self.operand(self.tensor(1), depth - 1)
        value = self.operand(want, depth - 1)
        pair = self.name("q")
        if self.integer(0, 1):
            return f"let {pair} = ({value}, {other});\n{pair}.0"
        return f"let {pair} = ({other}, {value});\n{pair}.1"

    # --- leaves and operators --------------------------------------------------------------------

    def simple(self, want: Type, depth: int) -> str:
        usable = [name for name, type_ in self.scope if self.fits(type_, want)]
        if usable and (depth <= 0 or self.integer(0, 2)):
            return self.pick(usable)
        match want:
            case Tensor():
                return self.tensor_expr(want, depth)
            case Pair(left, right):
                return f"({self.operand(left, depth - 1)}, {self.operand(right, depth - 1)})"
            case Ref(value):
                return f"ref({self.exact(value, depth)})"
            case Lst(element):
                text = f"(fn () -> {want.text()} {{ Nil }})()"  # Nil alone has no element type
                for _ in range(self.integer(0, 3)):
                    text = f"Cons({self.exact(element, depth - 1)}, {text})"
                return text
            case Fn(arg, result):
                if arg is None:
                    return f"fn () -> {result.text()} {self.block(result, depth - 1)}"
                return self.function_of(arg, result, depth)
        raise TypeError(want)

    def function_of(self, arg: Type, result: Type, depth: int) -> str:
        param = self.name("p")
        self.scope.append((param, arg))
        body = self.block(result, depth - 1)
        self.scope.pop()
        return f"fn ({param}: {arg.text()}) -> {result.text()} {body}"

    def exact(self, want: Type, depth: int) -> str:
        """An operand whose own type is `want`: bound with a note, so that containers are not typed by accident."""
        return f"(fn () -> {want.text()} {{ {self.operand(want, depth)} }})()"

    def tensor_expr(self, want: Tensor, depth: int) -> str:
        if depth <= 0 or self.budget <= 0:
            return self.literal(want)
        self.budget -= 1
        rank = len(want.sizes)
        options = ["binary", "binary", "scalar", "literal", "select"]
        if want.dtype in FLOATS:
            options += ["unary", "unary", "cast"]
        if rank == 1:
            options += ["concatenate", "reshape", "split"]
        if rank == 2 and want.dtype in FLOATS:
            options += ["dense"]
        if rank >= 1:
            options += ["take"]
        if rank <= 1:
            options += ["sum"]
        return getattr(self, "op_" + self.pick(options))(want, depth - 1)

    def literal(self, want: Tensor) -> str:
        value = self.integer(0, 5)
        if want.dtype in FLOATS:
            bits = want.dtype[5:]
            scalar = f"{value / 4}f{bits}"
        else:
            scalar = f'cast({value}, dtype="{want.dtype}")' if want.dtype != "int32" else str(value)
        if not want.sizes:
            return scalar
        return f'full({scalar}, shape={list(want.sizes)}, dtype="{want.dtype}")'

    def op_literal(self, want: Tensor, depth: int) -> str:
        return self.literal(want)

    def op_binary(self, want: Tensor, depth: int) -> str:
        op = self.pick(("add", "subtract", "multiply", "maximum", "minimum"))
        if op == "multiply" and want.dtype in FLOATS:
            return f"multiply({self.operand(want, depth)}, tanh({self.operand(want, depth)}))"
        return f"{op}({self.operand(want, depth)}, {self.operand(want, depth)})"

    def op_scalar(self, want: Tensor, depth: int) -> str:
        scalar = Tensor(want.dtype, (), ())
        return f"maximum({self.operand(want, depth)}, {self.operand(scalar, depth)})"

    def op_select(self, want: Tensor, depth: int) -> str:
        return f"where({self.condition(depth)}, {self.operand(want, depth)}, {self.operand(want, depth)})"

    def op_unary(self, want: Tensor, depth: int) -> str:
        return f"{self.pick(('tanh', 'sigmoid', 'negative', 'abs'))}({self.operand(want, depth)})"

    def op_cast(self, want: Tensor, depth: int) -> str:
        other = Tensor(self.pick(INTS), want.dims, want.sizes)
        return f'tanh(cast({self.operand(other, depth)}, dtype="{want.dtype}"))'

    def op_concatenate(self, want: Tensor, depth: int) -> str:
        left = self.integer(0, want.sizes[0])
        parts = [self.unknown(want.dtype, (size,)) for size in (left, want.sizes[0] - left)]
        return f"concatenate(({self.operand(parts[0], depth)}, {self.operand(parts[1], depth)}), axis=0)"

    def op_reshape(self, want: Tensor, depth: int) -> str:
        size = want.sizes[0]
        source = self.unknown(want.dtype, (1, size) if self.integer(0, 1) else (size, 1))
        return f"reshape({self.operand(source, depth)}, newshape=[-1])"

    def op_split(self, want: Tensor, depth: int) -> str:
        size = want.sizes[0]
        source = Tensor(want.dtype, (str(2 * size),), (2 * size,))
        pair = self.name("q")
        which = self.integer(0, 1)
        value = self.exact(source, depth)
        return f"(fn () {{ let {pair} = split({value}, indices_or_sections=2, axis=0); {pair}.{which} }})()"

    def op_dense(self, want: Tensor, depth: int) -> str:
        inner = self.integer(0, 3)
        left = self.unknown(want.dtype, (want.sizes[0], inner))
        right = self.unknown(want.dtype, (want.sizes[1], inner))
        return f"tanh(nn.dense({self.operand(left, depth)}, {self.operand(right, depth)}))"

    def op_take(self, want: Tensor, depth: int) -> str:
        """Rows of a tensor with at least one row; indices are clipped."""
        source = self.unknown(want.dtype, (self.integer(1, 3), *want.sizes[1:]))
        index = self.unknown(self.pick(("int32", "int64")), want.sizes[:1])
        return f"take({self.operand(source, depth)}, {self.operand(index, depth)}, axis=0)"

    def op_sum(self, want: Tensor, depth: int) -> str:
        source = self.unknown(want.dtype, (*want.sizes, self.integer(0, 3)))
        total = f"sum({self.operand(source, depth)}, axis=[{len(want.sizes)}])"
        return f"tanh({total})" if want.dtype in FLOATS else total

    def unknown(self, dtype: str, sizes: tuple[int, ...]) -> Tensor:
        dims = tuple("?" if self.integer(0, 1) else str(s) for s in sizes)
        return Tensor(dtype, dims, sizes)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A program with 1 to 3 parameters, its named dims n and m bound by them, and arguments."""
    gen = Generator(draw)
    gen.named = {"n": gen.integer(0, 3), "m": gen.integer(1, 3)}
    binder = Tensor("float32", ("?n", "?m"), (gen.named["n"], gen.named["m"]))
    params = [("%x", binder)]
    params += [(f"%a{i}", gen.tensor()) for i in range(gen.integer(0, 2))]
    gen.scope += params
    result = gen.type(1)
    while not returnable(result):
        result = gen.type(1)
    body = gen.expr(result, 4)
    declared = ", ".join(f"{n}: {t.text()}" for n, t in params)
    text = f'#[version = "0.0.5"]\n{PRELUDE}\ndef @main({declared}) {{\n{body}\n}}\n'
    rng = np.random.default_rng(gen.integer(0, 2**32 - 1))
    return Program(text, tuple(value_of(t, rng) for _, t in params))


def returnable(type_: Type) -> bool:
    match type_:
        case Tensor():
            return True
        case Pair(left, right):
            return returnable(left) and returnable(right)
        case Lst():
            return True
    return False


def value_of(type_: Type, rng: np.random.Generator) -> np.ndarray:
    assert isinstance(type_, Tensor)
    if type_.dtype in FLOATS:
        return np.asarray(rng.uniform(-1, 1, type_.sizes), type_.dtype)
    if type_.dtype == "bool":
        return np.asarray(rng.integers(0, 2, type_.sizes), "bool")
    low = 0 if type_.dtype.startswith("u") else -5
    return np.asarray(rng.integers(low, 6, type_.sizes), type_.dtype)
