"""Random programs that call every total operator of the registry, on parameters and on values in scope.

The operators come from their records, well-typed calls from the cases that the operators' own tests draw: the case says the
attributes and the type of every operand; an operand is a parameter with the case's value, an expression of that
type, or a value in scope that is cast, reshaped or picked from until it fits. A total operator takes any value. Of one
that may fail, what could make it fail (indices, sizes, divisors) stays the case's, so that programs do not fail.

Floats that went through rounding may differ in the last bits from path to path. So operators that are steep somewhere,
or that make something else than floats of them, get floats that are exact (parameters, small integers that are cast), and what
they give is flattened by tanh before it is used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nimblevm.relay import ir
from nimblevm.relay.op import Op, all_ops, get
from nimblevm.relay.op.registry import Effect, OpPattern
from nimblevm.relay.types import TensorType, TupleType
from nimblevm.relay.types import Type as RelayType
from tests.properties.extended import INT_SCALAR, PRELUDE, Extended
from tests.properties.programs import FLOATS, Ref, Tensor
from tests.relay.op.cases import generate
from tests.relay.op.draw import Case, Source
from tests.relay.op.test_compiled import infers, of_parameters, reference

# Total, but no program that a person writes has them.
EXCLUDED = {
    "dyn.window": "made by the compiler of dyn.* operators, whose checks it relies on",
    "memory.kill": "made by manifest_alloc: ends the life of a tensor",
    "vm.bind_dim": "made by insert_checks of every named dim",
    "vm.dim_of": "made by insert_checks of every unknown dim",
    "vm.dim_value": "made by insert_checks of every expression of dims",
}


def may_be_total(op: Op) -> bool:
    """Total for all operands, or for those of some types (divide: for floats)."""
    return op.effect is not Effect.MAY_FAIL


TOTAL = tuple(op.name for op in all_ops() if may_be_total(op) and op.name not in EXCLUDED)

CHECKED = tuple(
    f"{op.name}?"
    for op in all_ops()
    if op.effect is not Effect.TOTAL and not op.name.startswith(("vm.", "memory.", "topk"))
)
"""The operators that may fail, each with a mark. topk may only where k is a dim, which passes write."""

DRAWN = TOTAL + CHECKED

# Operands of operators that may fail which can't make them fail, and operators that have none.
HARMLESS = frozenset(
    "data dense_data sparse_data updates v on_value off_value fill_value pad_value lhs".split()
)
ALL_FIXED = frozenset(("power", "invert_permutation", "vision.non_max_suppression", "dyn.reshape"))

# Not continuous, or so steep somewhere that a rounding shows.
STEEP = frozenset(
    """floor ceil round trunc sign divide floor_divide trunc_divide mod floor_mod trunc_mod power log log2 log10 sqrt rsqrt
    acos acosh asin atanh tan sinh cosh exp prod cumprod variance sort argsort topk unique searchsorted nn.layer_norm
    nn.batch_norm nn.instance_norm nn.group_norm nn.l2_normalize vision.get_valid_counts reinterpret full full_like one_hot
    nn.pad cast cast_like dyn.full dyn.nn.pad dyn.one_hot dyn.topk sparse_to_dense nn.lrn
    image.grid_sample vision.multibox_transform_loc nn.cross_entropy nn.cross_entropy_with_logits""".split()
)
# Their result says nothing of the elements.
SIZES_ONLY = frozenset(("shape_of", "ndarray_size", "zeros_like", "ones_like"))
# Sums of many products: in float16 roundings of operands add up.
SUMS = frozenset(
    """nn.dense nn.matmul nn.batch_matmul einsum sum mean cumsum collapse_sum_like collapse_sum_to nn.softmax
    nn.fast_softmax nn.log_softmax nn.sparse_dense
    stft dft""".split()
)
# Operands whose values mean something: they stay the case's.
FIXED = {("searchsorted", "sorted_sequence"), ("random.multinomial", "probs")}


@dataclass
class Operators(Extended):
    """`params`: what main gets beside the parameters that its text begins with; `called`: the operators drawn."""

    source: Source = field(kw_only=True)
    params: list[tuple[str, Tensor, np.ndarray]] = field(default_factory=list)
    called: set[str] = field(default_factory=set)

    def integer(self, low: int, high: int) -> int:
        return self.source.integer(low, high)

    # --- operands ---------------------------------------------------------------------------------

    def parameter(self, value: np.ndarray, static: bool = False) -> str:
        """A parameter of main with this value; one that is there already may serve."""
        for name, type_, known in self.params:
            same = type_.dtype == value.dtype.name and type_.sizes == value.shape
            if same and not static and known.tobytes() == value.tobytes():
                return name
        name = f"%c{len(self.params)}"
        type_ = self.typed(value.dtype.name, value.shape, static)
        self.params.append((name, type_, value))
        return name

    def typed(self, dtype: str, sizes: tuple[int, ...], static: bool = False) -> Tensor:
        """Dims written as numbers, as `?` or by a name that has the size."""
        dims = []
        for size in sizes:
            names = [n for n, s in self.named.items() if s == size]
            kind = 0 if static else self.integer(0, 2)
            dims.append(f"?{names[0]}" if kind == 2 and names else "?" if kind else str(size))
        return Tensor(dtype, tuple(dims), sizes)

    def argument(self, value: Any, exact: bool, static: bool, depth: int) -> str:
        """An operand of the value's type."""
        if isinstance(value, tuple):
            inner = [self.argument(v, exact, static, depth) for v in value]
            return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
        dtype, sizes = value.dtype.name, value.shape
        if depth <= 0 or self.budget <= 0 or self.integer(0, 3) == 0:
            if dtype in FLOATS and not exact:
                value = np.asarray(np.random.default_rng(value.size).uniform(-1, 1, sizes), dtype)
            return self.parameter(value, static)
        want = self.typed(dtype, sizes, static)
        if dtype in FLOATS and exact:
            whole = Tensor("int8", want.dims, sizes)
            text = f'(cast({self.some(whole, depth - 1)}, dtype="{dtype}") * {self.literal(Tensor(dtype, (), ()))})'
        else:
            text = self.some(want, depth - 1)
        return f"(fn () -> {want.text()} {{ {text} }})()" if static else text

    def some(self, want: Tensor, depth: int) -> str:
        """An expression that gives the tensor, often from a value in scope."""
        found = [(n, t) for n, t in self.scope if isinstance(t, Tensor) and self.turns(t, want)]
        if found and self.integer(0, 2):
            name, have = self.pick(found)
            return self.fitted(name, have.dtype, have.sizes, want)
        return self.operand(want, depth)

    def turns(self, have: Tensor | TensorType, want: Tensor) -> bool:
        """Whether a cast shows no rounding: that of floats to integers, or of floats to wider ones."""
        if have.dtype not in FLOATS:
            return True
        return want.dtype in FLOATS and FLOATS.index(want.dtype) <= FLOATS.index(have.dtype)

    def fitted(self, text: str, dtype: str, sizes: Sequence[Any], want: Tensor) -> str:
        """`text`, cast and reshaped, or picked from element by element (a size may be unknown)."""
        if dtype != want.dtype:
            text = f'cast({text}, dtype="{want.dtype}")'
            if want.dtype in FLOATS and dtype not in ("bool", *FLOATS):
                text = f"tanh({text})"
        if tuple(sizes) == want.sizes:
            return text
        known = all(isinstance(size, int) for size in sizes)
        if known and np.prod(sizes) == np.prod(want.sizes):
            return f"reshape({text}, newshape={list(want.sizes)}, allowzero=True)"
        places = np.random.default_rng(self.integer(0, 9)).integers(-2, 12, want.sizes)
        index = self.parameter(np.asarray(places, "int32"))
        one = self.literal(Tensor(want.dtype, ("1",), (1,)))
        flat = f"concatenate((reshape({text}, newshape=[-1]), {one}), axis=0)"
        return f"take({flat}, {index}, axis=0)"

    def parameters(self) -> list[tuple[str, Tensor]]:
        return [(name, type_) for name, type_, _ in self.params]

    # --- calls ------------------------------------------------------------------------------------

    def case(self, name: str, dtypes: Sequence[str]) -> Case | None:
        """A case without an error, of an operator with a mark one that might have had one; None if no draw gave it."""
        op = get(name.removesuffix("?"))
        wanted = Effect.MAY_FAIL if name.endswith("?") else Effect.TOTAL
        for _ in range(20):
            case = generate(op.name, self.pick(dtypes), self.source)
            if self.effect(op, case) is wanted and not isinstance(reference(op, case), type):
                return case
        return None

    def effect(self, op: Op, case: Case) -> Effect:
        return op.effect_of(case.types, case.attrs)

    def total_call(self, name: str, case: Case, depth: int) -> tuple[str, RelayType, bool]:
        """The call, its type (sizes as they are, None if data decide) and whether its floats are steep."""
        self.called.add(name)
        fails = name.endswith("?")
        name = name.removesuffix("?")
        op = get(name)
        result = case.infer(op)
        takes_floats = any(v.dtype.name in FLOATS for v in flat(case.inputs))
        other = any(t.dtype not in FLOATS for t in fields_of(result))
        half = name.startswith("nn.conv") or name in SUMS
        exact = (
            name in STEEP
            or (takes_floats and other and name not in SIZES_ONLY)
            or (half and any(v.dtype.name == "float16" for v in flat(case.inputs)))
        )
        static = not infers(of_parameters(op, case, symbolic=True))
        operands = []
        for place, value in enumerate(case.inputs):
            arg = op.args[min(place, len(op.args) - 1)]
            fixed = fails and (arg not in HARMLESS or name in ALL_FIXED)
            if fixed or (name, arg) in FIXED:
                operands.append(self.argument(value, exact=True, static=static, depth=0))
            else:
                careful = exact or arg == "condition"
                operands.append(self.argument(value, careful, static, depth))
        return call_text(op, operands, case.attrs), result, exact

    def flattened(self, text: str, steep: bool) -> str:
        """Floats of any size or none made small."""
        if not steep:
            return f"tanh({text})"
        name = self.name("t")
        return (
            f"(fn () {{ let {name} = tanh({text}); "
            f"where(isnan({name}), zeros_like({name}), {name}) }})()"
        )

    def tensor_expr(self, want: Tensor, depth: int) -> str:
        if depth > 0 and self.budget > 0 and self.integer(0, 2) == 0:
            self.budget -= 2
            made = self.total_expr(want, depth)
            if made is not None:
                return made
        return super().tensor_expr(want, depth)

    def total_expr(self, want: Tensor, depth: int) -> str | None:
        """Any total operator's result, made to fit."""
        name = self.pick(DRAWN)
        op = get(name.removesuffix("?"))
        found = op.dtypes[0]
        whole = [d for d in found if d not in FLOATS]
        if want.dtype not in FLOATS and not whole:
            return None
        case = self.case(name, found if want.dtype in FLOATS else whole)
        if case is None:
            return None
        text, result, steep = self.total_call(name, case, depth - 1)
        parts = fields_of(result)
        usable = [i for i, t in enumerate(parts) if self.turns(t, want)]
        if not usable:
            return None
        place = self.pick(usable)
        if isinstance(result, TupleType):
            text = f"({text}).{place}"
        type_ = parts[place]
        if type_.dtype in FLOATS and (steep or op.pattern is not OpPattern.INJECTIVE):
            text = self.flattened(text, steep)
        return self.fitted(text, type_.dtype, type_.shape, want)

    def binding(self, name: str, depth: int) -> tuple[str, list[str]]:
        """let %v = call, and what main gives of it: the result itself."""
        case = self.case(name, get(name.removesuffix("?")).dtypes[0])
        if case is None:
            return "", []
        text, result, steep = self.total_call(name, case, depth)
        var = self.name()
        if isinstance(result, TensorType):
            sizes = tuple(d for d in result.shape if isinstance(d, int))
            known = len(sizes) == len(result.shape)
            if known and not (result.dtype in FLOATS and steep):
                dims = tuple("?" for _ in result.shape)
                self.scope.append((var, Tensor(result.dtype, dims, sizes)))
            return f"let {var} = {text};\n", [var]
        return f"let {var} = {text};\n", [f"{var}.{i}" for i in range(len(fields_of(result)))]


