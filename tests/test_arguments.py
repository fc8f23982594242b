"""What public functions say of arguments of the wrong kind: a typed error with our text, never one from inside."""

# mypy: disable-error-code="arg-type,list-item,call-overload"
# Arguments of a wrong kind are what is tested.

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay, tvm
from nimblevm.arguments import explained, explained_methods, fits
from nimblevm.errors import InvalidInputType, TypeNotFound

X = relay.var("x", shape=(2, 3))
MODULES = """relay relay.nn relay.image relay.vision relay.qnn relay.loops relay.annotation relay.analysis relay.kinds relay.measure
relay.dataflow_pattern relay.param_dict relay.node_json external profiling devices tvm.nd tvm.ir tvm.ir.op tvm.transform
tvm.runtime tvm.relay tvm.relay.transform tvm.relay.analysis tvm.relay.vm tvm.relay.build_module
tvm tvm.target tvm.testing tvm.contrib.graph_executor tvm.contrib.utils tvm.relay.testing tvm.relay.testing.layers
tvm.relay.testing.lstm tvm.relay.testing.resnet tvm.relay.testing.mobilenet tvm.relay.testing.mlp tvm.relay.testing.dcgan
tvm.relay.testing.init""".split()
WRONG: list[Any] = [
    None,
    5,
    -1,
    1.5,
    "zz",
    b"zz",
    2**70,
    [],
    {},
    [None],
    (1, "a"),
    object(),
    X,
    int,
]
FROM_INSIDE = (
    AttributeError,
    LookupError,
    OverflowError,
    ZeroDivisionError,
    RecursionError,
    UnboundLocalError,
)


def functions(module: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    found = importlib.import_module(f"nimblevm.{module}")
    for name in found.__all__:
        value = getattr(found, name)
        if callable(value) and not (isinstance(value, type) and issubclass(value, Exception)):
            yield f"{module}.{name}", value


def from_inside(error: Exception) -> bool:
    """Whether an error is neither ours nor Python's word on a call with too many or too few arguments."""
    if isinstance(error, nvm.errors.InternalError):
        return True
    if isinstance(error, nvm.NimbleError):
        return False
    if isinstance(error, FROM_INSIDE):
        return True
    texts = (
        "object is not",
        "has no attribute",
        "unhashable",
        "unsupported operand",
        "truth value",
        "not iterable",
    )
    return any(text in str(error) for text in texts)


@pytest.mark.parametrize("module", MODULES)
def test_no_error_from_inside(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    faults = []
    for name, function in functions(module):
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            continue
        needed = [p for p in parameters if p.default is p.empty]
        count = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in needed)
        if not needed:  # one that needs nothing is given something
            count = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in list(parameters)[:1])
        named = [p.name for p in needed if p.kind is p.KEYWORD_ONLY]
        for wrong in WRONG:
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    function(*([wrong] * count), **dict.fromkeys(named, wrong))
            except Exception as error:
                if from_inside(error):
                    faults.append(f"{name}({wrong!r}): {type(error).__name__}: {error}")
    assert not faults, "\n".join(faults)


