"""tvm.relay.adt: data types and patterns."""

from nimblevm.arguments import explain_arguments
from nimblevm.relay.ir import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)

__all__ = [
    "Clause", "Constructor", "Match", "Pattern", "PatternConstructor", "PatternTuple", "PatternVar", "PatternWildcard",
    "TypeData",
]  # fmt: skip

explain_arguments(globals(), __all__)
