"""What the compiler asks of a call's types."""

from __future__ import annotations

from nimblevm.relay import dims
from nimblevm.relay.dim_facts import DimFacts
from nimblevm.relay.ir import Call, Var
from nimblevm.relay.op.registry import get
from nimblevm.relay.type_context import Demand, demands, instantiate, narrowing, result_over_axes
from nimblevm.relay.types import DimVar, FuncType, TensorType, TupleType, free_dims, scalar_type
from tests.relay.inferred import M, N


def test_demands_of_a_call() -> None:
    x, w = Var("x", TensorType((N, 300))), Var("w", TensorType((512, M)))
    dense = get("nn.dense")
    call = Call(dense, (x, w), dense.attrs() if dense.attrs else None)
    found, ret = demands(call, (TensorType((N, 300)), TensorType((512, M))))
    assert found == [Demand(1, 1, 300)]
    assert ret is TensorType((N, 512))
    facts = DimFacts()
    facts.assume_equal(M, 300)
    assert demands(call, (TensorType((N, 300)), TensorType((512, M))), facts)[0] == []


def test_demands_of_a_broadcast() -> None:
    x, y = Var("x"), Var("y")
    call = Call(get("add"), (x, y))
    found, ret = demands(call, (TensorType((5, 4)), TensorType((N, 1))))
    assert found == [Demand(1, shape=(5, 4))]
    assert ret is TensorType((5, 4))
    found, ret = demands(call, (TensorType((N,)), TensorType((M,))))
    assert found == []
    assert ret is TensorType((dims.bcast(N, M),))


def test_narrowing_lists_axes() -> None:
    have = TupleType([TensorType((M, 4)), scalar_type("int32")])
    want = TupleType([TensorType((5, 4)), scalar_type("int32")])
    (one,) = narrowing(have, want)
    assert (one.path, one.axis, one.actual, one.expected, one.binds) == ((0,), 0, M, 5, False)
    (bound,) = narrowing(TensorType((5, 5)), TensorType((N, 5)))
    assert bound.binds
    assert bound.expected is N
    twice = narrowing(TensorType((M, 5)), TensorType((N, N)))
    assert [n.binds for n in twice] == [True, False]
    assert narrowing(TensorType((N,)), TensorType((N,)), DimFacts([N])) == []
    assert len(narrowing(TensorType((M,)), TensorType((N,)), DimFacts([N]))) == 1


def test_instantiate_a_signature() -> None:
    sig = FuncType([TensorType((N,)), TensorType((dims.add(N, 1),))], TensorType((dims.mul(2, N),)))
    made = instantiate(sig, (TensorType((M,)), TensorType((7,))))
    assert made.dims == {N: M}
    assert made.params == (TensorType((M,)), TensorType((dims.add(M, 1),)))
    assert made.result is TensorType((dims.mul(2, M),))


def test_result_over_axes_stays_small() -> None:
    big: dims.Dim = N
    for _ in range(50):
        big = dims.add(big, DimVar())
    call = Call(get("add"), (Var("x"), Var("y")))
    ret, mapping = result_over_axes(call, (TensorType((big,)), TensorType((1,))))
    (var,) = free_dims(ret)
    assert mapping == {var: big}
