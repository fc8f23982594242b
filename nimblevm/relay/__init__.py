"""The language: Relay's nodes, types, text in both directions, and everything that knows what a program means."""

from nimblevm.relay import op
from nimblevm.relay.checked_parse import fromtext, parse
from nimblevm.relay.dims import Dim, DimExpr, DimVar
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import (
    Call,
    Clause,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    RefCreate,
    RefRead,
    RefWrite,
    Span,
    Tuple,
    TupleGetItem,
    TypeData,
    Var,
)
from nimblevm.relay.op.registry import Op
from nimblevm.relay.parser import SemVer, parse_expr, parse_module, parse_type
from nimblevm.relay.prelude import Prelude
from nimblevm.relay.printer import astext
from nimblevm.relay.structural import StructuralMismatch, assert_structural_equal, structural_equal
from nimblevm.relay.structural_hash import structural_digest, structural_hash
from nimblevm.relay.text import dim_text, type_text
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
from nimblevm.relay.visitor import (
    ExprFunctor,
    ExprMutator,
    ExprVisitor,
    post_order,
    post_order_visit,
    rewrite,
)
from nimblevm.relay.well_formed import check_well_formed, well_formed


def Any() -> DimVar:
    """A fresh unknown dim, printed `?`."""
    return DimVar(None)


__all__ = [
    "Any", "Call", "Clause", "Constant", "Constructor", "Dim", "DimExpr", "DimVar", "Expr", "ExprFunctor",
    "ExprMutator", "ExprVisitor", "FuncType", "Function", "GlobalTypeVar", "GlobalVar", "IRModule", "If",
    "IncompleteType", "Let", "Match", "Op", "Pattern", "PatternConstructor", "PatternTuple", "PatternVar",
    "PatternWildcard", "Prelude", "RefCreate", "RefRead", "RefType", "RefWrite", "SemVer", "Span",
    "StructuralMismatch", "TensorType", "Tuple", "TupleGetItem", "TupleType", "Type", "TypeCall",
    "TypeData", "TypeVar", "Var", "assert_structural_equal", "astext", "check_well_formed", "dim_text",
    "fromtext", "infer_type", "op", "parse", "parse_expr", "parse_module", "parse_type", "post_order",
    "post_order_visit", "rewrite", "scalar_type", "structural_digest", "structural_equal",
    "structural_hash", "type_text", "well_formed",
]  # fmt: skip
