"""Assembler, disassembler, writer and reader: round trips, and errors that name the line."""

from __future__ import annotations

import pytest

from nimblevm.bytecode import isa
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.disassembler import disassemble
from nimblevm.bytecode.executable import Executable
from nimblevm.bytecode.serialize import serialize
from nimblevm.errors import AssemblerError, InvalidExecutable

EVERYTHING = r"""
; a bit of everything
.producer "nimblevm" "0.1.0"
.producer "target" "x \"quoted\" \u00e9"
.device "cpu"
.device "null"
.source "model.rly"
.note "parameter %x ; not a comment" 0 3 4
.adt "List" 1 ["Nil", "Cons"]
.type Var[0]
.type Tensor[(2, ?, $0), float32]
.fields #"Cons" [t0, Adt["List", t0]]
.const float32 [2, 3] values 1 2 3 4.5 -1e3 inf
.const int64 [] dev1 values -9
.const bool [0] values
.const float32 [3, 2] values 1 2 3 4.5 -1e3 inf
.section 5 "blas" hex "80"
.func @main public [%x: t1, %"odd name": int int64, %n: int bool] -> Tuple[t1, Ref[t1], Fn[t1, t0, int8]]
  .dim "n" 0 []
  .dim "n + 1" -1 [1, 0, 0, 1, 2, 9]
  .checked 0 1 "2"
  .span 0 10 2
  LoadConsti i2, -9223372036854775808
  AllocTensor r2, _, 0, [i2, 4, 2147483647], float32, dev1
  PackShape r3, [], int32
again:
  .span 0 4000000 99999
  InvokeClosure r1, r2, [r0, r0]
  Invoke i0, @"odd fn", [i1, r0]
  If i1, again
  Switch i1, [again, out, again]
out:
  CheckDim i0, 5, n1
  CheckDim 5, i0, "inline note"
  AllocADT r1, #"Cons", [r0, r1]
  AllocADT r1, #tuple, []
  .span -1 0 0
  LoadConst r0, c2
  Ret r0
.end
.func @"odd fn" [%a: int int64, %b: t1] -> int int64
  .regs 7 9
  .dim "n" 1 []
  Ret i0
.end
"""


def test_round_trip_of_everything() -> None:
    program = assemble(EVERYTHING)
    data = serialize(program)
    with Executable.from_bytes(data, verify="full") as exe:
        assert exe.to_bytes() == data
        text = exe.disassemble(data=True)
    assert serialize(assemble(text)) == data
    assert disassemble(assemble(text), data=True) == text


def test_disassembly_names_what_it_mentions() -> None:
    text = disassemble(assemble(EVERYTHING))
    assert '.func @"odd fn"' in text
    assert "float32 [3, 2]" in text or "bool [0]" in text
    assert "; Cons" in text
    assert "; inline note" in text
    assert "model.rly:4000000:99999" in text


def test_every_row_has_a_text() -> None:
    """Encode each row with small operands by its kinds alone, and read it back."""
    sample = {
        isa.Kind.INT_IN: "i1", isa.Kind.INT_OUT: "i2", isa.Kind.OBJ_IN: "r1", isa.Kind.OBJ_OUT: "r2",
        isa.Kind.OBJ_OPT: "_", isa.Kind.ANY_IN: "i1", isa.Kind.ANY_OUT: "r3", isa.Kind.DIM: "i0",
        isa.Kind.IMM: "7", isa.Kind.IMM64: "-3", isa.Kind.CONST: "c0", isa.Kind.FUNC: "@f",
        isa.Kind.KERNEL: "k0", isa.Kind.DEVICE: "dev0", isa.Kind.CTOR: "#0", isa.Kind.NOTE: "n0",
        isa.Kind.DTYPE: "int8", isa.Kind.LABEL: "L0", isa.Kind.LABEL_LIST: "[L0, L0]",
        isa.Kind.DIM_LIST: "[3, i1]", isa.Kind.ARG_LIST: "[r1, i0]", isa.Kind.OBJ_LIST: "[r0]",
        isa.Kind.OUT_LIST: "[i1, i2]",
    }  # fmt: skip
    assert set(sample) == set(isa.Kind)
    lines = [f"  {r.mnemonic} {', '.join(sample[o.kind] for o in r.operands)}" for r in isa.ISA]
    head = '.device "cpu"\n.type Tensor[(), int8]\n.const int8 [] values 1\n.kernel "k" external\n.end\n'
    text = head + ".func @f [] -> t0\nL0:\n" + "\n".join(lines) + "\n.end\n"
    program = assemble(text)
    assert assemble(disassemble(program, data=True)).functions[0].code == program.functions[0].code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n.what 3", "line 2: expected a directive, got '.what'"),
        (".func @f [] -> int8\nRet r0", "line 1: the function has no .end"),
        (".func @f [] -> int8\nRet r0\nJump\n.end", "line 3: unknown instruction 'Jump'"),
        (".func @f [] -> int8\nGoto nowhere\n.end", "line 2: there is no label nowhere"),
        (".func @f [] -> int8\nMove r0, i1\n.end", "line 2: expected an object register"),
        (".func @f [] -> int9\n.end", "line 1: expected a type, got 'int9'"),
        (".func @f [] -> int8\nInvoke r0, @g, []\n.end", "line 2: there is no function @g"),
        (".func @f [] -> int8\nRet r0, r1\n.end", "line 2: unexpected ','"),
        (".func @f [] -> int8\n.end\n.func @f [] -> int8\n.end", "line 3: two functions are named f"),
        (".const int8 [1] values 300", "line 1: values do not fit int8"),
        (".const int8 [2] values 3", "line 1: expected a value, the line ends"),
        (".type " + "Ref[" * 101, "line 1: a type nests too deep"),
        (".type Fn[]", "line 1: a function type needs a result"),
        (".source “x”", "line 1: can't read"),
        (".func @f [] -> int8\nRet r" + "9" * 5_000, "line 2: expected an object register"),
        (".func @f [] -> t" + "9" * 5_000, "line 1: expected a type"),
        (".func @f [] -> int8\nGetTag i0, r0, #" + "9" * 5_000, "line 2: "),
    ],
)  # fmt: skip
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(AssemblerError) as caught:
        assemble(text)
    assert str(caught.value).startswith(message)


def test_faults_of_the_program_are_the_readers() -> None:
    data = serialize(assemble(".func @f [] -> int8\nRet r7\n.regs 0 1\n.end"))
    with pytest.raises(
        InvalidExecutable, match=r"function f, word 0 \(Ret\): object register 7, expected < 1"
    ):
        Executable.from_bytes(data)


def test_20_000_deep_types_and_functions_are_linear() -> None:
    lines = [".type int8", *(f".type Ref[t{i}]" for i in range(20_000))]
    text = "\n".join([*lines, ".func @f [%x: t20000] -> t0", "Ret r0", ".end"])
    data = serialize(assemble(text))
    with Executable.from_bytes(data) as exe:
        assert len(exe.functions["f"].params[0].text) < 3000
        assert serialize(assemble(exe.disassemble(data=True))) == data
