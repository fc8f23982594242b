"""FakeQuantizationToInteger: values of every rule, and what happens at the edges of regions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nimblevm as nvm
from nimblevm import relay
from nimblevm.compiler.integer_rules import OPTIONAL, RULES
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.fake_quantization_to_integer import fake_quantization_pass
from nimblevm.compiler.passes.to_graph import TO_GRAPH
from nimblevm.errors import CompileError, InvalidInput
from nimblevm.relay import qnn
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.ir import Expr, Function
from nimblevm.relay.kinds import list_fake_quantized_op_freqs, list_op_freqs
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import registry
from nimblevm.relay.parser import parse_module
from nimblevm.tvm.relay import transform
from tests.compiler.fake_quantized import CASES, Array, Writer, chain

STRICT = fake_quantization_pass(hard_fail=True)
QAT = fake_quantization_pass(use_qat=True)
CONTEXT = PassContext(verify=True)


def module(writer: Writer, body: Expr) -> IRModule:
    return infer_type(IRModule.from_expr(Function(tuple(writer.params), body)))


def closed(writer: Writer, body: Expr, least: float = 2.0**-8) -> IRModule:
    """The program, quantized to a type that fits its values more or less, with steps of at least `least`."""
    real = evaluate(module(writer, body), writer.values)
    real = np.where(np.isfinite(real), real, 0)
    spread = float(np.ptp(real)) if real.size else 1.0
    scale = np.float32(max(spread / 255 * writer.pick(0.5, 1.0, 2.0), least))
    dtype = writer.dtype
    low = float(real.min()) if real.size else 0.0
    info = np.iinfo(dtype)
    zero = np.clip(round(info.min - low / scale), info.min, info.max)
    output = (writer.number(np.asarray(scale)), writer.number(np.asarray(zero, "int32")))
    return module(writer, qnn.quantize(body, *output, out_dtype=dtype))


def distance(one: Array, other: Array) -> int:
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    return int(np.abs(one.astype("int64") - other.astype("int64")).max(initial=0))


def is_integer(mod: IRModule) -> bool:
    return "qnn.dequantize" not in list_op_freqs(mod)


PROGRAMS = [(name, index) for name, makers in CASES.items() for index in range(len(makers))]


@pytest.mark.parametrize(("name", "index"), PROGRAMS, ids=lambda v: str(v))
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_integers_are_within_a_step_of_the_floats(name: str, index: int, seed: int) -> None:
    writer = Writer(seed)
    mod = closed(writer, CASES[name][index](writer))
    integers = STRICT(mod, CONTEXT)
    assert is_integer(integers)
    with np.errstate(all="ignore"):
        assert distance(evaluate(mod, writer.values), evaluate(integers, writer.values)) <= 1


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_several_operators_are_within_a_step_together(seed: int) -> None:
    """Where steps of products are less than that, which the scales of the result see to."""
    writer = Writer(seed)
    mod = closed(writer, chain(writer), least=0.25)
    try:
        integers = STRICT(mod, CONTEXT)
    except CompileError as error:
        # What these chains may be refused for: a tensor of constants, or scales of the run along an axis.
        if "more than 31 bits" not in str(error) and "the run decides them" not in str(error):
            raise
        return
    with np.errstate(all="ignore"):
        assert distance(evaluate(mod, writer.values), evaluate(integers, writer.values)) <= 1


def test_every_rule_is_of_an_operator_and_has_programs() -> None:
    known = {op.name for op in registry.all_ops()}
    assert set(RULES) | set(OPTIONAL) <= known
    assert set(RULES) == set(CASES)


# --- regions ----------------------------------------------------------------------------------------

HEAD = '#[version = "0.0.5"]\n'
RNG = np.random.default_rng(1)
BYTES = RNG.integers(-128, 128, (3, 4)).astype("int8")


def program(text: str) -> IRModule:
    return infer_type(parse_module(HEAD + text, "program.rly"))


def assert_near(mod: IRModule, integers: IRModule, args: list[Any], steps: int = 1) -> None:
    for one, other in zip(evaluate(mod, args), evaluate(integers, args), strict=True):
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        else:
            assert distance(one, other) <= steps


def test_what_floats_read_too_stays_for_them() -> None:
    mod = program("""def @main(%x: Tensor[(3, 4), int8]) {
      %0 = qnn.dequantize(%x, 0.1f, 3);
      %1 = nn.relu(%0);
      (qnn.quantize(%1, 0.2f, 0), %1, exp(%0))
    }""")
    integers = STRICT(mod, CONTEXT)
    counts = list_op_freqs(integers)
    assert counts["qnn.dequantize"] == counts["nn.relu"] == counts["qnn.requantize"] == 1
    assert "qnn.quantize" not in counts
    assert_near(mod, integers, [BYTES])


def test_regions_share_what_does_not_depend_on_their_ends() -> None:
    mod = program("""def @main(%x: Tensor[(3, 4), int8], %w: Tensor[(5, 4), int8]) {
      %0 = nn.dense(qnn.dequantize(%x, 0.1f, 3), qnn.dequantize(%w, 0.01f, 0));
      %1 = nn.relu(%0);
      (qnn.quantize(%1, 0.2f, 0), qnn.quantize(%1, 0.1f, 4, out_dtype="uint8"), qnn.quantize(%0, 0.5f, -9))
    }""")
    integers = STRICT(mod, CONTEXT)
    assert list_op_freqs(integers)["qnn.dense"] == 1
    assert is_integer(integers)
    assert_near(mod, integers, [BYTES, RNG.integers(-128, 128, (5, 4)).astype("int8")])


def test_a_number_that_stays_one_is_the_operand() -> None:
    mod = program("""def @main(%x: Tensor[(3, 4), int8]) {
      %0 = qnn.dequantize(%x, 0.1f, 3);
      (qnn.quantize(%0, 0.1f, 3), qnn.quantize(%0, 0.2f, 3))
    }""")
    integers = STRICT(mod, CONTEXT)
    assert list_op_freqs(integers) == {"qnn.requantize": 1}
    assert_near(mod, integers, [BYTES])


BRANCH = """def @main(%x: Tensor[(3, 4), int8], %c: bool) {
  %0 = qnn.dequantize(%x, 0.1f, 3);
  %1 = if (%c) { nn.relu(%0) } else { qnn.dequantize(qnn.quantize(nn.relu(%0), 0.2f, 1), 0.2f, 1) };
  (qnn.quantize(%1, 0.2f, 0), %c)
}"""


def test_control_flow_between_is_no_region_and_regions_in_branches_are() -> None:
    mod = program(BRANCH)
    integers = STRICT(mod, CONTEXT)
    counts = list_op_freqs(integers)
    assert counts == {
        "nn.relu": 1,
        "qnn.dequantize": 2,
        "qnn.quantize": 1,
        "maximum": 1,
        "qnn.requantize": 1,
    }
    for branch in (True, False):
        assert_near(mod, integers, [BYTES, branch])


SINE = """def @main(%x: Tensor[(3, 4), int8], %w: Tensor[(5, 4), int8]) {
  %0 = nn.dense(qnn.dequantize(%x, 0.1f, 3), qnn.dequantize(%w, 0.01f, 0));
  %1 = sin(nn.relu(%0));
  (qnn.quantize(%1, 0.01f, 0), 1f)
}"""
WEIGHT = RNG.integers(-128, 128, (5, 4)).astype("int8")


def test_an_operator_without_a_rule_keeps_its_region_or_is_an_error() -> None:
    mod = program(SINE)
    assert fake_quantization_pass()(mod, CONTEXT) is mod
    text = r"program.rly:4:\d+: sin has no integer form here: there is no rule for it; hard_fail=False keeps"
    with pytest.raises(CompileError, match=text):
        STRICT(mod, CONTEXT)


def test_use_qat_writes_what_comes_before() -> None:
    mod = program(SINE)
    integers = QAT(mod, CONTEXT)
    expected = {"qnn.dense": 1, "maximum": 1, "qnn.dequantize": 1, "sin": 1, "qnn.quantize": 1}
    assert list_op_freqs(integers) == expected
    assert_near(mod, integers, [BYTES, WEIGHT])


@pytest.mark.parametrize(("name", "index"), PROGRAMS, ids=lambda v: str(v))
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_use_qat_keeps_values(name: str, index: int, seed: int) -> None:
    """Within two steps of the widest operand's scale: what is rounded are products and constants alone."""
    writer = Writer(seed)
    mod = module(writer, CASES[name][index](writer))
    with np.errstate(all="ignore"):
        one, other = (evaluate(m, writer.values) for m in (mod, QAT(mod, CONTEXT)))
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    finite = np.isfinite(one)  # the mean of no numbers is 0
    np.testing.assert_allclose(other[finite], one[finite], rtol=1e-4, atol=0.03)


