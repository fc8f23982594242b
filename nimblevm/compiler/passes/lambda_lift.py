"""Turn every local function into a global function that takes what it captures as leading
parameters.

before:  def @main(%x: float32) { let %f = fn (%y: float32) { %y + %x }; %f(%x) }
after:   def @main(%x: float32) { @main_f(%x, %x) }
         def @main_f(%x1: float32, %y: float32, Lifted=1) { %y + %x1 }

A local function that is only called needs no closure: calls pass the captures. So does recursion,
which therefore makes no cycle of references. Where the function is used as a value, a second global
makes the closure from the captures:

         def @main_f_closure(%x: float32, Closure=1) { fn (%y: float32) { @main_f(%x, %y) } }

and emit turns a call of it into AllocClosure of @main_f. A dim of the enclosing function that the
local function's types mention becomes a rank-0 int64 parameter (attribute "dim_params": (parameter
index, dim) pairs) unless a captured tensor has it as an axis.

Needs: ANF, inferred types. Keeps: both. Cost: linear in the size of the result (captures passed
through nested functions count). Source: Johnsson's lambda lifting; since a let binds one function
at a time, one pass from the outside in replaces the fixed point.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    attr_dims,
    dim_value,
    fresh_var,
    is_primitive,
    let_chain,
    make_lets,
    postorder,
    sub_blocks,
    type_of,
    typed,
    with_body,
    with_children,
)
from nimblevm.relay.dims import DimVar
from nimblevm.relay.ir import (
    Call,
    Expr,
    Function,
    GlobalVar,
    Leaf,
    Let,
    Match,
    Var,
    children,
    pattern_vars,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import (
    FuncType,
    Type,
    TypeVar,
    free_dims,
    scalar_type,
    value_tensors,
)


@dataclass(eq=False, slots=True)
class _Local:
    """A function in whose body code stands: a global one (parent None) or a local one."""

    function: Function
    name: str
    parent: _Local | None = None
    raw: dict[Var, None] = field(default_factory=dict)
    raw_dims: dict[DimVar, None] = field(default_factory=dict)
    captures: tuple[Var, ...] = ()
    dims: tuple[DimVar, ...] = ()
    renamed: dict[Var, Var] = field(default_factory=dict)
    type_vars: dict[TypeVar, None] = field(default_factory=dict)
    target: GlobalVar | None = None
    closure: GlobalVar | None = None


class _Names:
    """Fresh names of globals."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)

    def fresh(self, wish: str) -> str:
        name, n = wish, 0
        while name in self.taken:
            n += 1
            name = f"{wish}_{n}"
        self.taken.add(name)
        return name


def _with_region(value: Expr) -> list[Expr]:
    """A simple expression, or what is inside of a region that it calls."""
    function = value.op if isinstance(value, Call) else None
    if isinstance(function, Function) and is_primitive(function):
        return postorder(function.body)
    return [value]


