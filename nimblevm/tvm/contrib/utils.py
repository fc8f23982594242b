"""tvm.contrib.utils: a folder that goes away."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref

from nimblevm.arguments import explain_arguments, explained_methods


@explained_methods
class TempDirectory:
    """A folder of its own, deleted with the object."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp()
        self._delete = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    @property
    def temp_dir(self) -> str:
        """Its path."""
        return self._folder

    @property
    def path(self) -> str:
        """Its path."""
        return self._folder

    def relpath(self, name: str) -> str:
        """The path of a name in it."""
        return os.path.join(self._folder, name)

    def listdir(self) -> list[str]:
        """The names in it."""
        return os.listdir(self._folder)

    def remove(self) -> None:
        """Delete it now."""
        self._delete()


def tempdir() -> TempDirectory:
    """A new folder."""
    return TempDirectory()


__all__ = ["TempDirectory", "tempdir"]

explain_arguments(globals(), __all__)
