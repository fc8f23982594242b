"""`nimblevm bench`: the speed of our side and of its peers on whole workloads. Needs the extra `bench`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

_NEEDED = ("scipy", "matplotlib")
_WIDTH = 120  # of tables that go to a file


def bench(
    rows: Annotated[
        list[str] | None, typer.Argument(metavar="[ROW...]", help="rows of the table; default: all")
    ] = None,
    peers: Annotated[
        str | None, typer.Option(help="comma-separated; default: all that a row names")
    ] = None,
    threads: Annotated[str, typer.Option(help="comma-separated thread counts")] = "1,2",
    seconds: Annotated[
        float, typer.Option(min=0, help="measuring time of a row at one thread count")
    ] = 20,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write everything measured here")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="write PNG plots to this folder")] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="few inputs, 2 seconds a row, no limits: a look, no result"),
    ] = False,
    study: Annotated[
        list[str] | None,
        typer.Option(
            help="instead of the table, a study of our side: dispatch, memory, load, compile, decode"
        ),
    ] = None,
    show_rows: Annotated[bool, typer.Option("--list", help="list the rows and stop")] = False,
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
    try:
        from nimblevm.bench import run, studies  # noqa: PLC0415 - optional extra

        if plots is not None:
            import matplotlib  # noqa: F401, PLC0415 - lacking, told before half an hour of measuring
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        raise typer.BadParameter(
            f"nimblevm bench needs {missing}: pip install 'nimblevm[bench,peers]'"
        ) from None
    if show_rows:
        for name, title in run.titles().items():
            typer.echo(f"{name:16}{title}")
        return
    try:
        studies.check(study or [])
        counts = [int(part) for part in threads.split(",")]
        wanted = None if peers is None else [p for p in peers.split(",") if p]
        plan = run.Plan.of(rows or [], wanted, counts, seconds, quick)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    console, status = Console(), Console(stderr=True)
    if not console.is_terminal:
        console = Console(width=_WIDTH)

    def log(text: str) -> None:
        status.print(text, highlight=False)

    found: dict[str, Any] = (
        studies.run(study, quick, console, log) if study else run.run(plan, console, log, plots)
    )
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1))
        log(f"wrote {json_file}")


__all__ = ["bench"]
