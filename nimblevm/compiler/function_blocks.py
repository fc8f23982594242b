"""The blocks of an ANF function, rewritten from the inside out: what fuse_ops and partition share."""

from __future__ import annotations

from nimblevm.compiler.block_tree import BlockTree
from nimblevm.compiler.liveness import operand_vars
from nimblevm.compiler.rewrite import let_chain, sub_blocks, with_body, with_children
from nimblevm.relay.ir import Expr, Function, Let, Var, children


class FunctionBlocks:
    """Subclasses say in `block` what becomes of one block.

    uses  variable -> (index of the reading item in the variable's own block, whether a block inside of it reads)
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.tree = BlockTree()
        self.blocks: list[tuple[list[Let], Expr]] = []
        self.hang: list[int] = []  # block -> index of the item of its parent that it hangs on
        self.home: dict[Var, int] = {}
        self.uses: dict[Var, list[tuple[int, bool]]] = {}
        self.numbers: dict[Expr, int] = {}
        self.done: dict[int, Expr] = {}

    def block(self, lets: list[Let], tail: Expr) -> Expr:
        """The new form of one block; those inside of it are done (`nested`)."""
        raise NotImplementedError

    def run(self) -> Function:
        self._scan()
        for number in range(len(self.blocks)):
            self._scan_uses(number)
        for number in reversed(range(len(self.blocks))):
            lets, tail = self.blocks[number]
            self.done[number] = self.block(lets, tail)
        return with_body(self.function, self.done[0])

    def _scan(self) -> None:
        self.blocks.append(let_chain(self.function.body))
        self.hang.append(-1)
        number = 0
        while number < len(self.blocks):
            lets, tail = self.blocks[number]
            for index, value in enumerate((*(let.value for let in lets), tail)):
                nested_blocks = sub_blocks(value)
                if nested_blocks:
                    self.numbers[value] = len(self.blocks)
                for nested in nested_blocks:
                    self.blocks.append(let_chain(nested))
                    self.hang.append(index)
                    self.tree.add(number)
            for let in lets:
                self.home[let.var] = number
            number += 1

    def _scan_uses(self, number: int) -> None:
        lets, tail = self.blocks[number]
        depth = self.tree.depth
        for index, value in enumerate((*(let.value for let in lets), tail)):
            for var in operand_vars(value):
                home = self.home.get(var)
                if home is None:
                    continue
                if home == number:
                    self.uses.setdefault(var, []).append((index, False))
                else:
                    outer = self.tree.ancestor(number, depth[home] + 1)
                    self.uses.setdefault(var, []).append((self.hang[outer], True))

    def nested(self, value: Expr) -> Expr:
        """A simple expression with its blocks replaced by their new forms, taken in the order of
        _scan.
        """
        roots = sub_blocks(value)
        if not roots:
            return value
        operands = children(value)
        new = tuple(self.done[self.numbers[value] + i] for i in range(len(roots)))
        return with_children(value, (*operands[: len(operands) - len(roots)], *new))
