"""What the loop and product passes ask about a function on graph form: values behind variables, readers, totality.

A variable that a let binds stands for the let's value where both have one type. Every value with an effect has a
name by then (name_effects), so what is `total` may be evaluated anywhere its variables are known.
"""

from __future__ import annotations

from nimblevm.compiler.rewrite import is_primitive, postorder, type_of
from nimblevm.relay.ir import (
    Call,
    Constant,
    Constructor,
    Expr,
    Leaf,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    children,
)
from nimblevm.relay.op.registry import Effect, Op
from nimblevm.relay.types import TensorType, Type

FLOATS = frozenset({"float32", "float64"})


class Dataflow:
    """order: the nodes of an expression, operands first. lets: variable -> value. total: the nodes that total
    operators make of variables and constants.
    """

    def __init__(self, root: Expr) -> None:
        self.root = root
        self.order = postorder(root)
        self.lets: dict[Var, Expr] = {
            n.var: n.value
            for n in self.order
            if isinstance(n, Let) and n.var.checked_type is n.value.checked_type
        }
        self._readers: dict[Expr, list[Expr]] | None = None
        self._total: set[Expr] | None = None

    def resolve(self, node: Expr) -> Expr:
        """The value behind a variable, or the node itself."""
        while isinstance(node, Var) and node in self.lets:
            node = self.lets[node]
        return node

    def readers(self, node: Expr) -> list[Expr]:
        """The nodes that read a value, directly or through variables: a let that only names it is none, one that
        ends in it is. The value of the whole is read by the root.
        """
        if self._readers is None:
            self._readers = {self.resolve(self.root): [self.root]}
            for parent in self.order:
                if isinstance(parent, Leaf) or is_primitive(parent):
                    continue
                parts = children(parent)
                if isinstance(parent, Let) and self.lets.get(parent.var) is parent.value:
                    parts = parts[1:]
                for part in parts:
                    self._readers.setdefault(self.resolve(part), []).append(parent)
        return self._readers.get(node, [])

    def is_total(self, node: Expr) -> bool:
        """Whether a value may be evaluated anywhere its variables are known: total operators of variables and
        constants. What a let binds is evaluated there, whoever reads the variable.
        """
        if self._total is None:
            self._total = set()
            for item in self.order:
                if _makes_total(item, self._total):
                    self._total.add(item)
        return node in self._total


def _makes_total(item: Expr, total: set[Expr]) -> bool:
    match item:
        case Var() | Constant():
            return True
        case Call():
            return is_total_call(item) and all(a in total for a in item.args)
        case Tuple() | TupleGetItem():
            return all(c in total for c in children(item))
    return False


def is_total_call(call: Call) -> bool:
    """Whether a call is of an operator that never fails on its operands."""
    op = call.op
    if not isinstance(op, Op) or op.name.startswith("memory.") or op.name == "vm.bind_dim":
        return False
    return op.effect_of(tuple([type_of(a) for a in call.args]), call.attrs) is Effect.TOTAL


def is_op(node: Expr, *names: str) -> bool:
    """Whether a node calls one of these operators."""
    return isinstance(node, Call) and isinstance(node.op, Op) and node.op.name in names


def static_shape(type_: Type | None) -> tuple[int, ...] | None:
    """The shape of a tensor type without unknowns."""
    if not isinstance(type_, TensorType):
        return None
    shape = tuple([d for d in type_.shape if isinstance(d, int)])
    return shape if len(shape) == len(type_.shape) else None


def row_width(type_: Type | None) -> int | None:
    """The elements of a tensor whose axes but the last are of size 1; a scalar has 1. None for other tensors, and for
    one without elements: nothing is gained with those, and a 0 in a reshape's newshape would copy an axis.
    """
    shape = static_shape(type_)
    if shape is None or any(d != 1 for d in shape[:-1]):
        return None
    return shape[-1] or None if shape else 1


def keeps_order(value: Expr) -> bool:
    """Whether a value of a block keeps its place among others of this kind: it may fail, or do something. So do
    branches and clauses, calls of functions, and reads and writes of references.
    """
    if isinstance(value, Leaf | Tuple | TupleGetItem) or is_primitive(value):
        return False
    if isinstance(value, Call):
        if isinstance(value.op, Constructor):
            return False
        if isinstance(value.op, Op):
            effect = value.op.effect_of(tuple(type_of(a) for a in value.args), value.attrs)
            return effect is Effect.MAY_FAIL
    return True
