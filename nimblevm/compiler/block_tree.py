"""The nesting of blocks."""

from __future__ import annotations


class BlockTree:
    """The nesting of blocks, with O(log n) lowest common ancestors (skew-binary jump pointers)."""

    def __init__(self) -> None:
        self.parent = [0]
        self.depth = [0]
        self._jump = [0]

    def add(self, parent: int) -> int:
        jump = self._jump[parent]
        far = self._jump[jump]
        same = self.depth[parent] - self.depth[jump] == self.depth[jump] - self.depth[far]
        self.parent.append(parent)
        self.depth.append(self.depth[parent] + 1)
        self._jump.append(far if same else parent)
        return len(self.parent) - 1

    def common(self, a: int, b: int) -> int:
        """The innermost block that contains both."""
        depth, jump, parent = self.depth, self._jump, self.parent
        if depth[a] < depth[b]:
            a, b = b, a
        while depth[a] > depth[b]:
            a = jump[a] if depth[jump[a]] >= depth[b] else parent[a]
        while a != b:
            if jump[a] != jump[b]:
                a, b = jump[a], jump[b]
            else:
                a, b = parent[a], parent[b]
        return a

    def ancestor(self, block: int, depth: int) -> int:
        """The block at that depth that contains `block` (which is as deep or deeper)."""
        while self.depth[block] > depth:
            jump = self._jump[block]
            block = jump if self.depth[jump] >= depth else self.parent[block]
        return block
