"""What holds for all commands: help, versions, missing extras, and one paragraph and exit code 2 for each mistake."""

from __future__ import annotations

import ast
import io
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.cli import app
from tests.cli.conftest import Cli

MISTAKES = {
    "no command": (("frobnicate",), "No such command 'frobnicate'. `nimblevm --help` explains."),
    "no option": (("disasm", "--fast", "model.nvm"), "No such option: --fast"),
    "missing argument": (("compile",), "Missing argument 'SOURCE'. `nimblevm compile --help` explains."),
    "disasm: no file": (("disasm", "none.nvm"), "none.nvm: No such file or directory"),
    "inspect: no executable": (("inspect", "x.npy"), "no nimblevm executable"),
    "inspect: a folder": (("inspect", "."), "error: "),
    "compile: no source": (("compile", "none.rly"), "none.rly: No such file or directory"),
    "compile: no text": (("compile", "weights.npz"), "weights.npz is no text; expected a Relay program"),
    "compile: an executable": (("compile", "model.nvm"), "model.nvm would be overwritten"),
    "compile: no Relay": (("compile", "list.json"), "list.json:1:1"),
    "compile: target": (("compile", "model.rly", "--target", "z80"), "unknown target 'z80'"),
    "compile: one array": (("compile", "model.rly", "--params", "x.npy"), "expected an .npz file of weights by name"),
    "compile: no archive": (("compile", "model.rly", "--params", "model.rly"), "expected an .npz file"),
    "compile: no parameter": (("compile", "model.rly", "--params", "one.npz"), "params names a, but @main has"),
    "compile: no folder": (("compile", "model.rly", "--target", "none", "-o", "no/m.nvm"), "no/m.nvm"),
    "compile: to a folder": (("compile", "model.rly", "--target", "none", "-o", "."), ".: Is a directory"),
    "compile: to a full device": (("compile", "model.rly", "--target", "none", "-o", "/dev/full"), "/dev/full: No space left"),
    "compile: damaged archive": (("compile", "model.rly", "--params", "damaged.npz"), "damaged.npz:a: not readable"),
    "check: no function": (("check", "model.rly", "--function", "f"), "no function @f; there are @main"),
    "check: no function of a file": (("check", "model.nvm", "--function", "f"), "no function @f; there are @main"),
    "check: no kind": (("check", "model.rly", "--only", "odd"), "'odd' is not one of"),
    "check: values of a file": (("check", "model.nvm", "--values"), "--values needs the program's text"),
    "check: no text": (("check", "x.npy"), "x.npy is no text"),
    "run: missing input": (("run", "model.nvm", "x=x.npy"), "missing argument for %y, %k"),
    "run: wrong dim": (("run", "model.nvm", "x=bad.npy", "y=y.npy", "k=1"), "axis 1: expected 4, got 5"),
    "run: no such input": (("run", "model.nvm", "x=none.npy"), "none.npy: No such file"),
    "run: no value": (("run", "model.nvm", "x"), "%x=x: neither a file, a number nor JSON; write NAME=FILE.npy"),
    "run: too many values": (("run", "model.nvm", "k=1", "x=x.npy", "y=y.npy", "5"), "5: @main has no parameter left for it"),
    "run: a directory as input": (("run", "model.nvm", "x=."), "%x=.: it is a directory"),
    "run: no sizes": (("run", "model.nvm", "x=random:2by3"), "%x=random:2by3: expected sizes, such as random:2x3"),
    "run: objects": (("run", "model.nvm", "x=objects.npy"), "objects.npy: expected a .npy file (it holds Python objects, not numbers)"),
    "run: text": (("run", "model.rly"), "`nimblevm compile SOURCE.rly` makes one of Relay text"),
    "misspelt command": (("compil",), "Did you mean 'compile'? `nimblevm --help` explains."),
    "compile: stdin without a name": (("compile", "-"), "a program from stdin has no name: name the executable with -o"),
    "run: no number": (("run", "model.nvm", "k=abc"), "neither a file, a number nor JSON"),
    "run: number for a tensor": (("run", "model.nvm", "x=1", "y=y.npy", "k=1"), "%x"),
    "run: no parameter": (("run", "model.nvm", "z=1"), "@main has no parameter %z; it has %x: Tensor[(?n, 4), float32]"),
    "run: twice": (("run", "model.nvm", "k=1", "%k=2"), "parameter %k is given twice"),
    "run: no .npz": (("run", "model.nvm", "none.npz"), "none.npz: No such file"),
    "run: extra array": (("run", "model.nvm", "extra.npz"), "extra.npz: @main has no parameter %zz"),
    "run: which array": (("run", "model.nvm", "k=xy.npz"), "xy.npz has 2 arrays; it has x, y: write xy.npz:x"),
    "run: no array": (("run", "model.nvm", "k=xy.npz:z"), "xy.npz has no array 'z'; it has x, y"),
    "run: broken JSON": (("run", "model.nvm", "broken.json"), "broken.json: no JSON: line 2, column 3: expected a value"),
    "run: broken literal": (("run", "model.nvm", "x=[[1, 2"), "no JSON: line 1, column 7: expected , or ]"),
    "run: no object": (("run", "model.nvm", "list.json"), "expected an object of parameters by name"),
    "run: no text": (("run", "model.nvm", "x=model.json"), "model.json: No such file"),
    "run: ragged": (("run", "model.nvm", "x=[[1, 2, 3, 4], [1]]"), "ragged array: next to an array of 4 stands one of 1"),
    "run: digits in groups": (("run", "model.nvm", "k=1_0"), "%k=1_0: neither a file, a number nor JSON"),
    "run: digits of another script": (("run", "model.nvm", "k=\u0663"), "neither a file, a number nor JSON"),
    "run: no function": (("run", "model.nvm", "--function", "f"), "the executable has @main"),
    "run: no threads": (("run", "model.nvm", "--threads", "0"), "'--threads'"),
    "run: a seed in groups": (("run", "model.nvm", "--seed", "1_0"), "'--seed': expected a whole number of at least 0, not '1_0'"),
    "run: a seed of another script": (("run", "model.nvm", "--seed", "\u0663"), "'--seed': expected a whole number"),
    "run: threads in groups": (("run", "model.nvm", "--threads", "1_0"), "expected a whole number from 1 to 2147483647, not '1_0'"),
    "run: a fraction of a thread": (("run", "model.nvm", "--threads", "1.5"), "expected a whole number from 1 to"),
    "profile: runs in groups": (("profile", "model.nvm", "--runs", "1_0"), "'--runs': expected a whole number of at least 1"),
    "run: no device": (("run", "model.nvm", "xy.npz", "k=1", "--device", "abacus"), "abacus"),
    "run: output": (("run", "model.nvm", "-o", "out.txt"), "must end in .npz, .npy or .json"),
    "run: no folder": (("run", "model.nvm", "xy.npz", "k=1", "-o", "no/out.json"), "no/out.json: No such file"),
    "run: random of unknown size": (("run", "model.nvm", "x=random"), "needs a shape: random:2x3"),
    "run: random beyond memory": (("run", "model.nvm", "x=random:9999999999999x4"), "%x=random:9999999999999x4: "),
    "run: random of a long size": (("run", "model.nvm", "x=random:" + "9" * 5000), "%x=random: the shape is too long"),
    "run: a long number": (("run", "model.nvm", "x=" + "9" * 5000), "%x: the number is too large"),
    "run: random beyond ranks": (("run", "model.nvm", "x=random:99999999999999999999x4"), "%x=random:99999999999999999999x4: "),
    "run: damaged input": (("run", "model.nvm", "x=damaged.npz:a"), "damaged.npz:a: not readable"),
    "run: no .npy": (("run", "model.nvm", "x=text.npy"), "text.npy: expected a .npy file, which numpy.save"),
    "run: random of a negative size": (("run", "model.nvm", "x=random:-1x3"), "%x=random:-1x3: expected sizes"),
    "run: nothing behind =": (("run", "model.nvm", "x="), "%x=: there is no value behind the =; write NAME=FILE.npy"),
    "run: an empty argument": (("run", "model.nvm", ""), "an argument is empty; write NAME=FILE.npy"),
    "run: too many threads": (("run", "model.nvm", "--threads", str(2**31)), "Invalid value for '--threads'"),
    "run: number of a device": (("run", "model.nvm", "xy.npz", "k=1", "--device", "cuda:2147483648"), "must be < 2**31"),
    "run: long number of a device": (("run", "model.nvm", "xy.npz", "k=1", "--device", "cpu:" + "9" * 5000), "must be < 2**31"),
    "run: function that is no text": (("run", "model.nvm", "--function", "q\udcff"), "the executable has @main"),
    "run: input that is no text": (("run", "model.nvm", "q\udcff=1"), "@main has no parameter %q?"),
    "run: file that is no text": (("run", "q\udcff.nvm"), ".nvm: No such file or directory"),
    "profile: too many events": (("profile", "model.nvm", "--max-events", str(2**64)), "Invalid value for '--max-events'"),
    "run: random tree": (("run", "trees.nvm", "t=random"), "only tensors can be random, not Tree"),
    "run: function as input": (("run", "trees.nvm", "--function", "apply", 'f="x"'), "fn (int32) -> int32 can't be written down"),
    "run: ADT to .npz": (("run", "trees.nvm", "t=Leaf", "x=[]", "-o", "o.npz"), "holds tensors only, but the result has other values"),
    "run: closure to .json": (("run", "trees.nvm", "--function", "closure", "x=1", "-o", "o.json"), "holds a function or a reference"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_one_paragraph(name: str, folder: Path, cli: Cli) -> None:
    arguments, expected = MISTAKES[name]
    (folder / "text.npy").write_text("no array")
    np.save(folder / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(folder / "damaged.npz", a=np.zeros(9))
    with open(folder / "damaged.npz", "r+b") as file:
        file.seek(200)  # in the elements: another sum
        file.write(b"\1")
    done = cli(*arguments)
    assert done.code == 2
    assert expected in done.err
    assert done.err.startswith("error: ")
    assert done.err.strip("\n").count("\n\n") == 0
    assert "Traceback" not in done.err


WRITES = {
    "run to .npy": (("run", "model.nvm", "x=random:99x4", "y=random:99x3", "k=1", "-o"), "o.npy"),
    "run to .npz": (("run", "model.nvm", "x=random:99x4", "y=random:99x3", "k=1", "-o"), "o.npz"),
    "run to .json": (("run", "model.nvm", "x=random:99x4", "y=random:99x3", "k=1", "-o"), "o.json"),
    "compile": (("compile", "model.rly", "--target", "none", "-o"), "o.nvm"),
    "tune": (("tune", "model.rly", "--rows", "1", "-o"), "o.json"),
    "profile to .html": (("profile", "model.nvm", "xy.npz", "k=1", "--limits", "none", "--html"), "o.html"),
    "profile to .json": (("profile", "model.nvm", "xy.npz", "k=1", "--limits", "none", "--trace"), "o.json"),
    "keygen": (("keygen",), "o.pem"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_a_missing_folder_is_noticed_before_the_work(
    name: str, folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the work would need is not there either, and it's the folder that the message is about."""
    arguments, output = WRITES[name]
    for work in ("compile", "tune", "load"):
        monkeypatch.setattr(nvm, work, None)
    done = cli(*arguments, f"none/{output}")
    assert (done.code, done.out) == (2, "")
    assert f"error: none/{output}: No such file or directory" in done.err


@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_leaves_no_half_files(name: str, folder: Path, cli: Cli) -> None:
    """Files of a limited size are refused as a full disk refuses them: in the midst of writing."""
    arguments, output = WRITES[name]
    before = sorted(os.listdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        done = cli(*arguments, output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.code == 2
    assert f"error: {output}: " in done.err
    assert sorted(os.listdir()) == before


def test_names_that_are_no_text(folder: Path, cli: Cli) -> None:
    """Files of any bytes are read and written."""
    shutil.copy("model.nvm", "m\udcff.nvm")
    shutil.copy("x.npy", "x\udcff.npy")
    assert (
        cli("run", "m\udcff.nvm", "x=x\udcff.npy", "y=y.npy", "k=1", "-o", "o\udcff.json").code == 0
    )
    written = ("--html", "o\udcff.html", "--trace", "t\udcff.json")
    assert cli("profile", "m\udcff.nvm", "xy.npz", "k=1", "--limits", "none", *written).code == 0
    assert all(map(os.path.isfile, ("o\udcff.json", "o\udcff.html", "t\udcff.json")))


def test_type_errors_show_the_places(folder: Path, cli: Cli) -> None:
    Path("wrong.rly").write_text(
        '#[version = "0.0.5"]\ndef @main(%x: Tensor[(3), float32], %y: Tensor[(4), float32]) {\n  %x + %y\n}\n'
    )
    for command in ("compile", "check"):
        done = cli(command, "wrong.rly")
        assert done.code == 2
        assert "wrong.rly:3:3" in done.err
        assert "RelayTypeError" in done.err


def test_faults_of_nimblevm_itself_are_not_hidden(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    def broken(path: object, **options: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(nvm, "load", broken)
    with pytest.raises(ZeroDivisionError):
        cli("disasm", "model.nvm")


def test_interrupt(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(nvm, "load", interrupted)
    done = cli("disasm", "model.nvm")
    assert done.code == 130
    assert done.err == "error: interrupted\n"


def test_a_reader_that_stops_is_no_error(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    command = f"{sys.executable} -m nimblevm.cli disasm model.nvm | true"
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, env={"PYTHONPATH": root, "PATH": "/usr/bin:/bin"}
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_stdout_is_an_error(folder: Path) -> None:
    """Also of the package as a program; nothing is done whose result would be lost."""
    command = f"{sys.executable} -m nimblevm compile model.rly --target none -o lost.nvm >&-"
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, env={"PYTHONPATH": root, "PATH": "/usr/bin:/bin"}
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("error: stdout is closed")) == (2, 1)
    assert not Path("lost.nvm").exists()


def test_version(cli: Cli) -> None:
    done = cli("--version")
    assert (done.code, done.out) == (0, f"nimblevm {nvm.__version__}\n")


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_names_the_commands(arguments: tuple[str, ...], cli: Cli) -> None:
    done = cli(*arguments)
    assert done.code == 0
    for name in (*app.COMMANDS, "--version", "A first session:", "exit code 2"):
        assert name in done.out


@pytest.mark.parametrize("name", app.COMMANDS)
def test_help_of_each_command_has_an_example(name: str, cli: Cli) -> None:
    done = cli(name, "--help")
    assert done.code == 0
    assert "Example" in done.out
    assert f"  nimblevm {name} " in done.out


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_missing_extra_is_named(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from nimblevm.cli import main\nsys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == f"the command line needs {missing}: pip install 'nimblevm[cli]'\n"


def test_the_two_extras_are_enough() -> None:
    """click is imported by some versions of typer and part of others, so it can't be relied on."""
    for file in Path(app.__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text())))
        roots = {a.name.partition(".")[0] for n in nodes if isinstance(n, ast.Import) for a in n.names}  # fmt: skip
        roots |= {(n.module or "").partition(".")[0] for n in nodes if isinstance(n, ast.ImportFrom)}  # fmt: skip
        assert "click" not in roots


def test_running_a_file_loads_no_compiler() -> None:
    code = (
        "import sys\nimport nimblevm.cli.app\n"
        "bad = [m for m in sys.modules if m.startswith(('nimblevm.relay', 'nimblevm.compiler', 'nimblevm.kernels', 'llvmlite'))]\n"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def stdin_of(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")


def test_stdin_is_a_dash(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (folder / "model.rly").read_bytes()
    monkeypatch.setattr(sys, "stdin", stdin_of(text))
    assert cli("compile", "-", "--target", "none", "-o", "piped.nvm").code == 0
    monkeypatch.setattr(sys, "stdin", stdin_of(text))
    assert "@main" in cli("check", "-").out
    monkeypatch.setattr(sys, "stdin", stdin_of((folder / "piped.nvm").read_bytes()))
    done = cli("run", "-", "x.npy", "y=y.npy", "[[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]", "2")
    assert (done.code, "result 0: Tensor" in done.out) == (0, True)


def test_an_executable_goes_into_a_pipe(folder: Path) -> None:
    """/dev/stdout of a pipe has no folder that a file could be made in."""
    command = [
        sys.executable,
        "-m",
        "nimblevm.cli",
        "compile",
        str(folder / "model.rly"),
        "--target",
        "none",
        "-o",
        "/dev/stdout",
    ]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    with nvm.load(done.stdout) as exe:
        assert list(exe.functions)[:1] == ["main"]
