"""Which kernels have code in sections of kinds 4 and 5, and how much (docs/format.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from nimblevm.bytecode.serialize import DEVICE_CODE, EXTERNAL, SectionRecord


@dataclass(frozen=True, slots=True)
class KernelCode:
    """Code of one kernel for `target`. Device code is counted in launches, for all kernels share its text; external
    code in bytes. The other number is 0.
    """

    target: str
    launches: int
    size: int

    @property
    def text(self) -> str:
        """As in "opencl, 2 launches"."""
        if self.size or not self.launches:
            return f"{self.target}, {counted(self.size, 'byte')}"
        return f"{self.target}, {counted(self.launches, 'launch', 'launches')}"


@dataclass(frozen=True, slots=True)
class CodeSection:
    """One section. kind: "device code" or "external code"; size: its bytes; kernels: by index in the kernel table, none
    if it can't be read.
    """

    kind: str
    target: str
    size: int
    kernels: Mapping[int, KernelCode]


def counted(number: int, what: str, many: str = "") -> str:
    """ "1 byte", "2,048 bytes"."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"


def code_sections(sections: Sequence[SectionRecord]) -> list[CodeSection]:
    """The sections with code for devices and runtimes of a file that has been loaded, which has checked them."""
    found = []
    for section in sections:
        if section.kind not in (DEVICE_CODE, EXTERNAL):
            continue
        kernels = _kernels(section)
        kind = "device code" if section.kind == DEVICE_CODE else "external code"
        found.append(CodeSection(kind, section.target, memoryview(section.data).nbytes, kernels))
    return found


def _kernels(section: SectionRecord) -> dict[int, KernelCode]:
    target = section.target
    if section.kind == EXTERNAL:
        blobs: dict[int, bytes] = msgpack.unpackb(section.data, strict_map_key=False)
        return {k: KernelCode(target, 0, len(blob)) for k, blob in blobs.items()}
    try:
        launches: dict[int, Any] = msgpack.unpackb(section.data, strict_map_key=False)["kernels"]
        return {int(k): KernelCode(target, len(rows), 0) for k, rows in launches.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}  # for a backend that this build lacks: nobody has checked it


__all__ = ["CodeSection", "KernelCode", "code_sections", "counted"]
