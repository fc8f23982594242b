"""Random programs of int32 scalars in which the order of effects decides the result: references (aliased, in closures, in
data types), shared graph nodes, closures called several times, divisions by zero.

They need no kernels, so that many of them are tested in little time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

PRELUDE = """type Cell {
  Cell(ref(int32), fn () -> int32),
  Gone,
}
def @next(%r: ref(int32)) -> int32 {
  let %u = ref_write(%r, ref_read(%r) * 3 + 1);
  ref_read(%r)
}
def @call_twice(%f: fn () -> int32) -> int32 { %f() * 5 - %f() }
def @drop(%a: int32, %b: int32) -> int32 { %b }
def @turns(%n: int32, %f: fn () -> int32, %acc: int32) -> int32 {
  if (%n <= 0) { %acc } else { @turns(%n - 1, %f, %acc * 2 + %f()) }
}
"""


@dataclass
class _Writer:
    draw: st.DrawFn
    failing: bool
    ints: list[str] = field(default_factory=lambda: ["%x", "%y"])
    refs: list[str] = field(default_factory=lambda: ["%r", "%s"])
    thunks: list[str] = field(default_factory=list)
    counter: int = 0
    budget: int = 45

    def integer(self, high: int) -> int:
        return self.draw(st.integers(0, high))

    def pick(self, options: list[str]) -> str:
        return options[self.integer(len(options) - 1)]

    def name(self) -> str:
        self.counter += 1
        return f"%v{self.counter}"

    def graph_name(self) -> str:
        self.counter += 1
        return f"%{self.counter}"

    def block(self, depth: int) -> str:
        """{ bindings and a value }, its names gone afterwards."""
        marks = len(self.ints), len(self.refs), len(self.thunks)
        lines = [self.binding(depth - 1) for _ in range(self.integer(3))]
        text = "{ " + "\n".join([*lines, self.value(depth - 1)]) + " }"
        del self.ints[marks[0] :], self.refs[marks[1] :], self.thunks[marks[2] :]
        return text

    def binding(self, depth: int) -> str:
        graph = self.integer(1)
        name = self.graph_name() if graph else self.name()
        kind = self.integer(7)
        if kind <= 2:
            value = self.value(depth)
            self.ints.append(name)
        elif kind == 3:
            value = self.pick(self.refs) if self.integer(1) else f"ref({self.value(depth)})"
            if graph and value in self.refs:  # a graph name of a variable is the variable
                return f"let {self.name()} = {value};"
            self.refs.append(name)
        elif kind <= 5:
            value = f"fn () -> int32 {self.block(depth)}"
            self.thunks.append(name)
        else:
            value = f"ref_write({self.pick(self.refs)}, {self.value(depth)})"
        return f"{name} = {value};" if graph else f"let {name} = {value};"

    def value(self, depth: int) -> str:
        self.budget -= 1
        if depth <= 0 or self.budget <= 0:
            return self.pick([*self.ints, "0", "1", "2", f"ref_read({self.pick(self.refs)})"])
        if self.failing and self.integer(5) == 0:
            operator = self.pick(["divide", "floor_mod"])
            return f"{operator}({self.value(depth - 1)}, {self.value(depth - 1)})"
        match self.integer(11):
            case 0 | 1:
                return f"ref_read({self.pick(self.refs)})"
            case 2:
                return f"({self.value(depth - 1)} {self.pick(['+', '-', '*'])} {self.value(depth - 1)})"
            case 3:
                return f"@next({self.pick(self.refs)})"
            case 4 | 5 if self.thunks:
                return self.pick(
                    [f"{t}()" for t in self.thunks] + [f"@call_twice({t})" for t in self.thunks]
                )
            case 6:
                return f"({self.value(depth - 1)}, ref_write({self.pick(self.refs)}, {self.value(depth - 1)})).0"
            case 7:
                return f"@drop({self.value(depth - 1)}, {self.value(depth - 1)})"
            case 8 | 9:
                cond = f"{self.value(depth - 1)} {self.pick(['<', '==', '>='])} {self.value(depth - 1)}"
                return f"(fn () -> int32 {{ if ({cond}) {self.block(depth)} else {self.block(depth)} }})()"
            case 10:
                return self.matching(depth)
            case 11 if self.thunks:
                return (
                    f"@turns({self.integer(2)}, {self.pick(self.thunks)}, {self.value(depth - 1)})"
                )
        return self.pick(self.ints)

    def matching(self, depth: int) -> str:
        data = f"Cell({self.pick(self.refs)}, fn () -> int32 {self.block(depth - 1)})"
        ref, thunk = self.name(), self.name()
        self.refs.append(ref)
        self.thunks.append(thunk)
        full = self.block(depth)
        self.refs.pop()
        self.thunks.pop()
        gone = self.block(depth)
        return f"(fn () -> int32 {{ match ({data}) {{\nCell({ref}, {thunk}) => {full},\nGone => {gone},\n}} }})()"


@st.composite
def effect_programs(draw: st.DrawFn, failing: bool = False) -> str:
    """main(x, y) gives its value and the last contents of two references."""
    writer = _Writer(draw, failing)
    lines = [writer.binding(4) for _ in range(1 + writer.integer(4))]
    body = writer.value(4)
    return (
        f'#[version = "0.0.5"]\n{PRELUDE}def @main(%x: int32, %y: int32) {{\nlet %r = ref(%x);\nlet %s = ref(7);\n'
        + "\n".join(lines)
        + f"\nlet %out = {body};\n(%out, ref_read(%r), ref_read(%s))\n}}\n"
    )
