"""Loops on several threads: which ones, in what units, and that every partition gives the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from nimblevm.errors import DivisionByZero, IndexOutOfRange, NimbleError
from nimblevm.kernels import llvm
from nimblevm.kernels import loop_ir as ir
from nimblevm.kernels.lower import lower_primitive
from nimblevm.kernels.schedule import regions, schedule
from nimblevm.kernels.schedule.regions import Region, regions_of
from nimblevm.kernels.schedule.work import work_of
from tests.kernels import native
from tests.kernels.fused import FUSED, floats
from tests.kernels.native import Library, Program, bind, parsed, program
from tests.kernels.test_compute import OPS, Sample, dtypes_of, samples

CUTS = ([0.5], [0.1, 0.2, 0.9], [0.001, 0.33, 0.34, 0.77])


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every region goes through parallel_for, however small."""
    monkeypatch.setattr(regions, "MIN_WORK", -1.0)
    native.regions.clear()
    yield
    native.cuts.clear()


def region_of(text: str, features: tuple[str, ...] = ("avx512vl",)) -> list[Region]:
    kernel = schedule(lower_primitive(parsed(text)[1]).kernel, features)
    return list(regions_of(kernel).values())


def outputs(made: Program, library: Library, index: int, cuts: list[float]) -> list[bytes] | str:
    native.cuts[:] = cuts
    try:
        return [array.tobytes() for array in made.run(library, index)]
    except NimbleError as error:
        return type(error).__name__


LARGE = {
    "elementwise": (
        "def @main(%x: Tensor[(?n), float32]) { multiply(tanh(%x), exp(%x)) }",
        (floats(5000),),
    ),
    "rows_and_columns": (
        "def @main(%x: Tensor[(?n, ?m), float32], %y: Tensor[(?m), float32]) { erf(add(%x, %y)) }",
        (floats(3, 1111), floats(1111)),
    ),
    "three_axes_with_a_gap": (
        "def @main(%x: Tensor[(?a, ?b, ?c), float32]) { transpose(sigmoid(%x), axes=[1, 0, 2]) }",
        (floats(2, 3, 700),),
    ),
    "short_sums_in_lanes": (
        "def @main(%x: Tensor[(?n, 5), float32]) { sum(multiply(%x, %x), axis=1) }",
        (floats(1500, 5),),
    ),
    "small_window": (
        'def @main(%x: Tensor[(1, 3, ?h, 40), float32]) { nn.avg_pool2d(%x, pool_size=[3, 3], layout="NCHW") }',
        (floats(1, 3, 20, 40),),
    ),
    "softmax": ("def @main(%x: Tensor[(?n, ?m), float32]) { nn.softmax(%x) }", (floats(9, 333),)),
    "dense": (
        """def @main(%x: Tensor[(?m, ?k), float32], %w: Tensor[(?n, ?k), float32], %b: Tensor[(?n), float32]) {
        tanh(nn.bias_add(nn.dense(%x, %w), %b)) }""",
        (floats(23, 70), floats(45, 70), floats(45)),
    ),
    "row_major_product": (
        "def @main(%x: Tensor[(?m, ?k), float32], %w: Tensor[(?k, ?n), float32]) { nn.matmul(%x, %w) }",
        (floats(40, 70), floats(70, 333)),
    ),
}  # fmt: skip


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize(
    "programs", [LARGE, pytest.param(FUSED, marks=pytest.mark.slow)], ids=["large", "fused"]
)
def test_every_partition_gives_the_same_bits(
    programs: dict[str, tuple[str, tuple[Any, ...]]],
) -> None:
    made = {name: program(text, *args)[0] for name, (text, args) in programs.items()}
    code = llvm.build([p.lowered.kernel for p in made.values()], "native")
    assert code is not None
    library = Library(code)
    for index, (name, one) in zip(code.functions, made.items(), strict=True):
        native.regions.clear()
        whole = outputs(one, library, index, [])
        assert native.regions or name not in LARGE, name
        for cuts in CUTS:
            assert outputs(one, library, index, cuts) == whole, (name, cuts)


