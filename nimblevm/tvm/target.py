"""tvm.target: what to compile for."""

from __future__ import annotations


class Target(str):
    """A target is its text: "llvm", "llvm -mcpu=x86-64-v3"."""

    __slots__ = ()

    def __new__(cls, target: str, host: str | None = None) -> Target:
        return super().__new__(cls, target)


__all__ = ["Target"]
