"""Passes as objects that users write, order and switch off, as TVM's transform module has them.

    @function_pass(opt_level=1)
    def twice(func, mod, ctx): ...                       # Function -> Function

    with PassContext(opt_level=3, disabled_pass=["SimplifyExpr"]):
        mod = Sequential([FoldConstant(), twice])(mod)

A pass called by itself always runs; Sequential asks the context, which decides by level and name. These
contexts nest and belong to a thread (contextvars); pass_base.PassContext, which the pipeline's passes take, is another
thing: options of one compilation.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any

from nimblevm.arguments import explain_arguments, explained_constructor, explained_methods
from nimblevm.compiler import pass_base
from nimblevm.errors import CompileError
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Expr, Function
from nimblevm.relay.module import IRModule
from nimblevm.relay.printer import astext

KEEP_ORIG_OUTPUT_DTYPE = "relay.ToMixedPrecision.keep_orig_output_dtype"
"""An option of PassContext.config: the results of a program keep their dtypes."""

_CURRENT: ContextVar[tuple[PassContext, ...]] = ContextVar("pass_contexts", default=())


@dataclass(frozen=True, slots=True)
class PassInfo:
    """What is known of a pass: the level from which it runs, its name, names of passes to run before it."""

    opt_level: int
    name: str
    required: tuple[str, ...] = ()


class PassInstrument:
    """Watches passes: override what you need. `should_run` may keep a pass from running."""

    def enter_pass_ctx(self) -> None:
        """Called when its context is entered."""

    def exit_pass_ctx(self) -> None:
        """Called when its context is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Whether a pass may run."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called before a pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called after a pass with its result."""


def build_config(
    opt_level: int = 2,
    required_pass: Iterable[str] | None = None,
    disabled_pass: Iterable[str] | None = None,
    trace: Callable[[IRModule, PassInfo, bool], None] | None = None,
) -> PassContext:
    """A PassContext as old scripts make it. `trace(mod, info, is_before)` is called around every pass."""
    instruments = [] if trace is None else [_Trace(trace)]
    return PassContext(opt_level, required_pass, disabled_pass, instruments)


class _Trace(PassInstrument):
    def __init__(self, trace: Callable[[IRModule, PassInfo, bool], None]) -> None:
        self.trace = trace

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.trace(mod, info, True)  # noqa: FBT003 -- a function of the caller's, who names its parameters

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.trace(mod, info, False)  # noqa: FBT003


def pass_instrument(pi_cls: type[Any] | None = None) -> Any:
    """Decorator that makes a class with some of PassInstrument's methods one, as TVM's does; its __init__ runs."""

    def made(cls: type[Any]) -> type[PassInstrument]:
        return type(
            cls.__name__,
            (cls, PassInstrument),
            {"__doc__": cls.__doc__, "__module__": cls.__module__},
        )

    return made if pi_cls is None else made(pi_cls)


class PassTimingInstrument(PassInstrument):
    """Notes how long each pass took; `render()` is a table."""

    def __init__(self) -> None:
        self.times: list[tuple[str, float]] = []
        self._starts: list[float] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._starts.append(time.perf_counter())

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.times.append((info.name, time.perf_counter() - self._starts.pop()))

    def render(self) -> str:
        """A line a pass, in milliseconds."""
        return "\n".join(f"{seconds * 1e3:10.3f} ms  {name}" for name, seconds in self.times)


