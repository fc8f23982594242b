"""nimblevm inspect"""

from __future__ import annotations

from typing import Annotated

import typer

import nimblevm as nvm
from nimblevm.bytecode.executable import SectionInfo
from nimblevm.cli.console import ExecutableFile, say, table


def inspect(
    file: ExecutableFile,
    every: Annotated[
        bool, typer.Option("--all", help="Also functions that the compiler made (marked).")
    ] = False,
) -> None:
    """Show signatures, dims bound and checked, kernels and sections of an executable.

    The first table says what `nimblevm run` wants: `%x: Tensor[(?n, 4), float32]` is a parameter x, a tensor whose
    first axis may have any size. The second lists the constructors that JSON inputs may use.

    \b
    Example:
      nimblevm inspect model.nvm
    """
    with nvm.load(file, weights=False) as exe:
        shown = [f for f in exe.functions.values() if every or f.public]
        rows = [
            (
                f"@{f.name}" + ("" if f.public else "\n(internal)"),
                "\n".join(f"%{p.name}: {p.text}" for p in f.params),
                f.result_text,
                "\n".join(f"?{d.name}" + (f" from %{d.param}" if d.param else "") for d in f.dims),
                "\n".join(f.checked),
            )
            for f in shown
        ]
        table(("function", "parameters", "result", "dims", "checked at entry"), rows)
        hidden = len(exe.functions) - len(shown)
        if hidden:
            say(f"{hidden} internal functions not shown (--all)")
        constructors = exe.constructors[1:]  # the first is the tuple
        rows_of_types = [(f"{c.adt}.{c.name}", f"({', '.join(c.fields)})") for c in constructors]
        table(("constructor", "fields"), rows_of_types)
        kernels = [(k.name, k.kind, "yes" if k.native else "no") for k in exe.kernels]
        table(("kernel", "kind", "machine code"), kernels)
        sections = [(s.kind, str(s.size), s.level, _use(s)) for s in exe.sections]
        table(("section", "bytes", "target", "used here"), sections)
        table(("producer", "version"), list(exe.producer.items()))


def _use(section: SectionInfo) -> str:
    if section.used:
        return "yes"
    return f"no: {section.why_not}" if section.why_not else ""


__all__ = ["inspect"]
