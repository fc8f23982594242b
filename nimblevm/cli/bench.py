"""`nimblevm bench`: the speed of our side and of its peers on whole workloads. Needs the extra `bench`."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from nimblevm.cli.options import counts_of
from nimblevm.files import check_new_file, write_text

_WIDTH = 120  # of tables that go to a file


def bench(
    rows: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ROW...]", help="Rows of the table. Default: all."),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(help="Other systems, with commas between. Default: all that a row names."),
    ] = None,
    threads: Annotated[str, typer.Option(help="Numbers of threads, with commas between.")] = "1,2",
    seconds: Annotated[
        float, typer.Option(min=0, help="Measuring time of a row at one number of threads.")
    ] = 20,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all that was measured to this file.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Write PNG plots to this folder.")] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Few inputs, 2 seconds a row, no limits: a look, no result."),
    ] = False,
    study: Annotated[
        list[str] | None,
        typer.Option(
            help="Instead of the table, a study of our side: dispatch, memory, load, compile, decode or "
            "forms. May be given more than once."
        ),
    ] = None,
    show_rows: Annotated[bool, typer.Option("--list", help="List the rows and stop.")] = False,
) -> None:
    """Compare with other systems on whole models, one worker process a side, in interleaved turns.

    Results are compared before anything is timed. The table gives medians, the ratio to the fastest peer with a 95 %
    interval, and a verdict against the row's target; docs/benchmarks.md says how to read it.

    \b
    Examples:
      nimblevm bench --list
      nimblevm bench --quick lstm
      nimblevm bench --study memory --study compile
    """
    _need_extra(plots is not None)
    from nimblevm.bench import run, studies  # noqa: PLC0415 - needs the extra

    if show_rows:
        for name, title in run.titles().items():
            typer.echo(f"{name:16}{title}")
        return
    try:
        studies.check(study or [])
        counts = counts_of(threads, "--threads")
        wanted = None if peers is None else [p for p in peers.split(",") if p]
        plan = run.Plan.of(rows or [], wanted, counts, seconds, quick)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if json_file is not None:
        check_new_file(json_file)
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    found: dict[str, Any] = (
        studies.run(study, quick, console, _log) if study else run.run(plan, console, _log, plots)
    )
    if json_file is not None:
        write_text(json_file, json.dumps(found, indent=1))
        _log(f"wrote {json_file}")


def _need_extra(plots: bool) -> None:
    """BadParameter if a package is missing: before half an hour of measuring, not after it."""
    for name in ("scipy", "matplotlib") if plots else ("scipy",):
        if importlib.util.find_spec(name) is None:
            raise typer.BadParameter(
                f"nimblevm bench needs {name}: pip install 'nimblevm[bench,peers]'"
            )


def _log(text: str) -> None:
    Console(stderr=True).print(text, highlight=False)


__all__ = ["bench"]
