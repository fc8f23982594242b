"""Dim expressions: the symbolic sizes of tensor axes, and their algebra.

A dim is a Python int (static) or a DimExpr. DimExprs are hash-consed in a canonical form
(polynomials over atoms for + - *; floordiv, floormod, min, max and bcast are atoms), so `is`
decides whether two dims are the same expression. Every DimVar denotes an integer >= 0; arithmetic
is over the integers (overflow is a run-time error). A difference may be negative as a part of an
expression, never as the size of an axis.

`bcast(a, b)` is the broadcast of two sizes: b if a is 1, a if b is 1, a if equal, otherwise
undefined.

Canonical form of DimOp:

    add       terms in a fixed order, a non-zero int last            n + 2*m + 3
    mul       an int that is not 1 first, then atoms in order        2*n*m
    min max bcast   two or more arguments in order, without doubles
    floordiv floormod   (a, b)

An expression has at most MAX_NODES nodes and MAX_DEPTH levels; whatever would be larger becomes a
fresh unknown, which keeps every function here bounded and the passes that call them linear.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakValueDictionary

from nimblevm.errors import DimOverflow, DivisionByZero, ShapeMismatch
from nimblevm.relay.immutable import Immutable

MAX_NODES = 256
MAX_DEPTH = 32
_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)

_serial = itertools.count()

SortKey = tuple[object, ...]


class DimExpr(Immutable):
    """Base of the unknown sizes. Immutable; equality is identity. `n + 1`, `2 * n`, `n // 2` and the like make dims."""

    __slots__ = ("__weakref__", "depth", "key", "nodes")
    key: SortKey  # total order of expressions; by creation for variables
    nodes: int
    depth: int

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __add__(self, other: Dim) -> Dim:
        return add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return sub(self, other)

    def __rsub__(self, other: Dim) -> Dim:
        return sub(other, self)

    def __mul__(self, other: Dim) -> Dim:
        return mul(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __mod__(self, other: Dim) -> Dim:
        return floormod(self, other)

    def __neg__(self) -> Dim:
        return neg(self)


class DimVar(DimExpr):
    """An unknown size. Each object is its own unknown; `name` (None for `?`) is for printing."""

    __slots__ = ("name",)
    name: str | None

    def __init__(self, name: str | None = None) -> None:
        put = object.__setattr__
        put(self, "name", name)
        put(self, "key", (0, next(_serial)))
        put(self, "nodes", 1)
        put(self, "depth", 1)

    def __repr__(self) -> str:
        return f"?{self.name}" if self.name else f"?#{self.key[1]}"


class AnyDim(DimVar):
    """What relay.Any() gives: a type takes another unknown for each place that has it (`(relay.Any(),) * 2`)."""

    __slots__ = ()


class DimOp(DimExpr):
    """An operation of {add, mul, floordiv, floormod, min, max, bcast} in canonical form.

    Never built directly: `add`, `mul`, ... of this module fold and intern.
    """

    __slots__ = ("args", "op")
    op: str
    args: tuple[Dim, ...]

    def __repr__(self) -> str:
        if self.op == "mul":
            return "*".join(f"({a!r})" if _is_sum(a) else repr(a) for a in self.args)
        if self.op == "add":
            return "(" + " + ".join(map(repr, self.args)) + ")"
        return f"{self.op}({', '.join(map(repr, self.args))})"


Dim = int | DimExpr
Monomial = tuple[DimExpr, ...]
Polynomial = dict[Monomial, int]

_TABLE: WeakValueDictionary[tuple[object, ...], DimOp] = WeakValueDictionary()


def _is_sum(dim: Dim) -> bool:
    return isinstance(dim, DimOp) and dim.op == "add"


def _key_of(dim: Dim) -> SortKey:
    return (-1, dim) if isinstance(dim, int) else dim.key


def _make(op: str, args: tuple[Dim, ...]) -> DimExpr:
    """The interned DimOp, or a fresh unknown where it would pass the limits."""
    found = _TABLE.get((op, *args))
    if found is not None:
        return found
    nodes, depth = 1, 0
    for arg in args:
        if isinstance(arg, DimExpr):
            nodes += arg.nodes
            depth = max(depth, arg.depth)
        else:
            nodes += 1
    if nodes > MAX_NODES or depth >= MAX_DEPTH:
        return DimVar()
    made = object.__new__(DimOp)
    put = object.__setattr__
    put(made, "op", op)
    put(made, "args", args)
    put(made, "key", (1, op, *map(_key_of, args)))
    put(made, "nodes", nodes)
    put(made, "depth", depth + 1)
    _TABLE[(op, *args)] = made
    return made


# --- polynomials ----------------------------------------------------------------------------------


def _term_of(dim: Dim) -> tuple[Monomial, int]:
    """A summand as (atoms, coefficient)."""
    if isinstance(dim, int):
        return (), dim
    if isinstance(dim, DimOp) and dim.op == "mul":
        first = dim.args[0]
        atoms = tuple(a for a in dim.args if isinstance(a, DimExpr))
        return atoms, first if isinstance(first, int) else 1
    return (dim,), 1


def polynomial(dim: Dim) -> Polynomial:
    """`dim` as a sum: atoms of each term -> coefficient (() is the constant); a fresh dict."""
    if isinstance(dim, DimOp) and dim.op == "add":
        return dict(_term_of(a) for a in dim.args)
    atoms, coefficient = _term_of(dim)
    return {atoms: coefficient} if coefficient else {}


def _monomial_key(atoms: Monomial) -> SortKey:
    return tuple(a.key for a in atoms)


def from_polynomial(poly: Polynomial) -> Dim:
    """The canonical dim of a sum; zero coefficients are allowed."""
    constant = poly.get((), 0)
    terms: list[Dim] = []
    for atoms in sorted((m for m, c in poly.items() if c and m), key=_monomial_key):
        coefficient = poly[atoms]
        if coefficient == 1 and len(atoms) == 1:
            terms.append(atoms[0])
        else:
            terms.append(_make("mul", atoms if coefficient == 1 else (coefficient, *atoms)))
    if not terms:
        return constant
    if constant:
        terms.append(constant)
    return terms[0] if len(terms) == 1 else _make("add", tuple(terms))


def _combine(a: Dim, b: Dim, scale: int) -> Polynomial:
    """a + scale * b."""
    poly = polynomial(a)
    for atoms, coefficient in polynomial(b).items():
        poly[atoms] = poly.get(atoms, 0) + scale * coefficient
    return poly


def add(a: Dim, b: Dim) -> Dim:
    """a + b."""
    if isinstance(a, int):
        if isinstance(b, int):
            return a + b
        if not a:
            return b
    elif isinstance(b, int) and not b:
        return a
    return from_polynomial(_combine(a, b, 1))


def total(parts: Iterable[Dim]) -> Dim:
    """The sum of all: one unknown where it grows too large, where a chain of `add` leaves some summands beside it."""
    poly: Polynomial = {}
    for part in parts:
        for atoms, coefficient in polynomial(part).items():
            poly[atoms] = poly.get(atoms, 0) + coefficient
    return from_polynomial(poly)


def sub(a: Dim, b: Dim) -> Dim:
    """a - b (may denote a negative number)."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    if a is b:
        return 0
    return from_polynomial(_combine(a, b, -1))


