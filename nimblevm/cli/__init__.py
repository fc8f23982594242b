"""The command line: `nimblevm compile | run | inspect | disasm`. Needs the extra `cli` (typer, rich)."""

from __future__ import annotations

import sys


def main() -> int:
    """Entry point of the console script; exit code 2 and one paragraph on a user's error."""
    try:
        from nimblevm.cli.app import run_app  # noqa: PLC0415 - optional extra
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(
            f"the command line needs {error.name}: pip install 'nimblevm[cli]'",
            file=sys.stderr,
        )
        return 2
    return run_app()
