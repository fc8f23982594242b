"""A backend in one file: compile time writes a region as JSON, run time interprets it with numpy.

    python examples/external/json_backend.py         compiles a program with it and without, and compares

It takes products with constant weights, sums, tanh and relu, joins what is connected, and owns its constants. A new
backend can start from a copy of this file: another table, another codegen, another runtime. docs/external-codegen.md
explains.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import nimblevm as nvm
from nimblevm import relay
from nimblevm.external import Blob, External, Region, register, register_runtime
from nimblevm.relay.dataflow_pattern import is_constant, is_op, wildcard
from nimblevm.relay.ir import Call, Constant, Expr, Tuple
from nimblevm.relay.types import TensorType

# --- compile time ---------------------------------------------------------------------------------


def is_float32(match: Expr) -> bool:
    """The check of every pattern: a condition that patterns can't say. `match` is typed, as its operands are."""
    return isinstance(match.checked_type, TensorType) and match.checked_type.dtype == "float32"


PATTERNS = [
    # name of the composite, pattern, check; longer ones first
    ("json.dense_add", is_op("add")(is_op("nn.dense")(wildcard(), is_constant()), is_constant()), is_float32),
    ("json.dense", is_op("nn.dense")(wildcard(), is_constant()), is_float32),
    ("json.add", is_op("add")(wildcard(), wildcard()), is_float32),
    ("json.tanh", is_op("tanh")(wildcard()), is_float32),
    ("json.relu", is_op("nn.relu")(wildcard()), is_float32),
]  # fmt: skip


def codegen(region: Region) -> Blob:
    """The region as {"inputs": n, "steps": [[operator, operands...]...], "outputs": [...]}, then the constants' bytes.

    Values are numbered: inputs first, then steps. An operand is such a number, or [offset, shape] of a constant.
    """
    number: dict[Expr, int] = {param: i for i, param in enumerate(region.function.params)}
    constants = bytearray()
    steps: list[list[Any]] = []

    def operand(value: Expr) -> int | list[Any]:
        if not isinstance(value, Constant):
            return number[value]
        offset = len(constants)
        constants.extend(value.data.astype(np.float32).tobytes())
        return [offset, list(value.data.shape)]

    for match in region.matches:
        name = match.op.attrs["Composite"].removeprefix("json.")
        # The operands of the match, then the constants that stand inside of it.
        inside = [
            a for call in calls_of(match.op.body) for a in call.args if isinstance(a, Constant)
        ]
        number[match] = len(region.function.params) + len(steps)
        steps.append([name, *map(operand, (*match.args, *inside))])
    body = region.function.body
    results = body.fields if isinstance(body, Tuple) else (body,)
    graph = {"inputs": len(region.inputs), "steps": steps, "outputs": [number[r] for r in results]}
    text = json.dumps(graph).encode()
    return Blob(len(text).to_bytes(4, "little") + text + constants)


def calls_of(body: Expr) -> list[Call]:
    """The operator calls of a composite, operands first; patterns are shallow, so this may recurse."""
    if not isinstance(body, Call):
        return []
    return [c for a in body.args for c in calls_of(a)] + [body]


register(External("json", PATTERNS, codegen, merge=True, constants="owned"))

# --- run time (in a process of its own this needs no compiler) --------------------------------------

OPERATORS: dict[str, Callable[..., Any]] = {
    "dense_add": lambda x, w, b: x @ w.T + b,
    "dense": lambda x, w: x @ w.T,
    "add": np.add,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}


def factory(blob: bytes) -> Callable[..., None]:
    """Called for each kernel of a VM. The blob comes from a file: what is malformed is refused here."""
    try:
        size = int.from_bytes(blob[:4], "little")
        graph = json.loads(blob[4 : 4 + size])
        constants = blob[4 + size :]
        steps = [
            (OPERATORS[name], [load(o, constants) for o in rest]) for name, *rest in graph["steps"]
        ]
        outputs = [int(o) for o in graph["outputs"]]
    except (KeyError, TypeError, ValueError) as error:
        raise nvm.InvalidExecutable(f"no graph: {error}") from error

    def run(inputs: Sequence[Any], results: Sequence[Any], dims: Sequence[int]) -> None:
        """Any number of rows: numpy's arrays have the sizes of this call, and `dims` the numbers behind region.dims."""
        values = list(inputs)
        for operator, operands in steps:
            values.append(operator(*(values[o] if isinstance(o, int) else o for o in operands)))
        for output, result in zip(outputs, results, strict=True):
            result[...] = values[output]

    return run


def load(operand: Any, constants: bytes) -> Any:
    """A value's number, or a constant as an array over the blob."""
    if isinstance(operand, int):
        return operand
    offset, shape = operand
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(constants, np.float32, count, offset).reshape(shape)


register_runtime("json", factory)

PROGRAM = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32], %w: Tensor[(4, 4), float32], %b: Tensor[(4), float32]) {
  let %h = tanh(nn.dense(%x, %w) + %b);        // one region: dense_add, tanh, dense, add, relu
  let %y = nn.relu(nn.dense(%h, %w) + %h);
  (%y, nn.softmax(%h))                         // the softmax is ours
}"""


def main() -> None:
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(4, 4)).astype(np.float32), "b": np.ones(4, np.float32)}
    mod = relay.parse(PROGRAM)
    exe = nvm.compile(mod, params, external="json")
    vm, plain = nvm.VirtualMachine(exe), nvm.VirtualMachine(nvm.compile(mod, params))
    for rows in (1, 3, 0):
        x = rng.normal(size=(rows, 4)).astype(np.float32)
        for got, want in zip(vm.run(x), plain.run(x), strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)
    print("the same as without the backend")


if __name__ == "__main__":
    main()
