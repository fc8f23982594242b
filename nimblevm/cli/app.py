"""The application: its commands, and what becomes of errors. Each command is a file of its own, a thin layer over the
public API; `run`, `inspect` and `disasm` load no compiler.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Annotated, TextIO

import typer

import nimblevm as nvm
from nimblevm.cli import console
from nimblevm.cli.bench import bench
from nimblevm.cli.check import check
from nimblevm.cli.compile import compile_
from nimblevm.cli.diff import diff
from nimblevm.cli.disasm import disasm
from nimblevm.cli.inspect import inspect
from nimblevm.cli.profile import profile
from nimblevm.cli.run import run
from nimblevm.cli.sign import keygen, sign
from nimblevm.cli.tune import tune
from nimblevm.cli.version import version

_HELP = """Compile dynamic Relay programs to one .nvm file; run and inspect such files.

\b
A first session:
  nimblevm check model.rly                         which sizes are known, which are checked at run time
  nimblevm compile model.rly --params weights.npz  writes model.nvm
  nimblevm inspect model.nvm                       which inputs main wants, what is in the file
  nimblevm run model.nvm x=x.npy steps=3 -o results.npz

`nimblevm COMMAND --help` explains one command, with examples. Every error is one paragraph on stderr and exit code 2.
"""

# name -> function; a new command is one line here.
COMMANDS: dict[str, Callable[..., None]] = {
    "compile": compile_,
    "run": run,
    "check": check,
    "inspect": inspect,
    "disasm": disasm,
    "diff": diff,
    "profile": profile,
    "tune": tune,
    "keygen": keygen,
    "sign": sign,
    "bench": bench,
    "version": version,
}

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=_HELP
)
for _name, _function in COMMANDS.items():
    app.command(_name)(_function)

# typer does not export the base of its own errors, which is click's or a copy of click's.
_UsageError = next(c for c in typer.BadParameter.__mro__[::-1] if hasattr(c, "format_message"))
_INTERRUPTED = 130


def run_app() -> int:
    """Run the command line of sys.argv; the exit code. An error of the user becomes one paragraph and exit code 2."""
    warnings.showwarning = _show_warning
    # Closed by the caller (`>&-`): what is printed would vanish, and a file of ours get the number.
    if sys.stdout is None:
        console.complain("error", "stdout is closed; `> /dev/null` throws away what is printed")
        return 2
    try:
        code = app(
            args=sys.argv[1:] or ["--help"], prog_name="nimblevm", standalone_mode=False
        )  # None, or the code of typer.Exit
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except Exception as error:
        text = _explained(error)
        if text is None:
            raise
        console.complain("error", text)
        return 2
    if code == _INTERRUPTED:
        console.complain("error", "interrupted")
    return code if isinstance(code, int) else 0


def _explained(error: Exception) -> str | None:
    """What to tell a user; None for an error that is nimblevm's own."""
    if isinstance(error, _UsageError):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "nimblevm"
        text = error.format_message().rstrip(".")  # type: ignore[attr-defined]
        return f"{text}{'' if text.endswith('?') else '.'} `{command} --help` explains."
    if isinstance(error, console.Mistake):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, nvm.InvalidExecutable) and "magic number" in str(error):
        return f"{type(error).__name__}: {error}; `nimblevm compile SOURCE.rly` makes one of Relay text"
    if isinstance(error, nvm.NimbleError | OSError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError):
        return f"out of memory: {error}".rstrip(": ")
    return None


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    console.complain("warning", str(message), "bold yellow")


def _version(wanted: bool) -> None:
    if wanted:
        console.say(f"nimblevm {nvm.__version__}")
        raise typer.Exit()


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


__all__ = ["COMMANDS", "app", "run_app"]
