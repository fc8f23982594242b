"""The log: levels, where it goes, what is in it, and what it must not disturb."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import FileError
from nimblevm.vm.logs import LEVELS, log_level

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32]) -> Tensor[(?n, 4), float32] { tanh(%x) }
"""
X = np.ones((2, 4), "float32")


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    yield
    nvm.set_log("off")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "m.nvm"
    nvm.compile(nvm.relay.parse(TEXT), native=False).save(path)
    return path


def lines_of(level: str, file: Path) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    nvm.set_log(level, to=lambda *line: found.append(line))  # type: ignore[arg-type]
    with nvm.load(file) as exe, nvm.VirtualMachine(exe) as vm:
        vm.run(X)
        vm.trim()
        with pytest.raises(nvm.InvalidInput):
            vm.run(np.ones((2, 5), "float32"))
    with pytest.raises(nvm.InvalidExecutable):
        nvm.load(b"nothing")
    nvm.set_log("off")
    return found


def test_levels(file: Path) -> None:
    found = {level: lines_of(level, file) for level in LEVELS}
    assert found["off"] == []
    assert [level for level, _ in found["error"]] == ["error", "error"]
    assert "run of @main failed: " in found["error"][0][1]
    assert "loading a program of 7 bytes failed" in found["error"][1][1]
    assert any(f"loaded {file}: " in text for level, text in found["info"] if level == "info")
    debug = [text for level, text in found["debug"] if level == "debug"]
    assert any(text.startswith("run of @main: ") for text in debug)
    assert any(text.startswith("trim: ") for text in debug)
    counts = [len(found[level]) for level in LEVELS]
    assert counts == sorted(counts)


def test_a_name_writes_no_line_of_its_own(tmp_path: Path) -> None:
    found: list[str] = []
    nvm.set_log("error", to=lambda level, message: found.append(message))
    path = tmp_path / "a\nnimblevm error: b\x7f\tc"
    with pytest.raises(FileError):
        nvm.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(nvm.InvalidExecutable):
        nvm.load(path)
    name = f"{tmp_path}/a nimblevm error: b  c"
    assert found[0] == f"loading {name} failed: No such file or directory"
    assert found[1].startswith(f"loading {name} failed: ")
    assert len(found) == 2


def test_the_error_is_still_there(file: Path) -> None:
    nvm.set_log("error", to=lambda level, message: None)
    with nvm.load(file) as exe, nvm.VirtualMachine(exe) as vm:
        with pytest.raises(nvm.InvalidInput, match="axis 1: expected 4, got 5"):
            vm.run(np.ones((2, 5), "float32"))


def test_to_logging(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="nimblevm"):
        nvm.set_log("debug", to="logging")
        nvm.load(file).close()
    assert [(r.name, r.levelname) for r in caplog.records] == [("nimblevm", "INFO")]
    assert "functions" in caplog.text


def test_a_callback_that_raises_changes_nothing(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(level: str, message: str) -> None:
        raise ValueError("in the callback")

    nvm.set_log("debug", to=fail)
    with nvm.load(file) as exe, nvm.VirtualMachine(exe) as vm:
        np.testing.assert_allclose(vm.run(X).numpy(), np.tanh(X), rtol=1e-6)
    assert "in the callback" in capfd.readouterr().err


def test_threads_log_while_the_sink_changes(file: Path) -> None:
    stop = threading.Event()
    found: list[str] = []

    def work() -> None:
        with nvm.load(file) as exe, nvm.VirtualMachine(exe) as vm:
            while not stop.is_set():
                vm.run(X)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for k in range(50):
        nvm.set_log("debug" if k % 2 else "off", to=lambda level, message: found.append(message))
    stop.set()
    for thread in threads:
        thread.join()
    assert all("@main" in m or "trim" in m or "loaded" in m for m in found)


def test_a_forked_child_logs(file: Path) -> None:
    """A fork while another thread is in its callback must not leave the child with a lock that nobody gives back."""
    code = f"""
import os, threading, time
import nimblevm as nvm
from nimblevm.errors import FileError
inside, go = threading.Event(), threading.Event()
def slow(level, message):
    inside.set(); go.wait(10)
nvm.set_log("info", to=slow)
threading.Thread(target=lambda: nvm.load({str(file)!r})).start()
inside.wait(10)
child = os.fork()
if child == 0:
    nvm.set_log("info")
    nvm.load({str(file)!r})
    os._exit(0)
_, status = os.waitpid(child, 0)
go.set()
print("status", status)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert "status 0" in done.stdout, done.stderr
    assert "nimblevm info: loaded" in done.stderr


@pytest.mark.parametrize(
    ("value", "level", "said"),
    [("", "off", ""), ("info", "info", "nimblevm info: loaded"), ("off", "off", ""), ("loud", "warning", "NVM_LOG is none of")],
)  # fmt: skip
def test_the_environment(value: str, level: str, said: str, file: Path) -> None:
    code = f"import nimblevm as nvm; nvm.load({str(file)!r}); from nimblevm.vm.logs import log_level; print(log_level())"
    environment = {**os.environ, "NVM_LOG": value}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)  # fmt: skip
    assert done.stdout.strip() == level
    assert said in done.stderr
    assert (done.stderr == "") == (said == "")


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="level must be one of off, error"):
        nvm.set_log("loud")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="to must be"):
        nvm.set_log("info", to="file")  # type: ignore[arg-type]
    assert log_level() == "off"
