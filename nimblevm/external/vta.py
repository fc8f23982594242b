"""The external backend "vta": int8 dense and conv2d layers on a simulated VTA (docs/vta.md).

    exe = nvm.compile(mod, device="cpu,vta")
    register(backend(Config(log_wgt_bytes=16)))            # for other hardware, before compiling

Connected layers become one kernel, between which activations stay in blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from nimblevm.compiler.external import Blob, External, Region, register
from nimblevm.devices.vta_isa import AluOp, Config
from nimblevm.external.vta_layers import Geometry, Layer, Step, layer_of, pattern
from nimblevm.external.vta_program import ProgramWriter, Shape, input_shape, measured, output_shape
from nimblevm.external.vta_tiles import Tiles, candidates
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call, Expr, Function, Tuple, Var
from nimblevm.relay.visitor import post_order

MAX_TRIES, FAR = 16, 1.25
"""Sets of tiles that are written out and timed, in the order of their estimates, up to estimates that are so much more
than the best time."""


def backend(config: Config | None = None) -> External:
    """The backend for a configuration. Raises ValueError for one with a batch or with blocks of two sizes: the
    simulator runs those, but layers are not cut for them.
    """
    hardware = config or Config()
    if hardware.log_batch or hardware.log_block_in != hardware.log_block_out:
        raise ValueError(
            f"vta codegen needs log_batch 0 and blocks of one size, not {hardware.log_batch}, "
            f"{hardware.log_block_in}, {hardware.log_block_out}"
        )

    def check(root: Expr) -> bool:
        layer = layer_of(root)
        return layer is not None and tiles_of(layer, hardware) is not None

    return External(
        "vta",
        [("vta.conv2d", pattern("nn.conv2d"), check), ("vta.dense", pattern("nn.dense"), check)],
        lambda region: generate(region, hardware),
        merge=True,
        device="vta",
        constants="owned",
    )


def tiles_of(layer: Layer, config: Config) -> Tiles | None:
    """The tiles that take the fewest cycles, of those that an estimate puts first; None if none fit."""
    steps = tuple((step.op, step.immediate) for step in layer.steps)
    return _tiles_of(layer.leading, layer.weight.shape, steps, layer.geometry, config)


@lru_cache(maxsize=256)
def _tiles_of(
    leading: tuple[Dim, ...],
    weight: tuple[int, ...],
    steps: tuple[tuple[AluOp, int | None], ...],
    geometry: Geometry | None,
    config: Config,
) -> Tiles | None:
    """Of a layer with zeros as weight and vectors: they matter to no cycle."""
    zeros = np.zeros(weight[0], np.int32)
    layer = Layer(
        Var("x"), leading, np.zeros(weight, np.int8),
        tuple(Step(op, zeros if immediate is None else immediate) for op, immediate in steps), geometry,
    )  # fmt: skip
    best: tuple[int, Tiles] | None = None
    for number, tiles in enumerate(candidates(layer, config)):
        if number >= MAX_TRIES or (best is not None and tiles.cycles > FAR * best[0]):
            break
        time = measured(layer, tiles, config)
        if time is not None and (best is None or time < best[0]):
            best = time, tiles
    return None if best is None else best[1]


def generate(region: Region, config: Config) -> Blob | None:
    """The region as a program; None if a layer reads another's result in a shape of its own. Its layers are then tried
    one by one.
    """
    layers = _layers(region.function)
    if layers is None:
        return None
    writer = _RegionWriter(region, layers, config)
    return writer.program.blob() if writer.write() else None


def _layers(function: Function) -> dict[Expr, Layer] | None:
    """Each call of a composite with its layer, in order; data is what the call has as argument."""
    found: dict[Expr, Layer] = {}
    for node in post_order(function.body):
        if not isinstance(node, Call) or not isinstance(node.op, Function):
            continue
        layer = layer_of(node.op.body)
        if layer is None or not isinstance(layer.data, Var) or layer.data not in node.op.params:
            return None
        data = node.args[node.op.params.index(layer.data)]
        found[node] = replace(layer, data=data)
    return found


class _RegionWriter:
    """blocked: expression -> operand in which it lies in blocks, of that shape."""

    def __init__(self, region: Region, layers: dict[Expr, Layer], config: Config) -> None:
        body = region.function.body
        self.layers, self.config = layers, config
        self.inputs: dict[Expr, int] = {param: i for i, param in enumerate(region.function.params)}
        results: Sequence[Expr] = body.fields if isinstance(body, Tuple) else (body,)
        self.outputs = {result: len(self.inputs) + i for i, result in enumerate(results)}
        self.program = ProgramWriter(config, len(self.inputs) + len(results))
        self.blocked: dict[Expr, tuple[int, Shape]] = {}

    def write(self) -> bool:
        """Write all layers; whether it could be done."""
        for call, layer in self.layers.items():
            tiles, source = tiles_of(layer, self.config), self._input(layer)
            if tiles is None or source is None:
                return False
            shape = output_shape(layer)
            target = self._output(call, shape)
            self.program.add_layer(layer, tiles, source, target)
            self.blocked[call] = target, shape
            if call in self.outputs and target != self.outputs[call]:
                self.program.add_layout(shape, target, self.outputs[call], to_blocks=False)
        return True

    def _input(self, layer: Layer) -> int | None:
        """The operand that holds the layer's input in blocks; a layout step makes one."""
        shape = input_shape(layer)
        if layer.data in self.blocked:
            operand, made = self.blocked[layer.data]
            return operand if made == shape else None
        operand = self.inputs[layer.data]
        if shape.is_blocked(self.config.block_in):
            return operand
        target = self.program.add_scratch(shape)
        self.program.add_layout(shape, operand, target, to_blocks=True)
        self.blocked[layer.data] = target, shape
        return target

    def _output(self, call: Expr, shape: Shape) -> int:
        if call in self.outputs and shape.is_blocked(self.config.block_in):
            return self.outputs[call]
        return self.program.add_scratch(shape)


BACKEND = register(backend())

__all__ = ["BACKEND", "backend", "generate", "tiles_of"]
