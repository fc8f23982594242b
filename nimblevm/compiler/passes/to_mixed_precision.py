"""Compute in float16 what gains by it and bears it. A pass that users call.

before:  nn.softmax(nn.relu(nn.dense(%x, %w)))                              (%x, %w: float32)
after:   %0 = nn.dense(cast(%x, dtype="float16"), cast(%w, dtype="float16"), out_dtype="float16");
         nn.softmax(cast(nn.relu(%0), dtype="float32"))

Each operator has a category (relay/op/mixed_precision.py): products are computed in float16, and sum in float32 as
every product of float16 does here; what follows a value is in float16 if all its float operands are or may be for
free; large sums and steep functions get float32. A value is cast once to a dtype, whoever reads it. Free are the
parameters of a function that nothing calls, and constants, but for those that float16 can't hold: elements that
become infinite, a single element that becomes 0. A call with float64 operands stays as it is.

Types that several places have to agree on stay: parameters and results of functions that code refers to, fields of
constructors, contents of references, what a match looks at; values are cast there. Branches of which some are in
float16 get the dtype that they had. So what a loop carries from step to step keeps its precision. The result of a
function that nothing calls has the dtype that comes out, unless `keep_orig_output_dtype`. Functions with the
attributes Primitive, Composite, Compiler or SkipOptimization stay.

missing_op_mode says what an operator without a category is: 0 an error, 1 a warning, 2 nothing; it follows then.

Needs: inferred types. Keeps: them. Cost: one walk, O(nodes), and inference of each call whose operands changed.
Source: TVM's ToMixedPrecision; the rules for functions, data types, references and branches are ours.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any
from typing import TypeVar as PyTypeVar

import numpy as np

from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    is_primitive,
    let_chain,
    op_call,
    type_of,
    typed,
    with_children,
)
from nimblevm.errors import CompileError, InvalidInput, warn
from nimblevm.relay.analysis import global_calls
from nimblevm.relay.infer_type import infer_expr
from nimblevm.relay.ir import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Let,
    Match,
    RefCreate,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    children,
    is_known,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.mixed_precision import RESULT_DTYPE, Precision, category
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import FuncType, TensorType, TupleType, Type, value_tensors
from nimblevm.relay.visitor import post_order

NARROW = "float16"
WIDE = "float32"
_KEPT = ("Compiler", "Composite", "SkipOptimization")


_UNTYPED = FuncType((), TupleType(()))
E = PyTypeVar("E", bound=Expr)


def _type(node: Expr) -> Type:
    """The type of a node. What has none (the name of a function, a constructor) is no value to cast."""
    return _UNTYPED if node.checked_type is None else node.checked_type


def _zip(types: tuple[Type, ...], leaf: Callable[..., TensorType]) -> Type:
    """The first of some types of one structure with leaf(tensor of each) in the place of its tensors."""
    done: dict[tuple[Type, ...], Type] = {}
    stack = [types]
    while stack:
        current = stack[-1]
        first = current[0]
        if current in done:
            stack.pop()
        elif isinstance(first, TensorType):
            done[current] = leaf(*current)
        elif isinstance(first, TupleType):
            parts = list(zip(*[t.fields for t in current if isinstance(t, TupleType)], strict=True))
            waiting = [p for p in parts if p not in done]
            if waiting:
                stack.extend(waiting)
            else:
                done[current] = TupleType([done[p] for p in parts])
        else:
            done[current] = first
    return done[types]


def _with_dtypes(type_: Type, other: Type) -> Type:
    """A type with the dtypes of another one of the same structure."""
    if type_ is other:
        return type_
    return _zip((type_, other), lambda a, b: TensorType(a.shape, b.dtype))


def _all_in(type_: Type, dtype: str) -> TensorType | Type:
    """A type with all its narrow and wide floats in one dtype."""

    def leaf(tensor: TensorType) -> TensorType:
        return TensorType(tensor.shape, dtype) if tensor.dtype in (NARROW, WIDE) else tensor

    return _zip((type_,), leaf)


def _agreed(type_: Type, arms: tuple[Type, ...]) -> Type:
    """The dtypes on which all arms agree, that of `type_` where they do not."""

    def leaf(tensor: TensorType, *found: TensorType) -> TensorType:
        dtypes = {t.dtype for t in found}
        return TensorType(tensor.shape, dtypes.pop()) if len(dtypes) == 1 else tensor

    return _zip((type_, *arms), leaf)


def _fits(constant: Constant) -> bool:
    """Whether float16 holds it well enough for an operator that follows. Of a weight that is bound late nothing is
    known."""
    if not is_known(constant) or constant.data.dtype != np.dtype(WIDE):
        return True
    with np.errstate(over="ignore", under="ignore"):
        narrow = constant.data.astype(NARROW)
    if not np.array_equal(np.isfinite(narrow), np.isfinite(constant.data)):
        return False
    return constant.data.size != 1 or bool((narrow == 0) == (constant.data == 0))


class _Converter(Rewriter):
    """Rewrites one function.

    free     new nodes that may have either dtype: parameters of an entry, constants, tuples and variables of such
    casts    (node, dtype) -> the node in that dtype
    missing  counts the operators without a category
    """

    def __init__(self, function: Function, entry: bool, missing: Counter[str]) -> None:
        super().__init__()
        self.free: set[Expr] = set(function.params) if entry else set()
        self.casts: dict[tuple[Expr, str], Expr] = {}
        self.fields: dict[tuple[Expr, int], Expr] = {}
        self.missing = missing
        self.uses: Counter[Expr] = Counter()  # of blocks
        for node in post_order(function.body, is_primitive):
            if not is_primitive(node):
                self.uses.update(c for c in children(node) if isinstance(c, Let))

    def leaf(self, node: Expr) -> Expr:
        if isinstance(node, Constant) and _fits(node):
            self.free.add(node)
        return node

    def enter(self, node: Expr) -> bool:
        return not (isinstance(node, Function) and any(name in node.attrs for name in _KEPT))

    # --- casts ---

    def cast(self, expr: Expr, want: Type) -> Expr:
        """A value in the dtypes of `want`, a type of its structure; the same object if it has them."""
        done: dict[tuple[Expr, Type], Expr] = {}
        stack = [(expr, want)]
        while stack:
            node, wanted = item = stack[-1]
            have = _type(node)
            made = _with_dtypes(have, wanted)
            if item in done:
                stack.pop()
            elif made is have:
                done[item] = node
            elif isinstance(made, TensorType):
                done[item] = self._cast_tensor(node, made)
            else:
                assert isinstance(made, TupleType)
                parts = list(zip(self._fields(node), made.fields, strict=True))
                waiting = [part for part in parts if part not in done]
                if waiting:
                    stack.extend(waiting)
                    continue
                fields = tuple([done[part] for part in parts])
                done[item] = Tuple(fields, span=node.span, checked_type=made)
        return done[(expr, want)]

    def _fields(self, node: Expr) -> tuple[Expr, ...]:
        if isinstance(node, Tuple):
            return node.fields
        found = []
        type_ = _type(node)
        assert isinstance(type_, TupleType)
        for index, field in enumerate(type_.fields):
            key = (node, index)
            if key not in self.fields:
                self.fields[key] = TupleGetItem(node, index, span=node.span, checked_type=field)
            found.append(self.fields[key])
        return tuple(found)

    def _cast_tensor(self, node: Expr, type_: TensorType) -> Expr:
        key = (node, type_.dtype)
        if key not in self.casts:
            made = op_call("cast", (node,), type_, node.span, dtype=type_.dtype)
            have = _type(node)
            assert isinstance(have, TensorType)
            self.casts[key] = made
            self.casts[(made, have.dtype)] = node  # back again is the value itself
        return self.casts[key]

    def cast_end(self, old: Expr, block: Expr, want: Type) -> Expr:
        """As `cast`, of what a block gives that was `old`: behind its lets, unless they stand elsewhere too."""
        if _with_dtypes(_type(block), want) is _type(block):
            return block
        if any(self.uses[let] > 1 for let in let_chain(old)[0]):
            return self.cast(block, want)
        lets, tail = let_chain(block)
        new = self.cast(tail, want)
        for let in reversed(lets):
            new = Let(let.var, let.value, new, span=let.span, checked_type=new.checked_type)
        return new

    # --- nodes ---

    def bind(self, let: Let, value: Expr) -> None:
        old = _type(let.var)
        new = _with_dtypes(old, _type(value))
        var = let.var
        if new is not old:
            noted = None if var.type_annotation is None else new
            var = Var(var.name_hint, noted, span=var.span, checked_type=new)
            self.memo[let.var] = var
        if value in self.free:
            self.free.add(var)

    def visit(self, node: Expr, new: Expr) -> Expr:
        old = _type(node)
        match new:
            case Call():
                return (
                    self._operator(node, new) if isinstance(new.op, Op) else self._call(node, new)
                )
            case Let():
                var = self.memo.get(new.var, new.var)
                return _changed(new, _with_dtypes(old, _type(new.body)), var=var)
            case Tuple():
                if all(field in self.free for field in new.fields):
                    self.free.add(new)
                return _changed(new, _with_dtypes(old, TupleType([_type(f) for f in new.fields])))
            case TupleGetItem():
                whole = _type(new.tuple_value)
                assert isinstance(whole, TupleType)
                made = _changed(new, _with_dtypes(old, whole.fields[new.index]))
                if new.tuple_value in self.free:
                    self.free.add(made)
                return self.fields.setdefault((new.tuple_value, new.index), made)
            case If() | Match():
                return self._branches(node, new)
            case Function():
                body = children(node)[0]
                return _changed(new, old, body=self.cast_end(body, new.body, _type(body)))
            case RefCreate(value=value) | RefWrite(value=value):
                return _changed(new, old, value=self.cast(value, _type(children(node)[-1])))
        return new

    def _call(self, node: Expr, new: Call) -> Expr:
        """A call of a function or constructor: it takes and gives what it did."""
        args = [self.cast(a, _type(b)) for a, b in zip(new.args, children(node)[1:], strict=True)]
        return _changed(new, _type(node), args=tuple(args))

    def _branches(self, node: Expr, new: If | Match) -> Expr:
        subject, *blocks = children(node)
        arms = children(new)[1:]
        type_ = _agreed(_type(node), tuple([_type(arm) for arm in arms]))
        ends = [self.cast_end(old, arm, type_) for old, arm in zip(blocks, arms, strict=True)]
        subject = self.cast(children(new)[0], _type(subject))
        return _changed(with_children(new, (subject, *ends)), type_)

    def _operator(self, node: Expr, new: Call) -> Expr:
        op = new.op
        assert isinstance(op, Op)
        kind = category(op)
        if kind is None:
            self.missing[op.name] += 1
            kind = Precision.FOLLOW
        old = [_type(arg) for arg in children(node)[1:]]
        wanted = [_type(arg) for arg in new.args]
        attrs = new.attrs
        if kind is not Precision.READ and _stays(kind, attrs, (*old, _type(node))):
            wanted = old
        elif kind is not Precision.READ:
            narrow = kind is not Precision.NEVER and all(
                self._may_be_narrow(arg, kind) for arg in new.args
            )
            wanted = [_all_in(type_, NARROW if narrow else WIDE) for type_ in wanted]
            attrs = _narrow_result(op, attrs, _type(node), wanted) if narrow else attrs
        args = tuple([self.cast(arg, type_) for arg, type_ in zip(new.args, wanted, strict=True)])
        if attrs is new.attrs and all(a is b for a, b in zip(wanted, old, strict=True)):
            return _changed(new, _type(node), args=args)
        made = Call(op, args, attrs, span=new.span)
        return typed(made, _with_dtypes(_type(node), _result(made)))

    def _may_be_narrow(self, arg: Expr, kind: Precision) -> bool:
        if isinstance(arg, Constant):
            return arg in self.free
        if kind is Precision.ALWAYS or arg in self.free:
            return True
        if isinstance(arg, Tuple):
            return all(self._may_be_narrow(field, kind) for field in arg.fields)
        return all(t.dtype != WIDE for t in value_tensors(_type(arg)))


def _stays(kind: Precision, attrs: object, types: tuple[Type, ...]) -> bool:
    """Whether a call keeps the dtypes that the program has: one that says its dtype or has float64 among them."""
    if kind is Precision.WRITTEN:
        return True
    if kind is Precision.NEVER:
        named = (getattr(attrs, name, None) for name in ("dtype", "out_dtype", "compute_dtype"))
        if any(str(dtype).startswith("float") for dtype in named):
            return True
    return any(t.dtype == "float64" for type_ in types for t in value_tensors(type_))


def _narrow_result(op: Op, attrs: Any, result: Type, operands: list[Type]) -> Any:
    """The attributes with a result in float16 where the operator's say its dtype and it was float32."""
    name = RESULT_DTYPE.get(op.name)
    if name is None or not isinstance(result, TensorType) or result.dtype != WIDE:
        return attrs
    floats = any(t.dtype == NARROW for type_ in operands for t in value_tensors(type_))
    if name == "out_dtype" and not floats:  # of integers
        return attrs
    return dataclasses.replace(attrs, **{name: NARROW})


