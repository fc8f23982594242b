"""run_on_gpu.sh without a GPU: all of it over the fake driver, in small sizes, so that it works at once where there is one.

    python -m tests.devices.rehearsal                  runs the script, with this python, on a copy of docs/gpu.md
    python -m tests.devices.rehearsal --times FILE     what the script runs for the table of times

It is a plugin of pytest too, which the script's tests get. The fake driver is found as NVIDIA's is: by its name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nimblevm.kernels import device_support, ptx
from nimblevm.kernels.loop_ir import Kernel
from tests.devices import gpu_table
from tests.devices.fake_cuda import driver as fake

SCRIPT = Path(__file__).with_name("run_on_gpu.sh")
ROOT = SCRIPT.parents[2]
SLOW = ("test_products", "test_random_kernels")
"""Of test_gpu: every thread of a grid is a turn of a loop here."""
CASES_EACH = 2
HARDWARE = ("test_ptx_that_the_driver_refuses",)
"""What only a driver can do: it compiles PTX, and says what is wrong with it."""


@contextmanager
def rehearsed() -> Iterator[None]:
    """A machine with the fake driver's GPUs, which can load all PTX that is made in here."""
    with pytest.MonkeyPatch.context() as patch, fake.driver().gpus():
        made, payload = ptx.generate, ptx.payload

        def generate(kernels: Sequence[tuple[int, Kernel]]) -> bytes:
            section = made(kernels)
            fake.add_payload(section)
            return section

        def with_source(source: bytes, *rest: Any) -> bytes:
            if source.strip():
                fake.add_module(source)
            return payload(source, *rest)

        patch.setattr(
            device_support, "DEVICE_CODE", {**device_support.DEVICE_CODE, "cuda": generate}
        )
        patch.setattr(ptx, "payload", with_source)
        yield


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_OPEN] = context = rehearsed()
    context.__enter__()


def pytest_sessionfinish(session: pytest.Session) -> None:
    context = session.config.stash.get(_OPEN, None)
    if context is not None:
        context.__exit__(None, None, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two cases of each test: test_cuda_vm runs all workloads over the fake driver."""
    seen: Counter[tuple[str, str]] = Counter()
    for item in items:
        name = getattr(item, "originalname", item.name)
        seen[item.nodeid.split("::")[0], name] += 1
        if name in SLOW or name in HARDWARE or seen[item.nodeid.split("::")[0], name] > CASES_EACH:
            item.add_marker(pytest.mark.skip(reason="a rehearsal: it needs a GPU"))


_OPEN: pytest.StashKey[Any] = pytest.StashKey()
Case = tuple[Callable[[], Any], Callable[[Any], Callable[[], Any]]]


def table() -> None:
    """The table, of small sizes."""
    cases: dict[str, Callable[[], Case]] = {
        "tanh(x W + b), 5 x 24 x 20": lambda: gpu_table.dense(5, 24, 20),
        "softmax, 4 x 40": lambda: gpu_table.rows_of("nn.softmax(%x)", 4, 40, "softmax"),
        "gelu, 4 x 40": lambda: gpu_table.rows_of(gpu_table.GELU, 4, 40, "gelu"),
    }
    with rehearsed(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_table, "CASES", cases)
        patch.setattr(gpu_table, "REPEATS", 5)
        gpu_table.main()


SMI = """#!/bin/sh
echo "no card (a rehearsal), 0.0, 9.0"
"""


def script() -> int:
    """Run the script; its exit status."""
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as name:
        folder = Path(name)
        smi, page = folder / "nvidia-smi", folder / "gpu.md"
        smi.write_text(SMI)
        smi.chmod(0o755)
        shutil.copy(ROOT / "docs" / "gpu.md", page)
        environment = os.environ | {
            fake.FOLDER: name,
            "LD_LIBRARY_PATH": f"{name}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            "PATH": f"{name}:{os.environ['PATH']}",
            "PYTEST_PLUGINS": "tests.devices.rehearsal",
            "PYTHON": sys.executable,
            "TABLE": "tests.devices.rehearsal",
            "PAGE": str(page),
        }
        os.environ[fake.FOLDER] = name
        fake.path()
        done = subprocess.run(["bash", str(SCRIPT)], env=environment, cwd=ROOT, check=False)
        if done.returncode == 0 and "no card (a rehearsal)" not in page.read_text():
            raise SystemExit("the script wrote no table")
        return done.returncode


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(script())
    table()
