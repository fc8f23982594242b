"""JSON values against the types of an executable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.cli.console import Mistake
from nimblevm.cli.values import from_json, to_json

TEXT = """#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil }
type Pair[A, B] { Pair(A, B) }
type Nest[A] { End, Deep(A, Nest[Pair[A, A]]) }
def @tensors(%f: Tensor[(?d, 2), float32], %i: Tensor[(?), int8], %b: Tensor[(?), bool], %u: uint64, %h: float16) { %f }
def @tuple(%t: (int32, (bool, Tensor[(2), float32]))) { %t }
def @pairs(%p: List[Pair[int32, List[bool]]]) { %p }
def @nest(%n: Nest[int32]) { %n }
def @reference(%r: ref(int32)) { %r }
def @open[A](%x: A) -> A { %x }
"""


@pytest.fixture(scope="module")
def exe() -> Iterator[nvm.Executable]:
    with nvm.compile(nvm.relay.parse(TEXT), native=False) as made:
        yield made


def convert(exe: nvm.Executable, name: str, value: Any) -> Any:
    function, _, param = name.partition(".")
    found = exe.functions[function]
    type_ = next(p.type for p in found.params if not param or p.name == param)
    return from_json(value, type_, exe, "x", [d.name for d in found.dims])


GOOD: dict[str, tuple[str, Any, Any]] = {
    "matrix": ("tensors.f", [[1, 2.5], [3, 4]], np.array([[1, 2.5], [3, 4]], np.float32)),
    "no rows": ("tensors.f", [], np.zeros((0, 2), np.float32)),
    "infinities": ("tensors.f", [[float("inf"), float("-inf")]], np.array([[np.inf, -np.inf]], np.float32)),
    "bytes": ("tensors.i", [-128, 127], np.array([-128, 127], np.int8)),
    "bools": ("tensors.b", [True, False], np.array([True, False])),
    "large": ("tensors.u", 2**64 - 1, np.array(2**64 - 1, np.uint64)),
    "half": ("tensors.h", 0.5, np.array(0.5, np.float16)),
    "in full": ("tensors.f", {"dtype": "float32", "shape": [2, 2], "data": [1, 2, 3, 4]}, np.array([[1, 2], [3, 4]], np.float32)),
    "of any type": ("open", {"dtype": "int16", "shape": [1], "data": [3]}, np.array([3], np.int16)),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_tensors(name: str, exe: nvm.Executable) -> None:
    place, value, expected = GOOD[name]
    found = convert(exe, place, value)
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
    assert found.shape == expected.shape


def test_containers(exe: nvm.Executable) -> None:
    count, (flag, array) = convert(exe, "tuple", [1, [True, [1, 2]]])
    assert (count.dtype, bool(flag), array.tolist()) == (np.int32, True, [1, 2])
    pair = {"constructor": "Pair", "fields": [7, [True, False]]}
    value = convert(exe, "pairs", [pair, pair])
    with nvm.VirtualMachine(exe) as vm:
        assert to_json(vm.invoke("pairs", value)) == [pair, pair]


def test_types_that_change_on_the_way_down(exe: nvm.Executable) -> None:
    """Pair[A, A] inside of Nest[A]: variables of a data type mean something else at every level."""
    pair = {"constructor": "Pair", "fields": [1, 2]}
    pairs = {"constructor": "Pair", "fields": [pair, pair]}
    value: Any = "End"
    for item in (pairs, pair, 1):
        value = {"constructor": "Deep", "fields": [item, value]}
    with nvm.VirtualMachine(exe) as vm:
        assert to_json(vm.invoke("nest", convert(exe, "nest", value))) == value
    value["fields"][1]["fields"][0] = 5
    with pytest.raises(Mistake, match=r"^x\.Deep\[1\]\.Deep\[0\]: expected .*one of Pair, got 5$"):
        convert(exe, "nest", value)


BAD = {
    "text": ("tensors.f", "abc", "x: expected Tensor[(?d, 2), float32], got 'abc'"),
    "null": ("tensors.f", None, "got None"),
    "rank": ("tensors.f", [1, 2], "x: expected Tensor[(?d, 2), float32], got float32 of shape [2]"),
    "size": ("tensors.f", [[1, 2, 3]], "got float32 of shape [1, 3]"),
    "ragged": ("tensors.f", [[1, 2], [3]], "x: ragged array: next to an array of 2 stands one of 1"),
    "ragged number": ("tensors.f", [[1, 2], 3], "next to an array of 2 stands 3"),
    "axes": ("tensors.f", [[[[[[[[[1]]]]]]]]], "more than 8 axes"),
    "bool for a number": ("tensors.i", [True], "got True"),
    "number for a bool": ("tensors.b", [1], "got 1"),
    "float for an integer": ("tensors.i", [1.5], "got 1.5"),
    "too large": ("tensors.i", [128], "x: 128 does not fit int8"),
    "too small": ("tensors.u", -1, "x: -1 does not fit uint64"),
    "too large a float": ("tensors.h", 1e6, "too large for float16"),
    "far too large a float": ("tensors.f", [[1, 10**400]], "too large for float32"),
    "other dtype": ("tensors.i", {"dtype": "int32", "shape": [1], "data": [1]}, "got int32 of shape [1]"),
    "no dtype": ("tensors.i", {"dtype": "int3", "shape": [1], "data": [1]}, "x: no dtype 'int3'; there are bool"),
    "shape": ("tensors.i", {"dtype": "int8", "shape": [2], "data": [1]}, "x: 1 numbers don't fill the shape [2]"),
    "negative shape": ("tensors.i", {"dtype": "int8", "shape": [-1], "data": [1]}, "expected a shape of whole numbers"),
    "object": ("tensors.i", {"a": 1}, "expected {\"file\": ...} or"),
    "tuple": ("tuple", [1], "x: expected an array of 2 for a tuple, got an array of 1"),
    "in a tuple": ("tuple", [1, [True, "a"]], "x[1][1]: expected Tensor[(2), float32], got 'a'"),
    "no list": ("pairs", 1, "x: expected an array or {\"constructor\": ..., \"fields\": [...]} for List, one of Cons, Nil"),
    "no constructor": ("pairs", "Nul", "x: List has no constructor 'Nul'; it has Cons, Nil"),
    "fields": ("pairs", [{"constructor": "Pair", "fields": [1]}], "x[0]: constructor Pair takes 2 fields (T0, T1), got 1"),
    "other names": ("pairs", [{"constructor": "Pair", "args": [1]}], "got an object with 'constructor', 'args'"),
    "list for Pair": ("pairs", [[1, []]], "x[0]: expected {\"constructor\""),
    "reference": ("reference", 1, "a value of type ref(int32) can't be written down"),
    "open type": ("open", 1, "the type is open here"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_mistakes(name: str, exe: nvm.Executable) -> None:
    place, value, expected = BAD[name]
    with pytest.raises(Mistake) as caught:
        convert(exe, place, value)
    assert expected in str(caught.value)


def test_long_places_are_cut(exe: nvm.Executable) -> None:
    value: Any = "a"
    for _ in range(50):
        value = {
            "constructor": "Cons",
            "fields": [{"constructor": "Pair", "fields": [1, []]}, value],
        }
    with pytest.raises(Mistake, match=r"\.Cons\[1\] \(30 more\) \.Cons\[1\].*no constructor 'a'"):
        convert(exe, "pairs", value)


def test_files(exe: nvm.Executable, tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", a=np.ones(2, np.int8), b=np.zeros(3, np.int8))
    found = convert(exe, "tensors.i", {"file": f"{tmp_path}/w.npz:b"})
    assert found.shape == (3,)
    with pytest.raises(Mistake, match="has 2 arrays; it has a, b"):
        convert(exe, "tensors.i", {"file": f"{tmp_path}/w.npz"})
    with pytest.raises(FileNotFoundError):
        convert(exe, "tensors.i", {"file": f"{tmp_path}/none.npy"})
