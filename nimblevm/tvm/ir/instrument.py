"""tvm.ir.instrument: watching passes."""

from nimblevm.arguments import explain_arguments
from nimblevm.compiler.transform import PassInstrument, PassTimingInstrument, pass_instrument

__all__ = ["PassInstrument", "PassTimingInstrument", "pass_instrument"]

explain_arguments(globals(), __all__)
