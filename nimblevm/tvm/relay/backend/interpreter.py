"""tvm.relay.backend.interpreter: what the "debug" executor returns."""

from nimblevm.relay.values import ADTValue as ConstructorValue
from nimblevm.relay.values import RefValue

__all__ = ["ConstructorValue", "RefValue"]
