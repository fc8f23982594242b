"""Random programs of closures that data types hold, references that loops write, lists of vectors, and recursion whose
shapes grow and whose exits depend on the data.

All values are vectors of unknown size, so that no result's shape is known when a program is compiled. Nothing fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable

VECTOR = "Tensor[(?), float32]"
FUNCTION = f"fn ({VECTOR}) -> {VECTOR}"
TYPES = {"vector": VECTOR, "list": "L", "function": FUNCTION, "reference": f"ref({VECTOR})"}
PRELUDE = f"""#[version = "0.0.5"]
type L {{ C({VECTOR}, L), N }}
type Job {{ Run({FUNCTION}, Job), Swap(ref({VECTOR}), Job), Stop }}
def @reversed(%l: L, %acc: L) -> L {{ match (%l) {{ C(%h, %t) => {{ @reversed(%t, C(%h, %acc)) }}, N => {{ %acc }} }} }}
def @joined(%l: L, %acc: {VECTOR}) -> {VECTOR} {{
  match (%l) {{ C(%h, %t) => {{ @joined(%t, concatenate((%h, %acc))) }}, N => {{ %acc }} }}
}}
def @done(%j: Job, %x: {VECTOR}) -> {VECTOR} {{
  match (%j) {{
    Run(%f, %k) => {{ @done(%k, %f(%x)) }},
    Swap(%r, %k) => {{ let %o = ref_read(%r); let %u = ref_write(%r, %x); @done(%k, %o) }},
    Stop => {{ %x }},
  }}
}}
def @grown(%x: {VECTOR}, %n: int32) -> {VECTOR} {{
  if (logical_and(greater(%n, 0), less(take(shape_of(%x, dtype="int32"), 0), 9))) {{
    @grown(concatenate((%x, %x * 0.5f)), %n - 1)
  }} else {{ %x }}
}}
"""
LONGEST = 20
"""Elements of what a loop carries on."""

Scope = dict[str, str]
"""Variable -> key of TYPES, or "int"."""


def _cut(vector: str, size: int) -> str:
    return f"strided_slice({vector}, begin=[0], end=[{size}], strides=[1])"


class Writer:
    """Writes expressions of a scope; `depth` bounds how they nest."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"%v{self.names}"

    def known(self, scope: Scope, kind: str) -> list[str]:
        return [name for name, found in scope.items() if found == kind]

    def number(self, scope: Scope, depth: int) -> str:
        choices = [str(self.random.randint(0, 3)), *self.known(scope, "int")]
        vector = self.random.choice(self.known(scope, "vector"))
        choices.append(f'take(shape_of({vector}, dtype="int32"), 0)')
        if depth > 0:
            choices.append(f"({self.number(scope, depth - 1)} - {self.number(scope, depth - 1)})")
        return self.random.choice(choices)

    def condition(self, scope: Scope) -> str:
        if self.random.random() < 0.3:
            vector = self.random.choice(self.known(scope, "vector"))
            return f"greater(sum({vector}), {self.random.randint(-3, 9)}f)"
        name = self.random.choice(("less", "greater", "equal"))
        return f"{name}({self.number(scope, 1)}, {self.number(scope, 1)})"

    def vector(self, scope: Scope, depth: int) -> str:
        if depth <= 0:
            return self.random.choice(self.known(scope, "vector"))
        inner: Callable[[], str] = lambda: self.vector(scope, depth - 1)  # noqa: E731 - a short name
        forms: list[Callable[[], str]] = [
            lambda: f"concatenate(({inner()}, {inner()}))",
            lambda: f"tanh({inner()})",
            lambda: f"cumsum({inner()}, axis=0)",
            lambda: f"add({inner()}, sum({inner()}))",
            lambda: (
                f"strided_slice({inner()}, begin=[1], end=[5], strides=[{self.random.randint(1, 2)}])"
            ),
            lambda: self.choice(scope, depth - 1),
            lambda: self.loop(scope, depth - 1),
            lambda: self.first(scope, depth - 1),
            lambda: f"@joined({self.vectors(scope, depth - 1)}, {inner()})",
            lambda: f"@done({self.job(scope, depth - 1)}, {inner()})",
            lambda: f"@grown({inner()}, {self.number(scope, 1)})",
            *(lambda f=f: f"{f}({inner()})" for f in self.known(scope, "function")),
            *(lambda r=r: f"ref_read({r})" for r in self.known(scope, "reference")),
        ]
        return self.random.choice(forms)()

    def choice(self, scope: Scope, depth: int) -> str:
        then, otherwise = self.block(scope, depth), self.block(scope, depth)
        return f"if ({self.condition(scope)}) {{ {then} }} else {{ {otherwise} }}"

    def first(self, scope: Scope, depth: int) -> str:
        head, tail = self.name(), self.name()
        inside = self.block({**scope, head: "vector", tail: "list"}, depth)
        data = self.vectors(scope, depth)
        return f"match ({data}) {{ C({head}, {tail}) => {{ {inside} }}, N => {{ {self.block(scope, depth)} }} }}"

    def vectors(self, scope: Scope, depth: int) -> str:
        choices = ["N", *self.known(scope, "list")]
        if depth > 0:
            choices.append(f"C({self.vector(scope, depth - 1)}, {self.vectors(scope, depth - 1)})")
            choices.append(f"@reversed({self.vectors(scope, depth - 1)}, N)")
        return self.random.choice(choices)

    def job(self, scope: Scope, depth: int) -> str:
        choices = ["Stop"]
        if depth > 0:
            choices.append(f"Run({self.function(scope, depth - 1)}, {self.job(scope, depth - 1)})")
            choices += [
                f"Swap({r}, {self.job(scope, depth - 1)})" for r in self.known(scope, "reference")
            ]
        return self.random.choice(choices)

    def function(self, scope: Scope, depth: int) -> str:
        known = self.known(scope, "function")
        if known and self.random.random() < 0.3:
            return self.random.choice(known)
        param = self.name()
        return f"fn ({param}: {VECTOR}) -> {VECTOR} {{ {self.block({**scope, param: 'vector'}, depth)} }}"

    def of_kind(self, kind: str, scope: Scope, depth: int) -> str:
        match kind:
            case "list":
                return self.vectors(scope, depth)
            case "function":
                return self.function(scope, depth)
            case "reference":
                return f"ref({self.vector(scope, depth)})"
        return self.vector(scope, depth)

    def block(self, scope: Scope, depth: int) -> str:
        """Some bindings and a vector."""
        scope, text = dict(scope), ""
        for _ in range(self.random.randint(0, 2)):
            name, known = self.name(), self.known(scope, "reference")
            if known and self.random.random() < 0.3:
                text += f"let {name} = ref_write({self.random.choice(known)}, {self.vector(scope, depth - 1)}); "
                continue
            kind = self.random.choice(("vector", "vector", "list", "function", "reference"))
            text += f"let {name} = {self.of_kind(kind, scope, depth)}; "
            scope[name] = kind
        return text + self.vector(scope, depth)

    def loop(self, scope: Scope, depth: int) -> str:
        """A few turns, or fewer; a vector and one more value are carried on, at times not in tail position."""
        loop, turn, carried, other = self.name(), self.name(), self.name(), self.name()
        kind = self.random.choice(tuple(TYPES))
        inside: Scope = {**scope, turn: "int", carried: "vector", other: kind}
        again = other if kind == "reference" else self.of_kind(kind, inside, depth)
        new = self.name()
        if self.random.random() < 0.7:
            step = f"let {new} = {_cut(f'({self.block(inside, depth)})', self.random.randint(0, LONGEST))}; "
            step += f"{loop}({turn} - 1, {new}, {again})"
        else:
            step = f"let {new} = {loop}({turn} - 1, {carried}, {again}); "
            step += _cut(f"concatenate(({new}, ({self.block(inside, depth)})))", LONGEST)
        if kind == "reference":
            step = f"let {self.name()} = ref_write({other}, {self.vector(inside, depth)}); {step}"
        if self.random.random() < 0.4:
            step = f"if ({self.condition(inside)}) {{ {carried} }} else {{ {step} }}"
        body = f"if (greater({turn}, 0)) {{ {step} }} else {{ {carried} }}"
        params = f"{turn}: int32, {carried}: {VECTOR}, {other}: {TYPES[kind]}"
        start = f"{self.random.randint(0, 4)}, {self.vector(scope, depth)}, {self.of_kind(kind, scope, depth)}"
        return f"(let {loop} = fn ({params}) -> {VECTOR} {{ {body} }}; {loop}({start}))"


def program(source: random.Random, depth: int) -> str:
    """A module whose @main takes two vectors, a number and a list, and gives a vector and what a reference holds."""
    scope: Scope = {"%x": "vector", "%y": "vector", "%n": "int", "%l": "list", "%r": "reference"}
    body = Writer(source).block(scope, depth)
    return (
        f"{PRELUDE}def @main(%x: {VECTOR}, %y: {VECTOR}, %n: int32, %l: L) -> ({VECTOR}, {VECTOR}) {{\n"
        f"  let %r = ref(%x);\n  let %out = ({body});\n  (%out, ref_read(%r))\n}}\n"
    )
