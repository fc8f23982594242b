"""tvm.ir: modules, structural equality, types."""

from nimblevm.arguments import explain_arguments
from nimblevm.relay.ir import GlobalVar, Span
from nimblevm.relay.module import IRModule
from nimblevm.relay.node_json import load_json, save_json
from nimblevm.relay.structural import assert_structural_equal, structural_equal
from nimblevm.relay.structural_hash import structural_hash
from nimblevm.relay.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)
from nimblevm.tvm import transform
from nimblevm.tvm.absent import IR, explain_absent
from nimblevm.tvm.ir import instrument, op
from nimblevm.tvm.ir.op import Op, register_op_attr

__all__ = [
    "FuncType", "GlobalTypeVar", "GlobalVar", "IRModule", "IncompleteType", "Op", "Span", "TensorType", "TupleType",
    "Type", "TypeCall", "TypeVar", "assert_structural_equal", "instrument", "load_json", "op", "register_op_attr",
    "save_json", "structural_equal", "structural_hash", "transform",
]  # fmt: skip

explain_arguments(globals(), __all__)

__getattr__ = explain_absent(__name__, IR, __all__)
