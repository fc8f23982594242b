"""Which storage serves which tensors."""

from __future__ import annotations

import itertools
import random

from nimblevm.compiler.storage import Request, assign
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar

N, M = DimVar("n"), DimVar("m")


def _request(size: Dim, start: int, end: int, *known: DimVar) -> Request:
    return Request(size, start, end, frozenset(known))


def _members(requests: list[Request]) -> list[list[int]]:
    return sorted(slot.members for slot in assign(requests))


def test_one_after_the_other() -> None:
    assert _members([_request(64, 0, 2), _request(64, 3, 4), _request(64, 4, 5)]) == [[0, 1], [2]]


def test_large_one_comes_late() -> None:
    """The small one lies in the large one's storage, which then has to be there earlier."""
    slots = assign([_request(64, 0, 2), _request(4096, 3, 4)])
    assert [(slot.size, slot.members) for slot in slots] == [(4096, [0, 1])]


def test_a_gap_is_filled() -> None:
    requests = [_request(4096, 0, 1), _request(4096, 6, 7), _request(64, 2, 5), _request(64, 4, 5)]
    assert _members(requests) == [[0, 2, 1], [3]]


def test_smallest_that_is_large_enough() -> None:
    requests = [_request(4096, 0, 1), _request(128, 0, 1), _request(64, 2, 3)]
    assert _members(requests) == [[0], [1, 2]]


def test_sizes_that_have_no_order() -> None:
    n, m = dims.mul(N, 4), dims.mul(M, 4)
    (slot,) = assign([_request(n, 0, 1, N, M), _request(m, 2, 3, N, M)])
    assert slot.size == dims.max_(n, m)
    assert _members([_request(n, 0, 1, N), _request(m, 2, 3, N, M)]) == [[0], [1]]


def test_at_most_so_many_sizes_without_order() -> None:
    names = [DimVar(f"v{i}") for i in range(6)]
    requests = [_request(dims.mul(v, 4), 2 * i, 2 * i + 1, *names) for i, v in enumerate(names)]
    assert sorted(len(slot.members) for slot in assign(requests)) == [2, 4]


def test_sizes_that_have_one() -> None:
    requests = [_request(dims.mul(N, 16), 0, 1, N), _request(dims.mul(N, 4), 2, 3, N)]
    assert _members(requests) == [[0, 1]]


def test_a_size_that_is_not_known_yet() -> None:
    requests = [_request(0, 0, 1), _request(dims.mul(N, 4), 2, 3, N)]
    assert _members(requests) == [[0], [1]]


def test_none_two_at_a_time() -> None:
    rng = random.Random(5)
    requests = []
    for _ in range(400):
        start = rng.randrange(300)
        size = rng.choice([64, 256, 1024, dims.mul(N, 64), dims.mul(N, 256)])
        requests.append(_request(size, start, start + rng.randrange(20), N))
    slots = assign(requests)
    assert sorted(i for slot in slots for i in slot.members) == list(range(400))
    for slot in slots:
        members = [requests[i] for i in slot.members]
        for before, after in itertools.pairwise(members):
            assert before.end < after.start
        assert all(dims.max_(slot.size, member.size) == slot.size for member in members)
    assert len(slots) < 80


def test_many_of_one_size() -> None:
    count = 50_000
    assert len(assign([_request(64, i, i + 1) for i in range(count)])) == 2