@pytest.mark.slow
@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "bool"])
def test_every_partition_of_every_operator_gives_the_same_bits(dtype: str) -> None:
    found: list[Sample] = []
    for number, op in enumerate(OPS):
        if dtype in dtypes_of(op):
            found += samples(op, dtype, 2, symbolic=number % 3 > 0)
    code = llvm.build([s.program.lowered.kernel for s in found], "native")
    assert code is not None
    library = Library(code)
    for index, sample in zip(code.functions, found, strict=True):
        if index >= 0:
            whole = outputs(sample.program, library, index, [])
            for cuts in CUTS:
                what = (sample.op, sample.case, cuts)
                assert outputs(sample.program, library, index, cuts) == whole, what


def test_units_are_counted_over_nested_loops() -> None:
    (found,) = region_of("def @main(%x: Tensor[(?n, ?m), float32]) { tanh(%x) }")
    assert (len(found.loops), found.block) == (2, 256)
    (found,) = region_of("def @main(%x: Tensor[(?n, 768), float32]) { tanh(%x) }")
    assert (len(found.loops), found.block) == (1, 1)  # a row is short
    (found,) = region_of("def @main(%x: Tensor[(?n, 9000), float32]) { tanh(%x) }")
    assert (len(found.loops), found.block) == (2, 256)
    (found,) = region_of("def @main(%x: Tensor[(4096, 9000), float32]) { tanh(%x) }")
    assert (len(found.loops), found.block) == (1, 1)  # rows enough


@pytest.mark.usefixtures("everything")
def test_one_unit_is_no_region() -> None:
    """However much work it is: threads could not share it, and the estimate takes time of its own."""
    for count, is_used in ((256, False), (257, True)):
        one, _ = program("def @main(%x: Tensor[(?n), float32]) { tanh(%x) }", floats(count))
        code = llvm.build([one.lowered.kernel], "native")
        assert code is not None
        native.regions.clear()
        outputs(one, Library(code), 0, [])
        assert bool(native.regions) == is_used


def test_little_work_of_known_size_is_no_region() -> None:
    assert region_of("def @main(%x: Tensor[(4, 32), float32]) { tanh(%x) }") == []
    assert region_of("def @main(%x: Tensor[(400, 320), float32]) { tanh(%x) }") != []


def test_sums_and_scatters_are_no_regions() -> None:
    assert region_of("def @main(%x: Tensor[(?n), float32]) { sum(%x) }") == []
    text = """def @main(%x: Tensor[(?n), float32], %i: Tensor[(?m), int64], %u: Tensor[(?m), float32]) {
    scatter_elements(%x, %i, %u, axis=0) }"""
    kernel = schedule(lower_primitive(parsed(text)[1]).kernel, ())
    loops = [s for s in kernel.body if isinstance(s, ir.For)]
    assert [loop in regions_of(kernel) for loop in loops] == [loop.parallel for loop in loops]
    assert not all(loop.parallel for loop in loops)


def test_a_row_that_turns_share_is_no_region() -> None:
    """Scratch that each turn overwrites may be marked parallel by mistake: it must not run in pieces."""
    n, i, j = ir.DimRef("int64", 0), ir.LoopVar("int64", "i"), ir.LoopVar("int64", "j")
    axis = ir.Axis(n)
    buffers = (
        ir.Buffer("x", "float32", "in", (axis, axis)),
        ir.Buffer("out", "float32", "out", (axis, axis)),
        ir.Buffer("row", "float32", "scratch", (axis,)),
    )
    fill = ir.For(j, n, (ir.Store(2, (j,), ir.Load("float32", 0, (i, j))),), parallel=True)
    k = ir.LoopVar("int64", "k")
    use = ir.For(k, n, (ir.Store(1, (i, k), ir.Load("float32", 2, (k,))),), parallel=True)
    kernel = ir.Kernel("shared", buffers, ("n",), (ir.For(i, n, (fill, use), parallel=True),))
    assert regions_of(kernel) == {}


