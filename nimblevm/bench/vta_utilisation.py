"""How busy VTA's matrix unit is, by size of its scratchpads: `python -m nimblevm.bench.vta_utilisation`.

Each layer is compiled for hardware with the scratchpads of docs/vta.md and for smaller ones, run once, and checked
against the CPU. A figure is block products / cycles, layout steps not counted; it is the same on any machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import nimblevm as nvm
from nimblevm import relay
from nimblevm.devices import vta
from nimblevm.devices.vta_isa import Config
from nimblevm.external.vta import backend
from nimblevm.relay.ir import Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType

SHIFT = 8


@dataclass(frozen=True, slots=True)
class Case:
    """A layer: the shape of its input, and the int32 product of it."""

    name: str
    shape: tuple[int, ...]
    channels: int
    product: Callable[[Expr], Expr]


@dataclass(frozen=True, slots=True)
class Row:
    """Utilisation of a layer by configuration, in the order of `CONFIGS`; None: the scratchpads are too small."""

    name: str
    values: tuple[float | None, ...]


CONFIGS = {
    "full": Config(),
    "1/2": Config(log_inp_bytes=14, log_wgt_bytes=17, log_acc_bytes=16),
    "1/4": Config(log_inp_bytes=13, log_wgt_bytes=16, log_acc_bytes=15),
    "1/8": Config(log_inp_bytes=12, log_wgt_bytes=15, log_acc_bytes=14),
    "1/16": Config(log_inp_bytes=11, log_wgt_bytes=14, log_acc_bytes=13),
    "inp 1/8": Config(log_inp_bytes=12),
    "wgt 1/8": Config(log_wgt_bytes=15),
    "acc 1/8": Config(log_acc_bytes=14),
    "16 B/cycle": Config(bytes_a_cycle=16),
}
"""Name of a column -> hardware: all scratchpads but that of micro-ops smaller, one alone, a wider port."""


def _weight(*shape: int) -> Expr:
    values = np.random.default_rng(sum(shape)).integers(-128, 128, shape)
    weight: Expr = relay.const(values.astype(np.int8))
    return weight


def _dense(rows: int, inputs: int, outputs: int) -> Case:
    def product(x: Expr) -> Expr:
        result: Expr = relay.nn.dense(x, _weight(outputs, inputs), out_dtype="int32")
        return result

    return Case(f"dense {rows}x{inputs}, {outputs}", (rows, inputs), outputs, product)


def _conv2d(channels: int, size: int, outputs: int, kernel: int, stride: int = 1) -> Case:
    def product(x: Expr) -> Expr:
        pad = kernel // 2
        result: Expr = relay.nn.conv2d(
            x,
            _weight(outputs, channels, kernel, kernel),
            strides=(stride, stride),
            padding=(pad, pad),
            out_dtype="int32",
        )
        return result

    name = f"conv {kernel}x{kernel}{f'/{stride}' if stride > 1 else ''} {channels}x{size}x{size}, {outputs}"
    return Case(name, (1, channels, size, size), outputs, product)


CASES = (
    _dense(1, 1024, 1024), _dense(16, 1024, 1024), _dense(64, 1024, 1024), _conv2d(16, 56, 32, 3),
    _conv2d(64, 28, 64, 3), _conv2d(128, 28, 256, 3, 2), _conv2d(256, 14, 256, 3), _conv2d(128, 14, 256, 1),
)  # fmt: skip


def module_of(case: Case) -> IRModule:
    """The layer with bias, shift, relu and bounds."""
    x = relay.var("x", TensorType(case.shape, "int8"))
    bias = relay.const(np.arange(case.channels, dtype=np.int32) * 7 - 300)
    wide = relay.nn.bias_add(case.product(x), bias, axis=1)
    wide = relay.nn.relu(relay.right_shift(wide, relay.const(np.int32(SHIFT))))
    module: IRModule = IRModule.from_expr(
        Function((x,), relay.cast(relay.clip(wide, -128, 127), "int8"))
    )
    return module


def utilisation(case: Case, config: Config) -> float | None:
    """Block products / cycles of one run. Raises ValueError if the result is not the CPU's."""
    module = module_of(case)
    value = np.random.default_rng(1).integers(-128, 128, case.shape).astype(np.int8)
    expected = nvm.VirtualMachine(nvm.compile(module)).run(value).numpy()
    exe = nvm.compile(module, external=[backend(config)])
    with nvm.VirtualMachine(exe) as machine:
        before = vta.stats()
        result = machine.run(value).numpy()
        work = vta.stats() - before
    if not np.array_equal(result, expected):
        raise ValueError(f"{case.name}: VTA's result is not the CPU's")
    return work.block_products / (work.cycles - work.layout_cycles) if work.runs else None


def table(cases: Sequence[Case] = CASES) -> list[Row]:
    """All cases by all configurations."""
    return [Row(case.name, tuple(utilisation(case, c) for c in CONFIGS.values())) for case in cases]


def markdown(rows: Sequence[Row]) -> str:
    """The table as docs/vta.md has it, in percent."""
    lines = [f"| layer | {' | '.join(CONFIGS)} |", "|---" * (len(CONFIGS) + 1) + "|"]
    for row in rows:
        cells = ["-" if value is None else f"{100 * value:.0f}" for value in row.values]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown(table()))
