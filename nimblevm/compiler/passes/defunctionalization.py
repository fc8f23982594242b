"""Write a program without functions as values: closures become constructors, and apply functions call them.

before:  def @twice[A](%f: fn (A) -> A, %x: A) -> A { %f(%f(%x)) }
         def @main(%x: float32, %y: float32) { @twice(fn (%a: float32) { %a + %y }, %x) }
after:   type Defunc { Of_main_v1(float32) }
         def @apply(%f: Defunc, %a0: float32) -> float32 { match (%f) { Of_main_v1(%y) => @main_v1(%y, %a0) } }
         def @twice_1(%f: Defunc, %x: float32) -> float32 { let %v0 = @apply(%f, %x); @apply(%f, %v0) }
         def @main_v1(%y: float32, %a: float32) { %a + %y }
         def @main(%x: float32, %y: float32) { let %v1 = Of_main_v1(%y); @twice_1(%v1, %x) }

Starts at one function and follows its calls. What deals with functions is copied for the types of its calls, so that
no type variable is left where a function type was; what does not stays as it is, generic or not. Data types that hold
functions are copied, too (function_types.py). Local functions are lifted first, and calls of known functions stay
direct, so loops stay loops. The parameters and the result of the function itself must hold no functions.

Needs: nothing; types are inferred. Establishes: A-normal form in the functions that it makes. Cost: linear in the size
of the copies. Source: Reynolds' defunctionalization; TVM's Defunctionalization has the contract, but takes no functions
that are returned, bound by lets, or held by data types.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nimblevm.compiler.function_types import (
    Encoding,
    Names,
    TypeEncoder,
    check_copies,
    solve,
    with_own_sizes,
    without_dims,
    without_sizes,
)
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.lambda_lift import LAMBDA_LIFT
from nimblevm.compiler.passes.remove_unused import remove_unused
from nimblevm.compiler.passes.to_anf import TO_ANF
from nimblevm.compiler.rewrite import Rewriter, is_primitive, postorder, type_of
from nimblevm.errors import CompileError, InternalError, InvalidInput, InvalidInputType
from nimblevm.relay.analysis import global_calls
from nimblevm.relay.infer_type import infer_type
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
    RefCreate,
    RefWrite,
    Tuple,
    TypeData,
    Var,
    children,
    pattern_vars,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.printer import astext
from nimblevm.relay.types import (
    FuncType,
    RefType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    substitute,
)
from nimblevm.relay.visitor import with_children

Key = tuple[GlobalVar, tuple[Type, ...]]
"""A function and its type arguments."""


_Caller = Callable[[tuple[Expr, ...]], Expr]
"""Arguments -> a call with them."""


class _Program:
    """The functions that are copied. source: the program; mod: with its local functions lifted, typed.

    deals  the functions of mod in which functions are values, those that lifting made or took
           some from, and those that call such
    """

    def __init__(self, source: IRModule, mod: IRModule) -> None:
        self.mod = mod
        self.types = TypeEncoder(mod)
        lifted = set(mod.functions) - set(source.functions)
        self.deals = self._dealing(
            lifted | {v for v, f in source.functions.items() if _has_local(f)}
        )
        self.names = Names(v.name_hint for v in source.functions)
        self.copies: dict[Key, GlobalVar] = {}
        self.pending: list[Key] = []
        self.made: dict[GlobalVar, Function] = {}
        self.appliers: dict[Encoding, _Applier] = {}

    def _dealing(self, found: set[GlobalVar]) -> set[GlobalVar]:
        found = found | {v for v, f in self.mod.functions.items() if self._has_values(f)}
        callers: dict[GlobalVar, list[GlobalVar]] = {}
        for var, function in self.mod.functions.items():
            for callee in global_calls(function.body):
                callers.setdefault(callee, []).append(var)
        stack = list(found)
        while stack:
            for caller in callers.get(stack.pop(), ()):
                if caller not in found:
                    found.add(caller)
                    stack.append(caller)
        return found

    def _has_values(self, function: Function) -> bool:
        if is_primitive(function) or "Compiler" in function.attrs:
            return False
        has = self.types.has_functions
        if any(has(type_of(param)) for param in function.params):
            return True
        for node in postorder(function.body):
            operands = children(node)[1:] if isinstance(node, Call) else children(node)
            if any(isinstance(o, GlobalVar) or _is_maker(self.mod, o) for o in operands):
                return True
            if (isinstance(node, Leaf) and not isinstance(node, Var)) or is_primitive(node):
                continue
            if has(type_of(node)):
                return True
        return isinstance(function.body, GlobalVar)

    def instance(self, var: GlobalVar, type_args: tuple[Type, ...]) -> GlobalVar | None:
        """The copy of a function for type arguments (not encoded); None if it stays as it is."""
        if var not in self.deals and not any(self.types.has_functions(t) for t in type_args):
            return None
        key = (var, tuple([without_dims(t) for t in type_args]))
        if key not in self.copies:
            check_copies(f"@{var.name_hint}", sum(k[0] is var for k in self.copies))
            self.copies[key] = GlobalVar(self.names.fresh(var.name_hint))
            self.pending.append(key)
        return self.copies[key]

    def run(self) -> None:
        """Make the copies that are asked for, and those that they ask for."""
        while self.pending:
            key = self.pending.pop()
            self.made[self.copies[key]] = _Copy(self, *key).function()

    # --- functions as values ---

    def applier(self, type_: Type) -> _Applier:
        """The function that calls those of a type."""
        encoding = self.types.encoding(type_)
        if encoding not in self.appliers:
            signature = encoding.signature
            types = [TypeCall(encoding.header, ()), *map(self._own, signature.arg_types)]
            names = ["f", *(f"a{i}" for i in range(len(types) - 1))]
            params = tuple([Var(n, t) for n, t in zip(names, types, strict=True)])
            var = GlobalVar(self.names.fresh("apply"))
            self.appliers[encoding] = _Applier(var, params, self._own(signature.ret_type))
        return self.appliers[encoding]

    def _own(self, type_: Type) -> Type:
        return with_own_sizes(self.types.encode(without_sizes(type_)))

    def value_of(self, node: GlobalVar | Constructor, want: Type) -> Constructor:
        """The constructor that stands for a global function or a constructor as a value of a type."""
        if isinstance(node, Constructor):
            assert isinstance(want, FuncType)
            made = self.types.constructor(node, want.ret_type)
            return self._constructor(
                want, (node,), node.name_hint, (), lambda args: Call(made, args)
            )
        function = self.mod.function(node)
        type_args = _solved(node, function.type_params, _signature(function), want)
        what = (node, *type_args)
        return self._constructor(want, what, node.name_hint, (), self._caller(node, type_args))

    def closure_of(self, maker: GlobalVar, type_args: tuple[Type, ...], want: Type) -> Constructor:
        """The constructor of the closures that a global function of lambda_lift's makes."""
        outer = self.mod.function(maker)
        inner = outer.body
        if not isinstance(inner, Function) or not isinstance(inner.body, Call):
            raise InternalError(f"@{maker.name_hint} makes no closure")
        given: dict[TypeVar, Type] = dict(zip(outer.type_params, type_args, strict=True))
        signature = substitute(_signature(inner), given)
        own = _solved(maker, inner.type_params, signature, want)
        given.update(zip(inner.type_params, own, strict=True))
        target = inner.body.op
        assert isinstance(target, GlobalVar)
        call = self._caller(target, tuple([substitute(t, given) for t in inner.body.type_args]))
        fields = [(p.name_hint, self._own(substitute(type_of(p), given))) for p in outer.params]
        return self._constructor(want, (maker, *type_args, *own), target.name_hint, fields, call)

    def _caller(self, var: GlobalVar, type_args: tuple[Type, ...]) -> _Caller:
        return lambda args: Call(self.instance(var, type_args) or var, args)

    def _constructor(
        self,
        type_: Type,
        what: tuple[object, ...],
        name: str,
        fields: Sequence[tuple[str, Type]],
        call: _Caller,
    ) -> Constructor:
        """The constructor of a function of that type; the first time a clause that calls it comes with it."""
        encoding = self.types.encoding(type_)
        key = tuple([without_dims(w) if isinstance(w, Type) else w for w in what])
        if key not in encoding.made:
            name = self.types.constructor_names.fresh(f"Of_{name}")
            types = tuple([t for _, t in fields])
            made = Constructor(name, types, encoding.header, len(encoding.made))
            encoding.made[key] = made
            applier = self.applier(type_)
            held = [Var(n) for n, _ in fields]
            lhs = PatternConstructor(made, [PatternVar(v) for v in held])
            applier.clauses.append(Clause(lhs, call((*held, *applier.params[1:]))))
        return encoding.made[key]

    # --- what is made ---

    def definitions(self) -> list[TypeData]:
        """The data types of functions, and the copies of those that hold such."""
        found = list(self.types.copies.values())
        for encoding in self.types.encodings.values():
            made = list(encoding.made.values())
            if not made:  # no function of this type is ever made
                name = self.types.constructor_names.fresh("Of_none")
                made = [Constructor(name, (), encoding.header, 0)]
            found.append(TypeData(encoding.header, (), tuple(made)))
        return found

    def functions(self, definitions: Sequence[TypeData]) -> dict[GlobalVar, Function]:
        """The copies and the apply functions."""
        found = dict(self.made)
        defined = {d.header: d for d in definitions}
        for encoding, applier in self.appliers.items():
            clauses = applier.clauses
            if not clauses:  # never called; a match has a clause at least
                none = defined[encoding.header].constructors[0]
                clauses = [Clause(PatternConstructor(none), Call(applier.var, applier.params))]
            body = Match(applier.params[0], clauses)
            found[applier.var] = Function(applier.params, body, applier.result)
        return found