class _Lifter:
    """Lifts the local functions of one global function."""

    def __init__(self, name: str, function: Function, names: _Names) -> None:
        self.names = names
        self.root = _Local(function, name)
        self.locals: list[_Local] = []
        self.known: dict[Var, _Local] = {}
        self.blocks: list[tuple[Expr, _Local]] = []
        self.owner: dict[Var, _Local] = {}
        self.dim_owner: dict[DimVar, _Local] = {}
        self.added: dict[GlobalVar, Function] = {}
        self.done: dict[Expr, Expr] = {}
        self.made: set[Var] = set()  # functions whose closure the block at hand has made
        self._dims_of: dict[Type, tuple[DimVar, ...]] = {}

    def run(self) -> Function:
        self._scan()
        if not self.locals:
            return self.root.function
        for block, local in self.blocks:
            self._uses(block, local)
        for local in self.locals:
            self._settle(local)
        for block, local in reversed(self.blocks):
            self._rebuild(block, local)
        for local in self.locals:
            self._add_global(local)
        return with_body(self.root.function, self._block_of(self.root.function.body, self.root))

    # --- what is captured ---

    def _own(self, variables: Iterable[Var], local: _Local) -> None:
        for var in variables:
            self.owner[var] = local
            for tensor in value_tensors(type_of(var)):
                for dim in tensor.shape:
                    if isinstance(dim, DimVar):
                        self.dim_owner.setdefault(dim, local)

    def _scan(self) -> None:
        """Find all blocks and local functions, outer before inner, and who binds which variable and
        dim.
        """
        self._own(self.root.function.params, self.root)
        stack: list[tuple[Expr, _Local]] = [(self.root.function.body, self.root)]
        while stack:
            block, local = stack.pop()
            self.blocks.append((block, local))
            lets, tail = let_chain(block)
            for let in lets:
                self._own((let.var,), local)
                if isinstance(let.value, Function) and not is_primitive(let.value):
                    inner = _Local(let.value, f"{local.name}_{let.var.name_hint}", local)
                    self.locals.append(inner)
                    self.known[let.var] = inner
                    self._own(let.value.params, inner)
                    stack.append((let.value.body, inner))
                else:
                    self._scan_value(let.value, local, stack)
            self._scan_value(tail, local, stack)

    def _scan_value(self, value: Expr, local: _Local, stack: list[tuple[Expr, _Local]]) -> None:
        if isinstance(value, Match):
            for clause in value.clauses:
                self._own(pattern_vars(clause.lhs), local)
        stack.extend((sub, local) for sub in reversed(sub_blocks(value)))

    def _uses(self, block: Expr, local: _Local) -> None:
        lets, tail = let_chain(block)
        if local is self.root:
            return
        for value in (*(let.value for let in lets), tail):
            if isinstance(value, Function):
                continue  # its body is a block of its own, also where that is a bare variable
            for leaf in (value,) if isinstance(value, Leaf) else children(value):
                if isinstance(leaf, Var):
                    self._use(leaf, local)
                    self._use_dims(type_of(leaf), local)
            self._use_dims(type_of(value), local)
            for node in _with_region(value):
                for dim in attr_dims(node):
                    self._use_dim(dim, local)
        for let in lets:
            self._use_dims(type_of(let.var), local)

    def _use(self, var: Var, local: _Local) -> None:
        owner = self.owner.get(var)
        current: _Local | None = local
        while current is not None and current is not owner and var not in current.raw:
            current.raw[var] = None
            current = current.parent

    def _use_dims(self, type_: Type, local: _Local) -> None:
        found = self._dims_of.get(type_)
        if found is None:
            found = self._dims_of[type_] = free_dims(type_)
        for dim in found:
            self._use_dim(dim, local)

    def _use_dim(self, dim: DimVar, local: _Local) -> None:
        owner = self.dim_owner.get(dim)
        if owner is None or owner is local or dim in local.raw_dims:
            return
        chain: list[_Local] = []
        current: _Local | None = local
        while current is not None and current is not owner:
            chain.append(current)
            current = current.parent
        if current is owner:
            for step in chain:
                step.raw_dims.setdefault(dim)

    def _settle(self, local: _Local) -> None:
        """Final captures: a captured function that is known stands for its own captures."""
        captures: dict[Var, None] = {}
        for var in local.raw:
            known = self.known.get(var)
            if known is None:
                captures[var] = None
            elif known is not local:
                captures.update(dict.fromkeys(known.captures))
                for dim in known.dims:
                    self._use_dim(dim, local)
                local.type_vars.update(known.type_vars)
        local.captures = tuple(captures)
        given = {
            dim
            for var in captures
            for tensor in value_tensors(type_of(var))
            for dim in tensor.shape
            if isinstance(dim, DimVar)
        }
        local.dims = tuple(d for d in local.raw_dims if d not in given)
        local.renamed = {v: fresh_var(v.name_hint, type_of(v)) for v in captures}
        if local.parent is not None:
            local.type_vars.update(dict.fromkeys(local.parent.function.type_params))
            local.type_vars.update(local.parent.type_vars)
        local.target = typed(GlobalVar(self.names.fresh(local.name)), self._lifted_type(local))

    def _lifted_type(self, local: _Local) -> FuncType:
        function = local.function
        extra = [type_of(v) for v in local.captures] + [scalar_type("int64")] * len(local.dims)
        result = function.ret_type or type_of(function.body)
        params = (*self._free_type_vars(local), *function.type_params)
        return FuncType((*extra, *(type_of(p) for p in function.params)), result, params)

    def _free_type_vars(self, local: _Local) -> tuple[TypeVar, ...]:
        """Type parameters of the enclosing functions that the lifted function mentions (all: erased
        anyway).
        """
        own = set(local.function.type_params)
        return tuple(t for t in local.type_vars if t not in own)

    # --- the new code ---

    def _rebuild(self, block: Expr, local: _Local) -> None:
        if isinstance(block, Leaf):
            return
        lets, tail = let_chain(block)
        bindings: list[tuple[Var, Expr]] = []
        escaping = self._escaping(lets, tail)
        for let in lets:
            known = self.known.get(let.var)
            if known is None:
                bindings.append((let.var, self._simple(let.value, local, bindings)))
            elif let.var in escaping:
                self.made.add(let.var)
                bindings.append((let.var, self._make_closure(known, local, bindings)))
        new_tail = self._simple(tail, local, bindings)
        self.made -= escaping  # other blocks make their own closure of it
        self.done[block] = make_lets(bindings, new_tail)

    def _escaping(self, lets: list[Let], tail: Expr) -> set[Var]:
        """Known functions of this block that are used as values in this very block."""
        found: set[Var] = set()
        for value in (*(let.value for let in lets), tail):
            found.update(v for v in _value_operands(value) if v in self.known)
        return found & {let.var for let in lets}

    def _simple(self, value: Expr, local: _Local, bindings: list[tuple[Var, Expr]]) -> Expr:
        if isinstance(value, Leaf):
            return self._operand(value, local, bindings)
        if isinstance(value, Call) and isinstance(value.op, Var) and value.op in self.known:
            args = tuple([self._operand(a, local, bindings) for a in value.args])
            known = self.known[value.op]
            target = known.target
            if target is None:
                raise ValueError(f"local function {known.name} has no global")
            extra = self._extra_args(known, local, bindings)
            return Call(
                target,
                (*extra, *args),
                value.attrs,
                (),
                span=value.span,
                checked_type=value.checked_type,
            )
        roots = sub_blocks(value)
        operands = children(value)[: len(children(value)) - len(roots)]
        new = [self._operand(child, local, bindings) for child in operands]
        return with_children(value, (*new, *(self._block_of(root, local) for root in roots)))

    def _block_of(self, block: Expr, local: _Local) -> Expr:
        """The new form of a nested block, which was rebuilt before the one around it."""
        if not isinstance(block, Leaf):
            return self.done[block]
        bindings: list[tuple[Var, Expr]] = []  # a leaf may stand in several blocks
        tail = self._operand(block, local, bindings)
        return make_lets(bindings, tail)

    def _operand(self, node: Expr, local: _Local, bindings: list[tuple[Var, Expr]]) -> Expr:
        if not isinstance(node, Var):
            return node
        known = self.known.get(node)
        if known is None:
            return local.renamed.get(node, node)
        if node in self.made:
            return node
        var = fresh_var(node.name_hint, type_of(node))
        bindings.append((var, self._make_closure(known, local, bindings)))
        return var

    def _extra_args(
        self, known: _Local, local: _Local, bindings: list[tuple[Var, Expr]]
    ) -> tuple[Expr, ...]:
        """Captures and dims of `known`, as `local` sees them."""
        extra: list[Expr] = [local.renamed.get(v, v) for v in known.captures]
        for dim in known.dims:
            var = fresh_var(dim.name or "dim", scalar_type("int64"))
            bindings.append((var, dim_value(dim)))
            extra.append(var)
        return tuple(extra)

    def _make_closure(self, known: _Local, local: _Local, bindings: list[tuple[Var, Expr]]) -> Expr:
        result = type_of(known.function)
        if known.closure is None:
            known.closure = self._closure_global(known)
        return typed(Call(known.closure, self._extra_args(known, local, bindings)), result)

    def _closure_global(self, known: _Local) -> GlobalVar:
        if known.target is None:
            raise ValueError(f"local function {known.name} has no global")
        captures = [fresh_var(v.name_hint, type_of(v)) for v in known.captures]
        numbers = [fresh_var(d.name or "dim", scalar_type("int64")) for d in known.dims]
        old = known.function
        params = tuple(fresh_var(p.name_hint, type_of(p)) for p in old.params)
        result = old.ret_type or type_of(old.body)
        body = typed(Call(known.target, (*captures, *numbers, *params)), result)
        inner = typed(Function(params, body, result, old.type_params), type_of(old))
        outer_params = (*captures, *numbers)
        type_params = self._free_type_vars(known)
        attrs = {"Closure": 1, **_dim_attr(known)}
        outer = Function(outer_params, inner, type_of(old), type_params, attrs, span=old.span)
        outer_type = FuncType([type_of(p) for p in outer_params], type_of(old), type_params)
        var = typed(GlobalVar(self.names.fresh(f"{known.name}_closure")), outer_type)
        self.added[var] = typed(outer, outer_type)
        return var

    def _add_global(self, local: _Local) -> None:
        if local.target is None:
            raise ValueError(f"local function {local.name} has no global")
        old = local.function
        numbers = [fresh_var(d.name or "dim", scalar_type("int64")) for d in local.dims]
        params = (*local.renamed.values(), *numbers, *old.params)
        type_ = self._lifted_type(local)
        lifted = Function(
            params, self._block_of(old.body, local), type_.ret_type, type_.type_params,
            {**old.attrs, "Lifted": 1, **_capture_attr(local), **_dim_attr(local)}, span=old.span,
        )  # fmt: skip
        self.added[local.target] = typed(lifted, type_)


