"""What a pass is, what it may know, and how passes follow each other.

A pass is a pure function (IRModule, PassContext) -> IRModule. Sequential runs a list of them, skips
those that the user turned off, re-checks the module after each one that changed it when `verify` is
set, and reports times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nimblevm.compiler.devices import Devices
from nimblevm.compiler.external import External
from nimblevm.compiler.kernel_table import KernelCache
from nimblevm.errors import CompileError, InternalError, NimbleError
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Call
from nimblevm.relay.module import IRModule
from nimblevm.relay.well_formed import check_well_formed

Array = npt.NDArray[np.generic]
Evaluator = Callable[[Call, tuple[object, ...]], object]
"""(operator call, values of its arguments: arrays or tuples of them) -> its value, by the kernel
that the VM would run.
"""


@dataclass(frozen=True, slots=True)
class PassContext:
    """What passes may ask about the compilation.

    passes_off  names of passes to skip (those that correctness needs can't be)
    verify      run well_formed and infer_type before the first pass and after every one that changed the
                module (tests and debug runs)
    unbox       rank-0 integers and bools live in int registers
    weights     dtype in which packed weights are stored: "float32" (as they are), "float16" or "bfloat16"
    externals   backends that may take operators, in order of preference
    regions     backends of the regions that the program came with
    devices     what the program is compiled for
    kernels     kernels lowered so far (a cache by structure, not a state that passes talk through)
    evaluate    runs one operator at compile time; None: fold_constant does nothing
    on_pass     called with a pass's name and its time in seconds
    on_start    called with a pass's name before it runs
    """

    passes_off: frozenset[str] = frozenset()
    verify: bool = False
    unbox: bool = True
    evaluate: Evaluator | None = None
    on_pass: Callable[[str, float], None] | None = None
    on_start: Callable[[str], None] | None = None
    kernels: KernelCache = field(default_factory=KernelCache)
    weights: str = "float32"
    externals: tuple[External, ...] = ()
    regions: tuple[External, ...] = ()
    devices: Devices = field(default_factory=Devices)


@dataclass(frozen=True, slots=True)
class Pass:
    """One transformation. `required`: the later passes or the program's meaning need it, so it
    can't be turned off.
    """

    name: str
    run: Callable[[IRModule, PassContext], IRModule]
    required: bool = False

    def __call__(self, mod: IRModule, ctx: PassContext | None = None) -> IRModule:
        ctx = ctx or PassContext()
        if self.name in ctx.passes_off:
            if self.required:
                raise CompileError(
                    f"pass {self.name} can't be turned off: the program's meaning needs it"
                )
            return mod
        if ctx.on_start is not None:
            ctx.on_start(self.name)
        before = _content(mod) if ctx.verify else None
        start = time.perf_counter()
        result = self.run(mod, ctx)
        if ctx.on_pass is not None:
            ctx.on_pass(self.name, time.perf_counter() - start)
        if ctx.verify and _content(result) != before:
            _verify(result, f"pass {self.name} broke the program")
        return result


def _content(mod: IRModule) -> tuple[object, object]:
    """What a module holds, to be compared by identity: nodes don't change, a module that is written to does."""
    return dict(mod.functions), dict(mod.type_definitions)


def _verify(mod: IRModule, blame: str) -> None:
    try:
        check_well_formed(mod)
        infer_type(mod)
    except NimbleError as error:
        raise InternalError(f"{blame}: {error}\n{mod!r}") from error


@dataclass(frozen=True, slots=True)
class Sequential:
    """Passes in order, as one pass."""

    passes: Sequence[Pass | FixedPoint]

    def __call__(self, mod: IRModule, ctx: PassContext | None = None) -> IRModule:
        ctx = ctx or PassContext()
        unknown = ctx.passes_off - self.names()
        if unknown:
            raise CompileError(
                f"passes_off names unknown passes: {', '.join(sorted(unknown))}; "
                f"known: {', '.join(sorted(self.names()))}"
            )
        if ctx.verify:
            _verify(mod, "the program was broken before the first pass")
        for step in self.passes:
            mod = step(mod, ctx)
        return mod

    def order(self) -> tuple[str, ...]:
        """The names of the passes in the order in which they first run."""
        found: dict[str, None] = {}
        for step in self.passes:
            names = (step.name,) if isinstance(step, Pass) else [p.name for p in step.passes]
            found.update(dict.fromkeys(names))
        return tuple(found)

    def names(self) -> frozenset[str]:
        return frozenset(self.order())


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Passes repeated until none of them changes a function (they return the same objects then), at
    most `rounds` times.
    """

    passes: Sequence[Pass]
    rounds: int = 3

    def __call__(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for _ in range(self.rounds):
            before = dict(mod.functions)
            for step in self.passes:
                mod = step(mod, ctx)
            if before == dict(mod.functions):
                break
        return mod
