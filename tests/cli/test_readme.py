"""The command lines of README.md work on the program that it shows."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from nimblevm.cli import app
from tests.cli.conftest import Cli

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_commands_of_the_readme(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = re.search(r'nvm\.relay\.parse\("""(.*?)"""', README, re.DOTALL)
    assert program is not None
    Path("model.rly").write_text(program[1])
    np.savez("weights.npz", w=np.ones((3, 4), np.float32))
    save_file({"w": np.ones((3, 4), np.float32)}, "w.safetensors")
    np.save("x.npy", np.ones((2, 4), np.float32))
    lines = re.findall(r"^    (nimblevm .*?)(?:  +#.*)?$", README, re.MULTILINE)
    used = [shlex.split(line)[1:] for line in lines]
    assert {arguments[0] for arguments in used} == set(app.COMMANDS)
    for arguments in used:
        if arguments[0] == "diff":
            shutil.copy(arguments[1], arguments[2])
        if arguments[0] == "profile":
            arguments += ["--limits", "none"]  # measuring takes ten seconds
        if arguments[0] not in ("bench", "tune"):  # one needs an extra, the other measures
            assert cli(*arguments).code == 0, arguments
    assert np.load("out.npz")["result0"].shape == (2, 3)
