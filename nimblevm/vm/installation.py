"""What this installation is: versions, how the C library was built, and what the machine offers."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

import nimblevm
from nimblevm._ffi import ffi, lib
from nimblevm.devices import available

_FEATURES = (
    "sse4.2", "avx", "avx2", "fma", "f16c", "avxvnni", "avx512f", "avx512vnni", "avx512bf16", "avx512fp16",
    "neon", "fullfp16", "dotprod", "i8mm", "bf16", "sve",
)  # fmt: skip
"""Those of LLVM's names that decide how fast kernels can be."""


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """version          of the package; its C library has the same
    format_version   of files that are written
    compiler, flags  of the C library
    dispatch         how its interpreter jumps: "computed goto" or "switch"
    variant          "release", or "test"
    architecture     of the machine
    cpu_level        the best target that this CPU runs: "x86-64-v3"
    cpu_features     of the features that matter most, by LLVM's names, those that are there
    cpus             how many this process may use
    devices          backends of this build
    llvmlite         its version, with which compile() makes machine code; "" if it is missing
    python           version
    """

    version: str
    format_version: int
    compiler: str
    flags: str
    dispatch: str
    variant: str
    architecture: str
    cpu_level: str
    cpu_features: tuple[str, ...]
    cpus: int
    devices: tuple[str, ...]
    llvmlite: str
    python: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        features = ", ".join(self.cpu_features)
        library = [self.compiler, self.flags, self.dispatch]
        if self.variant != "release":
            library.append(f"{self.variant} build")
        made_by = f"llvmlite {self.llvmlite}"
        rows = [
            ("nimblevm", f"{self.version}, file format {self.format_version}"),
            ("C library", ", ".join(library)),
            ("machine", f"{self.architecture}, {self.cpus} CPUs, {self.cpu_level} ({features})"),
            ("devices", ", ".join(self.devices)),
            (
                "compiler",
                made_by if self.llvmlite else "llvmlite is not installed: no machine code",
            ),
            ("Python", self.python),
        ]
        return "\n".join(f"{name:<10} {value}" for name, value in rows)


def _llvmlite() -> str:
    try:
        return metadata.version("llvmlite")
    except metadata.PackageNotFoundError:
        return ""


def build_info() -> BuildInfo:
    """What this installation is; print it, or send it along with a report of a fault."""
    told = ffi.string(lib.nvm_build_info()).decode("utf-8", "replace")
    built = dict(line.split("=", 1) for line in told.splitlines())
    return BuildInfo(
        version=nimblevm.__version__,
        format_version=int(lib.nvm_format_version()),
        compiler=built["compiler"],
        flags=built["flags"],
        dispatch=built["dispatch"],
        variant=built["variant"],
        architecture=platform.machine(),
        cpu_level=ffi.string(lib.nvm_cpu_best_level()).decode(),
        cpu_features=tuple(name for name in _FEATURES if lib.nvm_cpu_has(name.encode())),
        cpus=int(lib.nvm_cpu_count()),
        devices=tuple(str(device) for device in available()),
        llvmlite=_llvmlite(),
        python=platform.python_version(),
    )


__all__ = ["BuildInfo", "build_info"]
