"""Object code -> one freestanding ELF shared object: no libraries, no undefined symbols, relative
relocations only.

Tries for another machine's architecture its ld (aarch64-linux-gnu-ld, of cross binutils), then ld, ld.lld, for this
machine's architecture cc, and the ld.lld of the package ziglang, in this order, and keeps to the first that works.
Equal objects and linker give equal bytes: no build id, no times, no paths.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

_OPTIONS = (
    "-shared", "--no-undefined", "--build-id=none", "--hash-style=gnu", "-s", "-Bsymbolic", "-z",
    "now", "-z", "relro",
    "-z", "noexecstack", "-z", "text",
)  # fmt: skip
_EMULATION = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux"}
_SECONDS = 120


def candidates(arch: str) -> tuple[str, ...]:
    """Names of the linkers that can serve an architecture, the first choice first."""
    own = ("cc",) if platform.machine() == arch else ()
    foreign = () if own else (f"{arch.replace('_', '-')}-linux-gnu-ld",)
    return (*foreign, "ld", "ld.lld", *own, "ziglang")


def _commands(arch: str) -> list[tuple[str, list[str]]]:
    """(name, command without files) of every linker that is there."""
    found: list[tuple[str, list[str]]] = []
    direct = ["-m", _EMULATION[arch], "-nostdlib", *_OPTIONS]
    for name in candidates(arch):
        path = shutil.which(name)
        if name == "ziglang":
            if importlib.util.find_spec("ziglang") is not None:
                found.append((name, [sys.executable, "-m", "ziglang", "ld.lld", *direct]))
        elif path is not None and name == "cc":
            found.append((name, [path, "-shared", "-nostdlib", *_through_driver(_OPTIONS[1:])]))
        elif path is not None:
            found.append((name, [path, *direct]))
    return found


def _through_driver(options: Sequence[str]) -> list[str]:
    return ["-Wl," + ",".join(options)]


class LinkError(Exception):
    """No linker did it; says for each one why."""


def _run(command: Sequence[str], objects: Sequence[bytes]) -> bytes:
    """The linked bytes. Raises LinkError with what the command says."""
    with tempfile.TemporaryDirectory(prefix="nimblevm-") as folder:
        place = Path(folder)
        names = []
        for number, content in enumerate(objects):
            name = f"o{number}.o"
            (place / name).write_bytes(content)
            names.append(name)
        try:
            done = subprocess.run(
                [*command, "-o", "out.so", *names],
                cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS,
                check=False,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise LinkError(str(error)) from None
        out = place / "out.so"
        if done.returncode != 0 or not out.exists():
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["it failed"]
            raise LinkError(said[-1])
        return out.read_bytes()


@lru_cache(maxsize=8)
def _version(arch: str, command: tuple[str, ...]) -> str:
    """First line of a linker's --version."""
    try:
        done = subprocess.run(
            [command[0], *(command[1:4] if "ziglang" in command else ()), "--version"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False, text=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.splitlines()[0] if done.stdout else ""


def link(objects: Sequence[bytes], arch: str) -> tuple[bytes, str]:
    """(shared object, name and version of the linker). Raises LinkError."""
    reasons: list[str] = []
    for name, command in _commands(arch):
        try:
            found = _run(command, objects)
        except LinkError as error:
            reasons.append(f"{name}: {error}")
            continue
        undefined = undefined_symbols(found)
        if not undefined:
            return found, f"{name}: {_version(arch, tuple(command))}"
        reasons.append(f"{name}: undefined {', '.join(undefined)}")
    what = "; ".join(reasons) or f"none of {', '.join(candidates(arch))} is there"
    raise LinkError(f"no linker works for {arch} ({what})")


_SYMBOL_TABLES = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM


def undefined_symbols(elf: bytes) -> tuple[str, ...]:
    """Names that a 64-bit little-endian ELF file uses and does not define, sorted."""
    (section_offset,) = struct.unpack_from("<Q", elf, 40)
    entry_size, count = struct.unpack_from("<HH", elf, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", elf, section_offset + i * entry_size)
        for i in range(count)
    ]
    found: set[str] = set()
    for section in sections:
        if section[1] not in _SYMBOL_TABLES:
            continue
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, index, _, _ = struct.unpack_from("<IBBHQQ", elf, at)
            if index == 0 and name != 0:
                end = elf.index(b"\0", strings + name)
                found.add(elf[strings + name : end].decode())
    return tuple(sorted(found))


SUPPORTED = frozenset({"memset", "memcpy", "memmove", "__truncdfhf2"})
# What LLVM may call even where functions are marked no-builtins: it lowers its own memory
# intrinsics to these, and on x86-64 the sign that a double gives a half (the end of asin) to a conversion.
SUPPORT = """
define hidden ptr @memset(ptr returned %d, i32 %c, i64 %n) #0 {
entry:
  %b = trunc i32 %c to i8
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %go = icmp ult i64 %i, %n
  br i1 %go, label %body, label %exit
body:
  %p = getelementptr inbounds i8, ptr %d, i64 %i
  store i8 %b, ptr %p
  %next = add nuw i64 %i, 1
  br label %head
exit:
  ret ptr %d
}
define hidden ptr @memcpy(ptr noalias returned %d, ptr noalias %s, i64 %n) #0 {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %go = icmp ult i64 %i, %n
  br i1 %go, label %body, label %exit
body:
  %from = getelementptr inbounds i8, ptr %s, i64 %i
  %b = load i8, ptr %from
  %p = getelementptr inbounds i8, ptr %d, i64 %i
  store i8 %b, ptr %p
  %next = add nuw i64 %i, 1
  br label %head
exit:
  ret ptr %d
}
define hidden ptr @memmove(ptr returned %d, ptr %s, i64 %n) #0 {
entry:
  %before = icmp ult ptr %d, %s
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %go = icmp ult i64 %i, %n
  br i1 %go, label %body, label %exit
body:
  %next = add nuw i64 %i, 1
  %back = sub i64 %n, %next
  %at = select i1 %before, i64 %i, i64 %back
  %from = getelementptr inbounds i8, ptr %s, i64 %at
  %b = load i8, ptr %from
  %p = getelementptr inbounds i8, ptr %d, i64 %at
  store i8 %b, ptr %p
  br label %head
exit:
  ret ptr %d
}
"""
SUPPORT_HALF = """
; Rounded once: a float that is not the double itself is made odd before it becomes a half.
define hidden half @__truncdfhf2(double %x) #0 {
  %near = fptrunc double %x to float
  %back = fpext float %near to double
  %inexact = fcmp one double %back, %x
  %size = call double @llvm.fabs.f64(double %x)
  %near_size = call double @llvm.fabs.f64(double %back)
  %above = fcmp ogt double %near_size, %size
  %bits = bitcast float %near to i32
  %less = sext i1 %above to i32
  %cut = add i32 %bits, %less
  %odd = or i32 %cut, 1
  %found = select i1 %inexact, i32 %odd, i32 %bits
  %float = bitcast i32 %found to float
  %half = fptrunc float %float to half
  ret half %half
}
declare double @llvm.fabs.f64(double)
"""

__all__ = [
    "SUPPORT",
    "SUPPORTED",
    "SUPPORT_HALF",
    "LinkError",
    "candidates",
    "link",
    "undefined_symbols",
]
