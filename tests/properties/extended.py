"""More of the language than programs.py: shared graph nodes, effects, generics, mutual recursion, closures in data types,
further operators and dtypes, and (if asked for) what may fail at run time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tests.properties import programs
from tests.properties.programs import (
    FLOATS,
    Fn,
    Generator,
    Lst,
    Pair,
    Program,
    Ref,
    Tensor,
    Type,
    returnable,
    value_of,
)

INT_SCALAR = Tensor("int32", (), ())
NOT_OPERANDS = re.compile(r"let |if |match\??|%\d+ = ")

PRELUDE = (
    programs.PRELUDE
    + """type Box[A] {
  Full(A, fn () -> A),
  Empty,
}
def @ident[A](%x: A) -> A { %x }
def @choose[A](%c: bool, %x: A, %y: A) -> A { if (%c) { %x } else { %y } }
def @twice[A](%f: fn (A) -> A, %x: A) -> A { %f(%f(%x)) }
def @swap[A, B](%p: (A, B)) -> (B, A) { (%p.1, %p.0) }
def @later[A](%x: A) -> fn () -> A { fn () -> A { %x } }
def @open[A](%b: Box[A], %x: A) -> A {
  match (%b) {
    Full(_, %f) => { %f() },
    Empty => { %x },
  }
}
def @ping[A](%n: int32, %x: A, %y: A) -> A { if (less_equal(%n, 0)) { %x } else { @pong(%n - 1, %y, %x) } }
def @pong[A](%n: int32, %x: A, %y: A) -> A { if (less_equal(%n, 0)) { %y } else { @ping(%n - 1, %x, %y) } }
def @bump(%r: ref(int32)) -> int32 {
  let %u = ref_write(%r, ref_read(%r) * 3 + 1);
  ref_read(%r)
}
"""
)


@dataclass
class Extended(Generator):
    """`failing`: programs may raise at run time."""

    failing: bool = False

    def tensor(
        self, max_rank: int = 2, dtypes: tuple[str, ...] = (*programs.INTS, *FLOATS, "bool")
    ) -> Tensor:
        return super().tensor(max_rank, dtypes)

    def operand(self, want: Type, depth: int) -> str:
        mark = len(self.scope)
        text = self.expr(want, depth)
        del self.scope[mark:]
        return f"(fn () {{ {text} }})()" if NOT_OPERANDS.match(text) else text

    def expr(self, want: Type, depth: int) -> str:
        if depth <= 0 or self.budget <= 0 or self.integer(0, 1):
            return super().expr(want, depth)
        self.budget -= 1
        options = [
            "shared",
            "shared",
            "write",
            "counted",
            "generic",
            "generic",
            "boxed",
            "deep_match",
        ]
        if self.failing:
            options += ["incomplete", "narrowed"]
        return getattr(self, self.pick(options))(want, depth)

    # --- sharing and effects -----------------------------------------------------------------------

    def shared(self, want: Type, depth: int) -> str:
        """%7 = value; body: the value runs where its uses say, perhaps nowhere."""
        type_ = self.type(1)
        value = self.operand(type_, depth - 1)
        self.counter += 1
        name = f"%{self.counter}"
        self.scope.append((name, self.blurred(type_)))
        return f"{name} = {value};\n{self.expr(want, depth - 1)}"

    def refs(self) -> list[tuple[str, Ref]]:
        return [(name, type_) for name, type_ in self.scope if isinstance(type_, Ref)]

    def write(self, want: Type, depth: int) -> str:
        found = self.refs()
        if not found:
            return self.cell(want, depth)
        name, ref = self.pick(found)
        value = self.exact(ref.value, depth - 1)
        return f"let {self.name('u')} = ref_write({name}, {value});\n{self.expr(want, depth - 1)}"

    def counted(self, want: Type, depth: int) -> str:
        """A call with an effect that the number it gives shows."""
        name = self.name("k")
        self.scope.append((name, INT_SCALAR))
        return f"let {name} = @bump(%log);\n{self.expr(want, depth - 1)}"

    # --- generics, closures, data types ---------------------------------------------------------------

    def generic(self, want: Type, depth: int) -> str:
        value = self.exact(want, depth - 1)
        match self.integer(0, 5):
            case 0:
                return f"@ident({value})"
            case 1:
                return (
                    f"@choose({self.condition(depth - 1)}, {value}, {self.exact(want, depth - 1)})"
                )
            case 2:
                return f"@twice({self.function_of(want, want, depth)}, {value})"
            case 3:
                other = self.exact(self.type(1), depth - 1)
                pair = self.name("q")
                return f"let {pair} = @swap(({value}, {other}));\n{pair}.1"
            case 4:
                later = self.name("f")
                self.scope.append((later, Fn(None, want)))
                return f"let {later} = @later({value});\n{self.expr(want, depth - 1)}"
        turns = self.operand(INT_SCALAR, depth - 1)
        return f"@{self.pick(('ping', 'pong'))}(minimum({turns}, 3), {value}, {self.exact(want, depth - 1)})"

    def boxed(self, want: Type, depth: int) -> str:
        value = self.exact(want, depth - 1)
        inner = self.block(want, depth - 1)
        box = f"Full({value}, fn () -> {want.text()} {inner})"
        if self.integer(0, 1):
            return f"@open({box}, {self.exact(want, depth - 1)})"
        content, function = self.name("h"), self.name("f")
        self.scope += [(content, want), (function, Fn(None, want))]
        full = self.block(want, depth - 1)
        del self.scope[-2:]
        return f"match ({box}) {{\nFull({content}, {function}) => {full},\nEmpty => {self.block(want, depth - 1)},\n}}"

    def deep_match(self, want: Type, depth: int) -> str:
        """Nested patterns over a tuple of a list and a pair of tuples."""
        element, other = self.tensor(1), self.tensor(1)
        data = self.operand(Lst(element), depth - 1)
        pair = f"({self.exact(other, depth - 1)}, {self.operand(INT_SCALAR, depth - 1)})"
        names = [self.name("h") for _ in range(3)]
        self.scope += [(names[0], element), (names[1], Lst(element)), (names[2], other)]
        two = self.block(want, depth - 1)
        del self.scope[-3:]
        whole = self.name("w")
        self.scope += [(whole, Pair(other, INT_SCALAR)), (names[0] + "x", element)]
        one = self.block(want, depth - 1)
        del self.scope[-2:]
        return (
            f"match (({data}, {pair})) {{\n"
            f"(Cons({names[0]}, Cons(_, {names[1]})), ({names[2]}, _)) => {two},\n"
            f"(Cons({names[0]}x, Nil), {whole}) => {one},\n"
            f"(Nil, (_, _)) => {self.block(want, depth - 1)},\n}}"
        )

    def simple(self, want: Type, depth: int) -> str:
        if depth > 0 and self.integer(0, 3) == 0:
            thunks = [n for n, t in self.scope if isinstance(t, Fn) and t.result == want]
            if thunks:
                name = self.pick(thunks)
                type_ = dict(self.scope)[name]
                assert isinstance(type_, Fn)
                arg = "" if type_.arg is None else self.exact(type_.arg, depth - 1)
                return f"{name}({arg})"
            cells = [n for n, r in self.refs() if self.fits(r.value, want)]
            if cells:
                return f"ref_read({self.pick(cells)})"
        return super().simple(want, depth)

    # --- failures ---------------------------------------------------------------------------------

    def incomplete(self, want: Type, depth: int) -> str:
        data = self.operand(Lst(INT_SCALAR), depth - 1)
        head = self.name("h")
        self.scope.append((head, INT_SCALAR))
        some = self.block(want, depth - 1)
        self.scope.pop()
        return f"match? ({data}) {{\nCons({head}, _) => {some},\n}}"

    def narrowed(self, want: Type, depth: int) -> str:
        """A note about a size that may be wrong."""
        real = self.unknown(self.pick(FLOATS), (self.integer(0, 3),))
        value = self.operand(Tensor(real.dtype, ("?",), real.sizes), depth - 1)
        said = self.integer(0, 3) if self.integer(0, 3) == 0 else real.sizes[0]
        name, given = self.name(), self.name()
        # Where it is wrong nothing after it runs, so the name stands for a tensor of that size.
        self.scope.append((name, Tensor(real.dtype, (str(said),), (said,))))
        return (
            f"let {given}: Tensor[(?), {real.dtype}] = {value};\n"
            f"let {name}: Tensor[({said}), {real.dtype}] = {given};\n{self.expr(want, depth - 1)}"
        )

    # --- operators --------------------------------------------------------------------------------

    def literal(self, want: Tensor) -> str:
        if want.dtype != "bool":
            return super().literal(want)
        value = self.pick(("True", "False"))
        return f'full({value}, shape={list(want.sizes)}, dtype="bool")' if want.sizes else value

    def tensor_expr(self, want: Tensor, depth: int) -> str:
        if depth <= 0 or self.budget <= 0:
            return self.literal(want)
        if want.dtype == "bool":
            return getattr(self, self.pick(("op_compare", "op_logic", "op_literal")))(
                want, depth - 1
            )
        if self.integer(0, 1):
            return super().tensor_expr(want, depth)
        self.budget -= 1
        options = ["op_slice", "op_broadcast", "op_power_free"]
        if self.failing and want.dtype not in FLOATS:
            options += ["op_divide", "op_divide"]
        if want.sizes:
            options += ["op_transpose"]
            options += ["op_fast_take"] if self.failing else []
        if want.dtype == "int32":
            options += ["op_argmax", "op_shape"]
        if len(want.sizes) == 1 and want.dtype != "float16":
            options += ["op_arange"]
        return getattr(self, self.pick(options))(want, depth - 1)

    def op_compare(self, want: Tensor, depth: int) -> str:
        operand = Tensor(self.pick(programs.INTS), want.dims, want.sizes)
        op = self.pick(("less", "equal", "not_equal", "greater_equal"))
        return f"{op}({self.operand(operand, depth)}, {self.operand(operand, depth)})"

    def op_logic(self, want: Tensor, depth: int) -> str:
        op = self.pick(("logical_and", "logical_or", "logical_xor"))
        return f"{op}({self.operand(want, depth)}, logical_not({self.operand(want, depth)}))"

    def op_divide(self, want: Tensor, depth: int) -> str:
        op = self.pick(("divide", "mod", "floor_divide", "floor_mod"))
        return f"{op}({self.operand(want, depth)}, {self.operand(want, depth)})"

    def op_power_free(self, want: Tensor, depth: int) -> str:
        op = self.pick(("copy", "zeros_like", "ones_like"))
        return f"{op}({self.operand(want, depth)})"

    def op_fast_take(self, want: Tensor, depth: int) -> str:
        source = self.unknown(want.dtype, (self.integer(0, 3), *want.sizes[1:]))
        index = self.unknown(self.pick(("int32", "int64")), want.sizes[:1])
        return f'take({self.operand(source, depth)}, {self.operand(index, depth)}, axis=0, mode="fast")'

    def op_slice(self, want: Tensor, depth: int) -> str:
        """The first rows and columns of something that is as large or larger."""
        more = tuple(s + self.integer(0, 2) for s in want.sizes)
        source = self.unknown(want.dtype, more)
        begin = [0] * len(more)
        if not more:
            return self.literal(want)
        return (
            f"strided_slice({self.operand(source, depth)}, begin={begin}, end={list(want.sizes)})"
        )

    def op_broadcast(self, want: Tensor, depth: int) -> str:
        """A column or row that may be of size 1, by what the operator takes both from."""
        part = tuple(1 if self.integer(0, 1) else s for s in want.sizes)
        small = self.unknown(want.dtype, part)
        return f"maximum({self.operand(want, depth)}, {self.operand(small, depth)})"

    def op_transpose(self, want: Tensor, depth: int) -> str:
        flipped = self.unknown(want.dtype, want.sizes[::-1])
        return f"transpose({self.operand(flipped, depth)})"

    def op_argmax(self, want: Tensor, depth: int) -> str:
        source = self.unknown(self.pick(("int32", "uint8")), (*want.sizes, self.integer(1, 3)))
        return f"argmax({self.operand(source, depth)}, axis=[{len(want.sizes)}])"

    def op_shape(self, want: Tensor, depth: int) -> str:
        source = self.unknown(self.pick(FLOATS), (self.integer(0, 3), self.integer(0, 3)))
        size = f"take(shape_of({self.operand(source, depth)}), {self.integer(0, 1)})"
        return f"maximum({self.operand(want, depth)}, {size})"

    def op_arange(self, want: Tensor, depth: int) -> str:
        size = want.sizes[0]
        zero, stop, one = (f'cast({v}, dtype="{want.dtype}")' for v in (0, size, 1))
        if self.integer(0, 1):
            stop = f"@ident({stop})"  # inference can't see it
        return f'arange({zero}, {stop}, {one}, dtype="{want.dtype}")'


@st.composite
def extended_programs(draw: st.DrawFn, failing: bool = False) -> Program:
    """As `programs`, with the constructs of this file; `failing` programs may raise."""
    gen = Extended(draw, failing=failing, budget=60)
    gen.named = {"n": gen.integer(0, 3), "m": gen.integer(1, 3)}
    binder = Tensor("float32", ("?n", "?m"), (gen.named["n"], gen.named["m"]))
    params = [("%x", binder)]
    params += [(f"%a{i}", gen.tensor()) for i in range(gen.integer(0, 2))]
    gen.scope += [*params, ("%log", Ref(INT_SCALAR))]
    result = gen.type(1)
    while not returnable(result):
        result = gen.type(1)
    body = gen.operand(result, 5)
    declared = ", ".join(f"{n}: {t.text()}" for n, t in params)
    text = (
        f'#[version = "0.0.5"]\n{PRELUDE}\ndef @main({declared}) {{\nlet %log = ref(0);\n'
        f"let %out = {body};\n(%out, ref_read(%log))\n}}\n"
    )
    rng = np.random.default_rng(gen.integer(0, 2**32 - 1))
    return Program(text, tuple(value_of(t, rng) for _, t in params))
