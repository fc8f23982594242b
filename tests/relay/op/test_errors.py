"""Wrong operands and attributes of every operator are type errors that name the place of the call.

What can be made wrong without knowing the operator: a tensor for a tuple and the reverse, an argument too many,
and for attributes by their names: an axis out of range or given twice, a dtype, mode or layout that does not exist, a
number out of its range. SHAPES has shapes that do not fit each other.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from nimblevm.errors import RelayTypeError
from nimblevm.relay import ir, op
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import all_ops, get
from nimblevm.relay.op.compiler_region import MARKS
from nimblevm.relay.types import TensorType, TupleType, Type
from tests.relay.op.cases import WITHOUT_CASES, cases
from tests.relay.op.draw import Case

INTERNAL = ("vm.", "memory.")
OPS = [
    row.name
    for row in all_ops()
    if row.name not in WITHOUT_CASES and not row.name.startswith(INTERNAL)
]
PLACE = ir.Span("wrong.rly", 7, 3)

# Attribute -> values that no operator accepts.
WRONG: dict[str, tuple[Any, ...]] = {
    "axis": (99, -99, (99,), (0, 0)),
    "axes": ((99,), (0, 0)),
    "dtype": ("float33",),
    "out_dtype": ("float33",),
    "mode": ("nonsense",),
    "pad_mode": ("nonsense",),
    "reduction": ("nonsense",),
    "indexing": ("nonsense",),
    "slice_mode": ("nonsense",),
    "method": ("nonsense",),
    "layout": ("nonsense",),
    "data_layout": ("nonsense",),
    "num_groups": (0, -1),
    "rate": (1.0, -0.5),
}

# Attributes that text has and that mean nothing.
IGNORED = {("sort", "dtype")}


def program(name: str, types: tuple[Type, ...], attrs: Any) -> IRModule:
    params = [ir.Var(f"p{i}", t) for i, t in enumerate(types)]
    call = ir.Call(get(name), params, attrs, span=PLACE)
    return IRModule.from_expr(ir.Function(params, call))


def check_refused(name: str, types: tuple[Type, ...], attrs: Any) -> None:
    mod = program(name, types, attrs)
    with pytest.raises(RelayTypeError, match=re.escape(str(PLACE))):
        infer_type(mod)


def first_case(name: str) -> Case:
    """A case whose operands have axes, where there is one."""
    made = list(cases(name, get(name).dtypes[0][-1], 12))
    return max(made, key=lambda case: sum(getattr(v, "ndim", 0) for v in case.inputs))


@pytest.mark.parametrize("name", OPS)
def test_operands_of_another_kind(name: str) -> None:
    case = first_case(name)
    types = case.types
    for index, type_ in enumerate(types if name not in MARKS else ()):  # those take any type
        other = TensorType((), "float32") if isinstance(type_, TupleType) else TupleType((type_,))
        changed = (*types[:index], other, *types[index + 1 :])
        check_refused(name, changed, case.attrs)
    check_refused(name, (*types, TensorType((), "float32")), case.attrs)


def wrong_attributes(name: str) -> list[Any]:
    attrs = first_case(name).attrs
    if attrs is None:
        return []
    found = []
    for field in dataclasses.fields(attrs):
        for value in WRONG.get(field.name, ()) if (name, field.name) not in IGNORED else ():
            known = getattr(attrs, field.name)
            # An axis that may be a tuple takes both forms; one that is an int only that.
            if isinstance(value, tuple) and isinstance(known, int):
                continue
            found.append(dataclasses.replace(attrs, **{field.name: value}))
    return found


@pytest.mark.parametrize("name", [name for name in OPS if wrong_attributes(name)])
def test_attributes_out_of_range(name: str) -> None:
    types = first_case(name).types
    for attrs in wrong_attributes(name):
        check_refused(name, types, attrs)


def bytes_(first: str, second: str) -> tuple[Type, ...]:
    """Operands of a product of rank 2, of two dtypes."""
    return (TensorType((2, 3), first), TensorType((3, 3), second))


def floats(*shapes: tuple[int, ...]) -> tuple[Type, ...]:
    return tuple(TensorType(shape, "float32") for shape in shapes)


SHAPES: list[tuple[str, tuple[Type, ...], Any]] = [
    ("add", floats((2, 3), (2, 4)), None),
    ("bitwise_and", (TensorType((2,), "int32"), TensorType((2,), "int8")), None),
    ("power", floats((2, 3), (4,)), None),
    ("where", floats((2,), (3,), (3,)), None),
    ("nn.prelu", floats((2, 3), (2,)), op.prelu.PReluAttrs(1)),
    ("nn.prelu", floats((2, 3), (3, 1)), op.prelu.PReluAttrs(1)),
    ("nn.batch_flatten", floats(()), None),
    ("nn.batch_norm", floats((2, 3), (3,), (3,), (3,), (2,)), op.norm.NormAttrs()),
    ("nn.instance_norm", floats((2, 3), (3,), (2,)), op.norm.NormAttrs()),
    ("nn.group_norm", floats((2, 3), (3,), (3,)), op.norm.GroupNormAttrs(2)),
    ("nn.layer_norm", floats((2, 3), (2,), (3,)), op.layer_norm.LayerNormAttrs()),
    ("variance", floats((2, 3), (2, 3)), op.variance.VarianceAttrs((1,))),
    ("variance", floats((2, 3), (2,)), op.variance.VarianceAttrs((1,))),
    ("max", floats((0, 3)), op.reduce.ReduceAttrs((0,))),
    ("reinterpret", floats((2,)), op.cast.CastAttrs("int64")),
    ("cumsum", (TensorType((2,), "bool"),), op.scan.ScanopAttrs(0)),
    # int8 and uint8 mix where the result says how; nothing else does.
    ("nn.dense", bytes_("uint8", "int8"), op.dense.DenseAttrs()),
    ("nn.dense", bytes_("int8", "uint8"), op.dense.DenseAttrs(None, "int8")),
    ("nn.dense", bytes_("int8", "uint8"), op.dense.DenseAttrs(None, "uint32")),
    ("nn.dense", bytes_("int8", "int16"), op.dense.DenseAttrs(None, "int32")),
    ("nn.matmul", bytes_("uint8", "int8"), op.matmul.MatmulAttrs()),
]


@pytest.mark.parametrize(("name", "types", "attrs"), SHAPES)
def test_shapes_and_dtypes_that_do_not_fit(name: str, types: tuple[Type, ...], attrs: Any) -> None:
    check_refused(name, types, attrs)
