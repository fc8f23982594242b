"""The names and signatures of TVM against ours: names.txt and signatures.txt are the facts.

ABSENT says which names have no counterpart. A name in it may appear at any time; one that is missing and not in it fails.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nimblevm.errors import NotProvided

HERE = Path(__file__).parent

# Operators and attributes that are not here; whole modules (None) first.
ABSENT: dict[str, str | None] = {
    "tvm.relay": "TypeRelation optimize",
    "tvm.relay.nn": """Constant bitpack bitserial_conv2d bitserial_dense contrib_conv2d_nchwc""",
    "tvm.relay.transform": """AlterOpLayout AnnotateSpans
        CapturePostDfsIndexInSpans ChangeBatch ConvertLayout
        FlexibleShapeDispatch InlineCompilerFunctionsBoundTo
        LayoutConfig LazyGradientInit Legalize ManifestLifetimes MarkCompilerFunctionsAsExtern
        OutlineCompilerFunctionsWithExistingGlobalSymbols PlanDevices gradient recast to_cps
        un_cps""",
    "tvm.relay.analysis": "AnnotatedRegionSet get_calibration_data",
    "tvm.ir": "EnvFunc EnvFunc.get make_node",
    "tvm.relay.vm": "invoke",
}


def sections(name: str) -> Iterator[tuple[str, str]]:
    """(section, line) of a table."""
    section = ""
    for line in (HERE / name).read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            yield section, line


def find(module: str, name: str) -> Any:
    """The object of a dotted name, or None."""
    try:
        found: Any = importlib.import_module(f"nimblevm.{module}")
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found


NAMES: dict[str, list[str]] = {}
for _section, _line in sections("names.txt"):
    NAMES.setdefault(_section, []).extend(_line.split())


@pytest.mark.parametrize("module", NAMES)
def test_names(module: str) -> None:
    absent = ABSENT.get(module, "")
    if absent is None:
        return
    missing = [n for n in NAMES[module] if find(module, n) is None]
    assert not set(missing) - set(absent.split())


def test_absent_names_are_names_of_tvm() -> None:
    for module, names in ABSENT.items():
        assert set((names or "").split()) <= set(NAMES[module])


@pytest.mark.parametrize(
    "module", ["tvm.relay", "tvm.relay.transform", "tvm.relay.analysis", "tvm.relay.vm", "tvm.ir"]
)
def test_absent_names_say_what_to_use(module: str) -> None:
    """Each name of TVM that is not here, by an error that is its own."""
    package = importlib.import_module(f"nimblevm.{module}")
    for name in (ABSENT[module] or "").split():
        if find(module, name) is None and "." not in name:
            with pytest.raises(NotProvided, match=f"{name} is not here: "):
                getattr(package, name)


def parameters(text: str) -> list[tuple[str, Any]]:
    """(name, default) of a signature; defaults by their text, `...` for none."""
    arguments = ast.parse(f"def f({text}): pass").body[0].args  # type: ignore[attr-defined]
    none = [inspect.Parameter.empty] * (len(arguments.args) - len(arguments.defaults))
    values = [*none, *(ast.literal_eval(d) for d in arguments.defaults)]
    return [(a.arg, v) for a, v in zip(arguments.args, values, strict=True) if a.arg != "self"]


def test_signatures_of_operators_and_builders() -> None:
    """Names and order of parameters, and defaults that are numbers, tuples or flags."""
    compared = 0
    for section, line in sections("signatures.txt"):
        name, _, rest = line.partition("(")
        module = f"tvm.{section}".replace("relay.backend.vm", "relay.vm")
        found = find(module, name.removesuffix(".__init__"))
        if found is None or isinstance(found, property) or name == "convert":
            continue
        starred = "*" in rest
        have = [p for p in inspect.signature(found).parameters.values() if p.name != "self"]
        if starred:
            want = [p.strip(" *").split("=")[0] for p in rest.rstrip(")").split(",")]
            assert [p.name for p in have][:1] == [p for p in want if p != "self"][:1], name
            continue
        wanted = parameters(rest.rstrip(")") if rest.count("(") < rest.count(")") else rest)
        assert [p.name for p in have] == [n for n, _ in wanted], f"{section}.{name}"
        for ours, (_, default) in zip(have, wanted, strict=True):
            given = ours.default is not inspect.Parameter.empty
            assert given or default is inspect.Parameter.empty, f"{section}.{name}({ours.name})"
            if isinstance(default, bool | int | float):
                assert ours.default == default, f"{section}.{name}({ours.name})"
        compared += 1
    assert compared > 150


def test_passes_have_the_names_and_levels_of_tvm() -> None:
    levels = {
        "InferType": 0, "FoldConstant": 2, "SimplifyInference": 0, "SimplifyExpr": 0, "EliminateCommonSubexpr": 3,
        "DeadCodeElimination": 1, "Inline": 1, "ToANormalForm": 1, "ToGraphNormalForm": 1, "LambdaLift": 1,
        "EtaExpand": 1, "FuseOps": 0, "DynamicToStatic": 2, "PartialEvaluate": 1, "RemoveUnusedFunctions": 1,
        "MergeCompilerRegions": 0, "PartitionGraph": 0, "DefuseOps": 3, "ToBasicBlockNormalForm": 1, "CanonicalizeOps": 3,
        "DivToMul": 0, "FastMath": 4, "FoldExplicitPadding": 0,
        "FoldScaleAxis": 3, "ForwardFoldScaleAxis": 3, "BackwardFoldScaleAxis": 3, "FlattenAtrousConv": 0, "CanonicalizeCast": 3,
        "ToMixedPrecision": 0,
        "FakeQuantizationToInteger": 0,
    }  # fmt: skip
    for name, level in levels.items():
        info = find("tvm.relay.transform", name)().info
        assert (info.name, info.opt_level) == (name, level)
