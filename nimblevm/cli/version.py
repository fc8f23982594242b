"""nimblevm version"""

from __future__ import annotations

import json
from typing import Annotated

import typer

import nimblevm as nvm
from nimblevm.cli.console import say


def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show versions, how the C library was built, and what the machine offers.

    \b
    Example:
      nimblevm version --json
    """
    info = nvm.build_info()
    say(json.dumps(info.to_json(), indent=1) if as_json else str(info))


__all__ = ["version"]
