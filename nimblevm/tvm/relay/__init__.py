"""tvm.relay: the language, its passes, and what compiles and evaluates it."""

from importlib import import_module

from nimblevm import relay as _language
from nimblevm.relay import *  # noqa: F403 - the language's names, whatever operators it has
from nimblevm.relay.kinds import TypeKind
from nimblevm.tvm.absent import RELAY, explain_absent
from nimblevm.tvm.relay import (
    adt,
    analysis,
    backend,
    build_module,
    dataflow_pattern,
    expr,
    expr_functor,
    function,
    param_dict,
    prelude,
    scope_builder,
    testing,
    transform,
    ty,
    type_functor,
    vm,
)
from nimblevm.tvm.relay.build_module import bind_params_by_name, build, create_executor
from nimblevm.tvm.relay.transform import build_config

# The language has modules of its own of these names.
op = import_module("nimblevm.tvm.relay.op")
qnn = import_module("nimblevm.tvm.relay.qnn")

__all__ = [
    *_language.__all__, "TypeKind", "adt", "analysis", "backend", "bind_params_by_name", "build", "build_config",
    "build_module", "create_executor", "dataflow_pattern", "expr", "expr_functor", "function", "op", "param_dict",
    "prelude", "qnn", "scope_builder", "testing", "transform", "ty", "type_functor", "vm",
]  # fmt: skip

__getattr__ = explain_absent(__name__, RELAY, __all__)
