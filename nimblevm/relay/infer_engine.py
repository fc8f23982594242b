"""The walk of type inference: types for the nodes of functions, over one explicit stack (see
infer_type.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nimblevm.errors import RelayTypeError
from nimblevm.relay.analysis import pattern_text, unmatched_cases
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.infer_functions import FunctionInference
from nimblevm.relay.infer_patterns import PatternTyper
from nimblevm.relay.infer_recognise import same_unknowns, weakened
from nimblevm.relay.infer_refs import RefClaims
from nimblevm.relay.infer_weights import bind_weights
from nimblevm.relay.instantiate import Instantiation
from nimblevm.relay.ir import (
    Call,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    TypeData,
    Var,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.attr_types import attribute_fault
from nimblevm.relay.op.registry import Op
from nimblevm.relay.type_context import InferContext
from nimblevm.relay.type_errors import call_error, count_text, name_of, show
from nimblevm.relay.types import (
    HAS_DIM,
    HAS_HOLE,
    UNIT,
    FuncType,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    holes,
    scalar_type,
    substitute,
)
from nimblevm.relay.unify import HoleKind, Solver, TypeMismatch

_BOOL = scalar_type("bool")
_EVERYTHING = 1 << 62  # a mark behind every rigid dim


def constructor_type(constructor: Constructor, definition: TypeData) -> FuncType:
    """A constructor as a function: generic in the parameters of its type."""
    result = TypeCall(constructor.belong_to, definition.type_vars)
    return FuncType(constructor.inputs, result, definition.type_vars)


class Inference(FunctionInference):
    """The state of inference over one module."""

    def __init__(self, module: IRModule, refs: RefClaims | None = None) -> None:
        super().__init__(Solver(self._bound, refs))
        self.module = module
        self.type_args: dict[Call, tuple[Type, ...]] = {}
        self._globals: dict[GlobalVar, FuncType] = {}
        # Lifted functions: (parameter, dim that is its value); and values that are known to be a dim.
        self._dim_params: dict[Expr, tuple[tuple[int, DimVar], ...]] = {}
        self._dim_values: dict[Expr, Dim] = {}
        self._context = InferContext(self.solver)
        self._waiting: dict[IncompleteType, list[tuple[Callable[[Any], Type | None], Expr]]] = {}
        self._ready: list[tuple[Callable[[Any], Type | None], Expr]] = []
        self._patterns = PatternTyper(module, self.solver, self.types, self._extracted)
        self._claimed: set[DimVar] = set()
        self._enter: dict[type, Callable[[Any], None]] = {
            Var: self._enter_var,
            Constant: self._enter_constant,
            GlobalVar: self._enter_global,
            Constructor: self._enter_constructor,
            Op: self._enter_op,
            Call: self._enter_call,
            Let: self._enter_let,
            If: self._enter_if,
            Tuple: self._enter_tuple,
            TupleGetItem: self._enter_item,
            Function: self._enter_function,
            Match: self._enter_match,
            RefCreate: self._enter_ref_create,
            RefRead: self._enter_ref_read,
            RefWrite: self._enter_ref_write,
        }

    # --- functions of the module ---

    def declare(self, var: GlobalVar, function: Function) -> None:
        """Make a global function known by its signature (holes where it has no annotation)."""
        self._set_global(var, self._open_function(function))
        self._announce[function] = lambda type_: self._set_global(var, type_)
        dim_params = function.attrs.get("dim_params")
        if dim_params:
            self._dim_params[var] = tuple(dim_params)

    def define(self, var: GlobalVar, function: Function) -> None:
        """Infer a global function's body."""
        self._function = var.name_hint
        found = self.run(function)
        assert isinstance(found, FuncType)
        self._set_global(var, found)
        self._function = ""

    def conclude(self) -> None:
        """After all functions: type arguments that nothing determined (length of Nil) are unit."""
        solver = self.solver
        for hole in solver.type_arg_holes:
            left = solver.prune(hole)
            if isinstance(left, IncompleteType) and solver.is_plain(left):
                solver.bind(left, UNIT)
        self._drain()

    def _set_global(self, var: GlobalVar, type_: FuncType) -> None:
        self._globals[var] = type_
        self.types[var] = type_

    # --- driving ----------------------------------------------------------------------------------

    def run(self, root: Expr) -> Type:
        """Type `root` and everything under it."""
        types, stack, enter, ready = self.types, self._stack, self._enter, self._ready
        stack.append(root)
        while stack:
            try:
                while stack:
                    item = stack.pop()
                    if item.__class__ is tuple:
                        item[0](item[1])
                        if ready:
                            self._drain()
                    elif item not in types:
                        enter[item.__class__](item)
            except RelayTypeError:
                # The fault may lie in what was assumed of a recursive function.
                if not self._assume_less():
                    raise
        return types[root]

    def _bound(self, hole: IncompleteType) -> None:
        waiting = self._waiting.pop(hole, None)
        if waiting:
            self._ready.extend(waiting)

    def _drain(self) -> None:
        """Finish what waited for holes that are bound now."""
        fresh = self.solver.fresh
        kept = list(fresh)
        while self._ready:
            action, node = self._ready.pop()
            if node not in self._open:
                continue
            fresh.clear()
            try:
                found = action(node)
                if found is not None:
                    hole = self._open.pop(node)
                    found = self._recognise(node, found)
                    self.solver.settle(hole, found)
                    self.types[node] = found
            except (TypeMismatch, ValueError, ArithmeticError) as fault:
                raise self._error(str(fault), node) from None
        fresh[:] = kept

    def _finish(self, node: Expr, action: Callable[[Any], Type | None]) -> None:
        """Type a node by `action`; if that has to wait for a hole, a hole stands for the type."""
        fresh = self.solver.fresh
        if fresh:
            fresh.clear()
        try:
            found = action(node)
        except (TypeMismatch, ValueError, ArithmeticError) as fault:
            # Dims of a signature that are undefined or negative at the sizes of a call, among others.
            raise self._error(str(fault), node) from None
        if found is None:
            hole = self.solver.hole(HoleKind.RESULT)
            self._open[node] = hole
            found = hole
        elif fresh:
            found = self._recognise(node, found)
        self.types[node] = found
        self.order.append(node)

    def _wait(self, type_: Type, action: Callable[[Any], Type | None], node: Expr) -> None:
        for hole in holes(self.solver.resolve(type_)):
            self._waiting.setdefault(hole, []).append((action, node))

    def _recognise(self, node: Expr, found: Type) -> Type:
        """Use the names that an earlier inference gave the unknowns that this node makes."""
        fresh = self.solver.fresh
        old = node.checked_type
        if not fresh or old is None:
            return found
        args = self.type_args.get(node, ()) if isinstance(node, Call) else ()
        if isinstance(node, Call) and args and len(args) == len(node.type_args):
            mapping = same_unknowns(
                TupleType((found, *args)), TupleType((old, *node.type_args)), set(fresh)
            )
        else:
            mapping = same_unknowns(found, old, set(fresh))
        usable = {new: earlier for new, earlier in mapping.items() if self._reuse(earlier)}
        if not usable:
            return found
        if isinstance(node, Call) and args:
            self.type_args[node] = tuple(substitute(t, None, usable) for t in args)
        return substitute(found, None, usable)

    def _reuse(self, earlier: DimVar) -> bool:
        """Take an unknown of an earlier inference for one that is made now, if nobody else has it."""
        if earlier in self._claimed or earlier in self.solver.rigid:
            return False
        self._claimed.add(earlier)
        self.solver.add_rigid(earlier)
        return True

    def _extracted(self, var: Expr, found: Type) -> Type:
        """The type of a pattern variable that binds a field."""
        return self._recognise(var, self._unclaimed(var, found))

    def _unclaimed(self, node: Expr, found: Type) -> Type:
        """The type of an extracted value, less the claims that insert_checks took away."""
        old = node.checked_type
        if old is None or old is found or not old.flags & HAS_DIM:
            return found
        return weakened(self.solver.resolve(found), old, self._reuse)

    # --- leaves -----------------------------------------------------------------------------------

    def _enter_var(self, var: Var) -> None:
        annotation = var.type_annotation
        if annotation is None or annotation.flags & HAS_HOLE:
            if var.checked_type is None:
                raise self._error(f"%{var.name_hint} is not bound here", var)
            annotation = var.checked_type
        self.types[var] = annotation
        self.solver.add_rigid_of(annotation)

    def _enter_constant(self, node: Constant) -> None:
        assert node.checked_type is not None
        self.types[node] = node.checked_type

    def _enter_global(self, node: GlobalVar) -> None:
        self.types[node] = self._signature_of(node)

    def _signature_of(self, node: GlobalVar) -> FuncType:
        found = self._globals.get(node)
        if found is None:
            if node not in self.module:
                raise self._error(f"the module has no function @{node.name_hint}", node)
            found = self._globals[self.module.get_global_var(node.name_hint)]
        return found

    def _enter_constructor(self, node: Constructor) -> None:
        definition = self.module.type_definitions.get(node.belong_to)
        if definition is None:
            raise self._error(f"the module has no type {node.belong_to.name_hint}", node)
        self.types[node] = constructor_type(node, definition)

    def _enter_op(self, node: Op) -> None:
        # Whoever waits for it is on the stack, and has a place.
        user = next((i[1] for i in reversed(self._stack) if isinstance(i, tuple)), node)
        raise self._error(
            f"operator {node.name} is no value; wrap it: fn (%x) {{ {node.name}(%x) }}", user
        )

    # --- calls ------------------------------------------------------------------------------------

    def _enter_call(self, node: Call) -> None:
        stack = self._stack
        op = node.op
        if op.__class__ is Op:
            stack.append((self._leave_op_call, node))
        else:
            stack.append((self._leave_call, node))
        args = node.args
        if len(args) == 1:
            stack.append(args[0])
        else:
            stack.extend(args[::-1])
        if op.__class__ is not Op:
            stack.append(op)

    def _leave_op_call(self, node: Call) -> None:
        self._finish(node, self._type_op_call)

    def _type_op_call(self, node: Call) -> Type | None:
        """Run the relation, or None if an argument has a hole."""
        types, op = self.types, node.op
        assert isinstance(op, Op)
        args = tuple([types[a] for a in node.args])
        for arg in args:
            if arg.flags & HAS_HOLE:
                args = bind_weights(self.solver, op, node.attrs, args)
                unknown = [a for a in args if a.flags & HAS_HOLE]
                if unknown:
                    self._wait(unknown[0], self._type_op_call, node)
                    return None
                break
        if len(args) != len(op.args):
            wanted = count_text(len(op.args), f"argument ({', '.join(op.args)})")
            raise self._error(f"{op.name} takes {wanted}, got {len(args)}", node)
        context = self._context
        context.enter(node, args)
        fault_text = attribute_fault(op.attrs, node.attrs)
        if fault_text is not None:
            raise context.fail(fault_text)
        try:
            result = op.relation(context, args, node.attrs)
            if op.name.startswith("vm."):
                self._note_dims(node, op.name, args, result)
            return result
        except (ValueError, ArithmeticError) as fault:
            raise context.fail(str(fault)) from fault

    def _note_dims(self, node: Call, name: str, args: tuple[Type, ...], result: Type) -> None:
        """What the explicit operators of insert_checks and lambda_lift say about dims."""
        if name in ("vm.match_type", "vm.linearize"):
            self.solver.add_rigid_of(result)
        elif name == "vm.dim_value":
            self._dim_values[node] = node.attrs.dim
        elif name == "vm.dim_of" and isinstance(args[0], TensorType):
            self._dim_values[node] = args[0].shape[node.attrs.axis]

    def _leave_call(self, node: Call) -> None:
        self._finish(node, self._type_call)

    def _type_call(self, node: Call) -> Type | None:
        solver = self.solver
        callee = solver.prune(self.types[node.op])
        args = [self.types[a] for a in node.args]
        if isinstance(callee, IncompleteType):
            result = solver.hole(HoleKind.RESULT)
            solver.bind(callee, FuncType([solver.resolve(a) for a in args], result))
            return result
        if not isinstance(callee, FuncType):
            raise self._error(
                f"{name_of(node.op)} is called but is no function", node, [self._note(node.op)]
            )
        if len(args) != len(callee.arg_types):
            raise self._error(
                f"{name_of(node.op)} takes {count_text(len(callee.arg_types), 'argument')}, "
                f"got {len(args)}",
                node,
                [self._note(node.op)],
            )
        op = node.op
        if isinstance(op, GlobalVar | Constructor):
            mark, known = 0, True
        else:
            mark, known = self._marks.get(op, _EVERYTHING), op in self._marks
        call = Instantiation(solver, callee, mark, node.type_args)
        for index, dim_var in self._dim_params.get(op, ()):
            if node.args[index] in self._dim_values:
                call.dims[dim_var] = self._dim_values[node.args[index]]
                call.source[dim_var] = index
        try:
            call.bind(args)
        except TypeMismatch as mismatch:
            raise self._call_error(node, callee, mismatch) from None
        if self._ready:
            self._drain()
        if callee.type_params:
            self.type_args[node] = call.type_args()
        found = call.result(claimed=not known)
        return self._unclaimed(node, found) if call.extracts else found

    def _call_error(self, node: Call, callee: FuncType, mismatch: TypeMismatch) -> Exception:
        op, position = node.op, mismatch.argument or 0
        function = op if isinstance(op, Function) else None
        if isinstance(op, GlobalVar) and op in self.module:
            function = self.module.function(op)
        wanted = self.solver.resolve(callee.arg_types[position])
        given = self._note(
            node.args[position], f"argument {position} ({name_of(node.args[position])})"
        )
        return call_error(node, position, mismatch.reason, function, wanted, given)

    # --- let --------------------------------------------------------------------------------------

    def _enter_let(self, node: Let) -> None:
        value = node.value
        if value.__class__ is Function and node.var not in self.types:
            # The variable may occur in its own value: recursion goes through what is written.
            assert isinstance(value, Function)
            annotation = node.var.type_annotation
            opened = self._open_function(value)
            self.types[node.var] = annotation or opened
            if annotation is None:
                self._announce[value] = lambda type_: self.types.update({node.var: type_})
            self._marks[node.var] = self.solver.mark()
        stack = self._stack
        stack.append((self._leave_let, node))
        stack.append(node.body)
        stack.append((self._bind_let, node))
        stack.append(value)

    def _bind_let(self, node: Let) -> None:
        var = node.var
        found = self.types[node.value]
        annotation = var.type_annotation
        if node.value in self._dim_values:
            self._dim_values[var] = self._dim_values[node.value]
        if annotation is None:
            self.types[var] = found
            return
        try:
            self.solver.flow(found, annotation)
        except TypeMismatch as mismatch:
            notes = [
                self._note(node.value),
                (var.span, f"%{var.name_hint} is annotated {show(annotation)}"),
            ]
            where = node if node.span is not None else var
            raise self._error(
                f"{mismatch.reason}, for let %{var.name_hint}", where, notes
            ) from None
        self.types[var] = annotation
        self.solver.add_rigid_of(annotation)

    def _leave_let(self, node: Let) -> None:
        self.types[node] = self.types[node.body]
        self.order.append(node)

    # --- branches ---------------------------------------------------------------------------------

    def _enter_if(self, node: If) -> None:
        self._stack.extend(
            (
                (self._leave_if, node),
                node.false_branch,
                node.true_branch,
                (self._check_condition, node),
                node.cond,
            )
        )

    def _check_condition(self, node: If) -> None:
        found = self.types[node.cond]
        if found is not _BOOL:
            try:
                self.solver.flow(found, _BOOL)
            except TypeMismatch:
                raise self._error(
                    "the condition of if must be a rank-0 bool tensor",
                    node,
                    [self._note(node.cond, f"the condition ({name_of(node.cond)})")],
                ) from None

    def _leave_if(self, node: If) -> None:
        self._finish(node, self._type_if)

    def _type_if(self, node: If) -> Type:
        return self._join_all(
            node, [("the true branch", node.true_branch), ("the false branch", node.false_branch)]
        )

    def _join_all(self, node: Expr, branches: list[tuple[str, Expr]]) -> Type:
        first_name, first = branches[0]
        result = self.types[first]
        for name, branch in branches[1:]:
            try:
                result = self.solver.join(result, self.types[branch])
            except TypeMismatch as mismatch:
                notes = [self._note(first, first_name), self._note(branch, name)]
                raise self._error(f"the branches differ: {mismatch.reason}", node, notes) from None
        return result

    def _enter_match(self, node: Match) -> None:
        self._stack.extend(((self._open_match, node), node.data))

    def _open_match(self, node: Match) -> None:
        found = self.solver.resolve(self.types[node.data])
        if not node.clauses:
            raise self._error("a match needs at least one clause", node)
        notes = [self._note(node.data)]
        for clause in node.clauses:
            self._patterns.bind(clause.lhs, found, notes)
        if node.complete:
            missing = unmatched_cases(node, self.module)
            if missing:
                raise self._error(
                    "match is not complete; missing: "
                    + ", ".join(map(pattern_text, missing))
                    + " (add them, or write match?)",
                    node,
                    notes,
                )
        self._stack.append((self._leave_match, node))
        self._stack.extend(clause.rhs for clause in reversed(node.clauses))

    def _leave_match(self, node: Match) -> None:
        self._finish(node, self._type_match)

    def _type_match(self, node: Match) -> Type:
        return self._join_all(
            node, [(f"clause {i + 1}", c.rhs) for i, c in enumerate(node.clauses)]
        )

    # --- tuples and refs --------------------------------------------------------------------------

    def _enter_tuple(self, node: Tuple) -> None:
        self._stack.append((self._leave_tuple, node))
        self._stack.extend(node.fields[::-1])

    def _leave_tuple(self, node: Tuple) -> None:
        types = self.types
        types[node] = TupleType([types[f] for f in node.fields]) if node.fields else UNIT
        self.order.append(node)

    def _enter_item(self, node: TupleGetItem) -> None:
        self._stack.extend(((self._leave_item, node), node.tuple_value))

    def _leave_item(self, node: TupleGetItem) -> None:
        self._finish(node, self._type_item)

    def _type_item(self, node: TupleGetItem) -> Type | None:
        whole = self.solver.prune(self.types[node.tuple_value])
        if isinstance(whole, IncompleteType):
            self._wait(whole, self._type_item, node)
            return None
        if not isinstance(whole, TupleType):
            raise self._error(
                f"field {node.index} of something that is no tuple",
                node,
                [self._note(node.tuple_value)],
            )
        if not 0 <= node.index < len(whole.fields):
            raise self._error(
                f"a tuple of {len(whole.fields)} has no field {node.index}",
                node,
                [self._note(node.tuple_value)],
            )
        return whole.fields[node.index]

    def _enter_ref_create(self, node: RefCreate) -> None:
        self._stack.extend(((self._leave_ref_create, node), node.value))

    def _leave_ref_create(self, node: RefCreate) -> None:
        self._finish(node, self._type_ref_create)

    def _type_ref_create(self, node: RefCreate) -> Type:
        # Later writes may store other sizes: only an annotation claims an unknown dim of a content.
        content = self.solver.resolve(self.types[node.value])
        return RefType(self.solver.forget_dims(self.solver.refs.claim(content), static=False))

    def _enter_ref_read(self, node: RefRead) -> None:
        self._stack.extend(((self._leave_ref_read, node), node.ref))

    def _leave_ref_read(self, node: RefRead) -> None:
        self._finish(node, self._type_ref_read)

    def _type_ref_read(self, node: RefRead) -> Type:
        return self._unclaimed(node, self.solver.extract(self._content(node, node.ref)))

    def _content(self, node: Expr, ref: Expr) -> Type:
        found = self.solver.prune(self.types[ref])
        if isinstance(found, IncompleteType):
            content = self.solver.hole()
            self.solver.bind(found, RefType(content))
            return content
        if not isinstance(found, RefType):
            raise self._error("ref_read and ref_write need a ref", node, [self._note(ref)])
        return found.value

    def _enter_ref_write(self, node: RefWrite) -> None:
        self._stack.extend(((self._leave_ref_write, node), node.value, node.ref))

    def _leave_ref_write(self, node: RefWrite) -> None:
        try:
            solver = self.solver
            content = solver.resolve(self._content(node, node.ref))
            value = solver.resolve(self.types[node.value])
            if not solver.refs.settle(content, value):
                solver.flow(value, content)
        except TypeMismatch as mismatch:
            notes = [self._note(node.value), self._note(node.ref)]
            raise self._error(f"{mismatch.reason}, for what the ref holds", node, notes) from None
        self.types[node] = UNIT
        self.order.append(node)
