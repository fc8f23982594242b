"""Device domains: which values must live on one device.

A value of a tensor type has one domain, a leaf; a tuple, function, reference or data type has a tree of them: fields,
parameters and result, content, type arguments. Unification makes leaves one (union-find), soft edges between leaves may
become copies. What the host keeps as a number, a rank-0 integer or bool, has no domain. Data types: what a type
argument stands for has the argument's domains; tensors that a definition names itself have one domain a field in the
whole program. A type variable is one leaf whatever stands for it.

Source: TVM's device domains (src/relay/transforms/device_domains.cc), without its device polymorphism either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nimblevm.compiler.op_class import is_int
from nimblevm.relay.ir import Constructor
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.vm import STORAGE
from nimblevm.relay.types import TensorType, TupleType, Type, TypeCall, TypeVar, parts


class Leaf:
    """A domain. What it says counts at the root of its class.

    pin       the device, if there is no choice
    wish      device -> how much an annotation wants it
    flexible  kernels that devices run write it
    entry     it comes from outside
    native    the host makes it (or nothing but a constant)
    label     the device that was chosen, once it is
    """

    __slots__ = ("entry", "flexible", "label", "native", "parent", "pin", "wish")

    def __init__(self, pin: int | None = None) -> None:
        self.parent: Leaf = self
        self.pin = pin
        self.wish: dict[int, float] = {}
        self.flexible = self.entry = self.native = False
        self.label: int | None = None


Tree = Leaf | tuple["Tree", ...] | None
Labels = int | tuple["Labels", ...] | None


def root(leaf: Leaf) -> Leaf:
    """The leaf that stands for a class."""
    while leaf.parent is not leaf:
        leaf.parent = leaf.parent.parent
        leaf = leaf.parent
    return leaf


def _join(a: Leaf, b: Leaf) -> None:
    a, b = root(a), root(b)
    if a is b:
        return
    b.parent = a
    if a.pin is None or b.pin == 0:
        a.pin = b.pin if b.pin is not None else a.pin
    for device, weight in b.wish.items():
        a.wish[device] = a.wish.get(device, 0) + weight
    a.flexible |= b.flexible
    a.entry |= b.entry
    a.native |= b.native


def leaves(tree: Tree) -> list[Leaf]:
    """All leaves, from left to right."""
    found: list[Leaf] = []
    stack = [tree]
    while stack:
        current = stack.pop()
        if isinstance(current, Leaf):
            found.append(current)
        elif current is not None:
            stack.extend(reversed(current))
    return found


def unify(a: Tree, b: Tree) -> None:
    """Make two trees one. A leaf against a structure (a type variable) takes all of it in."""
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        if isinstance(x, tuple) and isinstance(y, tuple):
            stack.extend(zip(x, y, strict=False))
        elif isinstance(x, Leaf) or isinstance(y, Leaf):
            all_ = [*leaves(x), *leaves(y)]
            for leaf in all_[1:]:
                _join(all_[0], leaf)


def labels(tree: Tree) -> Labels:
    """The devices that were chosen, in the form of the tree."""
    return _mapped(tree, lambda leaf: root(leaf).label or 0)


def all_on(tree: Tree, device: int) -> Labels:
    """The form of a tree with one device everywhere."""
    return _mapped(tree, lambda leaf: device)


def _mapped(tree: Tree, of: Callable[[Leaf], int]) -> Labels:
    if isinstance(tree, Leaf):
        return of(tree)
    if tree is None:
        return None
    done: dict[int, Labels] = {}
    stack: list[tuple[tuple[Tree, ...], bool]] = [(tree, False)]
    while stack:
        current, ready = stack.pop()
        if not ready:
            stack.append((current, True))
            stack.extend((t, False) for t in current if isinstance(t, tuple))
            continue
        done[id(current)] = tuple(
            done[id(t)] if isinstance(t, tuple) else of(t) if isinstance(t, Leaf) else None
            for t in current
        )
    return done[id(tree)]


class Domains:
    """Makes trees for types, and knows those of the fields of data types."""

    def __init__(self, mod: IRModule) -> None:
        self.definitions = mod.type_definitions
        self._own: dict[tuple[Constructor, int], list[Leaf]] = {}

    def fresh(self, type_: Type) -> Tree:
        """A tree of new leaves."""
        return self._build(type_, {}, None)

    def field(self, tree: Tree, constructor: Constructor, index: int) -> Tree:
        """What a field of a value has; `tree`: the value's."""
        if not isinstance(tree, tuple):
            return tree  # a type variable's
        definition = self.definitions[constructor.belong_to]
        known = dict(zip(definition.type_vars, tree, strict=True))
        own = self._own.setdefault((constructor, index), [])
        return self._build(constructor.inputs[index], known, own)

    def own_leaves(self, constructor: Constructor) -> list[Leaf]:
        """The leaves of the tensors that a definition names itself."""
        for index in range(len(constructor.inputs)):
            definition = self.definitions[constructor.belong_to]
            self.field(tuple(Leaf() for _ in definition.type_vars), constructor, index)
        return [leaf for (c, _), found in self._own.items() if c is constructor for leaf in found]

    def _build(self, type_: Type, known: Mapping[TypeVar, Tree], own: list[Leaf] | None) -> Tree:
        """own: the leaves of tensors that stand in the type, by position, made at first."""
        taken = 0
        done: list[Tree] = []
        stack: list[tuple[Type, bool]] = [(type_, False)]
        while stack:
            current, ready = stack.pop()
            below = parts(current) if current is not STORAGE else ()
            if below and not ready:
                stack.append((current, True))
                stack.extend((p, False) for p in reversed(below))
            elif isinstance(current, TensorType):
                if is_int(current):
                    done.append(None)
                    continue
                if own is None:
                    done.append(Leaf())
                    continue
                if taken == len(own):
                    own.append(Leaf())
                done.append(own[taken])
                taken += 1
            elif isinstance(current, TypeVar):
                done.append(known[current] if current in known else Leaf())
            else:
                fields = tuple(done[len(done) - len(below) :])
                del done[len(done) - len(below) :]
                done.append(fields if isinstance(current, TupleType | TypeCall) or fields else None)
        return done[0]


__all__ = ["Domains", "Labels", "Leaf", "Tree", "all_on", "labels", "leaves", "root", "unify"]
