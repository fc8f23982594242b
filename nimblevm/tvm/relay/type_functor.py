"""tvm.relay.type_functor: walks over types."""

from nimblevm.relay.type_functor import TypeFunctor, TypeMutator, TypeVisitor

__all__ = ["TypeFunctor", "TypeMutator", "TypeVisitor"]
