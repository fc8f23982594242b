"""The instruction set: ONE table. Standard library only.

Code is a stream of 32-bit words. An instruction is its number (one word) and its operands in the order of its row;
lists are a count word followed by that many words. A frame has two register files: int registers i0, i1, ... hold
int64 and start as 0; object registers r0, r1, ... hold references and start as NULL. Every consumer of an object
register refuses NULL with NullValue. Parameters arrive in i0.. and r0.. in the order of the parameters.

From this table come the C enum, operand layout and label table, the verifier's operand checks, assembler,
disassembler and docs/isa.md (native/gen_tables.py).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """What a word of an instruction means. `words` of a list counts its count word only."""

    INT_IN = "int register that is read"
    INT_OUT = "int register that is written"
    OBJ_IN = "object register that is read"
    OBJ_OUT = "object register that is written"
    OBJ_OPT = "object register that is read, or 0xFFFFFFFF for none"
    ANY_IN = "register that is read; bit 31 set: int register"
    ANY_OUT = "register that is written; bit 31 set: int register"
    DIM = "a size: bit 31 set: int register, else an immediate"
    IMM = "unsigned immediate"
    IMM64 = "signed 64-bit immediate, low word first"
    CONST = "index into the constants"
    FUNC = "index into the functions"
    KERNEL = "index into the kernel table"
    DEVICE = "index into the devices (0 = host)"
    CTOR = "index into the constructors (0 = tuple)"
    NOTE = "index into the notes (what a check is about), 0 = none"
    DTYPE = "number of a dtype (nimblevm/dtypes.py)"
    LABEL = "word offset of an instruction of the same function"
    LABEL_LIST = "count, then labels"
    DIM_LIST = "count, then DIM words"
    ARG_LIST = "count, then ANY_IN words"
    OBJ_LIST = "count, then OBJ_IN words"
    OUT_LIST = "count, then INT_OUT words"


LIST_ELEMENT = {
    Kind.LABEL_LIST: Kind.LABEL,
    Kind.DIM_LIST: Kind.DIM,
    Kind.ARG_LIST: Kind.ANY_IN,
    Kind.OBJ_LIST: Kind.OBJ_IN,
    Kind.OUT_LIST: Kind.INT_OUT,
}
INT_BIT = 1 << 31
NO_REGISTER = 0xFFFFFFFF

TERMINATOR, CALLS, RAISES = "terminator", "calls", "raises"


@dataclass(frozen=True, slots=True)
class Operand:
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Row:
    """One instruction. `flags`: terminator (control never falls through), calls (pushes a frame), raises (can fail)."""

    number: int
    mnemonic: str
    operands: tuple[Operand, ...]
    flags: frozenset[str]
    meaning: str
    since: int = 1

    def __post_init__(self) -> None:
        names = [o.name for o in self.operands]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.mnemonic}: an operand name occurs twice")
        if unknown := self.flags - {TERMINATOR, CALLS, RAISES}:
            raise ValueError(f"{self.mnemonic}: unknown flags {sorted(unknown)}")


def _row(number: int, text: str, meaning: str, *flags: str) -> Row:
    """`text` is the mnemonic and `name:kind` operands."""
    mnemonic, *operands = text.split()
    parsed = tuple(Operand(n, Kind[k.upper()]) for n, k in (o.split(":") for o in operands))
    return Row(number, mnemonic, parsed, frozenset(flags), meaning)


def _binary(number: int, mnemonic: str, meaning: str, *flags: str) -> Row:
    return _row(number, f"{mnemonic} dst:int_out a:int_in b:int_in dtype:dtype", meaning, *flags)


def _compare(number: int, mnemonic: str, meaning: str) -> Row:
    return _row(number, f"{mnemonic} dst:int_out a:int_in b:int_in", meaning)


def _dim(number: int, mnemonic: str, meaning: str) -> Row:
    return _row(number, f"{mnemonic} dst:int_out a:dim b:dim", meaning, RAISES)


ISA: tuple[Row, ...] = (
    # --- moves, calls, control --------------------------------------------------------------------
    _row(0, "Move dst:obj_out src:obj_in", "dst := src (one more reference)", RAISES),
    _row(1, "MoveInt dst:int_out src:int_in", "dst := src"),
    _row(2, "Ret src:any_in", "return src to the caller", TERMINATOR, RAISES),
    _row(3, "Invoke dst:any_out func:func args:arg_list", "dst := func(args)", CALLS, RAISES),
    _row(4, "InvokeTail func:func args:arg_list", "return func(args) in this frame's place", TERMINATOR, CALLS, RAISES),
    _row(5, "InvokeClosure dst:obj_out closure:obj_in args:obj_list", "dst := closure(args); captures come first", CALLS, RAISES),
    _row(6, "InvokeClosureTail closure:obj_in args:obj_list", "return closure(args) in this frame's place", TERMINATOR, CALLS, RAISES),
    _row(7, "If cond:int_in otherwise:label", "continue if cond is not 0, else go to otherwise"),
    _row(8, "Goto target:label", "go to target", TERMINATOR),
    _row(9, "Switch tag:int_in targets:label_list", "go to targets[tag]; outside the list: MatchFailure", TERMINATOR, RAISES),
    _row(10, "Fatal note:note", "MatchFailure with the note's text", TERMINATOR, RAISES),
    # --- constants and boxes ----------------------------------------------------------------------
    _row(11, "LoadConst dst:obj_out const:const", "dst := constant", RAISES),
    _row(12, "LoadConsti dst:int_out value:imm64", "dst := value"),
    _row(13, "Box dst:obj_out src:int_in dtype:dtype", "dst := new rank-0 host tensor of src", RAISES),
    _row(14, "Unbox dst:int_out src:obj_in dtype:dtype", "dst := value of a rank-0 integer or bool tensor of that dtype", RAISES),
    # --- shapes -----------------------------------------------------------------------------------
    _row(15, "DimOf dst:int_out src:obj_in axis:imm", "dst := size of an axis of a tensor", RAISES),
    _row(16, "CheckDim actual:dim expected:dim note:note", "ShapeMismatch unless actual = expected", RAISES),
    _row(17, "Broadcast dst:int_out a:dim b:dim note:note", "dst := a if b is 1 or a = b, b if a is 1, else ShapeMismatch", RAISES),
    _row(18, "ShapeOf dst:obj_out src:obj_in dtype:dtype", "dst := rank-1 host tensor (int32 or int64) of src's shape", RAISES),
    _row(19, "PackShape dst:obj_out dims:dim_list dtype:dtype", "dst := rank-1 host tensor of dims", RAISES),
    _row(20, "ReadInt dst:int_out src:obj_in index:dim", "dst := src.flat[index] of an integer or bool tensor, sign- or zero-extended", RAISES),
    # --- tensors ----------------------------------------------------------------------------------
    _row(21, "AllocStorage dst:obj_out size:dim alignment:imm device:device", "dst := new block of size bytes", RAISES),
    _row(
        22,
        "AllocTensor dst:obj_out storage:obj_opt offset:dim dims:dim_list dtype:dtype device:device",
        "dst := tensor at a byte offset of storage; without storage: a block of its own from the pool",
        RAISES,
    ),
    _row(23, "View dst:obj_out src:obj_in offset:dim dims:dim_list", "dst := compact tensor of src's dtype at an element offset into src; it must lie inside src", RAISES),
    _row(24, "ReshapeTensor dst:obj_out src:obj_in dims:dim_list note:note", "dst := src with other dims; ShapeMismatch unless the element counts agree", RAISES),
    _row(25, "Shrink dst:obj_out src:obj_in size:dim", "dst := src with a first axis of size <= its own", RAISES),
    _row(26, "CallKernel kernel:kernel operands:obj_list dims:dim_list out_dims:out_list", "run a kernel: operands are inputs, outputs, scratch in the order of its signature", RAISES),
    _row(27, "DeviceCopy dst:obj_out src:obj_in device:device", "dst := src on a device: src itself if it is there (format version 2), else a copy", RAISES),
    _row(28, "KillRegister reg:obj_out", "reg := NULL"),
    # --- data -------------------------------------------------------------------------------------
    _row(29, "AllocADT dst:obj_out ctor:ctor fields:obj_list", "dst := new value of a constructor", RAISES),
    _row(30, "AllocClosure dst:obj_out func:func captures:obj_list", "dst := new closure", RAISES),
    _row(31, "AllocRef dst:obj_out value:obj_in", "dst := new mutable cell", RAISES),
    _row(32, "ReadRef dst:obj_out ref:obj_in", "dst := content of ref", RAISES),
    _row(33, "WriteRef ref:obj_in value:obj_in", "content of ref := value", RAISES),
    _row(34, "GetField dst:obj_out src:obj_in index:imm", "dst := field of an ADT value or tuple", RAISES),
    _row(35, "GetTag dst:int_out src:obj_in", "dst := position of the value's constructor in its type", RAISES),
    _row(
        36,
        "Append dst:obj_out src:obj_in tail:obj_in axis:imm",
        "dst := src and tail joined along an axis before which all sizes are 1; in src's block, behind src, if src is "
        "the last in it and its capacity suffices",
        RAISES,
    ),
    _row(
        37,
        "Linearize dst:obj_out src:obj_in type:ctor",
        "dst := the nodes of a tree of type's ADT as a tuple of tables, for each constructor in turn: int32 how many "
        "nodes of it are on each level; for each field of the ADT itself int32 which rows the children are; for each "
        "tensor field of known size its tensors, stacked. Rows are numbered by level (0: no children, else one more "
        "than the highest child), then constructor; a constructor's tables have this order",
        RAISES,
    ),
    # --- integer arithmetic: computed in int64, then re-extended from dtype (wraps) --------------------
    _binary(40, "IntAdd", "dst := a + b"),
    _binary(41, "IntSub", "dst := a - b"),
    _binary(42, "IntMul", "dst := a * b"),
    _binary(43, "IntDiv", "dst := a / b truncated; DivisionByZero", RAISES),
    _binary(44, "IntMod", "dst := remainder of the truncated division; DivisionByZero", RAISES),
    _binary(45, "IntFloorDiv", "dst := a / b floored; DivisionByZero", RAISES),
    _binary(46, "IntFloorMod", "dst := remainder of the floored division; DivisionByZero", RAISES),
    _binary(47, "IntMin", "dst := the smaller"),
    _binary(48, "IntMax", "dst := the larger"),
    _binary(49, "IntAnd", "dst := a & b (bits)"),
    _binary(50, "IntOr", "dst := a | b (bits)"),
    _binary(51, "IntXor", "dst := a ^ b (bits)"),
    _row(52, "IntCast dst:int_out src:int_in dtype:dtype", "dst := src cut to dtype and re-extended; bool: src != 0"),
    _compare(53, "IntEq", "dst := a = b"),
    _compare(54, "IntNe", "dst := a != b"),
    _compare(55, "IntLt", "dst := a < b"),
    _compare(56, "IntLe", "dst := a <= b"),
    # --- dim arithmetic: int64, overflow is DimOverflow ---------------------------------------------------
    _dim(60, "DimAdd", "dst := a + b"),
    _dim(61, "DimSub", "dst := a - b"),
    _dim(62, "DimMul", "dst := a * b"),
    _dim(63, "DimFloorDiv", "dst := floor(a / b); DivisionByZero"),
    _dim(64, "DimFloorMod", "dst := a - b * floor(a / b); DivisionByZero"),
    _dim(65, "DimMin", "dst := the smaller"),
    _dim(66, "DimMax", "dst := the larger"),
)  # fmt: skip

BY_MNEMONIC: dict[str, Row] = {row.mnemonic: row for row in ISA}
BY_NUMBER: dict[int, Row] = {row.number: row for row in ISA}
if len(BY_MNEMONIC) != len(ISA) or len(BY_NUMBER) != len(ISA):
    raise ValueError("isa.ISA: a number or mnemonic occurs twice")
