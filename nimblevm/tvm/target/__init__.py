"""tvm.target: what to compile for."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from nimblevm.arguments import explain_arguments, shown
from nimblevm.errors import InvalidInput, InvalidInputType
from nimblevm.tvm.absent import TARGET, explain_absent

_CURRENT: ContextVar[tuple[Target, ...]] = ContextVar("targets", default=())
_HOSTS = ("llvm", "native", "c", "cpu")
_DEVICES = ("cuda", "opencl")
# LLVM's names of CPUs that scripts give, by the level that they have.
_LEVELS = {
    "x86-64-v2": ("nehalem", "corei7", "westmere", "sandybridge", "ivybridge"),
    "x86-64-v3": ("haswell", "broadwell", "skylake", "core-avx2", "znver1", "znver2", "znver3", "alderlake"),
    "x86-64-v4": ("skylake-avx512",),
    "x86-64-v4-vnni": (
        "cascadelake", "cooperlake", "icelake-server", "icelake-client", "sapphirerapids", "znver4", "znver5",
    ),
    "aarch64": ("cortex-a53", "cortex-a72", "cortex-a76", "neoverse-n1", "neoverse-v1", "apple-m1", "apple-m2"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TargetKind:
    """The first word of a target."""

    name: str

    def __str__(self) -> str:
        return self.name


class Target(str):
    """A target is its text: "llvm", "llvm -mcpu=x86-64-v3", "cuda". In a `with` it is the current one.

    target   a text, or its options by name: {"kind": "llvm", "mcpu": "haswell"}
    host     as target_host of `places`
    """

    __slots__ = ()

    def __new__(cls, target: str | Mapping[str, Any], host: str | None = None) -> Target:
        if isinstance(target, Mapping):
            options = [f"-{k}={_option(v)}" for k, v in target.items() if k != "kind"]
            target = " ".join([str(target.get("kind", "llvm")), *options])
        if not isinstance(target, str):
            raise InvalidInputType(f'a target is a text such as "llvm", not {shown(target)}')
        if host is not None:
            places(target, host)
        return super().__new__(cls, target)

    @property
    def kind(self) -> TargetKind:
        """Its first word."""
        return TargetKind(self.split(" ")[0])

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The innermost target of a `with`; None, or InvalidInput without allow_none, if there is none."""
        if not _CURRENT.get() and not allow_none:
            raise InvalidInput("there is no current target; with tvm.target.Target(...): makes one")
        return _CURRENT.get()[-1] if _CURRENT.get() else None

    def __enter__(self) -> Target:
        _CURRENT.set((*_CURRENT.get(), self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _CURRENT.set(_CURRENT.get()[:-1])


def cuda(*_: Any, **__: Any) -> Target:
    """The target of NVIDIA's GPUs; models and options decide nothing here."""
    return Target("cuda")


def _option(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def places(target: Any, target_host: Any = None) -> tuple[str, str | None]:
    """What nvm.compile calls a target of TVM's: (target, device).

    target        a text, a Target, or a mapping or list that holds one; None: the current one, else this machine.
                  Its options but -mcpu and -mtriple decide nothing
    target_host   None, or a target with the same CPU: there is one for host code and kernels
    Raises InvalidInput for what is neither this CPU, a level or CPU that is known, "cuda" nor "opencl".
    """
    if target_host is not None:
        found, host = places(target), places(target_host)
        if host not in (("native", None), (found[0], None)):
            raise InvalidInput(
                f"target_host {str(target_host)!r}: the host runs {found[0]} code, as the target says"
            )
        return found
    if target is None:
        target = Target.current() or "llvm"
    if isinstance(target, Mapping) and "kind" not in target:  # a target by device
        target = list(target.values())
    if isinstance(target, list | tuple):
        if len(target) != 1:
            raise InvalidInput(
                f"target: one, not {len(target)}; nvm.compile(device='opencl,cuda') takes several"
            )
        target = target[0]
    words = str(Target(target)).split() or ["llvm"]
    if words[0] in _DEVICES:
        return "native", words[0]
    if words[0] not in _HOSTS:
        raise InvalidInput(
            f"target {str(target)!r}: here are code for CPUs, 'llvm' or 'llvm -mcpu=x86-64-v3', and the devices "
            f"{' and '.join(_DEVICES)}"
        )
    for word in words[1:]:
        if word.startswith("-mcpu="):
            name = word.removeprefix("-mcpu=")
            return next((level for level, names in _LEVELS.items() if name in names), name), None
    return ("aarch64" if any("aarch64" in word for word in words[1:]) else "native"), None


__all__ = ["Target", "TargetKind", "cuda", "places"]

explain_arguments(globals(), __all__)

__getattr__ = explain_absent(__name__, TARGET, __all__)
