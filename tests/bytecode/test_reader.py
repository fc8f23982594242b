"""native/src/program.c refuses every file that breaks a rule of docs/format.md, and says which."""

from __future__ import annotations

import os
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.executable import Executable, load
from nimblevm.bytecode.serialize import FIXED_HEADER_SIZE, seal, serialize
from nimblevm.errors import (
    Closed,
    FileError,
    FunctionNotFound,
    InvalidExecutable,
    InvalidInput,
    UnsupportedVersion,
)
from tests.bytecode.forge import forge, join, split

TEXT = """
.producer "nimblevm" "0.1.0"
.device "cpu"
.source "model.rly"
.note "parameter %x" 0 3 4
.adt "List" 1 ["Nil", "Cons"]
.type Var[0]
.type Tensor[(2, ?, $0), float32]
.type int64
.fields #"Cons" [t0, Adt["List", t0]]
.const float32 [2, 3] values 1 2 3 4 5 6
.const int64 [] values -9
.func @main public [%x: t1, %n: int t2] -> t1
  .dim "n" 0 []
  .dim "m" -1 [1, 0, 0, 1, 2, 9]
  .checked 0 0 "2"
  .span 0 10 2
  Invoke r1, @aux, [i0, r0]
  .span 0 300 2
  Ret r1
.end
.func @aux [%n: int t2, %x: t1] -> t1
  .dim "n" 1 []
  Ret r0
.end
"""
DATA = serialize(assemble(TEXT))
Change = Callable[[dict[str, Any], list[bytes]], None]


def refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidExecutable, match=re.escape(message)):
        load(data, native=False)


def put(*path: Any) -> Change:
    """Set the value at header[path[0]][path[1]]...; the last item is the value."""
    *keys, last, value = path

    def change(header: dict[str, Any], _sections: list[bytes]) -> None:
        here: Any = header
        for key in keys:
            here = here[key]
        here[last] = value

    return change


