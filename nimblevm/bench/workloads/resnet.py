"""ResNet-18 for any number of images of any size.

    stem: 7x7 conv stride 2, batch norm, relu, 3x3 max pool stride 2;  then four stages of two blocks, widths w to 8 w
    block: relu(norm(conv(relu(norm(conv(x))))) + shortcut(x));  mean over the image, dense

Source: He et al. 2015 (arXiv 1512.03385).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nimblevm.bench.workloads.gru import declarations

Array = np.ndarray[Any, Any]
STAGES = 4
EPSILON = 1e-5


def _blocks(width: int) -> list[tuple[str, int, int, int]]:
    """(name, channels in, channels out, stride) of the eight blocks."""
    found = []
    channels = width
    for stage in range(STAGES):
        for block in range(2):
            out = width * 2**stage
            found.append((f"s{stage}b{block}", channels, out, 2 if stage and not block else 1))
            channels = out
    return found


def weight_shapes(width: int = 64, classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """Shapes by name. Kernels are OIHW; x_g, x_b, x_m, x_v are gain, bias, mean and variance of a batch norm."""
    shapes: dict[str, tuple[int, ...]] = {}

    def convolution(name: str, out: int, into: int, size: int) -> None:
        shapes[f"{name}_w"] = (out, into, size, size)
        for part in "gbmv":
            shapes[f"{name}_{part}"] = (out,)

    convolution("stem", width, 3, 7)
    for name, into, out, stride in _blocks(width):
        convolution(f"{name}c0", out, into, 3)
        convolution(f"{name}c1", out, out, 3)
        if stride != 1 or into != out:
            convolution(f"{name}d", out, into, 1)
    shapes["fc_w"] = (classes, 8 * width)
    shapes["fc_b"] = (classes,)
    return shapes


def text(width: int = 64, classes: int = 1000) -> str:
    """Relay text: main(x: (?n, 3, ?h, ?w), weights) -> logits (?n, classes)."""
    lines: list[str] = []

    def convolution(into: str, name: str, size: int, stride: int, out: int, to: str) -> None:
        norm = ", ".join(f"%{name}_{part}" for part in "gbmv")
        lines.append(
            f"let %{to} = nn.batch_norm(nn.conv2d(%{into}, %{name}_w, strides=[{stride}, {stride}], "
            f"padding=[{size // 2}, {size // 2}], channels={out}, kernel_size=[{size}, {size}]), {norm}).0;"
        )

    convolution("x", "stem", 7, 2, width, "n")
    lines.append(
        "let %y = nn.max_pool2d(nn.relu(%n), pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1]);"
    )
    before = "y"
    for name, into, out, stride in _blocks(width):
        convolution(before, f"{name}c0", 3, stride, out, f"{name}n0")
        lines.append(f"let %{name}r = nn.relu(%{name}n0);")
        convolution(f"{name}r", f"{name}c1", 3, 1, out, f"{name}n1")
        shortcut = before
        if stride != 1 or into != out:
            convolution(before, f"{name}d", 1, stride, out, f"{name}s")
            shortcut = f"{name}s"
        lines.append(f"let %{name} = nn.relu(%{name}n1 + %{shortcut});")
        before = name
    lines.append(f"let %mean = nn.batch_flatten(nn.global_avg_pool2d(%{before}));")
    lines.append("nn.dense(%mean, %fc_w) + %fc_b")
    body = "\n".join(f"  {line}" for line in lines)
    return f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 3, ?h, ?w), float32],
          {declarations(weight_shapes(width, classes))}) -> Tensor[(?n, {classes}), float32] {{
{body}
}}
"""


def params(width: int = 64, classes: int = 1000, seed: int = 0) -> dict[str, Array]:
    """Seeded weights: kernels normal with standard deviation sqrt(2 / fan-in), norms near identity."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name, shape in weight_shapes(width, classes).items():
        kind = name.rpartition("_")[2]
        drawn = rng.standard_normal(shape)
        if kind == "w":
            drawn *= (2 / np.prod(shape[1:])) ** 0.5
        elif kind in "gv":
            drawn = 1 + 0.1 * np.abs(drawn)
        else:
            drawn *= 0.1
        made[name] = drawn.astype(np.float32)
    return made


def reference(x: Array, **weights: Array) -> Array:
    """Logits (n, classes) of x (n, 3, h, w), in numpy float32."""

    def normed(y: Array, name: str, stride: int) -> Array:
        y = conv2d(y, weights[f"{name}_w"], stride)
        gain, bias, mean, variance = (weights[f"{name}_{p}"][:, None, None] for p in "gbmv")
        result: Array = (y - mean) / np.sqrt(variance + np.float32(EPSILON)) * gain + bias
        return result

    y = np.maximum(normed(x, "stem", 2), 0)
    padded = np.pad(y, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    y = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2].max((4, 5))
    for name, into, out, stride in _blocks(weights["stem_w"].shape[0]):
        inner = np.maximum(normed(y, f"{name}c0", stride), 0)
        shortcut = normed(y, f"{name}d", stride) if stride != 1 or into != out else y
        y = np.maximum(normed(inner, f"{name}c1", 1) + shortcut, 0)
    result: Array = y.mean((2, 3)) @ weights["fc_w"].T + weights["fc_b"]
    return result


def conv2d(x: Array, w: Array, stride: int) -> Array:
    """x (n, c, h, w) with kernel w (o, c, k, k), padding k // 2, in numpy float32."""
    size = w.shape[2]
    pad = size // 2
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))[
        :, :, ::stride, ::stride
    ]
    result: Array = np.tensordot(windows, w, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    return result
