"""Give every intermediate value a name: A-normal form.

before:  def @main(%x: float32) { tanh(%x + 1f) * (%x + 1f) }       (the sum is one shared node or
two)
after:   def @main(%x: float32) { let %v0 = %x + 1f; let %v1 = tanh(%v0); %v1 * %v0 }

A block is a chain of lets that ends in a simple expression. Operands of simple expressions are
atoms: variables, constants, globals (and an operator, constructor or global in the place of the
callee). A node that several parents share is evaluated once, in the innermost block that dominates
all of its uses, just before the first of them; otherwise evaluation order stays: operands from left
to right, let value before body. A call whose value is the value of its function through lets of
itself, if, match and annotations ends its block, which is how emit finds tail calls.

Needs: inferred types, no fused groups of its own. Keeps: types, spans. Cost: O(n log n) for n nodes
(lowest common ancestors of blocks by jump pointers). Source: TVM's ToBasicBlockNormalForm and
ToANormalForm.
"""

from __future__ import annotations

import dataclasses

from nimblevm.compiler.home_blocks import HomeBlocks, is_leaf, sub_root, sub_roots
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    fresh_var,
    is_primitive,
    make_lets,
    map_functions,
    type_of,
    typed,
    with_body,
    with_children,
)
from nimblevm.errors import CompileError
from nimblevm.relay.ir import (
    Call,
    Clause,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    PatternVar,
    PatternWildcard,
    Span,
    Var,
    children,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import FuncType, Type, TypeCall

# States of a node on the work stack.
_EVAL, _FINISH, _LET_BODY, _LET_END, _OPEN, _CLOSE = range(6)
CHECKS = frozenset({"vm.match_type", "vm.check_broadcast"})


class Normalizer:
    """Emits the bindings of one function body, block by block, in evaluation order. name_effects
    overrides what is named.
    """

    def __init__(self, root: Expr, mod: IRModule) -> None:
        self.root = root
        self.mod = mod
        place = HomeBlocks(root)
        self.home, self.sub = place.home, place.sub
        self.bindings: dict[int, list[tuple[Var, Expr]]] = {0: []}
        self.atom: dict[Expr, Expr] = {}
        self.closed: dict[int, Expr] = {}
        self.hint: dict[Expr, Var] = {}
        self.count = 0

    def run(self) -> Expr:
        stack: list[tuple[Expr, int, int]] = [(self.root, _EVAL, 0)]
        while stack:
            node, state, index = stack.pop()
            if state == _EVAL:
                self._eval(node, stack)
            elif state == _FINISH:
                self.finish(node)
            elif state == _OPEN:
                self.open(node, index)
            elif state == _CLOSE:
                self.close(self.sub[node][index], sub_root(node, index))
            elif isinstance(node, Let) and state == _LET_BODY:
                self.rename(node.var, self.atom_of(node.value), self.home[node])
                hint = self.hint.pop(node, None)
                if hint is not None and node.body not in self.atom and not is_leaf(node.body):
                    self.hint.setdefault(node.body, hint)
                stack += ((node, _LET_END, 0), (node.body, _EVAL, 0))
            elif isinstance(node, Let):
                self.atom[node] = self.atom_of(node.body)
        self.close(0, self.root)
        return self.closed[0]

    def atom_of(self, node: Expr) -> Expr:
        """The variable or leaf that stands for an evaluated node."""
        return self.atom.get(node, node) if is_leaf(node) else self.atom[node]

    def _eval(self, node: Expr, stack: list[tuple[Expr, int, int]]) -> None:
        if is_leaf(node) or node in self.atom:
            return
        if isinstance(node, Let):
            if not is_leaf(node.value):
                self.hint.setdefault(node.value, node.var)
            stack += ((node, _LET_BODY, 0), (node.value, _EVAL, 0))
            return
        stack.append((node, _FINISH, 0))
        roots = sub_roots(node)
        for index in reversed(range(len(roots))):
            self.bindings[self.sub[node][index]] = []
            stack += ((node, _CLOSE, index), (roots[index], _EVAL, 0), (node, _OPEN, index))
        operands = children(node)
        stack.extend(
            (child, _EVAL, 0) for child in reversed(operands[: len(operands) - len(roots)])
        )

    def open(self, node: Expr, index: int) -> None:
        """A clause whose whole pattern is a variable renames the matched value."""
        if isinstance(node, Match) and isinstance(pattern := node.clauses[index].lhs, PatternVar):
            self.rename(pattern.var, self.atom_of(node.data), self.sub[node][index])

    def rename(self, var: Var, atom: Expr, block: int) -> None:
        if atom is var:
            return
        if isinstance(atom, Constructor):
            self.bindings[block].append((var, self._eta(atom, var.span)))
        elif atom.checked_type is var.checked_type:
            self.atom[var] = atom
        else:  # the variable's type has dims of its own, which emit reads from its value
            self.bindings[block].append((var, atom))

    def finish(self, node: Expr) -> None:
        block = self.home[node]
        value = self.simple(node)
        var = self.hint.pop(node, None)
        same_type = var is not None and var.checked_type is node.checked_type
        if var is None or not (same_type or isinstance(node, Function)) or var in self.atom:
            var = self._fresh(type_of(node))
        self.bindings[block].append((var, value))
        self.atom[node] = var

    def _fresh(self, type_: Type) -> Var:
        self.count += 1
        return fresh_var(f"v{self.count - 1}", type_)

    def simple(self, node: Expr) -> Expr:
        blocks = self.sub.get(node, [])
        block = self.home[node]
        match node:
            case Call() if isinstance(node.op, Op | Constructor | GlobalVar):
                operands = [self.operand(a, block) for a in node.args]
                if isinstance(node.op, Op) and node.op.name in CHECKS:
                    operands[0] = self.named(operands[0], block)
                new: tuple[Expr, ...] = (node.op, *operands)
            case If():
                new = (
                    self.atom_of(node.cond),
                    self.closed.pop(blocks[0]),
                    self.closed.pop(blocks[1]),
                )
            case Match():
                new = (self.atom_of(node.data), *(self.closed.pop(b) for b in blocks))
                return self.finish_match(with_children(node, new))
            case Function():
                new = (self.closed.pop(blocks[0]),)
            case _:
                new = tuple([self.operand(child, block) for child in children(node)])
        return with_children(node, new)

    def operand(self, node: Expr, block: int) -> Expr:
        atom = self.atom_of(node)
        if isinstance(atom, Op):
            raise CompileError(
                f"operator {atom.name} is used as a value; wrap it: fn (%x) {{ {atom.name}(%x) }}"
            )
        if isinstance(atom, Constructor):
            function = self._eta(atom, node.span)
            var = self._fresh(type_of(function))
            self.bindings[block].append((var, function))
            return var
        return atom

    def named(self, atom: Expr, block: int) -> Expr:
        """A variable: what a check passes on is another name of it."""
        if isinstance(atom, Var):
            return atom
        var = self._fresh(type_of(atom))
        self.bindings[block].append((var, atom))
        return var

    def _eta(self, constructor: Constructor, span: Span | None) -> Function:
        """The constructor as a function: fn [A](%field0: A, ...) -> T[A] { C(%a0, ...) }."""
        names = (f"field{i}" for i in range(len(constructor.inputs)))
        params = tuple(map(fresh_var, names, constructor.inputs))
        type_vars = self.mod.type_definitions[constructor.belong_to].type_vars
        result = TypeCall(constructor.belong_to, type_vars)
        body = typed(Call(constructor, params, span=span), result)
        return typed(
            Function(params, body, result, type_vars, span=span),
            FuncType(constructor.inputs, result, type_vars),
        )

    def close(self, block: int, node: Expr) -> None:
        """Build the let chain of a block; the last binding becomes the tail if it is the block's
        value.
        """
        atom = self.operand(node, block)
        bindings = self.bindings.pop(block)
        tail = atom
        if bindings and bindings[-1][0] is atom and self.may_end(*bindings[-1]):
            tail = bindings.pop()[1]
        self.closed[block] = make_lets(bindings, tail)

    def may_end(self, var: Var, value: Expr) -> bool:
        """Whether the value of the last binding can stand in the place of its variable."""
        return not isinstance(value, Function)

    def finish_match(self, node: Expr) -> Expr:
        """Clauses that only rename (see open) become wildcards."""
        if not isinstance(node, Match) or not any(
            isinstance(c.lhs, PatternVar) for c in node.clauses
        ):
            return node
        clauses = tuple(
            Clause(PatternWildcard(span=c.lhs.span), c.rhs, span=c.span)
            if isinstance(c.lhs, PatternVar)
            else c
            for c in node.clauses
        )
        return dataclasses.replace(node, clauses=clauses)


def anf_function(function: Function, mod: IRModule) -> Function:
    """One function in ANF; mod: whose types it uses."""
    if is_primitive(function):
        return function
    return with_body(function, Normalizer(function.body, mod).run())


def to_anf(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, lambda function: anf_function(function, mod))


TO_ANF = Pass("to_anf", to_anf, required=True)
