"""A program as assembler text (the language of assembler.py): walks the instruction table, knows
no opcode.

assemble(disassemble(program, data=True)) serializes to the same bytes, for programs whose tables
were interned by ProgramBuilder. Without `data` long data is left out, for people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nimblevm import dtypes
from nimblevm.bytecode import isa
from nimblevm.bytecode import serialize as s
from nimblevm.bytecode.isa import Kind

KERNEL_WORDS = ("ir", "c", "external")
ROLE_WORDS = ("in", "out", "scratch")
AXIS_WORDS = ("", "dim ", "expr ")
SHORT_DATA = 32
"""Bytes of data that are shown even without `data`."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def quote(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def name_text(sigil: str, name: str) -> str:
    """@main, or @"odd name"."""
    return sigil + (name if _PLAIN_NAME.fullmatch(name) else quote(name))


def _list(items: Iterator[str] | Sequence[str]) -> str:
    return "[" + ", ".join(items) + "]"


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _hex(data: object, full: bool) -> str:
    view = memoryview(data)  # type: ignore[arg-type]
    if full or view.nbytes <= SHORT_DATA:
        return f'hex "{view.hex()}"'
    return f'hex "{view[:SHORT_DATA].hex()}" ; ... {view.nbytes} bytes'


def _type(words: Sequence[int]) -> str:
    kind, rest = words[0], words[1:]
    if kind == s.TYPE_TENSOR:
        dims = (str(d) if d >= 0 else "?" if d == s.UNKNOWN_DIM else f"${-2 - d}" for d in rest[1:])
        return f"Tensor[({', '.join(dims)}), {dtypes.BY_NUMBER[rest[0]].name}]"
    if kind == s.TYPE_VAR:
        return f"Var[{rest[0]}]"
    if kind == s.TYPE_ADT:
        return "Adt" + _list([str(rest[0]), *(f"t{t}" for t in rest[1:])])
    word = {s.TYPE_TUPLE: "Tuple", s.TYPE_FUNC: "Fn", s.TYPE_REF: "Ref"}[kind]
    return word + _list([f"t{t}" for t in rest])


def _tables(program: s.ProgramRecord, data: bool) -> Iterator[str]:
    for key, value in program.producer.items():
        yield f".producer {quote(key)} {quote(value)}"
    for device in program.devices:
        yield f".device {quote(device)}"
    for i, source in enumerate(program.sources):
        yield f".source {quote(source)} ; s{i}"
    for i, note in enumerate(program.notes[1:], 1):
        yield f".note {quote(note.text)} {note.source} {note.line} {note.column} ; n{i}"
    for adt in program.adts:
        names = program.constructors[adt.first : adt.first + adt.count]
        yield f".adt {quote(adt.name)} {adt.type_params} {_list([quote(c.name) for c in names])}"
    for i, words in enumerate(program.types):
        yield f".type {_type(words)} ; t{i}"
    for i, c in enumerate(program.constructors[1:], 1):
        if c.fields:
            yield f".fields #{i} {_list([f't{t}' for t in c.fields])} ; {_comment(c.name)}"
    for w in program.weights:
        dims, name = _list([str(d) for d in w.dims]), dtypes.BY_NUMBER[w.dtype].name
        yield f'.weight {quote(w.name)} {name} {dims} "{w.digest.hex()}"'
    if program.weights_file:
        yield f".weights_file {quote(program.weights_file)}"
    for i, constant in enumerate(program.constants):
        dims = _list([str(d) for d in constant.dims])
        device = f" dev{constant.device}" if constant.device else ""
        name = dtypes.BY_NUMBER[constant.dtype].name
        if constant.weight >= 0:
            layout = _list([str(word) for word in constant.layout])
            weight = quote(program.weights[constant.weight].name)
            yield f".const {name} {dims}{device} of {weight} {layout} ; c{i}"
            continue
        yield f".const {name} {dims}{device} {_hex(constant.data, data)} ; c{i}"
    for section in program.sections:
        yield f".section {section.kind} {quote(section.target)} {_hex(section.data, data)}"


