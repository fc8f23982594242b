"""The face of the package: names, laziness, versions, and what wrong types at the door say."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import nimblevm as nvm
from nimblevm._ffi import ffi, lib
from nimblevm.bytecode.executable import Functions
from nimblevm.driver import VERSION

NAMES = """ADTValue Cancelled Device Executable Handle InvalidExecutable InvalidInput InvalidWeights KEEP LimitExceeded
Limits NimbleError SignatureError Tensor VMBusy ValueMoved VirtualMachine WeightsMismatch WeightsNotBound
build_info compile devices dim_report errors external load move profiling relay set_log tune""".split()
PROJECT = Path(__file__).parent.parent / "pyproject.toml"


@pytest.mark.parametrize("name", NAMES)
def test_name_exists(name: str) -> None:
    value = getattr(nvm, name)
    assert value is not None
    assert name in dir(nvm)
    assert value.__doc__, "help() says something"


def test_no_other_names() -> None:
    assert sorted([*NAMES, "__version__"]) == dir(nvm) == sorted(nvm.__all__)
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        nvm.frobnicate  # type: ignore[attr-defined]


def test_one_version() -> None:
    """What is installed says it too: tests/test_wheel.py."""
    with open(PROJECT, "rb") as file:
        declared = tomllib.load(file)["project"]["version"]
    native = ffi.string(lib.nvm_version()).decode()
    assert {nvm.__version__, VERSION, native} == {declared}


def test_package_data() -> None:
    package = resources.files("nimblevm")
    assert (package / "py.typed").is_file()
    assert (package / "relay" / "prelude.rly").is_file()
    assert (package / "relay" / "nat.rly").is_file()
    for name in ("page.html", "page.css", "page.js", "figures.js"):
        assert (package / "profiling" / "page" / name).is_file()


def test_import_loads_nothing() -> None:
    """`import nimblevm` costs next to nothing; the runtime's names load no compiler."""
    code = """
import sys
import nimblevm as nvm
loaded = [m for m in sys.modules if m.partition(".")[0] in ("nimblevm", "numpy", "llvmlite", "msgpack")]
assert loaded == ["nimblevm"], loaded
nvm.load, nvm.VirtualMachine, nvm.Limits, nvm.Tensor, nvm.devices, nvm.errors
bad = [m for m in sys.modules if m.startswith(("nimblevm.relay", "nimblevm.compiler", "nimblevm.kernels", "llvmlite"))]
assert not bad, bad
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_clone_that_is_not_built_says_so() -> None:
    code = "import sys; sys.modules['nimblevm._native'] = None; import nimblevm; nimblevm.load"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (
        "ImportError: nimblevm's C module is not built; in a clone run `make demo`" in done.stderr
    )


def test_every_error_is_a_nimble_error() -> None:
    for name in dir(nvm.errors):
        value = getattr(nvm.errors, name)
        if (
            isinstance(value, type)
            and issubclass(value, Exception)
            and not issubclass(value, Warning)
        ):
            assert issubclass(value, nvm.NimbleError)
            assert value is nvm.NimbleError or len(value.__bases__) == 2 or value.__bases__[0] in (
                nvm.errors.InvalidExecutable, nvm.LimitExceeded, nvm.SignatureError,
            ), f"{name} derives from a builtin too"  # fmt: skip


def test_help_shows_public_names() -> None:
    code = "import nimblevm; help(nimblevm)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    for name in ("class VirtualMachine", "compile(", "load(", "class Tensor"):
        assert name in done.stdout


def test_functions_are_a_mapping_that_prints() -> None:
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(?n, 2), float32]) { %x }'
    exe = nvm.compile(nvm.relay.parse(text), native=False)
    assert isinstance(exe.functions, Functions)
    assert repr(exe.functions) == "@main(%x: Tensor[(?n, 2), float32]) -> Tensor[(?n, 2), float32]"
    assert exe.functions["main"].checked == ("%x axis 1 = 2",)
    assert "nope" not in exe.functions
    with pytest.raises(KeyError, match="no function 'nope'"):
        exe.functions["nope"]
    assert "@main" in repr(exe)


def test_types_read_as_the_language_prints_them() -> None:
    program = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(?n), float32], %y: (bool,)) { (%x, %y) }'
    mod = nvm.relay.parse(program)
    info = nvm.compile(mod, native=False).functions["main"]
    assert info.params[0].text == str(mod["main"].params[0].checked_type) == "Tensor[(?n), float32]"
    assert info.params[1].text == "(bool,)"


def test_dims_of_one_name_are_told_apart() -> None:
    x = nvm.relay.var("x", shape=(nvm.relay.DimVar("n"), 2))
    y = nvm.relay.var("y", nvm.relay.TupleType([nvm.relay.TensorType((nvm.relay.DimVar("n"), 3))]))
    function = nvm.relay.Function([x, y], nvm.relay.Tuple([x, y]))
    info = nvm.compile(function, native=False).functions["main"]
    assert [(d.name, d.param) for d in info.dims] == [("n", "x"), ("n_1", "y")]
    assert info.checked == ("%x axis 1 = 2", "%y tensor 0 axis 1 = 3")


COMPILE_MISTAKES: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    ("def @main() { 1 }", {}, TypeError, "parse"),
    (nvm.relay.const(1), {}, TypeError, "wrap it"),
    (None, {}, TypeError, "not NoneType"),
]


@pytest.mark.parametrize(("program", "options", "kind", "text"), COMPILE_MISTAKES)
def test_compile_says_what_it_takes(
    program: object, options: dict[str, object], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        nvm.compile(program, **options)  # type: ignore[arg-type]
