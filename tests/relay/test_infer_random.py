"""Random programs over every way that dims travel: types hold, and no claim of inference is untrue.

Each program is evaluated twice by the interpreter: as written, where only annotations are checked, and inferred,
where inferred types are checked too. Whenever the first succeeds the second must, and every tensor of the result must
have the size that its type says. Inferring twice changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import nimblevm.relay.op  # noqa: F401  (fills the registry)
from nimblevm.errors import NimbleError, RelayTypeError
from nimblevm.relay import dims
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.parser import parse_module
from nimblevm.relay.types import DimVar, TensorType, TupleType, Type
from nimblevm.relay.well_formed import check_well_formed

SEED = 20_000

HEAD = """#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil }
def @hd[A](%xs: List[A], %d: A) -> A { match (%xs) { Cons(%h, _) => %h, Nil => %d } }
def @dbl(%x: Tensor[(?n), float32]) -> Tensor[(?n * 2), float32] { concatenate((%x, %x)) }
def @dyn(%x: Tensor[(?n), float32]) -> Tensor[(?k), float32] { concatenate((%x, %x)) }
def @two(%x: Tensor[(?n), float32], %y: Tensor[(?n), float32]) -> Tensor[(?n), float32] { add(%x, %y) }
def @grow(%x: Tensor[(?n), float32], %i: int32) {
  if (less(%i, 1)) { %x } else { @grow(concatenate((%x, %x)), subtract(%i, 1)) }
}
def @keep(%x: Tensor[(?n), float32], %i: int32) {
  if (less(%i, 1)) { %x } else { @keep(tanh(%x), subtract(%i, 1)) }
}
def @ap(%f: fn (Tensor[(?), float32]) -> Tensor[(?), float32], %x: Tensor[(?n), float32]) { %f(%x) }
def @apk(%f: fn (Tensor[(?k), float32]) -> Tensor[(?k), float32], %x: Tensor[(?n), float32]) { %f(%x) }
"""

# V is a variable in scope, K the number of the statement, I a small count, D a dim; the last part is the value.
STATEMENTS = (
    "add(V, V)",
    "add(V, V)",
    "concatenate((V, V))",
    "if (less(I, 1)) { V } else { V }",
    "@hd(Cons(V, Cons(V, Nil)), V)",
    "@dbl(V)",
    "@dyn(V)",
    "@two(V, V)",
    "@grow(V, I)",
    "@keep(V, I)",
    "@ap(fn (%qK: Tensor[(?), float32]) { concatenate((%qK, V)) }, V)",
    "@apk(fn (%qK: Tensor[(?), float32]) { tanh(%qK) }, V)",
    "let %fK = fn (%qK) { add(%qK, V) }; %fK(V)",
    "let %rK = ref(V); let %uK = ref_write(%rK, V); ref_read(%rK)",
    "(V, V).1",
    "let %fK = fn (%qK: Tensor[(D), float32], %zK: Tensor[(?), float32]) "
    "{ concatenate((%qK, %zK)) }; %fK(V, V)",
    "match? (Cons(V, Cons(V, Nil))) { Cons(%aK, Cons(%bK, _)) => add(%aK, %bK) }",
    "let %lK = fn (%iK: int32, %aK: Tensor[(?), float32]) "
    "{ if (less(%iK, 1)) { %aK } else { %lK(subtract(%iK, 1), concatenate((%aK, %aK))) } }; %lK(I, V)",
    "let %lK = fn (%iK: int32, %aK: Tensor[(?n), float32]) "
    "{ if (less(%iK, 1)) { %aK } else { %lK(subtract(%iK, 1), tanh(%aK)) } }; %lK(I, V)",
    "strided_slice(V, begin=[0], end=[2])",
    "let %wK: Tensor[(D), float32] = V; %wK",
    "sum(expand_dims(V, axis=0), axis=[0])",
)


def program(rng: random.Random) -> tuple[str, list[str]]:
    """Text of a module, and the dim of each parameter of @main."""
    params = ["?n", "?m", "?", str(rng.choice([0, 1, 2, 3])), "?n"]
    scope = [f"%x{i}" for i in range(len(params))]
    lines: list[str] = []
    for number in range(rng.randint(3, 10)):
        text = rng.choice(STATEMENTS).replace("K", str(number))
        while "V" in text:
            text = text.replace("V", rng.choice(scope), 1)
        text = text.replace("(I", f"({rng.randint(0, 2)}").replace(", I", f", {rng.randint(0, 2)}")
        text = text.replace("[(D)", f"[({rng.choice(['?n', '?m', '?', '?n + 1', '?w', '2'])})")
        *before, value = text.split("; ") if text.startswith("let") else [text]
        lines += [f"{part};" for part in before]
        lines.append(f"let %v{number} = {value};")
        scope.append(f"%v{number}")
    signature = ", ".join(f"%x{i}: Tensor[({d}), float32]" for i, d in enumerate(params))
    body = "\n  ".join([*lines, f"({', '.join(scope)})"])
    return f"{HEAD}def @main({signature}) {{\n  {body}\n}}\n", params


def check_sizes(values: Iterable[Any], types: Iterable[Type], env: dict[DimVar, int]) -> None:
    """Axes must have the sizes of the types; a variable without a number gets it from its first axis."""
    later: list[tuple[int, dims.Dim]] = []
    for value, type_ in zip(values, types, strict=True):
        assert isinstance(type_, TensorType)
        assert len(value.shape) == len(type_.shape)
        for size, dim in zip(value.shape, type_.shape, strict=True):
            if isinstance(dim, DimVar) and dim not in env:
                env[dim] = size
            else:
                later.append((size, dim))
    for size, dim in later:
        if all(var in env for var in dims.free_vars(dim)):
            assert dims.evaluate(dim, env) == size


def run_one(seed: int) -> bool:
    """Whether the program was well typed and ran for some sizes."""
    rng = random.Random(seed)
    text, params = program(rng)
    written = parse_module(text, f"seed {seed}")
    check_well_formed(written)
    try:
        inferred = infer_type(written)
    except RelayTypeError:
        return False
    check_well_formed(inferred)
    again = infer_type(inferred)
    for var in inferred:
        assert again.function(var) is inferred.function(var), f"seed {seed}: @{var.name_hint}"
    main = inferred.function("main")
    assert isinstance(main.ret_type, TupleType)
    ran = False
    for _ in range(2):
        sizes = {
            "?n": rng.choice([0, 1, 2, 3]),
            "?m": rng.choice([0, 1, 2, 3]),
            "?": rng.choice([0, 1, 2]),
        }
        args = [np.ones(sizes[d] if d in sizes else int(d), "float32") for d in params]
        try:
            evaluate(written, args)
        except NimbleError:
            continue
        values = evaluate(inferred, args)
        env: dict[DimVar, int] = {}
        check_sizes(args, (p.checked_type for p in main.params if p.checked_type), env)
        check_sizes(values, main.ret_type.fields, env)
        ran = True
    return ran


@pytest.mark.parametrize("block", range(4))
def test_random_programs(block: int) -> None:
    ran = sum(run_one(SEED + 30 * block + i) for i in range(30))
    assert ran >= 5, "most programs should run"


@pytest.mark.slow
def test_many_random_programs() -> None:
    assert sum(run_one(SEED + 1_000 + i) for i in range(3_000)) >= 500
