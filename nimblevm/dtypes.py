"""The dtypes of tensors: ONE table of names, DLPack codes, sizes and file numbers.

Leaf module (standard library only). `number` is what bytecode and files store and is never reused;
native/gen_tables.py writes the C side.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """One row. `code` and `bits` are DLPack's; `itemsize` is in bytes; `numpy` is numpy's name."""

    number: int
    name: str
    code: int
    bits: int
    itemsize: int
    numpy: str

    @property
    def is_float(self) -> bool:
        return self.code == DL_FLOAT

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned integer; bool is none."""
        return self.code in (DL_INT, DL_UINT)

    @property
    def is_signed(self) -> bool:
        return self.code == DL_INT

    @property
    def is_bool(self) -> bool:
        return self.code == DL_BOOL

    @property
    def unboxable(self) -> bool:
        """May live in an int register (sign- or zero-extended to int64)."""
        return self.code in (DL_INT, DL_UINT, DL_BOOL) and self.name != "uint64"


DL_INT, DL_UINT, DL_FLOAT, DL_BOOL = 0, 1, 2, 6

DTYPES: tuple[DType, ...] = (
    DType(0, "bool", DL_BOOL, 8, 1, "bool"),
    DType(1, "int8", DL_INT, 8, 1, "int8"),
    DType(2, "int16", DL_INT, 16, 2, "int16"),
    DType(3, "int32", DL_INT, 32, 4, "int32"),
    DType(4, "int64", DL_INT, 64, 8, "int64"),
    DType(5, "uint8", DL_UINT, 8, 1, "uint8"),
    DType(6, "uint16", DL_UINT, 16, 2, "uint16"),
    DType(7, "uint32", DL_UINT, 32, 4, "uint32"),
    DType(8, "uint64", DL_UINT, 64, 8, "uint64"),
    DType(9, "float16", DL_FLOAT, 16, 2, "float16"),
    DType(10, "float32", DL_FLOAT, 32, 4, "float32"),
    DType(11, "float64", DL_FLOAT, 64, 8, "float64"),
)

BY_NAME: dict[str, DType] = {row.name: row for row in DTYPES}
BY_NUMBER: dict[int, DType] = {row.number: row for row in DTYPES}
if len(BY_NAME) != len(DTYPES) or len(BY_NUMBER) != len(DTYPES):
    raise ValueError("dtypes.DTYPES: a number or name occurs twice")

SHORT: dict[str, str] = {"int": "int32", "uint": "uint32", "float": "float32", "uint1": "bool"}
"""Names that TVM reads for others: without a number of bits it means 32, and its bool is an integer of one bit."""


def dtype(name: str) -> DType:
    """The row of a dtype name; raises ValueError that lists the known names."""
    try:
        return BY_NAME[name]
    except KeyError:
        raise ValueError(f"unknown dtype {name!r}; known: {', '.join(BY_NAME)}") from None
