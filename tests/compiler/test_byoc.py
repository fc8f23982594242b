"""AnnotateTarget, MergeCompilerRegions, PartitionGraph, and compiling what they make."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.compiler.external import Blob, External, Region, register_op_check
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.open_regions import OPEN_REGIONS
from nimblevm.compiler.passes.partition import PARTITION
from nimblevm.driver import evaluate_call
from nimblevm.errors import CompileError
from nimblevm.external import register, register_runtime, unregister_runtime
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.ir import Call, Constant, Function, GlobalVar
from nimblevm.relay.module import IRModule
from nimblevm.relay.parser import parse_module
from nimblevm.relay.printer import astext
from nimblevm.relay.structural import structural_equal
from nimblevm.relay.visitor import post_order
from nimblevm.tvm import ir as tvm_ir
from nimblevm.tvm.relay import transform as passes
from nimblevm.tvm.relay.op.contrib import get_pattern_table, register_pattern_table
from tests.compiler.externals import EXTERNALS

HEAD = '#[version = "0.0.5"]\n'
GOLDEN = Path(__file__).parent.parent / "golden"
STEPS: dict[str, Callable[[], Any]] = {
    "annotate_target": lambda: passes.AnnotateTarget(["byoc", "byoc2"]),
    "merge_compiler_regions": passes.MergeCompilerRegions,
    "partition_graph": passes.PartitionGraph,
}
CASES = sorted((GOLDEN / "byoc").glob("*.rly"))


def always(call: Any) -> bool:
    return True


REGIONS: dict[bytes, Function] = {}


def code(region: Region) -> Blob | None:
    """Takes everything but logarithms; the blob is a name, the runtime finds the region by it."""
    if "log" in region.name:
        return None
    REGIONS[region.name.encode()] = region.function
    return Blob(region.name.encode())


def interpreted(blob: bytes) -> Callable[..., None]:
    """Regions as the interpreter evaluates them."""

    def run(inputs: Sequence[Any], outputs: Sequence[Any], dims: Sequence[int]) -> None:
        result = evaluate(IRModule.from_expr(dataclasses.replace(REGIONS[blob], attrs={})), inputs)
        for output, value in zip(outputs, flat(result), strict=True):
            output[...] = value

    return run


@pytest.fixture(autouse=True)
def _backend() -> Iterator[None]:
    for op in (
        "tanh",
        "exp",
        "log",
        "add",
        "divide",
        "nn.dense",
        "split",
        "concatenate",
        "argwhere",
    ):
        register_op_check(op, "byoc", always)
    register_op_check("sigmoid", "byoc2", always)
    register(External("byoc", (), code))
    register(External("byoc2", (), code, constants="owned"))
    register_runtime("byoc", interpreted)
    register_runtime("byoc2", interpreted)
    yield
    unregister_runtime("byoc")
    unregister_runtime("byoc2")


def module(body: str, params: str = "%x: Tensor[(?n, 4), float32]") -> IRModule:
    return infer_type(parse_module(f"{HEAD}def @main({params}) {{ {body} }}", "m.rly"))


def partitioned(mod: IRModule, **options: Any) -> IRModule:
    steps = [passes.AnnotateTarget(["byoc", "byoc2"]), passes.MergeCompilerRegions()]
    return passes.Sequential([*steps, passes.PartitionGraph(**options)])(mod)


def functions(mod: IRModule) -> list[str]:
    return [v.name_hint for v in mod.functions if v.name_hint != "main"]


def kernels(data: bytes) -> dict[str, str]:
    return {k.name: k.kind for k in nvm.load(data, native=False).kernels}


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    """One program through the three passes; each text is what the next one gets."""
    head, *parts = path.read_text().split("// ---- ")
    mod = infer_type(parse_module(parts[0].partition("\n")[2], path.name))
    texts = {"program": parts[0].partition("\n")[2]}
    for name, step in STEPS.items():
        mod = step()(mod)
        texts[name] = f"{astext(mod).rstrip()}\n"
    if request.config.getoption("--update-golden"):
        path.write_text(head + "".join(f"// ---- {name}\n{text}" for name, text in texts.items()))
        return
    for part in parts[1:]:
        name, _, text = part.partition("\n")
        assert texts[name] == text, f"after {name}"
    again = infer_type(parse_module(texts["partition_graph"], path.name))
    assert structural_equal(again, mod)


@pytest.mark.parametrize("body", [
    "tanh(%x)",
    "exp(tanh(%x))",
    "let %a = tanh(%x); add(exp(%a), nn.relu(%a))",  # not convex: two regions
    "let %s = split(tanh(%x), indices_or_sections=2, axis=1); concatenate((%s.1, exp(%s.0)), axis=1)",
    "let %s = split(%x, indices_or_sections=2, axis=1); nn.relu(%s.1)",
    "(tanh(%x), nn.relu(exp(tanh(%x))), %x)",
    "if (ndarray_size(%x) > 8) { exp(tanh(%x)) } else { nn.relu(add(%x, 1f)) }",
    "sigmoid(tanh(sigmoid(%x)))",
    "let %f = fn (%y: Tensor[(?k, 4), float32]) { add(exp(%y), tanh(%y)) }; %f(concatenate((%x, %x)))",
    "log(%x)",  # codegen declines it
    "log(exp(%x))",
    "divide(tanh(%x), divide(nn.relu(%x), exp(%x)))",
])  # fmt: skip
def test_results(body: str) -> None:
    """What runs regions as numpy runs their operators gives what the program gave before."""
    mod = module(body)
    parted = partitioned(passes.ToGraphNormalForm()(mod))
    assert functions(parted)
    text = infer_type(parse_module(parted.astext(), "again.rly"))
    assert structural_equal(text, parted)
    x = np.linspace(0.5, 2, 12, dtype=np.float32).reshape(3, 4)
    want = nvm.VirtualMachine(nvm.compile(mod)).run(x)
    for each in (parted, text):
        exe = nvm.compile(each, verify=True)
        assert any(k.external for k in exe.kernels) == ("log" not in body)
        got = nvm.VirtualMachine(exe).run(x)
        for one, other in zip(*map(flat, (got, want)), strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5)


def flat(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def regions_of(mod: IRModule) -> list[tuple[str, ...]]:
    """The composites of each region, of all functions, sorted."""
    found = []
    nodes = [n for f in mod.functions.values() for n in post_order(f)]
    for node in dict.fromkeys(nodes):
        if isinstance(node, Function) and "Compiler" in node.attrs:
            inside = [n for n in post_order(node.body) if isinstance(n, Function)]
            names = sorted(str(f.attrs["Composite"]) for f in inside)
            found.append((str(node.attrs["Compiler"]), *names))
    return sorted(found)


def named(external: str) -> list[Any]:
    """The rows of its pattern table with names that tell whose they are."""
    return [(f"{external}.{name}", *rest) for name, *rest in EXTERNALS[external].patterns]


@pytest.mark.parametrize(
    "case",
    ["crossing_regions", "diamond_inside", "diamond_through_outside", "fails_in_order", "tuples"],
)
def test_regions_are_those_of_compile(case: str) -> None:
    """What compile(external=) takes in one step is what the passes take in four."""
    head, rest = (GOLDEN / "partition" / f"{case}.rly").read_text().split("// BEFORE\n")
    names = head.split("EXTERNALS: ")[1].split("\n")[0].split(", ")
    externals = [External(n, named(n), code, merge=True) for n in names]
    mod = infer_type(parse_module(rest.split("// AFTER\n")[0], case))
    mod = passes.ToGraphNormalForm()(mod)
    context = PassContext(verify=True, evaluate=evaluate_call, externals=tuple(externals))
    wanted = regions_of(PARTITION(mod, context))
    for external in externals:
        mod = passes.MergeComposite(external.patterns)(mod)
    mod = passes.AnnotateTarget(names)(mod)
    mod = passes.PartitionGraph()(passes.MergeCompilerRegions()(mod))
    assert wanted
    assert regions_of(mod) == wanted
    for var, function in mod.functions.items():
        assert ("Compiler" in function.attrs) == (var.name_hint != "main")


def test_a_runtime_gets_the_region() -> None:
    """Multiple results, a constant as an operand, dims: what run() sees."""
    seen: list[tuple[Any, ...]] = []

    def factory(blob: bytes) -> Callable[..., None]:
        def run(inputs: Sequence[Any], outputs: Sequence[Any], dims: Sequence[int]) -> None:
            seen.append((blob, [i.shape for i in inputs], tuple(dims)))
            outputs[0][...] = np.tanh(inputs[0])
            outputs[1][...] = outputs[0] + inputs[1]

        return run

    register_runtime("byoc", factory)
    weights = np.arange(4, dtype=np.float32)
    mod = module(
        "let %t = tanh(%x); (nn.relu(%t), add(%t, %w))",
        "%x: Tensor[(?n, 4), float32], %w: Tensor[(4), float32]",
    )
    for bind in (True, False):
        bound = infer_type(IRModule.from_expr(passes_bind(mod, weights)))
        parted = partitioned(passes.ToGraphNormalForm()(bound), bind_constants=bind)
        call = next(
            n
            for n in post_order(parted["main"].body)
            if isinstance(n, Call) and isinstance(n.op, GlobalVar)
        )
        assert len(call.args) == (1 if bind else 2)
        exe = nvm.compile(parted, verify=True)
        x = np.ones((2, 4), np.float32)
        a, b = nvm.VirtualMachine(exe).run(x)
        np.testing.assert_allclose(a.numpy(), np.maximum(np.tanh(x), 0))
        np.testing.assert_allclose(b.numpy(), np.tanh(x) + weights)
    assert seen == [(b"byoc_tanh_add", [(2, 4), (4,)], (2,))] * 2


def passes_bind(mod: IRModule, weights: Any) -> Function:
    from_main = mod["main"]
    body = nvm.relay.bind(from_main.body, {from_main.params[1]: Constant(weights)})
    return Function(from_main.params[:1], body)


def test_owned_constants_stay() -> None:
    mod = infer_type(
        IRModule.from_expr(
            Function((), Call(nvm.relay.op.get("sigmoid"), (Constant(np.ones(4, np.float32)),)))
        )
    )
    for bind in (True, False):
        opened = OPEN_REGIONS(partitioned(mod, bind_constants=bind), PassContext(verify=True))
        inner = [
            n
            for f in opened.functions.values()
            for n in post_order(f.body)
            if isinstance(n, Function)
        ]
        assert [len(f.params) for f in inner] == [0 if bind else 1]


def test_sizes_to_compare_make_ordinary_code() -> None:
    """A region is a kernel whose operands' types say everything; the comparison stays."""
    both = "%x: Tensor[(?n, 4), float32], %y: Tensor[(?m, 4), float32]"
    parted = partitioned(module("add(%x, exp(%y))", both))
    assert functions(parted) == ["tvmgen_default_byoc_main_0"]
    exe = nvm.compile(parted, verify=True)
    assert {k.kind for k in exe.kernels} == {"loop IR"}
    vm = nvm.VirtualMachine(exe)
    assert vm.run(np.ones((2, 4), np.float32), np.ones((1, 4), np.float32)).shape == (2, 4)
    with pytest.raises(nvm.NimbleError, match="broadcast"):
        vm.run(np.ones((2, 4), np.float32), np.ones((3, 4), np.float32))


