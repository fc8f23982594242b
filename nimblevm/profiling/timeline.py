"""From events to what people look at: spans on tracks, a tree of calls, and memory over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nimblevm.vm.profiler import Events, Profile

RUN, END, ENTER, TAIL, LEAVE, KERNEL, PIECE, MEMORY = range(8)
"""NVM_EVENT_* of nvm_api.h."""


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time. Seconds since the first event; `depth` counts the spans around it on its track.

    kind     "run", "function", "kernel" or "piece" (of a parallel loop)
    track    0: the thread that called the VM; others: workers
    shape    of a kernel: index into Events.sizes, -1 for none
    word     of code that called it, -1 for none
    """

    kind: str
    name: str
    start: float
    seconds: float
    depth: int
    track: int = 0
    shape: int = -1
    word: int = -1

    @property
    def start_ns(self) -> int:
        return round(self.start * 1e9)

    @property
    def ns(self) -> int:
        """Up to the rounded end, so that spans which touch do not overlap."""
        return round((self.start + self.seconds) * 1e9) - self.start_ns


@dataclass(slots=True, eq=False)
class Node:
    """A place in the tree of calls; calls of a function from itself, at any distance, are its own (`recursive`).

    seconds    of the node alone, without its children
    calls      tail calls included: so many turns a loop took
    """

    name: str
    kind: str
    parent: Node | None
    seconds: float = 0.0
    calls: int = 0
    recursive: bool = False
    children: dict[tuple[str, str], Node] = field(default_factory=dict)

    def child(self, kind: str, name: str) -> Node:
        found = self.children.get((kind, name))
        if found is None:
            found = self.children[kind, name] = Node(name, kind, self)
        return found

    def walk(self) -> Iterator[Node]:
        """Parents before children."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


@dataclass(frozen=True, slots=True)
class Memory:
    """From `at` on: bytes alive and bytes that pools keep for later. word: code that changed it, -1 for none."""

    at: float
    live: int
    pooled: int
    word: int


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """spans are in the order in which they ended; `tracks` are names; `seconds`: the last moment."""

    spans: tuple[Span, ...]
    tracks: tuple[str, ...]
    root: Node
    memory: tuple[Memory, ...]
    seconds: float
    dropped: int


class _Builder:
    def __init__(self, profile: Profile, events: Events) -> None:
        self.names = events.places.functions
        self.words = events.places.words
        self.kernels = {k.number: k.name for k in profile.kernels}
        self.period = 1.0 / events.second
        rows = events.rows
        self.origin = int(rows["at"].min()) if len(rows) else 0
        self.spans: list[Span] = []
        self.memory: list[Memory] = []
        self.root = Node("", "root", None)
        self.node = self.root  # whose time is running
        # Open spans of the caller's thread: kind, name, start, and the node to return to.
        self.open: list[tuple[str, str, float, Node]] = []
        self.active: dict[str, list[Node]] = {}  # functions that are under way
        self.last = 0.0
        self.main_thread = -1
        self.threads: dict[int, int] = {}

    # --- the tree ---

    def spend(self, at: float) -> None:
        """What passed since the last event was the current node's."""
        if self.open:
            self.node.seconds += max(0.0, at - self.last)
        self.last = max(self.last, at)

    def push(self, kind: str, name: str, at: float) -> None:
        self.open.append((kind, name, at, self.node))
        if kind == "function":
            under_way = self.active.setdefault(name, [])
            if under_way:
                self.node = under_way[-1]
                self.node.recursive = True
            else:
                self.node = self.node.child(kind, name)
            under_way.append(self.node)
        else:
            self.node = self.node.child(kind, name)
        self.node.calls += 1

    def pop(self, at: float) -> None:
        kind, name, start, back = self.open.pop()
        self.spans.append(Span(kind, name, start, at - start, len(self.open)))
        if kind == "function":
            self.active[name].pop()
        self.node = back

    # --- events ---

    def name(self, number: int) -> str:
        return self.names[number] if number < len(self.names) else f"function {number}"

    def function_event(self, kind: int, index: int, at: float) -> None:
        self.spend(at)
        if kind in (TAIL, LEAVE) and self.open and self.open[-1][0] == "function":
            self.pop(at)
        if kind != LEAVE:
            self.push("function", self.name(index), at)

    def kernel(self, index: int, at: float, took: float, shape: int, word: int) -> None:
        self.spend(at)
        name = self.kernels.get(index, f"kernel {index}")
        self.spans.append(Span("kernel", name, at, took, len(self.open), 0, shape, word))
        node = self.node.child("kernel", name)
        node.calls += 1
        node.seconds += took
        self.last = max(self.last, at + took)

    def piece(self, index: int, at: float, took: float, thread: int) -> None:
        name = self.kernels.get(index, f"kernel {index}")
        if thread == self.main_thread:
            track, depth = 0, len(self.open) + 1  # inside the kernel that ends later
        else:
            track, depth = self.threads.setdefault(thread, len(self.threads) + 1), 0
        self.spans.append(Span("piece", name, at, took, depth, track))

    def end(self, at: float) -> None:
        self.spend(at)
        while self.open:
            self.pop(at)
        self.node = self.root

    def event(self, at: int, a: int, b: int, kind: int, index: int, shape: int) -> None:
        time = (at - self.origin) * self.period
        word = b if b < self.words else -1
        match kind:
            case 0:  # RUN
                self.end(time)  # of one whose end was dropped by a reset
                self.main_thread, self.last = b, time
                self.push("run", f"run @{self.name(index)}", time)
            case 1:  # END
                self.end(time)
            case 2 | 3 | 4:  # ENTER, TAIL, LEAVE
                self.function_event(kind, index, time)
            case 5:  # KERNEL
                self.kernel(index, time, a * self.period, shape, word)
            case 6:  # PIECE
                self.piece(index, time, a * self.period, b)
            case 7:  # MEMORY
                place = index if index < self.words else -1
                self.memory.append(Memory(time, a, b, place))
            case _:
                raise ValueError(f"a profile has an event of kind {kind}")


def timeline(profile: Profile) -> Timeline:
    """Raises ValueError for a profile without events."""
    events = profile.events
    if events is None:
        raise ValueError('the profile has no events; VirtualMachine(exe, profile="events") has')
    builder = _Builder(profile, events)
    rows = events.rows
    columns = (rows[name].tolist() for name in ("at", "a", "b", "kind", "index", "shape"))
    for row in zip(*columns, strict=True):
        builder.event(*row)
    ends = [span.start + span.seconds for span in builder.spans]
    last = max([builder.last, *ends, *(m.at for m in builder.memory[-1:])])
    builder.end(last)  # open ones, if events were dropped
    tracks = ("VM", *(f"worker {k}" for k in range(1, len(builder.threads) + 1)))
    return Timeline(
        tuple(builder.spans), tracks, builder.root, tuple(builder.memory), last, events.dropped
    )


__all__ = ["Memory", "Node", "Span", "Timeline", "timeline"]
