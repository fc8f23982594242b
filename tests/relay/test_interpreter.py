"""The oracle: meaning of every construct, checks of dims and claims, depth and sharing."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import (
    CompileError,
    DivisionByZero,
    FunctionNotFound,
    IndexOutOfRange,
    InvalidInput,
    InvalidInputType,
    MatchFailure,
    ShapeMismatch,
    ValueKindError,
)
from nimblevm.relay import ir
from nimblevm.relay.dims import DimVar, add, mul
from nimblevm.relay.interpreter import Interpreter, evaluate
from nimblevm.relay.machine import Machine
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import vm
from nimblevm.relay.types import TensorType, TupleType, scalar_type
from nimblevm.relay.values import ADTValue, leaves, text_of

HEADER = '#[version = "0.0.5"]\n'
Parse = Callable[[str], IRModule]


@pytest.fixture(params=["parsed", "inferred"])
def parse(request: pytest.FixtureRequest) -> Parse:
    reader = relay.parse_module if request.param == "parsed" else relay.parse
    return lambda text: reader(HEADER + text)


def f32(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype="float32").reshape(shape)


# --- constructs -------------------------------------------------------------------------------------


def test_let_if_tuple_and_projection(parse: Parse) -> None:
    mod = parse("""
        def @main(%x: int32, %y: int32) -> (int32, (int32, bool)) {
          let %big = if (less(%x, %y)) { %y } else { %x };
          let %t = (%big, (%x, equal(%big, %x)));
          (%t.1.0, %t.1)
        }""")
    first, (second, third) = evaluate(mod, (3, 5))
    assert (first, second, third) == (3, 3, False)
    assert first.shape == ()
    assert first.dtype == "int32"


def test_closures_capture_and_recur(parse: Parse) -> None:
    mod = parse("""
        def @main(%x: int32) -> int32 {
          let %sum = fn (%n: int32) -> int32 {
            if (equal(%n, 0)) { %x } else { add(%n, %sum(subtract(%n, 1))) }
          };
          let %twice = fn (%f: fn (int32) -> int32, %v: int32) -> int32 { %f(%f(%v)) };
          %twice(%sum, 3)
        }""")
    assert evaluate(mod, (10,)) == 10 + sum(range(17))


def test_references(parse: Parse) -> None:
    mod = parse("""
        def @main(%x: int32) -> int32 {
          let %r = ref(%x);
          let %_u = ref_write(%r, add(ref_read(%r), 1));
          let %_v = ref_write(%r, multiply(ref_read(%r), 2));
          ref_read(%r)
        }""")
    assert evaluate(mod, (4,)) == 10


TREES = """
    type Tree { Leaf(Tensor[(?, 2), float32]), Node(Tree, Tree) }
    def @sum(%t: Tree) -> Tensor[(2), float32] {
      match (%t) {
        Leaf(%x) => { sum(%x, axis=[0]) },
        Node(%l, %r) => { add(@sum(%l), @sum(%r)) },
      }
    }
    def @left(%t: Tree) -> Tree {
      match? (%t) { Node(%l, _) => { %l }, }
    }
