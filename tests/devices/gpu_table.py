"""The tables of docs/gpu.md: what an assembler says of all workloads' PTX, and times on a GPU beside PyTorch's.

python -m tests.devices.gpu_table --registers docs/gpu.md     # needs ptxas
python -m tests.devices.gpu_table --times docs/gpu.md         # needs a GPU; PyTorch with CUDA if it is there
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import statistics
import subprocess
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

import nimblevm as nvm
from tests.devices.cuda_programs import compiled
from tests.kernels import ptxas
from tests.workloads.small import SMALL

REPEATS, WARM, SECONDS = 200, 5, 3.0
HEAD = '#[version = "0.0.5"]\n'


def registers() -> list[str]:
    """A row a workload: entries, the most registers of one, spills, shared bytes, by GPU."""
    rows = [
        "| workload | launches of kernels | " + " | ".join(f"{a}: registers" for a in ptxas.ARCHS)
        + " | spilled bytes | shared bytes |",
        "|---|---|" + "---|" * (len(ptxas.ARCHS) + 2),
    ]  # fmt: skip
    for name, work in SMALL.items():
        _, payload = compiled(work.module(), run=False)
        source = msgpack.unpackb(payload, strict_map_key=False)["source"]
        uses = {arch: ptxas.assemble(source, arch) for arch in ptxas.ARCHS}
        every = [use for found in uses.values() for use in found]
        most = " | ".join(str(max(use.registers for use in uses[arch])) for arch in ptxas.ARCHS)
        count = len(uses[ptxas.ARCHS[0]])
        spills, shared = sum(use.spills for use in every), max(use.shared for use in every)
        rows.append(f"| {name} | {count} | {most} | {spills} | {shared:,} |")
    return rows


# --- times --------------------------------------------------------------------------------------


def array(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def program(parameters: str, body: str, weights: dict[str, Any], x: Any) -> Callable[[], Any]:
    """A call of a program on the GPU, from arrays of the host to arrays of the host."""
    module = nvm.relay.parse(f"{HEAD}def @main({parameters}) {{ {body} }}", source_name="table.rly")
    vm = nvm.VirtualMachine(nvm.compile(module, params=weights, device="cuda"))
    return lambda: vm.run(x).numpy()


def dense(m: int, k: int, n: int) -> tuple[Callable[[], Any], Callable[[Any], Callable[[], Any]]]:
    x, w, b = array(m, k), array(n, k), array(n)
    parameters = f"%x: Tensor[(?m, {k}), float32], %w: Tensor[({n}, {k}), float32], %b: Tensor[({n}), float32]"
    ours = program(parameters, "tanh(nn.bias_add(nn.dense(%x, %w), %b))", {"w": w, "b": b}, x)

    def theirs(torch: Any) -> Callable[[], Any]:
        wt, bt = torch.from_numpy(w).cuda(), torch.from_numpy(b).cuda()
        return lambda: torch.tanh(
            torch.nn.functional.linear(torch.from_numpy(x).cuda(), wt, bt)
        ).cpu()

    return ours, theirs


def rows_of(
    body: str, m: int, n: int, name: str
) -> tuple[Callable[[], Any], Callable[[Any], Callable[[], Any]]]:
    x = array(m, n)
    ours = program(f"%x: Tensor[(?m, {n}), float32]", body, {}, x)

    def theirs(torch: Any) -> Callable[[], Any]:
        call = {"softmax": lambda t: torch.softmax(t, 1), "gelu": torch.nn.functional.gelu}[name]
        return lambda: call(torch.from_numpy(x).cuda()).cpu()

    return ours, theirs


GELU = "multiply(%x, multiply(0.5f, add(1f, erf(multiply(%x, 0.70710678f)))))"
CASES: dict[str, Callable[[], tuple[Callable[[], Any], Callable[[Any], Callable[[], Any]]]]] = {
    "tanh(x W + b), 1 x 1024 x 1024": lambda: dense(1, 1024, 1024),
    "tanh(x W + b), 64 x 1024 x 1024": lambda: dense(64, 1024, 1024),
    "tanh(x W + b), 1000 x 1000 x 1000": lambda: dense(1000, 1000, 1000),
    "tanh(x W + b), 4096 x 4096 x 4096": lambda: dense(4096, 4096, 4096),
    "softmax, 1024 x 4096": lambda: rows_of("nn.softmax(%x)", 1024, 4096, "softmax"),
    "gelu, 1024 x 4096": lambda: rows_of(GELU, 1024, 4096, "gelu"),
}


def median(call: Callable[[], Any]) -> float:
    """Of the time of a call, ms."""
    for _ in range(WARM):
        call()
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < REPEATS and time.perf_counter() - begun < SECONDS:
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def torch_with_gpu() -> Any:
    """PyTorch, if it is installed and sees a GPU. It is asked for full float32 products, as ours are."""
    if importlib.util.find_spec("torch") is None:
        return None
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_grad_enabled(False)
    return torch


def times() -> list[str]:
    torch = torch_with_gpu()
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split("\n")[0]
    peer = f"PyTorch {torch.__version__}" if torch else "PyTorch (not installed)"
    rows = [f"Measured on {date.today()}, {card}: medians, ms, with the copies of input and result.", "",
            f"| case | nimblevm | {peer} | nimblevm / PyTorch |", "|---|---|---|---|"]  # fmt: skip
    for name, make in CASES.items():
        ours, theirs = make()
        mine = median(ours)
        if torch is None:
            rows.append(f"| {name} | {mine:.3f} | | |")
            continue
        peer_call = theirs(torch)
        np.testing.assert_allclose(ours(), peer_call().numpy(), rtol=1e-3, atol=1e-3)
        other = median(peer_call)
        rows.append(f"| {name} | {mine:.3f} | {other:.3f} | {mine / other:.2f} |")
    return rows


def write(file: Path, part: str, rows: list[str]) -> None:
    """Between the markers of that part."""
    text = file.read_text()
    begin, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->"
    found = re.sub(f"{begin}.*?{end}", begin + "\n".join(rows) + f"\n{end}", text, flags=re.DOTALL)
    if begin not in text:
        raise ValueError(f"{file} has no part {part}")
    file.write_text(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--registers", type=Path)
    parser.add_argument("--times", type=Path)
    options = parser.parse_args()
    if options.registers:
        write(options.registers, "registers", registers())
    if options.times:
        write(options.times, "times", times())


if __name__ == "__main__":
    main()
