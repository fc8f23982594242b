"""Random programs of which backends take random operators: equal to the oracle, whatever they take.

The backends' code is the region itself, kept beside the blob, which the oracle evaluates.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nimblevm as nvm
from nimblevm.compiler.kernel_key import plain_function
from nimblevm.compiler.rewrite import Rewriter, attr_dims
from nimblevm.errors import NimbleError
from nimblevm.external import Blob, External, Region, register_runtime, unregister_runtime
from nimblevm.relay.dataflow_pattern import CallPattern, wildcard
from nimblevm.relay.dims import DimExpr, DimVar, substitute
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.ir import Call, Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from tests.properties.compare import assert_same
from tests.properties.examples import examples
from tests.properties.extended import extended_programs
from tests.properties.operators import DRAWN, module_text, operator_program
from tests.properties.programs import Program, programs
from tests.relay.op.draw import SeededSource

FEW = examples(4)
MANY = examples(300)
NAMES = ("oracle_a", "oracle_b")
REGIONS: dict[bytes, Region] = {}


def backend(name: str, seed: int, merge: bool, owned: bool, odds: int) -> External:
    """Takes an operator by a hash of its name, and declines some regions."""

    def takes(match: Expr) -> bool:
        assert isinstance(match, Call)
        op = match.op
        if not isinstance(op, Op) or op.name.startswith(("vm.", "memory.")):
            return False
        return zlib.crc32(f"{seed}{name}{op.name}".encode()) % 100 < odds

    def codegen(region: Region) -> Blob | None:
        if zlib.crc32(f"{seed}{region.name}".encode()) % 10 == 0:
            return None
        key = f"{name} {len(REGIONS)}".encode()
        REGIONS[key] = region
        return Blob(key, may_fail=True)

    return External(
        name,
        [("any", CallPattern(wildcard(), None), takes)],
        codegen,
        merge=merge,
        constants="owned" if owned else "inputs",
    )


class _WithNumbers(Rewriter):
    """The dims of attributes replaced by their values."""

    def __init__(self, numbers: Mapping[DimVar, int]) -> None:
        super().__init__()
        self.numbers = numbers

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not attr_dims(new):
            return new
        values = {
            f.name: self._number(getattr(new.attrs, f.name)) for f in dataclasses.fields(new.attrs)
        }
        return Call(new.op, new.args, dataclasses.replace(new.attrs, **values), span=new.span)

    def _number(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._number(v) for v in value)
        return substitute(value, self.numbers) if isinstance(value, DimExpr) else value


def factory(blob: bytes) -> Callable[..., None]:
    region = REGIONS[blob]
    plain = plain_function(region.function)
    function = Function(plain.params, plain.body, plain.ret_type, (), {})

    def run(
        inputs: Sequence[np.ndarray[Any, Any]], outputs: Sequence[Any], dims: Sequence[int]
    ) -> None:
        assert len(dims) == len(region.dims)
        numbers = {d: n for d, n in zip(region.dims, dims, strict=True) if isinstance(d, DimVar)}
        values = iter(inputs)
        args = [_argument(p.checked_type, values) for p in function.params]
        body = _WithNumbers(numbers).rewrite(function.body)
        result = evaluate(IRModule.from_expr(Function(function.params, body)), args)
        results = list(_flat(result))
        outputs = outputs[: len(region.outputs)]  # behind them lies scratch of the kernel's IR
        assert [r.shape for r in results] == [o.shape for o in outputs]
        for value, output in zip(results, outputs, strict=True):
            output[...] = value

    return run


def _argument(type_: Any, values: Iterator[Any]) -> Any:
    fields = getattr(type_, "fields", None)
    return next(values).copy() if fields is None else tuple(_argument(f, values) for f in fields)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for field in value:
            yield from _flat(field)
    else:
        yield np.asarray(value)


@pytest.fixture(autouse=True, scope="module")
def _runtimes() -> Iterator[None]:
    for name in NAMES:
        register_runtime(name, factory)
    yield
    for name in NAMES:
        unregister_runtime(name)


OPTIONS = st.tuples(
    st.integers(0, 1000), st.booleans(), st.booleans(), st.sampled_from((30, 60, 100))
)


def check(program: Program, options: tuple[int, bool, bool, int]) -> None:
    mod = nvm.relay.parse(program.text, source_name="random.rly")
    check_module(mod, [("main", program.args)], options)


def check_module(
    mod: IRModule, calls: Sequence[tuple[str, Any]], options: tuple[int, bool, bool, int]
) -> None:
    """Each function gives the oracle's value. A program that fails may: what is dead may be gone."""
    REGIONS.clear()
    seed, merge, owned, odds = options
    backends = [backend(name, seed, merge, owned, odds) for name in NAMES]
    exe = nvm.load(nvm.compile(mod, external=backends, verify=True, native=False).to_bytes())
    with nvm.VirtualMachine(exe) as vm:
        for name, args in calls:
            try:
                expected = evaluate(mod, args, name)
            except NimbleError:
                with suppress(NimbleError):
                    vm.invoke(name, *args)
                continue
            for _ in range(2):
                assert_same(vm.invoke(name, *args), expected)


def check_operators(start: int, count: int) -> None:
    numbers = range(start, start + count)
    found = [operator_program(SeededSource(n), DRAWN[n % len(DRAWN)], f"p{n}") for n in numbers]
    mod = nvm.relay.parse(module_text(found), source_name="random.rly")
    options = (start, start % 2 == 0, start % 3 == 0, (30, 60, 100)[start % 3])
    check_module(mod, [(p.name, p.args) for p in found], options)


@FEW
@given(program=programs(), options=OPTIONS)
def test_random_programs(program: Program, options: tuple[int, bool, bool, int]) -> None:
    check(program, options)


@FEW
@given(program=extended_programs(failing=True), options=OPTIONS)
def test_random_programs_with_effects(
    program: Program, options: tuple[int, bool, bool, int]
) -> None:
    check(program, options)


@pytest.mark.parametrize("start", [0, pytest.param(320, marks=pytest.mark.slow)])
def test_random_operators(start: int) -> None:
    check_operators(start, 10)


@pytest.mark.slow
@MANY
@given(program=programs(), options=OPTIONS)
def test_three_hundred_random_programs(
    program: Program, options: tuple[int, bool, bool, int]
) -> None:
    check(program, options)


@pytest.mark.slow
@MANY
@given(program=extended_programs(failing=True), options=OPTIONS)
def test_three_hundred_random_programs_with_effects(
    program: Program, options: tuple[int, bool, bool, int]
) -> None:
    check(program, options)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(3))
def test_six_hundred_programs_of_random_operators(shard: int) -> None:
    for start in range(shard * 200 + 20, shard * 200 + 220, 10):
        check_operators(start, 10)