def flat(values: Any) -> list[np.ndarray]:
    """The arrays of a case, those of tuples among them."""
    return [part for v in values for part in (v if isinstance(v, tuple) else (v,))]


def fields_of(type_: RelayType) -> list[TensorType]:
    parts = type_.fields if isinstance(type_, TupleType) else (type_,)
    return [part for part in parts if isinstance(part, TensorType)]


def call_text(op: Op, operands: list[str], attrs: Any) -> str:
    """op(operands, attribute=value...), as the printer writes attributes."""
    holes = [ir.Var(f"hole{i}", None) for i in range(len(operands))]
    last = str(ir.Call(op, holes, attrs)).splitlines()[-1]
    return re.sub(r"%hole(\d+)", lambda found: operands[int(found[1])], last)


@dataclass(frozen=True)
class Program:
    """A global function `name` with the arguments to call it with, and the total operators that it was drawn from."""

    name: str
    text: str
    args: tuple[np.ndarray, ...]
    called: frozenset[str]


def operator_program(source: Source, first: str, name: str = "main") -> Program:
    """Bindings of calls, of `first` and of others, and an expression of any kind; all of it is returned."""
    gen = Operators(None, budget=24, source=source)  # type: ignore[arg-type] # source draws
    gen.named = {"n": gen.integer(0, 3), "m": gen.integer(1, 3)}
    binder = Tensor("float32", ("?n", "?m"), (gen.named["n"], gen.named["m"]))
    gen.scope += [("%x", binder), ("%log", Ref(INT_SCALAR))]
    bindings, results = "", list[str]()
    for turn in range(gen.integer(1, 3)):
        text, given = gen.binding(gen.pick(DRAWN) if turn else first, gen.integer(0, 3))
        for _ in range(0 if turn else 10):  # without a case: the first operator is to be there
            if not text:
                text, given = gen.binding(first, gen.integer(0, 3))
        bindings += text
        results += given
    body = gen.operand(gen.tensor(), 3)
    results += ["%out", "ref_read(%log)"]
    declared = ", ".join(f"{n}: {t.text()}" for n, t in [("%x", binder), *gen.parameters()])
    text = (
        f"def @{name}({declared}) {{\nlet %log = ref(0);\n{bindings}"
        f"let %out = {body};\n({', '.join(results)})\n}}\n"
    )
    rng = np.random.default_rng(gen.integer(0, 2**31 - 1))
    x = np.asarray(rng.uniform(-1, 1, binder.sizes), "float32")
    values = (value for _, _, value in gen.params)
    return Program(name, text, (x, *values), frozenset(gen.called))


def module_text(programs: Sequence[Program]) -> str:
    """One module of the programs: they are compiled together, which takes a fraction of the time."""
    return f'#[version = "0.0.5"]\n{PRELUDE}\n' + "".join(p.text for p in programs)