def test_softmax_is_optional() -> None:
    mod = program("""def @main(%x: Tensor[(3, 4), int8]) {
      (qnn.quantize(nn.softmax(qnn.dequantize(%x, 0.05f, 0)), 0.00390625f, -128), 1f)
    }""")
    assert fake_quantization_pass()(mod, CONTEXT) is mod
    integers = fake_quantization_pass(optional_qnn_ops=["nn.softmax"])(mod, CONTEXT)
    assert list_op_freqs(integers) == {"qnn.softmax": 1}
    assert_near(mod, integers, [BYTES], steps=12)
    with pytest.raises(
        InvalidInput, match=r"optional_qnn_ops may name nn.softmax, not 'nn.softmx'"
    ):
        fake_quantization_pass(optional_qnn_ops=["nn.softmx"])


REFUSED = {
    "a zero point is no int8": "nn.relu(qnn.dequantize(%x, 0.1f, 300))",
    "a scale is not positive and finite": "nn.relu(qnn.dequantize(%x, -0.1f, 3))",
    "needs more than 31 bits": "%d * %d",
    "its divisor is no constant": "%d / %d",
    "its divisor may be 0": "%d / 0f",
    "does not say in which type the result is": "tanh(qnn.dequantize(%x, 0.1f, 3)) * %d",
    "it takes int8 or uint8 of one scale": "tanh(%d)",
    "it multiplies int32": "nn.dense(%d, qnn.dequantize(%x, 0.1f, 3))",
    "a constant is not finite": "qnn.dequantize(%x, 0.1f, 3) + inff",
    "its condition is a float": "where(%d, %d, %d)",
    "its sum needs more than 31 bits": "sum(broadcast_to(%d * qnn.dequantize(%x, 0.1f, 3), shape=[64, 4, 4]))",
    "nearest_neighbor has an integer form": "image.resize2d(reshape(%d, newshape=[1, 1, 4, 4]), size=[8, 8])",
    "its alpha is more than 1": "nn.leaky_relu(%d, alpha=1.5f)",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_integer_form_says_why(reason: str) -> None:
    mod = program(f"""def @main(%x: Tensor[(4, 4), int8]) {{
      let %d = nn.dense(qnn.dequantize(%x, 0.1f, 3), qnn.dequantize(%x, 0.1f, 3));
      qnn.quantize({REFUSED[reason]}, 0.2f, 0)
    }}""")
    mod = TO_GRAPH(mod, CONTEXT)
    with pytest.raises(CompileError, match=reason):
        STRICT(mod, CONTEXT)


def test_a_large_bias_of_the_run_saturates() -> None:
    """Brought to the scale of the sums it is more than int32 holds; the result is the greatest or least number."""
    mod = program("""def @main(%x: Tensor[(3, 4), int8], %w: Tensor[(5, 4), int8], %b: Tensor[(5), int32]) {
      %0 = nn.dense(qnn.dequantize(%x, 0.01f, 0), qnn.dequantize(%w, 0.01f, 0));
      (qnn.quantize(nn.bias_add(%0, qnn.dequantize(%b, 1f, 0), axis=1), 0.5f, 0), 1f)
    }""")
    bias = np.asarray([-(2**31), 2**31 - 1, 10**6, -(10**6), 3], "int32")
    assert_near(mod, STRICT(mod, CONTEXT), [BYTES, WEIGHT, bias])


def test_chains_are_not_walked_by_recursion() -> None:
    x = relay.var("x", shape=(4,), dtype="int8")
    body = qnn.dequantize(x, 0.1, 3)
    for _ in range(5000):
        body = relay.nn.relu(body)
    mod = infer_type(IRModule.from_expr(Function((x,), qnn.quantize(body, 0.2, 0))))
    integers = STRICT(mod, PassContext())
    assert list_op_freqs(integers) == {"maximum": 5000, "qnn.requantize": 1}


def test_the_mean_of_no_numbers_is_zero() -> None:
    mod = program("""def @main(%x: Tensor[(?n, 4), int8]) {
      qnn.quantize(mean(qnn.dequantize(%x, 0.1f, 3), axis=[0]), 0.1f, 7)
    }""")
    found = evaluate(STRICT(mod, CONTEXT), [np.zeros((0, 4), "int8")])
    np.testing.assert_array_equal(found, np.full(4, 7, "int8"))


# --- compiled ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_compiled_integers_are_the_interpreters(seed: int) -> None:
    """A network of most rules, with an unknown batch."""
    rng = np.random.default_rng(seed)

    def weight(*shape: int, scales: int) -> Expr:
        scale = rng.uniform(0.01, 0.03, scales).astype("float32")
        value = relay.const(rng.integers(-127, 128, shape).astype("int8"))
        return qnn.dequantize(value, relay.const(scale), 0, axis=0)

    def again(body: Expr, scale: float, zero: int, dtype: str = "int8") -> Expr:
        return qnn.dequantize(qnn.quantize(body, scale, zero, out_dtype=dtype), scale, zero)

    x = relay.var("x", shape=(relay.DimVar("n"), 3, 8, 8), dtype="uint8")
    data = qnn.dequantize(x, 0.02, 120)
    conv = relay.nn.conv2d(
        data, weight(8, 3, 3, 3, scales=8), padding=(1, 1), channels=8, kernel_size=(3, 3)
    )
    conv = relay.nn.bias_add(conv, relay.const(rng.normal(0, 1, 8).astype("float32")))
    first = again(relay.clip(conv, 0.0, 6.0), 6 / 255, 0, "uint8")
    gate = again(
        relay.sigmoid(again(relay.nn.avg_pool2d(first, (8, 8)), 0.02, -128)), 1 / 256, -128
    )
    second = again(
        relay.nn.max_pool2d(first * again(gate, 1 / 256, 0, "uint8"), (2, 2), (2, 2)),
        0.02,
        0,
        "uint8",
    )
    both = relay.concatenate([second, relay.nn.avg_pool2d(first, (2, 2), (2, 2))], 1)
    flat = relay.nn.batch_flatten(again(both, 0.02, -128))
    rows = relay.nn.dense(flat, weight(10, 256, scales=10))
    mod = infer_type(IRModule.from_expr(Function((x,), qnn.quantize(rows, 0.3, 5))))
    integers = STRICT(mod, CONTEXT)
    assert is_integer(integers)
    value = rng.integers(0, 256, (2, 3, 8, 8)).astype("uint8")
    found = evaluate(integers, [value])
    assert (
        distance(evaluate(mod, [value]), found) <= 3
    )  # a step of each layer goes on into the next
    with nvm.VirtualMachine(nvm.compile(integers)) as machine:
        np.testing.assert_array_equal(machine.run(value).numpy(), found)


# --- as TVM's scripts call it -----------------------------------------------------------------------


def test_the_pass_by_tvms_name_makes_graph_form() -> None:
    mod = program("""def @main(%x: Tensor[(3, 4), int8]) {
      let %a = qnn.dequantize(%x, 0.1f, 3);
      let %b = nn.relu(%a);
      let %c = sin(%b);
      (qnn.quantize(%b, 0.2f, 0), qnn.quantize(%c, 0.2f, 0))
    }""")
    assert list_fake_quantized_op_freqs(mod) == {}
    assert list_fake_quantized_op_freqs(transform.ToGraphNormalForm()(mod)) == {
        "nn.relu": 2,
        "sin": 1,
    }
    made = transform.FakeQuantizationToInteger()
    assert (made.info.name, made.info.opt_level) == ("FakeQuantizationToInteger", 0)
    integers = made(mod)
    assert list_op_freqs(integers)["qnn.requantize"] == 1
    assert_near(mod, integers, [BYTES])
    assert "maximum" in list_op_freqs(transform.FakeQuantizationToInteger(use_qat=True)(mod))
    with pytest.raises(CompileError, match="sin has no integer form here"):
        transform.FakeQuantizationToInteger(hard_fail=True)(mod)