@dataclass(eq=False, slots=True)
class _Applier:
    """The function that calls those of one type."""

    var: GlobalVar
    params: tuple[Var, ...]
    result: Type
    clauses: list[Clause] = field(default_factory=list)


class _Copy(Rewriter):
    """Rewrites one function for type arguments. generic: variables of generic functions, which are no values."""

    def __init__(self, program: _Program, var: GlobalVar, type_args: tuple[Type, ...]) -> None:
        super().__init__()
        self.program = program
        self.types = program.types
        self.source = program.mod.function(var)
        self.given = dict(zip(self.source.type_params, type_args, strict=True))
        self.generic: dict[Var, Call | GlobalVar] = {}

    def function(self) -> Function:
        source = self.source
        params = tuple([self._named(p, type_of(p)) for p in source.params])
        result = self._plain(_signature(source).ret_type)
        body = self._value(source.body, self.rewrite(source.body), result)
        return dataclasses.replace(
            source, params=params, body=body, ret_type=self._type(result), type_params=(), checked_type=None
        )  # fmt: skip

    def _plain(self, type_: Type) -> Type:
        """A type of the function's with the type arguments."""
        return substitute(type_, self.given)

    def _type(self, type_: Type) -> Type:
        return with_own_sizes(self.types.encode(self._plain(type_)))

    def _named(self, var: Var, type_: Type | None) -> Var:
        new = Var(var.name_hint, None if type_ is None else self._type(type_), span=var.span)
        self.memo[var] = new
        return new

    def enter(self, node: Expr) -> bool:
        if isinstance(node, Match):
            for clause in node.clauses:
                for var in pattern_vars(clause.lhs):
                    self._named(var, var.type_annotation)
        return True

    def bind(self, let: Let, value: Expr) -> None:
        type_ = type_of(let.var)
        if isinstance(type_, FuncType) and type_.type_params:
            if isinstance(let.value, Var):
                value = self.generic.get(let.value, value)
            if not isinstance(value, Call | GlobalVar):
                raise _undecided(let.var)
            self.generic[let.var] = value
            self.memo[let.var] = let.var
            return
        applied = isinstance(let.value, Call) and not isinstance(let.value.op, Leaf)
        applied = applied or (isinstance(let.value, Call) and isinstance(let.value.op, Var))
        self._named(let.var, type_ if applied else let.var.type_annotation)

    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(node, Let) and node.var in self.generic:
            return self._value(node.body, children(new)[1], self._plain(type_of(node)))
        parts = [
            child if want is None else self._value(old, child, self._plain(want))
            for old, child, want in zip(
                children(node), children(new), self._wanted(node), strict=True
            )
        ]
        match node:
            case Call():
                return self._call(node, tuple(parts))
            case Let(var=var):
                named = self.memo[var]
                assert isinstance(named, Var)
                return Let(named, parts[0], parts[1], span=node.span)
            case Match():
                type_ = self._plain(type_of(node.data))
                clauses = [
                    Clause(self._pattern(c.lhs, type_), rhs, span=c.span)
                    for c, rhs in zip(node.clauses, parts[1:], strict=True)
                ]
                return Match(parts[0], clauses, node.complete, span=node.span)
        return dataclasses.replace(with_children(node, tuple(parts)), checked_type=None)

    def _wanted(self, node: Expr) -> Sequence[Type | None]:
        """The types as which the children are read; None where a child is no value of the program's, or has its own."""
        match node:
            case Call():
                return (None, *self._parameters(node))
            case Let(var=var):
                return (type_of(var), type_of(node))
            case If() | Match():
                return (None, *[type_of(node)] * (len(children(node)) - 1))
            case Tuple():
                type_ = type_of(node)
                assert isinstance(type_, TupleType)
                return type_.fields
            case RefCreate():
                type_ = type_of(node)
                return (type_.value if isinstance(type_, RefType) else None,)
            case RefWrite(ref=ref):
                type_ = type_of(ref)
                return (None, type_.value if isinstance(type_, RefType) else None)
        return [None] * len(children(node))

    def _parameters(self, call: Call) -> Sequence[Type | None]:
        op = self.generic.get(call.op, call.op) if isinstance(call.op, Var) else call.op
        match op:
            case GlobalVar():
                function = self.program.mod.function(op)
                given = dict(zip(function.type_params, call.type_args, strict=True))
                return [substitute(type_of(p), given) for p in function.params]
            case Constructor():
                return self.types.inputs(op, type_of(call))
            case Op() | Function():
                return [None] * len(call.args)
        type_ = type_of(call.op)
        assert isinstance(type_, FuncType)
        return type_.arg_types

    def _call(self, node: Call, parts: tuple[Expr, ...]) -> Expr:
        callee, *rest = parts
        args = tuple(rest)
        op = self.generic.get(node.op, node.op) if isinstance(node.op, Var) else node.op
        match op:
            case GlobalVar():
                type_args = tuple([self._plain(t) for t in node.type_args])
                if "Closure" in self.program.mod.function(op).attrs:
                    return self._closure(node, op, type_args, args)
                copy = self.program.instance(op, type_args)
                if copy is None:
                    return Call(op, args, node.attrs, type_args, span=node.span)
                return Call(copy, args, node.attrs, span=node.span)
            case Constructor():
                made = self.types.constructor(op, self._plain(type_of(node)))
                return Call(made, args, span=node.span)
            case Op() | Function():
                return Call(callee, args, node.attrs, span=node.span)
        applier = self.program.applier(self._plain(type_of(node.op)))
        return Call(applier.var, (callee, *args), span=node.span)

    def _closure(
        self, node: Call, maker: GlobalVar, type_args: tuple[Type, ...], args: tuple[Expr, ...]
    ) -> Expr:
        type_ = type_of(node)
        if isinstance(type_, FuncType) and type_.type_params:  # bind keeps it for its readers
            return Call(maker, args, None, type_args, span=node.span)
        made = self.program.closure_of(maker, type_args, self._plain(type_))
        return Call(made, args, span=node.span)

    def _value(self, old: Expr, new: Expr, want: Type) -> Expr:
        """A child as a value of a type: `new`, or what stands for the function or constructor that it names."""
        source = self.generic.get(old, old) if isinstance(old, Var) else old
        if source is old and not isinstance(source, GlobalVar | Constructor):
            return new
        if not isinstance(want, FuncType) or want.type_params:
            raise _undecided(old)
        if isinstance(source, Call):
            assert isinstance(source.op, GlobalVar)
            return Call(self.program.closure_of(source.op, source.type_args, want), source.args)
        assert isinstance(source, GlobalVar | Constructor)
        return Call(self.program.value_of(source, want), ())

    def _pattern(self, root: Pattern, type_: Type) -> Pattern:
        done: list[Pattern] = []
        stack: list[tuple[Pattern, Type, bool]] = [(root, type_, False)]
        while stack:
            item, of, ready = stack.pop()
            match item:
                case PatternVar(var=var):
                    named = self.memo[var]
                    assert isinstance(named, Var)
                    done.append(PatternVar(named, span=item.span))
                case PatternConstructor(patterns=parts) | PatternTuple(patterns=parts) if ready:
                    new = tuple(done[len(done) - len(parts) :])
                    del done[len(done) - len(parts) :]
                    made = dataclasses.replace(item, patterns=new)
                    if isinstance(made, PatternConstructor):
                        constructor = self.types.constructor(made.constructor, of)
                        made = dataclasses.replace(made, constructor=constructor)
                    done.append(made)
                case PatternConstructor(constructor=constructor, patterns=parts):
                    stack.append((item, of, True))
                    inside = self.types.inputs(constructor, of)
                    stack += reversed([(p, t, False) for p, t in zip(parts, inside, strict=True)])
                case PatternTuple(patterns=parts):
                    stack.append((item, of, True))
                    assert isinstance(of, TupleType)
                    stack += reversed(
                        [(p, t, False) for p, t in zip(parts, of.fields, strict=True)]
                    )
                case _:
                    done.append(item)
        return done[0]


