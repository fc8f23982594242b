"""From the names of devices that a user gives to what passes know of them, and to the code in the file for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from nimblevm.arguments import shown
from nimblevm.bytecode.serialize import DEVICE_CODE, ProgramBuilder, SectionRecord
from nimblevm.compiler.devices import Devices, Placement
from nimblevm.compiler.emit import KernelBuilder
from nimblevm.compiler.external import External
from nimblevm.compiler.kernel_table import KernelTable
from nimblevm.errors import InvalidInputType
from nimblevm.kernels import device_support

OnPlacement = Callable[[Placement], None]
Externals = str | External | Iterable[str | External] | None
"""External backends, by name (several with commas between) or as themselves."""


def parse(device: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names in "cpu,opencl,cuda", or in a sequence of such, each once, without the host. TypeError for anything
    else.
    """
    if device is None:
        return ()
    parts = [device] if isinstance(device, str) else device
    if not isinstance(parts, list | tuple) or not all(isinstance(p, str) for p in parts):
        raise InvalidInputType(f'device must be names such as "opencl,cuda", not {shown(device)}')
    names = [name for part in parts for name in _split(part)]
    return tuple(dict.fromkeys(n for n in names if n != "cpu"))


def externals(wanted: Externals) -> list[str | External]:
    """External backends in the order asked for. TypeError for what is none."""
    if wanted is None:
        return []
    parts = [wanted] if isinstance(wanted, str | External) else wanted
    if isinstance(parts, Iterable):
        parts = list(parts)
        if all(isinstance(p, str | External) for p in parts):
            return [one for p in parts for one in (_split(p) if isinstance(p, str) else [p])]
    raise InvalidInputType(
        f'external must be names such as "blas", or Externals, not {shown(wanted)}'
    )


def _split(names: str) -> list[str]:
    return [name for name in map(str.strip, names.split(",")) if name]


def generators() -> tuple[str, ...]:
    """The backends that the compiler makes device code for."""
    return tuple(device_support.DEVICE_CODE)


def make(
    names: Sequence[str],
    externals: Iterable[External],
    entries: Iterable[str],
    on_placement: OnPlacement | None = None,
) -> Devices:
    """What a program is compiled for. The backends `names` run generated kernels and share device 1, in order of
    preference; external backends whose operands live on a device have a device of their own each.
    """
    table = ["cpu", ",".join(names)] if names else ["cpu"]
    indices: dict[str, int] = {}
    for backend in externals:
        if backend.device is None:
            continue
        if backend.device not in table:
            table.append(backend.device)
        indices[backend.name] = table.index(backend.device)
    return Devices(tuple(table), 1 if names else 0, indices, frozenset(entries), on_placement)


def with_code(builder: KernelBuilder | None, devices: Devices) -> KernelBuilder:
    """Adds a section of device code for each backend that needs one."""

    def build(kernels: KernelTable, program: ProgramBuilder) -> Mapping[str, int]:
        places = builder(kernels, program) if builder is not None else {}
        if not devices.default:
            return places
        pairs = [
            (k, kernels.entries[k].lowered.kernel)
            for k, used in sorted(kernels.devices.items())
            if devices.default in used and kernels.entries[k].external is None
        ]
        for name in devices.names[devices.default].split(","):
            generate = device_support.DEVICE_CODE.get(name)
            if generate is not None:
                program.sections.append(SectionRecord(DEVICE_CODE, generate(pairs), name))
        return places

    return build


__all__ = ["Externals", "OnPlacement", "externals", "generators", "make", "parse", "with_code"]
