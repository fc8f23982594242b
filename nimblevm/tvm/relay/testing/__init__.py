"""tvm.relay.testing: networks to try things on, and passes over expressions."""

from __future__ import annotations

from nimblevm.arguments import explain_arguments
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Expr
from nimblevm.relay.module import IRModule
from nimblevm.relay.prelude import Prelude
from nimblevm.tvm.absent import TESTING, explain_absent
from nimblevm.tvm.relay.testing import dcgan, init, layers, lstm, mlp, mobilenet, nat, resnet
from nimblevm.tvm.relay.testing.init import create_workload
from nimblevm.tvm.relay.testing.nat import count, make_nat_expr
from nimblevm.tvm.testing import enabled_targets
from nimblevm.tvm.transform import Pass


def run_infer_type(expr: Expr) -> Expr:
    """The expression with types, those of its free variables too, where it says enough of them."""
    main = infer_type(IRModule.from_expr(expr)).function("main")
    return main if isinstance(expr, type(main)) else main.body


def run_opt_pass(expr: Expr, opt_pass: Pass, import_prelude: bool = False) -> Expr:
    """What a pass makes of an expression, in a module with the prelude if that is asked for."""
    mod = IRModule.from_expr(expr)
    if import_prelude:
        Prelude(mod)
    main = opt_pass(mod).function("main")
    return main if isinstance(expr, type(main)) else main.body


__all__ = [
    "Prelude", "count", "create_workload", "dcgan", "enabled_targets", "init", "layers", "lstm", "make_nat_expr",
    "mlp", "mobilenet", "nat", "resnet", "run_infer_type", "run_opt_pass",
]  # fmt: skip

explain_arguments(globals(), __all__)

__getattr__ = explain_absent(__name__, TESTING, __all__)
