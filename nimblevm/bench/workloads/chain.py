"""A chain of small dense layers over any number of rows: what a kernel call costs, and a call from outside.

x_(k+1) = x_k W_k^T
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def text(length: int = 100, size: int = 16) -> str:
    """Relay text: main(x: (?n, size), w0, w1, ...) -> (?n, size)."""
    declared = ", ".join(f"%w{k}: Tensor[({size}, {size}), float32]" for k in range(length))
    lines = [
        f"  let %x{k + 1} = nn.dense(%x{k if k else ''}, %w{k}, units={size});"
        for k in range(length)
    ]
    body = "\n".join(lines)
    return f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, {size}), float32], {declared}) -> Tensor[(?n, {size}), float32] {{
{body}
  %x{length}
}}
"""


def params(length: int = 100, size: int = 16, seed: int = 0) -> dict[str, Array]:
    """Random orthogonal matrices, float32, so that long chains keep the length of x."""
    rng = np.random.default_rng(seed)
    return {
        f"w{k}": np.linalg.qr(rng.standard_normal((size, size)))[0].astype(np.float32)
        for k in range(length)
    }


def reference(x: Array, **weights: Array) -> Array:
    """The end of the chain, (n, size), in numpy float32."""
    for k in range(len(weights)):
        x = x @ weights[f"w{k}"].T
    return x
