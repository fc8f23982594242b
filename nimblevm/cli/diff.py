"""nimblevm diff"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

import nimblevm as nvm
from nimblevm.bytecode.compare import Differences, compare
from nimblevm.cli import console
from nimblevm.cli.console import plain, say
from nimblevm.cli.kernel_text import kernel_text

_STYLES = {"-": "red", "+": "green", "@": "cyan"}


def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="Executable (.nvm).")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Executable (.nvm).")],
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Also how bodies of kernels differ (kernel IR).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what differs between two executables; exit code 0 if nothing does, 1 if something does.

    Functions and kernels are matched by name, constants by their bytes and else by type and order. Entries of tables
    count as what they are, not as their numbers. `-` is A, `+` is B.

    \b
    Examples:
      nimblevm diff old.nvm new.nvm
      nimblevm diff old.nvm new.nvm --kernels --json
    """
    with _load(first) as a, _load(second) as b:
        found = compare(a, b)
        bodies = _bodies(a, b, found) if kernels else {}
    if as_json:
        say(json.dumps({"differ": bool(found), **asdict(found), "bodies": bodies}, indent=1))
    else:
        _show(found, bodies)
    if found:
        raise typer.Exit(1)


def _load(file: Path) -> nvm.Executable:
    return nvm.load(file, native=False, weights=False)


def _bodies(a: nvm.Executable, b: nvm.Executable, found: Differences) -> dict[str, list[str]]:
    """Unified diffs of kernel IR by the names of kernels that differ."""
    left = {k.name: k for k in a.program_record().kernels}
    right = {k.name: k for k in b.program_record().kernels}
    made: dict[str, list[str]] = {}
    for change in found.kernels_changed:
        if change.name in left and change.name in right:
            x, y = (kernel_text(side[change.name]).splitlines() for side in (left, right))
            made[change.name] = list(unified_diff(x, y, lineterm="", n=2))[2:]
    return made


def _show(found: Differences, bodies: dict[str, list[str]]) -> None:
    for what, removed, added in (
        ("function @", found.functions_removed, found.functions_added),
        ("kernel ", found.kernels_removed, found.kernels_added),
        ("constant ", found.constants_removed, found.constants_added),
    ):
        _lines([*(f"-{what}{name}" for name in removed), *(f"+{what}{name}" for name in added)])
    for constant in found.constants_changed:
        i, j = constant.index
        _lines(
            [
                f"constant {constant.text} (c{i}, c{j}): {constant.elements} of {constant.of} elements differ, "
                f"by at most {constant.most:.6g}"
            ]
        )
    for what, changes in (("function @", found.functions_changed), ("kernel ", found.kernels_changed)):  # fmt: skip
        for change in changes:
            _lines([f"{what}{change.name} differs:"])
            _lines(change.lines)
            if what == "kernel ":
                _lines(bodies.get(change.name, []))
    if found.types:
        _lines(["data types differ:", *found.types])
    for name, x, y in (*found.facts, *(("section " + n, x, y) for n, x, y in found.sections)):
        _lines([f"{name}:", *([f"-{x}"] if x else []), *([f"+{y}"] if y else [])])


def _lines(lines: Sequence[str]) -> None:
    for line in lines:
        console.out.print(Text(plain(line), _STYLES.get(line[:1], "")), soft_wrap=True)


__all__ = ["diff"]