def _capture_attr(local: _Local) -> dict[str, object]:
    """How many leading parameters are captures: their types are facts."""
    count = len(local.captures) + len(local.dims)
    return {"captures": count} if count else {}


def _dim_attr(local: _Local) -> dict[str, object]:
    first = len(local.captures)
    if not local.dims:
        return {}
    return {"dim_params": tuple((first + i, dim) for i, dim in enumerate(local.dims))}


def _value_operands(value: Expr) -> tuple[Var, ...]:
    """The variables that a simple expression uses otherwise than by calling them."""
    if isinstance(value, Var):
        return (value,)
    if isinstance(value, Leaf):
        return ()
    operands = value.args if isinstance(value, Call) else children(value)
    return tuple(v for v in operands if isinstance(v, Var))


def lambda_lift(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    names = _Names(var.name_hint for var in mod.functions)
    result = mod.shallow_copy()
    changed = False
    for var, function in mod.functions.items():
        if is_primitive(function) or "Closure" in function.attrs:
            continue
        lifter = _Lifter(var.name_hint, function, names)
        new = lifter.run()
        if new is not function:
            changed = True
            result[var] = dataclasses.replace(new)
            for added, body in lifter.added.items():
                result[added] = body
    return result if changed else mod


LAMBDA_LIFT = Pass("lambda_lift", lambda_lift, required=True)
