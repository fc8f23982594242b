"""Assembler text -> program records. Walks the instruction table: a new instruction needs no line
here.

One statement a line; `;` starts a comment outside strings. Strings are JSON's.

    .producer "key" "value"                 .device "cpu"               .source "model.rly"
    .note "text" source line column         source: index or -1
    .adt "List" 1 ["Nil", "Cons"]           name, type parameters, constructors
    .type Tensor[(2, ?, $0), float32]       adds an entry to the type table; the entries are t0,
    t1, ... .fields #2 [t1, Adt["List", t1]]        field types of a constructor (by number or #"Cons")
    .const float32 [2, 3] hex "..."         or: values 1 2.5 ...; optionally dev1 before the data
    .weight "w" float32 [2, 3] ""           bound late: name, dtype, dims, SHA-256 in hex or ""
    .weights_file "w.safetensors"           where these lie
    .const float32 [3, 2] of "w" [0, 1, 3, 2, 1, 3, 0, 0]   base, limit, sizes, strides, steps
    .section 3 "target" hex "..."
    .kernel "name" ir                       or c, external; then lines .dims ["n"], .attrs [1],
    .exprs [..],   .in float32 [4, dim 0 broadcast]      .in .out .scratch: dtype, axes (size, dim
    k, expr k), alias k   .out_dims 1                           .may_fail   .native 0   .ir hex
    "..." .end
    .func @main public [%x: t0, %n: int int64] -> t0
      .regs 1 2                             int and object registers; left out: as many as are used
      .dim "n" 0 []   .checked 0 1 "text"   see docs/format.md
      .span 0 3 4                           place of what follows: source, line, column
    loop:
      CallKernel k0, [r0, r1], [i0, 4], []
      If i0, loop
    .end

Types: t<k>, a dtype (rank 0), Tensor[(dims), dtype], Tuple[T...], Adt[k or "name", T...],
Fn[result, T...], Ref[T], Var[k]. A dim is a size, ? or $slot. Operands are written by kind: i0 r0
_ (no register), 4, c0 @f k0 dev0 #1 (or #"Cons", #tuple), n0 or a string (a note), float32, a
label, lists in brackets.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import NoReturn, TypeVar

from nimblevm import dtypes
from nimblevm.bytecode import isa
from nimblevm.bytecode import serialize as s
from nimblevm.bytecode.disassembler import KERNEL_WORDS, ROLE_WORDS
from nimblevm.bytecode.isa import Kind
from nimblevm.errors import AssemblerError

_T = TypeVar("_T")
_TOKEN = re.compile(
    r'\s*(?:(?P<comment>;.*)|(?P<string>[@%#]?"(?:[^"\\]|\\.)*")|(?P<arrow>->)'
    r"|(?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?![A-Za-z_]))"
    r"|(?P<word>[.@%#$]?[A-Za-z0-9_][A-Za-z0-9_.]*|-inf\b)|(?P<mark>[\[\](),:?]))"
)
_PACK = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B",
    "uint16": "H", "uint32": "I", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
_MOST = 1 << 32
_MAX_NESTING = 100  # of a type in text; deeper ones are built from table entries


def _is_number(text: str) -> bool:
    """Whether a text is digits, not so many that int() refuses them."""
    return text.isascii() and text.isdigit() and len(text) <= 640


class _Line:
    """The tokens of one line, read from left to right."""

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.tokens: list[str] = []
        at = 0
        end = len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                self.fail(f"can't read {text[at:end][:30]!r}")
            if match.lastgroup == "comment":
                break
            self.tokens.append(match.group(match.lastgroup or 0))
            at = match.end()
        self.at = 0
        self.nesting = 0

    def fail(self, text: str) -> NoReturn:
        raise AssemblerError(f"line {self.number}: {text}")

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self, expected: str) -> str:
        if self.at == len(self.tokens):
            self.fail(f"expected {expected}, the line ends")
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.at += 1
        return True

    def expect(self, token: str) -> None:
        got = self.next(f"{token!r}")
        if got != token:
            self.fail(f"expected {token!r}, got {got!r}")

    def end(self) -> None:
        if self.at < len(self.tokens):
            self.fail(f"unexpected {self.peek()!r}")

    def integer(self, what: str, low: int = -(1 << 63), high: int = (1 << 63) - 1) -> int:
        token = self.next(what)
        try:
            value = int(token)
        except ValueError:
            self.fail(f"expected {what}, got {token!r}")
        if not low <= value <= high:
            self.fail(f"expected {what} of {low} .. {high}, got {value}")
        return value

    def string(self, what: str) -> str:
        token = self.next(what)
        if not token.startswith('"'):
            self.fail(f"expected {what} in quotes, got {token!r}")
        return self.unquote(token)

    def unquote(self, token: str) -> str:
        try:
            return str(json.loads(token))
        except ValueError as error:
            self.fail(f"bad string {token}: {error}")

    def name(self, sigil: str, what: str) -> str:
        token = self.next(what)
        if not token.startswith(sigil) or len(token) == 1:
            self.fail(f"expected {what} ({sigil}name), got {token!r}")
        return self.unquote(token[1:]) if token[1] == '"' else token[1:]

    def indexed(self, prefix: str, what: str, count: int = _MOST) -> int:
        """r12 -> 12."""
        token = self.next(what)
        digits = token.removeprefix(prefix)
        if digits == token or not _is_number(digits):
            self.fail(f"expected {what} ({prefix}0 ...), got {token!r}")
        if int(digits) >= count:
            self.fail(f"{what} {token}: there are {count}")
        return int(digits)

    def dtype(self) -> str:
        token = self.next("a dtype")
        if token not in dtypes.BY_NAME:
            self.fail(f"unknown dtype {token!r}; known: {', '.join(dtypes.BY_NAME)}")
        return token

    def items(self, read: Callable[[], _T], opening: str = "[", closing: str = "]") -> list[_T]:
        """A bracketed list; items are separated by commas."""
        self.expect(opening)
        out: list[_T] = []
        while not self.accept(closing):
            if out:
                self.expect(",")
                if self.accept(closing):
                    break
            out.append(read())
        return out

    def data(self, dtype: str, count: int) -> bytes:
        """hex "..." or values ..."""
        word = self.next("hex or values")
        if word == "hex":
            try:
                return bytes.fromhex(self.string("hex digits"))
            except ValueError as error:
                self.fail(f"bad hex digits: {error}")
        if word != "values":
            self.fail(f"expected hex or values, got {word!r}")
        is_float = dtypes.BY_NAME[dtype].is_float
        try:
            values = [(float if is_float else int)(self.next("a value")) for _ in range(count)]
            return struct.pack(f"<{count}{_PACK[dtype]}", *values)
        except (ValueError, struct.error, OverflowError) as error:
            self.fail(f"values do not fit {dtype}: {error}")


class _Code:
    """Words of one function; labels become word offsets at the end."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.labels: dict[str, int] = {}
        self.uses: list[tuple[int, str, _Line]] = []
        self.ints = 0
        self.objs = 0
        self.regs: tuple[int, int] | None = None
        self.dims: list[s.DimRecord] = []
        self.checked: list[s.CheckedRecord] = []
        self.spans: list[s.SpanEntry] = []

    def resolve(self) -> None:
        for at, label, line in self.uses:
            if label not in self.labels:
                line.fail(f"there is no label {label}")
            self.words[at] = self.labels[label]


