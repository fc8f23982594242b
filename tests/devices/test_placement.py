"""Where programs run and what is copied: counted on a device whose memory the host can't read, and reported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.compiler.devices import Placement
from nimblevm.errors import CompileError, DeviceError, IndexOutOfRange
from tests.bytecode.models import Model, models

ROOT = Path(__file__).parents[2]


def placed(
    mod: nvm.relay.IRModule, params: Any = None, device: str = "simulated", **options: Any
) -> tuple[nvm.Executable, Placement]:
    found: list[Placement] = []
    exe = nvm.compile(
        mod, params, native=False, device=device, on_placement=found.append, **options
    )
    return exe, found[0]


def program(body: str) -> nvm.relay.IRModule:
    return nvm.relay.parse('#[version = "0.0.5"]\n' + body, source_name="m.rly")


def counted(exe: nvm.Executable, args: Sequence[Any], name: str = "main") -> tuple[Any, int, int]:
    """The result, and copies to and from the device in a second run (the first may find other state)."""
    with nvm.VirtualMachine(exe) as vm:
        vm.invoke(name, *args)
        before = vm.stats()
        result = vm.invoke(name, *args)
        after = vm.stats()
    to, back = (after[k] - before[k] for k in ("copies_to_device", "copies_to_host"))
    return result, to, back


def model(name: str) -> Model:
    return models()[name]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if n == "resnet" else ()) for n in sorted(models())],
)
def test_workloads_give_the_cpu_s_results(name: str) -> None:
    m = model(name)
    exe, report = placed(m.module(), m.params, verify=True)
    expected = m.run(nvm.compile(m.module(), m.params, native=False))
    for got, want in zip(m.run(exe), expected, strict=True):
        np.testing.assert_array_equal(got, want)
    assert any(k.device == 1 for k in report.kernels)


@pytest.mark.parametrize(("name", "inputs", "outputs"), [("lstm", 1, 1), ("bert", 2, 1)])
def test_one_copy_an_input_and_output_and_none_a_step(name: str, inputs: int, outputs: int) -> None:
    m = model(name)
    exe, report = placed(m.module(), m.params)
    _, to, back = counted(exe, m.inputs(exe))
    assert (to, back) == (inputs, outputs)
    assert not any(c.repeated for c in report.copies)
    assert all(k.device == 1 for k in report.kernels)


def test_steps_do_not_copy() -> None:
    """Whatever the length: the state stays on the device."""
    m = model("lstm")
    exe, _ = placed(m.module(), m.params)
    (x, *rest) = m.inputs(exe)
    counts = [counted(exe, (np.repeat(x, n, axis=0), *rest))[1:] for n in (1, 2, 9)]
    assert len(set(counts)) == 1


def _tree(exe: nvm.Executable, leaves: int) -> Any:
    leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
    x = np.random.default_rng(0).standard_normal((leaves, 1, 12)).astype(np.float32)
    trees = [leaf(row) for row in x]
    while len(trees) > 1:
        trees = [node(*trees[:2]), *trees[2:]]
    return trees[0]


def test_treelstm_does_not_copy_a_node() -> None:
    m = model("treelstm")
    exe, report = placed(m.module(), m.params)
    counts = [counted(exe, (_tree(exe, n),))[1:] for n in (2, 5, 40)]
    assert len(set(counts)) == 1
    assert counts[0] == (3, 2)
    assert not any(c.repeated for c in report.copies)


def test_nodes_of_a_recursion_copy_their_input_alone() -> None:
    """Where a tree is walked node by node its leaves are inputs: one copy each, none for what is in between."""
    m = model("treelstm")
    exe, _ = placed(m.module(), m.params, passes_off=("batch_levels", "batch_leaves"))
    for n in (2, 5, 9):
        _, to, back = counted(exe, (_tree(exe, n),))
        assert (to, back) == (n, 2)


def test_the_detector_names_each_copy() -> None:
    m = model("ssd")
    exe, report = placed(m.module(), m.params)
    _, to, back = counted(exe, m.inputs(exe))
    assert (to, back) == (1, 1)
    assert [(c.value, c.reason.split(" on ")[0]) for c in report.copies] == [
        ("%x", "an argument"),
        ("%rows", "kernel get_valid_counts"),
    ]
    assert all(c.span is not None for c in report.copies)
    on_host = {k.kernel: k.reason for k in report.kernels if not k.device}
    assert set(on_host) == {"get_valid_counts", "non_max_suppression"}


def test_seq2seq_copies_one_number_a_step() -> None:
    """The symbol that decides whether to go on, and nothing else of a step; the report says which kernel's."""
    m = model("seq2seq")
    exe, report = placed(m.module(), m.params)
    (ids, _) = m.inputs(exe)
    inside = [c for c in report.copies if not c.boundary and c.source == 1]
    assert [(c.function, c.value, c.repeated) for c in inside] == [("main_decode", "%p", True)]
    assert inside[0].reason == "reshape reads it on the host"
    steps = []
    for most in (1, 3, 8):
        result, to, back = counted(exe, (ids, np.int32(most)))
        steps.append(result.shape[0])
        assert (to, back) == (1, 1 + result.shape[0])
    assert steps[0] < steps[-1]


