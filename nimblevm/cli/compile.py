"""nimblevm compile"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

import nimblevm as nvm
from nimblevm.cli.arrays import weights_of
from nimblevm.cli.console import Mistake, is_stdin, progress_of, read_text, say
from nimblevm.cli.options import SourceFile, WeightDtype
from nimblevm.files import check_new_file

_Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="File to write; default: SOURCE with .nvm.")
]
_Params = Annotated[
    Path | None, typer.Option(help=".npz of weights, bound to parameters of main by name.")
]
_WeightsFile = Annotated[
    Path | None,
    typer.Option(
        help=".safetensors or .npz of weights that stay outside of the executable, which names them with shape, "
        "dtype and digest. It looks for the file beside itself, if it lies there."
    ),
]
_Target = Annotated[
    str,
    typer.Option(
        help='"native" (this machine), a level for any machine (x86-64-v2, x86-64-v3, x86-64-v4, '
        'x86-64-v4-vnni, aarch64), several with commas between (the best that the CPU has is used), or "none": '
        "no machine code."
    ),
]
_Weights = Annotated[
    WeightDtype,
    typer.Option(
        help="How weights of products are stored. 16 bits halve the file and the time to read them; "
        "sums stay float32, results change a little."
    ),
]
_Device = Annotated[
    str,
    typer.Option(
        help="What kernels run on: a backend (opencl, cuda) or several in order of preference, with commas "
        "between, of which the machine that runs the file takes the first that it has. Default: the host."
    ),
]
_Explain = Annotated[
    bool,
    typer.Option(
        "--explain-placement", help="Say which kernel went where, and why each copy is made."
    ),
]
_Tuning = Annotated[
    Path | None, typer.Option(help="Record of `nimblevm tune`: how products run best here.")
]
_External = Annotated[
    str,
    typer.Option(
        help="Backends that bring their own code, in order of preference, with commas between: blas. "
        "See docs/external-codegen.md."
    ),
]


def compile_(
    source: SourceFile,
    output: _Output = None,
    params: _Params = None,
    weights_file: _WeightsFile = None,
    target: _Target = "native",
    weights: _Weights = WeightDtype.FLOAT32,
    device: _Device = "",
    explain: _Explain = False,
    tuning: _Tuning = None,
    external: _External = "",
) -> None:
    """Compile Relay text to an executable file.

    Parameters of main that --params names become constants of the file; the others stay inputs. What the compiler
    can't prove about sizes becomes a check at run time: see `nimblevm check`.

    \b
    Examples:
      nimblevm compile model.rly
      nimblevm compile model.rly --params weights.npz -o build/model.nvm
      nimblevm compile model.rly --target x86-64-v3,x86-64-v4,aarch64    for other machines
      nimblevm compile model.rly --params weights.npz --weights bfloat16
      nimblevm compile model.rly --weights-file weights.safetensors
      nimblevm compile model.rly --device opencl,cuda --explain-placement
    """
    start = time.perf_counter()
    path = _destination(source, output)
    bound, late = _weights_by_name(params, weights_file)
    placed: list[Any] = []
    with progress_of(f"compiling {source.name}") as report, warnings.catch_warnings():
        # Code for other machines is meant.
        warnings.filterwarnings("ignore", "machine code not used", nvm.errors.MachineCodeWarning)
        report("reading", 0, 1)
        mod = nvm.relay.parse(read_text(source), source_name=str(source))
        exe = nvm.compile(
            mod, params={**bound, **late}, target=target, progress=report, weights=weights.value,
            tuning=read_text(tuning) if tuning is not None else None,
            external=external,
            late_bound=list(late), weights_file=_beside(weights_file, path), device=device or None,
            on_placement=placed.append,
        )  # fmt: skip
        exe.save(path)
    took = time.perf_counter() - start
    if explain:
        say(str(placed[0]) if placed else "everything is on the host")
    if weights_file is not None and not exe.weights_file:
        say(f"{weights_file} lies outside of the folder of {path}: run it with --weights")
    if path.is_file():  # else its bytes may be on stdout
        say(f"wrote {path} ({path.stat().st_size} bytes) in {took:.2f} s")


def _destination(source: Path, output: Path | None) -> Path:
    """Where the executable goes. Mistake if it has no name, or the program's; FileError if it can't be made there."""
    if output is None and is_stdin(source):
        raise Mistake("a program from stdin has no name: name the executable with -o FILE.nvm")
    path = output or source.with_suffix(".nvm")
    if path == source:
        raise Mistake(f"{source} would be overwritten: name the executable with -o FILE.nvm")
    check_new_file(path)
    return path


def _weights_by_name(
    params: Path | None, weights_file: Path | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Weights that become constants, and those that stay outside. Mistake for one that is both."""
    bound = weights_of(params) if params is not None else {}
    late = weights_of(weights_file) if weights_file is not None else {}
    twice = sorted(set(bound) & set(late))
    if twice:
        raise Mistake(f"both --params and --weights-file have {', '.join(twice)}")
    return bound, late


def _beside(weights: Path | None, executable: Path) -> str:
    """The path of the weights seen from the executable's folder, "" if they lie elsewhere."""
    if weights is None:
        return ""
    folder, place = (Path(os.path.realpath(p)) for p in (executable.parent, weights))
    return place.relative_to(folder).as_posix() if place.is_relative_to(folder) else ""


__all__ = ["compile_"]
