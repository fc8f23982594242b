"""How much code a fused kernel gets: operators count once for each index at which they are read."""

from __future__ import annotations

from nimblevm.compiler.fused_size import Member, written
from nimblevm.relay.dims import DimVar
from nimblevm.relay.types import TensorType

_ROW = TensorType((DimVar("n"),), "float32")
_COLUMN = TensorType((DimVar("n"), 1), "float32")
_TABLE = TensorType((DimVar("n"), 7), "float32")
LIMIT = 1000


def _group(*members: tuple[TensorType, tuple[int, ...], bool]) -> list[Member]:
    """Members of (type, sources, keeps_index), of which the last leaves the group."""
    last = len(members) - 1
    return [
        Member(i, t, sources, keeps, 1, i == last) for i, (t, sources, keeps) in enumerate(members)
    ]


def test_elementwise_operators_share_what_they_read_twice() -> None:
    chain = _group((_ROW, (), True), *((_ROW, (i, i), True) for i in range(20)))
    assert written(chain, LIMIT) == 21


def test_a_column_is_written_once_for_all_tables_that_read_it() -> None:
    group = _group((_COLUMN, (), True), (_TABLE, (0,), True), (_TABLE, (0, 1), True))
    assert written(group, LIMIT) == 3


def test_what_moves_elements_doubles_what_it_reads_twice() -> None:
    chain = _group((_ROW, (), True), *((_ROW, (i, i), False) for i in range(4)))
    assert written(chain, LIMIT) == 1 + 2 + 4 + 8 + 16


def test_a_result_that_others_read_elsewhere_is_written_for_both() -> None:
    group = [
        Member(0, _ROW, (), keeps_index=True, ops=1, leaves=True),
        Member(1, _TABLE, (0,), keeps_index=False, ops=1, leaves=True),
    ]
    assert written(group, LIMIT) == 3


def test_counting_ends_above_the_limit() -> None:
    chain = _group((_ROW, (), True), *((_ROW, (i, i), False) for i in range(200)))
    assert LIMIT < written(chain, LIMIT) <= 4 * LIMIT