def test_fields_of_arguments_stay_on_the_host_and_are_named() -> None:
    """What a caller from outside may hand to a recursive function decides for all of its calls."""
    exe, report = placed(program(LIST))
    assert [(k.function, k.value) for k in report.kept] == [("map_", "%l")]
    assert "@map_ %l: List[Tensor[(4), float32]] (m.rly:4:11)" in str(report)
    x = np.ones(4, np.float32)
    assert counted(exe, (x,))[1:] == (3, 3)  # each field of two, in and out
    exe, report = placed(program(LIST), entry_points=["main"])
    assert report.kept == ()
    assert "stay on the host" not in str(report)
    assert counted(exe, (x,))[1:] == (1, 1)


def test_state_stays_on_the_device() -> None:
    body = """def @main(%x: Tensor[(?n, 4), float32], %h: Tensor[(?n, 4), float32]) {
      let %y = tanh(%x + %h); (%y, %y * 2f) }"""
    exe, _ = placed(program(body))
    x = np.ones((2, 4), np.float32)
    with nvm.VirtualMachine(exe) as vm:
        out, state = vm.run(x, np.zeros_like(x), out=(None, nvm.KEEP))
        want = np.tanh(x)
        for _ in range(3):
            before = vm.stats()
            out, state = vm.run(x, state, out=(None, nvm.KEEP))
            after = vm.stats()
            assert after["copies_to_device"] - before["copies_to_device"] == 1  # x
            assert after["copies_to_host"] - before["copies_to_host"] == 1  # out
            want = np.tanh(x + want * 2)
            np.testing.assert_allclose(out.numpy(), want, rtol=1e-6)
        np.testing.assert_allclose(vm.read(state).numpy(), want * 2, rtol=1e-6)


def test_shapes_and_sizes_stay_on_the_host() -> None:
    body = """def @main(%x: Tensor[(?n, 4), float32]) {
      let %s = shape_of(%x); let %n = take(%s, 0) + 1; arange(0, %n, 1, dtype="int32") }"""
    _, report = placed(program(body))
    assert all(k.device == 0 for k in report.kernels if "arange" not in k.kernel)


def test_annotations() -> None:
    body = """def @main(%x: Tensor[(4), float32]) {
      let %a = on_device(exp(%x), device="cpu", constrain_result=True); tanh(%a) }"""
    exe, report = placed(program(body))
    where = {k.kernel: k.device for k in report.kernels}
    assert where == {"exp": 0, "tanh": 1}
    x = np.linspace(0, 1, 4, dtype=np.float32)
    result, to, back = counted(exe, (x,))
    np.testing.assert_allclose(result.numpy(), np.tanh(np.exp(x)), rtol=1e-6)
    assert (to, back) == (1, 1)
    built = nvm.relay.var("x", shape=(4,), dtype="float32")
    copied = nvm.relay.device_copy(nvm.relay.exp(built), "simulated", "cpu")
    noted = nvm.relay.annotation.on_device(copied, nvm.Device("cpu"))
    mod = nvm.relay.IRModule.from_expr(nvm.relay.Function([built], noted))
    np.testing.assert_allclose(counted(placed(mod)[0], (x,))[0].numpy(), np.exp(x), rtol=1e-6)
    with nvm.VirtualMachine(nvm.compile(mod, native=False)) as vm:  # without devices: nothing
        np.testing.assert_allclose(vm.run(x).numpy(), np.exp(x), rtol=1e-6)


def test_annotations_for_other_devices_are_listed() -> None:
    body = """def @main(%x: Tensor[(4), float32]) {
      on_device(exp(%x), device="abacus") }"""
    for device in ("simulated", "cpu"):
        _, report = placed(program(body), device=device)
        assert [(a.function, a.backend) for a in report.unmet] == [("main", "abacus")]
        assert "abacus" in str(report)
        assert "m.rly:3" in str(report)


