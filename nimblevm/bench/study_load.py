"""The load study: how long a file takes to load and its first VM to be made, and what a second process adds.

Each line is measured in processes of their own, with the file in the page cache. Times are the best of several loads in
one process, and the very first one. Memory is what the system counts as the process's own (Private_Clean +
Private_Dirty of /proc/self/smaps_rollup) beyond what it had before it loaded, while another process uses the same file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from rich.console import Console
from rich.table import Table

import nimblevm as nvm
from nimblevm.bench.workloads import bert, lstm
from nimblevm.driver import compile_to_bytes

TARGET, SHARE_TARGET = 20.0, 0.10
"""ms until the first VM; a second process's own memory over the weights."""
BIG = 100_000_000
"""Bytes of a file from which the targets hold."""
WAYS: Mapping[str, Mapping[str, object]] = {
    "mapped": {},
    "copy": {"copy": True},
    'verify="full"': {"verify": "full"},
    "native=False": {"native": False},
}

_COLUMNS = (
    "file", "way", "MB", "load, ms", "VM, ms", "first, ms", "own, MB", "after a run, MB", "own / weights",
)  # fmt: skip

_WORKER = """
import json, os, sys, time
import numpy as np
import nimblevm as nvm

path, options, tokens, repeats, stay = json.loads(sys.argv[1])
arguments = [np.array(a, t) for a, t in tokens]

def own():
    fields = dict(line.split(":") for line in open("/proc/self/smaps_rollup").read().splitlines()[1:])
    return sum(int(fields[k].split()[0]) * 1024 for k in ("Private_Clean", "Private_Dirty"))

def load():
    start = time.perf_counter()
    exe = nvm.load(path, **options)
    loaded = time.perf_counter()
    vm = nvm.VirtualMachine(exe)
    return exe, vm, loaded - start, time.perf_counter() - loaded

nvm.VirtualMachine, nvm.load, own()  # what importing costs is no part of a load
before = own()
exe, vm, first, first_vm = load()
after_load = own()
start = time.perf_counter()
if arguments:
    vm.invoke("main", *arguments)
run = time.perf_counter() - start
after_run = own()
times = []
for _ in range(repeats):
    again, its_vm, one, one_vm = load()
    times.append((one, one_vm))
    its_vm.close()
    again.close()
print(json.dumps({"first": first + first_vm, "load": min(t[0] for t in times) if times else first,
                  "vm": min(t[1] for t in times) if times else first_vm, "run": run,
                  "loaded": after_load - before, "ran": after_run - before}), flush=True)
if stay:
    sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class LoadLine:
    """One file, loaded one way. Bytes; milliseconds: load and vm are the best of several, first is load and VM in a
    fresh process. loaded, ran: bytes of its own that the second process has after loading and after running.
    """

    file: str
    way: str
    size: int
    weights: int
    load: float
    vm: float
    first: float
    loaded: int
    ran: int

    @property
    def share(self) -> float:
        """Of the weights that the second process holds for itself after a load."""
        return self.loaded / self.weights if self.weights else 0.0


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    path: Path
    weights: int
    arguments: list[Any]


def measure(quick: bool, log: Callable[[str], None]) -> list[LoadLine]:
    """All files; quick: small ones alone."""
    lines: list[LoadLine] = []
    with tempfile.TemporaryDirectory() as folder:
        for file in _files(Path(folder), quick, log):
            log(f"loading {file.name}")
            ways = WAYS if file.weights else {"mapped": {}}
            for way, options in ways.items():
                lines.append(_line(file, way, options, 3 if quick else 15))
            file.path.unlink()
    return lines


def _line(file: _File, way: str, options: Mapping[str, object], repeats: int) -> LoadLine:
    size = file.path.stat().st_size
    file.path.read_bytes()  # into the page cache
    with _start(file, options, 0, stay=True) as held:
        try:
            _answer(held.stdout)
            with _start(file, options, repeats, stay=False) as second:
                found = _answer(second.stdout)
        finally:
            held.kill()
    return LoadLine(
        file.name, way, size, file.weights, 1e3 * found["load"], 1e3 * found["vm"], 1e3 * found["first"],
        int(found["loaded"]), int(found["ran"]),
    )  # fmt: skip


def measure_file(
    path: Path, weights: int, arguments: list[Any], options: Mapping[str, object], repeats: int
) -> LoadLine:
    """One file, by options of nvm.load. arguments: of main as [(nested lists, dtype)]; [] runs nothing."""
    return _line(_File(path.stem, path, weights, arguments), "", options, repeats)


def _start(
    file: _File, options: Mapping[str, object], repeats: int, stay: bool
) -> subprocess.Popen[bytes]:
    task = json.dumps([str(file.path), dict(options), file.arguments, repeats, stay])
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER, task], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _answer(stream: IO[bytes] | None) -> dict[str, float]:
    line = stream.readline() if stream is not None else b""
    if not line:
        raise RuntimeError("a process of the load study failed; see above")
    found: dict[str, float] = json.loads(line)
    return found


def _files(folder: Path, quick: bool, log: Callable[[str], None]) -> Iterator[_File]:
    """Files of few and many functions, of small and large weights, made one after the other."""
    sizes: dict[str, int] = {"inputs": 30, "hidden": 32} if quick else {}
    yield _model(folder, "lstm", lstm.text(**sizes), lstm.params(**sizes),
                 [(np.zeros((3, sizes.get("inputs", 300))).tolist(), "float32")])  # fmt: skip
    for count in (100,) if quick else (1_000, 10_000):
        path = folder / "functions.nvm"
        path.write_bytes(compile_to_bytes(nvm.relay.parse(_functions(count)), native=False))
        yield _File(f"{count} functions", path, 0, [])
    config = bert.SMALL if quick else bert.Config()
    log("compiling BERT")
    tokens = [([[1, 2, 3, 4]], "int32"), ([[1.0, 1.0, 1.0, 1.0]], "float32")]
    name = "bert-small" if quick else "bert-base"
    yield _model(folder, name, bert.text(config), bert.params(config), tokens)


def _model(
    folder: Path, name: str, text: str, params: Mapping[str, Any], arguments: list[Any]
) -> _File:
    path = folder / f"{name}.nvm"
    path.write_bytes(compile_to_bytes(nvm.relay.parse(text), params))
    return _File(name, path, sum(p.nbytes for p in params.values()), arguments)


def _functions(count: int) -> str:
    """Functions that call each other in turn and share no kernel's name."""
    lines = [
        f"def @f{i}(%x: Tensor[(?n, {2 + i % 7}), float32]) -> Tensor[(?n, {2 + i % 7}), float32] {{ tanh(%x) }}"
        for i in range(count)
    ]
    return '#[version = "0.0.5"]\n' + "\n".join(lines) + "\ndef @main(%x: float32) { %x }\n"


def show(console: Console, lines: Sequence[LoadLine]) -> None:
    table = Table(title="loading a file")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in ("file", "way") else "right")
    for line in lines:
        share = f"{line.share:.1%}" if line.weights else ""
        cells = (line.size / 1e6, line.load, line.vm, line.first, line.loaded / 1e6, line.ran / 1e6)
        table.add_row(line.file, line.way, *(f"{cell:.2f}" for cell in cells), share)
    console.print(table)
    for line in lines:
        if line.size < BIG or line.way != "mapped":
            continue
        total = line.load + line.vm
        verdict = "met" if total <= TARGET and line.share <= SHARE_TARGET else "missed"
        console.print(
            f"{line.file}: {total:.1f} ms (at most {TARGET:.0f}), {line.share:.1%} of its own (at most "
            f"{SHARE_TARGET:.0%}): {verdict}"
        )


def to_json(lines: Sequence[LoadLine]) -> list[dict[str, Any]]:
    return [{**asdict(line), "share": line.share} for line in lines]


__all__ = ["LoadLine", "measure", "measure_file", "show", "to_json"]
