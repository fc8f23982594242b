"""What the builder, the parser and compile say to typical mistakes of newcomers."""

# mypy: disable-error-code="arg-type"
# Arguments of a wrong kind are what is tested.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import CompileError, RelaySyntaxError, RelayTypeError, WellFormedError

HEADER = '#[version = "0.0.5"]\n'
X = relay.var("x", shape=(relay.Any(), 4))
W = relay.var("w", shape=(3, 4))
I = relay.var("i", "int32")  # noqa: E741


def compiled(variables: list[relay.Var], body: relay.Expr, **options: Any) -> nvm.Executable:
    return nvm.compile(relay.Function(variables, body), native=False, **options)


DENSE = relay.Function([X, W], relay.nn.dense(X, W))
MISTAKES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: relay.var("z", shape=3), TypeError, r"a vector's is \(n,\)"),
    (lambda: relay.var("z", shape="abc"), TypeError, "must be a tuple of dims"),
    (lambda: relay.var("z", shape=(None, 3)), TypeError, r"relay\.Any\(\)"),
    (lambda: relay.var("z", shape=("n", 3)), TypeError, r"relay\.DimVar\(name\)"),
    (lambda: relay.var("z", shape=(-1, 3)), ValueError, "integer >= 0, not -1"),
    (lambda: relay.var("z", shape=(3,), dtype="float33"), ValueError, "known: bool, int8"),
    (lambda: relay.add(X, "y"), TypeError, "an expression, an array or a number"),
    (lambda: relay.parse(None), TypeError, "not NoneType"),
    (lambda: relay.parse(b"x"), TypeError, "not bytes"),
    (lambda: relay.parse("model.rly"), RelaySyntaxError, "expected the header"),
    (lambda: relay.parse(HEADER + "def @main(%x: float32) { %x + 1.0 }"), RelaySyntaxError, "write 1f"),
    (lambda: relay.parse(HEADER + "def @main(%x: float3) { %x }"), RelaySyntaxError, "did you mean"),
    (lambda: relay.parse(HEADER + "def @main(%x) { %x }"), RelayTypeError, "annotate it"),
    (
        lambda: relay.parse(HEADER + "def @main(%x: Tensor[(3), float32]) { sum(%x, axes=[0]) }"),
        RelaySyntaxError,
        "did you mean axis",
    ),
    (lambda: relay.infer_type(relay.exp(X)), TypeError, "from_expr"),
    (lambda: compiled([X], relay.exp(W)), WellFormedError, "%w"),
    (lambda: compiled([X, X], X), WellFormedError, "%x"),
    (lambda: compiled([X, I], X + I), RelayTypeError, "cast one of them"),
    (lambda: nvm.compile(DENSE, target="z80"), CompileError, "known: native, llvm"),
    (lambda: nvm.compile(DENSE, target={"kind": "llvm"}), TypeError, "a name such as"),
    (lambda: nvm.compile(DENSE, [1]), TypeError, "params must map names"),
    (lambda: nvm.compile(DENSE, {"W": 1}), CompileError, "has the parameters x, w"),
    (
        lambda: nvm.compile(DENSE, {"w": np.ones((3, 4))}),
        CompileError,
        r"declared as Tensor\[\(3, 4\), float32\].*astype\('float32'\)",
    ),
    (lambda: nvm.compile(DENSE, {"w": np.ones(3, np.float32)}), CompileError, r"of shape \(3,\)"),
    (lambda: nvm.compile(DENSE, {"w": [[1], [1, 2]]}), CompileError, "%w: no array"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistake(number: int) -> None:
    use, kind, text = MISTAKES[number]
    with pytest.raises(kind, match=text):
        use()


def test_what_is_allowed() -> None:
    x = relay.var("x", shape=(2,), dtype=np.float32)
    assert str(x.type_annotation) == "Tensor[(2), float32]"
    exe = compiled([x, I], relay.Tuple([x, I]), params={"x": [1, 2], "i": 3})
    with nvm.VirtualMachine(exe) as vm:
        first, second = vm.run()
    assert (first.dtype, first.tolist(), int(second)) == ("float32", [1.0, 2.0], 3)


def test_warning_stands_at_the_callers_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nimblevm.kernels.llvm.HAVE_LLVM", False)
    with pytest.warns(
        nvm.errors.NimbleWarning, match=r"pip install 'nimblevm\[compiler\]'"
    ) as caught:
        nvm.compile(DENSE)
    assert caught[0].filename == __file__