class _Assembler:
    def __init__(self, text: str) -> None:
        lines = (_Line(i, raw) for i, raw in enumerate(text.splitlines(), 1))
        self.lines = [line for line in lines if line.tokens]
        self.builder = s.ProgramBuilder()
        self.builder.devices = []
        self.types: list[int] = []
        self.adts: dict[str, int] = {}
        self.constructors: dict[str, int] = {"tuple": 0}
        self.constants = 0
        self.functions: dict[str, int] = {}
        for line in self.lines:
            if line.tokens[0] == ".func":
                line.at = 1
                name = line.name("@", "a function name")
                if name in self.functions:
                    line.fail(f"two functions are named {name}")
                self.functions[name] = self.builder.declare_function()
                line.at = 0

    def run(self) -> s.ProgramRecord:
        directives: dict[str, Callable[[_Line], None]] = {
            ".producer": self._producer, ".device": self._device, ".source": self._source,
            ".note": self._note, ".adt": self._adt, ".type": self._type_entry, ".fields":
            self._fields, ".const": self._const, ".section": self._section,
            ".weight": self._weight, ".weights_file": self._weights_file,
        }  # fmt: skip
        lines = iter(self.lines)
        for line in lines:
            word = line.next("a directive")
            if word == ".kernel":
                self._kernel(line, lines)
            elif word == ".func":
                self._function(line, lines)
            elif word in directives:
                directives[word](line)
            else:
                line.fail(f"expected a directive, got {word!r}")
            line.end()
        self.builder.devices = self.builder.devices or ["cpu"]
        return self.builder.finish()

    # --- tables ---

    def _producer(self, line: _Line) -> None:
        key = line.string("a key")
        self.builder.producer[key] = line.string("a value")

    def _device(self, line: _Line) -> None:
        self.builder.devices.append(line.string("a device name"))

    def _source(self, line: _Line) -> None:
        self.builder.source(line.string("a source name"))

    def _note(self, line: _Line) -> None:
        text = line.string("a text")
        self.builder.note(text, *(line.integer(w) for w in ("a source", "a line", "a column")))

    def _adt(self, line: _Line) -> None:
        name, params = line.string("a name"), line.integer("type parameters", 0)
        constructors = line.items(lambda: line.string("a constructor name"))
        self.adts[name], first = self.builder.declare_adt(name, params, constructors)
        self.constructors.update((c, first + i) for i, c in enumerate(constructors))

    def _type_entry(self, line: _Line) -> None:
        self.types.append(self._type(line))

    def _fields(self, line: _Line) -> None:
        constructor = self._constructor(line)
        if constructor == 0:
            line.fail("the tuple has no declared fields")
        self.builder.define_constructor(constructor, line.items(lambda: self._type(line)))

    def _const(self, line: _Line) -> None:
        dtype = line.dtype()
        dims = line.items(lambda: line.integer("a dim", 0))
        device = line.indexed("dev", "a device") if line.peek().startswith("dev") else 0
        count = 1
        for dim in dims:
            count *= dim
        if line.accept("of"):
            weight, layout = line.string("a weight"), line.items(lambda: line.integer("a word", 0))
            self.builder.late_constant(dtype, dims, weight, layout, device)
        else:
            self.builder.constant(dtype, dims, line.data(dtype, count), device)
        self.constants += 1

    def _weight(self, line: _Line) -> None:
        name, dtype = line.string("a name"), line.dtype()
        dims = line.items(lambda: line.integer("a dim", 0))
        digest = line.string("a digest")
        try:
            self.builder.weight(name, dtype, dims, bytes.fromhex(digest))
        except ValueError as error:
            line.fail(f"bad digest: {error}")

    def _weights_file(self, line: _Line) -> None:
        self.builder.weights_file = line.string("a path")

    def _section(self, line: _Line) -> None:
        kind, target = line.integer("a section kind", 3, 5), line.string("a target")
        self.builder.sections.append(s.SectionRecord(kind, line.data("uint8", 0), target))

    def _type(self, line: _Line) -> int:
        line.nesting += 1
        if line.nesting > _MAX_NESTING:
            line.fail("a type nests too deep; use .type entries")
        index = self._type_index(line, line.next("a type"))
        line.nesting -= 1
        return index

    def _type_index(self, line: _Line, token: str) -> int:
        b = self.builder
        if token in dtypes.BY_NAME:
            return b.tensor_type(token)
        if token[0] == "t" and _is_number(token[1:]) and int(token[1:]) < len(self.types):
            return self.types[int(token[1:])]
        match token:
            case "Tensor":
                line.expect("[")
                dims = line.items(lambda: self._dim(line), "(", ")")
                line.expect(",")
                index = b.tensor_type(line.dtype(), dims)
                line.expect("]")
                return index
            case "Adt":
                line.expect("[")
                name = line.unquote(line.next("an ADT")) if line.peek()[:1] == '"' else None
                adt = (
                    line.integer("an ADT", 0) if name is None else self._named_adt(line, str(name))
                )
                args: list[int] = []
                while line.accept(","):
                    args.append(self._type(line))
                line.expect("]")
                return b.adt_type(adt, args)
            case "Var":
                return b.type_var(self._single(line, lambda: line.integer("a type variable", 0)))
            case "Tuple":
                return b.tuple_type(line.items(lambda: self._type(line)))
            case "Ref":
                return b.ref_type(self._single(line, lambda: self._type(line)))
            case "Fn":
                pass
            case _:
                line.fail(f"expected a type, got {token!r}")
        parts = line.items(lambda: self._type(line))
        if not parts:
            line.fail("a function type needs a result")
        return b.func_type(parts[0], parts[1:])

    @staticmethod
    def _single(line: _Line, read: Callable[[], int]) -> int:
        line.expect("[")
        value = read()
        line.expect("]")
        return value

    def _named_adt(self, line: _Line, name: str) -> int:
        if name not in self.adts:
            line.fail(f"there is no ADT {name}")
        return self.adts[name]

    def _dim(self, line: _Line) -> int:
        if line.accept("?"):
            return s.UNKNOWN_DIM
        if line.peek().startswith("$"):
            return s.dim_slot(line.indexed("$", "a dim slot"))
        return line.integer("a dim", 0)

    def _constructor(self, line: _Line) -> int:
        name = line.name("#", "a constructor")
        if _is_number(name):
            return int(name)
        if name not in self.constructors:
            line.fail(f"there is no constructor {name}")
        return self.constructors[name]

    # --- kernels ---

    def _kernel(self, first: _Line, lines: Iterator[_Line]) -> None:
        name, word = first.string("a kernel name"), first.next("ir, c or external")
        if word not in KERNEL_WORDS:
            first.fail(f"expected ir, c or external, got {word!r}")
        first.end()
        operands: list[s.OperandRecord] = []
        dims: list[str] = []
        numbers: dict[str, list[int]] = {".attrs": [], ".exprs": []}
        out_dims, may_fail, native, ir = 0, False, -1, b""
        for line in lines:
            directive = line.next("a directive")
            match directive:
                case ".end":
                    break
                case ".dims":
                    dims = line.items(partial(line.string, "a dim name"))
                case ".attrs" | ".exprs":
                    numbers[directive] = line.items(partial(line.integer, "a number"))
                case ".in" | ".out" | ".scratch":
                    operands.append(self._operand(line, ROLE_WORDS.index(directive[1:])))
                case ".out_dims":
                    out_dims = line.integer("a number", 0)
                case ".may_fail":
                    may_fail = True
                case ".native":
                    native = line.integer("an index", 0)
                case ".ir":
                    ir = line.data("uint8", 0)
                case _:
                    line.fail(f"expected a directive of a kernel, got {directive!r}")
            line.end()
        else:
            first.fail("the kernel has no .end")
        self.builder.kernel(
            s.KernelRecord(
                name, KERNEL_WORDS.index(word), tuple(operands), tuple(numbers[".exprs"]),
                tuple(dims), tuple(numbers[".attrs"]), out_dims, may_fail, ir, native,
            )
        )  # fmt: skip

    def _operand(self, line: _Line, role: int) -> s.OperandRecord:
        def axis() -> s.AxisRecord:
            kind = s.AXIS_CONST
            if line.peek() in ("dim", "expr"):
                kind = s.AXIS_DIM if line.next("an axis") == "dim" else s.AXIS_EXPR
            return s.AxisRecord(kind, line.integer("an axis", 0), line.accept("broadcast"))

        dtype = dtypes.BY_NAME[line.dtype()].number
        axes = line.items(axis)
        alias = 1 + line.integer("an operand", 0) if line.accept("alias") else 0
        return s.OperandRecord(role, dtype, tuple(axes), alias)

    # --- functions ---

    def _function(self, first: _Line, lines: Iterator[_Line]) -> None:
        def param() -> s.ParamRecord:
            name = first.name("%", "a parameter name")
            first.expect(":")
            is_int = first.accept("int")
            return s.ParamRecord(name, self._type(first), is_int)

        name = first.name("@", "a function name")
        public = first.accept("public")
        params = first.items(param)
        first.expect("->")
        result_is_int = first.accept("int")
        result = self._type(first)
        first.end()
        code = _Code()
        code.ints = sum(p.is_int for p in params)
        code.objs = len(params) - code.ints
        for line in lines:
            word = line.next("an instruction")
            if word == ".end":
                line.end()
                break
            self._function_line(line, word, code)
            line.end()
        else:
            first.fail("the function has no .end")
        code.resolve()
        ints, objs = code.regs or (code.ints, code.objs)
        record = s.FunctionRecord(
            name, tuple(params), result, ints, objs, code.words, result_is_int, public,
            tuple(code.dims), tuple(code.checked), tuple(code.spans),
        )  # fmt: skip
        self.builder.define_function(self.functions[name], record)

    def _function_line(self, line: _Line, word: str, code: _Code) -> None:
        match word:
            case ".regs":
                code.regs = line.integer("int registers", 0), line.integer("object registers", 0)
            case ".dim":
                code.dims.append(self._dim_record(line))
            case ".checked":
                place = line.integer("a parameter", 0), line.integer("an axis", 0)
                code.checked.append(s.CheckedRecord(*place, line.string("a text")))
            case ".span":
                code.spans.append(self._span(line, len(code.words)))
            case _ if line.accept(":"):
                if word in code.labels:
                    line.fail(f"label {word} occurs twice")
                code.labels[word] = len(code.words)
            case _:
                self._instruction(line, word, code)

    def _dim_record(self, line: _Line) -> s.DimRecord:
        name, param = line.string("a dim name"), line.integer("a parameter or -1", -1)
        return s.DimRecord(name, param, tuple(line.items(lambda: line.integer("a number"))))

    def _span(self, line: _Line, pc: int) -> s.SpanEntry:
        if line.peek().startswith("@"):
            pc = line.indexed("@", "a word offset")
        source, at, column = (line.integer(w, -1) for w in ("a source", "a line", "a column"))
        return s.SpanEntry(pc, source, at, column)

    def _instruction(self, line: _Line, mnemonic: str, code: _Code) -> None:
        row = isa.BY_MNEMONIC.get(mnemonic)
        if row is None:
            line.fail(f"unknown instruction {mnemonic!r}")
        code.words.append(row.number)
        for i, operand in enumerate(row.operands):
            if i > 0:
                line.expect(",")
            kind = operand.kind
            if kind is Kind.IMM64:
                value = line.integer(operand.name) & (1 << 64) - 1
                code.words += [value & 0xFFFFFFFF, value >> 32]
            elif kind in isa.LIST_ELEMENT:
                at = len(code.words)
                code.words.append(0)
                element = isa.LIST_ELEMENT[kind]
                code.words[at] = len(line.items(partial(self._word, line, element, code)))
            else:
                self._word(line, kind, code)

    def _word(self, line: _Line, kind: Kind, code: _Code) -> None:
        """Read one operand of one word and append it."""
        token = line.peek()
        code.words.append(0)
        at = len(code.words) - 1
        match kind:
            case Kind.INT_IN | Kind.INT_OUT:
                word = self._int_register(line, code)
            case Kind.OBJ_OPT if line.accept("_"):
                word = isa.NO_REGISTER
            case Kind.OBJ_IN | Kind.OBJ_OUT | Kind.OBJ_OPT:
                word = self._obj_register(line, code)
            case Kind.ANY_IN | Kind.ANY_OUT if token.startswith("i"):
                word = self._int_register(line, code) | isa.INT_BIT
            case Kind.ANY_IN | Kind.ANY_OUT:
                word = self._obj_register(line, code)
            case Kind.DIM if token.startswith("i"):
                word = self._int_register(line, code) | isa.INT_BIT
            case Kind.DIM:
                word = line.integer("a size", 0, isa.INT_BIT - 1)
            case Kind.IMM:
                word = line.integer("a number", 0, _MOST - 1)
            case Kind.LABEL:
                word = 0
                code.uses.append((at, line.next("a label"), line))
            case _:
                word = self._table_word(line, kind, token)
        code.words[at] = word

    def _int_register(self, line: _Line, code: _Code) -> int:
        index = line.indexed("i", "an int register", isa.INT_BIT)
        code.ints = max(code.ints, index + 1)
        return index

    def _obj_register(self, line: _Line, code: _Code) -> int:
        index = line.indexed("r", "an object register", isa.INT_BIT)
        code.objs = max(code.objs, index + 1)
        return index

    def _table_word(self, line: _Line, kind: Kind, token: str) -> int:
        match kind:
            case Kind.CONST:
                return line.indexed("c", "a constant")
            case Kind.KERNEL:
                return line.indexed("k", "a kernel")
            case Kind.DEVICE:
                return line.indexed("dev", "a device")
            case Kind.CTOR:
                return self._constructor(line)
            case Kind.NOTE if token.startswith('"'):
                return self.builder.note(line.string("a note"))
            case Kind.NOTE:
                return line.indexed("n", "a note")
            case Kind.DTYPE:
                return dtypes.BY_NAME[line.dtype()].number
            case Kind.FUNC:
                name = line.name("@", "a function")
                if name not in self.functions:
                    line.fail(f"there is no function @{name}")
                return self.functions[name]
            case _:
                raise TypeError(f"operand kind {kind} has no syntax")


def assemble(text: str) -> s.ProgramRecord:
    """The program that assembler text describes. Raises AssemblerError with the line; what the
    text says is checked only as far as it must be to write it: loading the bytes checks the
    program."""
    return _Assembler(text).run()