HEADER_FAULTS: list[tuple[Change, str]] = [
    (put("devices", []), "expected 1 .. 64 devices"),
    (put("devices", ["null"]), 'the first "cpu"'),
    (put("devices", ["cpu"] * 65), "expected 1 .. 64 devices"),
    (put("devices", 0, "c\0u"), "expected UTF-8 without NUL"),
    (put("devices", ["cpu", ""]), 'devices[1]: expected backend names, commas between, got ""'),
    (put("devices", ["cpu", "a,,b"]), "devices[1]: expected backend names"),
    (put("devices", ["cpu", "a,"]), "devices[1]: expected backend names"),
    (put("devices", 0, 7), "devices[0]: name: expected a str, got an int"),
    (put("types", 0, []), "a type has no words"),
    (put("types", 0, [9]), "type kind 9"),
    (put("types", 0, [4, 0]), "types[0]: refers to type 0, expected an earlier one"),
    (put("types", 1, [0, 12]), "expected a dtype and at most 8 dims"),
    (put("types", 1, [0, 1] + [1] * 9), "expected a dtype and at most 8 dims"),
    (put("types", 1, [0, 10, -70000]), "dim -70000"),
    (put("types", 3, [2, 1, 0]), "there is no adt 1"),
    (put("types", 3, [2, 0]), "adt List takes 1 type arguments, got 0"),
    (put("types", 3, [5, -1]), "type variable"),
    (put("types", 1, [0, 10, -4]), "type 1 uses dim slot 2, the signature has 2"),
    (put("adts", 0, 2, 2), "first constructor: expected 1, got 2"),
    (put("adts", 0, 3, 3), "expected 4 constructors, got 3"),
    (put("adts", 0, 1, 0), "adt List takes 0 type arguments"),
    (put("constructors", 0, ["x", -1, 0, []]), "constructor 0 must be the tuple"),
    (put("constructors", 2, 2, 0), "constructor does not stand where its adt says"),
    (put("constructors", 2, 3, [1]), "field 0: expected a type without dim slots"),
    (put("constructors", 2, 3, [9]), "field 0: expected a type"),
    (put("functions", 0, "name", "aux"), "two functions are named aux"),
    (put("functions", 0, "public", 1), "public: expected a bool, got an int"),
    (put("functions", 0, "params", 0, ["x", 99]), "parameter type: there is no type 99"),
    (put("functions", 0, "kinds", b"\0"), "kinds: expected 2 bytes, got 1"),
    (put("functions", 0, "kinds", b"\1\0"), "a value of type 1 does not fit an int register"),
    (put("functions", 0, "kinds", b"\2\0"), "register kind 2"),
    (put("functions", 0, "result_kind", 1), "a value of type 1 does not fit an int register"),
    (put("functions", 0, "result", 4), "result: there is no type 4"),
    (put("functions", 0, "ints", 0), "1 int and 1 object parameters in 0 and 2 registers"),
    (put("functions", 0, "objs", 2**20 + 1), "objs: expected 0 .. 1048576, got 1048577"),
    (put("functions", 1, "code", [0, 2]), "expected them from"),
    (put("functions", 1, "code", [8, 2**31 - 1]), "code: words 8 + 2147483647"),
    (put("functions", 0, "code", [0, 0]), "words: expected 1 .."),
    (put("functions", 0, "dims", 0, ["n", 2, []]), "binding parameter: expected -1 .. 1, got 2"),
    (put("functions", 0, "dims", 1, ["m", -1, [1, 1, 9]]), "size program refers to dim 1 of 1"),
    (put("functions", 0, "dims", 1, ["m", -1, [9]]), "size program leaves 0 values"),
    (put("functions", 0, "dims", 1, ["m", -1, [0, 1, 2, 9]]), "size program lacks an operand"),
    (put("functions", 0, "dims", 1, ["m", -1, [0, 1]]), "size program does not end"),
    (put("functions", 0, "dims", 1, ["m", -1, [0]]), "size program does not end"),
    (put("functions", 0, "dims", 1, ["m", -1, [77]]), "size program: unknown word 77"),
    (put("functions", 0, "dims", 1, ["m", -1, [0, 1] * 17 + [2] * 16 + [9]]), "a stack deeper than 16"),
    (put("functions", 0, "dims", 1, ["m", -1, [0, 1, *([0, 1, 2] * 99), 9]]), "does not end within 256"),
    (put("functions", 0, "dims", 1, ["m", -1, [0, 1, 9, 9]]), "dim program: words behind its end"),
    (put("functions", 0, "checked", 0, [2, 0, ""]), "parameter: expected 0 .. 1, got 2"),
    (put("functions", 0, "spans", b"\x80"), "spans: an entry is cut"),
    (put("functions", 0, "spans", b"\xff\xff\xff\xff\x1f\0\0\0"), "an entry is cut or too large"),
    (put("functions", 0, "spans", b"\x63\0\0\0"), "spans: word 99"),
    (put("functions", 0, "spans", b"\0\2\0\0"), "source 2 of 1"),
    (put("constants", 0, 0, 12), "dtype: expected 0 .. 11"),
    (put("constants", 0, 1, 1), "device: expected 0 .. 0, got 1"),
    (put("constants", 0, 4, [2, 4]), "size does not fit the dims and dtype"),
    (put("constants", 0, 4, [2**62, 2**62, 0]), "the dims are too large"),
    (put("constants", 0, 4, [1] * 9), "rank 9, expected <= 8"),
    (put("constants", 1, 2, 8), "not 64-aligned inside the section"),
    (put("constants", 1, 2, 128), "not 64-aligned inside the section"),
    (put("constants", []), "constants end at byte 0, their section at 72"),
    (put("notes", []), "notes: entry 0 is missing"),
    (put("notes", 0, ["x", -1, 0, 0]), "note 0 must be empty"),
    (put("notes", 1, 1, 1), "there is no source 1"),
    (put("sources", [1.5]), "expected a str, got a float"),
    (put("sections", 0, 0, 1), "sections 0, 1, 2 are bytecode, constants, kernel IR"),
    (put("sections", 0, 3, b"1"), "digest: expected 32 bytes, got 1"),
    (put("sections", []), "expected at least 3 sections"),
    (put("producer", {"a": None}), "producer: expected a str, got nil"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), HEADER_FAULTS, ids=[m for _, m in HEADER_FAULTS])
def test_header_faults(change: Change, message: str) -> None:
    refused(forge(DATA, change, relayout=False), message)


def kernel(**values: Any) -> Change:
    """Put one C kernel into the table, with some of its values replaced."""
    axes = [[0, 0, 4], [1, 1, 0], [2, 0, 0]]
    row = {
        "name": "none.such", "kind": 1, "operands": [[0, 10, 0, axes], [1, 10, 1, [[0, 0, 4]]]],
        "exprs": [1, 0, 9], "dims": ["n"], "attrs": [], "out_dims": 0, "may_fail": False, "ir": [0, 0], "native": -1,
    }  # fmt: skip
    return put("kernels", [{**row, **values}])