DENSE = relay.Function([X], relay.exp(X))
SAID: list[tuple[Callable[[], Any], str]] = [
    (lambda: nvm.compile(DENSE, tuning=5), "compile: tuning must be a string or None, not the int 5"),
    (lambda: nvm.compile(DENSE, on_pass=5), r"on_pass must be a function \(str, float\) -> None or None, not the int"),
    (lambda: nvm.compile(DENSE, passes_off=5), "passes_off must be a list of str"),
    (lambda: nvm.compile(DENSE, passes_off=[5]), r"not the list \[5\]"),
    (lambda: nvm.compile(DENSE, unbox=None), "unbox must be True or False, not None"),
    (lambda: nvm.compile(DENSE, np.ones(2)), "params must map names to arrays, not be a ndarray"),
    (lambda: nvm.compile(DENSE, external=5), "external must be names such as"),
    (lambda: nvm.tune(DENSE, rows=5), "rows must be a list of int"),
    (lambda: nvm.Executable(5), r"nvm\.load\(path\)"),
    (lambda: nvm.Device([]), "expected a backend's name"),
    (lambda: nvm.dim_report(DENSE), "must be IRModule, not a Function; IRModule.from_expr"),
    (lambda: relay.TensorType(3), r"must be a list or tuple, not the int 3; a vector's is \(n,\)"),
    (lambda: relay.TensorType((3,), 5), 'a name such as "float32"'),
    (lambda: relay.TupleType(["float32"]), r"relay\.scalar_type\('float32'\)"),
    (lambda: relay.RefType(None), "expected relay types, got None"),
    (lambda: relay.const(2**70), "does not fit int64"),
    (lambda: relay.const("a"), "is no number or array of Relay"),
    (lambda: relay.const("a", "int8"), "is no int8 number or array"),
    (lambda: relay.abs(2**70), "is no int32: write relay.const"),
    (lambda: relay.sum(X, axis=1.5), "sum: axis must be an axis, axes or None, not the float 1.5"),
    (lambda: relay.nn.conv2d(X, X, padding=None), "padding must be a number or a number for each axis"),
    (lambda: relay.strided_slice(X, 2**70, X), "expected int64 numbers"),
    (lambda: tvm.IRModule(5), "IRModule: functions must be Mapping"),
    (lambda: tvm.IRModule()[5], "named by a string or a GlobalVar"),
    (lambda: tvm.testing.assert_allclose("a", 1.0), "actual must be an array or numbers, not the str 'a'"),
    (lambda: tvm.relay.testing.resnet.residual_unit(X, "64", (1, 1), True, "a"), "num_filter must be a whole number"),
    (lambda: tvm.relay.testing.lstm.get_net("4", 8), "get_net: iterations must be a whole number, not the str '4'"),
    (lambda: tvm.contrib.utils.tempdir().relpath(5), "TempDirectory.relpath: name must be a string, not the int 5"),
]  # fmt: skip


FIVE: Any = 5
Y = relay.var("y")
WRONG_PARTS: list[tuple[Callable[[], relay.Expr], str]] = [
    (lambda: FIVE, "expected an expression, not the int 5; relay.const\\(5\\) makes an expression of it"),
    (lambda: relay.Tuple([1, X]), "fields of a Tuple must be expressions.*not the int 1; relay.const\\(1\\)"),
    (lambda: relay.Tuple((FIVE, X)), "expected an expression, not the int 5"),
    (lambda: relay.If(FIVE, X, X), "expected an expression, not the int 5"),
    (lambda: relay.Call(FIVE, [X]), "expected an expression, not the int 5"),
    (lambda: relay.Call(relay.op.get("exp"), ["a"]), "args of a Call must be expressions.*not the str 'a'"),
    (lambda: relay.Let(FIVE, X, X), "variables of a Let must be relay.Vars, not the int 5"),
    (lambda: relay.Let(Y, FIVE, X), "expected an expression, not the int 5"),
    (lambda: relay.Function([relay.exp(X)], X), "params of a Function must be Vars, not a Call"),
    (lambda: relay.Function((FIVE,), X), "variables of a Function must be relay.Vars, not the int 5"),
    (lambda: relay.Function([Y], FIVE), "body of a Function: expected an expression, not the int 5"),
    (lambda: relay.TupleGetItem(FIVE, 0), "tuple_value of a TupleGetItem: expected an expression, not the int 5"),
    (lambda: relay.Match(FIVE, []), "data of a Match: expected an expression, not the int 5"),
    (lambda: relay.Function([Y], Y, FIVE), "expected a type, such as relay.TensorType.*not the int 5"),
    (lambda: relay.Function([Y], Y, None, None, FIVE), "attributes of a Function must be a mapping, not the int 5"),
    (lambda: relay.Match(X, [FIVE]), "clauses of a Match must be Clauses, not the int 5"),
    (lambda: relay.Match(X, (FIVE,)), "clauses of a Match must be relay.Clauses, not the int 5"),
    (lambda: relay.RefCreate(FIVE), "expected an expression, not the int 5"),
    (lambda: relay.Var("z", FIVE), "expected a type, such as relay.TensorType"),
]  # fmt: skip


