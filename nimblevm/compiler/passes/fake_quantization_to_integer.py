"""Write what lies between qnn.dequantize and qnn.quantize in integers. A pass that users call.

before:  qnn.quantize(nn.relu(nn.dense(qnn.dequantize(%x, 0.5f, 3), qnn.dequantize(%w, 0.25f, 0))), 2f, 0)
after:   qnn.requantize(maximum(qnn.dense(%x, %w, 3, 0, 0.5f, 0.25f), 0), 0.125f, 0, 2f, 0)

A region (compiler/fake_regions.py) is what a qnn.quantize reads: operators, tuples and constants, down to
qnn.dequantize. Where all of its operators have a rule (compiler/integer_rules.py) it is written in integers, else it
stays, or raises a CompileError with hard_fail. The integer program is within one step of the result's type, where steps
of products are not larger than that. Regions may share operators, and what floats read, too, is computed for them as
before.

use_qat: what is left is written in integers as far as it follows a qnn.dequantize, which then comes after it; nothing
says there in which type a result is wanted, so that operators whose rule asks for one stay.

Needs: inferred types, graph form. Keeps: both. Cost: O(operators in all regions). Source: TVM's
FakeQuantizationToInteger, which rounds and saturates at the type of the region's end between operators, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from nimblevm.compiler.affine import (
    Form,
    Known,
    Other,
    Quantized,
    Refused,
    dequantized_form,
    quantized,
)
from nimblevm.compiler.dataflow import is_op
from nimblevm.compiler.fake_regions import Integers, holds_reals, region_of
from nimblevm.compiler.integer_rules import OPTIONAL, RULES
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    is_primitive,
    map_functions,
    op_call,
    type_of,
    typed,
    with_body,
)
from nimblevm.errors import CompileError, InvalidInput
from nimblevm.relay.ir import Call, Expr, Function, Tuple, TupleGetItem, is_known
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, TupleType, Type


class _Closer(Rewriter):
    """Writes regions."""

    def __init__(self, integers: Integers, hard_fail: bool) -> None:
        super().__init__()
        self.integers = integers
        self.hard_fail = hard_fail

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not is_op(new, "qnn.quantize"):
            return new
        region = region_of(new)
        if region is None:
            return new
        try:
            return self.integers.close(new, region)
        except Refused as refused:
            if self.hard_fail:
                text = f"{refused}; hard_fail=False keeps what can't be written in integers"
                raise CompileError(text) from None
            return new


class _Sinker(Rewriter):
    """Puts operators of dequantized tensors before their qnn.dequantize."""

    def __init__(self, integers: Integers) -> None:
        super().__init__()
        self.integers = integers
        self.sunk: dict[Expr, Quantized] = {}
        """What the calls of qnn.dequantize that were made stand for."""

    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(new, TupleGetItem) and isinstance(new.tuple_value, Tuple):
            field = new.tuple_value.fields[new.index]
            return field if is_op(field, "qnn.dequantize") else new
        if not isinstance(new, Call) or not isinstance(new.op, Op):
            return new
        if new.op.name not in self.integers.rules:
            return new
        try:
            forms = [self._form(arg) for arg in new.args]
            if not any(map(_is_quantized, forms)):
                return new
            return self._reals(new, type_of(new), self.integers.apply(new, forms, None))
        except Refused:
            return new

    def _form(self, arg: Expr) -> Form:
        """The form of an operand. Refused if it is a float that no qnn.dequantize gives."""
        if not holds_reals(arg):
            return Other(arg)
        if is_known(arg):
            return Known(arg)
        if isinstance(arg, Tuple):
            return tuple([self._form(field) for field in arg.fields])
        if isinstance(arg, Call) and is_op(arg, "qnn.dequantize"):
            return self.sunk.get(arg) or dequantized_form(arg)
        raise Refused("an operand is a float")

    def _reals(self, call: Call, type_: Type, form: Form) -> Expr:
        """The float tensors that a form stands for."""
        if isinstance(form, tuple):
            assert isinstance(type_, TupleType)
            fields = [self._reals(call, t, f) for t, f in zip(type_.fields, form, strict=True)]
            return typed(Tuple(tuple(fields), span=call.span), type_)
        found = quantized(form)
        assert isinstance(type_, TensorType)
        args = (found.value, found.type.scale, found.type.zero_point)
        named = {"axis": found.type.axis_attr, "out_dtype": type_.dtype}
        made = op_call("qnn.dequantize", args, type_, call.span, **named)
        self.sunk[made] = found
        return made


def _is_quantized(form: Form) -> bool:
    if isinstance(form, tuple):
        return any(map(_is_quantized, form))
    return isinstance(form, Quantized)


def fake_quantization_pass(
    hard_fail: bool = False, use_qat: bool = False, optional_qnn_ops: Sequence[str] | None = None
) -> Pass:
    """The pass: see the module's docstring. InvalidInput for an operator that has no rule.

    optional_qnn_ops   operators of integer_rules.OPTIONAL that have an integer form, too
    """
    rules = dict(RULES)
    for name in optional_qnn_ops or ():
        if name not in OPTIONAL and name not in RULES:
            raise InvalidInput(
                f"FakeQuantizationToInteger: optional_qnn_ops may name {', '.join(OPTIONAL)}, not {name!r}"
            )
        if name in OPTIONAL:
            rules[name] = OPTIONAL[name]

    def change(function: Function) -> Function:
        if is_primitive(function):
            return function
        integers = Integers(rules)
        function = with_body(function, _Closer(integers, hard_fail).rewrite(function.body))
        if use_qat:
            function = with_body(function, _Sinker(integers).rewrite(function.body))
        return function

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        return map_functions(mod, change)

    return Pass("fake_quantization_to_integer", run)


FAKE_QUANTIZATION_TO_INTEGER = fake_quantization_pass()
FAKE_QUANTIZATION_QAT = dataclasses.replace(
    fake_quantization_pass(use_qat=True), name="fake_quantization_qat"
)
"""With use_qat, for its golden files."""
