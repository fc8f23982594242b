"""Tuples of more tensors than one kernel takes (abi.MAX_OPERANDS): joined, stacked, cut, as run time values, constants
and fields of a tuple that comes from outside."""

from __future__ import annotations

from string import ascii_letters

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.abi import MAX_OPERANDS
from nimblevm.errors import CompileError, ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import DimVar
from tests.properties.everywhere import run_everywhere

PARTS = MAX_OPERANDS + 6


def _params(shape: str, count: int = PARTS) -> tuple[str, str]:
    """Declarations of %a0.., where @ stands for the number, and the names."""
    declared = ", ".join(
        f"%a{i}: Tensor[({shape.replace('@', str(i))}), int8]" for i in range(count)
    )
    return declared, ", ".join(f"%a{i}" for i in range(count))


def _parts(*sizes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.integers(-9, 9, shape).astype(np.int8) for shape in sizes]


def test_parts_of_different_sizes_are_joined() -> None:
    declared, names = _params("2, ?n@")
    parts = _parts(*((2, i % 3) for i in range(PARTS)))
    program = f"def @main({declared}) {{ negative(concatenate(({names}), axis=1)) }}"
    got = run_everywhere(program, *parts)
    np.testing.assert_array_equal(got, -np.concatenate(parts, 1))


def test_fields_of_a_tuple_are_stacked_and_summed() -> None:
    fields = ", ".join(["Tensor[(?n, 2), int8]"] * PARTS)
    parts = _parts(*((3, 2) for _ in range(PARTS)))
    program = f"""def @main(%t: ({fields})) {{
      (stack(%t, axis=-1), sum(stack(%t, axis=0), axis=[0]), concatenate(%t, axis=-1)) }}"""
    stacked, total, joined = run_everywhere(program, tuple(parts))
    np.testing.assert_array_equal(stacked, np.stack(parts, -1))
    np.testing.assert_array_equal(total, np.stack(parts).sum(0, dtype=np.int8))
    np.testing.assert_array_equal(joined, np.concatenate(parts, -1))


def test_constants_are_stacked() -> None:
    ones = ", ".join(f'full({i}, shape=[3], dtype="int32")' for i in range(PARTS))
    got = run_everywhere(f"def @main(%x: int32) {{ %x + stack(({ones}), axis=1) }}", np.int32(1))
    np.testing.assert_array_equal(got, np.arange(1, PARTS + 1) * np.ones((3, 1), np.int32))


@pytest.mark.parametrize("size", [0, 3])
def test_an_axis_is_cut_into_sections(size: int) -> None:
    program = f"""def @main(%x: Tensor[(2, ?n), int8]) {{
      let %s = split(%x, indices_or_sections={PARTS}, axis=1); (%s, negative(%s.{PARTS - 1})) }}"""
    (x,) = _parts((2, size * PARTS))
    sections, last = run_everywhere(program, x)
    for got, want in zip(sections, np.split(x, PARTS, 1), strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(last, -x[:, len(x[0]) - size :])
    exe = nvm.compile(nvm.relay.parse('#[version = "0.0.5"]\n' + program), native=False)
    with nvm.VirtualMachine(exe) as vm, pytest.raises(ShapeMismatch, match=f"multiple of {PARTS}"):
        vm.run(np.zeros((2, PARTS + 1), np.int8))


def test_an_axis_is_cut_at_indices() -> None:
    cuts = [i // 2 * 3 for i in range(PARTS)]
    (x,) = _parts((PARTS * 2, 2))
    program = (
        f"def @main(%x: Tensor[(?n, 2), int8]) {{ split(%x, indices_or_sections={cuts}, axis=0) }}"
    )
    for got, want in zip(run_everywhere(program, x), np.split(x, cuts), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_sum_of_more_tensors_than_a_kernel_takes_is_refused_with_its_place() -> None:
    text = '#[version = "0.0.5"]\ndef @main({}) {{ einsum(({}), equation="{}") }}'
    for count, letters, problem in (
        (MAX_OPERANDS - 1, 1, ""),
        (MAX_OPERANDS, 1, f"{MAX_OPERANDS + 1} operands and results"),
        (20, 40, "40 loops and branches in each other"),
    ):
        declared, names = _params("2, 2", count)
        used = [ascii_letters[i % letters] for i in range(2 * count)]
        terms = ",".join(map("".join, zip(used[::2], used[1::2], strict=True)))
        mod = nvm.relay.parse(text.format(declared, names, terms + "->"), source_name="sums.rly")
        if not problem:
            nvm.compile(mod, native=False)
            continue
        with pytest.raises(CompileError, match=f"^sums.rly:2:.*kernel einsum: {problem}, where"):
            nvm.compile(mod, native=False)


def test_a_size_that_outgrows_dims() -> None:
    """The size of the result has more summands than an expression of dims may have."""
    count = dims.MAX_NODES + 44
    declared, names = _params("1, ?n@", count)
    parts = _parts(*((1, i % 2) for i in range(count)))
    program = f'#[version = "0.0.5"]\ndef @main({declared}) {{ negative(concatenate(({names}), axis=1)) }}'
    exe = nvm.compile(nvm.relay.parse(program), native=False)
    with nvm.VirtualMachine(exe) as vm:
        np.testing.assert_array_equal(vm.run(*parts).numpy(), -np.concatenate(parts, 1))
    unknown = dims.total([DimVar() for _ in range(count)])
    assert isinstance(unknown, DimVar)