@pytest.mark.parametrize("device", ["cpu,vta", "simulated,vta"])
@pytest.mark.parametrize(
    "body",
    [
        "exp(%x)",
        'on_device(exp(%x), device="vta", constrain_result=True)',
        'on_device(exp(%x), device="vta", constrain_result=True, constrain_body=False)',
    ],
)
def test_a_device_for_which_there_is_no_code_is_not_in_the_file(device: str, body: str) -> None:
    """Generated kernels don't run on it, whatever an annotation wishes; so it is not needed to run the file."""
    exe, report = placed(
        program(f"def @main(%x: Tensor[(4), float32]) {{ {body} }}"), device=device
    )
    assert exe.devices == tuple((name,) for name in report.devices)
    assert "vta" not in report.devices
    x = np.linspace(0, 1, 4, dtype=np.float32)
    np.testing.assert_allclose(counted(exe, (x,))[0].numpy(), np.exp(x), rtol=1e-6)


QUANTISED = """def @main(%x: Tensor[(2, 16), int8], %w: Tensor[(16, 16), int8]) {
  let %d = nn.dense(%x, %w, out_dtype="int32");
  let %s = cast(clip(right_shift(%d, 4), a_min=-127f, a_max=127f), dtype="int8");
  on_device(%s + %s, device="vta", constrain_result=True) }"""


@pytest.mark.parametrize("device", ["cpu,vta", "simulated,vta"])
def test_generated_kernels_do_not_go_where_only_external_code_runs(device: str) -> None:
    x, w = (
        np.random.default_rng(n).integers(-20, 20, (m, 16)).astype(np.int8)
        for n, m in ((0, 2), (1, 16))
    )
    mod = program(QUANTISED)
    found: list[Placement] = []
    exe = nvm.compile(mod, {"w": w}, device=device, on_placement=found.append)
    where = {k.kernel: found[0].devices[k.device] for k in found[0].kernels}
    assert where == {"vta_dense_right_shift_clip_cast": "vta", "add": device.split(",")[0]}
    with nvm.VirtualMachine(nvm.compile(mod, {"w": w}, native=False)) as vm:
        want = vm.run(x).numpy()
    np.testing.assert_array_equal(counted(exe, (x,))[0].numpy(), want)


def test_the_report_is_in_the_order_of_the_program() -> None:
    """Whatever the seed of hashes."""
    names = [f"f{n}" for n in range(12)]
    text = "".join(f"def @{n}(%x: Tensor[(4), float32]) {{ tanh(%x) }}\n" for n in names)
    _, report = placed(program(text))
    assert [c.function for c in report.copies if c.value == "result"] == names


CLOSURE = """
def @apply(%f: fn (Tensor[(4), float32]) -> Tensor[(4), float32], %x: Tensor[(4), float32]) {
  %f(%f(%x)) }
def @main(%x: Tensor[(4), float32], %w: Tensor[(4), float32]) {
  let %f = fn (%y: Tensor[(4), float32]) { tanh(%y * %w) };
  @apply(%f, %x) }
"""
REFERENCE = """
def @main(%x: Tensor[(4), float32]) {
  let %r = ref(%x);
  let %loop = fn (%i: int32) -> () { if (%i < 3) { let %u = ref_write(%r, tanh(ref_read(%r))); %loop(%i + 1) } else { () } };
  let %u = %loop(0);
  ref_read(%r) }
"""
BRANCH = """
def @main(%c: bool, %x: Tensor[(4), float32]) {
  let %t = if (%c) { (tanh(%x), argsort(%x, dtype="int32")) } else { (%x, zeros(shape=[4], dtype="int32")) };
  (%t.0 + %x, %t.1) }
"""
LIST = """
type List[A] { Cons(A, List[A]), Nil }
def @map_(%l: List[Tensor[(4), float32]]) -> List[Tensor[(4), float32]] {
  match (%l) { Cons(%h, %t) => Cons(tanh(%h), @map_(%t)), Nil => Nil } }
def @main(%x: Tensor[(4), float32]) -> Tensor[(4), float32] {
  match (@map_(Cons(%x, Cons(exp(%x), Nil)))) { Cons(%h, _) => %h, Nil => %x } }
"""

BOXED = """
def @main(%table: Tensor[(?, 8), float32], %start: int32, %steps: int32) -> Tensor[(?), int32] {
  let %loop = fn (%i: int32, %at: Tensor[(?), int32]) -> Tensor[(?), int32] {
    if (%i == %steps) { %at } else { %loop(%i + 1, argsort(sum(tanh(take(%table, %at, axis=0)), axis=1), dtype="int32")) }
  };
  %loop(0, reshape(%start, newshape=[1])) }
"""


