"""Make every dim that only run time can decide an explicit check.

before:  def @f(%x: Tensor[(?n, 4), float32], %l: List[Tensor[(?n, 4), float32]]) {
           match (%l) { Cons(%h, _) => %x + %h, Nil => %x } }
after:   ... match (%l) { Cons(%h1, _) => { let %h = vm.match_type(%h1, type=Tensor[(?n, 4), float32],
           where="field 0 of Cons"); %x + %h }, Nil => %x }

Four places need them (docs/dims.md has the rules):
- a tensor that comes out of a container (pattern variable, content of a reference, result of a
  closure or of a type parameter)
  has claimed dims: it gets fresh dims, and a vm.match_type to the claimed type;
- a value that flows to a narrower type: annotated let, result of a function (pushed into the ends
  of if, match and let, so that tail
  calls whose type is proved stay tail calls), static dims of parameters of a known function;
- an operator whose relation has undecided demands: its operands get vm.match_type or
  vm.check_broadcast;
- entry of a function: emit compares repeated dims of the parameters, and in the variant that
  closures call the static
  ones too, because only there the caller is not known.
From here on types are facts.

Needs: inferred types. Keeps: them. Cost: O(nodes); relations of operators run once more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    fresh_var,
    is_primitive,
    map_functions,
    op_call,
    type_of,
    typed,
    with_children,
)
from nimblevm.relay.dims import Dim, DimVar, compare, free_vars
from nimblevm.relay.ir import (
    Call,
    Clause,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Leaf,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefRead,
    Span,
    Tuple,
    TupleGetItem,
    Var,
    children,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.type_context import Demand, demands
from nimblevm.relay.types import HAS_DIM, TensorType, TupleType, Type, TypeVar, value_tensors


def _claims(dim: Dim) -> bool:
    """Whether a dim of an extracted value says anything: a size, or a name."""
    return isinstance(dim, int) or any(v.name is not None for v in free_vars(dim))


def map_tensors(type_: Type, change: Callable[[TensorType], TensorType]) -> Type:
    """`type_` with the tensors that are there for certain (itself, fields of tuples) replaced.
    Iterative.
    """
    if isinstance(type_, TensorType):
        return change(type_)
    if not isinstance(type_, TupleType):
        return type_
    out: list[Type] = []
    stack: list[tuple[Type, bool]] = [(type_, False)]
    while stack:
        current, ready = stack.pop()
        if isinstance(current, TupleType) and ready:
            count = len(current.fields)
            fields = out[len(out) - count :]
            del out[len(out) - count :]
            out.append(TupleType(fields))
        elif isinstance(current, TupleType):
            stack.append((current, True))
            stack.extend((f, False) for f in reversed(current.fields))
        else:
            out.append(change(current) if isinstance(current, TensorType) else current)
    return out[0]


def without_claims(type_: Type) -> Type:
    """The type of an extracted value before its claims are checked: claimed dims are fresh
    unknowns.
    """
    return map_tensors(
        type_, lambda t: TensorType([DimVar() if _claims(d) else d for d in t.shape], t.dtype)
    )


def has_claims(type_: Type) -> bool:
    return any(_claims(d) for t in value_tensors(type_) for d in t.shape)


def match_type(value: Expr, type_: Type, where: str, span: Span | None) -> Call:
    return op_call("vm.match_type", (value,), type_, span, type=type_, where=where)


class _Checker(Rewriter):
    """Rewrites one global function."""

    def __init__(self, mod: IRModule, name: str) -> None:
        super().__init__()
        self.mod = mod
        self.name = name
        self.bound: set[DimVar] = set()
        self.known: dict[Var, Function] = {}
        self._seen: set[Type] = set()

    def learn(self, type_: Type | None) -> None:
        """The dims of a value's tensors have numbers from here on."""
        if type_ is None or type_ in self._seen or not type_.flags & HAS_DIM:
            return
        self._seen.add(type_)
        for tensor in value_tensors(type_):
            self.bound.update(d for d in tensor.shape if isinstance(d, DimVar))

    def enter(self, node: Expr) -> bool:
        if isinstance(node, Function):
            for param in node.params:
                self.learn(param.checked_type)
        elif isinstance(node, Let) and isinstance(node.value, Function):
            self.known[node.var] = node.value
        return True

    def bind(self, let: Let, value: Expr) -> None:
        self.learn(let.var.checked_type)

    def visit(self, node: Expr, new: Expr) -> Expr:
        result = self._visit(node, new)
        if not isinstance(node, Function):
            self.learn(result.checked_type)
        return result

    def _visit(self, node: Expr, new: Expr) -> Expr:
        match new:
            case Call(op=Op()):
                return self._operator(new)
            case Call(op=Constructor()):
                return new
            case Call():
                return self._call(new)
            case RefRead():
                return self._extracted(new, "content of the reference")
            case Match():
                return self._match(new)
            case Let():
                where = f"%{new.var.name_hint} in @{self.name}"
                value = self.narrow(new.value, type_of(new.var), where, new.var.span or new.span)
                return new if value is new.value else with_children(new, (value, new.body))
            case Function():
                return self.result(new, f"result of a function in @{self.name}")
        return new

    # --- containers -----------------------------------------------------------------------------

    def _extracted(self, value: Expr, where: str) -> Expr:
        claimed = type_of(value)
        if not has_claims(claimed):
            return value
        raw = with_type(value, without_claims(claimed))
        return match_type(raw, claimed, where, value.span)

    def _match(self, node: Match) -> Expr:
        clauses = tuple([self._clause(c) for c in node.clauses])
        if all(a is b for a, b in zip(clauses, node.clauses, strict=True)):
            return node
        return dataclasses.replace(node, clauses=clauses)

    def _clause(self, clause: Clause) -> Clause:
        """Pattern variables with claims get fresh dims and a let that checks them."""
        checks: list[tuple[Var, Call]] = []
        if isinstance(clause.lhs, PatternVar):
            return clause  # the matched value itself, not a part of it
        lhs = self._pattern(clause.lhs, checks)
        if not checks:
            return clause
        rhs = clause.rhs
        for var, value in reversed(checks):
            rhs = Let(var, value, rhs, span=value.span, checked_type=rhs.checked_type)
        return Clause(lhs, rhs, span=clause.span)

    def _pattern(self, root: Pattern, checks: list[tuple[Var, Call]]) -> Pattern:
        out: list[Pattern] = []
        stack: list[tuple[Pattern, str, bool]] = [(root, "", False)]
        while stack:
            pattern, where, ready = stack.pop()
            if isinstance(pattern, PatternVar):
                out.append(self._pattern_var(pattern, where, checks))
            elif not isinstance(pattern, PatternConstructor | PatternTuple):
                out.append(pattern)
            elif ready:
                count = len(pattern.patterns)
                parts = tuple(out[len(out) - count :])
                del out[len(out) - count :]
                out.append(dataclasses.replace(pattern, patterns=parts))
            else:
                name = (
                    pattern.constructor.name_hint
                    if isinstance(pattern, PatternConstructor)
                    else "the tuple"
                )
                stack.append((pattern, where, True))
                parts = pattern.patterns
                stack.extend(
                    (p, f"field {i} of {name}", False) for i, p in reversed(list(enumerate(parts)))
                )
        return out[0]

    def _pattern_var(
        self, pattern: PatternVar, where: str, checks: list[tuple[Var, Call]]
    ) -> Pattern:
        claimed = type_of(pattern.var)
        if not has_claims(claimed):
            return pattern
        raw = fresh_var(pattern.var.name_hint, without_claims(claimed))
        checks.append(
            (pattern.var, match_type(raw, claimed, where, pattern.var.span or pattern.span))
        )
        return PatternVar(raw, span=pattern.span)

    # --- flows ----------------------------------------------------------------------------------

    def narrow(self, value: Expr, expected: Type, where: str, span: Span | None) -> Expr:
        """`value`, with a check if it may not have type `expected`. `span`: the place for a variable,
        whose own is that of its definition.
        """
        if isinstance(value, Function | GlobalVar | Constructor | Op):
            return value
        actual = type_of(value)
        if actual is expected:
            return value
        newly: set[DimVar] = set()
        fits = True
        for have, want in zip(value_tensors(actual), value_tensors(expected), strict=True):
            for p, q in zip(have.shape, want.shape, strict=True):
                if isinstance(q, DimVar) and q not in self.bound and q not in newly:
                    newly.add(q)
                elif not compare(p, q):
                    fits = False
        if fits:
            return value
        at = (span or value.span) if isinstance(value, Leaf) else value.span
        return match_type(value, expected, where, at)

    def result(self, function: Function, where: str) -> Function:
        """A function whose body delivers its result type."""
        expected = function.ret_type
        if expected is None or function.body.checked_type is expected:
            return function
        body = self._narrow_ends(function.body, expected, where, function.span)
        return function if body is function.body else dataclasses.replace(function, body=body)

    def _narrow_ends(self, root: Expr, expected: Type, where: str, span: Span | None) -> Expr:
        """`narrow` at the ends of lets, ifs and matches."""
        if self.narrow(root, expected, where, span) is root:
            return root
        done: dict[Expr, Expr] = {}
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in done:
                continue
            ends = tail_parts(node)
            if not ends:
                done[node] = self.narrow(node, expected, where, span)
            elif not ready:
                stack.append((node, True))
                stack.extend((e, False) for e in ends)
            else:
                parts = children(node)
                first = len(parts) - len(ends)
                new = with_children(node, (*parts[:first], *(done[e] for e in ends)))
                done[node] = with_type(new, expected) if new is not node else node
        return done[root]

    def _call(self, call: Call) -> Expr:
        callee = self._callee(call.op)
        if callee is None:
            return self._extracted(call, "result of the closure")
        match call.op:
            case GlobalVar(name_hint=hint):
                name = f"@{hint}"
            case Var(name_hint=hint):
                name = f"%{hint}"
            case _:
                name = "the function"
        args = tuple(
            [
                self._argument(a, type_of(p), f"parameter %{p.name_hint} of {name}", call.span)
                for a, p in zip(call.args, callee.params, strict=True)
            ]
        )
        if any(a is not b for a, b in zip(args, call.args, strict=True)):
            call = Call(
                call.op,
                args,
                call.attrs,
                call.type_args,
                span=call.span,
                checked_type=call.checked_type,
            )
        declared = callee.ret_type or type_of(callee.body)
        if isinstance(declared, TypeVar | TupleType) and callee.type_params:
            return self._extracted(call, f"result of {name}")
        return call

    def _callee(self, op: Expr) -> Function | None:
        if isinstance(op, GlobalVar):
            return self.mod.function(op)
        return (
            self.known.get(op) if isinstance(op, Var) else op if isinstance(op, Function) else None
        )

    def _argument(self, arg: Expr, wanted: Type, where: str, span: Span | None) -> Expr:
        """Static dims of a known callee's parameter are the caller's to check."""
        if isinstance(arg, GlobalVar | Constructor | Op):
            return arg  # functions have no dims of their own
        actual = type_of(arg)
        if actual is wanted:
            return arg
        haves, wants = value_tensors(actual), value_tensors(wanted)
        if len(haves) != len(wants):
            return arg  # a type parameter takes what it gets
        changed: dict[TensorType, TensorType] = {}
        for have, want in zip(haves, wants, strict=True):
            pairs = list(zip(have.shape, want.shape, strict=True))
            if any(isinstance(q, int) and p != q for p, q in pairs):
                changed[have] = TensorType(
                    [q if isinstance(q, int) else p for p, q in pairs], have.dtype
                )
        if not changed:
            return arg
        target = map_tensors(actual, lambda t: changed.get(t, t))
        at = (span or arg.span) if isinstance(arg, Leaf) else arg.span
        return match_type(arg, target, where, at)

    # --- operators ------------------------------------------------------------------------------

    def _operator(self, call: Call) -> Expr:
        arg_types = tuple([type_of(a) for a in call.args])
        if not any(t.flags & HAS_DIM for t in arg_types):
            return call  # everything is static: inference has decided
        op = call.op
        if not isinstance(op, Op) or op.name.startswith(("vm.", "memory.")):
            return call
        found, _ = demands(call, arg_types)
        return self._with_demands(call, op, found) if found else call

    def _with_demands(self, call: Call, op: Op, found: list[Demand]) -> Expr:
        """Operands are all evaluated, then those with demands are checked, then the operator runs."""
        lets: list[tuple[Var, Expr]] = []
        args = [self._named(a, lets) for a in call.args]
        for demand in found:
            index, fields = (demand.arg, None) if isinstance(demand.arg, int) else demand.arg
            where = f"argument {op.args[index]} of {op.name}"
            arg = args[index]
            if fields is None:
                args[index] = _checked(arg, demand, where, call.span)
                continue
            where = f"field {fields} of {where}"
            parts = list(arg.fields) if isinstance(arg, Tuple) else _fields(arg)
            parts[fields] = _checked(parts[fields], demand, where, call.span)
            args[index] = typed(
                Tuple(tuple(parts), span=arg.span), TupleType([type_of(p) for p in parts])
            )
        result: Expr = Call(
            op,
            tuple(args),
            call.attrs,
            call.type_args,
            span=call.span,
            checked_type=call.checked_type,
        )
        for var, value in reversed(lets):
            result = Let(var, value, result, span=value.span, checked_type=call.checked_type)
        return result

    def _named(self, arg: Expr, lets: list[tuple[Var, Expr]]) -> Expr:
        if isinstance(arg, Leaf):
            return arg
        if isinstance(arg, Tuple):
            fields = tuple([self._named(f, lets) for f in arg.fields])
            return typed(Tuple(fields, span=arg.span), type_of(arg))
        var = fresh_var("a", type_of(arg))
        lets.append((var, arg))
        return var