def neg(a: Dim) -> Dim:
    """-a."""
    return sub(0, a)


def mul(a: Dim, b: Dim) -> Dim:
    """a * b."""
    if isinstance(a, int):
        if isinstance(b, int):
            return a * b
        if a == 1:
            return b
    elif isinstance(b, int) and b == 1:
        return a
    left, right = polynomial(a), polynomial(b)
    if len(left) * len(right) > MAX_NODES:
        return DimVar()
    product: Polynomial = {}
    for m1, c1 in left.items():
        for m2, c2 in right.items():
            atoms = tuple(sorted((*m1, *m2), key=lambda d: d.key))
            product[atoms] = product.get(atoms, 0) + c1 * c2
    return from_polynomial(product)


# --- bounds and comparison ------------------------------------------------------------------------

Bounds = tuple[int | None, int | None]


def bounds(dim: Dim) -> Bounds:
    """(lowest, highest) value that `dim` can take given that variables are >= 0; None is
    unbounded.
    """
    if isinstance(dim, int):
        return dim, dim
    if isinstance(dim, DimVar):
        return 0, None
    return _polynomial_bounds(polynomial(dim))


def lower_bound(dim: Dim) -> int | None:
    """The lowest value that is certain, None if none is (a difference)."""
    return bounds(dim)[0]


def _polynomial_bounds(poly: Polynomial) -> Bounds:
    low: int | None = 0
    high: int | None = 0
    for atoms, coefficient in poly.items():
        below: int | None = 1
        above: int | None = 1
        for atom in atoms:
            low_atom, high_atom = _atom_bounds(atom)
            if below is None or low_atom is None or low_atom < 0:
                below = above = None
                break
            below *= low_atom
            above = None if above is None or high_atom is None else above * high_atom
        if coefficient < 0:
            below, above = above, below
        low = None if low is None or below is None else low + coefficient * below
        high = None if high is None or above is None else high + coefficient * above
    return low, high


