"""What differs between two executables. Tables are compared by what their entries are, not by their numbers, so that
one constant more does not make every function look changed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import unified_diff

import numpy as np

from nimblevm import dtypes
from nimblevm.bytecode import serialize as s
from nimblevm.bytecode.describe import Description, describe, signature_text, tensor_text
from nimblevm.bytecode.disassembler import code_lines
from nimblevm.bytecode.executable import KERNEL_KINDS, Executable

_BLOCK = 1 << 22
"""Elements of a constant that are compared at once."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something in both files that differs; `lines` say how."""

    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConstantChange:
    """A constant with other values. index: in the first and in the second file; elements: how many differ; most: the
    largest absolute difference of finite ones.
    """

    index: tuple[int, int]
    text: str
    most: float
    elements: int
    of: int


@dataclass(frozen=True, slots=True)
class Differences:
    """added: only in the second file. Sizes in bytes; facts: (name, value in the first, in the second)."""

    functions_removed: tuple[str, ...]
    functions_added: tuple[str, ...]
    functions_changed: tuple[Change, ...]
    kernels_removed: tuple[str, ...]
    kernels_added: tuple[str, ...]
    kernels_changed: tuple[Change, ...]
    constants_removed: tuple[str, ...]
    constants_added: tuple[str, ...]
    constants_changed: tuple[ConstantChange, ...]
    types: tuple[str, ...]
    facts: tuple[tuple[str, str, str], ...]
    sections: tuple[tuple[str, str, str], ...]

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))


def compare(a: Executable, b: Executable) -> Differences:
    """Raises Closed. Reads all constants."""
    first, second = a.program_record(), b.program_record()
    functions = _matched([f.name for f in first.functions], [f.name for f in second.functions])
    kernels = _matched([k.name for k in first.kernels], [k.name for k in second.kernels])
    x, y = describe(a), describe(b)
    removed, added, changed = _constants(first, second)
    return Differences(
        functions_removed=functions[0],
        functions_added=functions[1],
        functions_changed=tuple(
            change
            for name, i, j in functions[2]
            if (change := _function_change(name, (a, first, i), (b, second, j)))
        ),
        kernels_removed=kernels[0],
        kernels_added=kernels[1],
        kernels_changed=tuple(
            change
            for name, i, j in kernels[2]
            if (change := _kernel_change(name, first.kernels[i], second.kernels[j]))
        ),
        constants_removed=removed,
        constants_added=added,
        constants_changed=changed,
        types=tuple(_diff(_constructors(a), _constructors(b))),
        facts=_facts(x, y),
        sections=_sections(x, y),
    )


# --- by name --------------------------------------------------------------------------------------


def _numbered(names: Iterable[str]) -> dict[str, int]:
    """Name -> index; the second of one name is `name (2)`."""
    made: dict[str, int] = {}
    counts: dict[str, int] = {}
    for index, name in enumerate(names):
        counts[name] = counts.get(name, 0) + 1
        made[name if counts[name] == 1 else f"{name} ({counts[name]})"] = index
    return made


def _matched(
    names_a: Sequence[str], names_b: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...], list[tuple[str, int, int]]]:
    """Names in the first alone, in the second alone, and those in both with their indices."""
    a, b = _numbered(names_a), _numbered(names_b)
    removed = tuple(name for name in a if name not in b)
    added = tuple(name for name in b if name not in a)
    return removed, added, [(name, a[name], b[name]) for name in a if name in b]


def _diff(a: Sequence[str], b: Sequence[str]) -> list[str]:
    """Unified, without the two lines that name files."""
    if a == b:
        return []
    return list(unified_diff(a, b, lineterm="", n=2))[2:]


def _function_lines(exe: Executable, program: s.ProgramRecord, index: int) -> list[str]:
    """A function as text in which jumps go to numbered instructions, so that one more word moves no other line."""
    record = program.functions[index]
    lines = code_lines(program, record, by_name=True)
    info = exe.functions[record.name]
    head = [
        str(info),
        "public" if info.public else "internal",
        *(f"checked: {c}" for c in info.checked),
    ]
    targets = {f"L{line.pc}": f"L{k}" for k, line in enumerate(x for x in lines if x.is_target)}
    made: list[str] = []
    for line in lines:
        if line.is_target:
            made.append(f"{targets[f'L{line.pc}']}:")
        words = line.text.split(" ")
        made.append("  " + " ".join(_renamed(word, targets) for word in words))
    return [*head, *made]


def _renamed(word: str, targets: Mapping[str, str]) -> str:
    core = word.strip("[],")
    return word.replace(core, targets[core]) if core in targets else word


Side = tuple[Executable, s.ProgramRecord, int]


def _function_change(name: str, a: Side, b: Side) -> Change | None:
    lines = _diff(_function_lines(*a), _function_lines(*b))
    return Change(name, tuple(lines)) if lines else None


