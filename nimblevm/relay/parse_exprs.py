"""Expressions and patterns from Relay text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from nimblevm.relay.ir import (
    Call,
    Clause,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    RefCreate,
    RefRead,
    RefWrite,
    Span,
    Tuple,
    TupleGetItem,
    Var,
    free_vars,
)
from nimblevm.relay.lexer import Number, Token
from nimblevm.relay.op import registry
from nimblevm.relay.op.registry import Op
from nimblevm.relay.parse_cursor import Rule, Scope, did_you_mean, kind_text, where_defined
from nimblevm.relay.parse_values import ValueParser
from nimblevm.relay.source import SourceText
from nimblevm.relay.types import Type

# token -> (precedence, operator)
OPERATORS: dict[str, tuple[int, str]] = {
    "*": (12, "multiply"), "/": (12, "divide"), "+": (10, "add"), "-": (10, "subtract"),
    "<": (8, "less"), "<=": (8, "less_equal"), ">": (8, "greater"), ">=": (8, "greater_equal"),
    "==": (7, "equal"), "!=": (7, "not_equal"),
}  # fmt: skip
# What may follow an argument that is a single token; such arguments need no rule of their own.
_ARGUMENT_ENDS = (",", ")")


class ExprParser(ValueParser):
    """Rules for expressions. `constructors` and `globals` are the module's."""

    def __init__(self, source: SourceText) -> None:
        super().__init__(source)
        self.locals = Scope()
        self.graph = Scope()
        self.constructors: dict[str, Constructor] = {}
        self.globals: dict[str, GlobalVar] = {}
        self.global_mentions: dict[str, Token] = {}
        self._scalars: dict[tuple[Number, bool], np.ndarray[Any, Any]] = {}

    # --- sequences of bindings ----------------------------------------------------------------------

    def expr_rule(self) -> Rule[Expr]:
        """expr := (binding ";")* binop: lets, graph bindings, free_var, and values that are dropped."""
        locals_mark, graph_mark = self.locals.mark(), self.graph.mark()
        lets: list[tuple[Var, Expr, Span]] = []
        while True:
            start = self.token
            if self.kind == "let":
                var, value = yield self._let_binding()
                lets.append((var, value, self.span_from(start)))
            elif self.kind == "free_var":
                yield self._free_var()
            elif self.kind == "graph" and self.peek() == "=":
                self.seek(self.position + 2)
                self.graph.bind(int(start.text[1:]), (yield self.binop_rule()))
                self.expect(";", "behind a graph binding")
            else:
                body: Expr = yield self.binop_rule()
                if not self.accept(";"):
                    break
                lets.append((Var("_", span=self.span_of(start)), body, self.span_from(start)))
        self.locals.leave(locals_mark)
        self.graph.leave(graph_mark)
        for var, value, span in reversed(lets):
            body = Let(var, value, body, span=span)
        return body

    def _let_binding(self) -> Rule[tuple[Var, Expr]]:
        self.advance()
        token = self.expect("local", "behind let")
        annotation: Type | None = (yield self.type_rule()) if self.accept(":") else None
        self.expect("=", f"behind 'let {token.text}'")
        var = Var(token.text[1:], annotation, span=self.span_of(token))
        # A function may call itself; any other value sees an outer variable of that name.
        recursive = self.kind == "fn"
        if recursive:
            self.locals.bind(var.name_hint, var)
        value: Expr = yield self.binop_rule()
        if not recursive:
            self.locals.bind(var.name_hint, var)
        elif not isinstance(value, Function) and var in free_vars(value):
            self.fail(f"{token.text} is used in its own value, which is no function", token)
        self.expect(";", f"behind the value of {token.text}")
        return var, value

    def _free_var(self) -> Rule[None]:
        self.advance()
        token = self.expect("local", "behind free_var")
        annotation: Type | None = (yield self.type_rule()) if self.accept(":") else None
        self.locals.bind(token.text[1:], Var(token.text[1:], annotation, span=self.span_of(token)))
        self.expect(";", "behind free_var")

    # --- operators and calls --------------------------------------------------------------------------

    def binop_rule(self) -> Rule[Expr]:
        """binop := postfix (operator postfix)*, by precedence, all associating to the left."""
        values: list[tuple[Expr, Token]] = []  # with the first token of each
        waiting: list[tuple[int, Op, Token]] = []
        while True:
            start = self.token
            operand = self._leaf()
            if operand is None:
                operand = yield self._compound(start)
            if start.kind != "{":
                while self.kind in ("(", "projection"):
                    operand = yield self._postfix(operand, start)
            values.append((operand, start))
            precedence, name = OPERATORS.get(self.kind, (0, ""))
            while waiting and waiting[-1][0] >= precedence:
                _, op, token = waiting.pop()
                (rhs, _), (lhs, first) = values.pop(), values.pop()
                attrs = self.build_attrs(op, {}, token)
                values.append((Call(op, (lhs, rhs), attrs, span=self.span_from(first)), first))
            if not name:
                return values[0][0]
            token = self.advance()
            waiting.append((precedence, self._operator(name, token), token))

    def _operator(self, name: str, token: Token) -> Op:
        op = registry.find(name)
        if op is None:
            known = [*self.constructors, *(o.name for o in registry.all_ops())]
            kind = "constructor or operator" if name[:1].isupper() else "operator"
            self.fail(f"unknown {kind} {name}{where_defined(name, known)}", token)
        return op

    def _postfix(self, callee: Expr, start: Token) -> Rule[Expr]:
        """One `.index` or one argument list behind an expression."""
        if self.kind == "projection":
            token = self.advance()
            return TupleGetItem(callee, int(token.text[1:]), span=self.span_from(start))
        self.advance()
        args: list[Expr] = []
        while self.kind != ")" and not self.at_attribute():
            arg = self._leaf() if self.peek() in _ARGUMENT_ENDS else None
            args.append((yield self.expr_rule()) if arg is None else arg)
            if not self.accept(",") and self.kind != ")":
                self.fail_expected("',', an operator or ')'", "in the arguments of a call")
        given = yield self.attributes_rule(")", callee.attrs if isinstance(callee, Op) else None)
        self.advance()
        if isinstance(callee, Op):
            attrs = self.build_attrs(callee, given, start)
        else:
            attrs = self._plain_attrs(given) or None
        if (
            isinstance(callee, Call)
            and isinstance(callee.op, Constructor)
            and self._is_nullary(callee, start)
        ):
            return Call(callee.op, tuple(args), attrs, span=self.span_from(start))
        return Call(callee, tuple(args), attrs, span=self.span_from(start))

    def _is_nullary(self, call: Call, start: Token) -> bool:
        """Whether `call` is a constructor written bare, as in `Nil()`: the parentheses then add nothing."""
        return (
            not call.args
            and self.tokens[self.position - 2].kind == "("
            and call.span == self.span_of(start)
        )

    def _plain_attrs(self, given: Mapping[str, tuple[Token, Any]]) -> Mapping[str, Any]:
        return MappingProxyType({n: v for n, (_, v) in given.items() if n != "attrs_type_key"})

    # --- atoms --------------------------------------------------------------------------------------------

    def _leaf(self) -> Expr | None:
        """The expression of a single token (or a signed number); None, with nothing read, for anything else."""
        token = self.token
        match self.kind:
            case "local":
                self.advance()
                return self._local(token)
            case "graph":
                self.advance()
                found: Expr | None = self.graph.names.get(int(token.text[1:]))
                if found is None:
                    self.fail(f"undefined graph variable {token.text}", token)
                return found
            case "global":
                self.advance()
                return self.global_var(token)
            case "name":
                return self._bare_name(token)
            case "True" | "False":
                self.advance()
                return Constant(np.array(token.kind == "True"), span=self.span_of(token))
            case "number" | "-":
                return self._literal()
        return None

    def _local(self, token: Token) -> Var:
        name = token.text[1:]
        found: Var | None = self.locals.names.get(name)
        if found is None:
            hint = did_you_mean(token.text, (f"%{known}" for known in self.locals.names))
            self.fail(f"undefined variable {token.text}{hint}", token)
        return found

    def global_var(self, token: Token) -> GlobalVar:
        """The module's one GlobalVar of that name; noted for the check that it gets defined."""
        name = token.text[1:]
        if name not in self.globals:
            self.globals[name] = GlobalVar(name, span=self.span_of(token))
        self.global_mentions.setdefault(name, token)
        return self.globals[name]

    def _bare_name(self, token: Token) -> Expr:
        if token.text == "meta" and self.peek() == "[":
            value = self.meta_reference()
            if not isinstance(value, Expr):
                self.fail(f"{type(value).__name__} in the metadata is no expression", token)
            return value
        self.advance()
        constructor = self.constructors.get(token.text)
        if constructor is None:
            return self._operator(token.text, token)
        # A nullary constructor is written without parentheses and means its call.
        return (
            constructor if constructor.inputs else Call(constructor, (), span=self.span_of(token))
        )

    def _literal(self) -> Expr:
        found = self.signed_number()
        if found is None:
            while self.accept("-"):
                pass
            self.fail_expected("a number", "behind '-' (otherwise write negative(...))")
        start, negative, parts = found
        key = (parts, negative)
        array = self._scalars.get(key)
        if array is None:
            array = self._scalars[key] = self._scalar(parts, negative, start)
            array.flags.writeable = False
        return Constant(array, span=self.span_from(start))

    def _scalar(self, parts: Number, negative: bool, start: Token) -> np.ndarray[Any, Any]:
        last = self.tokens[self.position - 1]
        text = f"{'-' if negative else ''}{parts.digits}"
        if parts.is_float:
            with np.errstate(over="ignore"):
                array = np.array(float(text)).astype(parts.dtype)
            if np.isinf(array) and parts.digits != "inf":
                self.fail(
                    f"{text} does not fit {parts.dtype}; write {'-' if negative else ''}inff", start
                )
            return array
        value = int(text)
        name = parts.dtype or ("int32" if -(2**31) <= value < 2**31 else "int64")
        info = np.iinfo(name)
        if not info.min <= value <= info.max:
            self.fail(f"{text} does not fit {name}", last)
        return np.array(value, name)

    def _compound(self, start: Token) -> Rule[Expr]:
        """The expressions that begin with a bracket or a keyword."""
        found: Expr
        match self.kind:
            case "{":
                self.advance()
                found = yield self.expr_rule()
                self.expect("}", "at the end of a block")
            case "(":
                found = yield self._parenthesis(start)
            case "fn":
                self.advance()
                found = yield self.function_rule(start)
            case "if":
                found = yield self._if(start)
            case "match" | "match?":
                found = yield self._match(start)
            case "ref" | "ref_read" | "ref_write":
                found = yield self._reference(start)
            case _:
                self.fail_expected("an expression")
        return found

    def _parenthesis(self, start: Token) -> Rule[Expr]:
        """(), (expr) or a tuple."""
        self.advance()
        fields: list[Expr] = yield self.items(")", self.expr_rule, "in a tuple")
        if len(fields) == 1 and self.tokens[self.position - 2].kind != ",":
            return fields[0]
        return Tuple(tuple(fields), span=self.span_from(start))

    def _if(self, start: Token) -> Rule[Expr]:
        self.advance()
        self.expect("(", "behind if")
        cond: Expr = yield self.expr_rule()
        self.expect(")", "behind the condition")
        self.expect("{", "before the true branch")
        true: Expr = yield self.expr_rule()
        self.expect("}", "behind the true branch")
        self.expect("else", "(an if has two branches)")
        self.expect("{", "before the false branch")
        false: Expr = yield self.expr_rule()
        self.expect("}", "behind the false branch")
        return If(cond, true, false, span=self.span_from(start))

    def _reference(self, start: Token) -> Rule[Expr]:
        kind = self.advance().kind
        self.expect("(", f"behind {kind}")
        first: Expr = yield self.expr_rule()
        second: Expr | None = None
        if kind == "ref_write":
            self.expect(",", "between the ref and the value of ref_write")
            second = yield self.expr_rule()
        self.expect(")", f"at the end of {kind}")
        span = self.span_from(start)
        if second is not None:
            return RefWrite(first, second, span=span)
        return RefCreate(first, span=span) if kind == "ref" else RefRead(first, span=span)

    # --- functions ----------------------------------------------------------------------------------------

    def function_rule(self, start: Token) -> Rule[Function]:
        """What stands behind `fn` and behind `def @name`."""
        type_mark, locals_mark, graph_mark = (
            self.type_vars.mark(),
            self.locals.mark(),
            self.graph.mark(),
        )
        type_params = self.type_params()
        self.expect("(", "before the parameters of a function")
        params: list[Var] = []
        while self.kind == "local":
            params.append((yield self._param()))
            if not self.accept(",") and self.kind != ")":
                self.fail_expected("',' or ')'", "in the parameters of a function")
        if self.kind != ")" and not self.at_attribute():
            self.fail_expected("a parameter (%name), an attribute (name=value) or ')'")
        given = yield self.attributes_rule(")", None)
        self.advance()
        result: Type | None = (yield self.type_rule()) if self.accept("->") else None
        self.expect("{", "before the body of a function")
        body: Expr = yield self.expr_rule()
        self.expect("}", "behind the body of a function")
        self.type_vars.leave(type_mark)
        self.locals.leave(locals_mark)
        self.graph.leave(graph_mark)
        attrs = self._plain_attrs(given)
        return Function(tuple(params), body, result, type_params, attrs, span=self.span_from(start))

    def _param(self) -> Rule[Var]:
        token = self.advance()
        if self.accept("{"):
            # TVM writes a virtual device here; placement is the compiler's here, so it is read and dropped.
            yield self.attributes_rule("}", None)
            self.advance()
        annotation: Type | None = (yield self.type_rule()) if self.accept(":") else None
        var = Var(token.text[1:], annotation, span=self.span_of(token))
        self.locals.bind(var.name_hint, var)
        return var

    # --- match --------------------------------------------------------------------------------------------

    def _match(self, start: Token) -> Rule[Expr]:
        self.advance()
        data: Expr = yield self.binop_rule()
        self.expect("{", "before the clauses of a match")
        clauses: list[Clause] = []
        while not self.accept("}"):
            clause_start = self.token
            mark = self.locals.mark()
            lhs: Pattern = yield self._pattern()
            self.expect("=>", "behind a pattern")
            rhs: Expr = yield self.expr_rule()
            self.locals.leave(mark)
            clauses.append(Clause(lhs, rhs, span=self.span_from(clause_start)))
            self.accept(",")
        return Match(data, tuple(clauses), start.kind == "match", span=self.span_from(start))

    def _pattern(self) -> Rule[Pattern]:
        """pattern := _ | %name (":" type)? | Constructor ("(" patterns ")")? | "(" patterns ")" """
        token = self.advance()
        match token.kind:
            case "_":
                return PatternWildcard(span=self.span_of(token))
            case "local":
                annotation: Type | None = (yield self.type_rule()) if self.accept(":") else None
                var = Var(token.text[1:], annotation, span=self.span_of(token))
                self.locals.bind(var.name_hint, var)
                return PatternVar(var, span=self.span_from(token))
            case "name":
                constructor = self.constructors.get(token.text)
                if constructor is None:
                    hint = where_defined(token.text, self.constructors)
                    self.fail(f"unknown constructor {token.text} in a pattern{hint}", token)
                parts: list[Pattern] = []
                if self.accept("("):
                    parts = yield self.items(")", self._pattern, "in a pattern")
                return PatternConstructor(constructor, tuple(parts), span=self.span_from(token))
            case "(":
                parts = yield self.items(")", self._pattern, "in a pattern")
                return PatternTuple(tuple(parts), span=self.span_from(token))
        found = kind_text(token.kind) if token.kind == "end" else f"'{token.text}'"
        self.fail(
            f"expected a pattern (_, %name, a constructor or a tuple of patterns), but found {found}",
            token,
        )