def test_region_whose_size_depends_on_data() -> None:
    parted = partitioned(module("argwhere(%x)"))
    assert functions(parted) == []
    x = np.eye(4, dtype=np.float32)
    assert nvm.VirtualMachine(nvm.compile(parted)).run(x).shape == (4, 2)


def marked(body: str, params: str = "%x: Tensor[(?n, 4), float32]") -> IRModule:
    body = body.replace("begin(", "annotation.compiler_begin(").replace(
        "end(", "annotation.compiler_end("
    )
    return module(body.replace("@", 'compiler="byoc"').replace("#", 'compiler="other"'), params)


@pytest.mark.parametrize(("body", "error"), [
    ("end(tanh(%x), @)", "%x is read behind it without a compiler_begin"),
    ("end(tanh(begin(%x, #)), @)", "a region of byoc ends in it"),
    ("end(exp(end(tanh(begin(%x, @)), @)), @)", "there is no compiler_begin"),
    ("end(if (ndarray_size(%x) > 2) { begin(%x, @) } else { begin(%x, @) }, @)", "a If is in its region"),
    ("let %t = tanh(begin(%x, @)); let %u = end(%t, @); end(add(%t, begin(nn.relu(%u), @)), @)",
     "behind it without"),
    ("%0 = tanh(begin(%x, @)); %1 = end(%0, @); end(add(%0, begin(nn.relu(%1), @)), @)",
     "its region reads what is made of its own results"),
    ("%0 = begin(%x, @); if (ndarray_size(%x) > 2) { end(tanh(%0), @) } else { end(exp(%0), @) }", "crosses the border"),
])  # fmt: skip
def test_marks_that_make_no_region(body: str, error: str) -> None:
    mod = marked(body)
    for step in (passes.MergeCompilerRegions(), passes.PartitionGraph()):
        with pytest.raises(CompileError, match=error):
            step(mod)


