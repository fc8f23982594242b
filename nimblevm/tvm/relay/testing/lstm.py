"""tvm.relay.testing.lstm: LSTM cells, as many as there are steps, each with weights of its own."""

from __future__ import annotations

from nimblevm import relay
from nimblevm.arguments import explain_arguments
from nimblevm.relay.ir import Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType, TupleType, Type
from nimblevm.tvm.nd import NDArray
from nimblevm.tvm.relay.testing.init import create_workload


def _weights(num_hidden: int, dtype: str, prefix: str = "") -> list[relay.Var]:
    """i2h_weight, i2h_bias, h2h_weight, h2h_bias; prefix "0_" makes i2h_0_weight and so on."""
    kinds: dict[str, Type] = {
        "weight": TensorType((4 * num_hidden, num_hidden), dtype),
        "bias": TensorType((4 * num_hidden,), dtype),
    }
    return [
        relay.var(f"{side}_{prefix}{kind}", kinds[kind])
        for side in ("i2h", "h2h")
        for kind in ("weight", "bias")
    ]


def lstm_cell(
    num_hidden: int, batch_size: int = 1, dtype: str = "float32", name: str = ""
) -> Function:
    """fn (inputs, (cell, hidden), i2h_weight, i2h_bias, h2h_weight, h2h_bias) -> (out, (cell, hidden)).

    All are (batch, hidden); the gates lie in the order in, forget, transform, out. Nothing carries the name.
    """
    kind = TensorType((batch_size, num_hidden), dtype)
    inputs = relay.var("inputs", kind)
    states = relay.var("states", TupleType([kind, kind]))
    weights = _weights(num_hidden, dtype)
    i2h_weight, i2h_bias, h2h_weight, h2h_bias = weights
    units = 4 * num_hidden
    i2h = relay.nn.bias_add(relay.nn.dense(inputs, i2h_weight, units), i2h_bias)
    h2h = relay.nn.bias_add(
        relay.nn.dense(relay.TupleGetItem(states, 1), h2h_weight, units), h2h_bias
    )
    gates = relay.split(relay.add(i2h, h2h), 4, axis=1)
    take, forget, out_gate = (relay.sigmoid(gates[i]) for i in (0, 1, 3))
    cell = relay.add(
        relay.multiply(forget, relay.TupleGetItem(states, 0)),
        relay.multiply(take, relay.tanh(gates[2])),
    )
    hidden = relay.multiply(out_gate, relay.tanh(cell))
    result = relay.Tuple([hidden, relay.Tuple([cell, hidden])])
    pair = TupleType([kind, TupleType([kind, kind])])
    return Function((inputs, states, *weights), result, pair)


def get_net(
    iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32"
) -> Function:
    """The last step's output, (batch, hidden), of `iterations` steps from zeros.

    The inputs of the steps are data, data_1, data_2... (in TVM all are called data, so that none can be named).
    """
    kind = TensorType((batch_size, num_hidden), dtype)
    zeros = relay.zeros((batch_size, num_hidden), dtype)
    states: Expr = relay.Tuple([zeros, zeros])
    out: Expr = zeros
    params: list[relay.Var] = []
    for step in range(iterations):
        data = relay.var("data" if step == 0 else f"data_{step}", kind)
        cell = lstm_cell(num_hidden, batch_size, dtype, f"lstm_{step}")
        weights = _weights(num_hidden, dtype, f"{step}_")
        params += [data, *weights]
        call = relay.Call(cell, (data, states, *weights))
        out, states = relay.TupleGetItem(call, 0), relay.TupleGetItem(call, 1)
    return Function(tuple(params), out, kind)


def get_workload(
    iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32"
) -> tuple[IRModule, dict[str, NDArray]]:
    """The module and values of its weights; the inputs data, data_1... are yours."""
    return create_workload(get_net(iterations, num_hidden, batch_size, dtype))


__all__ = ["get_net", "get_workload", "lstm_cell"]

explain_arguments(globals(), __all__)
