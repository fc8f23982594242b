"""Writes ONNX graphs node by node; values are named by the writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
OPSET, IR_VERSION = 20, 10
FLOAT, INT32, INT64, BOOL = (
    onnx.TensorProto.FLOAT, onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.BOOL,
)  # fmt: skip


class Graph:
    """A graph under construction. Initializers of a loop's body belong to the outermost graph."""

    def __init__(self, outer: Graph | None = None) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.initializers: list[Any] = outer.initializers if outer else []
        self._counter: list[int] = outer._counter if outer else [0]
        self._known: dict[Any, str] = outer._known if outer else {}

    def name(self, stem: str) -> str:
        self._counter[0] += 1
        return f"{stem}_{self._counter[0]}"

    def input(self, name: str, kind: int, shape: Sequence[int | str] | None) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, value: str, kind: int, shape: Sequence[int | str] | None) -> None:
        self.outputs.append(helper.make_tensor_value_info(value, kind, shape))

    def constant(self, array: Array | Sequence[int] | int | float, stem: str = "constant") -> str:
        """An initializer; whole numbers and lists of them are int64, floats float32. Small equal ones are shared."""
        if not isinstance(array, np.ndarray):
            array = np.array(array, np.float32 if isinstance(array, float) else np.int64)
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= 64 else id(array)
        if key in self._known and array.size <= 64:
            return self._known[key]
        name = self.name(stem)
        self.initializers.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        self._known[key] = name
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output, whose name is returned."""
        return self.nodes_of(op, inputs, 1, **attributes)[0]

    def nodes_of(
        self, op: str, inputs: Sequence[str], outputs: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """A node with several outputs."""
        names = [self.name(op.lower()) for _ in range(outputs)]
        self.add(op, inputs, names, domain, **attributes)
        return names

    def add(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        domain: str = "",
        **attributes: Any,
    ) -> None:
        """A node whose outputs have given names ("" for one that is not wanted)."""
        self.nodes.append(
            helper.make_node(
                op, list(inputs), list(outputs), self.name(op), domain=domain, **attributes
            )
        )

    def body(self, name: str = "body") -> Any:
        """As the body of a Loop."""
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs)

    def model(self) -> Any:
        """A ModelProto; models above 2 GiB are not needed here."""
        graph = helper.make_graph(self.nodes, "main", self.inputs, self.outputs, self.initializers)
        imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=imports, producer_name="nimblevm.bench")
        model.ir_version = IR_VERSION
        return model


__all__ = ["BOOL", "FLOAT", "INT32", "INT64", "Graph"]
