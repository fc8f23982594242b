"""Every pass is linear: a program twice as long costs at most 2.3 times the bytecode instructions (counted, not timed)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import nimblevm as nvm
from nimblevm.compiler import pass_base
from nimblevm.relay import infer_type, parser, printer, structural
from nimblevm.relay.module import IRModule
from nimblevm.relay.structural_hash import structural_hash
from nimblevm.relay.well_formed import check_well_formed

HEADER = '#[version = "0.0.5"]\n'
SIZE = 120


def lets(n: int) -> str:
    body = "\n".join(f"let %v{i + 1} = add(%v{i}, %x);" for i in range(n))
    return (
        f"{HEADER}def @main(%x: Tensor[(?n), float32]) {{ let %v0 = tanh(%x);\n{body}\n%v{n} }}\n"
    )


def nested(n: int) -> str:
    return f"{HEADER}def @main(%x: Tensor[(?n), float32]) {{ {'tanh(' * n}%x{')' * n} }}\n"


def shared(n: int) -> str:
    body = "\n".join(f"%{i + 1} = add(%{i}, %{i});" for i in range(n))
    return f"{HEADER}def @main(%x: Tensor[(?n), float32]) {{ %0 = tanh(%x);\n{body}\n%{n} }}\n"


def branches(n: int) -> str:
    body = "\n".join(
        f"let %v{i + 1} = if (less(%k, {i})) {{ tanh(%v{i}) }} else {{ add(%v{i}, %x) }};"
        for i in range(n)
    )
    return f"{HEADER}def @main(%x: Tensor[(?n), float32], %k: int32) {{ let %v0 = tanh(%x);\n{body}\n%v{n} }}\n"


def closures(n: int) -> str:
    body = "\n".join(
        f"let %f{i + 1} = fn (%p{i}: Tensor[(?n), float32]) {{ add(%f{i}(%p{i}), %x) }};"
        for i in range(n)
    )
    return (
        f"{HEADER}def @main(%x: Tensor[(?n), float32]) {{\n"
        f"let %f0 = fn (%q: Tensor[(?n), float32]) {{ tanh(%q) }};\n{body}\n%f{n}(%x) }}\n"
    )


def functions(n: int) -> str:
    body = "".join(
        f"def @f{i}(%x: Tensor[(?n), float32]) -> Tensor[(?n), float32] {{ tanh(@f{i + 1}(%x)) }}\n"
        for i in range(n)
    )
    last = f"def @f{n}(%x: Tensor[(?n), float32]) -> Tensor[(?n), float32] {{ %x }}\n"
    return f"{HEADER}{body}{last}def @main(%x: Tensor[(?n), float32]) {{ @f0(%x) }}\n"


def matches(n: int) -> str:
    body = "\n".join(
        f"let %v{i + 1} = match (%v{i}) {{ A(%a{i}) => {{ B(%a{i}) }}, B(%b{i}) => {{ A(tanh(%b{i})) }}, }};"
        for i in range(n)
    )
    return (
        f"{HEADER}type E {{ A(Tensor[(?), float32]), B(Tensor[(?), float32]) }}\n"
        f"def @main(%v0: E) {{\n{body}\n%v{n} }}\n"
    )


def cells(n: int) -> str:
    body = "\n".join(
        f"let %r{i} = ref(%v{i}); let %u{i} = ref_write(%r{i}, tanh(%v{i})); let %v{i + 1} = ref_read(%r{i});"
        for i in range(n)
    )
    return f"{HEADER}def @main(%v0: Tensor[(3), float32]) {{\n{body}\n%v{n} }}\n"


def clauses(n: int) -> str:
    cases = " ".join(f"C{i}(%x{i}) => {{ tanh(%x{i}) }}," for i in range(n))
    kinds = ", ".join(f"C{i}(Tensor[(?), float32])" for i in range(n))
    return f"{HEADER}type E {{ {kinds} }}\ndef @main(%e: E) {{ match (%e) {{ {cases} }} }}\n"


def wide(n: int) -> str:
    body = "\n".join(f"let %v{i} = exp(%t.{i});" for i in range(n))
    return (
        f"{HEADER}def @main(%x: Tensor[(?n), float32]) {{\nlet %t = ({'tanh(%x), ' * n});\n{body}\n"
        f"({', '.join(f'%v{i}' for i in range(n))}) }}\n"
    )


def else_ifs(n: int) -> str:
    body = "".join(f"if (less(%k, {i})) {{ tanh(%x) }} else {{\n" for i in range(n))
    return f"{HEADER}def @main(%x: Tensor[(?n), float32], %k: int32) {{\n{body}%x{' }' * n} }}\n"


def generic(n: int) -> str:
    body = "\n".join(f"let %v{i + 1} = @same(%v{i});" for i in range(n))
    return (
        f"{HEADER}def @same[A](%a: A) -> A {{ %a }}\n"
        f"def @main(%v0: Tensor[(?n), float32]) {{\n{body}\n%v{n} }}\n"
    )


FAMILIES = [
    lets, nested, shared, branches, closures, functions, matches, cells, clauses, wide, else_ifs,
    generic,
]  # fmt: skip


def count(run: Callable[[], Any]) -> int:
    """Python bytecode instructions that `run` executes in nimblevm's own files."""
    total = 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal total
        if event == "call":
            if "nimblevm" not in frame.f_code.co_filename:
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            return trace
        if event == "opcode":
            total += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return total


