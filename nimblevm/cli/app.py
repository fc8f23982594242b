"""Commands. Each is a thin layer over the public API; the compiler is loaded by `compile` alone."""

from __future__ import annotations

import time
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import numpy as np
import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

import nimblevm as nvm
from nimblevm.cli.bench import bench

_HELP = """Compile dynamic Relay programs to one .nvm file; run and inspect such files.

A first session:

    nimblevm compile model.rly --params weights.npz    (writes model.nvm)

    nimblevm inspect model.nvm    (says which inputs main wants)

    nimblevm run model.nvm x=x.npy steps=3 -o results.npz

NAME --help explains one command. Errors end with exit code 2.
"""

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=_HELP
)
_out = Console()
_err = Console(stderr=True)

ExecutableFile = Annotated[Path, typer.Argument(metavar="FILE", help="executable (.nvm)")]


def run_app() -> int:
    """Run the command line; an error of the user becomes one paragraph and exit code 2."""
    warnings.showwarning = _show_warning
    try:
        app(
            prog_name="nimblevm"
        )  # ends with SystemExit; errors in the command line itself are shown by typer, code 2
    except (nvm.NimbleError, OSError) as error:
        text = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            text = f"{error.filename}: {error.strerror}"
        _err.print(f"[bold red]error:[/] {type(error).__name__}:", highlight=False, end=" ")
        _err.print(text, markup=False, highlight=False, soft_wrap=True)
        return 2
    return 0


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    _err.print(f"[bold yellow]warning:[/] {message}", highlight=False, soft_wrap=True)


def _version(wanted: bool) -> None:
    if wanted:
        _out.print(f"nimblevm {nvm.__version__}", highlight=False)
        raise typer.Exit()


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


@app.command("compile")
def compile_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Relay text (.rly)")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="file to write; default: SOURCE with .nvm"),
    ] = None,
    params: Annotated[
        Path | None, typer.Option(help=".npz of weights, bound to parameters of main by name")
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            help='"native" (this machine), a level such as x86-64-v3 or aarch64, or "none": '
            "no machine code"
        ),
    ] = "native",
) -> None:
    """Compile Relay text to an executable file."""
    weights = _weights(params) if params is not None else {}
    start = time.perf_counter()
    try:
        text = source.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{source} is no text; expected a Relay program") from None
    mod = nvm.relay.parse(text, source_name=str(source))
    path = output or source.with_suffix(".nvm")
    nvm.compile(mod, params=weights, target=target).save(path)
    took = time.perf_counter() - start
    _out.print(
        f"wrote {path} ({path.stat().st_size} bytes) in {took:.2f} s",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


@app.command()
def run(
    file: ExecutableFile,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="one for each parameter: NAME=FILE.npy, or NAME=NUMBER for a scalar",
        ),
    ] = None,
    function: Annotated[str, typer.Option(help="function to call")] = "main",
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="write tensor results to this .npz"),
    ] = None,
    native: Annotated[
        bool,
        typer.Option("--native/--no-native", help="--no-native: never run machine code of FILE"),
    ] = True,
    threads: Annotated[int, typer.Option(min=1, help="the most threads that kernels may use")] = 1,
    device: Annotated[str, typer.Option(help="backend that runs the kernels")] = "cpu",
) -> None:
    """Run a function of an executable on .npy inputs and numbers."""
    named = dict(_input(text) for text in inputs or [])
    with nvm.load(file, native=native) as exe:
        with nvm.VirtualMachine(exe, device=device, threads=threads) as vm:
            start = time.perf_counter()
            result = vm.invoke(function, **named)
            took = time.perf_counter() - start
    flat = result if isinstance(result, tuple) else (result,)
    for i, value in enumerate(flat):
        _out.print(f"result {i}: {value!r}", markup=False, highlight=False)
    _out.print(f"{took * 1e6:.0f} us", highlight=False)
    if output is not None:
        arrays = {f"result{i}": v.numpy() for i, v in enumerate(flat) if isinstance(v, nvm.Tensor)}
        np.savez(output, **arrays)  # type: ignore[arg-type]


@contextmanager
def _numpy_file(path: Path | str, what: str) -> Iterator[Any]:
    """What numpy loads from a file; BadParameter if it is no numpy file."""
    try:
        loaded = np.load(path)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise typer.BadParameter(f"{path}: expected {what} ({error})") from None
    try:
        yield loaded
    finally:
        if hasattr(loaded, "close"):
            loaded.close()


def _weights(path: Path) -> dict[str, Any]:
    with _numpy_file(path, "an .npz file of weights") as file:
        if not hasattr(file, "files"):
            raise typer.BadParameter(
                f"{path}: expected an .npz file of weights by name, got one array"
            )
        return {name: file[name] for name in file.files}


def _input(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"{text!r}: write NAME=FILE.npy or NAME=NUMBER")
    name = name.removeprefix("%")
    if value.endswith(".npy"):
        with _numpy_file(value, "a .npy file") as array:
            return name, array
    if value in ("true", "false"):
        return name, value == "true"
    for number in (int, float):
        try:
            return name, number(value)
        except ValueError:
            pass
    raise typer.BadParameter(f"{text!r}: {value!r} is neither a .npy file nor a number")


@app.command()
def inspect(
    file: ExecutableFile,
    every: Annotated[
        bool, typer.Option("--all", help="also functions that the compiler made (marked)")
    ] = False,
) -> None:
    """Show signatures, dims bound and checked, kernels and sections of an executable."""
    with nvm.load(file) as exe:
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
        _table(("function", "parameters", "result", "dims", "checked at entry"), rows)
        hidden = len(exe.functions) - len(shown)
        if hidden:
            _out.print(f"{hidden} internal functions not shown (--all)", highlight=False)
        constructors = exe.constructors[1:]  # the first is the tuple
        rows_of_types = [(f"{c.adt}.{c.name}", f"({', '.join(c.fields)})") for c in constructors]
        _table(("constructor", "fields"), rows_of_types)
        kernels = [(k.name, k.kind, "yes" if k.native else "no") for k in exe.kernels]
        _table(("kernel", "kind", "machine code"), kernels)
        _table(
            ("section", "bytes", "target"), [(s.kind, str(s.size), s.target) for s in exe.sections]
        )
        _table(("producer", "version"), list(exe.producer.items()))


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """A table if it has rows. Cells are plain: rich would take the brackets of types for markup."""
    if rows:
        table = Table(*(Column(name, overflow="fold") for name in columns))
        for row in rows:
            table.add_row(*map(Text, row))
        _out.print(table)


@app.command()
def disasm(file: ExecutableFile) -> None:
    """Print the instructions of an executable, with source places."""
    with nvm.load(file) as exe:
        _out.print(exe.disassemble(), markup=False, highlight=False, soft_wrap=True)


app.command()(bench)

__all__ = ["app", "run_app"]
