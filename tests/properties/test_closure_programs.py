"""Random programs of closures, references, lists and growing shapes, on every path, with several inputs a program."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.relay.interpreter import evaluate
from tests.properties.closures import program
from tests.properties.compare import assert_same
from tests.properties.recurrent import to_adt

CALLS = 4


def inputs(source: random.Random) -> tuple[Any, ...]:
    """Vectors that have one size or not, none included; a number; a list as nested tuples."""

    def vector(size: int) -> np.ndarray[Any, Any]:
        return np.array([source.uniform(-1, 1) for _ in range(size)], np.float32)

    size = source.randint(0, 5)
    vectors: Any = ("N",)
    for _ in range(source.randint(0, 3)):
        vectors = ("C", vector(source.randint(0, 4)), vectors)
    other = size if source.random() < 0.5 else source.randint(0, 5)
    return vector(size), vector(other), np.int32(source.randint(-1, 4)), vectors


def check(seed: int, native: bool, path: Path, depth: int = 3) -> None:
    source = random.Random(seed)
    mod = nvm.relay.parse(program(source, depth), source_name=f"{seed}.rly")
    exe = nvm.compile(mod, native=native)
    exe.save(path)
    vms = [
        nvm.VirtualMachine(exe),
        nvm.VirtualMachine(nvm.load(path), threads=2),
        nvm.VirtualMachine(nvm.load(path, native=False)),
    ]
    for _ in range(CALLS):
        args = [to_adt(value, exe.constructor) for value in inputs(source)]
        expected = evaluate(mod, args)
        for vm in vms:
            assert_same(vm.run(*args), expected, rtol=1e-3)
    for vm in vms:
        vm.close()


@pytest.mark.parametrize("seed", range(12))
def test_programs(seed: int, tmp_path: Path) -> None:
    check(seed, native=False, path=tmp_path / "model.nvm")


@pytest.mark.slow
@pytest.mark.parametrize("native", [False, True])
def test_many_programs(native: bool, tmp_path: Path) -> None:
    for seed in range(100, 200):
        check(seed, native, tmp_path / "model.nvm", 4)
