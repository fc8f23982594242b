"""tvm.error: names for `except`. What is raised is more exact: nimblevm.errors has it."""

from nimblevm.errors import NimbleError

TVMError = DiagnosticError = InternalError = OpError = NimbleError

__all__ = ["DiagnosticError", "InternalError", "OpError", "TVMError"]
