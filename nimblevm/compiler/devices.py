"""What a program is compiled for, and what placement tells about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from nimblevm.relay.ir import Span


@dataclass(frozen=True, slots=True)
class KernelPlacement:
    """A kernel call: its function and kernel, the device index, why there."""

    function: str
    kernel: str
    device: int
    reason: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class CopyPlacement:
    """A copy: of what, between which device indices, why. repeated: in a function that calls itself. At `boundary`
    copies the VM makes when a call begins or ends; they are not instructions.
    """

    function: str
    value: str
    source: int
    target: int
    reason: str
    span: Span | None = None
    repeated: bool = False
    boundary: bool = False


@dataclass(frozen=True, slots=True)
class UnmetAnnotation:
    """An on_device or device_copy that says nothing, since the program is not compiled for its backend."""

    function: str
    backend: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class KeptFields:
    """A parameter of a function that is called from outside whose type has tensors in fields, references or closures:
    they stay on the host.
    """

    function: str
    value: str
    type: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where everything of a program went. devices: the file's table, each a list of backends with commas."""

    devices: tuple[str, ...]
    kernels: tuple[KernelPlacement, ...]
    copies: tuple[CopyPlacement, ...]
    unmet: tuple[UnmetAnnotation, ...] = ()
    kept: tuple[KeptFields, ...] = ()

    def __str__(self) -> str:
        lines = [f"device {i}: {name}" for i, name in enumerate(self.devices)]
        lines += [f"kernels: {len(self.kernels)}"]
        lines += [
            f"  {self.devices[k.device]:<12} @{k.function} {k.kernel}: {k.reason}{_place(k.span)}"
            for k in self.kernels
        ]
        lines += [f"copies: {len(self.copies)}"]
        for c in self.copies:
            often = ", each time round" if c.repeated else ""
            way = f"{self.devices[c.source]} -> {self.devices[c.target]}"
            lines.append(f"  {way:<20} @{c.function} {c.value}: {c.reason}{often}{_place(c.span)}")
        if self.kept:
            lines += [
                f"arguments that keep their fields on the host, since callers from outside make them: {len(self.kept)}",
                "  (entry_points leaves out a function that is not called from outside)",
            ]
            lines += [f"  @{k.function} {k.value}: {k.type}{_place(k.span)}" for k in self.kept]
        if self.unmet:
            lines += [
                f"annotations for devices that the program is not compiled for: {len(self.unmet)}"
            ]
            lines += [f"  {a.backend:<12} @{a.function}{_place(a.span)}" for a in self.unmet]
        return "\n".join(lines)


def _place(span: Span | None) -> str:
    return f" ({span})" if span is not None else ""


@dataclass(frozen=True, slots=True)
class Devices:
    """What passes know of devices.

    names       the file's table: index 0 is "cpu", then lists of backends in order of preference, commas between
    default     index of the device that kernels run on where nothing else is said
    externals   name of an external backend -> index of the device in whose memory its operands live
    entries     names of the functions that are called from outside; other functions of the module are not public
    on_placement  called with the result
    """

    names: tuple[str, ...] = ("cpu",)
    default: int = 0
    externals: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    entries: frozenset[str] = frozenset()
    on_placement: Callable[[Placement], None] | None = None

    def only(self, backends: Set[str]) -> Devices:
        """Without the devices that only other external backends than these have."""
        used = {0, self.default, *(i for name, i in self.externals.items() if name in backends)}
        new = {old: index for index, old in enumerate(sorted(used))}
        return replace(
            self,
            names=tuple([self.names[old] for old in new]),
            default=new[self.default],
            externals={name: new[i] for name, i in self.externals.items() if i in new},
        )

    def runs(self, device: int) -> bool:
        """Whether generated kernels run on a device: on the host and on the default one; others have external code."""
        return device in (0, self.default)

    def index(self, backend: str) -> int | None:
        """The index that a backend serves: "cpu" 0; None if the program is not compiled for it."""
        for index, names in enumerate(self.names):
            if backend in names.split(","):
                return index
        return None


__all__ = [
    "CopyPlacement",
    "Devices",
    "KeptFields",
    "KernelPlacement",
    "Placement",
    "UnmetAnnotation",
]