@pytest.mark.parametrize(("least", "less", "apart"), [(0, 1, True), (0, 0, False), (-1, 1, False)])
def test_rows_behind_those_that_are_read(least: int, less: int, apart: bool) -> None:
    """Turns that add rows to a table that they read: none of them is one that another turn adds."""
    size, names, i = ir.DimRef("int64", 0), ir.DimRef("int64", 1), ir.LoopVar("int64", "i")
    old, axis = ir.Local("int64", "old"), ir.Axis(size)
    buffers = (
        ir.Buffer("names", "int64", "in", (ir.Axis(names),)),
        ir.Buffer("all", "float32", "out", (axis, axis)),
    )
    last = ir.Binary("int64", "sub", old, ir.Const("int64", less))
    row = ir.Binary("int64", "min", ir.Load("int64", 0, (i,)), last)
    new = ir.Binary("int64", "add", old, ir.Binary("int64", "max", i, ir.Const("int64", least)))
    j = ir.LoopVar("int64", "j")
    value = ir.Unary("float32", "tanh", ir.Load("float32", 1, (row, j)))
    adds = ir.For(
        i, names, (ir.For(j, size, (ir.Store(1, (new, j), value),), parallel=True),), parallel=True
    )
    before = ir.SetLocal(old, ir.Const("int64", 4))
    found = regions_of(ir.Kernel("table", buffers, ("size", "names"), (before, adds)))
    assert (adds in found) == apart


Place = Callable[[ir.Value, ir.Value, ir.LoopVar], ir.Value]
SHIFTED: dict[str, tuple[Place, Place]] = {
    "residue": (lambda x, two, _: ir.Binary("int64", "floormod", x, two),
                lambda x, two, _: ir.Binary("int64", "floormod", ir.Binary("int64", "add", x, ir.Const("int64", 1)), two)),
    "beyond": (lambda x, _, __: x, lambda x, two, _: ir.Binary("int64", "add", x, two)),
    "behind": (lambda x, two, i: ir.Binary("int64", "min", i, ir.Binary("int64", "sub", x, two)),
               lambda x, two, i: ir.Binary("int64", "add", x, ir.Binary("int64", "max", i, ir.Const("int64", 0)))),
}  # fmt: skip


@pytest.mark.parametrize("shift", SHIFTED)
@pytest.mark.parametrize("shared", ["local", "turn", "inner", "read"])
def test_places_with_something_in_common_differ_only_if_all_turns_have_it(
    shift: str, shared: str
) -> None:
    """A turn that writes beside what it reads writes what another turn reads, if "beside" moves with the turns."""
    n = ir.DimRef("int64", 0)
    i, j = ir.LoopVar("int64", "i"), ir.LoopVar("int64", "j")
    old, two = ir.Local("int64", "old"), ir.Const("int64", 2)
    buffers = (ir.Buffer("all", "int64", "out", (ir.Axis(n), ir.Axis(n))),)
    common: dict[str, ir.Value] = {
        "local": old, "turn": i, "inner": j, "read": ir.Load("int64", 0, (i, old)),
    }  # fmt: skip
    read, write = (place(common[shared], two, i) for place in SHIFTED[shift])
    value = ir.Unary("int64", "negative", ir.Load("int64", 0, (read, j)))
    inner = ir.For(j, n, (ir.Store(0, (write, i), value),), parallel=True)
    loop = ir.For(i, n, (inner,), parallel=True)
    before = ir.SetLocal(old, ir.Const("int64", 4))
    found = regions_of(ir.Kernel("shifted", buffers, ("n",), (before, loop)))
    assert (loop in found) == (shared == "local")


@pytest.mark.parametrize("turned", [True, False])
def test_an_index_of_two_variables_does_not_keep_turns_apart(turned: bool) -> None:
    """out[j, i + j] of other[.., i + j]: turns share columns."""
    n, i, j = ir.DimRef("int64", 0), ir.LoopVar("int64", "i"), ir.LoopVar("int64", "j")
    buffers = (ir.Buffer("all", "float32", "out", (ir.Axis(n), ir.Axis(n))),)
    column = ir.Binary("int64", "add", i, j) if turned else i
    row = ir.Binary("int64", "floordiv", j, ir.Const("int64", 2))
    value = ir.Unary("float32", "tanh", ir.Load("float32", 0, (row, column)))
    loop = ir.For(
        i, n, (ir.For(j, n, (ir.Store(0, (j, column), value),), parallel=True),), parallel=True
    )
    assert (loop in regions_of(ir.Kernel("turned", buffers, ("n",), (loop,)))) == (not turned)


