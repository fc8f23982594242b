"""Programs and inputs that fail at run time, and the messages they give: tests/golden/run_errors/*.rly.

After the program stand the call (`// RUN main(f32(2, 3), Leaf(f32(2)))`), limits if any, and the whole message, which
is the same with machine code and without.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import NimbleError

CASES = sorted((Path(__file__).parent.parent / "golden" / "run_errors").glob("*.rly"))
FORM = re.compile(
    r"(?P<program>.*)// RUN (?P<call>[^\n]*)\n(// LIMITS (?P<limits>[^\n]*)\n)?// ERROR\n(?P<message>.*)",
    re.DOTALL,
)


def scope(exe: nvm.Executable, vm: nvm.VirtualMachine, other: nvm.VirtualMachine) -> dict[str, Any]:
    """What the call may use: arrays, constructors, functions of the program, two machines."""

    def call(name: str) -> Any:
        return lambda *args, **named: vm.invoke(name, *args, **named)

    return {
        **{name: call(name) for name in (*exe.functions, "mian")},
        **{c.name: c for c in exe.constructors if c.name},
        "f32": lambda *shape: np.full(shape, 0.5, "float32"),
        "f64": lambda *shape: np.full(shape, 0.5, "float64"),
        "i32": np.int32,
        "array": np.array,
        "vm": vm,
        "other": other,
    }


def message(program: str, name: str, call: str, limits: str | None, **options: Any) -> str:
    mod = nvm.relay.parse(program, source_name=name)
    given = nvm.Limits(**eval(f"dict({limits})", {}) if limits else {})
    with nvm.compile(mod, **options) as exe, nvm.VirtualMachine(exe) as other:
        with nvm.VirtualMachine(exe, limits=given) as vm:
            with pytest.raises(NimbleError) as caught:
                eval(call, scope(exe, vm, other))
    return f"{type(caught.value).__name__}: {caught.value}"


def test_there_are_enough() -> None:
    assert len(CASES) >= 50


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_message(path: Path, request: pytest.FixtureRequest) -> None:
    found = FORM.fullmatch(path.read_text())
    assert found is not None, "a case is a program, // RUN, perhaps // LIMITS, and // ERROR"
    program, call, limits = found["program"], found["call"], found["limits"]
    got = message(program, path.name, call, limits, native=True)
    text = "".join(f"// {line}".rstrip() + "\n" for line in got.splitlines())
    if request.config.getoption("--update-golden", default=False):
        path.write_text(path.read_text()[: found.start("message")] + text)
    else:
        assert text == found["message"]
    assert message(program, path.name, call, limits, native=False) == got


PLACE = re.compile(r"\(in @[\w$]+ at ([\w.]+:\d+):\d+\)")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"passes_off": ("inline", "simplify", "fold_constant", "cse", "dead_code")},
        {"unbox": False},
        {"plan_memory": False},
    ],
)
@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_kind_and_line_depend_on_no_option(path: Path, options: dict[str, Any]) -> None:
    found = FORM.fullmatch(path.read_text())
    assert found is not None
    got = message(
        found["program"], path.name, found["call"], found["limits"], native=False, **options
    )
    expected = found["message"].removeprefix("// ")
    assert got.partition(":")[0] == expected.partition(":")[0]
    assert PLACE.findall(got) == PLACE.findall(expected)
