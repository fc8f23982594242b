"""Operators by dtypes: what each family of operators has to take, and that nothing in a record's table is empty."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nimblevm import dtypes
from nimblevm.kernels import compute  # noqa: F401  fills the table of computes
from nimblevm.relay.op import all_ops, find, get
from nimblevm.relay.op.concrete import ConcreteContext
from nimblevm.relay.op.registry import NOT_YET
from nimblevm.relay.types import TensorType
from tests.relay.op.cases import WITHOUT_CASES, cases
from tests.relay.op.coverage import is_computed

ROOT = Path(__file__).resolve().parents[3]
FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
NUMBERS = FLOATS + INTEGERS
ANY = (*NUMBERS, "bool")
INDICES = ("int32", "int64")

# Family -> (dtypes that the first tensor argument must be able to have, operators).
FAMILIES: dict[str, tuple[tuple[str, ...], str]] = {
    "arithmetic": (
        NUMBERS,
        """add subtract multiply divide floor_divide trunc_divide mod floor_mod trunc_mod power negative
        abs sign floor ceil round trunc clip isnan isinf isfinite nn.relu nn.bias_add""",
    ),
    "comparison": (ANY, "equal not_equal less less_equal greater greater_equal"),
    "order": (ANY, "maximum minimum max min"),
    "logical": (("bool",), "logical_and logical_or logical_xor logical_not"),
    "bitwise": ((*INTEGERS, "bool"), "bitwise_and bitwise_or bitwise_xor bitwise_not"),
    "shifts": (INTEGERS, "left_shift right_shift"),
    "data movement": (
        ANY,
        """copy cast cast_like where reshape transpose expand_dims squeeze concatenate split stack take
        gather gather_nd scatter_elements scatter_nd strided_slice strided_set broadcast_to full zeros ones zeros_like
        ones_like full_like repeat tile reverse reverse_sequence nn.pad nn.mirror_pad shape_of ndarray_size meshgrid
        trilu sequence_mask nn.batch_flatten reshape_like broadcast_to_like slice_like""",
    ),
    "ranges": (NUMBERS, "arange"),
    "reduce": (NUMBERS, "sum mean prod argmax argmin cumsum cumprod"),
    "reduce bool": (("bool",), "all any"),
    "sort": (NUMBERS, "topk sort argsort searchsorted unique argwhere"),
    "float maths": (
        FLOATS,
        """exp log log2 log10 sqrt rsqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf sigmoid
        nn.leaky_relu nn.prelu nn.softmax nn.fast_softmax nn.log_softmax nn.layer_norm nn.batch_norm nn.instance_norm
        nn.group_norm nn.l2_normalize nn.dropout variance""",
    ),
    "products and windows": (
        (*FLOATS, "int8", "uint8"),
        """nn.dense nn.matmul nn.batch_matmul nn.conv1d nn.conv2d nn.conv2d_transpose""",
    ),
    "pools": (
        FLOATS,
        """nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.global_max_pool1d
        nn.global_max_pool2d nn.global_max_pool3d nn.global_avg_pool1d nn.global_avg_pool2d nn.global_avg_pool3d
        nn.adaptive_max_pool1d nn.adaptive_max_pool2d nn.adaptive_max_pool3d nn.adaptive_avg_pool1d
        nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.upsampling image.resize1d
        image.resize2d image.resize3d""",
    ),
}
OPS = [op.name for op in all_ops() if op.name not in WITHOUT_CASES]


def test_no_operator_stands_in_two_families() -> None:
    names = [name for _, text in FAMILIES.values() for name in text.split()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_takes_its_dtypes(family: str) -> None:
    needed, names = FAMILIES[family]
    for name in names.split():
        op = find(name)
        if op is not None:
            lacking = [dtype for dtype in needed if dtype not in op.dtypes[0]]
            assert not lacking, (name, lacking)


@pytest.mark.parametrize("name", OPS)
def test_every_dtype_of_a_record_has_a_kernel_and_a_case(name: str) -> None:
    op = get(name)
    for group in op.dtypes:
        assert len(set(group)) == len(group) > 0
        assert all(dtypes.dtype(dtype) for dtype in group)
    for dtype in op.dtypes[0]:
        assert is_computed(name, dtype) or name.startswith(("vm.", "memory."))
        case = next(iter(cases(name, dtype, 1)))
        types = case.types
        if types and isinstance(types[0], TensorType):
            assert op.args[0] in ("condition",) or types[0].dtype == dtype, (types, dtype)
        case.infer(op)
    assert op.grad == NOT_YET


@pytest.mark.parametrize("name", OPS)
def test_other_dtypes_are_refused(name: str) -> None:
    """A dtype that the table lacks is a type error, not a surprise later."""
    op = get(name)
    refused = [row.name for row in dtypes.DTYPES if row.name not in op.dtypes[0]]
    if not op.args or op.variadic:
        return
    for dtype in refused:
        case = next(iter(cases(name, op.dtypes[0][0], 1)))
        types = case.types
        first = types[0]
        if not isinstance(first, TensorType):
            return
        changed = TensorType(first.shape, dtype)
        same = tuple(
            TensorType(t.shape, dtype)
            if isinstance(t, TensorType) and t.dtype == first.dtype
            else t
            for t in types[1:]
        )
        with pytest.raises(Exception, match=r"must be|dtype"):
            op.relation(ConcreteContext(op, (changed, *same)), (changed, *same), case.attrs)


def test_indices_are_int32_or_int64() -> None:
    """Those of vision are made by operators there, int32 as in TVM."""
    for op in (op for op in all_ops() if not op.name.startswith("vision.")):
        for arg, group in zip(op.args, op.dtypes, strict=False):
            if arg in ("indices", "valid_length", "seq_lengths") and len(op.dtypes) > 1:
                assert set(INDICES) <= set(group), (op.name, arg)


def test_the_page_of_operators_is_current() -> None:
    script = str(ROOT / "tools" / "operators_doc.py")
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, (
        f"run python tools/operators_doc.py\n{done.stdout[-3000:]}{done.stderr}"
    )
