"""tvm.transform: passes, their order and their context."""

from nimblevm.compiler.transform import (
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    Sequential,
    module_pass,
)
from nimblevm.compiler.transform import print_ir as PrintIR

__all__ = [
    "ModulePass", "Pass", "PassContext", "PassInfo", "PrintIR", "Sequential", "module_pass",
]  # fmt: skip
