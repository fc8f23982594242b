"""Devices by name and number, and the backends of this build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from nimblevm._ffi import check, ffi, lib
from nimblevm.arguments import shown
from nimblevm.errors import DeviceError, InvalidInputType


@dataclass(frozen=True, slots=True)
class Device:
    """Device number `ordinal` of a backend; str() is what `VirtualMachine(device=...)` takes: "cpu:0".

    Raises DeviceError for a backend that this build lacks, ValueError for an ordinal that is negative or >= 2**31.
    """

    backend: str
    ordinal: int = 0

    def __post_init__(self) -> None:
        known = backends()
        if not isinstance(self.backend, str) or not isinstance(self.ordinal, int):
            wrong = self.ordinal if isinstance(self.backend, str) else self.backend
            raise InvalidInputType(
                f"Device: expected a backend's name and a number, got {shown(wrong)}"
            )
        if self.backend not in known:
            raise DeviceError(
                f"this build has no device backend {self.backend!r}; it has: {', '.join(known)}"
            )
        if not 0 <= self.ordinal < 2**31:
            raise ValueError(f"device ordinal must be >= 0 and < 2**31, not {self.ordinal}")
        if known[self.backend].host_accessible and self.ordinal:
            raise DeviceError(f"{self}: there is one device of this kind, {self.backend}:0")

    @classmethod
    def of(cls, device: Device | str) -> Device:
        """A Device as it is, or from text: "cpu", "null", "cpu:0"."""
        if isinstance(device, Device):
            return device
        if not isinstance(device, str):
            raise TypeError(
                f'device must be a name such as "cpu" or a Device, not {type(device).__name__}'
            )
        name, colon, number = device.partition(":")
        if colon and not (number.isascii() and number.isdecimal()):
            raise DeviceError(f"device {device!r}: expected a name or name:number")
        digits = number.lstrip("0")
        if len(digits) > 10 or int(digits or 0) >= 2**31:
            raise DeviceError(f"device {device[:80]!r}: the number must be < 2**31")
        return cls(name, int(digits or 0))

    def __str__(self) -> str:
        return f"{self.backend}:{self.ordinal}"

    @property
    def device_type(self) -> int:
        """The number that DLPack gives the kind of device."""
        return backends()[self.backend].dlpack_type

    @property
    def device_id(self) -> int:
        """As `ordinal`: DLPack's name."""
        return self.ordinal


@dataclass(frozen=True, slots=True)
class Backend:
    """A kind of device.

    host_accessible   the host reads and writes its memory directly
    host_code         kernels run as functions of the host; else the device needs code of its own in the file
    dlpack_type       the number that DLPack gives it
    """

    name: str
    host_accessible: bool
    host_code: bool
    dlpack_type: int


@cache
def backends() -> Mapping[str, Backend]:
    """The backends built in by name, the CPU first."""
    info = ffi.new("nvm_backend_info *")
    found: dict[str, Backend] = {}
    for index in range(lib.nvm_backend_count()):
        check(lib.nvm_backend_info_get(index, info))
        name = ffi.string(info.name).decode()
        found[name] = Backend(
            name, bool(info.host_accessible), bool(info.host_code), int(info.dl_device_type)
        )
    return MappingProxyType(found)


def available() -> tuple[Device, ...]:
    """The first device of every backend built in, the CPU first."""
    return tuple(Device(name) for name in backends())


__all__ = ["Backend", "Device", "available", "backends"]
