"""tvm.ir.instrument: watching passes."""

from nimblevm.compiler.transform import PassInstrument, PassTimingInstrument, pass_instrument

__all__ = ["PassInstrument", "PassTimingInstrument", "pass_instrument"]
