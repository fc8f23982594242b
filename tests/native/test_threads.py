"""The pool of threads, and one kernel body run by several threads: plain and under the thread sanitizer."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from nimblevm.kernels import loop_ir as ir
from nimblevm.kernels.loop_ir_form import serialize
from tests.kernels.ir_harness import ROOT, signature_words
from tests.native.build import make


def _kernel_file(folder: Path) -> Path:
    n, m = ir.DimRef("int64", 0), ir.DimRef("int64", 1)
    i, j, total = ir.LoopVar("int64", "i"), ir.LoopVar("int64", "j"), ir.Local("float32", "sum")
    x = ir.Buffer("x", "float32", "in", (ir.Axis(n), ir.Axis(m)))
    out = ir.Buffer("out", "float32", "out", (ir.Axis(n),))
    inner = ir.For(j, m, (ir.Accumulate(total, "add", ir.Load("float32", 0, (i, j))),))
    body = (ir.SetLocal(total, ir.Const("float32", 0.0)), inner, ir.Store(1, (i,), total))
    kernel = ir.Kernel("row_sum", (x, out), ("n", "m"), (ir.For(i, n, body),))
    words, data = signature_words(kernel), serialize(kernel)
    path = folder / "kernel.bin"
    path.write_bytes(struct.pack(f"<q{len(words)}qq", len(words), *words, len(data)) + data)
    return path


def _run(folder: Path, variant: str, *arguments: str) -> None:
    native = ROOT / "native"
    make(NVM_SANITIZE=variant)
    build = native / (f"build-{variant}" if variant else "build")
    program = folder / "threads"
    sources = [
        str(ROOT / "tests" / "native" / f"{name}_harness.c") for name in ("threads", "kernel_ir")
    ]
    flags = [
        "-std=c11",
        "-D_GNU_SOURCE",
        "-O1",
        "-g",
        "-pthread",
        *([f"-fsanitize={variant}"] if variant else []),
    ]
    command = [
        "gcc",
        *flags,
        f"-I{native}/include",
        f"-I{native}/src",
        *sources,
        f"{build}/libnimblevm.a",
        "-lm",
        "-ldl",
    ]
    subprocess.run([*command, "-o", str(program)], check=True)
    done = subprocess.run(
        [str(program), str(_kernel_file(folder)), *arguments], capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_pool_of_threads(tmp_path: Path) -> None:
    _run(tmp_path, "")


@pytest.mark.slow
def test_pool_of_threads_under_the_thread_sanitizer(tmp_path: Path) -> None:
    _run(tmp_path, "thread", "no-fork")