def test_parts_of_a_network_that_do_not_fit() -> None:
    resnet = tvm.relay.testing.resnet.resnet
    text = "3 stages need as many units and one more of filter_list, not 2 and 4"
    with pytest.raises(nvm.errors.InvalidInput, match=f"^{text}$"):
        resnet([2, 2], 3, [16, 16, 32, 64], 10, (1, 3, 32, 32))
    with pytest.raises(nvm.errors.InvalidInput, match='layout must be "NCHW" or "NHWC"'):
        resnet([2], 1, [16, 16], 10, (1, 3, 32, 32), layout="NCWH")


def test_a_folder_is_deleted_with_its_object() -> None:
    folder = tvm.contrib.utils.tempdir()
    path = Path(folder.temp_dir)
    Path(folder.relpath("a")).write_text("a")
    assert folder.listdir() == ["a"]
    del folder
    assert not path.exists()


@pytest.mark.parametrize("number", range(len(WRONG_PARTS)))
def test_wrong_parts_of_nodes(number: int) -> None:
    """Where a list is given at once, else when the program is compiled."""
    make, text = WRONG_PARTS[number]

    def build() -> None:
        body = make()
        free = [body] if isinstance(body, relay.Var) else []
        nvm.compile(relay.Function([X, *free], body), native=False)

    with pytest.raises(InvalidInputType, match=text):
        build()


@pytest.mark.parametrize("number", range(len(SAID)))
def test_what_is_said(number: int) -> None:
    use, text = SAID[number]
    with pytest.raises(InvalidInputType, match=text) as caught:
        use()
    assert isinstance(caught.value, TypeError | ValueError)


def test_names_that_a_module_lacks() -> None:
    mod = tvm.IRModule.from_expr(DENSE)
    with pytest.raises(
        nvm.errors.FunctionNotFound, match=r"^the module has no function @f; it has: main$"
    ):
        mod["f"]
    with pytest.raises(TypeNotFound, match=r"^the module has no type List"):
        mod.get_type("List")


@pytest.mark.parametrize("module", MODULES)
def test_public_functions_pickle(module: str) -> None:
    """As multiprocessing does with a function: by its module and name."""
    found = [function for _, function in functions(module) if inspect.isfunction(function)]
    assert [f for f in found if pickle.loads(pickle.dumps(f)) is not f] == []


def test_what_fits() -> None:
    good: list[tuple[Any, Any]] = [
        (np.int64(3), int), (np.float32(1), float), (np.array(2.0), float), (np.bool_(True), bool), (1, bool),
        ((1, 2), Sequence[int]), (np.ones(2, int), Sequence[int]), (np.ones(0), Sequence[int]), ("ab", Sequence[str]),
        ({"a": 1}, Mapping[str, int]), (len, Callable[[Any], int]), (5, Any), ("a", Literal["a", "b"]),
        ((1, "a"), tuple[int, str]), (None, int | None), (int, type[Any]),
    ]  # fmt: skip
    bad: list[tuple[Any, Any]] = [
        ("3", int), (1.0, int), ("1", float), (np.ones(2), bool), (2, bool), (None, bool), ("ab", Sequence[int]),
        ([1, "a"], Sequence[int]), (np.ones(2, "U1"), Sequence[int]), ({1: 1}, Mapping[str, int]), (5, Sequence[int]),
        (5, Callable[[], int]), ("c", Literal["a", "b"]), ((1,), tuple[int, str]), (None, int), (5, str),
    ]  # fmt: skip
    assert [hint for value, hint in good if not fits(value, hint)] == []
    assert [hint for value, hint in bad if fits(value, hint)] == []


def test_errors_of_the_caller_pass() -> None:
    """A fault inside of a caller's own function is the caller's, and a result is untouched."""

    @explained
    def apply(function: Callable[[int], int], count: int) -> int:
        return function(count)

    assert apply(lambda n: n + 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        apply(lambda n: n // 0, 1)
    with pytest.raises(InvalidInputType, match="apply: function must be a function") as caught:
        apply(5, 1)
    assert isinstance(caught.value.__cause__, TypeError)

    @explained_methods
    class Box:
        def __init__(self, names: Sequence[str]) -> None:
            self.first = len(names)

    with pytest.raises(
        InvalidInputType, match=r"^Box: names must be a list of str, not the int 5$"
    ):
        Box(5)