def _atom_bounds(atom: DimExpr) -> Bounds:
    """Depth is bounded by MAX_DEPTH."""
    if not isinstance(atom, DimOp):
        return 0, None
    parts = [bounds(a) for a in atom.args]
    lows, highs = [p[0] for p in parts], [p[1] for p in parts]
    known_lows = [low for low in lows if low is not None]
    known_highs = [high for high in highs if high is not None]
    all_low, all_high = len(known_lows) == len(lows), len(known_highs) == len(highs)
    divisor = atom.args[-1]
    match atom.op:
        case "min":
            return min(known_lows) if all_low else None, min(known_highs, default=None)
        case "max":
            return max(known_lows, default=None), max(known_highs) if all_high else None
        case "bcast":
            return min(known_lows) if all_low else None, max(known_highs) if all_high else None
        case "floormod":
            return (0, divisor - 1) if isinstance(divisor, int) and divisor > 0 else (None, None)
        case "floordiv" if isinstance(divisor, int) and divisor > 0:
            low, high = parts[0]
            return (
                None if low is None else low // divisor,
                None if high is None else high // divisor,
            )
        case "floordiv":
            low, below = parts[0][0], parts[1][0]
            return (
                (0, parts[0][1])
                if low is not None and low >= 0 and (below or 0) > 0
                else (None, None)
            )
    return bounds(atom)


def compare(a: Dim, b: Dim) -> bool | None:
    """True: proved equal. False: can never be equal. None: depends on run-time values.

    Uses the canonical difference, bounds from "variables are >= 0", and divisibility (2*n is
    never 3).
    """
    if a is b:
        return True
    if isinstance(a, int):
        if isinstance(b, int):
            return a == b
        if isinstance(b, DimVar):
            return None if a >= 0 else False
    elif isinstance(a, DimVar):
        if isinstance(b, DimVar):
            return None
        if isinstance(b, int):
            return None if b >= 0 else False
    difference = {m: c for m, c in _combine(a, b, -1).items() if c}
    constant = difference.get((), 0)
    if not difference:
        return True
    low, high = _polynomial_bounds(difference)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return False
    divisor = math.gcd(*(c for m, c in difference.items() if m))
    return False if divisor and constant % divisor else None


def at_least(a: Dim, b: Dim) -> bool:
    """Whether a >= b is certain."""
    low = _polynomial_bounds(_combine(a, b, -1))[0]
    return low is not None and low >= 0


# --- atoms ----------------------------------------------------------------------------------------


def _split(a: Dim, divisor: int) -> tuple[Polynomial, Polynomial]:
    """a = divisor * quotient + rest, the rest's coefficients in [0, divisor)."""
    quotient: Polynomial = {}
    rest: Polynomial = {}
    for atoms, coefficient in polynomial(a).items():
        q, r = divmod(coefficient, divisor)
        if q:
            quotient[atoms] = q
        if r:
            rest[atoms] = r
    return quotient, rest


def _within(poly: Polynomial, divisor: int) -> bool:
    low, high = _polynomial_bounds(poly)
    return low is not None and low >= 0 and high is not None and high < divisor


def floordiv(a: Dim, b: Dim) -> Dim:
    """floor(a / b). Division by a static 0 raises DivisionByZero."""
    if isinstance(b, int):
        if b == 0:
            raise DivisionByZero(f"dim expression floordiv({a!r}, 0)")
        if isinstance(a, int):
            return a // b
        if b > 0:
            quotient, rest = _split(a, b)
            if _within(rest, b):
                return from_polynomial(quotient)
            remaining = _make("floordiv", (from_polynomial(rest), b))
            return add(from_polynomial(quotient), remaining)
    elif (lower_bound(b) or 0) > 0:
        if a is b:
            return 1
        if isinstance(a, int) and a == 0:
            return 0
    return _make("floordiv", (a, b))


def floormod(a: Dim, b: Dim) -> Dim:
    """a - b * floor(a / b). By a static 0: DivisionByZero."""
    if isinstance(b, int):
        if b == 0:
            raise DivisionByZero(f"dim expression floormod({a!r}, 0)")
        if isinstance(a, int):
            return a % b
        if b > 0:
            rest = _split(a, b)[1]
            value = from_polynomial(rest)
            if isinstance(value, int) or _within(rest, b):
                return value
            return _make("floormod", (value, b))
    elif (lower_bound(b) or 0) > 0 and (a is b or (isinstance(a, int) and a == 0)):
        return 0
    return _make("floormod", (a, b))


def _flatten(op: str, dims: Iterable[Dim]) -> list[Dim]:
    """Arguments of nested `op`s, without doubles."""
    flat: dict[Dim, None] = {}
    for dim in dims:
        if isinstance(dim, DimOp) and dim.op == op:
            flat.update(dict.fromkeys(dim.args))
        else:
            flat[dim] = None
    return list(flat)