def _kernel(index: int, kernel: s.KernelRecord, data: bool) -> Iterator[str]:
    yield f".kernel {quote(kernel.name)} {KERNEL_WORDS[kernel.kind]} ; k{index}"
    if kernel.dims:
        yield f"  .dims {_list([quote(d) for d in kernel.dims])}"
    if kernel.attrs:
        yield f"  .attrs {_list([str(a) for a in kernel.attrs])}"
    if kernel.exprs:
        yield f"  .exprs {_list([str(e) for e in kernel.exprs])}"
    for operand in kernel.operands:
        axes = _list(
            [
                AXIS_WORDS[a.kind] + str(a.value) + (" broadcast" if a.broadcast else "")
                for a in operand.axes
            ]
        )
        alias = f" alias {operand.alias - 1}" if operand.alias else ""
        name = dtypes.BY_NUMBER[operand.dtype].name
        yield f"  .{ROLE_WORDS[operand.role]} {name} {axes}{alias}"
    if kernel.out_dims:
        yield f"  .out_dims {kernel.out_dims}"
    if kernel.may_fail:
        yield "  .may_fail"
    if kernel.native >= 0:
        yield f"  .native {kernel.native}"
    if kernel.kind == s.KERNEL_LOOP_IR:
        yield f"  .ir {_hex(kernel.ir, data)}"
    yield ".end"


class _Instructions:
    """Decodes one function's code by walking the rows' operand kinds. by_name: entries of tables stand as what they
    are, not as numbers.
    """

    def __init__(
        self, program: s.ProgramRecord, code: Sequence[int], by_name: bool = False
    ) -> None:
        self.program = program
        self.code = code
        self.by_name = by_name
        self.labels: set[int] = set()
        self.lines: list[tuple[int, str]] = []
        self._comments: list[str] = []
        pc = 0
        while pc < len(code):
            row = isa.BY_NUMBER[code[pc]]
            self._comments = []
            words, pc_next = [], pc + 1
            for operand in row.operands:
                text, pc_next = self._operand(operand.kind, pc_next)
                words.append(text)
            line = f"{row.mnemonic} {', '.join(words)}"
            if self._comments:
                line = f"{line:<40} ; {'; '.join(self._comments)}"
            self.lines.append((pc, line))
            pc = pc_next

    def _operand(self, kind: Kind, at: int) -> tuple[str, int]:
        code = self.code
        if kind is Kind.IMM64:
            value = code[at] | code[at + 1] << 32
            return str(value - (1 << 64) if value >> 63 else value), at + 2
        element = isa.LIST_ELEMENT.get(kind)
        if element is None:
            return self._word(kind, code[at]), at + 1
        end = at + 1 + code[at]
        return _list([self._word(element, word) for word in code[at + 1 : end]]), end

    def _word(self, kind: Kind, word: int) -> str:
        low = word & ~isa.INT_BIT
        is_int = word != low
        match kind:
            case Kind.INT_IN | Kind.INT_OUT:
                return f"i{word}"
            case Kind.OBJ_IN | Kind.OBJ_OUT:
                return f"r{word}"
            case Kind.OBJ_OPT:
                return "_" if word == isa.NO_REGISTER else f"r{word}"
            case Kind.ANY_IN | Kind.ANY_OUT:
                return f"i{low}" if is_int else f"r{word}"
            case Kind.DIM:
                return f"i{low}" if is_int else str(word)
            case Kind.LABEL:
                self.labels.add(word)
                return f"L{word}"
            case Kind.DTYPE:
                return dtypes.BY_NUMBER[word].name
            case Kind.DEVICE:
                return f"dev{word}"
            case Kind.FUNC:
                return name_text("@", self.program.functions[word].name)
            case Kind.IMM:
                return str(word)
            case _:
                return self._table_entry(kind, word)

    def _table_entry(self, kind: Kind, word: int) -> str:
        """An index into a table whose entry's text goes into the comment."""
        if self.by_name:
            return _entry_by_name(self.program, kind, word)
        program = self.program
        match kind:
            case Kind.CONST:
                constant = program.constants[word]
                name = dtypes.BY_NUMBER[constant.dtype].name
                sigil, text = "c", f"{name} {_list([str(d) for d in constant.dims])}"
            case Kind.KERNEL:
                sigil, text = "k", program.kernels[word].name
            case Kind.NOTE:
                sigil, text = "n", program.notes[word].text
            case Kind.CTOR:
                sigil, text = "#", program.constructors[word].name or "tuple"
            case _:
                raise TypeError(f"operand kind {kind} has no text")
        if text:
            self._comments.append(_comment(text))
        return f"{sigil}{word}"


