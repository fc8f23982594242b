"""TVM's module tree over this library, for scripts that were written for TVM: `from nimblevm import tvm`.

A facade: it re-exports names and adapts signatures, and nothing imports it. docs/from-tvm.md says what differs.
"""

from nimblevm.relay.module import IRModule
from nimblevm.tvm import (
    contrib,
    error,
    ir,
    nd,
    parser,
    relay,
    runtime,
    target,
    te,
    testing,
    tir,
    transform,
)
from nimblevm.tvm.absent import MODULES, explain_absent
from nimblevm.tvm.error import TVMError
from nimblevm.tvm.ir import instrument
from nimblevm.tvm.nd import cpu, cuda, device, gpu, opencl
from nimblevm.tvm.runtime import convert
from nimblevm.tvm.target import Target

__all__ = [
    "IRModule", "TVMError", "Target", "contrib", "convert", "cpu", "cuda", "device", "error", "gpu", "instrument",
    "ir", "nd", "opencl", "parser", "relay", "runtime", "target", "te", "testing", "tir", "transform",
]  # fmt: skip

__getattr__ = explain_absent(__name__, MODULES, __all__)
