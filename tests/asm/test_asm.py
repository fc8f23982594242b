"""Runs tests/asm/*.nvmasm on the C interpreter and on nimblevm/vm/reference.py.

test_* must return, and the same value on both; fail_* must raise the status that the line before it states
("; raises NAME"). A file that starts with "; c only" has kernels, which the reference has none of. CI runs this
with computed goto and with switch dispatch.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nimblevm.bytecode import isa
from nimblevm.bytecode.adt import ADTValue
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.executable import Executable
from nimblevm.bytecode.serialize import ProgramRecord, serialize
from nimblevm.errors import STATUSES, NimbleError
from nimblevm.vm.reference import Adt, ReferenceVM
from nimblevm.vm.vm import VirtualMachine

FILES = sorted(Path(__file__).parent.glob("*.nvmasm"))
CASE = re.compile(r"^(?:; raises (\w+)\n)?\.func @((?:test|fail)_\w+)", re.MULTILINE)
CLASSES = {row.name: row.exception for row in STATUSES}


def cases() -> list[Any]:
    return [
        pytest.param(path, name, code, id=f"{path.stem}-{name}")
        for path in FILES
        for code, name in CASE.findall(path.read_text())
    ]


@cache
def loaded(path: Path) -> tuple[ProgramRecord, VirtualMachine]:
    program = assemble(path.read_text())
    return program, VirtualMachine(Executable.from_bytes(serialize(program)))


def plain(value: Any, constructors: Any) -> Any:
    """Either side's value as nested tuples, (constructor index, fields) and (dtype, shape, bytes)."""
    if isinstance(value, Adt):
        return value.ctor, tuple(plain(f, constructors) for f in value.fields)
    if isinstance(value, ADTValue):
        return value.constructor.index, tuple(plain(f, constructors) for f in value.fields)
    if isinstance(value, tuple):
        return 0, tuple(plain(f, constructors) for f in value)
    array = np.asarray(value if isinstance(value, (np.ndarray, int)) else value.numpy())
    if (
        array.ndim == 0 and array.dtype.kind in "iub"
    ):  # an int register has no dtype on the reference's side
        return int(array)
    return array.dtype.name, array.shape, array.tobytes()


@pytest.mark.parametrize(("path", "name", "code"), cases())
def test_case(path: Path, name: str, code: str) -> None:
    program, vm = loaded(path)
    with_reference = not path.read_text().startswith("; c only")
    if name.startswith("fail_"):
        expected = CLASSES[code]
        assert expected is not None
        with pytest.raises(NimbleError) as caught:
            vm.invoke(name)
        assert type(caught.value) is expected, caught.value
        if with_reference:
            with pytest.raises(NimbleError) as caught:
                ReferenceVM(program).run(name)
            assert type(caught.value) is expected, caught.value
        return
    assert not code, "a test_* that raises"
    got = plain(vm.invoke(name), vm.executable.constructors)
    if with_reference:
        assert got == plain(ReferenceVM(program).run(name), None)
    assert vm.stats()["live_objects"] == 0


def test_every_row_has_a_case() -> None:
    names = {name for path in FILES for _, name in CASE.findall(path.read_text())}
    text = "\n".join(path.read_text() for path in FILES)
    for row in isa.ISA:
        assert re.search(rf"^  {row.mnemonic}\b", text, re.MULTILINE), (
            f"no case uses {row.mnemonic}"
        )
        if isa.RAISES in row.flags and row.mnemonic not in (
            "LoadConst",
            "Box",
            "InvokeTail",
            "DimMin",
            "DimMax",
        ):
            assert any(n.startswith(f"fail_{row.mnemonic}") for n in names), (
                f"no fail_{row.mnemonic}"
            )
