"""tvm.relay.ty: types."""

from nimblevm.relay.builder import Any
from nimblevm.relay.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    scalar_type,
)

__all__ = [
    "Any", "FuncType", "GlobalTypeVar", "IncompleteType", "RefType", "TensorType", "TupleType", "Type", "TypeCall",
    "TypeVar", "scalar_type",
]  # fmt: skip
