"""Mutants of the assembler cases that pass the verifier: the C interpreter and the reference agree on value or error.

Contents of fresh storage are undefined, so tensors are compared by dtype and shape here; the cases compare bytes.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nimblevm.bytecode.adt import ADTValue
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.executable import load
from nimblevm.bytecode.records import program_record
from nimblevm.bytecode.serialize import serialize
from nimblevm.errors import InvalidExecutable, LimitExceeded, NimbleError
from nimblevm.vm.arguments import Handle
from nimblevm.vm.reference import Adt, Closure, Ref, ReferenceVM
from nimblevm.vm.vm import Limits, VirtualMachine
from tests.bytecode.forge import join, split
from tests.fuzz.mutate import legal_words

HERE = Path(__file__).parent
STEPS = 3000
LIMITS = Limits(instructions=20 * STEPS, bytes=1 << 24, objects=20_000, frames=STEPS, seconds=5)


def shape(value: Any) -> Any:
    """What both sides must agree on; ADT values may be deep or shared, so text is cut after some nodes."""
    out: list[Any] = []
    stack = [value]
    while stack and len(out) < 200:
        item = stack.pop()
        if isinstance(item, (Handle, Closure, Ref)):
            return "opaque"
        if isinstance(item, Adt):
            out.append((item.ctor, len(item.fields)))
            stack.extend(item.fields)
        elif isinstance(item, ADTValue):
            out.append((item.constructor.index, len(item.fields)))
            stack.extend(item.fields)
        elif isinstance(item, tuple):
            out.append((0, len(item)))
            stack.extend(item)
        elif isinstance(item, int):
            out.append(item)
        else:
            array = np.asarray(item if isinstance(item, np.ndarray) else item.numpy())
            scalar = array.ndim == 0 and array.dtype.kind in "iub"
            out.append(int(array) if scalar else (array.dtype.name, array.shape))
    return out


def outcome(run: Any, *args: Any, **named: Any) -> Any:
    try:
        return shape(run(*args, **named))
    except LimitExceeded:
        return "limit"
    except NimbleError as error:
        return type(error).__name__
    except (ValueError, MemoryError):  # numpy refuses a shape; the VM has its limits for it
        return "limit"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stem", "count"),
    [
        ("control", 500),
        ("data", 500),
        ("dims", 300),
        ("integers", 300),
        ("tensors", 500),
        ("trees", 300),
    ],
)
def test_mutants_agree(stem: str, count: int) -> None:
    rng = random.Random(stem)
    data = serialize(assemble((HERE / f"{stem}.nvmasm").read_text()))
    header, sections = split(data)
    compared = 0
    for turn in range(count):
        mutated = list(sections)
        for _ in range(8):
            legal_words(rng, header, mutated)
        try:
            exe = load(join(header, mutated), native=False)
        except InvalidExecutable:
            continue
        program = program_record(exe._header(), mutated)
        with exe, VirtualMachine(exe, limits=LIMITS) as vm:
            for f in program.functions:
                if f.params or not f.public:
                    continue
                got = outcome(vm.invoke, f.name)
                wanted = outcome(ReferenceVM(program).run, f.name, steps=STEPS)
                if "limit" in (got, wanted) or "opaque" in (got, wanted):
                    continue
                compared += 1
                assert got == wanted, f"{stem}, turn {turn}, @{f.name}"
    assert compared > count
