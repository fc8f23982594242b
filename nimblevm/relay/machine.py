"""What evaluates Relay: a machine with two stacks.

`work` holds expressions to evaluate and continuations (function, arguments...), `values` the results. An
activation is a Frame; a call in tail position leaves nothing of its caller on the stacks. Meaning of a shared
node: it is evaluated once in the innermost block around all of its uses, before the first of them (sharing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from nimblevm.abi import MAX_RANK
from nimblevm.errors import (
    CompileError,
    DimOverflow,
    FunctionNotFound,
    InternalError,
    InvalidInput,
    MatchFailure,
    NimbleError,
    OutOfMemory,
    ValueKindError,
)
from nimblevm.relay import ir
from nimblevm.relay.claims import agrees, check, found_sizes, has_claims
from nimblevm.relay.dim_scope import DimScope
from nimblevm.relay.dims import DimVar, free_vars
from nimblevm.relay.levels import LevelLoop, LevelRun
from nimblevm.relay.matching import matched
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import Op, vm
from nimblevm.relay.op.concrete import ConcreteContext, concrete_type
from nimblevm.relay.sharing import Sharing, find_sharing
from nimblevm.relay.steps import Repetition, StepLoop
from nimblevm.relay.types import (
    HAS_DIM,
    FuncType,
    TensorType,
    TupleType,
    Type,
    free_dims,
    substitute,
    value_tensors,
)
from nimblevm.relay.values import ADTValue, Closure, Frame, RefValue, Value, describe

Continuation = tuple[Any, ...]
MAX_AXES = 32
"""Of tensors of the interpreter: numpy has 64, 32 in its iterators, and some operators work on twice as many."""
_MISSING = object()


class Program:
    """A module as machines see it, with what they learned of it."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self._shared: dict[ir.Function, Sharing] = {}
        self._relations: dict[tuple[Op, tuple[Type, ...], Any], Type] = {}
        self._returns: dict[ir.Function, bool] = {}

    def sharing_of(self, function: ir.Function) -> Sharing:
        """The shared nodes of a global function."""
        found = self._shared.get(function)
        if found is None:
            found = self._shared[function] = find_sharing(function)
        return found

    def checks_result(self, function: ir.Function) -> bool:
        """Whether the written result type of a function has dims to check."""
        found = self._returns.get(function)
        if found is None:
            found = self._returns[function] = has_claims(function.ret_type)
        return found

    def global_closure(self, var: ir.GlobalVar) -> Closure:
        """A global function as a value."""
        if var.name_hint not in self.module:
            raise FunctionNotFound(f"the module has no function @{var.name_hint}")
        return Closure(self.module.function(var.name_hint), None, var.name_hint)

    def apply(self, op: Op, args: tuple[Value, ...], attrs: Any) -> Value:
        """One operator on values: its demands are decided by its relation, then the reference computes."""
        types = tuple(concrete_type(arg) for arg in args)
        known = tuple(t for t in types if t is not None)
        if len(known) != len(types):
            raise ValueKindError(
                f"{op.name}: can't compute with {', '.join(describe(a) for a in args)}"
            )
        key = (op, known, attrs)
        expected = self._relations.get(key)
        if expected is None:
            if len(self._relations) > 4096:
                self._relations.clear()
            expected = op.relation(ConcreteContext(op, known), known, attrs)
            _check_axes(op.name, (*known, expected))
            self._relations[key] = expected
        try:
            result = op.reference(args, attrs, expected)
        except (ValueError, MemoryError) as error:
            if isinstance(error, NimbleError):
                raise
            if "too big" in str(error):
                raise DimOverflow(f"{op.name}: a result {expected!r} is too large") from error
            if isinstance(error, MemoryError):
                raise OutOfMemory(
                    f"{op.name}: no memory to compute {expected!r}: {error}"
                ) from error
            raise
        if not agrees(result, expected):
            raise InternalError(
                f"{op.name}: the reference gave {describe(result)}, the relation {expected!r}"
            )
        return result


def _check_axes(name: str, types: tuple[Type, ...]) -> None:
    """Compiled programs hold tensors of MAX_RANK axes; those of more than numpy computes with are refused here too."""
    for type_ in types:
        for part in type_.fields if isinstance(type_, TupleType) else (type_,):
            if isinstance(part, TensorType) and len(part.shape) > MAX_AXES:
                raise CompileError(
                    f"{name}: {part!r} has rank {len(part.shape)}; the interpreter computes with tensors of at most "
                    f"{MAX_AXES} axes (the runtime with {MAX_RANK}): merge some with reshape"
                )


