"""docs/format.md is enough to write a reader from, says the right numbers, and files are what they should be."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import dtypes
from nimblevm._ffi import ffi, lib
from nimblevm.bytecode import isa
from nimblevm.bytecode.serialize import FIXED_HEADER_SIZE, FORMAT_VERSION, NATIVE, seal, serialize
from nimblevm.errors import FileError, UnsupportedVersion
from nimblevm.kernels import loop_ir, loop_ir_form
from tests.bytecode import plain_reader
from tests.bytecode.models import models


@cache
def compiled(name: str, late: bool) -> nvm.Executable:
    model = models()[name]
    params = {} if late else dict(model.params)
    return nvm.compile(
        model.module(), params, native=False, late_bound=list(model.params) if late else False
    )


# --- the document ---------------------------------------------------------------------------------


def test_the_numbers_of_the_document() -> None:
    assert {row.number: row.name for row in dtypes.DTYPES} == plain_reader.DTYPES
    for names, found in (
        (loop_ir_form.UNARY_OPS, plain_reader.UNARY),
        (loop_ir.BINARY, plain_reader.BINARY),
        (loop_ir.COMPARE, plain_reader.COMPARE),
        (loop_ir.ACCUMULATE, plain_reader.ACCUMULATE),
        (loop_ir_form.NODE_KINDS, plain_reader.EXPRESSIONS),
        (loop_ir_form.STATEMENT_KINDS, plain_reader.STATEMENTS),
    ):
        assert dict(enumerate(names)) == found
    assert {row.number for row in isa.ISA} == set(plain_reader.INSTRUCTIONS)
    assert f"format version {FORMAT_VERSION}\n" in (plain_reader.DOCS / "format.md").read_text()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", models())
def test_a_reader_of_the_document_reads_every_file(name: str, late: bool) -> None:
    exe = compiled(name, late)
    file = plain_reader.read(exe.to_bytes())
    record = exe.program_record()
    header = file.header
    assert [f["name"] for f in header["functions"]] == [f.name for f in record.functions]
    assert header["types"] == [list(t) for t in record.types]
    assert [w[0] for w in header["weights"]] == [w.name for w in record.weights]
    for function in record.functions:
        words = list(function.code)
        for instruction in file.code[function.name]:
            assert isa.BY_NUMBER[words[instruction.place]].mnemonic == instruction.name
        places = [(s.pc, s.source, s.line, s.column) for s in function.spans]
        assert file.spans[function.name] == places
    for constant, found in zip(record.constants, file.constants, strict=True):
        assert found is None if constant.weight >= 0 else found == bytes(constant.data)
    assert sum(body is not None for body in file.bodies) == sum(k.kind == 0 for k in record.kernels)


@pytest.mark.parametrize("name", ["lstm", "resnet"])
def test_late_bound_constants_as_the_document_says(name: str) -> None:
    params = models()[name].params
    exe = compiled(name, late=True)
    file = plain_reader.read(exe.to_bytes())
    bound = exe.bind(params)
    shown = 0
    out = ffi.new("int32_t *"), ffi.new("uint32_t *"), ffi.new("const int64_t **")
    for index, row in enumerate(file.header["constants"]):
        weight, size = row[5], row[3]
        if weight < 0 or size > 200_000:
            continue
        flat = params[file.header["weights"][weight][0]].reshape(-1).tolist()
        expected = np.array(plain_reader.laid_out(file, index, flat), np.float32)
        data = lib.nvm_program_constant(bound.handle, index, out[0], out[1], out[2])
        assert bytes(ffi.buffer(data, size)) == expected.tobytes()
        shown += 1
    assert shown > 3


# --- versions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("signed", [False, True])
def test_a_newer_file_names_what_it_needs(signed: bool, tmp_path: Path) -> None:
    """Whatever stands behind the first 16 bytes, even where a later version has no such digests."""
    path = tmp_path / "new.nvm"
    start = bytearray(seal(b"", 96, 7, signed))
    start[13:16] = bytes((1, 12, 3))
    path.write_bytes(bytes(start[:16]) + os.urandom(300))
    with pytest.raises(UnsupportedVersion) as caught:
        nvm.load(path)
    assert str(caught.value) == (
        f"{path}: fixed header: the file has format version 7, which needs nimblevm 1.12.3 or newer; "
        f"this runtime (nimblevm {nvm.__version__}) reads versions 1 to 2"
    )
    with pytest.raises(UnsupportedVersion, match="format version 0, which was never released"):
        nvm.load(seal(b"", 96, 0) + bytes(300))


# --- the same program, the same bytes -------------------------------------------------------------

SCRIPT = """
import sys
import nimblevm as nvm
from nimblevm.driver import compile_to_bytes
from tests.bytecode.models import models
model = models()[sys.argv[1]]
data = compile_to_bytes(model.module(), model.params, native=sys.argv[2] == "native")
open(sys.argv[3], "wb").write(data)
"""


def build(name: str, path: Path, seed: int, folder: Path, cpus: int, *, native: bool) -> bytes:
    """A file made in a process of its own: hash seed, working directory and the CPUs that compiling may use."""
    folder.mkdir(exist_ok=True)
    root = Path(__file__).parent.parent.parent
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(root)}
    allowed = sorted(os.sched_getaffinity(0))[:cpus]
    subprocess.run(
        [sys.executable, "-c", SCRIPT, name, "native" if native else "none", str(path)],
        check=True, cwd=folder, env=environment, preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )  # fmt: skip
    return path.read_bytes()


def without_native(data: bytes) -> bytes:
    """The file as it were without machine code."""
    record = nvm.load(data).program_record()
    producer = {"nimblevm": record.producer["nimblevm"]}
    kernels = tuple(replace(k, native=-1) for k in record.kernels)
    sections = tuple(s for s in record.sections if s.kind != NATIVE)
    return serialize(replace(record, producer=producer, kernels=kernels, sections=sections))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "treelstm", "gpt2"])
def test_equal_bytes(name: str, tmp_path: Path) -> None:
    """Two hash seeds, two folders, one CPU and several; with machine code all but that is equal to a file without."""
    first = build(name, tmp_path / "a.nvm", 1, tmp_path / "one", 1, native=True)
    second = build(name, tmp_path / "b.nvm", 2, tmp_path / "two", 64, native=True)
    plain = build(name, tmp_path / "c.nvm", 3, tmp_path / "two", 64, native=False)
    assert first == second
    assert without_native(first) == plain


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "childsum"])
def test_equal_bytes_without_machine_code(name: str, tmp_path: Path) -> None:
    first = build(name, tmp_path / "a.nvm", 1, tmp_path / "one", 1, native=False)
    assert first == build(name, tmp_path / "b.nvm", 2, tmp_path / "two", 64, native=False)
    assert first == compiled(name, late=False).to_bytes()


def test_records_outlive_their_executable() -> None:
    data = compiled("lstm", late=False).to_bytes()
    for _ in range(5):
        assert serialize(nvm.load(data).program_record()) == data


def test_saving_and_records_keep_every_byte(tmp_path: Path) -> None:
    for name in models():
        for late in (False, True):
            exe = compiled(name, late)
            data = exe.to_bytes()
            assert serialize(exe.program_record()) == data
            exe.save(tmp_path / "model.nvm")
            assert (tmp_path / "model.nvm").read_bytes() == data
            assert data[FIXED_HEADER_SIZE - 96 : 8] == b"\x89NVM\r\n\x1a\n"


def test_saving_follows_links_and_replaces_files_alone(tmp_path: Path) -> None:
    exe = compiled("lstm", late=False)
    data = exe.to_bytes()
    link, loop, long, pipe = (tmp_path / n for n in ("link", "loop", "n" * 255, "pipe"))
    link.symlink_to("real")
    loop.symlink_to("loop")
    for path in (link, loop, long):
        exe.save(path)
        assert path.read_bytes() == data
    assert link.is_symlink()
    assert (tmp_path / "real").read_bytes() == data
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    exe.save(pipe)
    reader.join()
    assert found == [data]
    assert pipe.is_fifo()
    with pytest.raises(FileError, match="directory") as caught:
        exe.save(tmp_path)
    assert caught.value.filename == str(tmp_path)
    with pytest.raises(FileError, match="NUL"):
        exe.save("a\0b")
    assert not list(tmp_path.glob(".nvm*"))


def test_sources_may_have_any_name() -> None:
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(3), float32]) { exp(%x) }'
    mod = nvm.relay.parse(text, source_name=os.fsdecode(b"bad\xff.rly"))
    assert nvm.compile(mod, native=False).program_record().sources == ("bad?.rly",)