def test_regions_that_read_each_other() -> None:
    mod = marked(
        "%0 = tanh(begin(%x, @)); %1 = end(%0, @); %2 = exp(begin(%1, #)); %3 = end(%2, #);"
        "%4 = log(begin(%x, #)); (end(add(%0, begin(end(add(%2, %4), #), @)), @), %3)"
    )
    with pytest.raises(CompileError, match=r"circle|its own results"):
        passes.PartitionGraph()(mod)


def test_marks_that_nobody_partitions_change_nothing() -> None:
    mod = marked("end(exp(begin(end(tanh(begin(%x, @)), @), @)), @)")
    x = np.ones((2, 4), np.float32)
    got = nvm.VirtualMachine(nvm.compile(mod, verify=True)).run(x)
    np.testing.assert_allclose(got.numpy(), np.exp(np.tanh(x)), rtol=1e-5)


def test_regions_of_default_are_ordinary_code() -> None:
    mod = marked("end(tanh(begin(%x, @)), @)".replace("@", 'compiler="default"'))
    parted = passes.PartitionGraph()(mod)
    assert structural_equal(parted, module("tanh(%x)"))


def test_a_region_that_computes_nothing_is_none() -> None:
    assert structural_equal(passes.PartitionGraph()(marked("end(begin(%x, @), @)")), module("%x"))


