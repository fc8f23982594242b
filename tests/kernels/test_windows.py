"""Convolutions with packed weights: sizes around the tiles, strides, dilation, padding, epilogues, targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nimblevm.kernels import llvm
from nimblevm.kernels.loop_ir import WindowProduct
from nimblevm.kernels.lower import LoweredKernel, lower_primitive
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule import schedule
from nimblevm.relay.op.conv2d_pack import packed_kernel
from nimblevm.relay.op.registry import get
from tests.kernels.fused import floats
from tests.kernels.native import Library, Program, agree, bind, parsed

IMAGES = ((1, 1, 1), (1, 2, 2), (1, 7, 7), (2, 5, 9), (3, 1, 14), (0, 4, 4), (2, 13, 1))


def _conv(inner: int, outer: int, kernel: tuple[int, int], dtype: str, more: str) -> str:
    panels, depth = -(-outer // 16), inner * kernel[0] * kernel[1]
    return f"""def @main(%x: Tensor[(?n, ?h, ?w, {inner}), {dtype}], %w: Tensor[({panels}, {depth}, 16), {dtype}],
      %b: Tensor[({outer}), {dtype}]) {{
      nn.relu(nn.contrib_conv2d_pack(%x, %w, channels={outer}, kernel_size=[{kernel[0]}, {kernel[1]}]{more}) + %b) }}"""


def _tiles(lowered: LoweredKernel, features: tuple[str, ...] = ("avx512f",)) -> int:
    body = schedule(lowered.kernel, features).body
    return sum(isinstance(s, WindowProduct) for s in all_statements(body))


Case = tuple[int, int, tuple[int, int], str, str]
"""Channels of data and result, kernel, dtype, other attributes."""
WINDOWS = [
    ((1, 1), ""),
    ((1, 1), ", strides=[2, 2]"),
    ((1, 1), ", padding=[1, 2]"),
    ((3, 3), ""),
    ((3, 2), ", strides=[2, 3], padding=[0, 1, 2, 3]"),
    ((3, 3), ", dilation=[2, 1], padding=[2, 1]"),
    ((2, 3), ", dilation=[1, 2], padding=[1, 2]"),
    ((2, 2), ", dilation=[2, 2], strides=[2, 1], padding=[2]"),
    ((7, 7), ", strides=[2, 2], padding=[3, 3]"),
]


def _check(cases: list[Case], target: str = "native") -> None:
    """Compiled together, since they share the micro-kernels; compared with the operator's reference on all images."""
    functions = [parsed(_conv(*case))[1] for case in cases]
    lowered = [lower_primitive(function) for function in functions]
    assert [_tiles(kernel) for kernel in lowered] == [1] * len(cases)
    code = llvm.build([kernel.kernel for kernel in lowered], target)
    assert code is not None
    library = Library(code)
    for number, (inner, outer, kernel, dtype, _) in enumerate(cases):
        conv = functions[number].body.args[0].args[0]  # type: ignore[attr-defined]
        w = packed_kernel(floats(outer, inner, *kernel), "OIHW").astype(dtype)
        b = floats(outer).astype(dtype)
        for n, h, width in IMAGES:
            x = floats(n, h + kernel[0], width + kernel[1], inner).astype(dtype)
            op = get("nn.contrib_conv2d_pack")
            total = op.reference((x, w), conv.attrs, conv.checked_type)
            expected = np.maximum(np.asarray(total) + b, 0)
            args: list[np.ndarray[Any, Any]] = [x, w, b]
            program = Program(lowered[number], args, bind(lowered[number], args, [expected]))
            found = program.run(library, code.functions[number])[0]
            assert agree(found, expected, 1e-5, 1e-5), (cases[number], x.shape)


CHANNELS = (8, 16, 17, 64, 70, 150)


@pytest.mark.parametrize(
    ("dtype", "channels"),
    [
        ("float32", (16, 70)),
        ("float64", (17,)),
        pytest.param("float32", CHANNELS, marks=pytest.mark.slow),
        pytest.param("float64", CHANNELS, marks=pytest.mark.slow),
    ],
)
def test_channels_around_the_panels(dtype: str, channels: tuple[int, ...]) -> None:
    _check([(5, o, (3, 3), dtype, ", padding=[1, 1]") for o in channels])


@pytest.mark.parametrize(
    "windows", [WINDOWS[4:8:3], pytest.param(WINDOWS, marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_windows(windows: list[tuple[tuple[int, int], str]]) -> None:
    _check([(3, 24, kernel, "float32", more) for kernel, more in windows])


@pytest.mark.parametrize("target", [pytest.param("x86-64", marks=pytest.mark.slow), "x86-64-v3"])
def test_every_target_this_machine_runs(target: str) -> None:
    info, host = llvm.parse_target(target), llvm.parse_target("native")
    if info is None or host is None or not set(info.features) <= set(host.features):
        pytest.skip(f"this machine does not run {target}")
    cases: list[Case] = [
        (6, 70, (3, 3), "float32", more)
        for more in (", padding=[1, 1]", ", dilation=[2, 2], padding=[2, 2]")
    ]
    _check(cases, target)
