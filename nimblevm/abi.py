"""Numbers that the compiler and the runtime have to agree on: limits of kernels and tensors, words of dim programs.

Leaf module (standard library only). Files hold what these allow, so none of them becomes smaller; native/gen_tables.py
writes the C side.
"""

from __future__ import annotations

from enum import IntEnum

KERNEL_ABI = 1
"""Of machine code in files: the contract of native/include/nvm_kernel.h."""
CTX_FAIL, CTX_POLL, CTX_PARALLEL_FOR = 8, 16, 24
"""Where struct nvm_kernel_ctx has the functions that generated code calls, bytes."""
MAX_RANK = 8
"""Axes of a tensor."""
MAX_OPERANDS = 64
"""Inputs, outputs and scratch buffers of a kernel."""
MAX_DIMS = 512
"""In-dims, attributes, pitches and out-dims of one call of a kernel."""
MAX_EXPR_WORDS, MAX_EXPR_DEPTH = 256, 16
"""Of a dim program: words, its END among them, and values on its stack."""


class DimWord(IntEnum):
    """A word of a dim program: a postfix expression of int64 words whose one result is a size.

    CONST is followed by a number, REF by the index of a dim. The names of operations are those of loop IR in capitals.
    """

    CONST = 0
    REF = 1
    ADD = 2
    SUB = 3
    MUL = 4
    FLOORDIV = 5
    FLOORMOD = 6
    MIN = 7
    MAX = 8
    END = 9


OPERATIONS = {word.name.lower(): word for word in DimWord if DimWord.ADD <= word <= DimWord.MAX}
"""The name of each operation of two operands -> its word."""
