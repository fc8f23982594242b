"""Linking: freestanding, the support functions, and no linker at all."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from nimblevm._ffi import lib
from nimblevm.kernels import link, llvm

INFO = llvm.TargetInfo("x86_64", ())
CALLER = """
target triple = "x86_64-unknown-linux-gnu"
declare ptr @{name}({params})
define ptr @run(ptr %d, ptr %s, i64 %n) {{
  %r = call ptr @{name}({args})
  ret ptr %r
}}
"""
CALLS = {
    "memcpy": ("ptr, ptr, i64", "ptr %d, ptr %s, i64 %n"),
    "memmove": ("ptr, ptr, i64", "ptr %d, ptr %s, i64 %n"),
    "memset": ("ptr, i32, i64", "ptr %d, i32 300, i64 %n"),
}


def caller(name: str) -> bytes:
    params, args = CALLS[name]
    return llvm.compile_text(CALLER.format(name=name, params=params, args=args), INFO)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_support_functions(name: str, tmp_path: Path) -> None:
    """What LLVM may call is there, and does what the C library's does."""
    needs = caller(name)
    assert link.undefined_symbols(needs) == (name,)
    linked = link.link([needs, llvm.compile_text(llvm.support_text(INFO), INFO)], "x86_64")
    elf, linker = linked
    assert linker
    assert link.undefined_symbols(elf) == ()
    (tmp_path / "out.so").write_bytes(elf)
    run = ctypes.CDLL(str(tmp_path / "out.so")).run
    run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    run.restype = ctypes.c_void_p
    start = bytes(range(100))
    for count in (0, 1, 7, 50):
        for to, of in ((0, 40), (10, 3), (3, 10)):
            memory = (ctypes.c_char * 100).from_buffer_copy(start)
            base = ctypes.addressof(memory)
            if name == "memcpy" and abs(to - of) < count:
                continue
            assert run(base + to, base + of, count) == base + to
            moved = bytes([300 & 255]) * count if name == "memset" else start[of : of + count]
            assert bytes(memory) == start[:to] + moved + start[to + count :]


HALVES = """
target triple = "x86_64-unknown-linux-gnu"
declare half @__truncdfhf2(double)
define void @run(ptr %d, ptr %s, i64 %n) #0 {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %head ]
  %from = getelementptr double, ptr %s, i64 %i
  %x = load double, ptr %from
  %half = call half @__truncdfhf2(double %x)
  %to = getelementptr half, ptr %d, i64 %i
  store half %half, ptr %to
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %head, label %exit
exit:
  ret void
}
attributes #0 = { "target-features"="+avx,+f16c" }
"""


@pytest.mark.skipif(not lib.nvm_cpu_has(b"f16c"), reason="needs a CPU with F16C")
def test_a_double_becomes_a_half_by_one_rounding(tmp_path: Path) -> None:
    info = llvm.TargetInfo("x86_64", ("avx", "f16c"))
    needs = llvm.compile_text(HALVES, info)
    assert link.undefined_symbols(needs) == ("__truncdfhf2",)
    elf, _ = link.link([needs, llvm.compile_text(llvm.support_text(info), info)], "x86_64")
    (tmp_path / "out.so").write_bytes(elf)
    run = ctypes.CDLL(str(tmp_path / "out.so")).run
    rng = np.random.default_rng(0)
    # Halves, what lies in the middle of two, and a little beside both.
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
    halves = halves[abs(halves) < 65504]
    middle = halves + np.spacing(halves.astype(np.float16)).astype(np.float64) / 2
    near = np.concatenate([halves, middle])
    values = np.concatenate(
        [near, near * (1 + 2.0**-40), near * (1 - 2.0**-40), rng.standard_normal(1000) * 1e-7,
         [np.inf, -np.inf, np.nan, 65520.0, 65519.999999, 1e300, -1e300, 1e-300, -1e-300, 0.0, -0.0]]
    )  # fmt: skip
    got = np.empty(len(values), np.float16)
    run(
        ctypes.c_void_p(got.ctypes.data),
        ctypes.c_void_p(values.ctypes.data),
        ctypes.c_size_t(len(values)),
    )
    with np.errstate(over="ignore", under="ignore"):
        expected = values.astype(np.float16)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(got.view(np.uint16)[number], expected.view(np.uint16)[number])
    assert np.isnan(got[~number]).all()


def test_undefined_symbols_are_not_linked() -> None:
    with pytest.raises(link.LinkError, match=r"ld: .*undefined reference to `memset'"):
        link.link([caller("memset")], "x86_64")


def test_no_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(link.LinkError, match=r"none of .*ld.*ziglang is there"):
        link.link([caller("memset")], "x86_64")
    with pytest.raises(
        link.LinkError, match=r"none of aarch64-linux-gnu-ld, ld, ld.lld, ziglang is there"
    ):
        link.link([], "aarch64")


def test_equal_objects_give_equal_bytes() -> None:
    objects = [caller("memcpy"), llvm.compile_text(llvm.support_text(INFO), INFO)]
    assert link.link(objects, "x86_64") == link.link(objects, "x86_64")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="no package ziglang")
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_the_package_ziglang_links_for_all(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    info = llvm.TargetInfo(arch, ())
    code = llvm.compile_text("define i32 @f() { ret i32 7 }", info)
    elf, linker = link.link([code], arch)
    assert linker.startswith("ziglang: LLD ")
    assert elf[18] == {"x86_64": 62, "aarch64": 183}[arch]  # e_machine
