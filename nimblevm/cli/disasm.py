"""nimblevm disasm"""

from __future__ import annotations

import nimblevm as nvm
from nimblevm.cli.console import ExecutableFile, say


def disasm(file: ExecutableFile) -> None:
    """Print the instructions of an executable, with source places.

    docs/isa.md explains the instructions. The text can be assembled again.

    \b
    Example:
      nimblevm disasm model.nvm | less
    """
    with nvm.load(file, weights=False) as exe:
        say(exe.disassemble())


__all__ = ["disasm"]
