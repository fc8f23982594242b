"""nimblevm disasm"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

import nimblevm as nvm
from nimblevm.bytecode.code_sections import code_sections, counted
from nimblevm.bytecode.disassembler import code_lines
from nimblevm.bytecode.serialize import KERNEL_LOOP_IR, FunctionRecord, ProgramRecord
from nimblevm.bytecode.types import FunctionInfo
from nimblevm.cli.console import Mistake, plain, say
from nimblevm.cli.kernel_text import kernel_text
from nimblevm.cli.options import ExecutableFile
from nimblevm.cli.sources import find_sources


def disasm(
    file: ExecutableFile,
    function: Annotated[
        list[str] | None, typer.Option(help="Only this function; may be given more than once.")
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Also the bodies of kernels (kernel IR).")
    ] = False,
    kernel: Annotated[
        list[str] | None,
        typer.Option(help="Only the body of this kernel; may be given more than once."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="The program's text; else it is looked for beside FILE.")
    ] = None,
    assembler: Annotated[
        bool, typer.Option("--assembler", help="Print text that can be assembled again.")
    ] = False,
) -> None:
    """Print the instructions of an executable under the source lines that they come from.

    docs/isa.md explains the instructions. Numbers in front are words of a function's code; `>` marks where jumps go.
    Behind the functions: which kernels have code for devices and runtimes beside the host's, in launches or bytes.

    \b
    Examples:
      nimblevm disasm model.nvm | less
      nimblevm disasm model.nvm --function main --kernels
    """
    with nvm.load(file, weights=False) as exe:
        if assembler:
            say(exe.disassemble())
            return
        program = exe.program_record()
        wanted = _chosen(function, [f.name for f in program.functions], "function", "@")
        bodies = _chosen(kernel, [k.name for k in program.kernels], "kernel", "")
        names = [program.sources[i] for i in range(len(program.sources))]
        lines_of = find_sources(names, file, source)
        if kernel is None:
            for record in program.functions:
                if record.name in wanted:
                    info = exe.functions[record.name]
                    say("\n".join(_function(program, record, info, lines_of)) + "\n")
        if kernels or kernel is not None:
            for body in program.kernels:
                if body.name in bodies:
                    say(kernel_text(body))
        if function is None and exe.format_version > 1:
            say("\n".join(_code(program, bodies)))


def _chosen(asked: list[str] | None, known: list[str], what: str, sigil: str) -> set[str]:
    if asked is None:
        return set(known)
    names = {name.removeprefix("@") if sigil else name for name in asked}
    unknown = names - set(known)
    if unknown:
        shown = ", ".join(sigil + name for name in known[:20]) + (
            ", ..." if len(known) > 20 else ""
        )
        raise Mistake(f"no {what} {sigil}{min(unknown)}; the file has {shown or 'none'}")
    return names


def _function(
    program: ProgramRecord,
    record: FunctionRecord,
    info: FunctionInfo,
    lines_of: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    yield plain(str(info))
    yield f"  {info.ints} integer and {info.objs} object registers, {info.words} words"
    place: tuple[str, int] | None = None
    for line in code_lines(program, record):
        if (line.source, line.line) != place:
            place = (line.source, line.line)
            yield plain(_place(line.source, line.line, lines_of))
        mark = ">" if line.is_target else " "
        yield f"  {line.pc:>6} {mark} {plain(line.text)}"


def _code(program: ProgramRecord, wanted: set[str]) -> Iterator[str]:
    """What the file has for devices and runtimes: by kernel, then by section; nothing if it has none."""
    sections = code_sections(program.sections)
    rows = []
    for index, kernel in enumerate(program.kernels):
        places = [s.kernels[index].text for s in sections if index in s.kernels]
        if places and kernel.name in wanted:
            own = "" if kernel.kind == KERNEL_LOOP_IR else " (no kernel IR)"
            rows.append((f"k{index} {kernel.name}", "; ".join(places) + own))
    if rows:
        yield "kernels with code for devices and runtimes"
        width = max(len(name) for name, _ in rows)
        yield from (plain(f"  {name:<{width}}  {places}") for name, places in rows)
    for section in sections:
        size, kernels = counted(section.size, "byte"), counted(len(section.kernels), "kernel")
        yield plain(f"{section.kind} for {section.target}: {size}, {kernels}")


def _place(source: str, line: int, lines_of: Mapping[str, Sequence[str]]) -> str:
    if not source:
        return "  (no place)"
    lines = lines_of.get(source, ())
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f"  {source}:{line}" + (f"  {text}" if text else "")


__all__ = ["disasm"]
