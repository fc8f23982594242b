"""Which device each domain gets.

Kernels that devices run go to the default device, unless an annotation wants them on the host, and unless nothing but
the host takes part: what only the host makes, kernels compute on, and only the host reads (sizes, indices, what follows
a sort) stays there. Every other domain goes where the fewest copies are, those in functions that call themselves
counting more: from what is decided to its neighbours, until nothing changes.
"""

from __future__ import annotations

from nimblevm.compiler.device_flow import Flow
from nimblevm.compiler.devices import Devices
from nimblevm.compiler.domains import Leaf, root

ROUNDS = 20


def choose(flow: Flow, host: Leaf, devices: Devices) -> None:
    """Set `label` at the root of every class that an edge or a value has."""
    near: dict[Leaf, list[tuple[Leaf, float]]] = {}
    for edge in flow.edges:
        a, b = root(edge.a), root(edge.b)
        if a is not b:
            near.setdefault(a, []).append((b, edge.weight))
            near.setdefault(b, []).append((a, edge.weight))
    flexible = {root(k.place) for k in flow.kernels.values() if not k.pinned}
    islands = _islands(flexible, near, host)
    for leaf in near:
        if leaf.pin is not None:
            leaf.label = leaf.pin
    for leaf in flexible:
        if leaf.pin is not None:
            leaf.label = leaf.pin
        else:
            wish = {d: weight for d, weight in leaf.wish.items() if devices.runs(d)}
            free = 0 if leaf in islands else devices.default
            leaf.label = max(wish, key=lambda d: wish[d]) if wish else free
    _settle([leaf for leaf in near if leaf.label is None], near, devices)


def _is_native(leaf: Leaf, host: Leaf) -> bool:
    return leaf is root(host) or (leaf.native and leaf.pin == 0)


def _islands(
    flexible: set[Leaf], near: dict[Leaf, list[tuple[Leaf, float]]], host: Leaf
) -> set[Leaf]:
    """Kernels' domains that are connected with nothing but what the host makes or reads."""
    found: set[Leaf] = set()
    seen: set[Leaf] = set()
    for start in flexible:
        if start in seen:
            continue
        seen.add(start)
        group, stack = [start], [start]
        by_host = False
        while stack:
            for other, _ in near.get(stack.pop(), ()):
                if _is_native(other, host):
                    by_host = True
                elif other not in seen:
                    seen.add(other)
                    group.append(other)
                    stack.append(other)
        outside = any(leaf.entry or leaf.pin is not None or leaf.wish for leaf in group)
        if by_host and not outside:
            found.update(group)
    return found


def _settle(free: list[Leaf], near: dict[Leaf, list[tuple[Leaf, float]]], devices: Devices) -> None:
    for _ in range(ROUNDS):
        changed = False
        for leaf in free:
            votes = dict(leaf.wish)
            for other, weight in near[leaf]:
                if other.label is not None:
                    votes[other.label] = votes.get(other.label, 0.0) + weight
            if not votes:
                continue
            best = max(votes.values())
            tied = sorted(d for d, v in votes.items() if v == best)
            label = devices.default if devices.default in tied else tied[0]
            changed |= label != leaf.label
            leaf.label = label
        if not changed:
            break


__all__ = ["choose"]
