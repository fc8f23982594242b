"""Commands. Each is a thin layer over the public API; the compiler is loaded by `compile` alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import click
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import nimblevm as nvm

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Compile dynamic Relay programs to one .nvm file, run and inspect such files.",
)
_out = Console()
_err = Console(stderr=True)


def run_app() -> int:
    """Run the command line; a NimbleError or a missing file becomes one paragraph and exit code 2."""
    try:
        app(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except click.exceptions.Abort:
        return 130
    except (nvm.NimbleError, OSError, ModuleNotFoundError) as error:
        _err.print(f"[bold red]error:[/] {type(error).__name__}:", highlight=False)
        _err.print(str(error), markup=False, highlight=False)
        return 2
    return 0


@app.command("compile")
def compile_(
    source: Annotated[Path, typer.Argument(help="Relay text (.rly)")],
    output: Annotated[
        Path | None, typer.Option("-o", help="file to write; default: SOURCE with .nvm")
    ] = None,
    params: Annotated[
        Path | None, typer.Option(help=".npz of weights, bound to parameters of main by name")
    ] = None,
    target: Annotated[
        str, typer.Option(help='"native" or an LLVM CPU level such as x86-64-v3')
    ] = "native",
) -> None:
    """Compile Relay text to an executable file."""
    weights: dict[str, Any] = {}
    if params is not None:
        with np.load(params) as file:
            weights = {name: file[name] for name in file.files}
    start = time.perf_counter()
    mod = nvm.relay.parse(source.read_text(), source_name=str(source))
    path = output or source.with_suffix(".nvm")
    nvm.compile(mod, params=weights, target=target).save(path)
    took = time.perf_counter() - start
    _out.print(f"wrote {path} ({path.stat().st_size} bytes) in {took:.2f} s", highlight=False)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="executable (.nvm)")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(help="NAME=FILE.npy or NAME=NUMBER, one for each parameter"),
    ] = None,
    function: Annotated[str, typer.Option(help="function to call")] = "main",
    output: Annotated[
        Path | None, typer.Option("-o", help="write tensor results to this .npz")
    ] = None,
    native: Annotated[
        bool, typer.Option(help="--no-native: never run machine code of the file")
    ] = True,
    threads: Annotated[int, typer.Option(help="the most threads that kernels may use")] = 1,
) -> None:
    """Run a function of an executable on .npy inputs."""
    named = dict(_input(text) for text in inputs or [])
    with nvm.load(file, native=native) as exe, nvm.VirtualMachine(exe, threads=threads) as vm:
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


def _input(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r}: write NAME=FILE.npy or NAME=NUMBER")
    if value.endswith(".npy"):
        return name, np.load(value)
    try:
        return name, int(value)
    except ValueError:
        pass
    try:
        return name, float(value)
    except ValueError:
        raise click.BadParameter(
            f"{text!r}: {value!r} is neither a .npy file nor a number"
        ) from None


@app.command()
def inspect(file: Annotated[Path, typer.Argument(help="executable (.nvm)")]) -> None:
    """Show signatures, dims bound and checked, kernels and sections of an executable."""
    with nvm.load(file) as exe:
        functions = Table("function", "parameters", "result", "dims", "checked at entry")
        for info in exe.functions.values():
            functions.add_row(
                f"@{info.name}",
                "\n".join(f"%{p.name}: {p.text}" for p in info.params),
                info.result_text,
                "\n".join(
                    f"?{d.name} from %{d.param}" if d.param else f"?{d.name}" for d in info.dims
                ),
                "\n".join(info.checked),
            )
        _out.print(functions)
        kernels = Table("kernel", "kind", "machine code")
        for kernel in exe.kernels:
            kernels.add_row(kernel.name, kernel.kind, "yes" if kernel.native else "no")
        _out.print(kernels)
        sections = Table("section", "target", "bytes")
        for section in exe.sections:
            sections.add_row(section.kind, section.target, str(section.size))
        _out.print(sections)


@app.command()
def disasm(file: Annotated[Path, typer.Argument(help="executable (.nvm)")]) -> None:
    """Print the instructions of an executable, with source places."""
    with nvm.load(file) as exe:
        _out.print(exe.disassemble(), markup=False, highlight=False, soft_wrap=True)


__all__ = ["app", "run_app"]