def code(kind: int, data: bytes, target: str = "box", times: int = 1, of: int = 0) -> Change:
    """Add sections of code for a device or runtime, and a kernel of a kind that it is for."""

    def change(header: dict[str, Any], sections: list[bytes]) -> None:
        kernel(kind=of)(header, sections)
        for _ in range(times):
            header["sections"].append([kind, 0, 0, b"", target])
            sections.append(data)

    return change


CODE_FAULTS: list[tuple[Change, str]] = [
    (
        code(4, b"", ""),
        'section 3: expected a target of its own and at most 64 with code for devices and runtimes, got ""',
    ),
    (code(5, b"\x80", times=2), "section 4: expected a target of its own"),
    (
        code(5, b"\x01", of=2),
        "external code byte 0, box[0]: external code: expected a map, got an int",
    ),
    (code(5, b"\x81\x00", of=2), "external code byte"),
    (
        code(5, b"\x81\x00\x01", of=2),
        "external code byte 2, box[0]: blob: expected a bin, got an int",
    ),
    (code(5, b"\x81\x01\xc4\x00", of=2), "there is no kernel of that number for external code"),
    (code(5, b"\x82\x00\xc4\x00\x00\xc4\x00", of=2), "kernels are not in ascending order"),
    (code(5, b"\x81\x00\xc4\x00\x00", of=2), "bytes behind the end of the map"),
    (code(5, b"\x80", of=2), "kernel none.such: there is no external code for it"),
]


@pytest.mark.parametrize(("change", "message"), CODE_FAULTS)
def test_wrong_code_for_devices_is_refused(change: Change, message: str) -> None:
    refused(forge(DATA, change), message)


def test_version_1_has_no_code_for_devices() -> None:
    """Its sections of these kinds had no meaning, its devices one name each."""

    def change(header: dict[str, Any], sections: list[bytes]) -> None:
        header["devices"] = ["cpu", ""]
        header["sections"] += [[5, 0, 0, b"", ""], [4, 0, 0, b"", ""]]
        sections += [b"x", b"y"]

    data = forge(DATA, change)
    refused(data, "devices[1]")
    (size,) = struct.unpack_from("<Q", data, 16)
    old = seal(data[FIXED_HEADER_SIZE : FIXED_HEADER_SIZE + size], len(data), 1)
    with load(old + data[FIXED_HEADER_SIZE:]) as exe:
        assert exe.format_version == 1
        assert exe.devices == (("cpu",), ("",))
        assert exe.to_bytes() == old + data[FIXED_HEADER_SIZE:]


KERNEL_FAULTS: list[tuple[Change, str]] = [
    (kernel(), "kernel none.such: this runtime has no C kernel of that name"),
    (kernel(kind=2), "kernel none.such: there is no external code for it"),
    (kernel(kind=3), "kind: expected 0 .. 2"),
    (kernel(operands=[[0, 10, 0, []]] * 65), "65 operands, expected <= 64"),
    (kernel(operands=[[0, 10, 0, [[0, 0, 1]] * 9]]), "rank 9, expected <= 8"),
    (kernel(operands=[[1, 10, 0, []], [0, 10, 0, []]]), "inputs, outputs, scratch come in this order"),
    (kernel(operands=[[0, 10, 1, []]]), "alias 1 is no input of an output"),
    (kernel(operands=[[1, 10, 1, []]]), "alias 1 is no input of an output"),
    (kernel(operands=[[1, 10, 0, [[0, 1, 1]]]]), "only inputs broadcast"),
    (kernel(operands=[[0, 10, 0, [[1, 0, 1]]]]), "axis 0: dim 1 of 1"),
    (kernel(operands=[[0, 10, 0, [[2, 0, 1]]]]), "no size program starts at word 1"),
    (kernel(operands=[[0, 10, 0, [[2, 0, 3]]]]), "no size program starts at word 3"),
    (kernel(operands=[[0, 10, 0, [[0, 0, -1]]]]), "axis value: expected 0 .."),
    (kernel(exprs=[1, 0]), "size program does not end"),
    (kernel(exprs=[1, 1, 9]), "refers to dim 1 of 1"),
    (kernel(attrs=[0] * 512), "514 dims, attributes, pitches and out-dims"),
    (kernel(out_dims=513), "out_dims: expected 0 .. 512"),
    (kernel(ir=[0, 1]), "a kernel of kind 1 has no body"),
    (kernel(kind=0, ir=[8, 0]), "expected them at 0"),
    (kernel(kind=0, ir=[0, 1]), "ir: bytes 0 + 1"),
    (kernel(native=0), "a kernel of kind 1 has no body"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), KERNEL_FAULTS, ids=[m for _, m in KERNEL_FAULTS])