def param_type(var: ir.Var) -> Type | None:
    """The type of a variable: as written, else as inferred."""
    return var.type_annotation if ir.is_complete(var.type_annotation) else var.checked_type


class Machine:
    """The state of one run."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.work: list[ir.Expr | Continuation] = []
        self.values: list[Value] = []
        self.frame: Frame | None = None

    def call(self, function: Value, args: Sequence[Value]) -> Value:
        """Run a function value to its end."""
        self._call(function, tuple(args), None)
        work = self.work
        while work:
            item = work.pop()
            if isinstance(item, tuple):
                item[0](self, *item[1:])
            else:
                self._evaluate(item)
        return self.values.pop()

    @property
    def here(self) -> Frame:
        if self.frame is None:
            raise InternalError("the interpreter has no activation")
        return self.frame

    # --- expressions ----------------------------------------------------------------------------

    def _evaluate(self, node: Any) -> None:
        frame = self.here
        home = frame.sharing.owner.get(node)
        if home is not None:
            owner = frame
            while owner.function is not home and owner.parent is not None:
                owner = owner.parent
            known = owner.values.get(node, _MISSING)
            if known is not _MISSING:
                self.values.append(known)
                return
            self.work.append((Machine._store, owner, node))
            if owner is not frame:
                self.work.append((Machine._return, frame))
                self.frame = owner
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise InternalError(f"can't evaluate {type(node).__name__}")
        handler(self, node)

    def _store(self, frame: Frame, node: ir.Expr) -> None:
        frame.values[node] = self.values[-1]

    def _return(self, frame: Frame | None) -> None:
        self.frame = frame

    def _leaf(self, node: ir.Expr) -> None:
        self.values.append(node)

    def _constant(self, node: ir.Constant) -> None:
        self.values.append(node.data)

    def _global(self, node: ir.GlobalVar) -> None:
        self.values.append(self.program.global_closure(node))

    def _var(self, node: ir.Var) -> None:
        frame: Frame | None = self.frame
        while frame is not None:
            found = frame.values.get(node, _MISSING)
            if found is not _MISSING:
                self.values.append(found)
                return
            frame = frame.parent
        raise InvalidInput(
            f"variable %{node.name_hint} has no value: it is not bound in the program"
        )

    def _evaluate_before(self, node: ir.Expr) -> None:
        """Push the shared nodes that run before the blocks of `node`, whose continuation is pushed already."""
        for early in reversed(self.here.sharing.before.get(node, ())):
            self.work.append((Machine._drop,))
            self.work.append(early)

    def _drop(self) -> None:
        """The value of a shared node is kept in its activation."""
        self.values.pop()

    def _function(self, node: ir.Function) -> None:
        self.work.append((Machine._close_over, node))
        self._evaluate_before(node)

    def _close_over(self, node: ir.Function) -> None:
        self.values.append(Closure(node, self.frame))

    def _tuple(self, node: ir.Tuple) -> None:
        self.work.append((Machine._make_tuple, len(node.fields)))
        self.work.extend(reversed(node.fields))

    def _make_tuple(self, count: int) -> None:
        self.values.append(self._pop(count))

    def _pop(self, count: int) -> tuple[Value, ...]:
        if not count:
            return ()
        found = tuple(self.values[-count:])
        del self.values[-count:]
        return found

    def _get_item(self, node: ir.TupleGetItem) -> None:
        self.work.append((Machine._project, node))
        self.work.append(node.tuple_value)

    def _project(self, node: ir.TupleGetItem) -> None:
        value = self.values.pop()
        if not isinstance(value, tuple) or not 0 <= node.index < len(value):
            raise ValueKindError(f"{place(node)}field {node.index} of {describe(value)}")
        self.values.append(value[node.index])

    def _let(self, node: ir.Let) -> None:
        self.work.append((Machine._bind, node))
        self.work.append(node.value)

    def _bind(self, node: ir.Let) -> None:
        value = self.values.pop()
        type_ = param_type(node.var)
        if type_ is not None and has_claims(type_):
            check(((value, type_, f"{place(node)}%{node.var.name_hint}"),), self.here.dims)
        self.here.values[node.var] = value
        self.work.append(node.body)

    def _if(self, node: ir.If) -> None:
        self.work.append((Machine._branch, node))
        self._evaluate_before(node)
        self.work.append(node.cond)

    def _branch(self, node: ir.If) -> None:
        cond = self.values.pop()
        if not isinstance(cond, np.ndarray) or cond.ndim or cond.dtype != np.bool_:
            raise ValueKindError(
                f"{place(node)}a condition must be a rank-0 bool, not {describe(cond)}"
            )
        self._claim_later(node)
        self.work.append(node.true_branch if cond else node.false_branch)

    def _ref_create(self, node: ir.RefCreate) -> None:
        self.work.append((Machine._make_ref,))
        self.work.append(node.value)

    def _make_ref(self) -> None:
        self.values.append(RefValue(self.values.pop()))

    def _ref_read(self, node: ir.RefRead) -> None:
        self.work.append((Machine._read, node))
        self.work.append(node.ref)

    def _read(self, node: ir.RefRead) -> None:
        ref = self.values.pop()
        if not isinstance(ref, RefValue):
            raise ValueKindError(f"{place(node)}ref_read of {describe(ref)}")
        self.values.append(ref.content)
        if node.checked_type is not None:
            self._claim(node)

    def _ref_write(self, node: ir.RefWrite) -> None:
        self.work.append((Machine._write, node))
        self.work.append(node.value)
        self.work.append(node.ref)

    def _write(self, node: ir.RefWrite) -> None:
        value = self.values.pop()
        ref = self.values.pop()
        if not isinstance(ref, RefValue):
            raise ValueKindError(f"{place(node)}ref_write to {describe(ref)}")
        ref.content = value
        self.values.append(())

    # --- match ----------------------------------------------------------------------------------

    def _match(self, node: ir.Match) -> None:
        self.work.append((Machine._select, node))
        self._evaluate_before(node)
        self.work.append(node.data)

    def _select(self, node: ir.Match) -> None:
        value = self.values.pop()
        for clause in node.clauses:
            bound = matched(clause.lhs, value)
            if bound is None:
                continue
            # The claims of one clause are about one value: variables first get their numbers, then all is compared.
            claims = [
                (part, type_, f"{place(node)}%{var.name_hint}")
                for var, part in bound
                if (type_ := param_type(var)) is not None and has_claims(type_)
            ]
            check(claims, self.here.dims)
            self.here.values.update(bound)
            self._claim_later(node)
            self.work.append(clause.rhs)
            return
        raise MatchFailure(f"{place(node)}no clause matches {describe(value)}")

    # --- claims ---------------------------------------------------------------------------------

    def _claim_later(self, node: ir.Expr) -> None:
        """Have the value of `node` compared with its inferred type, unless the function ends with it."""
        if (
            node.checked_type is not None
            and not self._in_tail_position()
            and has_claims(node.checked_type)
        ):
            self.work.append((Machine._claim, node))

    def _claim(self, node: ir.Expr) -> None:
        if node.checked_type is not None:
            check(((self.values[-1], node.checked_type, f"{place(node)}value"),), self.here.dims)

    def _promises_less(self, claimed: Type | None) -> bool:
        """Whether the function does not promise what the closure that it ends with claims to give."""
        promised = self.here.function.ret_type
        if claimed is None or promised is None or promised is claimed:
            return False
        haves, wants = value_tensors(promised), value_tensors(claimed)
        return len(haves) != len(wants) or any(
            have != want and (isinstance(want, int) or any(v.name for v in free_vars(want)))
            for have_type, want_type in zip(haves, wants, strict=True)
            for have, want in zip(have_type.shape, want_type.shape, strict=True)
        )

    def _in_tail_position(self) -> bool:
        if not self.work:
            return True
        top = self.work[-1]
        return isinstance(top, tuple) and top[0] in (Machine._return, Machine._return_checked)

    # --- calls ----------------------------------------------------------------------------------

    def _call_node(self, node: ir.Call) -> None:
        op = node.op
        count = len(node.args)
        if isinstance(op, Op):
            self.work.append((Machine._operator, node, op))
        elif isinstance(op, ir.Constructor):
            self.work.append((Machine._construct, op, count))
        else:
            self.work.append((Machine._apply, node, count))
        self.work.extend(reversed(node.args))
        if not isinstance(op, Op | ir.Constructor):
            self.work.append(op)

    def _construct(self, constructor: ir.Constructor, count: int) -> None:
        self.values.append(ADTValue(constructor, self._pop(count)))

    def _apply(self, node: ir.Call, count: int) -> None:
        args = self._pop(count)
        function = self.values.pop()
        closure = not isinstance(node.op, ir.GlobalVar)
        if closure and self._in_tail_position() and self._promises_less(node.checked_type):
            self.work.append((Machine._claim, node))
        elif closure or _has_dims(node.checked_type):
            self._claim_later(node)
        self._call(function, args, node)

    def _call(self, function: Value, args: tuple[Value, ...], node: ir.Call | None) -> None:
        match function:
            case Closure():
                self._enter(function, args, node)
            case ir.Constructor():
                self.values.append(ADTValue(function, args))
            case Op():
                self.values.append(self.program.apply(function, args, None))
            case _:
                raise ValueKindError(f"{place(node)}can't call {describe(function)}")

    def _enter(self, closure: Closure, args: tuple[Value, ...], node: ir.Call | None) -> None:
        """Push an activation. In tail position the caller's own return continuation serves the callee too."""
        function = closure.function
        name = closure.name or "function literal"
        if len(args) != len(function.params):
            raise InvalidInput(
                f"{place(node)}{name} takes {len(function.params)} arguments, got {len(args)}"
            )
        parent = closure.frame
        sharing = self.program.sharing_of(function) if parent is None else parent.sharing
        frame = Frame(function, parent, sharing, closure.own)
        claims = []
        for param, value in zip(function.params, args, strict=True):
            frame.values[param] = value
            type_ = param_type(param)
            if type_ is not None and has_claims(type_):
                claims.append(
                    (value, type_, f"{place(node)}parameter %{param.name_hint} of @{name}")
                )
        for index, var in function.attrs.get("dim_params", ()):
            frame.dims.numbers[var] = int(args[index])
        if claims:
            check(claims, frame.dims)
        if self.program.checks_result(function):
            self._expect_result(function, frame, name)
        elif not self._in_tail_position():
            self.work.append((Machine._return, self.frame))
        self.frame = frame
        self.work.append(function.body)

    def _expect_result(self, function: ir.Function, frame: Frame, name: str) -> None:
        """Push the check of the result; a tail call that promises the same as its caller needs none of its own."""
        expected = function.ret_type
        if expected is None:
            return
        numbers: dict[DimVar, int] = {}
        if expected.flags & HAS_DIM:
            for var in free_dims(expected):
                number = frame.dims.find(var)
                if number is not None:
                    numbers[var] = number
            # No type has a size below 0. The check of the result names it, if there is a result.
            with suppress(ValueError):
                expected, numbers = substitute(expected, dim_vars=numbers), {}
        top = self.work[-1] if self.work else None
        if (
            isinstance(top, tuple)
            and top[0] is Machine._return_checked
            and top[2] is function
            and top[3] is expected
            and top[5] == numbers
        ):
            return
        if isinstance(top, tuple) and top[0] is Machine._return:
            # The caller's frame is not needed any more: the result goes where its result would go.
            self.work.pop()
            self.work.append((Machine._return_checked, top[1], function, expected, name, numbers))
        else:
            self.work.append(
                (Machine._return_checked, self.frame, function, expected, name, numbers)
            )

    def _return_checked(
        self,
        frame: Frame | None,
        function: ir.Function,
        expected: Type,
        name: str,
        numbers: dict[DimVar, int],
    ) -> None:
        self.frame = frame
        scope = DimScope()
        scope.numbers.update(numbers)
        check(((self.values[-1], expected, f"result of @{name}"),), scope)

    # --- operators ------------------------------------------------------------------------------

    def _operator(self, node: ir.Call, op: Op) -> None:
        args = self._pop(len(node.args))
        try:
            special = _SPECIAL.get(op.name)
            if special is not None:
                special(self, node, args)
                return
            result = self.program.apply(op, args, self.here.dims.ground(node.attrs))
        except NimbleError as error:
            if node.span is not None:
                error.add_note(f"at {node.span}, in {op.name}")
            raise
        self.values.append(result)
        if _has_dims(node.checked_type) and not self._in_tail_position():
            # Unknown sizes of results (arange, two unknowns broadcast) get their numbers here.
            self._claim(node)

    def _match_type(self, node: ir.Call, args: tuple[Value, ...]) -> None:
        where = node.attrs.where or f"{place(node)}value"
        check(((args[0], node.attrs.type, where),), self.here.dims)
        self.values.append(args[0])

    def _bind_dim(self, node: ir.Call, args: tuple[Value, ...]) -> None:
        number = node.op.reference(args, node.attrs, None)  # type: ignore[attr-defined]
        self.here.dims.numbers[node.attrs.dim] = int(number)
        self.values.append(number)

    def _allocate(self, node: ir.Call, args: tuple[Value, ...]) -> None:
        self.values.append(node.op.reference(args, self.here.dims.ground(node.attrs), vm.STORAGE))  # type: ignore[attr-defined]

    def _kill(self, node: ir.Call, args: tuple[Value, ...]) -> None:
        self.values.append(())

    def _call_kernel(self, node: ir.Call, args: tuple[Value, ...]) -> None:
        function, inputs, outputs = args
        self.work.append((Machine._write_outputs, (outputs, node)))
        group = function.function if isinstance(function, Closure) else None
        steps = None if group is None else StepLoop.of(group)
        levels = None if group is None else LevelLoop.of(group)
        if steps is not None:
            self._next_step((function, Repetition(steps, inputs), node))
        elif levels is not None:
            self._next_step((function, LevelRun(levels, inputs), node))
        else:
            self._call(function, inputs, node)

    def _next_step(self, task: tuple[Closure, Repetition | LevelRun, ir.Call]) -> None:
        function, run, node = task
        if not run.left:
            self.values.append(run.all())
            return
        self.work.append((Machine._end_step, task))
        self._call(function, run.inputs, node)

    def _end_step(self, task: tuple[Closure, Repetition | LevelRun, ir.Call]) -> None:
        task[1].take(self.values.pop())
        self._next_step(task)

    def _write_outputs(self, task: tuple[tuple[np.ndarray[Any, Any], ...], ir.Call]) -> None:
        """Copy a kernel's results into its output tensors (the one place where tensors change)."""
        outputs, node = task
        result = self.values.pop()
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(outputs):
            raise InternalError(f"a kernel gave {len(results)} tensors for {len(outputs)} outputs")
        parts = found_sizes(node, results, outputs, self.here.dims)
        for value, out in zip(results, parts, strict=True):
            if value.shape != out.shape or value.dtype != out.dtype:
                raise InternalError(
                    f"a kernel gave {describe(value)} for an output {describe(out)}"
                )
            out[...] = value
        self.values.append(outputs)


