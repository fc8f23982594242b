"""Random programs of all operators that a program can call: oracle = compiled = saved and loaded = native off (IR).

Several programs are the functions of one module and are compiled together. With those of test_random_programs.py, at
least 5,000 programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nimblevm as nvm
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.op import all_ops, find
from tests.properties.compare import assert_same
from tests.properties.everywhere import PLAIN
from tests.properties.operators import (
    CHECKED,
    DRAWN,
    EXCLUDED,
    Program,
    may_be_total,
    module_text,
    operator_program,
)
from tests.relay.op.draw import SeededSource

PROGRAMS, TOGETHER = 3500, 10
PER_SHARD = -(-len(DRAWN) // TOGETHER) * TOGETHER
"""Each operator in first place at least once."""
SHARDS = -(-PROGRAMS // PER_SHARD)
OPTIONS: tuple[dict[str, Any], ...] = ({}, {}, {"verify": True}, {"unbox": False}, dict(PLAIN))


def batches(start: int, count: int) -> Iterator[list[Program]]:
    """Programs by number, each with its own operator in first place."""
    for first in range(start, start + count, TOGETHER):
        numbers = range(first, min(first + TOGETHER, start + count))
        yield [operator_program(SeededSource(n), DRAWN[n % len(DRAWN)], f"p{n}") for n in numbers]


def check(programs: list[Program], path: Path, **options: Any) -> None:
    """All paths give the oracle's values."""
    mod = nvm.relay.parse(module_text(programs), source_name="random.rly")
    expected = [evaluate(mod, p.args, p.name) for p in programs]
    exe = nvm.compile(mod, **options)
    exe.save(path)
    for executable in (exe, nvm.load(path), nvm.load(path, native=False)):
        with nvm.VirtualMachine(executable) as vm:
            for program, value in zip(programs, expected, strict=True):
                for _ in range(2):  # state left over from an earlier call would show
                    try:
                        assert_same(vm.invoke(program.name, *program.args), value)
                    except Exception as error:
                        error.add_note(f"{program.text}\narguments {program.args}\n{options}")
                        raise


def run(start: int, count: int, path: Path) -> set[str]:
    """Checks the programs of these numbers; the operators that they call."""
    called: set[str] = set()
    for turn, programs in enumerate(batches(start, count)):
        called.update(*(p.called for p in programs))
        check(programs, path, **OPTIONS[turn % len(OPTIONS)])
    return called


def test_programs_of_total_operators(tmp_path: Path) -> None:
    run(0, 10, tmp_path / "p.nvm")


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_many_programs_of_total_operators(shard: int, tmp_path: Path) -> None:
    assert run(shard * PER_SHARD, PER_SHARD, tmp_path / "p.nvm") >= set(DRAWN)


@pytest.mark.slow
def test_every_total_operator_is_drawn() -> None:
    """And what was drawn is in the texts."""
    drawn: set[str] = set()
    seen: set[str] = set()
    for programs in batches(0, len(DRAWN)):
        drawn.update(*(p.called for p in programs))
        seen.update(re.findall(r"([a-z][a-z0-9_.]*)\(", module_text(programs)))
    total = {op.name for op in all_ops() if may_be_total(op)}
    assert drawn == (total - set(EXCLUDED)) | set(CHECKED), "an operator without such a case?"
    assert {name.removesuffix("?") for name in drawn} <= seen


def test_exclusions_are_total_operators_with_a_reason() -> None:
    for name, reason in EXCLUDED.items():
        op = find(name)
        assert op is not None
        assert may_be_total(op)
        assert name.startswith(("vm.", "memory.", "dyn.window"))
        assert reason.startswith("made by ")
