"""tvm.relay.backend.vm: as tvm.relay.vm."""

from nimblevm.tvm.relay.vm import VMCompiler, compile

__all__ = ["VMCompiler", "compile"]