def test_kernel_faults(change: Change, message: str) -> None:
    refused(forge(DATA, change, relayout=False), message)


def test_keys_come_in_order_and_exactly() -> None:
    header, sections = split(DATA)
    refused(join(dict(reversed(header.items())), sections), 'expected the key "producer"')
    refused(join({**header, "more": 1}, sections), "header: expected 13 keys, got 14")
    refused(join(b"\xc0", sections, relayout=False), "header: expected a map, got nil")
    refused(join(b"", sections, relayout=False), "header: expected a map, the header ends")
    refused(join(msgpack.packb(header) + b"\0", sections, relayout=False), "bytes behind the end")


@pytest.mark.parametrize(
    "huge", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"]
)
def test_counts_allocate_nothing_that_the_file_does_not_hold(huge: bytes) -> None:
    header, sections = split(DATA)
    packed = msgpack.packb(header)
    for at in range(len(packed)):
        with pytest.raises(InvalidExecutable):
            load(join(packed[:at] + huge + packed[at + 1 :], sections, relayout=False))


def test_layout_faults() -> None:
    def grow(_header: dict[str, Any], sections: list[bytes]) -> None:
        sections.append(b"tail")

    refused(forge(DATA, grow), "bytes behind the last section")
    refused(forge(DATA, put("sections", 1, 1, 64 * 5), relayout=False), "section 1: bytes 320")
    refused(forge(DATA, put("sections", 1, 2, 2**62), relayout=False), "constants end at byte 72")
    refused(seal(b"", 97, 1) + b"x", "the file ends inside the padding")
    header = DATA[FIXED_HEADER_SIZE : FIXED_HEADER_SIZE + struct.unpack_from("<Q", DATA, 16)[0]]
    refused(seal(header, len(DATA) + 1) + DATA[96:], "file_size is")
    refused(b"", "expected 96 bytes, the file has 0")
    refused(b"#!/bin/sh" * 20, "the magic number is another")


def test_another_version_is_refused_by_name() -> None:
    header = DATA[FIXED_HEADER_SIZE : FIXED_HEADER_SIZE + struct.unpack_from("<Q", DATA, 16)[0]]
    with pytest.raises(
        UnsupportedVersion, match=r"version 77, which needs nimblevm .* reads versions 1 to 2"
    ):
        load(seal(header, len(DATA), 77) + DATA[FIXED_HEADER_SIZE:])


def test_every_flip_and_every_cut_is_refused() -> None:
    header, _ = split(DATA)
    size = struct.unpack_from("<Q", DATA, 16)[0]
    first = FIXED_HEADER_SIZE + size + -(FIXED_HEADER_SIZE + size) % 64
    _, start, length, _, _ = header["sections"][1]
    constants = range(first + start, first + start + length)
    generator = random.Random(7)
    for at in range(len(DATA)):
        flipped = bytearray(DATA)
        flipped[at] ^= 1 << generator.randrange(8)
        if at in constants:
            load(bytes(flipped)).close()
            with pytest.raises(InvalidExecutable, match="section 1: SHA-256"):
                load(bytes(flipped), verify="full")
        else:
            with pytest.raises(InvalidExecutable):
                load(bytes(flipped))
        with pytest.raises(InvalidExecutable):
            load(DATA[:at])


