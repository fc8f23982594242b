"""CPUs as targets: LLVM's names of their features, where a CPU says that it has one, and the named levels.

The one source of both sides: llvm.py compiles for a level, and native/gen_tables.py writes generated/nvm_cpu.h, by
which native/devices/cpu_features.c decides at load whether a section fits. Standard library only.

Sources: Intel SDM vol. 2A (CPUID) and vol. 1 chapter 13 (XCR0); System V psABI for x86-64, section 3.1.1 (the levels);
Linux Documentation/arch/arm64/elf_hwcaps.rst.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ARCHS = ("x86_64", "aarch64")
WORDS = (
    "LEAF1_ECX", "LEAF7_EBX", "LEAF7_ECX", "LEAF7_EDX", "LEAF7_1_EAX", "LEAF7_1_EDX", "EXTENDED1_ECX",
    "HWCAP", "HWCAP2",
)  # fmt: skip
"""What is read from the CPU, or on aarch64 from the kernel's auxiliary vector."""
BASE = ""
"""The word of a feature that every CPU of the architecture has."""
SSE, AVX, AVX512 = 0, 0x6, 0xE6
"""Bits of XCR0: the register state that the operating system must save for a feature to be usable."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature by LLVM's name: bit `bit` of `word`, and all bits of `state` in XCR0."""

    arch: str
    name: str
    word: str
    bit: int = 0
    state: int = SSE


def _features(arch: str, word: str, state: int, **bits: int) -> tuple[Feature, ...]:
    return tuple(Feature(arch, n.replace("_", "."), word, b, state) for n, b in bits.items())


FEATURES: tuple[Feature, ...] = (
    *(Feature("x86_64", name, BASE) for name in ("64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2")),
    *_features("x86_64", "LEAF1_ECX", SSE, sse3=0, ssse3=9, cx16=13, sse4_1=19, sse4_2=20, movbe=22, popcnt=23),
    *_features("x86_64", "LEAF1_ECX", AVX, fma=12, avx=28, f16c=29),
    *_features("x86_64", "LEAF7_EBX", SSE, bmi=3, bmi2=8),
    *_features("x86_64", "LEAF7_EBX", AVX, avx2=5),
    *_features("x86_64", "LEAF7_EBX", AVX512, avx512f=16, avx512dq=17, avx512cd=28, avx512bw=30, avx512vl=31),
    *_features("x86_64", "LEAF7_EBX", AVX512, avx512ifma=21),
    *_features("x86_64", "LEAF7_ECX", AVX512, avx512vbmi=1, avx512vbmi2=6, avx512vnni=11, avx512bitalg=12),
    *_features("x86_64", "LEAF7_ECX", AVX512, avx512vpopcntdq=14),
    *_features("x86_64", "LEAF7_EDX", AVX512, avx512vp2intersect=8, avx512fp16=23),
    *_features("x86_64", "LEAF7_1_EAX", AVX, avxvnni=4, avxifma=23),
    *_features("x86_64", "LEAF7_1_EAX", AVX512, avx512bf16=5),
    *_features("x86_64", "LEAF7_1_EDX", AVX, avxvnniint8=4, avxneconvert=5, avxvnniint16=10),
    *_features("x86_64", "EXTENDED1_ECX", SSE, sahf=0, lzcnt=5),
    *_features("aarch64", "HWCAP", SSE, neon=1, lse=8, fullfp16=10, dotprod=20, sve=22),
    Feature("aarch64", "fp-armv8", "HWCAP"),
    *_features("aarch64", "HWCAP2", SSE, i8mm=13, bf16=14),
)  # fmt: skip

_V2 = ("cx16", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


BEYOND = ("avx512vnni",)
"""Features that a section asks for only where its kernels use them: products of bytes (llvm_bytes.py)."""


@dataclass(frozen=True, slots=True)
class Level:
    """A named target: what generated code may use, beyond what every CPU of the architecture has."""

    name: str
    arch: str
    features: tuple[str, ...]


LEVELS: tuple[Level, ...] = (
    Level("x86-64", "x86_64", ()),
    Level("x86-64-v2", "x86_64", _V2),
    Level("x86-64-v3", "x86_64", _V3),
    Level("x86-64-v4", "x86_64", _V4),
    Level("x86-64-v4-vnni", "x86_64", (*_V4, *BEYOND)),
    Level("aarch64", "aarch64", ("neon",)),
)
"""Of one architecture, each has all that the ones before it have."""
BY_NAME = {level.name: level for level in LEVELS}


def section_text(arch: str, features: Iterable[str]) -> str:
    """What a section of the file asks for: "x86_64:+avx2,+fma", features in alphabetical order."""
    listed = ",".join(f"+{f}" for f in sorted(features))
    return f"{arch}:{listed}" if listed else arch


def c_header() -> list[str]:
    """The lines of generated/nvm_cpu.h between its guards."""
    words = {word: f"NVM_CPU_{word}" for word in WORDS}
    lines = ["#include <stdint.h>", ""]
    lines += ["enum nvm_cpu_arch {"]
    lines += [f"  NVM_CPU_{arch.upper()} = {number}," for number, arch in enumerate(ARCHS)]
    lines += [f"  NVM_CPU_OTHER = {len(ARCHS)}", "};", "", "enum nvm_cpu_word {"]
    lines += [f"  {name} = {number}," for number, name in enumerate(words.values())]
    lines += [f"  NVM_CPU_WORDS = {len(words)}", "};", ""]
    lines += [
        "typedef struct nvm_cpu_feature {",
        "  const char *name; /* LLVM's */",
        "  uint8_t arch;",
        "  uint8_t word, bit; /* word NVM_CPU_WORDS: every CPU has it */",
        "  uint8_t state;     /* bits of XCR0 that must be set too */",
        "} nvm_cpu_feature;",
        "",
        "typedef struct nvm_cpu_level {",
        "  const char *name;",
        "  uint8_t arch;",
        "  const char *features; /* as in a section's target, behind the colon */",
        "} nvm_cpu_level;",
        "",
        "#ifdef NVM_CPU_TABLES /* defined by cpu_features.c alone */",
        "static const char *const nvm_cpu_archs[] = {"
        + ", ".join(f'"{a}"' for a in (*ARCHS, "another"))
        + "};",
        "static const nvm_cpu_feature nvm_cpu_features[] = {",
    ]
    for f in FEATURES:
        word = words.get(f.word, "NVM_CPU_WORDS")
        lines.append(f'  {{"{f.name}", NVM_CPU_{f.arch.upper()}, {word}, {f.bit}, {f.state:#x}}},')
    lines += ["};", "static const nvm_cpu_level nvm_cpu_levels[] = {"]
    for v in LEVELS:
        listed = section_text("", v.features).removeprefix(":")
        lines.append(f'  {{"{v.name}", NVM_CPU_{v.arch.upper()}, "{listed}"}},')
    return [*lines, "};", "#endif"]


__all__ = [
    "ARCHS", "BEYOND", "BY_NAME", "FEATURES", "LEVELS", "Feature", "Level", "c_header", "section_text",
]  # fmt: skip
