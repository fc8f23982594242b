"""Code for devices is checked when a file is opened, whether the machine has the device or not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bytecode.serialize import DEVICE_CODE, EXTERNAL
from nimblevm.driver import compile_to_bytes
from nimblevm.errors import InvalidExecutable
from nimblevm.relay.ir import Function
from nimblevm.relay.module import IRModule
from tests.bytecode.forge import forge, split
from tests.external.vta_models import dense, int8, requantized

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %w: Tensor[(3, 4), float32]) { nn.softmax(nn.dense(%x, %w)) }"""
Payload = dict[str, Any]


@pytest.fixture(scope="module")
def generated() -> bytes:
    return compile_to_bytes(nvm.relay.parse(TEXT), native=False, device="opencl,cuda")


@pytest.fixture(scope="module")
def layers() -> bytes:
    rng = np.random.default_rng(3)
    x = nvm.relay.var("x", shape=(nvm.relay.Any(), 32), dtype="int8")
    y = requantized(dense(x, int8(rng, 16, 32)), rng.integers(-9, 9, 16), 1)
    return compile_to_bytes(IRModule.from_expr(Function((x,), y)), native=False, device="vta")


def indices(data: bytes, kind: int) -> list[int]:
    return [i for i, row in enumerate(split(data)[0]["sections"]) if row[0] == kind]


def replaced(data: bytes, index: int, payload: bytes) -> bytes:
    def change(header: Any, sections: list[bytes]) -> None:
        sections[index] = payload

    return forge(data, change)


def launch(payload: Payload) -> list[Any]:
    return payload["kernels"][min(payload["kernels"])][0]


def far_operand(payload: Payload) -> None:
    launch(payload)[3] = [40]


def far_dim(payload: Payload) -> None:
    launch(payload)[4] = [500]


def far_grid(payload: Payload) -> None:
    launch(payload)[1][0] = [1, 60]


def large_block(payload: Payload) -> None:
    launch(payload)[2] = [64, 64, 1]


def no_such_kernel(payload: Payload) -> None:
    payload["kernels"][1000] = []


def no_source(payload: Payload) -> None:
    del payload["source"]


DAMAGE: dict[Callable[[Payload], None], str] = {
    far_operand: "launch 0 takes operand 40", far_dim: "launch 0 takes dim 500", far_grid: "refers to dim 60",
    large_block: "block", no_such_kernel: "kernel 1000, which the file does not have", no_source: "device code",
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("number", [0, 1], ids=["opencl", "cuda"])
def test_device_code(generated: bytes, number: int, damage: Callable[[Payload], None]) -> None:
    index = indices(generated, DEVICE_CODE)[number]
    payload = msgpack.unpackb(split(generated)[1][index], strict_map_key=False)
    damage(payload)
    damaged = replaced(generated, index, msgpack.packb(payload))
    for native in (True, False):
        with pytest.raises(InvalidExecutable, match=DAMAGE[damage]):
            nvm.load(damaged, native=native)


def test_code_for_a_backend_that_this_build_lacks(generated: bytes) -> None:
    """Nobody here can check it, and nobody uses it."""

    def change(header: Any, sections: list[bytes]) -> None:
        row = indices(generated, DEVICE_CODE)[0]
        header["sections"][row][4] = "abacus"
        sections[row] = b"beads"

    assert nvm.load(forge(generated, change), native=False).kernels


@pytest.mark.parametrize("kind", [DEVICE_CODE, EXTERNAL])
def test_flipped_bytes(generated: bytes, layers: bytes, kind: int) -> None:
    """Refused, or code that its reader takes: nothing else."""
    data = generated if kind == DEVICE_CODE else layers
    rng, refused = random.Random(5), 0
    for index in indices(data, kind):
        section = split(data)[1][index]
        for _ in range(150):
            changed = bytearray(section)
            changed[rng.randrange(len(section))] ^= 1 << rng.randrange(8)
            cut = len(section) if rng.random() < 0.8 else rng.randrange(len(section))
            try:
                nvm.load(replaced(data, index, bytes(changed[:cut])), native=False).close()
            except InvalidExecutable:
                refused += 1
    assert refused > 30


def test_blobs_for_vta(layers: bytes) -> None:
    """Each is read with its kernel's signature, and all must be for the same hardware."""
    (index,) = indices(layers, EXTERNAL)
    kernels = msgpack.unpackb(split(layers)[1][index], strict_map_key=False)
    first = min(kernels)
    for blob in (b"", kernels[first][:-1], b"\xff" * 64):
        with pytest.raises(InvalidExecutable, match="vta"):
            nvm.load(replaced(layers, index, msgpack.packb({first: blob})), native=False)
    assert nvm.load(layers, native=False).kernels
