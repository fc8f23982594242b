"""What loading costs: constants are not read, a second process shares them, and time is linear in what is read."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench import study_load
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import ConstantRecord, serialize

TEXT = """
.type Tensor[(?), float32]
.const float32 [1] values 1
.func @main public [] -> t0
  LoadConst r0, c0
  Ret r0
.end
"""
SIZE = 64 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with 64 MB of constants, in the page cache."""
    path = tmp_path_factory.mktemp("large") / "large.nvm"
    record = assemble(TEXT)
    data = np.arange(SIZE // 4, dtype=np.float32)
    constants = (ConstantRecord(10, (SIZE // 4,), data),)
    path.write_bytes(serialize(dataclasses.replace(record, constants=constants)))
    return path


def _fields(record: object) -> dict[str, object]:
    return {name: getattr(record, name) for name in type(record).__dataclass_fields__}  # type: ignore[attr-defined]


def own() -> int:
    """Bytes of memory that are this process's alone."""
    rows = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    sizes = {row.split(":")[0]: row.split()[1] for row in rows}
    return 1024 * (int(sizes["Private_Clean"]) + int(sizes["Private_Dirty"]))


def test_loading_touches_no_constant(large: Path) -> None:
    faults, before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, own()
    with nvm.load(large) as exe, nvm.VirtualMachine(exe):
        assert (
            resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults < 500
        )  # 64 MB are 16384 pages
        assert own() - before < SIZE // 20


def test_a_second_process_shares_the_constants(large: Path) -> None:
    found = study_load.measure_file(large, SIZE, [], {}, 1)
    assert found.loaded < SIZE // 20
    copied = study_load.measure_file(large, SIZE, [], {"copy": True}, 1)
    assert copied.loaded > SIZE // 2


def large_pages() -> int:
    """Kilobytes of mappings for which pages of 2 MiB were asked for."""
    sizes, total = [0], 0
    for row in Path("/proc/self/smaps").read_text().splitlines():
        name, _, value = row.partition(":")
        if name == "Size":
            sizes.append(int(value.split()[0]))
        elif name == "VmFlags" and " hg" in value:
            total += sizes[-1]
    return total


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no large pages here"
)
@pytest.mark.parametrize("way", [{"copy": True}, {"verify": "full"}])
def test_copied_constants_lie_on_large_pages(large: Path, way: dict[str, object]) -> None:
    before = large_pages()
    with nvm.load(large, **way) as exe, nvm.VirtualMachine(exe) as vm:  # type: ignore[arg-type]
        assert large_pages() - before == SIZE // 1024
        np.testing.assert_array_equal(vm.run().numpy()[[0, -1]], [0, SIZE // 4 - 1])
    assert large_pages() == before


def test_few_constants_ask_for_no_large_pages() -> None:
    before = large_pages()
    with nvm.Executable.from_bytes(serialize(assemble(TEXT))):
        assert large_pages() == before


@pytest.mark.slow
def test_load_time_is_linear_in_what_is_read(tmp_path: Path) -> None:
    """Seconds of this process for 500 and 4000 functions; constants do not count."""
    seconds: list[float] = []
    for count in (500, 4000):
        text = "\n".join(f".func @f{i} public [%x: t0] -> t0\n  Ret r0\n.end" for i in range(count))
        data = serialize(assemble(TEXT + text))
        best = min(_cpu_seconds(data) for _ in range(7))
        seconds.append(best)
    assert seconds[1] < 8 * 2.5 * seconds[0]


def _cpu_seconds(data: bytes) -> float:
    start = time.process_time()
    nvm.Executable.from_bytes(data).close()
    return time.process_time() - start


@pytest.mark.slow
def test_time_until_the_first_vm(large: Path) -> None:
    """The promise for 400 MB is 20 ms; a cold process with 64 MB is far below even on a busy machine."""
    code = (
        "import json, sys, time, nimblevm as nvm; nvm.load; nvm.VirtualMachine\n"
        "start = time.process_time()\n"
        "vm = nvm.VirtualMachine(nvm.load(sys.argv[1]))\n"
        "print(json.dumps(time.process_time() - start))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(large)], capture_output=True, check=True, env=os.environ
    )
    assert json.loads(out.stdout) < 0.02
