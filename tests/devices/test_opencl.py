"""The opencl backend on this machine's device: faults, offsets, the cache of built programs, what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgpack
import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import DeviceError, IndexOutOfRange, InvalidExecutable, Unsupported
from nimblevm.kernels.device_support import DEVICE_CODE
from nimblevm.kernels.loop_ir import Kernel
from tests.devices.backend import OnBackend, Session, needs_opencl
from tests.kernels.fused import floats
from tests.kernels.native import Program, agree, program

pytestmark = needs_opencl
HEAD = '#[version = "0.0.5"]\n'
GATHER = "def @main(%x: Tensor[(?n), float32], %i: Tensor[(?k), int64]) { gather(%x, %i, axis=0) }"
DIVIDE = "def @main(%x: Tensor[(?n), int32], %y: Tensor[(?n), int32]) { divide(%x, %y) }"


def made(text: str, *args: np.ndarray) -> tuple[Program, Kernel]:
    found, _ = program(text, *args)
    return found, found.lowered.kernel


def test_a_fault_is_reported_once_and_the_device_works_on() -> None:
    good, kernel = made(GATHER, floats(5), np.array([0, -1, 4]))
    divide, divided = made(DIVIDE, np.array([7, 8], "int32"), np.array([2, 3], "int32"))
    with OnBackend("opencl", kernel, divided) as device:
        before = good.run(device)[0]
        good.arrays[1] = np.array([0, 9, 4])
        with pytest.raises(IndexOutOfRange):
            good.run(device)
        message = device.session.message()
        assert message == "kernel tested, operand 1: index 9 is outside of an axis of size 5"
        good.arrays[1] = np.array([0, -1, 4])
        assert (good.run(device)[0] == before).all()
        divide.arrays[1] = np.array([2, 0], "int32")
        with pytest.raises(Exception, match="status"):
            divide.run(device, 1)
        assert device.session.message() == "kernel tested: integer division by zero"


def test_empty_operands_and_empty_grids() -> None:
    text = "def @main(%x: Tensor[(?n), float32], %y: Tensor[(?m), float32]) { concatenate((%x, %y), axis=0) }"
    found, kernel = made(text, floats(0), floats(3))
    with OnBackend("opencl", kernel) as device:
        assert (found.run(device)[0] == found.arrays[1]).all()


@pytest.mark.parametrize("op", ["tanh", pytest.param("nn.softmax", marks=pytest.mark.slow)])
def test_tiles_and_rows(op: str) -> None:
    """Sizes around the tiles, where the Python evaluator of grids takes minutes."""
    text = f"def @main(%x: Tensor[(?m, 70), float32], %w: Tensor[(70, 70), float32]) {{ {op}(nn.dense(%x, %w)) }}"
    _, kernel = made(text, floats(3, 70), floats(70, 70))
    with OnBackend("opencl", kernel) as device:
        for m in (0, 1, 4, 5, 64, 65, 129):
            found, expected = program(text, floats(m, 70), floats(70, 70))
            for got, wanted in zip(found.run(device), expected, strict=True):
                assert agree(got, wanted, 1e-4, 1e-5), m


def test_programs_are_kept_and_damaged_ones_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVM_CACHE", str(tmp_path / "a" / "b"))
    found, kernel = made("def @main(%x: Tensor[(4), float32]) { exp(%x) }", floats(4))

    def run() -> None:
        with OnBackend("opencl", kernel) as device:
            assert agree(found.run(device)[0], np.exp(found.arrays[0]), 1e-5, 1e-6)

    run()
    (file,) = (tmp_path / "a" / "b").iterdir()
    whole = file.read_bytes()
    assert whole.startswith(b"nvmocl1\n")
    assert file.stat().st_mode & 0o077 == 0
    run()
    assert file.read_bytes() == whole
    for damaged in (b"", whole[:100], whole[:-1], whole[:-1] + b"?", b"x" + whole[1:]):
        file.write_bytes(damaged)
        run()
        assert file.read_bytes()[:8] == b"nvmocl1\n"
        assert len(file.read_bytes()) >= len(whole) // 2
    file.chmod(0o666)
    run()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == [file.name]


def test_no_cache_and_folders_that_can_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, kernel = made("def @main(%x: Tensor[(4), float32]) { sigmoid(%x) }", floats(4))
    (tmp_path / "file").write_text("no folder")
    for place in ("", "relative", str(tmp_path / "file" / "below")):
        monkeypatch.setenv("NVM_CACHE", place)
        with OnBackend("opencl", kernel) as device:
            found.run(device)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_is_missing_or_malformed_is_said() -> None:
    with pytest.raises(DeviceError, match=r"opencl: there is no device 77; 0: \S+"):
        Session("opencl", ordinal=77)
    with pytest.raises(DeviceError, match="no device -1"):
        Session("opencl", ordinal=-1)
    with pytest.raises(InvalidExecutable, match="device code byte 0"):
        Session("opencl", b"\x00")
    source = msgpack.packb({"source": b"not C", "kernels": {}})
    with pytest.raises(DeviceError, match="can't build the file's kernels"):
        Session("opencl", source)
    row = ["nothing", [[0, 1]] * 3, [1, 1, 1], [], [], 0, 0]
    source = msgpack.packb({"source": b"__kernel void k() {}", "kernels": {0: [row]}})
    with pytest.raises(Unsupported, match="nothing"):
        Session("opencl", source)
    row[0], row[5] = "k", 1 << 30
    source = msgpack.packb({"source": b"__kernel void k() {}", "kernels": {0: [row]}})
    with pytest.raises(Unsupported, match="bytes of local memory"):
        Session("opencl", source)


def test_equal_kernels_give_equal_bytes() -> None:
    _, kernel = made("def @main(%x: Tensor[(?n, 4), float32]) { nn.softmax(%x) }", floats(2, 4))
    kernels = [(0, kernel)]
    assert DEVICE_CODE["opencl"](kernels) == DEVICE_CODE["opencl"](kernels)


def test_a_vm_reports_faults_by_kernel_and_runs_again() -> None:
    exe = nvm.compile(nvm.relay.parse(HEAD + GATHER), device="opencl")
    x, good, bad = floats(5), np.array([4, 0]), np.array([4, 5])
    with nvm.VirtualMachine(exe) as vm:
        assert str(vm.device) == "opencl:0"
        assert (vm.run(x, good).numpy() == x[good]).all()
        with pytest.raises(
            IndexOutOfRange, match=r"kernel gather\w*, operand 1: index 5 .* size 5"
        ):
            vm.run(x, bad)
        assert (vm.run(x, good).numpy() == x[good]).all()


def test_a_profile_times_what_the_queue_runs() -> None:
    text = "def @main(%x: Tensor[(?n, 256), float32], %w: Tensor[(256, 256), float32]) { tanh(nn.dense(%x, %w)) }"
    exe = nvm.compile(nvm.relay.parse(HEAD + text), device="opencl")
    args = floats(256, 256), floats(256, 256)
    with nvm.VirtualMachine(exe) as vm:
        vm.run(*args)
    with nvm.VirtualMachine(exe, profile=True) as vm:
        for _ in range(3):
            vm.run(*args)
        profile = vm.profile()
    # 33 million multiplications: queueing takes some microseconds.
    assert profile.kernel_seconds / 3 > 1e-3


def test_a_missing_device_is_an_error_or_the_host() -> None:
    exe = nvm.compile(nvm.relay.parse(HEAD + GATHER), device="opencl")
    with pytest.raises(DeviceError, match="opencl: there is no device 9; 0: "):
        nvm.VirtualMachine(exe, device="opencl:9")
    x, i = floats(5), np.array([4, 0])
    with nvm.VirtualMachine(exe, device="opencl:9", fallback=True) as vm:
        assert (vm.run(x, i).numpy() == x[i]).all()


FORKED = """
import os, sys
import numpy as np
import nimblevm as nvm
from nimblevm.errors import DeviceError
text = '#[version = "0.0.5"] def @main(%x: Tensor[(4), float32]) { tanh(%x) }'
exe = nvm.compile(nvm.relay.parse(text), device="opencl")
x = np.ones(4, np.float32)
vm = nvm.VirtualMachine(exe)
want = vm.run(x).numpy()
child = os.fork()
if child == 0:
    status = 1
    try:
        for use in (lambda: vm.run(x), lambda: nvm.VirtualMachine(exe)):
            try:
                use()
            except DeviceError as error:
                assert "forked" in str(error), error
            else:
                raise AssertionError("it ran")
        vm.close()
        with nvm.VirtualMachine(exe, fallback=True) as host:
            np.testing.assert_allclose(host.run(x).numpy(), want, rtol=1e-6)
        status = 0
    finally:
        os._exit(status)
assert os.waitpid(child, 0)[1] == 0
assert (vm.run(x).numpy() == want).all()
"""


def test_a_child_of_fork_is_told_that_drivers_work_in_the_parent_alone() -> None:
    """Their threads are not in the child: without a check it waits for ever."""
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


TOGETHER = """
import threading
import numpy as np
import nimblevm as nvm
text = '#[version = "0.0.5"] def @main(%x: Tensor[(4), float32]) { tanh(%x) }'
exe = nvm.compile(nvm.relay.parse(text), device="opencl")
x = np.ones(4, np.float32)
start, got = threading.Barrier(4), []
def work():
    start.wait()
    with nvm.VirtualMachine(exe) as vm:
        got.append(vm.run(x).numpy())
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
assert len(got) == 4
np.testing.assert_allclose(got, np.tanh([x] * 4), rtol=1e-6)
"""


def test_the_first_vms_of_a_process_may_be_made_by_several_threads() -> None:
    """PoCL crashes if its devices are asked for twice at once before it has started."""
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{done.returncode} {done.stderr}"
