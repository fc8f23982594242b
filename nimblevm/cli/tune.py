"""nimblevm tune"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import nimblevm as nvm
from nimblevm.cli.arrays import weights_of
from nimblevm.cli.console import progress_of, read_text, say
from nimblevm.cli.options import SourceFile, WeightDtype, counts_of
from nimblevm.files import check_new_file, write_text


def tune(
    source: SourceFile,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Record to write; default: SOURCE with .tuning.json."),
    ] = None,
    params: Annotated[
        Path | None, typer.Option(help=".npz of weights, as for `nimblevm compile`.")
    ] = None,
    weights: Annotated[
        WeightDtype, typer.Option(help="How weights are stored, as for `nimblevm compile`.")
    ] = WeightDtype.FLOAT32,
    rows: Annotated[
        str, typer.Option(help="Numbers of rows that matter, such as lengths of sequences.")
    ] = "1,2,7,32",
    external: Annotated[
        str, typer.Option(help="External backends to try too, with commas between: blas.")
    ] = "",
) -> None:
    """Measure how a program's products run best on this machine, and write a record of it.

    The record is a small JSON file to keep beside the program: `nimblevm compile --tuning RECORD` uses it, and the
    same record gives the same file. Without one a table of known machines decides.

    \b
    Examples:
      nimblevm tune model.rly --params weights.npz
      nimblevm compile model.rly --params weights.npz --tuning model.tuning.json
      nimblevm tune model.rly --params weights.npz --rows 1,26 -o here.json
      nimblevm tune model.rly --params weights.npz --external blas
    """
    path = output or source.with_suffix(".tuning.json")
    check_new_file(path)
    bound = weights_of(params) if params is not None else {}
    with progress_of(f"tuning {source.name}") as report:
        mod = nvm.relay.parse(read_text(source), source_name=str(source))
        text = nvm.tune(
            mod, params=bound, weights=weights.value, rows=counts_of(rows, "--rows"), progress=report,
            external=external,
        )  # fmt: skip
    write_text(path, text)
    say(f"wrote {path}")


__all__ = ["tune"]
