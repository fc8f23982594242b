"""Dim expressions as integer instructions: each computed at most once in the blocks where it is
known.
"""

from __future__ import annotations

from nimblevm.compiler.code_buffer import CodeBuffer, Registers
from nimblevm.errors import CompileError
from nimblevm.relay.dims import Dim, DimExpr, DimOp, DimVar
from nimblevm.relay.text import dim_text

INT_BIT = 1 << 31
_INSTRUCTION = {
    "add": "DimAdd", "mul": "DimMul", "floordiv": "DimFloorDiv", "floormod": "DimFloorMod",
    "min": "DimMin", "max": "DimMax",
}  # fmt: skip


class DimEmitter:
    """Numbers of dims at the current place. `mark` and `rollback` delimit blocks: what a branch
    computed ends with it.
    """

    def __init__(self, code: CodeBuffer, ints: Registers) -> None:
        self.code = code
        self.ints = ints
        # How to compute variables that no value has as an axis (Liveness.defined).
        self.defined: dict[DimVar, tuple[Dim, dict[DimVar, Dim]]] = {}
        self.known: dict[DimExpr, int] = {}  # expression -> DIM word
        self._log: list[tuple[DimExpr, bool]] = []

    def mark(self) -> int:
        return len(self._log)

    def rollback(self, mark: int) -> None:
        while len(self._log) > mark:
            dim, owned = self._log.pop()
            word = self.known.pop(dim)
            if owned:
                self.ints.give(word & ~INT_BIT)

    def bind(self, dim: DimExpr, register: int, owned: bool = True) -> None:
        """From here on the int register holds the dim."""
        self.known[dim] = register | INT_BIT
        self._log.append((dim, owned))

    def word(self, dim: Dim) -> int:
        """The operand that stands for a dim, computed if need be. Depth is bounded by
        dims.MAX_DEPTH.
        """
        if isinstance(dim, int):
            return self._immediate(dim)
        found = self.known.get(dim)
        if found is not None:
            return found
        if isinstance(dim, DimVar) and dim in self.defined:
            return self._define(dim)
        if isinstance(dim, DimVar) or not isinstance(dim, DimOp):
            raise CompileError(
                f"dim {dim!r} has no number at this place: no value here has it as an axis; "
                "write ? for a size that nothing else names"
            )
        register = self._compute(dim)
        self.bind(dim, register)
        return register | INT_BIT

    def _define(self, dim: DimVar) -> int:
        expression, parts = self.defined[dim]
        for variable, part in parts.items():
            if variable not in self.known:
                # Operands' own sizes, which are known (or defined one step earlier).
                self.known[variable] = self.word(part)
                self._log.append((variable, False))
        word = self.word(expression)
        self.known[dim] = word
        self._log.append((dim, False))
        return word

    def _immediate(self, value: int) -> int:
        if 0 <= value < INT_BIT:
            return value
        register = self.ints.take()
        self.code.emit_imm64(register, value)
        # Lives as long as the block: remembered under an expression of its own.
        self.bind(DimVar(), register)
        return register | INT_BIT

    def _compute(self, dim: DimOp) -> int:
        left = self.word(dim.args[0])
        register = -1
        for arg in dim.args[1:]:
            mnemonic = _INSTRUCTION.get(dim.op)
            if dim.op == "add" and isinstance(arg, int) and arg < 0:
                mnemonic, arg = "DimSub", -arg
            right = self.word(arg)
            if register < 0:
                register = self.ints.take()
            if mnemonic is None:
                self.code.emit("Broadcast", register, left, right, self.code.note(dim_text(dim)))
            else:
                self.code.emit(mnemonic, register, left, right)
            left = register | INT_BIT
        return register
