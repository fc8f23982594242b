"""Events become spans and a tree whose times add up."""

from __future__ import annotations

import pytest

from nimblevm.profiling import Node, timeline
from nimblevm.profiling.timeline import END, ENTER, KERNEL, LEAVE, MEMORY, PIECE, RUN, TAIL
from nimblevm.vm.profiler import Profile
from tests.profiling.conftest import Make

NO_WORD = 30


def total(node: Node) -> float:
    return sum(part.seconds for part in node.walk())


def test_a_run_with_calls_kernels_and_memory(make: Make) -> None:
    made = timeline(
        make(
            [
                (100, 0, 5, RUN, 0, 0),
                (100, 64, 0, MEMORY, NO_WORD, 0),
                (110, 1, NO_WORD, ENTER, 0, 0),
                (120, 2, 4, ENTER, 1, 0),
                (130, 40, 15, KERNEL, 0, 0),
                (175, 2048, 512, MEMORY, 12, 0),
                (180, 2, 0, LEAVE, 0, 0),
                (190, 1, 0, LEAVE, 0, 0),
                (200, 0, 0, END, 0, 0),
            ]
        )
    )
    found = [
        (s.kind, s.name, round(s.start * 1e9), round(s.seconds * 1e9), s.depth) for s in made.spans
    ]
    assert found == [
        ("kernel", "k", 30, 40, 3),
        ("function", "f", 20, 60, 2),
        ("function", "main", 10, 80, 1),
        ("run", "run @main", 0, 100, 0),
    ]
    assert (made.spans[0].shape, made.spans[0].word) == (0, 15)
    assert [(round(m.at * 1e9), m.live, m.pooled, m.word) for m in made.memory] == [
        (0, 64, 0, -1), (75, 2048, 512, 12),
    ]  # fmt: skip
    own = {node.name: round(node.seconds * 1e9) for node in made.root.walk()}
    assert own == {"": 0, "run @main": 20, "main": 20, "f": 20, "k": 40}
    assert total(made.root) == pytest.approx(1e-7)


def test_a_tail_call_takes_the_place_of_its_caller(make: Make) -> None:
    events = [(0, 0, 5, RUN, 0, 0), (0, 1, NO_WORD, ENTER, 0, 0)]
    events += [(10 * k, 1, 4, TAIL, 1, 0) for k in range(1, 5)]
    made = timeline(make([*events, (50, 1, 0, LEAVE, 0, 0), (50, 0, 0, END, 0, 0)]))
    assert [s.name for s in made.spans] == ["main", "f", "f", "f", "f", "run @main"]
    assert {s.depth for s in made.spans if s.kind == "function"} == {1}
    (run,) = made.root.children.values()
    assert {n.name: (n.calls, round(n.seconds * 1e9)) for n in run.children.values()} == {
        "main": (1, 10), "f": (4, 40),
    }  # fmt: skip


def test_recursion_is_one_node(make: Make) -> None:
    events = [(0, 0, 5, RUN, 0, 0), (0, 1, NO_WORD, ENTER, 0, 0)]
    deep = 50_000
    for k in range(deep):  # f calls g calls f ...
        events.append((k, k + 2, 4, ENTER, 1 + k % 2, 0))
    events += [(deep + k, deep - k, 0, LEAVE, 0, 0) for k in range(deep)]
    made = timeline(make([*events, (2 * deep, 1, 0, LEAVE, 0, 0), (2 * deep, 0, 0, END, 0, 0)]))
    nodes = {node.name: node for node in made.root.walk()}
    assert len(list(made.root.walk())) == 5
    assert nodes["f"].recursive
    assert (nodes["f"].calls, nodes["g"].calls) == (deep // 2, deep // 2)
    assert total(made.root) == pytest.approx(2 * deep * 1e-9)
    assert max(s.depth for s in made.spans) == deep + 1


def test_pieces_stand_on_their_threads(make: Make) -> None:
    made = timeline(
        make(
            [
                (0, 0, 5, RUN, 0, 0),
                (0, 1, NO_WORD, ENTER, 0, 0),
                (12, 10, 77, PIECE, 0, 0),
                (11, 20, 5, PIECE, 0, 0),
                (10, 30, 3, KERNEL, 0, -1),
                (50, 0, 0, END, 0, 0),
            ]
        )
    )
    assert made.tracks == ("VM", "worker 1")
    found = [(s.track, s.depth) for s in made.spans if s.kind == "piece"]
    assert found == [(1, 0), (0, 3)]
    (kernel,) = [s for s in made.spans if s.kind == "kernel"]
    assert (kernel.depth, kernel.shape) == (2, -1)


def test_what_is_open_when_room_ends_is_closed(make: Make) -> None:
    events = [(0, 0, 5, RUN, 0, 0), (5, 1, NO_WORD, ENTER, 0, 0), (10, 30, 3, KERNEL, 0, 0)]
    made = timeline(make(events, dropped=17))
    assert made.dropped == 17
    assert {s.kind: round((s.start + s.seconds) * 1e9) for s in made.spans} == {
        "kernel": 40, "function": 40, "run": 40,
    }  # fmt: skip
    # A run that failed leaves functions open too.
    made = timeline(make([*events, (90, 3, 0, END, 0, 0), (95, 0, 5, RUN, 0, 0), (99, 0, 0, END, 0, 0)]))  # fmt: skip
    assert [s.kind for s in made.spans] == ["kernel", "function", "run", "run"]


def test_empty(make: Make) -> None:
    made = timeline(make())
    assert (made.spans, made.memory, made.seconds) == ((), (), 0.0)
    with pytest.raises(ValueError, match="no events"):
        timeline(Profile(0, 0.0, (), ()))


def test_a_real_tree(tree_profile: Profile) -> None:
    made = timeline(tree_profile)
    runs = [s for s in made.spans if s.kind == "run"]
    assert len(runs) == 2
    assert total(made.root) == pytest.approx(sum(s.seconds for s in runs), rel=1e-6)
    calls = sum(s.kind == "kernel" for s in made.spans)
    assert calls == sum(k.calls for k in tree_profile.kernels)
    in_kernels = sum(n.seconds for n in made.root.walk() if n.kind == "kernel")
    assert in_kernels == pytest.approx(tree_profile.kernel_seconds, rel=1e-6)
    for outer in runs:
        inside = [s for s in made.spans if outer.start <= s.start < outer.start + outer.seconds]
        assert all(s.start + s.seconds <= outer.start + outer.seconds + 1e-9 for s in inside)