def _result(call: Call) -> Type:
    """What inference says of a call; its dtypes count. Constants stay: sizes may be among them."""
    args = [a if isinstance(a, Constant) else Var("operand", _type(a)) for a in call.args]
    return type_of(infer_expr(Call(call.op, tuple(args), call.attrs, span=call.span)))


def _changed(node: E, type_: Type, **parts: object) -> E:
    """A node with other parts and this type; the same object if all are the same."""
    same = type_ is _type(node) and all(_same(getattr(node, k), v) for k, v in parts.items())
    if same:
        return node
    changes: dict[str, Any] = {"checked_type": type_, **parts}
    return dataclasses.replace(node, **changes)


def _same(a: object, b: object) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return all(x is y for x, y in zip(a, b, strict=True))
    return a is b


def _convert(function: Function, entry: bool, keep_result: bool, missing: Counter[str]) -> Function:
    if any(name in function.attrs for name in (*_KEPT, "Primitive")):
        return function
    converter = _Converter(function, entry, missing)
    body = converter.rewrite(function.body)
    if keep_result or not entry:
        body = converter.cast_end(function.body, body, _type(function.body))
    if body is function.body:
        return function
    assert function.ret_type is not None
    result = _with_dtypes(function.ret_type, _type(body))
    type_ = FuncType([_type(p) for p in function.params], result, function.type_params)
    return dataclasses.replace(function, body=body, ret_type=result, checked_type=type_)