def costs(text: str, **options: Any) -> Counter[str]:
    """Bytecode instructions by stage: parser, inference, printer, and each pass of a compilation with these options."""
    found: Counter[str] = Counter()
    mod: list[IRModule] = []
    found["parse"] = count(lambda: mod.append(parser.parse_module(text)))
    found["infer_type"] = count(lambda: mod.append(infer_type(mod[-1])))
    found["well_formed"] = count(lambda: check_well_formed(mod[-1]))
    found["print"] = count(lambda: printer.astext(mod[-1]))
    found["structural_hash"] = count(lambda: structural_hash(mod[-1]))
    found["structural_equal"] = count(lambda: structural.structural_equal(mod[-1], mod[-2]))
    original = pass_base.Pass.__call__

    def counted(self: pass_base.Pass, module: IRModule, ctx: Any = None) -> IRModule:
        result: list[IRModule] = []
        found[self.name] += count(lambda: result.append(original(self, module, ctx)))
        return result[0]

    pass_base.Pass.__call__ = counted  # type: ignore[method-assign,assignment]
    try:
        nvm.compile(mod[-1], native=False, **options)
    finally:
        pass_base.Pass.__call__ = original  # type: ignore[method-assign]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_a_doubled_program_costs_at_most_2_3_times(family: Callable[[int], str]) -> None:
    costs(family(4))  # fills caches
    one, two = costs(family(SIZE)), costs(family(2 * SIZE))
    worse = {name: two[name] / one[name] for name in one if two[name] > 2.3 * one[name]}
    assert not worse, f"grows faster than linear: {worse}"
    assert len(one) > 12, f"passes are missing: {sorted(one)}"


PLACED = [lets, branches, closures]
"""Families in which values go through something that placement follows."""


@pytest.mark.slow
@pytest.mark.parametrize("family", PLACED, ids=lambda f: f.__name__)
def test_placement_is_linear(family: Callable[[int], str]) -> None:
    """As above, of a program that is placed on a device: plan_devices and what comes behind it, which sees copies."""
    costs(family(4), device="simulated")
    one = costs(family(SIZE), device="simulated")
    two = costs(family(2 * SIZE), device="simulated")
    seen = {
        name: two[name] / one[name] for name in ("plan_devices", "manifest_alloc", "plan_memory")
    }
    assert max(seen.values()) <= 2.3, f"grows faster than linear: {seen}"
    assert one["plan_devices"] > 10 * SIZE, "it does something"
