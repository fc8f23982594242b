"""What codegen is told of a region's dims is what a run gets, whatever scratch there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import CompileError
from nimblevm.external import Blob, External, Region, register_runtime, unregister_runtime
from nimblevm.relay import dims as dim_exprs
from nimblevm.relay.dataflow_pattern import DFPattern, is_op, wildcard
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.types import TensorType

Shapes = tuple[tuple[int, ...], ...]

# What our loop IR of a region passes is neither in the order of its types nor all of their sizes.
PROGRAMS: dict[str, tuple[DFPattern, str, Shapes]] = {
    "dense": (
        is_op("nn.dense")(wildcard(), wildcard()),
        "%x: Tensor[(?n, ?k), float32], %y: Tensor[(?m, ?k), float32]) { nn.dense(%x, %y) }",
        ((2, 4), (5, 4)),
    ),
    "concatenate": (
        is_op("concatenate")(wildcard()),
        "%x: Tensor[(?n, 4), float32], %y: Tensor[(?m, 4), float32]) { concatenate((%x, %y)) }",
        ((2, 4), (5, 4)),
    ),
    "transpose": (
        is_op("add")(is_op("tanh")(is_op("transpose")(wildcard())), wildcard()),
        "%x: Tensor[(?m, ?n), float32], %y: Tensor[(?n, ?m), float32]) { tanh(transpose(%x)) + %y }",
        ((2, 4), (4, 2)),
    ),
    "no loop IR": (
        is_op("tanh")(is_op("cumsum")(is_op("nn.dense")(wildcard(), wildcard()))),
        "%x: Tensor[(?n, ?k), float32], %y: Tensor[(?m, ?k), float32]) "
        "{ tanh(cumsum(nn.dense(%x, %y), axis=0)) }",
        ((2, 4), (5, 4)),
    ),
}


def last_size(region: Region) -> Dim:
    return region.inputs[-1].shape[0]


SCRATCH: dict[str, Callable[[Region], tuple[TensorType, ...]]] = {
    "none": lambda region: (),
    "static": lambda region: (TensorType((3,), "int8"),),
    "last size": lambda region: (TensorType((last_size(region),), "float32"),),
    "new size": lambda region: (TensorType((dim_exprs.mul(last_size(region), 3),), "int32"),),
}


@pytest.fixture(autouse=True)
def _unregistered() -> Iterator[None]:
    yield
    unregister_runtime("dims")


@pytest.mark.parametrize("scratch", SCRATCH)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_run_gets_the_dims_that_codegen_was_told_of(program: str, scratch: str) -> None:
    pattern, text, shapes = PROGRAMS[program]
    regions: list[Region] = []
    calls: list[Sequence[int]] = []

    def codegen(region: Region) -> Blob:
        regions.append(region)
        return Blob(b"", SCRATCH[scratch](region))

    def factory(blob: bytes) -> Callable[..., None]:
        return lambda inputs, outputs, dims: calls.append(dims)

    register_runtime("dims", factory)
    mod = relay.parse(f'#[version = "0.0.5"]\ndef @main({text}')
    exe = nvm.compile(mod, external=External("dims", [("dims.all", pattern)], codegen))
    nvm.VirtualMachine(exe).run(*(np.ones(shape, np.float32) for shape in shapes))
    (region,), (given,) = regions, calls
    sizes = {
        dim: size
        for type_, shape in zip(region.inputs, shapes, strict=True)
        for dim, size in zip(type_.shape, shape, strict=True)
        if isinstance(dim, DimVar)
    }
    told = [dim_exprs.evaluate(dim, sizes) for dim in region.dims]
    assert list(given[: len(told)]) == told
    assert len(given) - len(told) == (scratch == "new size")


@pytest.mark.parametrize(
    ("scratch", "told"),
    [
        (
            TensorType((DimVar("z"),), "int8"),
            r"has a dim \?z, which is no dim variable of the region",
        ),
        ((4, "int8"), r"expected TensorTypes as scratch, got \(4, 'int8'\)"),
    ],
)
def test_scratch_that_no_call_can_have(scratch: Any, told: str) -> None:
    pattern, text, _ = PROGRAMS["dense"]
    external = External("dims", [("dims.all", pattern)], lambda region: Blob(b"", (scratch,)))
    mod = relay.parse(f'#[version = "0.0.5"]\ndef @main({text}')
    with pytest.raises(CompileError, match=f"codegen of external backend dims, region .*{told}"):
        nvm.compile(mod, external=external)
