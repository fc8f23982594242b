"""Random well-scoped IR (not well-typed) with sharing across scopes, for tests of printer, parser and equality."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from nimblevm.relay import dims
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
    Tuple,
    TupleGetItem,
    TypeData,
    Var,
    pattern_vars,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import registry
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
)

NAMES = ("x", "y", "x_1", "a/b", "conv.weight", "7up", "odd name", "", "_")
DTYPES = ("float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool")


class Generator:
    """Draws one module from a seed. `visible` is a stack of scopes: expressions that may be used again."""

    def __init__(self, seed: int, size: int = 30) -> None:
        self.random = random.Random(seed)
        self.budget = size
        self.globals = [GlobalVar("main"), GlobalVar("f"), GlobalVar("lib/g.two")]
        self.list = GlobalTypeVar("List")
        element = TypeVar("A")
        fields = (element, TypeCall(self.list, (element,)))
        self.constructors = (
            Constructor("Cons", fields, self.list, 0),
            Constructor("Nil", (), self.list, 1),
        )
        self.definition = TypeData(self.list, (element,), self.constructors)
        self.dims: list[dims.DimVar] = []
        self.type_vars: list[TypeVar] = []
        self.visible: list[list[Expr]] = [[]]

    def module(self) -> IRModule:
        module = IRModule()
        module.add_type(self.definition)
        for var in self.globals:
            self.dims = [dims.DimVar("n"), dims.DimVar(None), dims.DimVar("n"), dims.DimVar("d0")]
            self.type_vars, self.visible = [], [[]]
            module[var] = self.function(3)
        return module

    def pick(self, choices: Any) -> Any:
        return self.random.choice(choices)

    # --- types --------------------------------------------------------------------------------------

    def dim(self, depth: int = 2) -> dims.Dim:
        kind = self.random.randrange(6 if depth else 3)
        if kind == 0:
            return self.random.randrange(5)
        if kind == 1:
            return self.pick(self.dims)
        if kind == 2:
            return dims.DimVar(self.pick((None, None, "n", "m")))
        a, b = self.dim(depth - 1), self.dim(depth - 1)
        combine = self.pick((dims.add, dims.sub, dims.mul, dims.min_, dims.max_))
        result = combine(a, b)
        return result if not isinstance(result, int) or result >= 0 else 0

    def tensor(self) -> TensorType:
        shape = [self.dim() for _ in range(self.random.randrange(4))]
        return TensorType(shape, self.pick(DTYPES))

    def type(self, depth: int = 2) -> Type:
        match self.random.randrange(7 if depth else 2):
            case 0 | 1:
                return self.tensor()
            case 2:
                return TupleType([self.type(depth - 1) for _ in range(self.random.randrange(3))])
            case 3:
                return RefType(self.type(depth - 1))
            case 4:
                return TypeCall(self.list, [self.type(depth - 1)])
            case 5:
                return FuncType([self.type(depth - 1)], self.type(depth - 1))
        return self.pick(self.type_vars) if self.type_vars else IncompleteType()

    # --- expressions ----------------------------------------------------------------------------------

    def var(self) -> Var:
        return Var(self.pick(NAMES), self.type() if self.random.random() < 0.4 else None)

    def function(self, depth: int) -> Function:
        type_params = [TypeVar("A") for _ in range(self.random.randrange(2))]
        self.type_vars.extend(type_params)
        params = tuple(self.var() for _ in range(self.random.randrange(3)))
        body = self.scope(list(params), depth)
        attrs = (
            {"Primitive": 1, "Compiler": 'a "quoted"\nname'} if self.random.random() < 0.2 else {}
        )
        result = self.type() if self.random.random() < 0.5 else None
        del self.type_vars[len(self.type_vars) - len(type_params) :]
        return Function(params, body, result, tuple(type_params), attrs)

    def scope(self, bound: list[Var], depth: int) -> Expr:
        self.visible.append(list(bound))
        body = self.expr(depth)
        self.visible.pop()
        return body

    def expr(self, depth: int) -> Expr:
        """A new expression, or one that the scope already has."""
        seen = [e for scope in self.visible for e in scope]
        self.budget -= 1
        if seen and (self.budget < 0 or self.random.random() < 0.35):
            return self.pick(seen)
        made = self.atom() if depth == 0 or self.budget < 0 else self.compound(depth - 1)
        self.visible[-1].append(made)
        return made

    def atom(self) -> Expr:
        match self.random.randrange(6):
            case 0:
                return self.pick(self.globals)
            case 1:
                return Call(self.constructors[1], ())
            case 2:
                return registry.get(self.pick(("tanh", "add")))
            case 3:
                return Tuple(())
        return Constant(self.array())

    def array(self) -> np.ndarray[Any, Any]:
        shape = self.pick(((), (), (), (2,), (0, 3)))
        dtype = self.pick(DTYPES)
        count = int(np.prod(shape))
        values = [self.pick((0, 1, -1, 0.1, 1e-7, 12345, -0.0)) for _ in range(count)]
        return np.array(values, "float64").astype(dtype).reshape(shape)

    def compound(self, depth: int) -> Expr:
        match self.random.randrange(12):
            case 0:
                return self.let(depth)
            case 1:
                return self.function(depth)
            case 2:
                return If(self.expr(depth), self.scope([], depth), self.scope([], depth))
            case 3:
                return self.match(depth)
            case 4:
                return Tuple(tuple(self.expr(depth) for _ in range(self.random.randrange(4))))
            case 5:
                return TupleGetItem(self.expr(depth), self.random.randrange(3))
            case 6:
                return self.pick((RefCreate, RefRead))(self.expr(depth))
            case 7:
                return RefWrite(self.expr(depth), self.expr(depth))
            case 8:
                return Call(self.constructors[0], (self.expr(depth), self.expr(depth)))
            case 9:
                return Call(
                    self.expr(depth),
                    tuple(self.expr(depth) for _ in range(self.random.randrange(3))),
                )
        return self.op_call(depth)

    def op_call(self, depth: int) -> Expr:
        name = self.pick(("add", "multiply", "tanh", "nn.dense", "concatenate", "take"))
        op = registry.get(name)
        new = op.attrs or dict
        attrs: Any = new() if op.attrs else None
        if name == "nn.dense":
            attrs = new(units=self.pick((None, 3)), out_dtype=self.pick(("", "float32")))
        if name == "take":
            attrs = new(axis=self.pick((None, -1)), mode=self.pick(("clip", "wrap")))
        return Call(op, tuple(self.expr(depth) for _ in op.args), attrs)

    def let(self, depth: int) -> Expr:
        var = self.var()
        if self.random.random() < 0.3:
            self.visible.append([var])  # a function may mention itself
            value: Expr = self.function(depth)
            self.visible.pop()
        else:
            value = self.expr(depth)
        return Let(var, value, self.scope([var], depth))

    def pattern(self, depth: int) -> Pattern:
        match self.random.randrange(4 if depth else 2):
            case 0:
                return PatternWildcard()
            case 1:
                return PatternVar(self.var())
            case 2:
                parts = tuple(self.pattern(depth - 1) for _ in range(self.random.randrange(3)))
                return PatternTuple(parts)
        constructor = self.pick(self.constructors)
        return PatternConstructor(
            constructor, tuple(self.pattern(depth - 1) for _ in constructor.inputs)
        )

    def match(self, depth: int) -> Expr:
        data = self.expr(depth)
        clauses = []
        for _ in range(self.random.randrange(3)):
            pattern = self.pattern(2)
            clauses.append(Clause(pattern, self.scope(list(pattern_vars(pattern)), depth)))
        return Match(data, tuple(clauses), self.random.random() < 0.5)


def random_module(seed: int, size: int = 30) -> IRModule:
    """A module of a type and three functions."""
    return Generator(seed, size).module()


__all__ = ["random_module"]
