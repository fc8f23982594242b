"""Decide on which device every kernel runs and every tensor lives, and copy where two devices meet.

before:  def @main(%x: Tensor[(?n, 4), float32]) { let %y = fn (%p, Primitive=1) { tanh(%p) }(%x);
           let %i = fn (%p, Primitive=1) { argsort(%p) }(%y); %i }
after:   def @main(%x: Tensor[(?n, 4), float32]) { let %x1 = vm.device_copy(%x, device=1);
           let %y = fn (%p, Primitive=1, device=1) { tanh(%p) }(%x1); let %y_copy = vm.device_copy(%y, device=0);
           let %i = fn (%p, Primitive=1) { argsort(%p) }(%y_copy); %i }

Domains are unified over functions, closures, data types, references, tuples, loops and ifs (device_flow), get devices
(device_choice), and copies are written (device_rewrite). The host does all arithmetic of shapes and scalars, so ints
have no domain. A value that a loop carries unchanged is copied before the loop, because it has one domain there and the
copy stands where that begins. Constants lie on their device from the start. Functions that are called from outside
take host tensors: `vm.device_copy` of an argument that is on its device already, as state behind a handle is, is the
argument itself. Results stay where they are until the VM hands them out. Devices of external backends that took nothing
are gone from the table, so a file names what it needs.

Needs: ANF, groups of fuse_ops, inferred types. Keeps: both. on_device and device_copy are gone. Cost: O(n).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from nimblevm.compiler.device_choice import choose
from nimblevm.compiler.device_flow import Collector, Flow
from nimblevm.compiler.device_rewrite import Placer, Report
from nimblevm.compiler.devices import CopyPlacement, Devices, Placement
from nimblevm.compiler.domains import leaves, root
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import blocks, is_primitive, let_chain, map_functions, postorder
from nimblevm.relay.ir import Call, Function, GlobalVar
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.device import ANNOTATIONS
from nimblevm.relay.op.registry import Op


def plan_devices(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    if len(ctx.devices.names) == 1 and not _is_annotated(mod):
        return mod
    return _placed(mod, ctx, ctx.devices.only(_externals_of(mod)))


def _placed(mod: IRModule, ctx: PassContext, devices: Devices) -> IRModule:
    repeated = _recursive(mod)
    entries = frozenset(
        var
        for var, f in mod.functions.items()
        if var.name_hint in devices.entries and not f.type_params
    )
    collector = Collector(mod, devices, ctx.kernels)
    flow = collector.run(repeated, entries)
    choose(flow, collector.host, devices)
    report = Report(devices.names, devices.default)

    names = {function: var for var, function in mod.functions.items()}

    def place(function: Function) -> Function:
        if is_primitive(function) or "Closure" in function.attrs:
            return function
        var = names[function]
        made = Placer(var, function, flow, report, var in repeated).run()
        if len(devices.names) > 1 and var not in entries:
            made = dataclasses.replace(made, attrs={**made.attrs, "Internal": 1})
        return made

    result = map_functions(mod, place)
    _results(mod, flow, report)
    if devices.on_placement is not None:
        rows = (
            tuple(report.kernels), tuple(report.copies), tuple(flow.unmet), tuple(flow.kept.values())
        )  # fmt: skip
        devices.on_placement(Placement(devices.names, *rows))
    return result


def _results(mod: IRModule, flow: Flow, report: Report) -> None:
    """The copies that the VM makes of results."""
    for var, function in mod.functions.items():
        if var not in flow.entries:
            continue
        for leaf in leaves(flow.signatures[var].result):
            device = root(leaf).label or 0
            if device:
                report.copies.append(
                    CopyPlacement(
                        var.name_hint,
                        "result",
                        device,
                        0,
                        "a result is handed out",
                        function.span,
                        boundary=True,
                    )
                )


def _calls(mod: IRModule) -> Iterator[Call]:
    for function in mod.functions.values():
        if is_primitive(function):
            continue
        for block in blocks(function):
            lets, tail = let_chain(block)
            for value in (*(let.value for let in lets), tail):
                if isinstance(value, Call):
                    yield value


def _is_annotated(mod: IRModule) -> bool:
    return any(isinstance(c.op, Op) and c.op.name in ANNOTATIONS for c in _calls(mod))


def _externals_of(mod: IRModule) -> set[str]:
    """The external backends that have a kernel."""
    functions = [c.op for c in _calls(mod) if isinstance(c.op, Function)]
    return {str(f.attrs["Compiler"]) for f in functions if "Compiler" in f.attrs}


def _recursive(mod: IRModule) -> frozenset[GlobalVar]:
    """The functions that may reach themselves, and those on a way from one such to another."""
    calls = {
        var: {
            mod.get_global_var(n.name_hint)
            for n in postorder(function.body)
            if isinstance(n, GlobalVar)
        }
        for var, function in mod.functions.items()
    }
    callers: dict[GlobalVar, set[GlobalVar]] = {var: set() for var in calls}
    for var, called in calls.items():
        for name in called:
            callers[name].add(var)
    return frozenset(_trimmed(calls, callers) & _trimmed(callers, calls))


def _trimmed(
    forward: dict[GlobalVar, set[GlobalVar]], back: dict[GlobalVar, set[GlobalVar]]
) -> set[GlobalVar]:
    """What is left when what leads only to what is gone goes."""
    missing = {var: len(next_) for var, next_ in forward.items()}
    left = set(forward)
    ready = [var for var, count in missing.items() if not count]
    while ready:
        gone = ready.pop()
        left.discard(gone)
        for var in back[gone]:
            missing[var] -= 1
            if not missing[var]:
                ready.append(var)
    return left


PLAN_DEVICES = Pass("plan_devices", plan_devices, required=True)
