"""The second walk of inference: new nodes where a type, an annotation or a part is new."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nimblevm.relay.ir import (
    Call,
    Clause,
    Expr,
    Function,
    If,
    Leaf,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from nimblevm.relay.type_errors import name_of, show, type_error
from nimblevm.relay.types import HAS_HOLE, FuncType, IncompleteType, Type


class Rebuilder:
    """Makes the typed node of every node; `new` maps old to new, for nodes that changed or not.

    types      of every node, holes allowed; resolve puts in what they were bound to
    type_args  of calls of generic functions
    """

    def __init__(
        self,
        types: Mapping[Expr, Type],
        type_args: Mapping[Call, tuple[Type, ...]],
        resolve: Callable[[Type], Type],
    ) -> None:
        self._types = types
        self._type_args = type_args
        self._resolve = resolve
        self.new: dict[Expr, Expr] = {}
        self._builders: dict[type, Callable[[Any, Type], Expr]] = {
            Call: self._call,
            Let: self._let,
            Function: self._function,
            If: self._if,
            Tuple: self._tuple,
            TupleGetItem: self._item,
            Match: self._match,
            RefCreate: self._ref_create,
            RefRead: self._ref_read,
            RefWrite: self._ref_write,
        }

    def run(self, order: Sequence[Expr]) -> None:
        """Build all of `order`, in which every node comes after its parts."""
        new, types, builders = self.new, self._types, self._builders
        for node in order:
            type_ = types[node]
            if type_.flags & HAS_HOLE:
                type_ = self._known(node, type_)
            new[node] = builders[node.__class__](node, type_)

    def of(self, node: Expr) -> Expr:
        """The new node of one that was built, or of a leaf."""
        found = self.new.get(node)
        if found is not None:
            return found
        if isinstance(node, Var):
            return self._var(node)
        if isinstance(node, Leaf):
            return node
        raise TypeError(f"{type(node).__name__} was not typed")

    def _known(self, node: Expr, type_: Type) -> Type:
        resolved = self._resolve(type_)
        if not resolved.flags & HAS_HOLE:
            return resolved
        notes = []
        if isinstance(node, Call):
            for index, arg in enumerate(node.args):
                found = self._resolve(self._types[arg])
                if found.flags & HAS_HOLE:
                    notes.append(
                        (arg.span, f"argument {index} ({name_of(arg)}) has type {show(found)}")
                    )
        partly = "" if isinstance(resolved, IncompleteType) else f" beyond {show(resolved)}"
        message = f"can't infer the type of {name_of(node)}{partly}; annotate it"
        raise type_error(message, node.span, notes)

    def _var(self, node: Var, *, annotate: bool = False) -> Var:
        found = self.new.get(node)
        if isinstance(found, Var):
            return found
        type_ = self._types[node]
        if type_.flags & HAS_HOLE:
            type_ = self._known(node, type_)
        annotation = node.type_annotation
        if (annotation is None and annotate) or (
            annotation is not None and annotation.flags & HAS_HOLE
        ):
            annotation = type_
        if annotation is node.type_annotation and type_ is node.checked_type:
            made = node
        else:
            made = Var(node.name_hint, annotation, span=node.span, checked_type=type_)
        self.new[node] = made
        return made

    # --- one builder per kind ---------------------------------------------------------------------

    def _call(self, node: Call, type_: Type) -> Expr:
        get = self.new.get
        args = tuple([get(a) or self.of(a) for a in node.args])
        op = (
            node.op
            if isinstance(node.op, Leaf) and not isinstance(node.op, Var)
            else self.of(node.op)
        )
        type_args = self._type_args.get(node, ())
        if type_args:
            type_args = tuple(self._resolve(t) for t in type_args)
        if (
            type_ is node.checked_type
            and op is node.op
            and args == node.args
            and type_args == node.type_args
        ):
            return node
        return Call(op, args, node.attrs, type_args, span=node.span, checked_type=type_)

    def _let(self, node: Let, type_: Type) -> Expr:
        var, value, body = self._var(node.var), self.of(node.value), self.of(node.body)
        if (
            type_ is node.checked_type
            and var is node.var
            and value is node.value
            and body is node.body
        ):
            return node
        return Let(var, value, body, span=node.span, checked_type=type_)

    def _function(self, node: Function, type_: Type) -> Expr:
        # Parameters come after their uses in the order: a parameter first met in the body has no
        # annotation yet, so it is asked for before (see `declare`).
        params = tuple([self._var(p, annotate=True) for p in node.params])
        body = self.of(node.body)
        if not isinstance(type_, FuncType):
            raise TypeError(f"a function of type {type_!r}")
        result = type_.ret_type
        if (
            type_ is node.checked_type
            and params == node.params
            and body is node.body
            and result is node.ret_type
        ):
            return node
        return Function(
            params, body, result, node.type_params, node.attrs, span=node.span, checked_type=type_
        )

    def declare(self, params: Sequence[Var]) -> None:
        """Make the new variables of a function's parameters, annotated, before its body is built."""
        for param in params:
            self._var(param, annotate=True)

    def _if(self, node: If, type_: Type) -> Expr:
        cond, true, false = (
            self.of(node.cond),
            self.of(node.true_branch),
            self.of(node.false_branch),
        )
        if (
            type_ is node.checked_type
            and cond is node.cond
            and true is node.true_branch
            and false is node.false_branch
        ):
            return node
        return If(cond, true, false, span=node.span, checked_type=type_)

    def _tuple(self, node: Tuple, type_: Type) -> Expr:
        fields = tuple([self.of(f) for f in node.fields])
        if type_ is node.checked_type and fields == node.fields:
            return node
        return Tuple(fields, span=node.span, checked_type=type_)

    def _item(self, node: TupleGetItem, type_: Type) -> Expr:
        value = self.of(node.tuple_value)
        if type_ is node.checked_type and value is node.tuple_value:
            return node
        return TupleGetItem(value, node.index, span=node.span, checked_type=type_)

    def _ref_create(self, node: RefCreate, type_: Type) -> Expr:
        value = self.of(node.value)
        if type_ is node.checked_type and value is node.value:
            return node
        return RefCreate(value, span=node.span, checked_type=type_)

    def _ref_read(self, node: RefRead, type_: Type) -> Expr:
        ref = self.of(node.ref)
        if type_ is node.checked_type and ref is node.ref:
            return node
        return RefRead(ref, span=node.span, checked_type=type_)

    def _ref_write(self, node: RefWrite, type_: Type) -> Expr:
        ref, value = self.of(node.ref), self.of(node.value)
        if type_ is node.checked_type and ref is node.ref and value is node.value:
            return node
        return RefWrite(ref, value, span=node.span, checked_type=type_)

    def _match(self, node: Match, type_: Type) -> Expr:
        data = self.of(node.data)
        clauses: list[Clause] = []
        for clause in node.clauses:
            lhs, rhs = self._pattern(clause.lhs), self.of(clause.rhs)
            same = lhs is clause.lhs and rhs is clause.rhs
            clauses.append(clause if same else Clause(lhs, rhs, span=clause.span))
        if (
            type_ is node.checked_type
            and data is node.data
            and all(a is b for a, b in zip(clauses, node.clauses, strict=True))
        ):
            return node
        return Match(data, tuple(clauses), node.complete, span=node.span, checked_type=type_)

    def _pattern(self, root: Pattern) -> Pattern:
        """A pattern with typed variables (post-order over an explicit stack)."""
        out: list[Pattern] = []
        stack: list[tuple[Pattern, bool]] = [(root, False)]
        while stack:
            pattern, ready = stack.pop()
            match pattern:
                case PatternConstructor(patterns=below) | PatternTuple(patterns=below) if not ready:
                    stack.append((pattern, True))
                    stack.extend((p, False) for p in reversed(below))
                case PatternConstructor(patterns=below) | PatternTuple(patterns=below):
                    new = tuple(out[len(out) - len(below) :])
                    del out[len(out) - len(below) :]
                    if new == below:
                        out.append(pattern)
                    elif isinstance(pattern, PatternConstructor):
                        out.append(PatternConstructor(pattern.constructor, new, span=pattern.span))
                    else:
                        out.append(PatternTuple(new, span=pattern.span))
                case PatternVar(var=var):
                    typed = self._var(var)
                    out.append(pattern if typed is var else PatternVar(typed, span=pattern.span))
                case _:
                    out.append(pattern)
        return out[0]