def _signature(function: Function) -> FuncType:
    type_ = type_of(function)
    assert isinstance(type_, FuncType)
    return type_


def _solved(
    var: GlobalVar, params: Sequence[TypeVar], signature: Type, want: Type
) -> tuple[Type, ...]:
    found = solve(params, signature, want)
    if found is None:
        raise _undecided(var)
    return found


def _undecided(node: Expr) -> CompileError:
    return CompileError(
        f"Defunctionalization: {astext(node)} is generic, and its place does not say for which types; "
        "write a function of these types around it"
    )


def _has_local(function: Function) -> bool:
    """Whether there are local functions in a function, called or not."""
    if is_primitive(function):
        return False
    return any(isinstance(n, Function) and not is_primitive(n) for n in postorder(function.body))


def _is_maker(mod: IRModule, node: Expr) -> bool:
    """Whether a call makes a closure, as lambda_lift writes it."""
    return (
        isinstance(node, Call)
        and isinstance(node.op, GlobalVar)
        and "Closure" in mod.function(node.op).attrs
    )


def defunctionalize(function: Function, mod: IRModule) -> Function:
    """The function without functions as values. What it calls then is added to `mod`: data types, apply functions,
    copies. See the module's docstring. InvalidInput for a function that is generic, or takes or gives functions.
    """
    if not isinstance(function, Function):
        raise InvalidInputType(
            f"Defunctionalization takes a relay.Function, not {type(function).__name__}; mod['main'] is one"
        )
    entry = next((v for v, f in mod.functions.items() if f is function), None)
    if entry is None:
        entry = GlobalVar(Names(v.name_hint for v in mod.functions).fresh("main"))
    whole = mod.shallow_copy()
    whole[entry] = function
    typed = infer_type(remove_unused(whole, [entry.name_hint]))
    _check_entry(typed, typed.function(entry))
    context = PassContext()
    # Of all functions, also of those that nothing calls, so that no name is taken twice.
    lifted = infer_type(LAMBDA_LIFT(TO_ANF(infer_type(whole), context), context))
    program = _Program(whole, lifted)
    if entry not in program.deals:
        return typed.function(entry)
    program.copies[(entry, ())] = entry
    program.pending.append((entry, ()))
    program.run()
    return _added(mod, entry, program)


def _check_entry(mod: IRModule, function: Function) -> None:
    if function.type_params:
        names = ", ".join(v.name_hint for v in function.type_params)
        raise InvalidInput(
            f"Defunctionalization takes a function of fixed types, not one of any {names}"
        )
    types = TypeEncoder(mod)
    signature = _signature(function)
    named = [(f"its parameter %{p.name_hint}", type_of(p)) for p in function.params]
    for what, type_ in (*named, ("its result", signature.ret_type)):
        if types.has_functions(type_):
            raise InvalidInput(
                f"Defunctionalization takes a function that neither takes nor gives functions, but {what} is "
                f"{type_}: call it inside of one"
            )


def _added(mod: IRModule, entry: GlobalVar, program: _Program) -> Function:
    """Add to a module what a program is made of; the new function."""
    definitions = program.definitions()
    new = program.functions(definitions)
    whole = mod.shallow_copy()
    for definition in definitions:
        whole.add_type(definition)
    for var, function in new.items():
        whole[var] = function
    whole = infer_type(whole)
    for definition in definitions:
        mod.add_type(definition)
    for var in new:
        if var is not entry:
            mod[var] = whole.function(var)
    return whole.function(entry)
