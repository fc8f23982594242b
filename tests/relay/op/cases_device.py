"""Cases of the operators that say where values live; on the host all of them are their operand."""

from __future__ import annotations

from collections.abc import Callable

from nimblevm.relay.op import compiler_region, device, vm
from tests.relay.op.draw import Case, Source, array, flag, pick, shape


def _on_device(source: Source, dtype: str) -> Case:
    attrs = device.OnDeviceAttrs(pick(source, ("cpu", "opencl")), flag(source), flag(source))
    return Case((array(source, shape(source), dtype),), attrs)


def _device_copy(source: Source, dtype: str) -> Case:
    attrs = device.DeviceCopyAttrs("cpu", pick(source, ("cpu", "opencl")))
    return Case((array(source, shape(source), dtype),), attrs)


def _compiler_mark(source: Source, dtype: str) -> Case:
    attrs = compiler_region.CompilerAttrs(pick(source, ("blas", "other")))
    return Case((array(source, shape(source), dtype),), attrs)


def _planned_copy(source: Source, dtype: str) -> Case:
    return Case((array(source, shape(source), dtype),), vm.DeviceAttrs(0))


def _mark(source: Source, dtype: str) -> Case:
    return Case((array(source, shape(source), dtype),))


CASES: dict[str, Callable[[Source, str], Case]] = {
    "annotation.compiler_begin": _compiler_mark,
    "annotation.compiler_end": _compiler_mark,
    "annotation.checkpoint": _mark,
    "annotation.stop_fusion": _mark,
    "on_device": _on_device,
    "device_copy": _device_copy,
    "vm.device_copy": _planned_copy,
}