@explained_methods
class PassContext:
    """Which passes a Sequential runs: those of at most `opt_level`, more by `required_pass`, less by `disabled_pass`.

    instruments   PassInstruments that watch every pass called in the context
    config        for the caller's passes; of ours, ToMixedPrecision reads an option (`list_configs`)
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Iterable[str] | None = None,
        disabled_pass: Iterable[str] | None = None,
        instruments: Sequence[PassInstrument] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = _names(required_pass, "required_pass")
        self.disabled_pass = _names(disabled_pass, "disabled_pass")
        self.instruments = list(instruments or ())
        self.config: dict[str, Any] = dict(config or {})
        self._tokens: list[Token[tuple[PassContext, ...]]] = []

    @staticmethod
    def current() -> PassContext:
        """The innermost context that is open, else one of the defaults."""
        stack = _CURRENT.get()
        return stack[-1] if stack else PassContext()

    @staticmethod
    def list_configs() -> dict[str, Any]:
        """The options in `config` that passes of this library read, with the type of each, as TVM names it."""
        return {KEEP_ORIG_OUTPUT_DTYPE: {"type": "IntImm"}}

    def pass_enabled(self, info: PassInfo) -> bool:
        """Whether a Sequential runs such a pass in this context."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    def override_instruments(self, instruments: Sequence[PassInstrument] | None) -> None:
        """Other instruments from now on. A context of the defaults, which `current()` gives where none is open, is then
        the one outside of all others."""
        for instrument in self.instruments:
            instrument.exit_pass_ctx()
        self.instruments = list(instruments or ())
        if self not in _CURRENT.get():
            _CURRENT.set((self, *_CURRENT.get()))
        for instrument in self.instruments:
            instrument.enter_pass_ctx()

    def __enter__(self) -> PassContext:
        self._tokens.append(_CURRENT.set((*_CURRENT.get(), self)))
        for instrument in self.instruments:
            instrument.enter_pass_ctx()
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._tokens.pop())
        for instrument in self.instruments:
            instrument.exit_pass_ctx()


def _names(names: Iterable[str] | None, what: str) -> tuple[str, ...]:
    if isinstance(names, str):
        raise TypeError(f'{what} must be a list of names, such as ["{names}"]')
    return tuple(names or ())


@explained_constructor
class Pass:
    """Base: IRModule -> IRModule, with a PassInfo. Raises TypeError for what is no module."""

    def __init__(self, info: PassInfo) -> None:
        self.info = info
        self.__name__ = info.name

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """What the pass does; subclasses say."""
        raise NotImplementedError(f"{type(self).__name__} must override transform_module")

    def __call__(self, mod: IRModule) -> IRModule:
        if not isinstance(mod, IRModule):
            raise TypeError(
                f"pass {self.info.name} takes an IRModule, not {type(mod).__name__}; "
                "IRModule.from_expr(expr) makes one"
            )
        ctx = PassContext.current()
        if not all(i.should_run(mod, self.info) for i in ctx.instruments):
            return mod
        for instrument in ctx.instruments:
            instrument.run_before_pass(mod, self.info)
        result = self.transform_module(mod, ctx)
        if not isinstance(result, IRModule):
            raise CompileError(
                f"pass {self.info.name} must return an IRModule, not {type(result).__name__}"
            )
        for instrument in ctx.instruments:
            instrument.run_after_pass(result, self.info)
        return result

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.info.name}, opt_level {self.info.opt_level}>"


@explained_methods
class ModulePass(Pass):
    """A pass made of a function (module, context) -> module."""

    def __init__(
        self, pass_func: Callable[[IRModule, PassContext], IRModule], info: PassInfo
    ) -> None:
        super().__init__(info)
        self._function = pass_func

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return self._function(mod, ctx)


@explained_methods
class FunctionPass(Pass):
    """A pass made of a function (function, module, context) -> function, applied to each global function.

    Functions with the attribute "SkipOptimization" or "Compiler" are left alone, as in TVM. All are
    given the module as it came; types are inferred before and after.
    """

    def __init__(
        self, pass_func: Callable[[Function, IRModule, PassContext], Expr], info: PassInfo
    ) -> None:
        super().__init__(info)
        self._function = pass_func

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = infer_type(mod)
        result = mod.shallow_copy()
        for var, function in mod.functions.items():
            if "SkipOptimization" in function.attrs or "Compiler" in function.attrs:
                continue
            new = self._function(function, mod, ctx)
            if not isinstance(new, Function):
                raise CompileError(
                    f"pass {self.info.name} must return a Function for @{var.name_hint}, "
                    f"not {type(new).__name__}"
                )
            result[var] = new
        return infer_type(result)