def _kernel_lines(kernel: s.KernelRecord) -> list[str]:
    made = [
        f"kind: {KERNEL_KINDS[kernel.kind]}",
        f"signature: {signature_text(kernel)}",
        f"dims: {', '.join(kernel.dims)}",
        f"attributes: {', '.join(map(str, kernel.attrs))}",
        f"outputs of dims: {kernel.out_dims}",
        f"may fail: {kernel.may_fail}",
        f"machine code: {'yes' if kernel.native >= 0 else 'no'}",
    ]
    if kernel.ir:
        digest = hashlib.sha256(kernel.ir).hexdigest()[:16]
        made.append(f"body: {len(kernel.ir)} bytes of kernel IR, SHA-256 {digest}")
    return made


def _kernel_change(name: str, a: s.KernelRecord, b: s.KernelRecord) -> Change | None:
    x, y = _kernel_lines(a), _kernel_lines(b)
    lines = [f"-{line}" for line in x if line not in y] + [
        f"+{line}" for line in y if line not in x
    ]
    return Change(name, tuple(lines)) if lines else None


def _constructors(exe: Executable) -> list[str]:
    return [f"{c.adt}.{c.name}({', '.join(c.fields)})" for c in exe.constructors[1:]]


# --- constants ------------------------------------------------------------------------------------

Key = tuple[int, tuple[int, ...], int, int]


def _constant_text(constant: s.ConstantRecord) -> str:
    return tensor_text(dtypes.BY_NUMBER[constant.dtype].name, map(str, constant.dims))


def _constants(
    a: s.ProgramRecord, b: s.ProgramRecord
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[ConstantChange, ...]]:
    """Equal ones are matched by their bytes, the rest in order among those of one type."""

    def digests(program: s.ProgramRecord) -> list[tuple[Key, bytes]]:
        return [
            ((c.dtype, c.dims, c.device, c.weight), hashlib.sha256(c.data).digest())
            for c in program.constants
        ]

    left, right = digests(a), digests(b)  # of late-bound weights the digest of nothing
    equal: dict[tuple[Key, bytes], deque[int]] = {}
    for j, key in enumerate(right):
        equal.setdefault(key, deque()).append(j)
    rest_a: list[int] = []
    taken: set[int] = set()
    for i, key in enumerate(left):
        if equal.get(key):
            taken.add(equal[key].popleft())
        else:
            rest_a.append(i)
    open_b: dict[Key, deque[int]] = {}
    for j, (kind, _) in enumerate(right):
        if j not in taken:
            open_b.setdefault(kind, deque()).append(j)
    removed: list[str] = []
    changed: list[ConstantChange] = []
    for i in rest_a:
        candidates = open_b.get(left[i][0])
        if candidates:
            changed.append(_values((i, candidates.popleft()), a, b))
        else:
            removed.append(f"c{i} {_constant_text(a.constants[i])}")
    added = [f"c{j} {_constant_text(b.constants[j])}" for js in open_b.values() for j in sorted(js)]
    return tuple(removed), tuple(added), tuple(changed)


def _values(index: tuple[int, int], a: s.ProgramRecord, b: s.ProgramRecord) -> ConstantChange:
    one, other = a.constants[index[0]], b.constants[index[1]]
    kind = np.dtype(dtypes.BY_NUMBER[one.dtype].numpy)
    x, y = np.frombuffer(one.data, kind), np.frombuffer(other.data, kind)
    most, elements = 0.0, 0
    for at in range(0, len(x), _BLOCK):
        p, q = x[at : at + _BLOCK], y[at : at + _BLOCK]
        differ = p.view(f"u{kind.itemsize}") != q.view(f"u{kind.itemsize}")
        elements += int(differ.sum())
        with np.errstate(all="ignore"):
            wide = p[differ].astype("longdouble") - q[differ].astype("longdouble")
        finite = np.abs(wide[np.isfinite(wide)])
        most = max(most, float(finite.max()) if len(finite) else 0.0)
    return ConstantChange(index, _constant_text(one), most, elements, len(x))


# --- the rest -------------------------------------------------------------------------------------


def _facts(a: Description, b: Description) -> tuple[tuple[str, str, str], ...]:
    def values(d: Description) -> dict[str, str]:
        return {
            **{f"producer {key}": value for key, value in d.producer.items()},
            "devices": ", ".join(d.devices),
            "sources": ", ".join(d.sources),
            "weights left out": ", ".join(map(str, d.weights)),
            "weights file": d.weights_file,
            "signed": "yes" if d.signed else "no",
            "format version": str(d.format_version),
            "bytes": str(d.size),
        }

    x, y = values(a), values(b)
    names = [*x, *(name for name in y if name not in x)]
    return tuple(
        (name, x.get(name, ""), y.get(name, "")) for name in names if x.get(name) != y.get(name)
    )


def _sections(a: Description, b: Description) -> tuple[tuple[str, str, str], ...]:
    def values(d: Description) -> dict[str, str]:
        names = _numbered(" ".join(filter(None, (x.kind, x.level or x.target))) for x in d.sections)
        return {
            name: f"{d.sections[i].size} bytes, SHA-256 {d.sections[i].digest[:16]}"
            for name, i in names.items()
        }

    x, y = values(a), values(b)
    names = [*x, *(name for name in y if name not in x)]
    return tuple(
        (name, x.get(name, ""), y.get(name, "")) for name in names if x.get(name) != y.get(name)
    )


__all__ = ["Change", "ConstantChange", "Differences", "compare"]
