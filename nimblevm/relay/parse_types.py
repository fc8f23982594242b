"""Types and dims from Relay text."""

from __future__ import annotations

from nimblevm import dtypes
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.lexer import Token, number
from nimblevm.relay.parse_cursor import Cursor, Rule, Scope, did_you_mean
from nimblevm.relay.source import SourceText
from nimblevm.relay.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    scalar_type,
)

DIM_FUNCTIONS = ("floordiv", "floormod", "min", "max", "bcast")
_DTYPE_PREFIXES = ("int", "uint", "float", "bool")


class TypeParser(Cursor):
    """Rules for types. `type_mentions` collects ADT names for the check at the end of a module."""

    def __init__(self, source: SourceText) -> None:
        super().__init__(source)
        self.type_vars = Scope()
        self.type_mentions: dict[str, Token] = {}
        # Named dims of the current definition; None where names are not allowed (type definitions).
        self.dim_vars: dict[str, DimVar] | None = {}

    def type_rule(self) -> Rule[Type]:
        """type := Tensor[(dims), dtype] | dtype | _ | (types) | fn (types) -> type | ref(type) | Name[types]"""
        token = self.token
        found: Type
        match self.kind:
            case "name":
                self.advance()
                found = yield self._named_type(token)
                return found
            case "_":
                self.advance()
                return IncompleteType()
            case "(":
                self.advance()
                fields: list[Type] = yield self.items(")", self.type_rule, "in a tuple type")
                if len(fields) == 1 and self.tokens[self.position - 2].kind != ",":
                    return fields[0]  # parentheses only; (T,) is the tuple
                return TupleType(fields)
            case "fn":
                self.advance()
                found = yield self._function_type()
                return found
            case "ref":
                self.advance()
                self.expect("(", "behind ref")
                value = yield self.type_rule()
                self.expect(")", "behind the type of a ref")
                return RefType(value)
        self.fail_expected(
            "a type (Tensor[(...), dtype], a dtype, a tuple of types, fn, ref, a type's name or _)"
        )

    def type_params(self) -> tuple[TypeVar, ...]:
        """[A, B] if there is one; binds the names in `type_vars` until the caller leaves the scope."""
        found: list[TypeVar] = []
        if not self.accept("["):
            return ()
        while not self.accept("]"):
            token = self.expect("name", "as a type parameter")
            var = TypeVar(token.text)
            self.type_vars.bind(token.text, var)
            found.append(var)
            if not self.accept(",") and self.kind != "]":
                self.fail_expected("',' or ']'", "in the type parameters")
        return tuple(found)

    def _named_type(self, token: Token) -> Rule[Type]:
        name = token.text
        found: Type
        if name == "Tensor":
            found = yield self._tensor_type()
            return found
        if name in self.type_vars.names:
            found = self.type_vars.names[name]
            return found
        if name.startswith(_DTYPE_PREFIXES):
            return scalar_type(self._dtype(token))
        self.type_mentions.setdefault(name, token)
        args: list[Type] = []
        if self.accept("["):
            args = yield self.items("]", self.type_rule, "in the arguments of a type")
        return TypeCall(GlobalTypeVar(name), args)

    def _dtype(self, token: Token) -> str:
        name = dtypes.SHORT.get(token.text, token.text)
        if name not in dtypes.BY_NAME:
            self.fail(
                f"unknown dtype {token.text!r}{did_you_mean(token.text, dtypes.BY_NAME)}", token
            )
        return name

    def _tensor_type(self) -> Rule[Type]:
        self.expect("[", "behind Tensor")
        self.expect("(", "before the shape of a tensor type")
        shape: list[Dim] = []
        while not self.accept(")"):
            start = self.token
            shape.append((yield self.dim_rule()))
            self._check_size(shape[-1], start)
            if not self.accept(",") and self.kind != ")":
                self.fail_expected("',' or ')'", "in the shape of a tensor type")
        self.expect(",", "between shape and dtype of a tensor type")
        dtype = self._dtype(self.expect("name", "as the dtype of a tensor type"))
        self.expect("]", "at the end of a tensor type")
        return TensorType(shape, dtype)

    def _check_size(self, dim: Dim, start: Token) -> None:
        if isinstance(dim, int) and not 0 <= dim < 2**63:
            self.fail(f"a static dim must be from 0 to 2**63 - 1, not {dim}", start)

    def _function_type(self) -> Rule[Type]:
        mark = self.type_vars.mark()
        params = self.type_params()
        self.expect("(", "behind fn in a function type")
        args = yield self.items(")", self.type_rule, "in a function type")
        self.expect("->", "before the result of a function type")
        result = yield self.type_rule()
        self.type_vars.leave(mark)
        return FuncType(args, result, params)

    # --- dims: sums of products of factors ----------------------------------------------------------

    def dim_rule(self) -> Rule[Dim]:
        """dim := product (("+" | "-") product)*"""
        total: Dim = yield self._dim_product()
        while self.kind in ("+", "-"):
            combine = dims.add if self.advance().kind == "+" else dims.sub
            total = combine(total, (yield self._dim_product()))
        return total

    def _dim_product(self) -> Rule[Dim]:
        product: Dim = yield self._dim_factor()
        while self.accept("*"):
            product = dims.mul(product, (yield self._dim_factor()))
        return product

    def _dim_factor(self) -> Rule[Dim]:
        negative = False
        while self.accept("-"):
            negative = not negative
        token = self.token
        value: Dim
        match self.kind:
            case "number":
                value = self._dim_number()
            case "dim":
                value = self.dim_var()
            case "(":
                self.advance()
                value = yield self.dim_rule()
                self.expect(")", "in a dim")
            case "name" if token.text in DIM_FUNCTIONS:
                value = yield self._dim_function()
            case _:
                self.fail_expected("a dim (a number, ?, ?name or an expression of them)")
        if not negative:
            return value
        return -value if isinstance(value, int) else dims.mul(-1, value)

    def _dim_number(self) -> int:
        token = self.advance()
        parts = number(self.source, token)
        if parts.is_float:
            self.fail("a dim is an integer", token)
        return int(parts.digits)

    def dim_var(self) -> DimVar:
        """`?` is a fresh unknown; `?n` is one object throughout a definition."""
        token = self.expect("dim")
        name = token.text[1:]
        if not name:
            return DimVar(None)
        if self.dim_vars is None:
            self.fail("a type definition can't name dims; write ?", token)
        return self.dim_vars.setdefault(name, DimVar(name))

    def _dim_function(self) -> Rule[Dim]:
        token = self.advance()
        self.expect("(", f"behind {token.text}")
        args = yield self.items(")", self.dim_rule, f"in the arguments of {token.text}")
        binary = token.text in ("floordiv", "floormod")
        if len(args) < 2 or (binary and len(args) > 2):
            self.fail(f"{token.text} takes two dims, not {len(args)}", token)
        try:
            return dims.build(token.text, args)
        except (ValueError, ZeroDivisionError) as error:
            self.fail(str(error), token)
