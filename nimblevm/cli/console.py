"""What all commands share: the two consoles, tables, and the errors of users."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table
from rich.text import Text

out = Console()
err = Console(stderr=True)

PROGRESS_AFTER = 1.0
"""Seconds that work may take before its progress is shown."""

Report = Callable[[str, int, int], None]
"""(name of what begins, steps done, all steps)"""


class Mistake(Exception):
    """Something that the user can put right; the text says what and how. Ends the command with exit code 2."""


def plain(text: str) -> str:
    """Names of a file may hold control characters, which a terminal would obey: `?` stands for each but tabs."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else "?" for c in text)


def plain_lines(text: str) -> str:
    """`plain` for each line."""
    return "\n".join(map(plain, text.split("\n")))


def say(text: str) -> None:
    """A line of the command's result, or several; control characters are shown as `?`."""
    out.print(plain_lines(text), emoji=False, markup=False, highlight=False, soft_wrap=True)


def complain(kind: str, text: str, style: str = "bold red") -> None:
    """One paragraph on stderr: `error: text`; control characters are shown as `?`."""
    err.print(f"{kind}:", style=style, end=" ", highlight=False)
    err.print(plain_lines(text), emoji=False, markup=False, highlight=False, soft_wrap=True)


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    title: str = "",
    right: Container[int] = (),
    lean: bool = False,
) -> None:
    """A table if it has rows. Cells are as in say(): rich would take the brackets of types for markup. right:
    numbers of columns that stand at the right. lean: with fewer lines.
    """
    if rows:
        heading = Text(plain_lines(title), "bold") if title else None
        made = Table(
            *(
                Column(name, overflow="fold", justify="right" if i in right else "left")
                for i, name in enumerate(columns)
            ),
            title=heading,
            title_justify="left",
            box=box.SIMPLE_HEAD if lean else box.HEAVY_HEAD,
        )
        for row in rows:
            made.add_row(*(Text(plain_lines(c)) if isinstance(c, str) else c for c in row))
        out.print(made)


def is_stdin(path: Path) -> bool:
    """Whether a file is named "-"."""
    return str(path) == "-"


def number_of(text: str) -> int | float | None:
    """The number that a word of the command line is, if it is one. int() and float() alone would also take groups of
    digits (1_0) and digits of other scripts, which are no numbers to JSON, to numpy and to nvm-run.
    """
    if text.isascii() and "_" not in text:
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                pass
    return None


def read_text(path: Path) -> str:
    """The text of a source file, or of stdin for "-". OSError; Mistake for what is no text."""
    try:
        if is_stdin(path):
            return sys.stdin.buffer.read().decode("utf-8")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        hint = "; `nimblevm inspect` shows executables" if path.suffix == ".nvm" else ""
        raise Mistake(f"{path} is no text; expected a Relay program{hint}") from None


@contextmanager
def progress_of(what: str) -> Iterator[Report]:
    """Shows a bar on a terminal's stderr, once the work in the `with` has taken PROGRESS_AFTER seconds."""
    if not err.is_terminal:
        yield lambda stage, done, total: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),  # it has the name of a file
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=err, transient=True)
    task = bar.add_task(what, total=None)
    started = time.perf_counter()
    timer = threading.Timer(PROGRESS_AFTER, bar.start)
    timer.daemon = True
    timer.start()

    def report(stage: str, done: int, total: int) -> None:
        bar.update(task, description=f"{what}: {stage}", completed=done, total=total)

    try:
        yield report
    finally:
        timer.cancel()
        if time.perf_counter() - started >= PROGRESS_AFTER:
            timer.join()  # it may be starting the bar just now
        bar.stop()


__all__ = [
    "PROGRESS_AFTER", "Mistake", "Report", "complain", "err", "out", "plain",
    "plain_lines", "is_stdin", "number_of", "progress_of", "read_text", "say", "table",
]  # fmt: skip
