"""What flows where: the constraints between device domains that a program makes.

Values that are one object at run time have one domain: names and views of a value, arguments and parameters, results,
captures, fields of tuples, contents of references, both branches of an if. Soft edges, which become copies where their
ends get different devices, stand before the operands of kernels, around fields of data types, behind what the host
makes, at annotations, and at the parameters of functions that are called from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nimblevm.compiler.devices import Devices, KeptFields, UnmetAnnotation
from nimblevm.compiler.domains import Domains, Leaf, Tree, leaves, unify
from nimblevm.compiler.kernel_table import KernelCache
from nimblevm.compiler.op_class import OpClass, class_of, is_int
from nimblevm.compiler.rewrite import is_primitive, let_chain, sub_blocks, type_of
from nimblevm.errors import CompileError
from nimblevm.kernels.device_support import supports
from nimblevm.kernels.lower import flat_types
from nimblevm.relay.ir import (
    Call,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
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
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.device import ANNOTATIONS
from nimblevm.relay.op.registry import Op
from nimblevm.relay.op.vm import LINEARIZE
from nimblevm.relay.text import type_text
from nimblevm.relay.types import (
    FuncType,
    GlobalTypeVar,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    parts,
)

REPEATED = 64.0
"""How much a copy in a function that calls itself weighs."""
WISH = 1e6

_SAME = frozenset(
    {"vm.match_type", "vm.check_broadcast", "vm.reshape_tensor", "vm.rows", "vm.shrink"}
)
_SIZES = frozenset({"vm.dim_of", "vm.dim_value", "vm.bind_dim", "shape_of"})


@dataclass(eq=False, slots=True)
class Kernel:
    """A kernel call. place: the domain of its operands; pinned: why it can't be chosen, "" if it can."""

    function: str
    call: Call
    place: Leaf
    pinned: str
    name: str
    int_results: bool


@dataclass(eq=False, slots=True)
class Edge:
    """Two leaves between which a copy may stand, and how much it weighs."""

    a: Leaf
    b: Leaf
    weight: float


@dataclass(eq=False, slots=True)
class Signature:
    """Domains of a function's parameters and result."""

    params: tuple[Tree, ...]
    result: Tree

    @property
    def tree(self) -> Tree:
        return (*self.params, self.result)


@dataclass(eq=False, slots=True)
class Flow:
    """What `collect` finds. values: of each variable; raw: of what a value is before it is copied into its variable's
    domain; wanted: of a soft operand, (value, index of the child) -> the domains it must have.
    """

    domains: Domains
    signatures: dict[GlobalVar, Signature] = field(default_factory=dict)
    values: dict[Var, Tree] = field(default_factory=dict)
    raw: dict[Expr, Tree] = field(default_factory=dict)
    wanted: dict[tuple[Expr, int], Tree] = field(default_factory=dict)
    kernels: dict[Call, Kernel] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    unmet: list[UnmetAnnotation] = field(default_factory=list)
    kept: dict[Var, KeptFields] = field(default_factory=dict)
    entries: frozenset[GlobalVar] = frozenset()