def _has_dims(type_: Type | None) -> bool:
    return type_ is not None and bool(type_.flags & HAS_DIM) and not isinstance(type_, FuncType)


def place(node: ir.Node | None) -> str:
    """The start of a message: where a node stands in its source."""
    return f"{node.span}: " if node is not None and node.span is not None else ""


_HANDLERS: dict[type, Callable[[Machine, Any], None]] = {
    ir.Var: Machine._var,
    ir.Constant: Machine._constant,
    ir.GlobalVar: Machine._global,
    ir.Constructor: Machine._leaf,
    Op: Machine._leaf,
    ir.Function: Machine._function,
    ir.Tuple: Machine._tuple,
    ir.TupleGetItem: Machine._get_item,
    ir.Let: Machine._let,
    ir.If: Machine._if,
    ir.Match: Machine._match,
    ir.Call: Machine._call_node,
    ir.RefCreate: Machine._ref_create,
    ir.RefRead: Machine._ref_read,
    ir.RefWrite: Machine._ref_write,
}

_SPECIAL: dict[str, Callable[[Machine, ir.Call, tuple[Value, ...]], None]] = {
    vm.MATCH_TYPE.name: Machine._match_type,
    vm.BIND_DIM.name: Machine._bind_dim,
    vm.CALL_KERNEL.name: Machine._call_kernel,
    vm.ALLOC_STORAGE.name: Machine._allocate,
    vm.ALLOC_TENSOR.name: Machine._allocate,
    vm.KILL.name: Machine._kill,
}


__all__ = ["Machine", "Program", "param_type"]
