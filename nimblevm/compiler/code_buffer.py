"""Instructions under construction: words, labels to be patched, and places in the source."""

from __future__ import annotations

from collections.abc import Sequence

from nimblevm.bytecode import isa
from nimblevm.bytecode.serialize import ProgramBuilder, SpanEntry
from nimblevm.errors import CompileError
from nimblevm.relay.ir import Span

_NUMBER = {row.mnemonic: row.number for row in isa.ISA}
MAX_REGISTERS = 1 << 20


class Label:
    """A place in the code, known once `CodeBuffer.place` has run."""

    __slots__ = ("offset", "uses")

    def __init__(self) -> None:
        self.offset = -1
        self.uses: list[int] = []


Word = int | Label | Sequence["int | Label"]


class CodeBuffer:
    """The code of one function."""

    def __init__(self, builder: ProgramBuilder) -> None:
        self.words: list[int] = []
        self.spans: list[SpanEntry] = []
        self._builder = builder
        self._last: Span | None = None

    def emit(self, mnemonic: str, *operands: Word) -> None:
        """Append an instruction; a sequence is written as its count and its words."""
        words = self.words
        words.append(_NUMBER[mnemonic])
        for operand in operands:
            if isinstance(operand, int):
                words.append(operand)
            elif isinstance(operand, Label):
                self._refer(operand)
            else:
                words.append(len(operand))
                for item in operand:
                    if isinstance(item, Label):
                        self._refer(item)
                    else:
                        words.append(item)

    def emit_imm64(self, dst: int, value: int) -> None:
        """LoadConsti dst value."""
        self.emit("LoadConsti", dst, value & 0xFFFFFFFF, (value >> 32) & 0xFFFFFFFF)

    def note(self, text: str) -> int:
        """Index of a note about the place that the next instruction comes from."""
        span = self._last
        if span is None:
            return self._builder.note(text)
        return self._builder.note(text, self._builder.source(span.source), span.line, span.column)

    def _refer(self, label: Label) -> None:
        if label.offset >= 0:
            self.words.append(label.offset)
        else:
            label.uses.append(len(self.words))
            self.words.append(0)

    def place(self, label: Label) -> None:
        """The label stands before the next instruction."""
        label.offset = len(self.words)
        for use in label.uses:
            self.words[use] = label.offset

    def at(self, span: Span | None) -> None:
        """The next instructions come from `span`; None keeps the place of those before."""
        if span is None or span is self._last:
            return
        self._last = span
        entry = SpanEntry(
            len(self.words), self._builder.source(span.source), span.line, span.column
        )
        if self.spans and self.spans[-1].pc == entry.pc:
            self.spans.pop()
        self.spans.append(entry)


class Registers:
    """One register file: numbers in use and free; the last freed is the first reused."""

    def __init__(self, first: int) -> None:
        self.count = first
        self._free: list[int] = []

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        self.count += 1
        if self.count > MAX_REGISTERS:
            raise CompileError(f"a function needs more than {MAX_REGISTERS} registers of one kind")
        return self.count - 1

    def give(self, register: int) -> None:
        self._free.append(register)