def _extremum(op: str, dims: tuple[Dim, ...], covers: Callable[[Dim, Dim], bool]) -> Dim:
    """min or max; `covers(x, y)` says that y is never needed beside x."""
    kept: list[Dim] = []
    for dim in _flatten(op, dims):
        if any(covers(other, dim) for other in kept):
            continue
        kept = [other for other in kept if not covers(dim, other)]
        kept.append(dim)
    if len(kept) == 1:
        return kept[0]
    return _make(op, tuple(sorted(kept, key=_key_of)))


def min_(a: Dim, b: Dim) -> Dim:
    """The smaller one."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return _extremum("min", (a, b), lambda x, y: at_least(y, x))


def max_(a: Dim, b: Dim) -> Dim:
    """The larger one."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return _extremum("max", (a, b), at_least)


def bcast(a: Dim, b: Dim) -> Dim:
    """The broadcast of two sizes: ShapeMismatch if no values can fit.

    A dim that is certainly not 1 decides alone (`?` with 5 is 5): whoever uses it must see to it
    that the other one is 1 or equal. Two that may be 1 give the expression bcast(a, b), whose
    evaluation checks.
    """
    if a is b or (isinstance(b, int) and b == 1):
        return a
    if isinstance(a, int) and a == 1:
        return b
    equal = compare(a, b)
    if equal:
        return a
    a_decides, b_decides = compare(a, 1) is False, compare(b, 1) is False
    if a_decides and b_decides:
        if equal is False:
            raise ShapeMismatch(f"sizes {a!r} and {b!r} can't be broadcast")
        return b if isinstance(b, int) else a
    if a_decides:
        return a
    if b_decides:
        return b
    flat = _flatten("bcast", (a, b))
    return flat[0] if len(flat) == 1 else _make("bcast", tuple(sorted(flat, key=_key_of)))


# --- traversal ------------------------------------------------------------------------------------

_BUILD: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": add,
    "mul": mul,
    "floordiv": floordiv,
    "floormod": floormod,
    "min": min_,
    "max": max_,
    "bcast": bcast,
}


def build(op: str, args: Iterable[Dim]) -> Dim:
    """The canonical dim of an operation by name over two or more dims (folded from the left)."""
    dims = list(args)
    function = _BUILD[op]
    result = dims[0]
    for dim in dims[1:]:
        result = function(result, dim)
    return result


def free_vars(dim: Dim) -> tuple[DimVar, ...]:
    """The variables of a dim, in the order of its arguments."""
    if isinstance(dim, int):
        return ()
    if isinstance(dim, DimVar):
        return (dim,)
    found: dict[DimVar, None] = {}
    stack: list[Dim] = [dim]
    while stack:
        part = stack.pop()
        if isinstance(part, DimVar):
            found[part] = None
        elif isinstance(part, DimOp):
            stack.extend(reversed(part.args))
    return tuple(found)


def substitute(dim: Dim, mapping: Mapping[DimVar, Dim]) -> Dim:
    """`dim` with variables replaced, all at once. Depth is bounded by MAX_DEPTH."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, DimVar):
        return mapping.get(dim, dim)
    if not isinstance(dim, DimOp):
        raise TypeError(f"unknown dim {dim!r}")
    args = [substitute(a, mapping) for a in dim.args]
    if all(new is old for new, old in zip(args, dim.args, strict=True)):
        return dim
    return build(dim.op, args)


def evaluate(dim: Dim, env: Mapping[DimVar, int]) -> int:
    """The value of a dim. KeyError for a variable without a value.

    Raises what the machine raises: DimOverflow outside int64, DivisionByZero, ShapeMismatch where
    bcast is undefined. Depth is bounded by MAX_DEPTH.
    """
    if isinstance(dim, int):
        return dim
    if isinstance(dim, DimVar):
        return env[dim]
    if not isinstance(dim, DimOp):
        raise TypeError(f"unknown dim {dim!r}")
    values = [evaluate(a, env) for a in dim.args]
    result = values[0]
    for value in values[1:]:
        result = _apply(dim.op, result, value)
        if not _INT64_MIN <= result <= _INT64_MAX:
            raise DimOverflow(f"dim expression {dim!r} left the range of int64")
    return result


def _apply(op: str, a: int, b: int) -> int:
    match op:
        case "add":
            return a + b
        case "mul":
            return a * b
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case "bcast":
            if a != b and a != 1 and b != 1:
                raise ShapeMismatch(f"sizes {a} and {b} can't be broadcast")
            return b if a == 1 else a
        case "floordiv" | "floormod":
            if b == 0:
                raise DivisionByZero("dim expression divides by zero")
            return a // b if op == "floordiv" else a % b
    raise ValueError(f"unknown dim operation {op!r}")