@explained_methods
class Sequential(Pass):
    """Passes in order, each if the context enables it; a pass's required ones run before it.

    `required` names passes among `passes` and the registered ones; CompileError for a name that is unknown.
    """

    def __init__(
        self,
        passes: Sequence[Pass] | None = None,
        opt_level: int = 2,
        name: str = "sequential",
        required: Sequence[str] | None = None,
    ) -> None:
        super().__init__(PassInfo(opt_level, name, tuple(required or ())))
        self.passes = list(passes or ())
        for each in self.passes:
            if not isinstance(each, Pass):
                hint = "; call it: it makes the pass" if callable(each) else ""
                raise TypeError(f"Sequential takes passes, not {each!r}{hint}")

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        known = {each.info.name: each for each in self.passes}
        for each in self.passes:
            if not ctx.pass_enabled(each.info):
                continue
            for name in each.info.required:
                found = known.get(name) or registered(name)
                mod = found(mod)
            mod = each(mod)
        return mod


_REGISTERED: dict[str, Callable[[], Pass]] = {}


def registered(name: str) -> Pass:
    """The pass of that name with its defaults; CompileError lists what there is."""
    if name not in _REGISTERED:
        raise CompileError(f"no pass is named {name!r}; there are {', '.join(sorted(_REGISTERED))}")
    return _REGISTERED[name]()


def of_steps(
    name: str,
    opt_level: int,
    steps: Sequence[pass_base.Pass] | Callable[[PassContext], Sequence[pass_base.Pass]],
    evaluate: pass_base.Evaluator | None = None,
) -> Pass:
    """A pass made of the compiler's own. It infers types before the first one and after each.

    steps: the passes, or what chooses them when they run, by the context. evaluate: runs one operator, for those
    that fold.
    """

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        inner = pass_base.PassContext(evaluate=evaluate)
        mod = infer_type(mod)
        for step in steps(ctx) if callable(steps) else steps:
            mod = infer_type(step(mod, inner))
        return mod

    return ModulePass(run, PassInfo(opt_level, name))


def builtin(
    name: str,
    opt_level: int,
    steps: Sequence[pass_base.Pass],
    evaluate: pass_base.Evaluator | None = None,
) -> Callable[[], Pass]:
    """As of_steps, entered under its name so that others may require it; the result makes it."""

    def make() -> Pass:
        return of_steps(name, opt_level, steps, evaluate)

    _REGISTERED[name] = make
    return make


def print_ir(header: str = "", show_meta_data: bool = False) -> Pass:
    """A pass that prints the module on standard error and changes nothing."""

    def show(mod: IRModule, ctx: PassContext) -> IRModule:
        print(f"{header}\n{astext(mod, show_meta_data)}", file=sys.stderr)
        return mod

    return ModulePass(show, PassInfo(0, "PrintIR"))


def module_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> Any:
    """Decorate a function (mod, ctx) -> mod, or a class with transform_module(self, mod, ctx).

    `opt_level` must be given, as in TVM (ValueError else); `name` is the function's own by default.
    A decorated class makes passes: `Cls(*args)`.
    """
    return _decorator(ModulePass, "transform_module", pass_func, opt_level, name, required)


def function_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> Any:
    """Decorate a function (func, mod, ctx) -> func, or a class with transform_function(self, func, mod, ctx).

    Otherwise as module_pass.
    """
    return _decorator(FunctionPass, "transform_function", pass_func, opt_level, name, required)


def _decorator(
    kind: Callable[[Any, PassInfo], Pass],
    method: str,
    subject: Any,
    opt_level: int | None,
    name: str | None,
    required: Sequence[str] | None,
) -> Any:
    if opt_level is None:
        raise ValueError("please give opt_level: the level from which the pass runs")

    def decorate(given: Any) -> Any:
        info = PassInfo(opt_level, name or given.__name__, tuple(required or ()))
        if not inspect.isclass(given):
            return kind(given, info)
        if not hasattr(given, method):
            raise TypeError(f"{given.__name__} must have the method {method}")

        @functools.wraps(given, updated=())
        def make(*args: Any, **named: Any) -> Pass:
            return kind(getattr(given(*args, **named), method), info)

        return make

    return decorate if subject is None else decorate(subject)


__all__ = [
    "FunctionPass", "ModulePass", "Pass", "PassContext", "PassInfo", "PassInstrument", "PassTimingInstrument",
    "Sequential", "builtin", "function_pass", "module_pass", "of_steps", "print_ir", "registered",
]  # fmt: skip

explain_arguments(globals(), __all__)
