"""PTX -> C, one function an entry that runs one thread of a grid, for machines without a GPU: what LLVM made is run, not
what it was made from. Instructions are those that LLVM writes for loop IR; any other is an error.

Registers are unsigned integers of their width, floats as bits. An entry with barriers keeps its registers in memory and
returns at a barrier, to be called again when all threads of its group have come there (`resume`); shared and local
addresses are those of this process, global ones go through ptx_global, which checks them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

WIDTH = {"pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "b32": 32, "u32": 32,
         "s32": 32, "f32": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64}  # fmt: skip
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">",
           "hs": ">="}  # fmt: skip
UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
SPECIAL = re.compile(r"^%(tid|ctaid|ntid|nctaid)\.([xyz])$")
ROUND = {"rni": "nearbyint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def c_type(kind: str) -> str:
    """The C type of a PTX type."""
    match kind:
        case "pred":
            return "int"
        case "f32" | "f16":  # one operation on halves, done on floats, rounds as if done on halves
            return "float"
        case "f64":
            return "double"
    width = WIDTH[kind]
    return f"{'' if kind[0] == 's' else 'u'}int{width}_t"


@dataclass
class Function:
    """What is known of one .entry or .func."""

    name: str
    entry: bool
    params: list[str]
    result: str | None
    registers: dict[str, tuple[str, int]] = field(default_factory=dict)  # prefix -> type, count
    arrays: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # space, align, bytes
    reqntid: tuple[int, ...] = (0, 0, 0)
    barriers: int = 0
    inner: set[str] = field(default_factory=set)  # parameters of calls
    tables: dict[str, list[str]] = field(default_factory=dict)  # of brx.idx


class Translator:
    """One module."""

    def __init__(self, ptx: str) -> None:
        self.text = re.sub(r"/\*.*?\*/", "", re.sub(r"//[^\n]*", "", ptx), flags=re.DOTALL)
        self.shared: dict[str, tuple[int, int]] = {}  # of the module: align, bytes
        self.f = Function("", entry=True, params=[], result=None)

    def c(self) -> str:
        """The C source of the module, which exports `ptx_module`."""
        out = ['#include "ptx_machine.h"', ""]
        entries: list[tuple[Function, int]] = []
        for match in re.finditer(
            r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+(\w[\w$.]*)\[(\d+)\];", self._outside()
        ):
            self.shared[match[2]] = (int(match[1]), int(match[3]))
        found = list(self._functions())
        for function, _ in found:
            if not function.entry:
                out.append(
                    f"static uint64_t f_{_id(function.name)}(ptx_thread *t, const uint64_t *args);"
                )
        for function, body in found:
            self.f = function
            lines, shared = self._function(body)
            out += lines
            if function.entry:
                entries.append((function, shared))
        out.append(
            f'__attribute__((visibility("default"))) const ptx_module ptx_exported = {{{len(entries)}, {{'
        )
        for function, shared in entries:
            state = f"sizeof(struct r_{_id(function.name)})" if function.barriers else "0"
            sizes = ", ".join(map(str, function.reqntid))
            out.append(
                f'  {{"{function.name}", {len(function.params)}, {shared}, {state}, {function.barriers}, '
                f"{{{sizes}}}, k_{_id(function.name)}}},"
            )
        return "\n".join([*out, "}};", ""])

    def _outside(self) -> str:
        """The text outside of function bodies."""
        return re.sub(r"\{.*?^\}", "", self.text, flags=re.DOTALL | re.MULTILINE)

    def _functions(self) -> Iterator[tuple[Function, str]]:
        head = re.compile(
            r"^(?:\.visible |\.weak )?\.(entry|func)\s*(?:\(([^)]*)\))?\s*([\w$]+)\s*\(([^)]*)\)([^{;]*)\{(.*?)^\}",
            re.DOTALL | re.MULTILINE,
        )
        for match in head.finditer(self.text):
            params = [p.split()[-1] for p in match[4].split(",") if p.strip()]
            result = match[2].split()[-1] if match[2] else None
            function = Function(match[3], match[1] == "entry", params, result)
            size = re.search(r"\.reqntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", match[5])
            if size:
                function.reqntid = tuple(int(n or 1) for n in size.groups())
            yield function, match[6]

    def _function(self, body: str) -> tuple[list[str], int]:
        f = self.f
        f.barriers = len(re.findall(r"\bbar(?:rier)?\.sync", body)) if f.entry else 0
        code: list[str] = []
        for statement in self._statements(body):
            code.append(self._statement(statement))
        name = _id(f.name)
        out: list[str] = []
        registers = [
            f"  {_register_type(kind)} {_id(prefix)}[{count}];"
            for prefix, (kind, count) in f.registers.items()
        ]
        offset = 0
        places: list[str] = []
        arrays = {n: a for n, a in f.arrays.items() if a[0] == "shared"}
        arrays |= {
            n: ("shared", *a)
            for n, a in self.shared.items()
            if re.search(rf"(?<![\w$.]){re.escape(n)}\b", body)
        }
        for array, (_, align, size) in arrays.items():
            offset = (offset + align - 1) // align * align
            places.append(
                f"  const uint64_t a_{_id(array)} = (uint64_t)(uintptr_t)(t->machine->shared + {offset});"
            )
            offset += size
        for array, (space, align, size) in f.arrays.items():
            if space == "local" and not f.barriers:
                places.append(f"  _Alignas({align}) char m_{_id(array)}[{size}];")
                places.append(
                    f"  const uint64_t a_{_id(array)} = (uint64_t)(uintptr_t)m_{_id(array)};"
                )
            elif space == "local":
                registers.append(f"  _Alignas({align}) char m_{_id(array)}[{size}];")
                places.append(
                    f"  const uint64_t a_{_id(array)} = (uint64_t)(uintptr_t)r->m_{_id(array)};"
                )
        if f.barriers:
            out += [f"struct r_{name} {{", *registers, "};"]
            registers = [f"  struct r_{name} *const r = t->registers;"]
        if f.entry:
            out.append(f"static void k_{name}(ptx_thread *t) {{")
            places.append("  const uint64_t *args = t->params; (void)args;")
        else:
            out.append(f"static uint64_t f_{name}(ptx_thread *t, const uint64_t *args) {{")
            registers.append(f"  uint64_t v_{_id(f.result)} = 0;" if f.result else "")
        out += [*registers, *places]
        if f.barriers:
            cases = " ".join(f"case {n}: goto resume_{n};" for n in range(1, f.barriers + 1))
            out.append(f"  switch (t->resume) {{ {cases} default: break; }}")
            for number in range(code.count("BARRIER")):
                code[code.index("BARRIER")] = (
                    f"t->resume = {number + 1}; return; resume_{number + 1}: ;"
                )
        out += [f"  {line}" for line in code if line]
        out.append("  (void)0;" if f.entry else f"  return {self._returned()};")
        return [*out, "}", ""], offset

    def _returned(self) -> str:
        return f"v_{_id(self.f.result)}" if self.f.result else "0"

    def _statements(self, body: str) -> Iterator[str]:
        """Statements without their semicolons; labels with their colon; braces."""
        for line in re.split(r";|\n", body):
            text = line.strip()
            while match := re.match(r"^(\$?[\w$]+):\s*(?!:)", text):
                if ".branchtargets" in text:
                    break
                yield match[0].strip()
                text = text[match.end() :].strip()
            if text:
                yield text

    # --- statements -----------------------------------------------------------------------------

    def _statement(self, text: str) -> str:
        if text in "{}":
            return text
        if text.endswith(":"):
            return f"{_id(text[:-1])}: ;"
        if text.startswith(".") or ".branchtargets" in text:
            return self._directive(text)
        guard = ""
        if match := re.match(r"^@(!?)(%p\d+)\s+", text):
            guard = f"if ({match[1]}{self._register(match[2])}) "
            text = text[match.end() :]
        opcode, _, rest = text.partition(" ") if " " in text else text.partition("\t")
        code = self._instruction(opcode.strip(), _operands(rest.strip()))
        return f"{guard}{{ {code} }}" if guard else code

    def _directive(self, text: str) -> str:
        f = self.f
        if match := re.match(r"^\.reg\s+\.(\w+)\s+(%\w+)<(\d+)>$", text):
            f.registers[match[2]] = (match[1], int(match[3]))
            return ""
        if match := re.match(
            r"^\.(shared|local)\s+\.align\s+(\d+)\s+\.b8\s+([\w$.]+)\[(\d+)\]$", text
        ):
            f.arrays[match[3]] = (match[1], int(match[2]), int(match[4]))
            return ""
        if match := re.match(r"^\.param\s+\.\w+\s+(\w+)$", text):
            f.inner.add(match[1])
            return f"uint64_t v_{_id(match[1])} = 0;"
        if match := re.match(r"^\.reg\s+\.(\w+)\s+(%\w+)$", text):
            return f"{_register_type(match[1])} {_id(match[2])} = 0;"
        if match := re.match(r"^(\$?[\w$]+):\s*\.branchtargets\s+(.*)$", text, re.DOTALL):
            f.tables[match[1]] = [t.strip() for t in match[2].split(",")]
            return ""
        if re.match(r"^\.(pragma|loc|file)\b", text):
            return ""
        raise ValueError(f"PTX: unknown directive {text!r}")

    def _register(self, name: str) -> str:
        match = re.match(r"^(%[A-Za-z_]+)(\d+)$", name)
        if not match or match[1] not in self.f.registers:
            return _id(name)  # of the frame: %SP, %SPL
        return f"{'r->' if self.f.barriers else ''}{_id(match[1])}[{match[2]}]"

    def _value(self, operand: str, kind: str) -> str:
        """An operand as a C value of a PTX type."""
        if special := SPECIAL.match(operand):
            return f"t->{special[1]}[{'xyz'.index(special[2])}]"
        if re.match(r"^0[fd][0-9A-Fa-f]+$", operand):
            bits = f"0x{operand[2:]}u" + ("ll" if operand[1] == "d" else "")
            return _of_bits(bits, kind)
        if re.match(r"^-?(\d+|0x[0-9A-Fa-f]+)U?$", operand):
            number = int(operand.rstrip("U"), 0) & ((1 << 64) - 1)
            return (
                f"(({c_type(kind)}){number}ull)"
                if kind[0] != "f"
                else _of_bits(f"{number}ull", kind)
            )
        if operand.startswith("%"):
            return _of_bits(self._register(operand), kind)
        return f"a_{_id(operand)}"  # the address of an array

    def _set(self, target: str, value: str, kind: str) -> str:
        """Write a C value of a PTX type."""
        match kind:
            case "f32" | "f64" | "f16":
                value = f"bits_{kind}({value})"
            case "pred":
                value = f"({value}) != 0"
        return f"{self._register(target)} = ({_unsigned_of(kind, target)})({value});"

    def _instruction(self, opcode: str, args: list[str]) -> str:
        base, *mods = opcode.split(".")
        kind = mods[-1] if mods else ""
        match base:
            case "ld" | "st" | "mov" | "cvt" | "atom":
                return getattr(self, f"_{base}")(mods, kind, args)
            case "bra":
                return f"goto {_id(args[0])};"
            case "brx":
                targets = self.f.tables[args[1]]
                cases = " ".join(f"case {n}: goto {_id(label)};" for n, label in enumerate(targets))
                return f"switch ({self._value(args[0], 'u32')}) {{ {cases} default: break; }}"
            case "ret" | "exit":
                return "t->resume = -1; return;" if self.f.entry else f"return {self._returned()};"
            case "bar" | "barrier":
                return "BARRIER"
            case "call":
                return self._call(args)
            case "setp":
                return self._setp(mods, kind, args)
            case "selp":
                cond = self._register(args[3])
                x, y = self._value(args[1], kind), self._value(args[2], kind)
                return self._set(args[0], f"{cond} ? {x} : {y}", kind)
            case "cvta":
                return self._set(args[0], self._value(args[1], "u64"), "u64")
            case "membar" | "fence":
                return ""
        return self._arithmetic(base, mods, kind, args)

    # --- arithmetic -----------------------------------------------------------------------------

    def _arithmetic(self, base: str, mods: list[str], kind: str, args: list[str]) -> str:
        if (
            "ftz" in mods
            or "approx" in mods
            or "sat" in mods
            or (base == "fma" and "rn" not in mods)
        ):
            raise ValueError(f"PTX: {base}.{'.'.join(mods)} is not exact")
        wide = "wide" in mods
        result = kind[0] + str(2 * WIDTH[kind]) if wide else kind
        values = [self._value(a, kind) for a in args[1:]]
        return self._set(args[0], self._expression(base, mods, kind, values, args), result)

    def _expression(
        self, base: str, mods: list[str], kind: str, v: list[str], args: list[str]
    ) -> str:
        """What an instruction computes of `args`, which are `v` as C values of its type."""
        if base in ("mul", "mad", "fma"):
            found = self._product(base, mods, kind, v, args)
        elif kind[0] == "f":
            found = _float(base, kind, v)
        else:
            found = self._integer(base, kind, v, args) or self._bits(base, mods, kind, v, args)
        if found is None:
            raise ValueError(f"PTX: unknown instruction {base}.{'.'.join(mods)}")
        return found

    def _product(
        self, base: str, mods: list[str], kind: str, v: list[str], args: list[str]
    ) -> str | None:
        is_float, width = kind[0] == "f", WIDTH[kind]
        u = [] if is_float else [self._value(a, f"u{width}") for a in args[1:]]
        match base:
            case "mul" | "mad" if "wide" in mods:
                to = c_type(kind[0] + str(2 * width))
                product = f"({to})(({to}){v[0]} * ({to}){v[1]})"
                third = self._value(args[3], kind[0] + str(2 * width)) if base == "mad" else "0"
                return f"{product} + {third}"
            case "mul" if "hi" in mods and width == 64:
                return f"ptx_mulhi_{kind}({v[0]}, {v[1]})"
            case "mul" if "hi" in mods:
                return f"({'' if kind[0] == 's' else 'u'}int64_t){v[0]} * {v[1]} >> 32"
            case "mul":
                return f"{v[0]} * {v[1]}" if is_float else f"(uint64_t){u[0]} * (uint64_t){u[1]}"
            case "mad" if not is_float:
                return f"(uint64_t){u[0]} * {u[1]} + {u[2]}"
            case "fma" | "mad" if kind != "f16":
                return f"__builtin_fma{_suffix(kind)}({v[0]}, {v[1]}, {v[2]})"
        return None

    def _integer(self, base: str, kind: str, v: list[str], args: list[str]) -> str | None:
        """Arithmetic and logic, unsigned where it wraps: that of signed numbers may not in C."""
        if kind == "pred":
            u = v
        else:
            u = [f"(uint64_t){self._value(a, f'u{WIDTH[kind]}')}" for a in args[1:]]
        match base:
            case "add" | "sub" | "and" | "or" | "xor":
                return f"{u[0]} {ARITHMETIC[base]} {u[1]}"
            case "div" | "rem":
                return f"{base}_{kind}({v[0]}, {v[1]})"
            case "neg":
                return f"0 - {u[0]}"
            case "abs":
                return f"{v[0]} < 0 ? 0 - (uint64_t){v[0]} : (uint64_t){v[0]}"
            case "min" | "max":
                return f"{v[0]} {'<' if base == 'min' else '>'} {v[1]} ? {v[0]} : {v[1]}"
            case "not":
                return f"!{v[0]}" if kind == "pred" else f"~{u[0]}"
        return None

    def _bits(
        self, base: str, mods: list[str], kind: str, v: list[str], args: list[str]
    ) -> str | None:
        """Shifts, counts, fields and permutations of bits."""
        width, unsigned = WIDTH[kind], f"u{WIDTH[kind]}"
        match base:
            case "shl":
                return f"ptx_shl({self._value(args[1], unsigned)}, {self._value(args[2], 'u32')}, {width})"
            case "shr":
                shift = "ptx_sar" if kind[0] == "s" else "ptx_shr"
                return f"{shift}({v[0]}, {self._value(args[2], 'u32')}, {width})"
            case "clz":
                return f"ptx_clz({v[0]}, {width})"
            case "popc":
                return f"__builtin_popcountll({v[0]})"
            case "bfe":
                counts = ", ".join(self._value(a, "u32") for a in args[2:])
                return f"ptx_bfe({self._value(args[1], unsigned)}, {counts}, {width}, {int(kind[0] == 's')})"
            case "bfi":
                counts = ", ".join(self._value(a, "u32") for a in args[3:])
                return f"ptx_bfi({v[0]}, {v[1]}, {counts}, {width})"
            case "prmt":
                return f"ptx_prmt({', '.join(v)})"
            case "shf":
                low, high, count = (self._value(a, "u32") for a in args[1:])
                pair = f"((uint64_t){high} << 32 | {low})"
                amount = f"({count} & 31)" if "wrap" in mods else f"({count} > 32 ? 32 : {count})"
                return f"{pair} << {amount} >> 32" if mods[0] == "l" else f"{pair} >> {amount}"
        return None

    def _setp(self, mods: list[str], kind: str, args: list[str]) -> str:
        x, y = self._value(args[1], kind), self._value(args[2], kind)
        nan = f"({x} != {x} || {y} != {y})"
        op = mods[0]
        if op in ("nan", "num"):
            found = nan if op == "nan" else f"!{nan}"
        elif op in UNORDERED:
            found = f"({nan} || {x} {COMPARE[UNORDERED[op]]} {y})"
        else:
            found = f"{x} {COMPARE[op]} {y}"
            if op == "ne" and kind[0] == "f":
                found = f"(!{nan} && {found})"
        if len(mods) > 2:
            if mods[1] not in ("and", "or", "xor"):
                raise ValueError(f"PTX: unknown setp.{'.'.join(mods)}")
            found = f"(({found}) {ARITHMETIC[mods[1]]} {self._register(args[3])})"
        return self._set(args[0], found, "pred")

    def _cvt(self, mods: list[str], source: str, args: list[str]) -> str:
        target = mods[-2]
        rounding = next((m for m in mods[:-2] if m in ("rn", "rz", "rm", "rp", *ROUND)), "")
        if "ftz" in mods or rounding in ("rz", "rm", "rp"):
            raise ValueError(f"PTX: cvt.{'.'.join(mods)} is not exact")
        value = self._value(args[1], source)
        if target[0] == "f":
            if rounding in ROUND:
                value = f"{ROUND[rounding]}{'f' if source == 'f32' else ''}({value})"
            return self._set(
                args[0], value if target == "f16" else f"({c_type(target)}){value}", target
            )
        if source[0] == "f":
            whole = f"{ROUND[rounding]}({value})"
            return self._set(
                args[0],
                f"to_{'un' if target[0] == 'u' else ''}signed({whole}, {WIDTH[target]})",
                target,
            )
        if "sat" in mods:
            raise ValueError(f"PTX: unknown cvt.{'.'.join(mods)}")
        return self._set(args[0], f"({c_type(target)}){value}", target)

    # --- memory ---------------------------------------------------------------------------------

    def _mov(self, mods: list[str], kind: str, args: list[str]) -> str:
        if args[0].startswith("{"):
            parts = _operands(args[0][1:-1])
            width = WIDTH[kind] // len(parts)
            whole = self._value(args[1], f"u{WIDTH[kind]}")
            sets = [
                self._set(p, f"packed >> {n * width}", f"u{width}")
                for n, p in enumerate(parts)
                if p != "_"
            ]
            return f"{{ const uint64_t packed = {whole}; {' '.join(sets)} }}"
        if args[1].startswith("{"):
            parts = _operands(args[1][1:-1])
            width = WIDTH[kind] // len(parts)
            packed = " | ".join(
                f"(uint64_t){self._value(p, f'u{width}')} << {n * width}"
                for n, p in enumerate(parts)
            )
            return self._set(args[0], packed, f"u{WIDTH[kind]}")
        return self._set(args[0], self._value(args[1], kind), kind)

    def _address(self, operand: str, mods: list[str], kind: str, offset: int = 0) -> str:
        match = re.match(r"^\[([%\w$.]+)(?:\+(-?\d+))?\]$", operand)
        if not match:
            raise ValueError(f"PTX: unknown address {operand!r}")
        start = self._value(match[1], "u64")
        at = f"{start} + {int(match[2] or 0) + offset}"
        space = next((m for m in mods if m in ("global", "shared", "local")), None)
        if space is None:
            raise ValueError("PTX: a generic access: LLVM did not find out which memory it is of")
        type_ = c_type(kind)
        return f"*({type_} *)ptx_{space}(t, {at}, sizeof({type_}))"

    def _ld(self, mods: list[str], kind: str, args: list[str]) -> str:
        if "param" in mods:
            name = args[1][1:-1]
            if name in self.f.params:
                return self._set(
                    args[0], _of_bits(f"args[{self.f.params.index(name)}]", kind), kind
                )
            return self._set(args[0], _of_bits(f"v_{_id(name)}", kind), kind)
        step = WIDTH[kind] // 8
        targets = _operands(args[0][1:-1]) if args[0].startswith("{") else [args[0]]
        return " ".join(
            self._set(target, self._address(args[1], mods, kind, n * step), kind)
            for n, target in enumerate(targets)
        )

    def _st(self, mods: list[str], kind: str, args: list[str]) -> str:
        if "param" in mods:
            bits = self._value(args[1], f"u{WIDTH[kind]}")
            return f"v_{_id(args[0][1:-1])} = {bits};"
        step = WIDTH[kind] // 8
        sources = _operands(args[1][1:-1]) if args[1].startswith("{") else [args[1]]
        return " ".join(
            f"{self._address(args[0], mods, kind, n * step)} = {self._value(source, kind)};"
            for n, source in enumerate(sources)
        )

    def _atom(self, mods: list[str], kind: str, args: list[str]) -> str:
        if "cas" not in mods:
            raise ValueError(f"PTX: unknown atom.{'.'.join(mods)}")
        place = self._address(args[1], mods, kind)
        old, new = self._value(args[2], kind), self._value(args[3], kind)
        type_ = c_type(kind)
        return (
            f"{{ {type_} *const place = &{place}; const {type_} before = *place; "
            f"if (before == {old}) *place = {new}; {self._set(args[0], 'before', kind)} }}"
        )

    def _call(self, args: list[str]) -> str:
        result = None
        if args[0].startswith("("):
            result = args.pop(0)[1:-1].strip()
        name = args.pop(0)
        passed = _operands(args[0][1:-1]) if args else []
        values = ", ".join(f"v_{_id(p)}" for p in passed) or "0"
        into = f"v_{_id(result)} = " if result else ""
        return f"{{ const uint64_t passed[] = {{{values}}}; {into}f_{_id(name)}(t, passed); }}"


def _id(name: str | None) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name or "")


def _operands(text: str) -> list[str]:
    """Parts between commas that stand in no brackets."""
    found, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            found.append(text[start:place].strip())
            start = place + 1
    last = text[start:].strip()
    return [*found, last] if last else found


def _register_type(kind: str) -> str:
    return "int" if kind == "pred" else f"uint{WIDTH[kind]}_t"


def _unsigned_of(kind: str, target: str) -> str:
    """What a result is cut to before it is written; signed ones extend into a wider register."""
    if kind == "pred":
        return "int"
    return c_type(kind) if kind[0] == "s" else f"uint{WIDTH[kind]}_t"


def _of_bits(bits: str, kind: str) -> str:
    if kind in ("f16", "f32", "f64"):
        return f"{kind}({bits})"
    return f"(({c_type(kind)}){bits})"


def _suffix(kind: str) -> str:
    """Of the C function that takes and gives a float type."""
    return "" if kind == "f64" else "f"


def _float(base: str, kind: str, v: list[str]) -> str | None:
    """Arithmetic of floats that is no product."""
    match base:
        case "add" | "sub":
            return f"{v[0]} {ARITHMETIC[base]} {v[1]}"
        case "div":
            return f"{v[0]} / {v[1]}"
        case "rcp":
            return f"1 / {v[0]}"
        case "sqrt" | "abs":
            return f"__builtin_{'f' if base == 'abs' else ''}{base}{_suffix(kind)}({v[0]})"
        case "neg":
            return f"-{v[0]}"
        case "min" | "max":
            return f"{base}_{kind.replace('f16', 'f32')}({v[0]}, {v[1]})"
        case "copysign":  # the sign of the first on the second
            return f"__builtin_copysign{_suffix(kind)}({v[1]}, {v[0]})"
    return None


def translate(ptx: str) -> str:
    """C source of a module of PTX. ValueError for what is not known here."""
    return Translator(ptx).c()


__all__ = ["translate"]
