"""The command line: `nimblevm --help`. Needs the extra `cli` (typer, rich); `bench` needs more, which it names."""

from __future__ import annotations

import sys

_EXTRA = ("typer", "rich")


def main() -> int:
    """Entry point of the console script; exit code 2 and one paragraph on a user's error."""
    try:
        from nimblevm.cli.app import run_app  # noqa: PLC0415 - optional extra
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA:
            raise
        print(
            f"the command line needs {missing}: pip install 'nimblevm[cli]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130
    return run_app()