def _fields(value: Expr) -> list[Expr]:
    from_type = type_of(value)
    fields = from_type.fields if isinstance(from_type, TupleType) else ()
    return [typed(TupleGetItem(value, i), t) for i, t in enumerate(fields)]


def _checked(arg: Expr, demand: Demand, where: str, span: Span | None) -> Expr:
    type_ = type_of(arg)
    if not isinstance(type_, TensorType):
        raise TypeError(f"a demand on {type_!r}")
    if demand.shape is not None:
        return op_call("vm.check_broadcast", (arg,), type_, span, shape=demand.shape, where=where)
    shape = list(type_.shape)
    if demand.axis is not None and demand.dim is not None:
        shape[demand.axis] = demand.dim
    return match_type(arg, TensorType(shape, type_.dtype), where, span)


def with_type(node: Expr, type_: Type) -> Expr:
    return dataclasses.replace(node, checked_type=type_)


def tail_parts(node: Expr) -> tuple[Expr, ...]:
    """The parts whose value is the node's own."""
    match node:
        case Let():
            return (node.body,)
        case If():
            return (node.true_branch, node.false_branch)
        case Match():
            return tuple(c.rhs for c in node.clauses)
    return ()


def insert_checks(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    names = {function: var.name_hint for var, function in mod.functions.items()}

    def check(function: Function) -> Function:
        if is_primitive(function):
            return function
        checker = _Checker(mod, names[function])
        checker.enter(function)
        body = checker.rewrite(function.body)
        new = function if body is function.body else dataclasses.replace(function, body=body)
        return checker.result(new, f"result of @{names[function]}")

    return map_functions(mod, check)


INSERT_CHECKS = Pass("insert_checks", insert_checks, required=True)
