"""Inference of function literals, and of what recursion without a written result type returns.

A function whose result is not annotated and that calls itself is inferred in up to three attempts:

    BOTTOM     its own calls have no type yet and join with anything: the result is that of the other paths
    ASSUMED    that result is taken as its signature; if the body then has it, it is the signature
    FORGETFUL  else calls return dtype and rank only: every dim of the result is an unknown

A function that is not recursive needs the first attempt only. An attempt that is given up is undone: the types of
the nodes in the body, holes inside them included. Functions that call each other without annotations are
FORGETFUL at once for each other's calls.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from nimblevm.relay.infer_patterns import check_parameter_dims
from nimblevm.relay.infer_recognise import fits
from nimblevm.relay.ir import Expr, Function, Let
from nimblevm.relay.type_errors import Note, name_of, show, type_error
from nimblevm.relay.types import FuncType, IncompleteType, Type, free_dims
from nimblevm.relay.unify import HoleKind, Solver, TypeMismatch


class Attempt(enum.IntEnum):
    """How the result of a recursive call is typed (see the module's text)."""

    BOTTOM = 0
    ASSUMED = 1
    FORGETFUL = 2


@dataclass(slots=True)
class Frame:
    """A function whose body is being typed: where to return to if the attempt fails."""

    node: Function
    mark: int
    stack: int
    order: int
    attempt: Attempt
    assumed: Type | None = None


class FunctionInference:
    """What inference of functions needs of the walk; infer_engine.Inference derives from it."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.types: dict[Expr, Type] = {}
        self.order: list[Expr] = []
        self._stack: list[Any] = []
        self._marks: dict[Expr, int] = {}  # functions, and variables known to be one
        self._opened: dict[Function, FuncType] = {}
        self._announce: dict[Function, Callable[[FuncType], None]] = {}
        self._attempts: dict[Function, Attempt] = {}
        self._frames: list[Frame] = []
        self._open: dict[Expr, IncompleteType] = {}
        self._function: str = ""

    def _error(self, message: str, node: Expr, notes: Iterable[Note] = ()) -> Exception:
        where = f" (in @{self._function})" if self._function and node.span is None else ""
        return type_error(message + where, node.span, notes)

    def _note(self, expr: Expr, text: str = "") -> Note:
        shown = show(self.solver.resolve(self.types[expr])) if expr in self.types else "?"
        return expr.span, f"{text or name_of(expr)} has type {shown}"

    def _open_function(self, node: Function) -> FuncType:
        """The type of a function before its body is seen; its parameters get theirs."""
        params: list[Type] = []
        for param in node.params:
            if param not in self.types:
                self.types[param] = self.solver.parameter(param.type_annotation)
            params.append(self.types[param])
        result = node.ret_type
        if result is None:
            result = self.solver.hole(HoleKind.RESULT)
        made = FuncType(params, result, node.type_params)
        self._opened[node] = made
        return made

    def _enter_function(self, node: Function) -> None:
        solver = self.solver
        opened = self._opened.get(node) or self._open_function(node)
        mark = solver.mark()
        self._marks[node] = mark
        attempt = self._attempts.get(node, Attempt.BOTTOM)
        if node.ret_type is None and attempt is Attempt.BOTTOM:
            solver.bottom.add(opened.ret_type)
        self._frames.append(Frame(node, mark, len(self._stack), len(self.order), attempt))
        if "Composite" not in node.attrs:  # made of typed code, where its dims are known
            check_parameter_dims(node, opened.arg_types, solver.rigid)
        self._enter_body(node, opened)

    def _enter_body(self, node: Function, opened: FuncType) -> None:
        for type_ in opened.arg_types:
            self.solver.add_rigid_of(self.solver.resolve(type_))
        for _, var in node.attrs.get("dim_params", ()):
            self.solver.add_rigid(var)
        self._stack.append((self._leave_function, node))
        self._stack.append(node.body)

    def _leave_function(self, node: Function) -> None:
        solver = self.solver
        frame = self._frames[-1]
        opened = self._opened[node]
        body = solver.resolve(self.types[node.body])
        try:
            if node.ret_type is not None:
                solver.flow(body, node.ret_type)
                result = solver.resolve(node.ret_type)
            else:
                inferred = self._inferred_result(frame, opened, body)
                if inferred is None:
                    return
                result = inferred
        except TypeMismatch as mismatch:
            raise self._result_error(node, opened, mismatch) from None
        self._frames.pop()
        solver.release(frame.mark)
        self.types[node] = FuncType(
            (solver.resolve(t) for t in opened.arg_types), result, node.type_params
        )
        self.order.append(node)

    def _inferred_result(self, frame: Frame, opened: FuncType, body: Type) -> Type | None:
        """The result type of a function without annotation, or None if another attempt is under way."""
        solver = self.solver
        hole = opened.ret_type
        if frame.attempt is Attempt.ASSUMED:
            assumed = frame.assumed
            assert assumed is not None
            own = set(free_dims(assumed)).difference(solver.rigid)
            if not fits(body, assumed, own):
                self._again(frame, Attempt.FORGETFUL, None)
                return None
            return assumed
        assert isinstance(hole, IncompleteType)
        if frame.attempt is Attempt.BOTTOM:
            solver.bottom.discard(hole)
            if hole in solver.used_bottom:
                known = not isinstance(body, IncompleteType)
                self._again(frame, Attempt.ASSUMED if known else Attempt.FORGETFUL, body)
                return None
        solver.settle(hole, body)
        return body

    def _assume_less(self) -> bool:
        """After an error: retry the innermost function whose recursion was typed by an assumption."""
        while self._frames:
            frame = self._frames[-1]
            hole = self._opened[frame.node].ret_type
            guessed = frame.attempt is Attempt.ASSUMED or (
                frame.attempt is Attempt.BOTTOM and hole in self.solver.used_bottom
            )
            if guessed:
                self._again(frame, Attempt.FORGETFUL, None)
                return True
            self._frames.pop()
        return False

    def _again(self, frame: Frame, attempt: Attempt, assumed: Type | None) -> None:
        """Undo the types of a function's body and walk it again."""
        node, solver = frame.node, self.solver
        del self._stack[frame.stack :]
        for done in self.order[frame.order :]:
            self.types.pop(done, None)
            self._open.pop(done, None)
            if isinstance(done, Let):
                self.types.pop(done.var, None)
            elif isinstance(done, Function):
                self._opened.pop(done, None)
                for param in done.params:
                    self.types.pop(param, None)
        del self.order[frame.order :]
        solver.release(frame.mark)
        frame.attempt = attempt
        frame.assumed = assumed
        if attempt is Attempt.FORGETFUL:
            self._attempts[node] = attempt
        before = self._opened[node]
        solver.bottom.discard(before.ret_type)
        result = assumed if assumed is not None else solver.hole(HoleKind.RESULT)
        opened = FuncType(before.arg_types, result, before.type_params)
        self._opened[node] = opened
        announce = self._announce.get(node)
        if announce is not None:
            announce(opened)
        self._enter_body(node, opened)

    def _result_error(self, node: Function, opened: FuncType, mismatch: TypeMismatch) -> Exception:
        wanted = show(self.solver.resolve(opened.ret_type))
        notes = [
            self._note(node.body, "the body"),
            (node.span, f"the result is expected to be {wanted}"),
        ]
        what = f"@{self._function}" if len(self._frames) == 1 else "this function"
        return self._error(f"{mismatch.reason}, for the result of {what}", node, notes)