class Collector:
    """Walks the functions of a module in the form of fuse_ops."""

    def __init__(self, mod: IRModule, devices: Devices, kernels: KernelCache) -> None:
        self.mod = mod
        self.devices = devices
        self.cache = kernels
        self.flow = Flow(Domains(mod))
        self.supported: dict[str, bool] = {}
        self.weight = 1.0
        self.name = ""
        self.host = Leaf(0)

    def run(self, repeated: frozenset[GlobalVar], entries: frozenset[GlobalVar]) -> Flow:
        flow = self.flow
        flow.entries = entries
        functions = {v: f for v, f in self.mod.functions.items() if not is_primitive(f)}
        for var, function in functions.items():
            if "Closure" in function.attrs:
                continue
            params = tuple(flow.domains.fresh(type_of(p)) for p in function.params)
            result = flow.domains.fresh(function.ret_type or type_of(function.body))
            flow.signatures[var] = Signature(params, result)
        for var, function in functions.items():
            if "Closure" in function.attrs:
                flow.signatures[var] = self._maker(function)
        for var, function in functions.items():
            if "Closure" in function.attrs:
                continue
            self.weight = REPEATED if var in repeated else 1.0
            self.name = var.name_hint
            signature = flow.signatures[var]
            flow.values.update(zip(function.params, signature.params, strict=True))
            if var in entries:
                self._entry(function, signature)
            self._blocks(function.body, signature.result)
        return flow

    def _maker(self, function: Function) -> Signature:
        """A function that makes a closure: its parameters are the target's first, its result is the rest."""
        inner = function.body
        target = (
            inner.body.op if isinstance(inner, Function) and isinstance(inner.body, Call) else None
        )
        if not isinstance(target, GlobalVar):
            raise CompileError("a function with attribute Closure must call a global")
        own = self._signature(target)
        count = len(function.params)
        return Signature(own.params[:count], (*own.params[count:], own.result))

    def _signature(self, var: GlobalVar) -> Signature:
        return self.flow.signatures[self.mod.get_global_var(var.name_hint)]

    # --- the outside ------------------------------------------------------------------------------

    def _entry(self, function: Function, signature: Signature) -> None:
        """Tensors that come from outside are copied at the start; what else holds tensors keeps them on the host."""
        for param, tree in zip(function.params, signature.params, strict=True):
            stack: list[tuple[Type, Tree]] = [(type_of(param), tree)]
            while stack:
                current, here = stack.pop()
                if isinstance(current, TensorType) and isinstance(here, Leaf):
                    here.entry = True
                    self._edge(self.host, here)
                elif isinstance(current, TupleType) and isinstance(here, tuple):
                    stack.extend(zip(current.fields, here, strict=True))
                elif self._keep_on_host(current, here):
                    text = type_text(type_of(param))
                    kept = KeptFields(self.name, f"%{param.name_hint}", text, param.span)
                    self.flow.kept[param] = kept
        result = function.ret_type or type_of(function.body)
        for part, tree in _with_trees(result, signature.result):
            if isinstance(part, FuncType | RefType):
                self._keep_on_host(part, tree)

    def _keep_on_host(self, type_: Type, tree: Tree) -> bool:
        """Whether there are tensors in it."""
        found = leaves(tree)
        for data in _data_types(type_, self.mod):
            for constructor in self.mod.type_definitions[data].constructors:
                found += self.flow.domains.own_leaves(constructor)
        for leaf in found:
            unify(leaf, Leaf(0))
        return bool(found)

    def _edge(self, a: Leaf, b: Leaf, weight: float = 1.0) -> None:
        self.flow.edges.append(Edge(a, b, self.weight * weight))

    def _soft(self, a: Tree, b: Tree, type_: Type) -> None:
        """Tensors, also in tuples, may be copied on the way; everything else must agree."""
        stack: list[tuple[Type, Tree, Tree]] = [(type_, a, b)]
        while stack:
            current, x, y = stack.pop()
            if isinstance(current, TensorType) and isinstance(x, Leaf) and isinstance(y, Leaf):
                self._edge(x, y)
            elif isinstance(current, TupleType) and isinstance(x, tuple) and isinstance(y, tuple):
                stack.extend(zip(current.fields, x, y, strict=True))
            else:
                unify(x, y)

    # --- blocks -----------------------------------------------------------------------------------

    def _blocks(self, body: Expr, result: Tree) -> None:
        work: list[tuple[Expr, Tree]] = [(body, result)]
        while work:
            block, target = work.pop()
            lets, tail = let_chain(block)
            for let in lets:
                nested = sub_blocks(let.value)
                if nested:
                    tree = self.flow.domains.fresh(type_of(let.var))
                    self._patterns(let.value)
                    work.extend((b, tree) for b in nested)
                    self.flow.values[let.var] = tree
                else:
                    self.flow.values[let.var] = self._bound(let.value, type_of(let.var))
            nested = sub_blocks(tail)
            if nested:
                self._patterns(tail)
                work.extend((b, target) for b in nested)
            else:
                unify(self._bound(tail, type_of(tail)), target)

    def _bound(self, value: Expr, type_: Type) -> Tree:
        """The domains of a value once it has a name: behind the copy if there may be one."""
        tree, soft = self._value(value)
        if not soft:
            return tree
        made = self.flow.domains.fresh(type_)
        self.flow.raw[value] = tree
        self._soft(tree, made, type_)
        return made

    def _patterns(self, value: Expr) -> None:
        match value:
            case If():
                self._atom(value.cond)
            case Match():
                tree = self._atom(value.data)
                for clause in value.clauses:
                    self._bind(clause.lhs, tree, type_of(value.data))

    def _bind(self, pattern: Pattern, tree: Tree, type_: Type) -> None:
        stack: list[tuple[Pattern, Tree]] = [(pattern, tree)]
        while stack:
            current, here = stack.pop()
            match current:
                case PatternVar(var=var):
                    self.flow.values[var] = here
                    if current is not pattern:
                        self._extracted(var, here)
                case PatternTuple(patterns=fields):
                    trees = here if isinstance(here, tuple) else (here,) * len(fields)
                    stack.extend(zip(fields, trees, strict=True))
                case PatternConstructor(constructor=constructor, patterns=fields):
                    for index, inner in enumerate(fields):
                        stack.append((inner, self.flow.domains.field(here, constructor, index)))

    def _extracted(self, var: Var, inside: Tree) -> None:
        """A variable that a pattern takes out of a value."""
        made = self.flow.domains.fresh(type_of(var))
        self.flow.raw[var] = inside
        self.flow.values[var] = made
        self._soft(inside, made, type_of(var))

    def _atom(self, atom: Expr) -> Tree:
        match atom:
            case Var():
                return self.flow.values[atom]
            case GlobalVar():
                return self._signature(atom).tree
            case Tuple():
                return tuple(self._atom(f) for f in atom.fields)
        return self.flow.domains.fresh(type_of(atom))

    # --- values -----------------------------------------------------------------------------------

    def _value(self, value: Expr) -> tuple[Tree, bool]:
        """The domains of a simple expression, and whether what it gives may be copied."""
        match value:
            case Var() | GlobalVar() | Constant():
                return self._atom(value), False
            case Tuple():
                return self._operands(value.fields, value), False
            case TupleGetItem():
                tree = self._atom(value.tuple_value)
                return (tree[value.index] if isinstance(tree, tuple) else tree), False
            case RefCreate():
                return self._operands((value.value,), value), False
            case RefRead():
                return self._content(value.ref), False
            case RefWrite():
                unify(self._content(value.ref), self._operands((value.value,), value, 1)[0])
                return (), False
            case Call():
                return self._call(value)
        raise CompileError(f"{type(value).__name__} is not in the form of fuse_ops: {value!r}")

    def _content(self, ref: Expr) -> Tree:
        """The domains of what a reference holds."""
        tree = self._atom(ref)
        return tree[0] if isinstance(tree, tuple) else tree

    def _operands(self, atoms: tuple[Expr, ...], value: Expr, first: int = 0) -> tuple[Tree, ...]:
        """Domains of operands that must be what they are; constants and tuples take them on."""
        trees = tuple(self._atom(a) for a in atoms)
        for index, (atom, tree) in enumerate(zip(atoms, trees, strict=True), first):
            if not isinstance(atom, Var):
                self.flow.wanted[value, index] = tree
        return trees

    def _call(self, call: Call) -> tuple[Tree, bool]:
        op = call.op
        match op:
            case Op():
                return self._operator(call, op)
            case Constructor():
                return self._construct(call, op), False
            case GlobalVar():
                signature = self._signature(op)
                unify(self._operands(call.args, call, 1), signature.params)
                return signature.result, False
            case Function() if is_primitive(op):
                return self._kernel(call, op)
        tree = self._atom(op)
        args = self._operands(call.args, call, 1)
        if not isinstance(tree, tuple):
            for arg in args:
                unify(tree, arg)
            return tree, False
        unify(args, tree[:-1])
        return tree[-1], False

    def _construct(self, call: Call, constructor: Constructor) -> Tree:
        tree = self.flow.domains.fresh(type_of(call))
        for index, atom in enumerate(call.args):
            inside = self.flow.domains.field(tree, constructor, index)
            self.flow.wanted[call, 1 + index] = inside
            self._soft(self._atom(atom), inside, type_of(atom))
        return tree

    def _operator(self, call: Call, op: Op) -> tuple[Tree, bool]:
        name = op.name
        if class_of(call, unbox=True) is OpClass.SCALAR:
            return None, False
        if name in ANNOTATIONS:
            return self._annotation(call, name)
        if (name in _SAME or op.views) and not is_int(type_of(call)):
            if is_int(type_of(call.args[0])):
                return self._native(call)  # a number becomes a tensor where numbers are
            return self._operands(call.args, call, 1)[0], False
        if name == "vm.append":
            source, tail = self._operands(call.args, call, 1)
            unify(source, tail)
            return source, False
        if name in _SIZES:
            return self._native(call)
        for index, atom in enumerate(call.args):
            tree = self._atom(atom)
            if isinstance(type_of(atom), TensorType) and isinstance(tree, Leaf):
                self.flow.wanted[call, 1 + index] = self.host
                self._edge(tree, self.host)
            else:
                self._keep_on_host(type_of(atom), tree)
        return self._native(call)

    def _native(self, call: Call) -> tuple[Tree, bool]:
        """What the host makes; the tables of a tree are somebody's data all the same."""
        tree = self.flow.domains.fresh(type_of(call))
        for leaf in leaves(tree):
            leaf.pin, leaf.native = 0, call.op is not LINEARIZE
        return tree, bool(leaves(tree))

    def _annotation(self, call: Call, name: str) -> tuple[Tree, bool]:
        attrs = call.attrs
        source = self._operands(call.args, call, 1)[0]
        backend = attrs.device if name == "on_device" else attrs.dst_device
        device = self.devices.index(backend)
        if device is None:
            self.flow.unmet.append(UnmetAnnotation(self.name, backend, call.span))
        if device is None or not isinstance(source, Leaf):
            return source, False
        if name == "on_device" and attrs.constrain_body:
            _wish(source, device)
        if name == "on_device" and not attrs.constrain_result:
            return source, False
        made = Leaf()
        _wish(made, device)
        self._edge(source, made)
        self.flow.raw[call] = source
        return made, False

    def _kernel(self, call: Call, function: Function) -> tuple[Tree, bool]:
        entry, _ = self.cache.find(function)
        device, pinned = self._choice(function, entry.name)
        type_ = type_of(call)
        tree = self.flow.domains.fresh(type_)
        place = Leaf(device)
        for leaf in leaves(tree):
            unify(leaf, place)
        place.flexible = not pinned
        place.native = device == 0
        for atom in call.args:
            if not isinstance(atom, Constant):
                for leaf in leaves(self._atom(atom)):
                    self._edge(leaf, place)
        fields = type_.fields if isinstance(type_, TupleType) else (type_,)
        scalars = len(leaves(tree)) < len(fields)
        if scalars:
            self._edge(self.host, place, 0.5)
        self.flow.kernels[call] = Kernel(self.name, call, place, pinned, entry.name, scalars)
        return tree, bool(pinned) and bool(leaves(tree))

    def _choice(self, function: Function, name: str) -> tuple[int | None, str]:
        """Where a kernel must run and why; None: where it is best."""
        region = function.attrs.get("Compiler")
        if region is not None:
            device = self.devices.externals.get(region, 0)
            return device, f"external code for {region}"
        if name not in self.supported:
            entry = self.cache.find(function)[0]
            self.supported[name] = supports(entry.lowered.kernel)
        if self.supported[name] and self._takes_scalars(function):
            return 0, "it takes a number as a tensor"
        if self.supported[name]:
            return None, ""
        return 0, "no device code for it: it finds sizes, or only C computes it"

    def _takes_scalars(self, function: Function) -> bool:
        """Whether a rank-0 integer is an operand, not a dim: the host alone has such tensors."""
        types = [t for p in function.params for t in flat_types(type_of(p))]
        ints = self.cache.int_params(function)
        return any(is_int(t) for i, t in enumerate(types) if i not in ints)


def _wish(leaf: Leaf, device: int) -> None:
    mark = Leaf()
    mark.wish[device] = WISH
    unify(leaf, mark)


def _with_trees(type_: Type, tree: Tree) -> list[tuple[Type, Tree]]:
    """The parts of a type of nested tuples with their domains."""
    found: list[tuple[Type, Tree]] = []
    stack = [(type_, tree)]
    while stack:
        current, here = stack.pop()
        if isinstance(current, TupleType) and isinstance(here, tuple):
            stack.extend(zip(current.fields, here, strict=True))
        else:
            found.append((current, here))
    return found


def _data_types(type_: Type, mod: IRModule) -> set[GlobalTypeVar]:
    """The data types that a type mentions, through their definitions."""
    found: set[GlobalTypeVar] = set()
    seen: set[Type] = set()
    stack = [type_]
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        stack.extend(parts(current))
        if isinstance(current, TypeCall) and current.func not in found:
            definition = mod.type_definitions.get(current.func)
            if definition is not None:
                found.add(current.func)
                stack.extend(t for c in definition.constructors for t in c.inputs)
    return found


__all__ = ["Collector", "Edge", "Flow", "Kernel", "Signature"]