@pytest.mark.parametrize(
    ("text", "args"),
    [
        (CLOSURE, (np.ones(4, np.float32), np.full(4, 0.5, np.float32))),
        (REFERENCE, (np.linspace(0, 1, 4, dtype=np.float32),)),
        (BRANCH, (True, np.array([3, 1, 2, 0], np.float32))),
        (BRANCH, (False, np.array([3, 1, 2, 0], np.float32))),
        (LIST, (np.linspace(0, 1, 4, dtype=np.float32),)),
        (BOXED, (np.ones((5, 8), np.float32), 3, 2)),
    ],
)
@pytest.mark.parametrize("entries", [None, ("main",)])
def test_all_kinds_of_values(text: str, args: tuple[Any, ...], entries: Any) -> None:
    mod = program(text)
    with nvm.VirtualMachine(nvm.compile(mod, native=False)) as vm:
        want = vm.run(*args)
    exe, _ = placed(mod, verify=True, entry_points=entries)
    got = counted(exe, args)[0]
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_faults_in_kernels_on_a_device() -> None:
    body = """def @main(%x: Tensor[(4), float32], %i: Tensor[(2), int32]) {
      take(%x, %i, axis=0, mode="fast") }"""
    exe, _ = placed(program(body))
    x = np.arange(4, dtype=np.float32)
    with nvm.VirtualMachine(exe) as vm:
        with pytest.raises(IndexOutOfRange, match="kernel take"):
            vm.run(x, np.array([0, 9], np.int32))
        np.testing.assert_array_equal(vm.run(x, np.array([3, 0], np.int32)).numpy(), [3, 0])


def test_growing_state_is_appended_on_the_device() -> None:
    body = """def @main(%n: int32, %x: Tensor[(1, 4), float32]) {
      let %loop = fn (%i: int32, %acc: Tensor[(?, 4), float32]) -> Tensor[(?, 4), float32] {
        if (%i < %n) { %loop(%i + 1, concatenate((%acc, tanh(%x)), axis=0)) } else { %acc } };
      %loop(0, %x) }"""
    exe, report = placed(program(body))
    x = np.ones((1, 4), np.float32)
    result, to, back = counted(exe, (np.int32(20), x))
    want = np.concatenate([x, *[np.tanh(x)] * 20])
    np.testing.assert_allclose(result.numpy(), want, rtol=1e-6)
    assert (to, back) == (1, 1)
    assert not any(c.repeated for c in report.copies)


# --- which device ---------------------------------------------------------------------------------


def _has_cuda() -> bool:
    exe, _ = placed(program(SMALL), device="cuda")
    try:
        nvm.VirtualMachine(exe).close()
    except DeviceError:
        return False
    return True


SMALL = "def @main(%x: Tensor[(4), float32]) { tanh(%x) }"


def test_the_first_backend_that_is_here_serves() -> None:
    exe, _ = placed(program(SMALL), device="cpu,null,simulated")
    assert exe.devices == (("cpu",), ("null", "simulated"))
    x = np.ones(4, np.float32)
    for device, used in ((None, "null"), ("simulated", "simulated"), ("cpu", "cpu")):
        with nvm.VirtualMachine(exe, device) as vm:
            assert vm.devices[1] == used
            assert vm.run(x).shape == (4,)
    assert nvm.load(exe.to_bytes()).devices == exe.devices


def test_a_missing_device_says_what_there_is() -> None:
    exe, _ = placed(program(SMALL), device="cuda")
    x = np.ones(4, np.float32)
    if not _has_cuda():
        with pytest.raises(DeviceError, match=r"device 1 of .* should be cuda.*This build has cpu"):
            nvm.VirtualMachine(exe)
    with nvm.VirtualMachine(exe, fallback=True) as vm:
        np.testing.assert_allclose(vm.run(x).numpy(), np.tanh(x), rtol=1e-6)
    unsigned = nvm.load(exe.to_bytes(), native=False)
    with pytest.raises(DeviceError):
        nvm.VirtualMachine(unsigned)
    with pytest.raises(DeviceError, match=r"not compiled for .*; it was compiled for cpu, cuda$"):
        nvm.VirtualMachine(exe, "simulated")


def test_unknown_devices() -> None:
    with pytest.raises(CompileError, match=r"no device 'abacus'; devices are .*simulated"):
        placed(program(SMALL), device="abacus")
    with pytest.raises(CompileError, match=r"did you mean opencl\?"):
        placed(program(SMALL), device="opncl")
    with pytest.raises(TypeError, match="device must be names"):
        placed(program(SMALL), device=3)  # type: ignore[arg-type]


def test_passes_and_interpreter_name_no_backend() -> None:
    """The names stand in nimblevm/kernels/device_support.py and in the backends themselves."""
    names = re.compile(r'"(opencl|cuda|vta|simulated|null)"')
    folders = [*(ROOT / "nimblevm/compiler").rglob("*.py"), *(ROOT / "native/src").glob("*.[ch]")]
    found = {
        f"{path.name}: {line.strip()}"
        for path in folders
        for line in path.read_text().splitlines()
        if names.search(line) and not line.strip().startswith(("*", "/*", "#", "compile("))
    }
    assert not found
