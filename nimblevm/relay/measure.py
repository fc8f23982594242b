"""Questions about a program's size and its parts, under TVM's names (tvm.relay.analysis)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from nimblevm.arguments import explain_arguments, explained_constructor
from nimblevm.errors import RelayTypeError
from nimblevm.relay.infer_type import infer_expr
from nimblevm.relay.ir import Call, Expr, Function, GlobalVar, Leaf, children, free_vars
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op
from nimblevm.relay.structural_hash import structural_hash
from nimblevm.relay.types import TensorType
from nimblevm.relay.visitor import post_order


def count_layers(expr: Expr | IRModule, valid_ops: Iterable[str]) -> int:
    """The most calls of the operators `valid_ops` on one path through an expression (a module: its `main`)."""
    root = expr.function("main") if isinstance(expr, IRModule) else expr
    counted = frozenset(valid_ops)
    depth: dict[Expr, int] = {}
    for node in post_order(root):
        inner = max((depth[c] for c in children(node)), default=0)
        is_layer = isinstance(node, Call) and isinstance(node.op, Op) and node.op.name in counted
        depth[node] = inner + is_layer
    return depth[root]


def get_total_mac_number(expr: Expr) -> int:
    """Multiply-accumulates of the products and convolutions in an expression, all of whose sizes must be numbers.

    Raises RelayTypeError if one is not. Cost: O(nodes), and inference if the expression has no types.
    """
    typed = expr if all(n.checked_type is not None for n in _calls(expr)) else infer_expr(expr)
    total = 0
    for node in _calls(typed):
        count = _MACS.get(node.op.name) if isinstance(node.op, Op) else None
        total += count(node) if count is not None else 0
    return total


def _calls(expr: Expr) -> list[Call]:
    return [n for n in post_order(expr) if isinstance(n, Call)]


def _shape(node: Expr) -> tuple[int, ...]:
    found = node.checked_type
    shape = found.shape if isinstance(found, TensorType) else ()
    if not all(isinstance(d, int) for d in shape):
        where = f"{node.span}: " if node.span is not None else ""
        raise RelayTypeError(
            f"{where}to count products all sizes must be known, but here is {found!r}"
        )
    return tuple(d for d in shape if isinstance(d, int))


def _dense(node: Call) -> int:
    return prod(_shape(node)) * _shape(node.args[0])[-1]


def _matmul(node: Call) -> int:
    transposed = getattr(node.attrs, "transpose_a", False)
    return prod(_shape(node)) * _shape(node.args[0])[-2 if transposed else -1]


def _conv(node: Call) -> int:
    """Each element of the result takes one product for each weight of its channel."""
    weight = _shape(node.args[1])
    out = weight[node.attrs.kernel_layout.index("O")]
    return prod(_shape(node)) * prod(weight) // out if out else 0


def _conv_transpose(node: Call) -> int:
    """Each element of the input takes part in one product for each weight of its channel."""
    weight = _shape(node.args[1])
    channels = weight[node.attrs.kernel_layout.index("I")]
    return prod(_shape(node.args[0])) * prod(weight) // channels if channels else 0


_MACS: dict[str, Callable[[Call], int]] = {
    "nn.dense": _dense,
    "nn.matmul": _matmul,
    "nn.batch_matmul": _matmul,
    **{f"nn.conv{n}d": _conv for n in (1, 2, 3)},
    **{f"nn.conv{n}d_transpose": _conv_transpose for n in (1, 2, 3)},
}


def extract_intermdeiate_expr(mod: IRModule, expr_id: int) -> IRModule:
    """A module whose `main` computes expression number `expr_id` of this one's, over the variables that it needs.

    Expressions are numbered from 0 in the order of evaluation; variables, constants and names have no number. (The
    spelling is TVM's.) ValueError for a number that there is not.
    """
    nodes = [n for n in post_order(mod.function("main").body) if not isinstance(n, Leaf)]
    if not 0 <= expr_id < len(nodes):
        raise ValueError(f"expression {expr_id}: @main has the expressions 0 to {len(nodes) - 1}")
    target = nodes[expr_id]
    functions = {v: f for v, f in mod.functions.items() if v.name_hint != "main"}
    main = target if isinstance(target, Function) else Function(free_vars(target), target)
    return IRModule.from_expr(main, functions, mod.type_definitions)


def extract_fused_functions(mod: IRModule) -> dict[int, Function]:
    """The groups that FuseOps made (functions with the attribute Primitive) by structural hash: each body once."""
    found: dict[int, Function] = {}
    for function in mod.functions.values():
        for node in post_order(function):
            if isinstance(node, Function) and node.attrs.get("Primitive"):
                found.setdefault(structural_hash(node), node)
    return found


@explained_constructor
class CallGraph:
    """Which functions of a module mention which, as tvm.relay.analysis.CallGraph tells it."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self._mentions: dict[GlobalVar, dict[GlobalVar, int]] = {}
        for var, function in module.functions.items():
            counts: dict[GlobalVar, int] = {}
            for node in post_order(function):
                for child in children(node):
                    if isinstance(child, GlobalVar):
                        key = module.get_global_var(child.name_hint)
                        counts[key] = counts.get(key, 0) + 1
            self._mentions[var] = counts

    def _var(self, var: GlobalVar | str) -> GlobalVar:
        return self.module.get_global_var(var if isinstance(var, str) else var.name_hint)

    def ref_count(self, var: GlobalVar | str) -> int:
        """How often other functions, and it itself, mention a function."""
        key = self._var(var)
        return sum(counts.get(key, 0) for counts in self._mentions.values())

    def global_call_count(self, var: GlobalVar | str) -> int:
        """How many mentions of functions a function has."""
        return sum(self._mentions[self._var(var)].values())

    def is_recursive(self, var: GlobalVar | str) -> bool:
        """Whether a function mentions itself."""
        key = self._var(var)
        return key in self._mentions[key]

    def callees(self, var: GlobalVar | str) -> tuple[GlobalVar, ...]:
        """The functions that a function mentions, in the order of evaluation."""
        return tuple(self._mentions[self._var(var)])

    def print_var(self, var: GlobalVar | str) -> str:
        """A function with its calls, as text."""
        key = self._var(var)
        lines = [f"@{key.name_hint}: referenced {self.ref_count(key)} times"]
        lines += [f"  @{v.name_hint} {n}" for v, n in self._mentions[key].items()]
        return "\n".join(lines)

    def __contains__(self, var: GlobalVar | str) -> bool:
        return var in self.module

    def __str__(self) -> str:
        return "\n".join(self.print_var(var) for var in self._mentions)


__all__ = [
    "CallGraph", "count_layers", "extract_fused_functions", "extract_intermdeiate_expr", "get_total_mac_number",
]  # fmt: skip

explain_arguments(globals(), __all__)