def _entry_by_name(program: s.ProgramRecord, kind: Kind, word: int) -> str:
    match kind:
        case Kind.CONST:
            return constant_text(program.constants[word])
        case Kind.KERNEL:
            return quote(program.kernels[word].name)
        case Kind.NOTE:
            return quote(program.notes[word].text)
        case Kind.CTOR:
            return quote(program.constructors[word].name or "tuple")
        case _:
            raise TypeError(f"operand kind {kind} has no text")


def constant_text(constant: s.ConstantRecord) -> str:
    """float32[3, 4]; a small one with its bytes."""
    name = dtypes.BY_NUMBER[constant.dtype].name
    view = memoryview(constant.data)
    data = f" = hex {view.hex()}" if view.nbytes <= SHORT_DATA else ""
    return f"{name}{_list([str(d) for d in constant.dims]) if constant.dims else ''}{data}"


@dataclass(frozen=True, slots=True)
class CodeLine:
    """One instruction: the word that it starts at, whether jumps go there, its text, and its place ("" and 0 if
    unknown).
    """

    pc: int
    is_target: bool
    text: str
    source: str
    line: int


def code_lines(
    program: s.ProgramRecord, f: s.FunctionRecord, by_name: bool = False
) -> list[CodeLine]:
    """The instructions of a function, for people. by_name: entries of tables stand as what they are, without comments,
    so that lines of two programs can be compared.
    """
    code = _Instructions(program, f.code, by_name)
    made: list[CodeLine] = []
    at = 0
    source, line = "", 0
    for pc, text in code.lines:
        while at < len(f.spans) and f.spans[at].pc <= pc:
            span = f.spans[at]
            source, line = (
                (program.sources[span.source], span.line) if span.source >= 0 else ("", 0)
            )
            at += 1
        made.append(CodeLine(pc, pc in code.labels, text, source, line))
    return made


def _function(program: s.ProgramRecord, f: s.FunctionRecord) -> Iterator[str]:
    params = _list(
        [f"{name_text('%', p.name)}: {'int ' if p.is_int else ''}t{p.type}" for p in f.params]
    )
    result = f"{'int ' if f.result_is_int else ''}t{f.result}"
    public = " public" if f.public else ""
    yield f".func {name_text('@', f.name)}{public} {params} -> {result}"
    yield f"  .regs {f.ints} {f.objs}"
    for dim in f.dims:
        yield f"  .dim {quote(dim.name)} {dim.param} {_list([str(w) for w in dim.program])}"
    for checked in f.checked:
        yield f"  .checked {checked.param} {checked.axis} {quote(checked.text)}"
    code = _Instructions(program, f.code)
    spans = iter(f.spans)
    span = next(spans, None)
    for pc, line in [*code.lines, (len(f.code), "")]:
        while span is not None and span.pc <= pc:
            place = f"@{span.pc} " if span.pc != pc else ""
            where = ""
            if span.source >= 0:
                source = _comment(program.sources[span.source])
                where = f" ; {source}:{span.line}:{span.column}"
            yield f"  .span {place}{span.source} {span.line} {span.column}{where}"
            span = next(spans, None)
        if pc in code.labels:
            yield f"L{pc}:"
        if line:
            yield f"  {line}"
    yield ".end"


def disassemble(program: s.ProgramRecord, data: bool = False) -> str:
    """Assembler text of a program. data: with all of constants, kernel IR and other sections as
    hex.
    """
    lines = ["; nvmasm 1", *_tables(program, data)]
    for i, kernel in enumerate(program.kernels):
        lines += ["", *_kernel(i, kernel, data)]
    for f in program.functions:
        lines += ["", *_function(program, f)]
    return "\n".join(lines) + "\n"
