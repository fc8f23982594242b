"""Write a placement into a function: devices on kernels, copies where domains meet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from nimblevm.compiler.device_flow import Flow, Kernel
from nimblevm.compiler.devices import CopyPlacement, KernelPlacement
from nimblevm.compiler.domains import Labels, Tree, all_on, labels, leaves, root
from nimblevm.compiler.function_blocks import FunctionBlocks
from nimblevm.compiler.rewrite import (
    fresh_var,
    make_lets,
    op_call,
    sub_blocks,
    type_of,
    typed,
    with_children,
)
from nimblevm.errors import CompileError
from nimblevm.relay.ir import (
    Call,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    Let,
    Match,
    Span,
    Tuple,
    TupleGetItem,
    Var,
    children,
    pattern_vars,
)
from nimblevm.relay.op.device import ANNOTATIONS
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TupleType, Type

Bindings = list[tuple[Var, Expr]]


class Report:
    """Rows of a Placement while functions are written."""

    def __init__(self, names: tuple[str, ...], default: int) -> None:
        self.names = names
        self.default = default
        self.kernels: list[KernelPlacement] = []
        self.copies: list[CopyPlacement] = []

    def kernel(self, kernel: Kernel, device: int) -> None:
        reason = kernel.pinned
        leaf = root(kernel.place)
        if not reason and device in leaf.wish:
            reason = "annotation"
        elif not reason and device == self.default:
            reason = "the device of this compilation"
        elif not reason:
            reason = "between what the host makes and what it reads"
        self.kernels.append(
            KernelPlacement(kernel.function, kernel.name, device, reason, kernel.call.span)
        )


class Placer(FunctionBlocks):
    """One function."""

    def __init__(
        self, var: GlobalVar, function: Function, flow: Flow, report: Report, repeated: bool
    ) -> None:
        super().__init__(function)
        self.name = var.name_hint
        self.flow = flow
        self.report = report
        self.repeated = repeated
        self.is_entry = var in flow.entries
        self.signature = flow.signatures[var]
        self.targets: list[Tree] = [self.signature.result]
        self.renamed: dict[Var, Var] = {}
        self.needs: dict[Var, dict[Labels, tuple[str, Span | None]]] = {}
        self.copies: dict[tuple[Var, Labels], Var] = {}
        self.starts: dict[int, list[Var]] = {0: list(function.params)}
        self.constants: dict[tuple[Constant, int], Var] = {}
        self.bindings: Bindings = []

    def run(self) -> Function:
        self._scan()
        for number in range(len(self.blocks)):
            self._plan(number)
        for number in reversed(range(len(self.blocks))):
            lets, tail = self.blocks[number]
            self.bindings = []
            self.constants = {}
            for var in self.starts.get(number, ()):
                self._start(var)
            self.done[number] = self._write(number, lets, tail)
        result = self.done[0]
        return self.function if result is self.function.body else dataclasses.replace(
            self.function, body=result
        )  # fmt: skip

    # --- which copies there are -------------------------------------------------------------------

    def _plan(self, number: int) -> None:
        lets, tail = self.blocks[number]
        if number == 0 and self.is_entry:
            self._plan_params()
        for var, value in (*((let.var, let.value) for let in lets), (None, tail)):
            nested = sub_blocks(value)
            if nested:
                target = self.flow.values[var] if var is not None else self.targets[number]
                self.targets.extend(target for _ in nested)
            if isinstance(value, Match):
                self._plan_clauses(value)
            for _, atom, want, reason in self._wants(value):
                self._need(atom, want, reason, value.span)

    def _plan_clauses(self, match: Match) -> None:
        """What patterns bind starts in the clause's block, under another name where it is to be elsewhere."""
        for index, clause in enumerate(match.clauses):
            found = list(pattern_vars(clause.lhs))
            self.starts[self.numbers[match] + index] = found
            for bound in found:
                if bound in self.flow.raw and self._differs(bound):
                    self.renamed[bound] = fresh_var(bound.name_hint, type_of(bound))

    def _plan_params(self) -> None:
        """What comes from outside is where it has to be from the start on."""
        for param, tree in zip(self.function.params, self.signature.params, strict=True):
            if leaves(tree) and all(leaf.entry for leaf in map(root, leaves(tree))):
                self.renamed[param] = fresh_var(param.name_hint, type_of(param))

    def _differs(self, var: Var) -> bool:
        return labels(self.flow.raw[var]) != labels(self.flow.values[var])

    def _wants(self, value: Expr) -> Iterator[tuple[int, Expr, Labels, str]]:
        """Children that must be on certain devices: number, the child, where, why."""
        kernel = self.flow.kernels.get(value) if isinstance(value, Call) else None
        if kernel is not None and isinstance(value, Call):
            device = root(kernel.place).label or 0
            reason = f"kernel {kernel.name} on {self._device(device)} reads it"
            for index, atom in enumerate(value.args, 1):
                yield index, atom, self._on(atom, device), reason
            return
        first = len(children(value)) - len(sub_blocks(value))
        for index, atom in enumerate(children(value)[:first]):
            tree = self.flow.wanted.get((value, index))
            if tree is not None:
                yield index, atom, labels(tree), _reader(value)

    def _on(self, atom: Expr, device: int) -> Labels:
        if isinstance(atom, Tuple):
            return tuple(self._on(f, device) for f in atom.fields)
        return all_on(self._tree(atom), device)

    def _tree(self, atom: Expr) -> Tree:
        if isinstance(atom, Var):
            return self.flow.values[atom]
        return self.flow.domains.fresh(type_of(atom))

    def _need(self, atom: Expr, want: Labels, reason: str, span: Span | None) -> None:
        if isinstance(atom, Tuple) and isinstance(want, tuple):
            for part, inner in zip(atom.fields, want, strict=True):
                self._need(part, inner, reason, span)
        elif isinstance(atom, Var) and labels(self.flow.values[atom]) != want:
            self.needs.setdefault(atom, {}).setdefault(want, (reason, span))
            if (atom, want) not in self.copies:
                copy = fresh_var(f"{atom.name_hint}_copy", type_of(atom))
                self.copies[atom, want] = copy

    # --- writing ----------------------------------------------------------------------------------

    def _start(self, var: Var) -> None:
        """The copies that a variable needs once it is bound by a parameter or pattern."""
        new = self.renamed.get(var)
        if new is not None:
            have = labels(self.flow.raw[var]) if var in self.flow.raw else None
            want = labels(self.flow.values[var])
            reason = "a field of a value" if var in self.flow.raw else "an argument"
            value = self._moved(var, type_of(var), have, want, reason, var.span)
            self.bindings.append((new, value))
        self._copy_for_uses(var)

    def _copy_for_uses(self, var: Var) -> None:
        for want, (reason, span) in self.needs.get(var, {}).items():
            current = self.renamed.get(var, var)
            have = labels(self.flow.values[var])
            value = self._moved(current, type_of(var), have, want, reason, span)
            self.bindings.append((self.copies[var, want], value))

    def _moved(
        self, source: Var, type_: Type, have: Labels, want: Labels, reason: str, span: Span | None
    ) -> Expr:
        """`source` with its tensors where they are wanted. have None: wherever they come from."""
        parts: list[Expr] = []
        stack: list[tuple[Expr, Type, Labels, Labels, bool]] = [(source, type_, have, want, False)]
        while stack:
            expr, kind, old, new, ready = stack.pop()
            if ready and isinstance(kind, TupleType):
                count = len(kind.fields)
                fields = tuple(self._named(p) for p in parts[len(parts) - count :])
                del parts[len(parts) - count :]
                parts.append(typed(Tuple(fields, span=span), kind))
            elif isinstance(kind, TupleType) and old != new and isinstance(new, tuple):
                whole = self._named(expr)
                stack.append((whole, kind, old, new, True))
                olds = old if isinstance(old, tuple) else (None,) * len(new)
                for index, field in reversed(list(enumerate(kind.fields))):
                    item = typed(TupleGetItem(whole, index, span=span), field)
                    stack.append((item, field, olds[index], new[index], False))
            elif isinstance(new, int) and old != new:
                before = old if isinstance(old, int) else 0
                self._note(source, before, new, reason, span, boundary=False)
                parts.append(self._copy(self._named(expr), kind, new, span))
            else:
                parts.append(expr)
        return parts[0]

    def _copy(self, atom: Expr, type_: Type, device: int, span: Span | None) -> Expr:
        return op_call("vm.device_copy", (atom,), type_, span, device=device)

    def _note(
        self, var: Var, source: int, target: int, reason: str, span: Span | None, boundary: bool
    ) -> None:
        if source == target:
            return  # an argument that stays on the host
        self.report.copies.append(
            CopyPlacement(
                self.name,
                f"%{var.name_hint}",
                source,
                target,
                reason,
                span,
                self.repeated,
                boundary,
            )
        )

    def _named(self, expr: Expr) -> Expr:
        if isinstance(expr, Var):
            return expr
        var = fresh_var("v", type_of(expr))
        self.bindings.append((var, expr))
        return var

    def _write(self, number: int, lets: list[Let], tail: Expr) -> Expr:
        for let in lets:
            self._bind(let.var, let.value)
        want = labels(self.targets[number])
        moved = tail in self.flow.raw and labels(self.flow.raw[tail]) != want
        if moved or (isinstance(tail, Constant) and isinstance(want, int) and want):
            type_ = type_of(tail)
            result = fresh_var("result", type_)
            self.bindings.append((result, self._value(tail, type_, want)))
            return make_lets(self.bindings, result)
        return make_lets(self.bindings, self._value(tail, type_of(tail), want))

    def _bind(self, var: Var, value: Expr) -> None:
        self.bindings.append((var, self._value(value, type_of(var), labels(self.flow.values[var]))))
        self._copy_for_uses(var)

    def _value(self, value: Expr, type_: Type, want: Labels) -> Expr:
        """The new form of a value whose name has the devices `want`."""
        if isinstance(value, Constant):
            if not isinstance(want, int) or want == 0:
                return value
            return self._copy(value, type_, want, value.span)
        new = self._rewritten(value)
        if value not in self.flow.raw:
            return new
        have = labels(self.flow.raw[value])
        if have == want:
            return new
        source = self._named(new)
        if not isinstance(source, Var):
            raise CompileError("a value without a name")
        return self._moved(source, type_, have, want, _maker(value, self.flow), value.span)

    def _rewritten(self, value: Expr) -> Expr:
        if isinstance(value, Call) and isinstance(value.op, Op) and value.op.name in ANNOTATIONS:
            return self._atom(value.args[0], None)
        if isinstance(value, Var):
            return self._atom(value, None)
        if isinstance(value, GlobalVar):
            return value
        wants = {index: want for index, _, want, _ in self._wants(value)}
        nested = sub_blocks(value)
        old = children(value)
        operands = old[: len(old) - len(nested)]
        new = tuple(self._atom(a, wants.get(i)) for i, a in enumerate(operands))
        inner = self.nested(value)
        made = with_children(inner, (*new, *children(inner)[len(operands) :]))
        kernel = self.flow.kernels.get(value) if isinstance(value, Call) else None
        if kernel is None or not isinstance(made, Call) or not isinstance(made.op, Function):
            return made
        return self._kernel(made, made.op, kernel)

    def _kernel(self, call: Call, function: Function, kernel: Kernel) -> Expr:
        device = root(kernel.place).label or 0
        self.report.kernel(kernel, device)
        if kernel.int_results and device:
            self.report.copies.append(
                CopyPlacement(
                    self.name,
                    f"result of {kernel.name}",
                    device,
                    0,
                    "the host reads the number that it finds",
                    call.span,
                    self.repeated,
                )
            )
        if not device:
            return call
        placed = dataclasses.replace(function, attrs={**function.attrs, "device": device})
        return typed(
            Call(placed, call.args, call.attrs, call.type_args, span=call.span), call.checked_type
        )

    def _atom(self, atom: Expr, want: Labels) -> Expr:
        if isinstance(atom, Var):
            if want is not None and labels(self.flow.values[atom]) != want:
                return self.copies[atom, want]
            return self.renamed.get(atom, atom)
        if isinstance(atom, Constant) and isinstance(want, int) and want:
            key = (atom, want)
            if key not in self.constants:
                var = fresh_var("constant", type_of(atom))
                self.bindings.append((var, self._copy(atom, type_of(atom), want, atom.span)))
                self.constants[key] = var
            return self.constants[key]
        if isinstance(atom, Tuple):
            wants: Mapping[int, Labels] = dict(enumerate(want)) if isinstance(want, tuple) else {}
            fields = tuple(self._atom(f, wants.get(i)) for i, f in enumerate(atom.fields))
            return with_children(atom, fields)
        return atom

    def _device(self, device: int) -> str:
        return self.report.names[device]


def _reader(value: Expr) -> str:
    if isinstance(value, Call) and isinstance(value.op, Op):
        return f"{value.op.name} reads it on the host"
    if isinstance(value, Call) and isinstance(value.op, Constructor):
        return f"it becomes a field of {value.op.name_hint}"
    return "it becomes part of a value"


def _maker(value: Expr, flow: Flow) -> str:
    if isinstance(value, Call) and isinstance(value.op, Op):
        return f"it is what {value.op.name} gives"
    kernel = flow.kernels.get(value) if isinstance(value, Call) else None
    return f"kernel {kernel.name} writes it" if kernel is not None else "it is made elsewhere"


__all__ = ["Placer", "Report"]
