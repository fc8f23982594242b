"""Annotations of expressions: which device or external backend computes them (TVM's relay.annotation)."""

from __future__ import annotations

from typing import Any

from nimblevm.relay import ir
from nimblevm.relay.call import call_op
from nimblevm.relay.op.compiler_region import BEGIN, END, CompilerAttrs
from nimblevm.relay.op.device import DeviceCopyAttrs, OnDeviceAttrs


def _name(device: Any) -> str:
    """The backend of a name ("opencl", "cuda:0") or of an object with one (nimblevm.Device)."""
    return str(getattr(device, "backend", device)).partition(":")[0]


def on_device(
    body: Any, device: Any, constrain_result: bool = False, constrain_body: bool = True
) -> ir.Call:
    """`body`, computed on a device (constrain_body), its value there (constrain_result). A program that is not compiled
    for that device keeps both where they are.
    """
    attrs = OnDeviceAttrs(_name(device), constrain_result, constrain_body)
    return call_op("on_device", body, attrs=attrs)


def compiler_begin(data: Any, compiler: str) -> ir.Call:
    """`data`, read by a region of the external backend `compiler`."""
    return call_op(BEGIN, data, attrs=CompilerAttrs(compiler))


def compiler_end(data: Any, compiler: str) -> ir.Call:
    """`data`, the result of a region of the external backend `compiler`."""
    return call_op(END, data, attrs=CompilerAttrs(compiler))


def stop_fusion(data: Any) -> ir.Call:
    """`data`. Where TVM's fusion stops; here what operators read and cost decides."""
    return call_op("annotation.stop_fusion", data)


def checkpoint(data: Any) -> ir.Call:
    """`data`. What TVM's gradients compute anew; here there are none."""
    return call_op("annotation.checkpoint", data)


def device_copy(data: Any, src_device: Any, dst_device: Any) -> ir.Call:
    """`data` on another device. Offered as relay.device_copy."""
    return call_op("device_copy", data, attrs=DeviceCopyAttrs(_name(src_device), _name(dst_device)))


__all__ = [
    "checkpoint", "compiler_begin", "compiler_end", "device_copy", "on_device", "stop_fusion",
]  # fmt: skip
