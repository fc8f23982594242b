"""Arguments and options that several commands have: the type of a parameter is its help too."""

from __future__ import annotations

import enum
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from nimblevm.cli.console import Mistake, number_of


class WeightDtype(enum.Enum):
    """dtypes in which packed weights are stored."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


def whole_option(text: str, *names: str, least: int, most: int | None = None) -> Any:
    """An option that takes a whole number from `least` to `most`, written as number_of reads it."""
    return typer.Option(*names, parser=_within(least, most), metavar="INTEGER", help=text)


def _within(least: int, most: int | None) -> Callable[[str], int]:
    def parse(given: str | int) -> int:
        # typer hands in defaults too, which are numbers.
        found = number_of(given) if isinstance(given, str) else given
        if not isinstance(found, int) or found < least or (most is not None and found > most):
            limits = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise typer.BadParameter(f"expected a whole number {limits}, not {given!r}")
        return found

    return parse


def counts_of(text: str, option: str) -> list[int]:
    """Numbers of at least 1 with commas between."""
    found = [n for n in map(number_of, text.split(",")) if isinstance(n, int) and n > 0]
    if len(found) < text.count(",") + 1:
        raise Mistake(f"{option} takes positive numbers such as 1,26, not {text!r}")
    return found


# --- what is read ---------------------------------------------------------------------------------

SourceFile = Annotated[
    Path, typer.Argument(metavar="SOURCE", help="Relay text (.rly); - reads stdin.")
]
ExecutableFile = Annotated[Path, typer.Argument(metavar="FILE", help="Executable (.nvm).")]

# --- how it runs ----------------------------------------------------------------------------------

FunctionName = Annotated[str, typer.Option(help="Function to call.")]
Native = Annotated[
    bool, typer.Option("--native/--no-native", help="--no-native: never run machine code of FILE.")
]
Threads = Annotated[
    int, whole_option("The most threads that kernels may use.", least=1, most=2**31 - 1)
]
Device = Annotated[
    str,
    typer.Option(
        help='Backend of those that FILE is for; "cpu": the host alone. Default: the first one here.'
    ),
]
Fallback = Annotated[
    bool, typer.Option("--fallback", help="The host stands in for devices that are not here.")
]
Seed = Annotated[int, whole_option("Of random inputs.", least=0)]
PublicKey = Annotated[
    Path | None,
    typer.Option(
        "--public-key", help="Take FILE only if this ed25519 key signed it; verify all of it."
    ),
]

# --- what is said ---------------------------------------------------------------------------------

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

__all__ = [
    "AsJson", "Device", "ExecutableFile", "Fallback", "FunctionName", "Native", "PublicKey", "Seed", "SourceFile",
    "Threads", "WeightDtype", "counts_of", "whole_option",
]  # fmt: skip
