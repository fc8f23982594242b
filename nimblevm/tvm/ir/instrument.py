"""tvm.ir.instrument: watching passes."""

from nimblevm.compiler.transform import PassInstrument, PassTimingInstrument

__all__ = ["PassInstrument", "PassTimingInstrument"]