INSTRUCTION_FAULTS: list[tuple[str, str]] = [
    ("Move r0, r9\nRet r0\n.regs 0 1", "word 0 (Move): object register 9, expected < 1"),
    ("Move r0, r0", "word 0 (Move): control runs past the end"),
    ("Ret i0", "result: expected an object register"),
    ("LoadConst r0, c2\nRet r0", "constant 2, expected < 2"),
    ("InvokeTail @g, []", "g takes 1 arguments, got 0"),
    ("InvokeTail @g, [r0]", "argument: expected an int register"),
    ("InvokeTail @g, [i0]", "g returns an int, this function an object"),
    ("Invoke r0, @g, [i0]\nRet r0", "result: expected an int register"),
    ("AllocClosure r0, @g, []\nRet r0", "g has int registers in its signature"),
    ("AllocClosure r0, @f, [r0, r0]\nRet r0", "2 captures, f has 1 parameters"),
    ('AllocADT r0, #"Cons", [r0]\nRet r0', "constructor Cons has 2 fields, got 1"),
    ("AllocADT r0, #9, []\nRet r0", "constructor 9, expected < 3"),
    ("Box r0, i0, uint64\nRet r0", "dtype uint64 does not fit an int register"),
    ("Unbox i0, r0, float32\nRet r0", "dtype float32 does not fit an int register"),
    ("IntAdd i0, i0, i0, float64\nRet r0", "dtype float64 does not fit"),
    ("ShapeOf r0, r0, int8\nRet r0", "dtype int8, expected int32 or int64"),
    ("PackShape r0, [], bool\nRet r0", "dtype bool, expected int32 or int64"),
    ("AllocTensor r0, _, 0, [1, 1, 1, 1, 1, 1, 1, 1, 1], int8, dev0\nRet r0", "rank 9, expected <= 8"),
    ("AllocTensor r0, _, 0, [], int8, dev1\nRet r0", "device 1, expected < 1"),
    ("AllocStorage r0, 1, 3, dev0\nRet r0", "alignment 3, expected a power of two"),
    ("AllocStorage r0, 1, 8192, dev0\nRet r0", "alignment 8192, expected a power of two"),
    ("DimOf i0, r0, 8\nRet r0", "axis 8, expected < 8"),
    ("CheckDim 1, 1, n9\nRet r0", "note 9, expected < 1"),
    ("CheckDim 1, i9, n0\nRet r0\n.regs 1 1", "int register 9, expected < 1"),
    ("CallKernel k0, [], [], []\nRet r0", "kernel 0, expected < 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "message"), INSTRUCTION_FAULTS, ids=[m for _, m in INSTRUCTION_FAULTS]
)
def test_code_faults(body: str, message: str) -> None:
    head = '.adt "List" 0 ["Nil", "Cons"]\n.type int64\n.fields #"Cons" [t0, t0]\n.const int8 [] values 1\n'
    text = (
        f"{head}.const int8 [1] values 1\n.func @f [%x: t0] -> t0\n{body}\n.end\n"
        ".func @g [%n: int t0] -> int t0\nRet i0\n.end\n"
    )
    refused(serialize(assemble(text)), message)


def words(*code: int) -> bytes:
    """A file with one function of these words."""
    data = serialize(assemble(".func @f [%x: int64] -> int64\nRet r0\n.end"))

    def change(header: dict[str, Any], sections: list[bytes]) -> None:
        sections[0] = struct.pack(f"<{len(code)}I", *code)
        header["functions"][0]["code"][1] = len(code)

    return forge(data, change)


def test_code_that_assembles_from_nothing() -> None:
    refused(words(39, 0), "unknown opcode 39")
    refused(words(0xFFFFFFFF), "unknown opcode 4294967295")
    refused(words(0, 0), "the code ends inside this instruction")
    refused(words(9, 0, 0xFFFFFFFF, 0), "the code ends inside this instruction")
    refused(words(12, 0, 0), "the code ends inside this instruction")
    refused(words(8, 1, 2, 0), "a jump goes into an instruction")
    refused(words(8, 9), "label 9, expected < 2")
    load(words(8, 0)).close()


def test_executable_face(tmp_path: Path) -> None:
    path = tmp_path / "m.nvm"
    Executable.from_bytes(DATA).save(path)
    assert path.read_bytes() == DATA
    for copy in (False, True):
        with load(path, copy=copy, verify="full") as exe:
            assert exe.to_bytes() == DATA
            main = exe.functions["main"]
            assert (
                str(main)
                == "@main(%x: Tensor[(2, ?, ?n), float32], %n: int64) -> Tensor[(2, ?, ?n), float32]"
            )
            assert [(d.name, d.param) for d in main.dims] == [("n", "x"), ("m", None)]
            assert main.checked == ("2",)
            assert list(exe.functions) == ["main", "aux"]
            assert exe.constructor("Cons").fields == ("T0", "List[T0]")
            assert exe.producer == {"nimblevm": "0.1.0"}
            assert [(s.kind, s.size) for s in exe.sections] == [
                ("bytecode", 40),
                ("constants", 72),
                ("kernel IR", 0),
            ]
            assert exe.warning == ""
            with pytest.raises(
                FunctionNotFound, match="@aux is not public; the executable has @main"
            ):
                exe.function("aux")
            with pytest.raises(
                InvalidInput, match=r"no constructor is named Node; the executable has List\.Nil"
            ):
                exe.constructor("Node")
    with pytest.raises(Closed):
        exe.to_bytes()
    exe.close()
    with pytest.raises(FileError, match="No such file"):
        load(tmp_path / "none.nvm")
    with pytest.raises(FileError, match="regular file"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for who writes
    with pytest.raises(FileError, match="regular file"):
        load(tmp_path / "pipe")
    path.write_bytes(DATA[:-1])
    with pytest.raises(InvalidExecutable, match=r"m\.nvm: fixed header: file_size"):
        load(path)