@pytest.mark.parametrize("op", ["add", "floordiv", "floormod", "min"])
def test_an_index_that_two_turns_share_does_not_keep_them_apart(op: str) -> None:
    """all[i // 2, j] of all[i // 2, 0]: turn 1 reads what turn 0 writes."""
    n, i, j = ir.DimRef("int64", 0), ir.LoopVar("int64", "i"), ir.LoopVar("int64", "j")
    buffers = (ir.Buffer("all", "float32", "out", (ir.Axis(n), ir.Axis(n))),)
    row = ir.Binary("int64", op, i, ir.Const("int64", 2))
    value = ir.Unary("float32", "tanh", ir.Load("float32", 0, (row, ir.Const("int64", 0))))
    loop = ir.For(
        i, n, (ir.For(j, n, (ir.Store(0, (row, j), value),), parallel=True),), parallel=True
    )
    found = regions_of(ir.Kernel("shared", buffers, ("n",), (loop,)))
    assert (loop in found) == (op == "add")


def test_sizes_in_locals_count_as_work_and_units() -> None:
    """A loop whose turns are known when the region begins, as the rows of a tree's level."""
    n, m = ir.DimRef("int64", 0), ir.Local("int64", "m")
    i, j = ir.LoopVar("int64", "i"), ir.LoopVar("int64", "j")
    axes = (ir.Axis(n), ir.Axis(n))
    buffers = (ir.Buffer("x", "float32", "in", axes), ir.Buffer("out", "float32", "out", axes))
    value = ir.Unary("float32", "tanh", ir.Load("float32", 0, (i, j)))
    nest = ir.For(
        i, n, (ir.For(j, m, (ir.Store(1, (i, j), value),), parallel=True),), parallel=True
    )
    before = ir.SetLocal(m, ir.Binary("int64", "sub", n, ir.Const("int64", 1)))
    region = regions_of(ir.Kernel("local", buffers, ("n",), (before, nest)))[nest]
    assert region.loops == (nest, nest.body[0])
    assert [set(sizes) for sizes in region.work] == [{n, m}]


@pytest.mark.usefixtures("everything")
def test_locals_from_before_a_region() -> None:
    """A sum of everything, then a loop that uses it."""
    text = "def @main(%x: Tensor[(?n, ?m), float32]) { divide(%x, sum(%x)) }"
    made, expected = program(text, floats(40, 1000))
    code = llvm.build([made.lowered.kernel], "native")
    assert code is not None
    native.cuts[:] = [0.4]
    found = made.run(Library(code))[0]
    assert native.regions
    np.testing.assert_allclose(found, expected[0], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("def @main(%x: Tensor[(?n), int64], %y: Tensor[(?n), int64]) { divide(%x, %y) }", DivisionByZero),
        ("def @main(%y: Tensor[(5), int64], %x: Tensor[(?n), int64]) { gather(%y, %x, axis=0) }", IndexOutOfRange),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("everything")
def test_a_fault_in_a_piece_is_the_calls(text: str, error: type[NimbleError]) -> None:
    lowered = lower_primitive(parsed(text)[1])
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    long = np.ones(3000, "int64")
    bad = long.copy()
    bad[2000] = 0 if error is DivisionByZero else 99
    args = [
        long if len(lowered.param_types[0].shape) and error is DivisionByZero else long[:5],
        bad,
    ]
    native.cuts[:] = [0.5]
    with pytest.raises(error):
        Program(lowered, args, bind(lowered, args, [long])).run(Library(code))
    assert native.regions


def test_no_sizes_no_turns() -> None:
    text = "def @main(%x: Tensor[(?a, ?b, ?c), float32]) { tanh(%x) }"
    lowered = lower_primitive(parsed(text)[1])
    code = llvm.build([lowered.kernel], "native")
    assert code is not None
    library = Library(code)
    for shape in ((0, 5, 5), (5, 0, 5), (5, 5, 0), (0, 0, 0), (2**40, 0, 3)):
        x = np.zeros(shape, "float32")
        assert Program(lowered, [x], bind(lowered, [x], [x])).run(library)[0].shape == shape


def test_work_grows_with_sizes_and_operations() -> None:
    def work(text: str) -> float:
        kernel = schedule(lower_primitive(parsed(text)[1]).kernel, ())
        (total,) = work_of(kernel.body).values()
        return total

    small = work("def @main(%x: Tensor[(10, 1000), float32]) { add(%x, 1f) }")
    assert 100 < small < 5000
    assert work("def @main(%x: Tensor[(100, 1000), float32]) { add(%x, 1f) }") > 9 * small
    assert work("def @main(%x: Tensor[(10, 1000), float32]) { tanh(%x) }") > 2 * small
    assert work("def @main(%x: Tensor[(10, 1000), float32]) { sin(%x) }") > 5 * small
