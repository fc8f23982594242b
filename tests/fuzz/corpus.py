"""The files that fuzzing starts from, and the corpus that it grew: `python -m tests.fuzz.corpus COMMAND ...`.

seeds DIR     write small programs that between them use every part of the format, and the committed corpus
pack DIR      make the committed corpus of a folder's files
stream        the committed corpus on stdout, as tests/fuzz/mutants.c reads it
coverage DIR  lines by source file, after a run of a build with --coverage in DIR
"""

from __future__ import annotations

import hashlib
import lzma
import re
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgpack

import nimblevm as nvm
from nimblevm.bench.workloads import lstm, treelstm
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.serialize import ALIGNMENT, FIXED_HEADER_SIZE, seal, serialize
from tests.bytecode.forge import forge, join, split

HERE = Path(__file__).parent
ASM = HERE.parent / "asm"
PACKED = HERE / "corpus.bin"
SIZES = {"inputs": 4, "hidden": 8}
COVERED = ("program", "verify", "program_tables", "constant_tables", "kernel_tables", "code_sections", "msgpack", "program_info", "bind", "weights", "open", "safetensors", "call", "kernel_call",
           "args", "args_text", "args_keep", "results", "ops", "interp", "frame", "object", "tensor", "kernel_ir_parse", "kernel_ir_compile",
           "kernel_ir_run", "kernel_ir_ops", "kernel_ir_move")  # fmt: skip
"""Sources that the coverage report is about: of native/src, native/kernels (kernel_ir_*) and native/weights."""
LATE = ("bind", "weights", "open", "safetensors")
"""Those of native/weights."""


def assembled() -> dict[str, bytes]:
    """One file for each of tests/asm/*.nvmasm."""
    return {
        path.stem: serialize(assemble(path.read_text())) for path in sorted(ASM.glob("*.nvmasm"))
    }


def compiled() -> dict[str, bytes]:
    """LSTM, on the host and placed on a device, and TreeLSTM, without machine code; the weights are parameters of main, so
    that the files stay small.
    """
    loop = lstm.text(**SIZES)
    programs = {
        "lstm": (loop, None),
        "placed": (loop, "simulated"),
        "treelstm": (treelstm.text(**SIZES), None),
    }
    return {
        name: nvm.compile(nvm.relay.parse(text), native=False, device=device).to_bytes()
        for name, (text, device) in programs.items()
    }


