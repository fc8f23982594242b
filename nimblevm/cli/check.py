"""nimblevm check"""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

import nimblevm as nvm
from nimblevm.bytecode.dim_lines import STATES, DimLine, DimReport, FunctionDims, executable_report
from nimblevm.bytecode.serialize import MAGIC
from nimblevm.cli.console import Mistake, is_stdin, progress_of, read_text, say, table
from nimblevm.cli.json_text import dumps
from nimblevm.cli.options import AsJson

_STYLES = {"static": "", "equal to": "green", "checked": "yellow", "free": "cyan"}


class _Only(enum.Enum):
    STATIC = "static"
    EQUAL = "equal"
    CHECKED = "checked"
    FREE = "free"


def check(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Relay text (.rly; - reads stdin) or executable (.nvm)."
        ),
    ],
    function: Annotated[
        list[str] | None, typer.Option(help="Only this function; may be given more than once.")
    ] = None,
    values: Annotated[
        bool, typer.Option("--values", help="Also every variable that a let or a pattern binds.")
    ] = False,
    only: Annotated[_Only | None, typer.Option(help="Only dims of this kind.")] = None,
    as_json: AsJson = False,
) -> None:
    """List every dim of every function, and what is known of it.

    \b
    static     a number
    equal to   the same as another dim, or computed from others: nothing to check
    checked    compared at run time: where, and which operator or signature demanded it
    free       any size

    Parameters, results, local functions, and what else is compared on the way. A program with type errors is refused
    with their places. Of an executable, the signatures and the checks that its code still makes are listed.

    \b
    Examples:
      nimblevm check model.rly
      nimblevm check model.rly --function main --only checked
      nimblevm check model.rly --json > dims.json
    """
    report = _report(file, function, values)
    if only is not None:
        report = _filtered(report, only)
    if as_json:
        sys.stdout.writelines(dumps({"file": str(file), **report.to_json()}))
        sys.stdout.write("\n")
        return
    for found in report.functions:
        rows = [_row(line) for line in found.lines]
        table(
            ("value", "axis", "dim", "state", "equal to, checked where and why"),
            rows,
            f"@{found.name}",
        )
    counts = {state: report.count(state) for state in STATES}
    total = sum(counts.values())
    say(f"{total} dims: " + ", ".join(f"{n} {state}" for state, n in counts.items()))


def _is_executable(file: Path) -> bool:
    with open(file, "rb") as opened:
        return opened.read(len(MAGIC)) == MAGIC


def _report(file: Path, functions: list[str] | None, values: bool) -> DimReport:
    if not is_stdin(file) and _is_executable(file):
        if values:
            raise Mistake(f"--values needs the program's text; {file} is an executable")
        with nvm.load(file, native=False, weights=False) as exe:
            return _named(executable_report(exe), functions)
    with progress_of(f"checking {file.name}"):
        mod = nvm.relay.parse(read_text(file), source_name=str(file))
        for name in functions or ():
            if name not in mod:
                raise _no_function(name, [v.name_hint for v in mod.functions])
        return nvm.dim_report(mod, functions, values)


def _named(report: DimReport, functions: list[str] | None) -> DimReport:
    if functions is None:
        return report
    known = [f.name for f in report.functions]
    for name in functions:
        if name not in known:
            raise _no_function(name, known)
    return DimReport(tuple(f for f in report.functions if f.name in functions))


def _no_function(name: str, known: list[str]) -> Mistake:
    return Mistake(
        f"no function @{name}; there are {', '.join(f'@{k}' for k in known[:50]) or 'none'}"
    )


def _filtered(report: DimReport, only: _Only) -> DimReport:
    kept = (
        FunctionDims(f.name, tuple(x for x in f.lines if x.state.startswith(only.value)))
        for f in report.functions
    )
    return DimReport(tuple(f for f in kept if f.lines))


def _row(line: DimLine) -> tuple[str | Text, ...]:
    reasons = [line.equal_to] if line.equal_to else []
    for made in line.checks:
        place = f"{made.place}: " if made.place else ""
        reasons.append(f"{place}{made.why}{f': {made.demand}' if made.demand else ''}")
    state = Text(line.state, _STYLES[line.state])
    return line.value + line.part, str(line.axis), line.dim, state, "\n".join(reasons)


__all__ = ["check"]
