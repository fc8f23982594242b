"""tvm.relay.adt: data types and patterns."""

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