def test_a_let_keeps_regions_apart() -> None:
    text = "let %a = tanh(%x); exp(%a)"
    assert len(functions(partitioned(module(text)))) == 2
    assert len(functions(partitioned(passes.ToGraphNormalForm()(module(text))))) == 1


def test_passes_again() -> None:
    """What is marked or partitioned already stays."""
    step = passes.AnnotateTarget("byoc")
    once = step(module("sigmoid(tanh(%x))"))
    assert structural_equal(step(once), once)
    both = passes.PartitionGraph()(passes.AnnotateTarget("byoc2")(once))
    assert sorted(functions(both)) == ["tvmgen_default_byoc2_main_1", "tvmgen_default_byoc_main_0"]
    assert structural_equal(partitioned(both), both)
    assert len(functions(partitioned(module("exp(%x)")))) == 1
    vm = nvm.VirtualMachine(nvm.compile(both))
    with pytest.raises(nvm.NimbleError, match="tvmgen"):
        vm.invoke("tvmgen_default_byoc_main_0", np.ones((2, 4), np.float32))
    vm = nvm.VirtualMachine(nvm.compile(both, entry_points=["main", "tvmgen_default_byoc_main_0"]))
    assert vm.invoke("tvmgen_default_byoc_main_0", np.ones((2, 4), np.float32)).shape == (2, 4)


def test_a_backend_that_is_missing_is_named() -> None:
    mod = passes.PartitionGraph()(marked("end(tanh(begin(%x, #)), #)"))
    with pytest.raises(CompileError, match="no external backend 'other'"):
        nvm.compile(mod)


def test_a_check_that_raises_is_named() -> None:
    def check(call: Any) -> bool:
        raise ArithmeticError("odd")

    register_op_check("tanh", "testing", check)
    with pytest.raises(CompileError, match=r"m\.rly:2:\d+: target\.testing of .*tanh.*odd"):
        passes.AnnotateTarget("testing")(module("tanh(%x)"))


def test_arguments() -> None:
    with pytest.raises(TypeError, match="targets must be names"):
        passes.AnnotateTarget([1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="mod_name"):
        passes.PartitionGraph("a b")
    with pytest.raises(ValueError, match="TOpPattern"):
        tvm_ir.register_op_attr("tanh", "TOpPattern", always)
    with pytest.raises(nvm.NimbleError, match="tanhh"):
        tvm_ir.register_op_attr("tanhh", "target.byoc", always)


def test_pattern_tables_by_name() -> None:
    rows = EXTERNALS["acc"].patterns
    register_pattern_table("tabled", lambda: rows)
    assert get_pattern_table("tabled") == list(rows)
    register(EXTERNALS["acc"])
    assert get_pattern_table("acc") == list(rows)
    assert get_pattern_table("nobody") is None


def test_non_call_nodes_are_optional() -> None:
    mod = module("concatenate((tanh(%x), exp(%x)))")
    step = passes.AnnotateTarget("byoc", include_non_call_ops=False)
    parted = passes.PartitionGraph()(passes.MergeCompilerRegions()(step(mod)))
    assert len(functions(parted)) == 3
    assert len(functions(partitioned(mod))) == 1


@pytest.mark.slow
def test_long_programs() -> None:
    """20,000 operators in a row, and as many regions: no recursion, no square."""
    lines = [f"let %v{i + 1} = {('tanh', 'nn.relu')[i % 2]}(%v{i});" for i in range(20_000)]
    mod = module(f"let %v0 = %x; {' '.join(lines)} %v20000")
    assert len(functions(partitioned(mod))) == 10_000