def with_device_code() -> bytes:
    """Code for GPUs and for VTA, and of a library."""
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(?n, 16), int8], %w: Tensor[(16, 16), int8], %y: Tensor[(?n, 4), float32], %v: Tensor[(3, 4), float32]) {
      (cast(clip(nn.dense(%x, %w, out_dtype="int32"), a_min=-128f, a_max=127f), dtype="int8"), nn.dense(%y, %v), tanh(%y))
    }"""
    mod = nvm.relay.parse(text)
    params = {"w": [[i % 5 - 2] * 16 for i in range(16)]}
    exe = nvm.compile(mod, params, native=False, device="opencl,cuda,vta", external="blas")
    return exe.to_bytes()


def single_functions() -> dict[str, bytes]:
    """Each public function of tests/asm/*.nvmasm in a file of its own, with the functions it calls."""
    files = {}
    for path in sorted(ASM.glob("*.nvmasm")):
        text = re.sub(r"^;.*\n", "", path.read_text(), flags=re.MULTILINE)
        functions = {
            m[1]: m[0]
            for m in re.finditer(r"^\.func @(\w+).*?^\.end\n", text, re.MULTILINE | re.DOTALL)
        }
        prelude = re.sub(r"^\.func.*?^\.end\n", "", text, flags=re.MULTILINE | re.DOTALL)
        for name, body in functions.items():
            if " public " not in body.split("\n", 1)[0]:
                continue
            needed = [name]
            for n in needed:
                needed += [
                    c
                    for c in re.findall(r"@(\w+)", functions[n])
                    if c in functions and c not in needed
                ]
            chosen = "".join(functions[n] for n in functions if n in needed)
            files[f"{path.stem}.{name}"] = serialize(assemble(prelude + chosen))
    return files


OPERATORS = """
nn.softmax(%x) | nn.relu(%x + %y) | exp(%x) * %y - tanh(%x) | sum(%x, axis=[1]) | max(%x, axis=[0], keepdims=True)
mean(%x) | argmax(%x, axis=1) | transpose(%x, axes=[1, 0]) | reshape(%x, newshape=[-1]) | strided_slice(%x, begin=[0, 1], end=[2, 3])
concatenate((%x, %y), axis=1) | nn.dense(%x, %y) | cast(%x, dtype="int32") | cast(cast(%x, dtype="float16"), dtype="float32")
where(greater(%x, %y), %x, %y) | take(%x, cast(argmax(%y, axis=1), dtype="int32"), axis=0) | topk(%x, k=2, axis=1).0
sort(%x, axis=1) | argsort(%x, axis=1) | cumsum(%x, axis=1) | clip(%x, a_min=0f, a_max=1f) | round(%x) | floor_divide(%x, %y)
nn.batch_matmul(expand_dims(%x, axis=0), expand_dims(%y, axis=0)) | sqrt(abs(%x)) | power(%x, %y) | erf(%x) | sigmoid(%x)
nn.layer_norm(%x, %g, %g) | broadcast_to_like(sum(%x, axis=[1], keepdims=True), %x) | isnan(%x) | nn.log_softmax(%x)
cast(left_shift(cast(%x, dtype="int32"), cast(%y, dtype="int32")), dtype="int64") | nn.pad(%x, 0f, pad_width=((1, 1), (0, 2)))
unique(reshape(%x, newshape=[-1])).0 | argwhere(%x) | reverse(%x, axis=0) | repeat(%x, repeats=2, axis=0) | tile(%x, reps=[2, 1])
one_hot(cast(%g, dtype="int32"), 1f, 0f, depth=3, axis=-1, dtype="float32") | gather(%x, cast(%y, dtype="int32"), axis=1)
"""


def operators() -> dict[str, bytes]:
    """Small kernels as loop IR, of both kinds of sizes."""
    files = {}
    calls = [call.strip() for line in OPERATORS.strip().split("\n") for call in line.split("|")]
    for n in ("?n", "3"):
        for number, call in enumerate(calls):
            head = f"%x: Tensor[({n}, 4), float32], %y: Tensor[({n}, 4), float32], %g: Tensor[(4), float32]"
            text = f'#[version = "0.0.5"]\ndef @main({head}) {{ {call} }}'
            try:
                files[f"op{number}.{n[-1]}"] = nvm.compile(
                    nvm.relay.parse(text), native=False
                ).to_bytes()
            except nvm.NimbleError as error:
                print(f"{call}: {error}", file=sys.stderr)
    return files


KEEP_DIGESTS, SIGNED, FILE_COPY, VERIFY_FULL = b"\x0a", b"\x09", b"\x0c", b"\x0e"
"""First bytes of scripts (run_one.h)."""


def _signed(data: bytes, magic: bytes = b"NVM-SIGN", algorithm: int = 1, signer: int = 7) -> bytes:
    """With a signature block; the harness refuses the signer 255."""
    header, sections = split(data)
    unsigned = join(header, sections)
    (size,) = struct.unpack_from("<Q", unsigned, 16)
    body = unsigned[FIXED_HEADER_SIZE:] + bytes(-len(unsigned) % ALIGNMENT)
    block = magic + struct.pack("<II", algorithm, 64) + bytes([signer]) * 96 + bytes(16)
    fixed = seal(body[:size], FIXED_HEADER_SIZE + len(body) + len(block), signed=True)
    return fixed + body + block


def _moved_section(header: dict[str, Any], _sections: list[bytes]) -> None:
    header["sections"][1][1] += ALIGNMENT


def edges() -> dict[str, bytes]:
    """What changes of a small file seldom come to: signatures, digests that differ, files cut or too long, code for devices."""
    base = single_functions()["control.test_Move"]
    signed, flipped, late = _signed(base), bytearray(base), late_bound()
    flipped[-1] ^= 1
    (size,) = struct.unpack_from("<Q", base, 16)
    header = base[FIXED_HEADER_SIZE : FIXED_HEADER_SIZE + size]
    longer = base[FIXED_HEADER_SIZE:] + bytes(-len(base) % ALIGNMENT) + bytes(ALIGNMENT)
    return {
        "digest": bytes(flipped) + KEEP_DIGESTS,
        "full": base + VERIFY_FULL,
        "copy": base + FILE_COPY,
        "short": base[:60],
        "cut": signed[:-64],
        "header alone": seal(b"", FIXED_HEADER_SIZE, signed=True),
        "not signed": base + SIGNED,
        "signed": signed + SIGNED,
        "signed, unasked": signed,
        "other block": _signed(base, magic=b"NVM-SIGM") + SIGNED,
        "other algorithm": _signed(base, algorithm=2) + SIGNED,
        "other signer": _signed(base, signer=255) + SIGNED,
        "moved section": forge(base, _moved_section, relayout=False),
        "too long": seal(header, FIXED_HEADER_SIZE + len(longer)) + longer,
        **{f"late {number}": data for number, data in enumerate(late)},
        **{f"weights {number}": data for number, data in enumerate(weights())},
        **{f"device code {number}": data for number, data in enumerate(device_code())},
        "devices": with_device_code(),
    }


def late_bound() -> list[bytes]:
    """Programs that want weights: as they are, and panels of 16 bits."""
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(?n, 5), float32], %w: Tensor[(20, 5), float32], %b: Tensor[(20), float32]) {
      nn.relu(nn.dense(%x, %w) + %b)
    }"""
    names = {"w": (20, 5), "b": (20,)}
    files = [nvm.compile(nvm.relay.parse(text), late_bound=list(names), native=False).to_bytes()]
    for stored in ("float16", "bfloat16"):
        exe = nvm.compile(nvm.relay.parse(text), late_bound=names, weights=stored, native=False)
        files.append(exe.to_bytes())
    return [
        data + script
        for data in files
        for script in (b"", bytes([0, 0, 0, 245, 3]), bytes([0, 0, 255]))
    ]


def late_weights() -> bytes:
    """A safetensors file of the weights that late_bound's programs want."""
    text = (
        '{"w":{"dtype":"F32","shape":[20,5],"data_offsets":[0,400]},'
        '"b":{"dtype":"F32","shape":[20],"data_offsets":[400,480]}}'
    )
    return (
        struct.pack("<Q", len(text))
        + text.encode()
        + struct.pack("<120f", *(i % 7 / 8 for i in range(120)))
    )


def weights() -> list[bytes]:
    """Files of safetensors: right, with metadata, of wrong sizes, cut."""
    tensor = '"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}'
    more = '"v":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}'
    texts = (
        "{" + tensor + "}",
        '{"__metadata__":{"a":"b\\u00e4\\n"},' + tensor + "," + more + "}",
        '{"w":{"dtype":"F32","shape":[2,4],"data_offsets":[0,24]}}',
        '{"w":{"dtype":"X9","shape":[2,3],"data_offsets":[0,24]}}',
        "{" + tensor + "," + tensor + "}",
        "{}",
        "[]",
    )
    files = [
        struct.pack("<Q", len(t)) + t.encode() + bytes(26 if "BF16" in t else 24) for t in texts
    ]
    return [*files, files[0][:40], struct.pack("<Q", 1 << 60) + b"{}"]


def device_code() -> list[bytes]:
    """Sections of device code by themselves, with several kernels, launches and operations in grids, cut."""
    grid = [[1, 0], [0, 2, 1, 1, 7], [1, 0, 0, 63, 2, 0, 64, 5, 1, 3, 4, 0, 9, 8, 0, 2, 6, 0, 1, 3]]
    launch = ["k0_0", grid, [256, 1, 1], [0, 2, 5], [0, 3, 41], 4096, 1]
    other = ["k0_1", [[0, 1]] * 3, [16, 16, 2], [], [], 0, 0]
    whole = msgpack.packb({"source": b"text", "kernels": {0: [launch, other], 7: [other], 300: []}})
    return [whole, msgpack.packb({"source": b"", "kernels": {}}), whole[:60]]


def packed() -> list[bytes]:
    """The committed corpus."""
    data = lzma.decompress(PACKED.read_bytes()) if PACKED.exists() else b""
    inputs, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        inputs.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return inputs


def pack(inputs: Iterable[bytes]) -> None:
    """Similar files side by side, so that they pack well; the same inputs give the same bytes."""
    ordered = sorted(set(inputs), key=lambda data: (data[96:160], len(data), data))
    data = b"".join(struct.pack("<I", len(i)) + i for i in ordered)
    PACKED.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(ordered)} inputs, {len(data)} bytes, packed {PACKED.stat().st_size}")


def stream(inputs: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(data)) + data for data in inputs)


def covered_lines(build: Path) -> Iterator[tuple[str, int, int]]:
    """(source, lines run, lines) of gcov's report."""
    for name in COVERED:
        folder = (
            "kernels" if name.startswith("kernel_ir_") else "weights" if name in LATE else "src"
        )
        done = subprocess.run(["gcov", "-n", "-o", str(build / folder), f"{folder}/{name}.c"], cwd=build.parent,
                              capture_output=True, text=True, check=True)  # fmt: skip
        match = re.search(
            rf"File '{folder}/{name}\.c'\nLines executed:([\d.]+)% of (\d+)", done.stdout
        )
        if match is None:
            raise RuntimeError(f"gcov has nothing on {name}.c: {done.stdout}{done.stderr}")
        total = int(match[2])
        yield name, round(float(match[1]) / 100 * total), total


def main(command: str, *arguments: str) -> None:
    if command == "seeds":
        made = [
            *single_functions().values(),
            *compiled().values(),
            *operators().values(),
            *packed(),
        ]
        for data in made:
            (Path(arguments[0]) / hashlib.sha1(data).hexdigest()).write_bytes(data)
    elif command == "pack":
        pack([*(path.read_bytes() for path in Path(arguments[0]).iterdir()), *edges().values()])
    elif command == "stream":
        sys.stdout.buffer.write(stream(packed()))
    elif command == "coverage":
        for name, run, total in covered_lines(Path(arguments[0])):
            print(f"{name + '.c':22} {run:5} of {total:5}  {100 * run / total:6.2f} %")
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
