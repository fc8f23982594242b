"""Arguments and options that several commands have: the type of a parameter is its help too."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer


class WeightDtype(enum.Enum):
    """dtypes in which packed weights are stored."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


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
    int, typer.Option(min=1, max=2**31 - 1, help="The most threads that kernels may use.")
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
Seed = Annotated[int, typer.Option(min=0, help="Of random inputs.")]
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
    "Threads", "WeightDtype",
]  # fmt: skip