def to_mixed_precision_pass(
    mixed_precision_type: str = NARROW,
    missing_op_mode: int = 1,
    keep_orig_output_dtype: bool = False,
) -> Pass:
    """The pass with its options; InvalidInput for a dtype that is none to compute in, or another mode."""
    if mixed_precision_type != NARROW:
        known = f"mixed_precision_type must be {NARROW!r}, not {mixed_precision_type!r}"
        hint = (
            "; nvm.compile(weights='bfloat16') stores weights in it"
            if "bfloat" in str(mixed_precision_type)
            else ""
        )
        raise InvalidInput(f"{known}: no other narrow dtype has arithmetic here{hint}")
    if missing_op_mode not in (0, 1, 2):
        raise InvalidInput(
            f"missing_op_mode must be 0 (an error), 1 (a warning) or 2 (nothing), not {missing_op_mode!r}"
        )

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        called = {var for function in mod.functions.values() for var in global_calls(function)}
        missing: Counter[str] = Counter()
        result = mod.shallow_copy()
        for var, function in mod.functions.items():
            new = _convert(function, var not in called, keep_orig_output_dtype, missing)
            if new is not function:
                result[var] = new
        if missing and missing_op_mode < 2:
            names = ", ".join(f"{name} ({count} calls)" for name, count in sorted(missing.items()))
            text = f"ToMixedPrecision knows no category of {names}"
            if missing_op_mode == 0:
                raise CompileError(f"{text}; missing_op_mode=1 lets them follow their operands")
            warn(f"{text}: they follow their operands")
        return result

    return Pass("to_mixed_precision", run)


TO_MIXED_PRECISION = to_mixed_precision_pass()
