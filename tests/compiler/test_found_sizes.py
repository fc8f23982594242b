"""Programs with results whose sizes only kernels find: compiled in several ways = the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.fuse_ops import FUSE_OPS
from nimblevm.compiler.passes.manifest_alloc import MANIFEST_ALLOC
from nimblevm.compiler.passes.to_anf import TO_ANF
from nimblevm.errors import ShapeMismatch
from nimblevm.relay.interpreter import evaluate
from tests.properties.compare import assert_same

HEADER = '#[version = "0.0.5"]\n'
X = np.asarray([3, -1, 0, 3, 2, -1, 0, 5], "float32")

# name -> (program, arguments of main)
CASES: dict[str, tuple[str, list[Any]]] = {
    "used_by_operators": (
        "def @main(%x: Tensor[(?n), float32]) { let %u = unique(%x * 2f, return_counts=True);"
        ' (%u.0 * cast(%u.4, dtype="float32"), take(%u.0, %u.2), concatenate((%u.0, %x)), %u) }',
        [X],
    ),
    "field_alone": ("def @main(%x: Tensor[(?n), float32]) { unique(%x, sorted=False).0 }", [X]),
    "nothing_found": (
        "def @main(%x: Tensor[(?n, 2), float32]) { let %w = argwhere(%x > 9f); (%w, sum(%w), shape_of(%w)) }",
        [X.reshape(4, 2)],
    ),
    "selects": (
        "def @main(%x: Tensor[(?n), float32]) { let %w = argwhere(%x > 0f); take(%x, squeeze(%w, axis=[1])) }",
        [X],
    ),
    "in_a_loop": (
        "def @thin(%x: Tensor[(?), float32], %n: int32) -> Tensor[(?), float32] {"
        " if (%n > 0) { @thin(unique(floor(%x / 2f)).0, %n - 1) } else { %x } }\n"
        "def @main(%x: Tensor[(?n), float32]) { @thin(sort(%x), 3) }",
        [X],
    ),
    "in_a_branch": (
        "def @main(%x: Tensor[(?n), float32], %c: bool) {"
        " let %y = if (%c) { unique(%x).0 } else { %x }; %y + 1f }",
        [X, True],
    ),
    "captured": (
        "def @main(%x: Tensor[(?n), float32]) { let %u = unique(%x).0;"
        " let %f = fn (%k: int32) -> Tensor[(?), float32] { if (%k > 0) { %u + %u } else { %u } }; (%f(1), %f(0)) }",
        [X],
    ),
    "scalars": (
        "def @main(%k: int32, %x: Tensor[(?n), float32]) {"
        " (argwhere(%k), argwhere(0f), searchsorted(sort(%x), 2f), searchsorted(%x, %x)) }",
        [7, X],
    ),
    "size_from_a_scalar": (
        "def @main(%x: Tensor[(?n), float32], %k: int32) {"
        ' let %t = dyn.topk(%x, %k); (%t.0 + %t.0, dyn.topk(%x, %k - 9, ret_type="indices"), %t) }',
        [X, 3],
    ),
    "boxes": (
        "def @main(%b: Tensor[(?n, ?k, 6), float32]) { let %v = vision.get_valid_counts(%b, 0.2f);"
        " let %s = vision.non_max_suppression(%v.1, %v.0, %v.2, -1, 0.5f); (%v, %s.0, %s.1 + 1) }",
        [np.random.default_rng(3).uniform(0, 1, (2, 12, 6)).astype("float32")],
    ),
    "found_twice": (
        "def @main(%x: Tensor[(?n), float32]) { let %a = unique(%x).0; let %b = unique(%x).0;"
        " (concatenate((%a, %b)), %a + 1f, concatenate((%b, %a)), negative(argwhere(%x)), argwhere(%x)) }",
        [X],
    ),
    "in_data": (
        "type L { C(Tensor[(?), float32], L), N }\n"
        "def @main(%x: Tensor[(?n), float32]) { let %l = C(unique(%x).0, C(%x, N)); let %r = ref(%x);"
        " let %u = ref_write(%r, unique(ref_read(%r)).0);"
        " (match (%l) { C(%a, C(%b, _)) => concatenate((%a, %b)), _ => %x }, ref_read(%r)) }",
        [X],
    ),
    "boxes_by_scalars": (
        "def @main(%b: Tensor[(2, 12, 6), float32], %k: int32, %t: float32) {"
        " let %v = vision.get_valid_counts(%b, %t); vision.non_max_suppression(%v.1, %v.0, %v.2, %k, %t,"
        " return_indices=False, invalid_to_bottom=True) }",
        [np.random.default_rng(3).uniform(0, 1, (2, 12, 6)).astype("float32"), 4, np.float32(0.3)],
    ),
    "known_size": (
        "def @main(%x: Tensor[(8), float32]) { (unique(%x), argwhere(%x), topk(%x, k=8)) }",
        [X],
    ),
}  # fmt: skip
WAYS: list[dict[str, Any]] = [
    {},
    {"native": False, "unbox": False},
    {"native": False, "plan_memory": False, "passes_off": ("simplify", "cse", "inline", "dead_code")},
]  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_program(name: str) -> None:
    text, args = CASES[name]
    mod = nvm.relay.parse(HEADER + text)
    expected = evaluate(mod, args)
    for way in WAYS:
        with nvm.compile(mod, verify=True, **way) as exe:
            again = nvm.load(exe.to_bytes(), native=way.get("native", True))
            with again, nvm.VirtualMachine(again) as vm:
                for _ in range(2):
                    assert_same(vm.run(*args), expected)


def test_a_result_keeps_no_more_dims_than_were_found() -> None:
    mod = nvm.relay.parse(HEADER + "def @main(%x: Tensor[(?n), float32]) { argwhere(%x) }")
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        for size in (0, 1, 5, 0, 1000):
            x = (np.arange(size) % 2).astype("float32")
            assert vm.run(x).shape == (size // 2, 1)


def test_topk_refuses_more_than_there_is() -> None:
    mod = nvm.relay.parse(
        HEADER
        + "def @main(%x: Tensor[(?n), float32], %k: int64) { (dyn.topk(%x, %k), topk(%x, k=2)) }"
    )
    for way in WAYS:
        with nvm.compile(mod, **way) as exe, nvm.VirtualMachine(exe) as vm:
            vm.run(X, 8)
            with pytest.raises(ShapeMismatch, match=r"expected 9, got 8"):
                vm.run(X, 9)
            with pytest.raises(ShapeMismatch, match=r"topk"):
                vm.run(X[:1], 1)


@pytest.mark.parametrize("name", ["used_by_operators", "nothing_found", "known_size"])
def test_the_oracle_evaluates_bounds_and_cuts(name: str) -> None:
    text, args = CASES[name]
    mod = nvm.relay.parse(HEADER + text)
    lowered = mod
    context = PassContext()
    for one in (TO_ANF, FUSE_OPS, MANIFEST_ALLOC):
        lowered = one(lowered, context)
    assert "vm.shrink" in lowered.astext()
    assert_same(evaluate(lowered, args), evaluate(mod, args))
