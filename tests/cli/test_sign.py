"""nimblevm keygen, sign, and run --public-key."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.bytecode.test_signature import signed
from tests.cli.conftest import Cli


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file that another key signed, in the current directory of the test."""
    monkeypatch.chdir(tmp_path)
    signed(Path("model.nvm"))
    return "model.nvm"


def test_a_new_key_signs(model: str, cli: Cli) -> None:
    assert cli("keygen", "k.pem").code == 0
    assert stat.S_IMODE(Path("k.pem").stat().st_mode) == 0o600
    done = cli("sign", model, "--key", "k.pem", "-o", "out.nvm")
    assert (done.code, done.err) == (0, "")
    assert cli("run", "out.nvm", "--public-key", "k.pem.pub").code == 0
    done = cli("run", model, "--public-key", "k.pem.pub")
    assert (done.code, "SignatureMismatch" in done.err) == (2, True)
    assert "no private key" in cli("sign", model, "--key", "k.pem.pub").err
    assert "no public key" in cli("run", model, "--public-key", "k.pem").err


@pytest.mark.parametrize("there", ["k.pem", "k.pem.pub"])
def test_a_key_is_not_overwritten(model: str, cli: Cli, there: str) -> None:
    """Neither half: who keeps the private key elsewhere loses what others trust."""
    Path(there).write_text("mine")
    done = cli("keygen", "k.pem")
    assert (done.code, f"{there} exists; a key is not overwritten" in done.err) == (2, True)
    assert [path.name for path in Path().glob("k.pem*")] == [there]
    assert Path(there).read_text() == "mine"