"""


def tree_of(mod: IRModule, depth: int) -> ADTValue:
    """A left-leaning tree of `depth` nodes."""
    leaf, node = (mod.get_constructor("Tree", name) for name in ("Leaf", "Node"))
    tree = ADTValue(leaf, (f32(3, 2),))
    for _ in range(depth):
        tree = ADTValue(node, (tree, ADTValue(leaf, (np.ones((1, 2), "float32"),))))
    return tree


def test_data_types_and_match(parse: Parse) -> None:
    mod = parse(TREES)
    np.testing.assert_array_equal(evaluate(mod, (tree_of(mod, 2),), "sum"), [8, 11])
    assert list(leaves(evaluate(mod, (tree_of(mod, 2),), "left")))[:2] == ["Node", "Leaf"]
    with pytest.raises(MatchFailure, match="Leaf"):
        evaluate(mod, (tree_of(mod, 0),), "left")


@pytest.mark.parametrize("depth", [3_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_deep_tree_does_not_recurse(parse: Parse, depth: int) -> None:
    mod = parse(TREES)
    tree = tree_of(mod, depth)
    np.testing.assert_array_equal(evaluate(mod, (tree,), "sum"), [depth + 6, depth + 9])
    assert text_of(tree).startswith("Node(Node(")
    assert sum(1 for _ in leaves(tree)) == depth + 2 * (depth + 1)
    del tree


def test_data_type_values_of_a_vm_are_taken(parse: Parse) -> None:
    mod = parse(TREES)
    leaf, node = (SimpleNamespace(adt="Tree", name=name) for name in ("Leaf", "Node"))
    tree = SimpleNamespace(constructor=leaf, fields=(f32(3, 2),))
    for _ in range(30):
        tree = SimpleNamespace(constructor=node, fields=(tree, tree))
    shared = evaluate(mod, (tree,), "left")
    assert shared.fields[0] is shared.fields[1]
    small = tree
    while small.fields[0].constructor is node:
        small = small.fields[0]
    np.testing.assert_array_equal(evaluate(mod, (small,), "sum"), [12, 18])
    with pytest.raises(InvalidInput, match="Node takes 2 fields"):
        evaluate(mod, (SimpleNamespace(constructor=node, fields=(tree,)),), "sum")


def test_constructors_and_operators_as_values(parse: Parse) -> None:
    mod = parse("""
        type Box { Box(int32) }
        def @main(%x: int32) -> int32 {
          let %make = fn (%v: int32) -> Box { Box(%v) };
          match (%make(%x)) { Box(%v) => { %v }, }
        }""")
    assert evaluate(mod, (7,)) == 7


def test_tuple_patterns(parse: Parse) -> None:
    mod = parse("""
        type Pair { Pair((int32, int32)) }
        def @main(%p: Pair) -> int32 {
          match (%p) { Pair((%a, %b)) => { subtract(%a, %b) }, }
        }""")
    pair = ADTValue(
        mod.get_constructor("Pair", "Pair"), ((np.asarray(5, "int32"), np.asarray(2, "int32")),)
    )
    assert evaluate(mod, (pair,)) == 3


# --- sharing ----------------------------------------------------------------------------------------


def test_a_shared_node_is_evaluated_once_per_activation() -> None:
    x = relay.var("x", "int32")
    cell = relay.var("cell")
    count = ir.Let(relay.var("_"), ir.RefWrite(cell, ir.RefRead(cell) + 1), x)
    body = ir.Let(cell, ir.RefCreate(relay.const(0)), ir.Tuple((count + count, ir.RefRead(cell))))
    total, turns = evaluate(IRModule.from_expr(ir.Function((x,), body)), (3,))
    assert (total, turns) == (6, 1)


def test_a_node_shared_with_a_closure_belongs_to_the_function_around() -> None:
    x, y = relay.var("x", "int32"), relay.var("y", "int32")
    cell, f = relay.var("cell"), relay.var("f")
    effect = ir.Let(relay.var("_"), ir.RefWrite(cell, ir.RefRead(cell) + 1), x)
    inner = ir.Function((y,), effect + y)
    own = ir.Let(relay.var("_"), ir.RefWrite(cell, ir.RefRead(cell) + 100), y)
    twice = ir.Function((y,), own + own + inner(y))
    calls = ir.Tuple((effect, f(relay.const(1)), f(relay.const(2)), ir.RefRead(cell)))
    body = ir.Let(cell, ir.RefCreate(relay.const(0)), ir.Let(f, twice, calls))
    assert [int(v) for v in evaluate(IRModule.from_expr(ir.Function((x,), body)), (5,))] == [
        5,
        8,
        11,
        201,
    ]


def test_a_dag_of_a_million_paths() -> None:
    x = relay.var("x", "int32")
    node: ir.Expr = x
    for _ in range(20):
        node = node + node
    assert evaluate(IRModule.from_expr(ir.Function((x,), node)), (1,)) == 2**20


# --- depth ------------------------------------------------------------------------------------------


def test_deep_programs(parse: Parse) -> None:
    mod = parse("""
        def @down(%n: int32) -> int32 { if (equal(%n, 0)) { 0 } else { add(1, @down(subtract(%n, 1))) } }
        def @loop(%n: int32, %x: Tensor[(?k), float32]) -> Tensor[(?k), float32] {
          if (equal(%n, 0)) { %x } else { @loop(subtract(%n, 1), %x) }
        }""")
    assert evaluate(mod, (3000,), "down") == 3000
    machine_args = (3000, f32(2))
    np.testing.assert_array_equal(evaluate(mod, machine_args, "loop"), f32(2))


@pytest.mark.slow
def test_depth_of_100000() -> None:
    x = relay.var("x", "int32")
    chain = [x, *(relay.var(f"v{k}") for k in range(100_000))]
    lets: ir.Expr = chain[-1]
    for before, var in zip(reversed(chain[:-1]), reversed(chain[1:]), strict=True):
        lets = ir.Let(var, before + 1, lets)
    nested: ir.Expr = x
    for _ in range(100_000):
        nested = nested + 1
    assert evaluate(IRModule.from_expr(ir.Function((x,), lets)), (5,)) == 100_005
    assert evaluate(IRModule.from_expr(ir.Function((x,), nested)), (5,)) == 100_005
    mod = relay.parse(
        HEADER
        + """
        def @down(%n: int32) -> int32 { if (equal(%n, 0)) { 0 } else { add(1, @down(subtract(%n, 1))) } }"""
    )
    assert evaluate(mod, (100_000,), "down") == 100_000


def test_a_tail_call_leaves_nothing_behind(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    mod = parse("""
        def @loop(%n: int32, %x: Tensor[(?k), float32]) -> Tensor[(?k), float32] {
          if (equal(%n, 0)) { %x } else { let %m = subtract(%n, 1); @loop(%m, %x) }
        }""")
    depths = []
    enter = Machine._enter

    def spy(self: Any, *args: Any) -> None:
        depths.append(len(self.work) + len(self.values))
        enter(self, *args)

    monkeypatch.setattr(Machine, "_enter", spy)
    evaluate(mod, (50, f32(2)), "loop")
    assert len(depths) == 51
    assert max(depths) <= 1


# --- arguments --------------------------------------------------------------------------------------

MAIN = "def @main(%x: Tensor[(?n, 3), float32], %y: Tensor[(?n), float32], %k: int32) -> Tensor[(?n, 3), float32] { %x }"


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((f32(2, 3), f32(2)), InvalidInput, r"main\(x, y, k\) takes 3 arguments, got 2"),
        ((f32(2, 4), f32(2), 1), InvalidInput, r"parameter 'x': axis 1 must be 3, but it is 4"),
        (
            (f32(2), f32(2), 1),
            InvalidInputType,
            r"parameter 'x': expected .*, got float32 tensor of shape \(2,\)",
        ),
        ((f32(2, 3).astype("float64"), f32(2), 1), InvalidInputType, "float64"),
        (
            (f32(2, 3), f32(5), 1),
            InvalidInput,
            r"parameter 'y': axis 0 must be \?n = 2, but it is 5",
        ),
        ((f32(2, 3), f32(2), 2**40), InvalidInputType, "does not fit int32"),
        ((f32(2, 3), f32(2), 1.5), InvalidInputType, "Python float"),
        ((f32(2, 3), f32(2), True), InvalidInputType, "Python bool"),
        ((f32(2, 3), f32(2), (1, 2)), InvalidInputType, "tuple"),
        ((f32(2, 3), f32(2), "1"), InvalidInputType, "str is no tensor"),
    ],
)
def test_wrong_arguments(args: tuple[Any, ...], error: type[Exception], message: str) -> None:
    mod = relay.parse(HEADER + MAIN)
    with pytest.raises(error, match=message):
        evaluate(mod, args)


def test_unknown_function() -> None:
    with pytest.raises(FunctionNotFound, match="it has: main"):
        evaluate(relay.parse(HEADER + MAIN), (), "other")


# --- dims: facts and claims ---------------------------------------------------------------------------


def test_named_dims_of_a_signature_are_checked_at_every_call(parse: Parse) -> None:
    mod = parse("""
        def @same(%x: Tensor[(?n), float32], %y: Tensor[(?n), float32]) -> Tensor[(?n), float32] { add(%x, %y) }
        def @main(%x: Tensor[(?), float32], %y: Tensor[(?), float32]) -> Tensor[(?), float32] { @same(%x, %y) }""")
    np.testing.assert_array_equal(evaluate(mod, (f32(3), f32(3))), 2 * f32(3))
    with pytest.raises(
        ShapeMismatch, match=r"parameter %y of @same: axis 0 must be \?n = 3, but it is 1"
    ):
        evaluate(mod, (f32(3), f32(1)))


def test_dim_expressions_are_checked(parse: Parse) -> None:
    mod = parse("""
        def @main(%x: Tensor[(?n), float32], %y: Tensor[(?n + 1), float32]) -> Tensor[(2 * ?n + 1), float32] {
          concatenate((%x, %y))
        }""")
    assert evaluate(mod, (f32(3), f32(4))).shape == (7,)
    with pytest.raises(InvalidInput, match="but it is 3"):
        evaluate(mod, (f32(3), f32(3)))


def test_a_result_that_lies_is_refused(parse: Parse) -> None:
    mod = parse("""
        def @main(%x: Tensor[(?n), float32], %y: Tensor[(?), float32]) -> Tensor[(?n), float32] { %y }""")
    assert evaluate(mod, (f32(3), f32(3))).shape == (3,)
    with pytest.raises(ShapeMismatch, match=r"result of @main: axis 0 must be 3, but it is 2"):
        evaluate(mod, (f32(3), f32(2)))


def test_an_outer_dim_is_a_number_in_a_local_function(parse: Parse) -> None:
    mod = parse("""
        def @main(%x: Tensor[(?n), float32], %y: Tensor[(?), float32]) -> Tensor[(?n), float32] {
          let %f = fn (%z: Tensor[(?n), float32]) -> Tensor[(?n), float32] { add(%z, %x) };
          %f(%y)
        }""")
    assert evaluate(mod, (f32(3), f32(3))).shape == (3,)
    with pytest.raises(ShapeMismatch, match="parameter %z"):
        evaluate(mod, (f32(3), f32(1)))


def test_an_annotation_narrows(parse: Parse) -> None:
    mod = parse("""
        def @main(%x: Tensor[(?), float32]) -> Tensor[(3), float32] {
          let %y: Tensor[(3), float32] = %x;
          %y
        }""")
    assert evaluate(mod, (f32(3),)).shape == (3,)
    with pytest.raises(ShapeMismatch, match="%y: axis 0 must be 3, but it is 4"):
        evaluate(mod, (f32(4),))


def test_claims_of_a_data_type_are_checked() -> None:
    mod = relay.parse(
        HEADER
        + """
        type Box[A] { Box(A) }
        def @main(%b: Box[Tensor[(2, 2), float32]]) -> Tensor[(2, 2), float32] {
          match (%b) { Box(%x) => { negative(%x) }, }
        }"""
    )
    box = mod.get_constructor("Box", "Box")
    assert evaluate(mod, (ADTValue(box, (f32(2, 2),)),)).shape == (2, 2)
    with pytest.raises(ShapeMismatch, match="%x: axis 1 must be 2, but it is 5"):
        evaluate(mod, (ADTValue(box, (f32(2, 5),)),))


def test_claims_of_references_and_closures_are_checked() -> None:
    mod = relay.parse(
        HEADER
        + """
        def @cell(%x: Tensor[(2), float32], %y: Tensor[(?), float32]) -> Tensor[(2), float32] {
          let %r = ref(%x);
          let %_u = ref_write(%r, %y);
          let %z = ref_read(%r);
          negative(%z)
        }
        def @call(%y: Tensor[(?), float32]) -> Tensor[(2), float32] {
          let %f: fn () -> Tensor[(2), float32] = fn () -> Tensor[(?), float32] { %y };
          let %z = %f();
          negative(%z)
        }"""
    )
    assert evaluate(mod, (f32(2), f32(2)), "cell").shape == (2,)
    assert evaluate(mod, (f32(2),), "call").shape == (2,)
    with pytest.raises(ShapeMismatch):
        evaluate(mod, (f32(2), f32(3)), "cell")
    with pytest.raises(ShapeMismatch):
        evaluate(mod, (f32(3),), "call")


def test_fields_of_different_sizes_are_no_contradiction(parse: Parse) -> None:
    mod = parse(TREES)
    leaf, node = (mod.get_constructor("Tree", name) for name in ("Leaf", "Node"))
    tree = ADTValue(node, (ADTValue(leaf, (f32(3, 2),)), ADTValue(leaf, (f32(7, 2),))))
    assert evaluate(mod, (tree,), "sum").shape == (2,)


def test_operators_refuse_what_does_not_fit(parse: Parse) -> None:
    mod = parse("""
        def @dense(%x: Tensor[(?, ?), float32], %w: Tensor[(4, ?), float32]) -> Tensor[(?, 4), float32] {
          nn.dense(%x, %w)
        }
        def @divide(%x: int32, %y: int32) -> int32 { divide(%x, %y) }
        def @index(%x: Tensor[(?), float32], %i: int32) -> float32 { take(%x, %i, axis=0, mode="fast") }
        """)
    with pytest.raises(ShapeMismatch, match=r"nn\.dense"):
        evaluate(mod, (f32(2, 3), f32(4, 5)), "dense")
    with pytest.raises(DivisionByZero) as caught:
        evaluate(mod, (1, 0), "divide")
    assert any("divide" in note for note in caught.value.__notes__)
    with pytest.raises(IndexOutOfRange):
        evaluate(mod, (f32(3), 3), "index")


def test_dims_in_attributes_have_their_numbers() -> None:
    n = DimVar("n")
    x = relay.var("x", TensorType((n,)))
    body = ir.Tuple(
        (
            relay.zeros((n, 2), "int32"),
            ir.Call(vm.DIM_VALUE, (), vm.DimValueAttrs(add(mul(n, 2), 1))),
        )
    )
    zeros, number = evaluate(IRModule.from_expr(ir.Function((x,), body)), (f32(3),))
    assert zeros.shape == (3, 2)
    assert number == 7


def test_dim_params_of_a_lifted_function() -> None:
    n = DimVar("n")
    x, size = relay.var("x", TensorType((n,))), relay.var("size", "int64")
    function = ir.Function((x, size), x, None, (), {"dim_params": ((1, n),)})
    mod = IRModule({ir.GlobalVar("main"): function})
    assert evaluate(mod, (f32(3), 3)).shape == (3,)
    with pytest.raises(ShapeMismatch):
        evaluate(mod, (f32(3), 4))


# --- what passes write ----------------------------------------------------------------------------------


def test_match_type_binds_and_checks() -> None:
    n = DimVar("n")
    x, y, a = (
        relay.var("x", TensorType((relay.Any(),))),
        relay.var("y", TensorType((relay.Any(),))),
        relay.var("a"),
    )
    checked = ir.Call(vm.MATCH_TYPE, (y,), vm.MatchTypeAttrs(TensorType((n,)), "the second"))
    value = ir.Call(vm.MATCH_TYPE, (x,), vm.MatchTypeAttrs(TensorType((n,)), "the first"))
    mod = IRModule.from_expr(ir.Function((x, y), ir.Let(a, value, checked)))
    assert evaluate(mod, (f32(3), f32(3))).shape == (3,)
    with pytest.raises(ShapeMismatch, match="the second: axis 0"):
        evaluate(mod, (f32(3), f32(2)))


def test_results_whose_declared_size_is_below_zero() -> None:
    """By their inferred type, or as it is written: as from a compiled program."""
    header = '#[version = "0.0.5"]\n'
    inferred = relay.parse(
        header
        + "def @main(%x: Tensor[(1, 1, ?n), float32], %w: Tensor[(1, 1, 3), float32]) { nn.conv1d(%x, %w) }"
    )
    written = relay.parse(
        header
        + "def @less(%x: Tensor[(?n), float32], %i: int32) -> Tensor[(?n - 3), float32] {\n"
        + "  if (less(%i, 2)) { @less(%x, %i + 1) } else { strided_slice(%x, begin=[0], end=[2], strides=[1]) } }\n"
        + "def @main(%x: Tensor[(?n), float32]) { @less(%x, 0) }"
    )
    weight = np.ones((1, 1, 3), np.float32)
    assert evaluate(inferred, (np.ones((1, 1, 3), np.float32), weight)).shape == (1, 1, 1)
    assert evaluate(written, (np.ones(5, np.float32),)).shape == (2,)
    for mod, args, message in (
        (inferred, (np.ones((1, 1, 1), np.float32), weight), "nn.conv1d: the window does not fit"),
        (
            written,
            (np.ones(1, np.float32),),
            "result of @less: axis 0 must be .* = -2, but it is 1",
        ),
    ):
        with pytest.raises(ShapeMismatch, match=message):
            evaluate(mod, args)
        with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as machine:
            with pytest.raises(ShapeMismatch):
                machine.run(*args)


def test_check_broadcast() -> None:
    n = DimVar("n")
    x, y = relay.var("x", TensorType((n,))), relay.var("y", TensorType((relay.Any(),)))
    mod = IRModule.from_expr(
        ir.Function((x, y), ir.Call(vm.CHECK_BROADCAST, (y,), vm.CheckBroadcastAttrs((4, n))))
    )
    assert evaluate(mod, (f32(3), f32(1))).shape == (1,)
    with pytest.raises(ShapeMismatch, match="must be 1 or 3"):
        evaluate(mod, (f32(3), f32(2)))


def test_kernels_write_into_allocated_storage() -> None:
    n = DimVar("n")
    shape = TensorType((n,))
    x, storage, first, second, done = (
        relay.var(name) for name in ("x", "storage", "first", "second", "done")
    )
    x = relay.var("x", shape)
    p = relay.var("p", shape)
    kernel = ir.Function((p,), p * 2, None, (), {"Primitive": 1})

    def tensor(offset: Any) -> ir.Call:
        return ir.Call(vm.ALLOC_TENSOR, (storage,), vm.AllocTensorAttrs((n,), "float32", offset))

    def run(value: ir.Expr, out: ir.Expr) -> ir.Call:
        return ir.Call(
            vm.CALL_KERNEL, (kernel, ir.Tuple((value,)), ir.Tuple((out,))), vm.CallKernelAttrs((n,))
        )

    body: ir.Expr = ir.Tuple((first, second))
    for var, value in reversed([
        (storage, ir.Call(vm.ALLOC_STORAGE, (), vm.AllocStorageAttrs(mul(n, 8)))),
        (first, tensor(0)),
        (relay.var("_"), run(x, first)),
        (second, tensor(mul(n, 4))),
        (done, run(first, second)),
        (relay.var("_"), ir.Call(vm.KILL, (x,))),
    ]):  # fmt: skip
        body = ir.Let(var, value, body)
    doubled, again = evaluate(IRModule.from_expr(ir.Function((x,), body)), (f32(3),))
    np.testing.assert_array_equal(doubled, 2 * f32(3))
    np.testing.assert_array_equal(again, 4 * f32(3))
    assert doubled.base is not None


def test_values_of_the_wrong_kind_are_named() -> None:
    x = relay.var("x", "int32")

    def run(body: ir.Expr) -> None:
        evaluate(IRModule.from_expr(ir.Function((x,), body)), (1,))

    with pytest.raises(ValueKindError, match="field 0 of int32 tensor"):
        run(ir.TupleGetItem(x, 0))
    with pytest.raises(ValueKindError, match="condition"):
        run(ir.If(x, x, x))
    with pytest.raises(ValueKindError, match="can't call int32 tensor"):
        run(x(x))
    with pytest.raises(ValueKindError, match="ref_read of int32"):
        run(ir.RefRead(x))
    with pytest.raises(InvalidInput, match="takes 1 arguments, got 2"):
        run(ir.Function((x,), x)(x, x))


def test_module_of_tuples_in_and_out() -> None:
    pair = relay.var("p", TupleType((scalar_type("int32"), TensorType((2,)))))
    mod = IRModule.from_expr(ir.Function((pair,), ir.Tuple((ir.TupleGetItem(pair, 1), pair))))
    out = Interpreter(mod).run("main", [1, f32(2)])
    np.testing.assert_array_equal(out[0], f32(2))
    with pytest.raises(InvalidInput, match="tuple of 2 fields, got 1"):
        evaluate(mod, ((1,),))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: relay.meshgrid([relay.take(x, relay.const(0))] * 65),
        lambda x: relay.expand_dims(x, 0, 70),
        lambda x: relay.ones((1,) * 70, "float32"),
        lambda x: relay.tile(x, (1,) * 70),
        lambda x: relay.stack([relay.expand_dims(x, 0, 31)] * 2, 0),
    ],
)
def test_more_axes_than_numpy_has(make: Callable[[relay.Expr], relay.Expr]) -> None:
    x = relay.var("x", shape=(2,))
    mod = relay.IRModule.from_expr(relay.Function([x], make(x)))
    with pytest.raises(CompileError, match=r"has rank \d\d; the interpreter computes.*32 axes"):
        evaluate(mod, [np.ones(2, "float32")])
    with pytest.raises(CompileError, match=r"has rank \d\d; the runtime holds"):
        nvm.compile(mod, native=False)
