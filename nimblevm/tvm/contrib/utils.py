"""tvm.contrib.utils: a folder that goes away."""

from __future__ import annotations

import os
import tempfile


class TempDirectory:
    """A folder of its own, deleted with the object."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()

    @property
    def temp_dir(self) -> str:
        """Its path."""
        return self._folder.name

    @property
    def path(self) -> str:
        """Its path."""
        return self._folder.name

    def relpath(self, name: str) -> str:
        """The path of a name in it."""
        return os.path.join(self._folder.name, name)

    def listdir(self) -> list[str]:
        """The names in it."""
        return os.listdir(self._folder.name)

    def remove(self) -> None:
        """Delete it now."""
        self._folder.cleanup()


def tempdir() -> TempDirectory:
    """A new folder."""
    return TempDirectory()


__all__ = ["TempDirectory", "tempdir"]
