"""Runs saved files in a process that must not import anything of compile time. Also the script of that process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

COMPILE_TIME = ("relay", "compiler", "kernels", "driver", "cli", "bench")
SEED, COUNT = 11, 50


def run(folder: Path, names: list[str]) -> None:
    """Run this file as a script on FOLDER; raises CalledProcessError if it fails or loads the compiler."""
    subprocess.run([sys.executable, __file__, str(folder), *names], check=True)


def trees() -> list[Any]:
    """COUNT random binary trees of 1 to 39 leaves (1, 300): nested pairs."""
    rng = np.random.default_rng(SEED)
    found = []
    for _ in range(COUNT):
        items: list[Any] = [
            rng.standard_normal((1, 300)).astype(np.float32)
            for _ in range(int(rng.integers(1, 40)))
        ]
        while len(items) > 1:
            at = int(rng.integers(len(items) - 1))
            items[at : at + 2] = [(items[at], items[at + 1])]
        found.append(items[0])
    return found


def _to_adt(exe: Any, tree: Any) -> Any:
    leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
    if not isinstance(tree, tuple):
        return leaf(tree)
    return node(_to_adt(exe, tree[0]), _to_adt(exe, tree[1]))


def main(folder: Path, names: list[str]) -> int:
    import nimblevm as nvm  # noqa: PLC0415 - the process under test begins here

    for name in names:
        with nvm.load(folder / f"{name}.nvm") as exe, nvm.VirtualMachine(exe) as vm:
            if name == "treelstm":
                out = {f"h{i}": vm.run(_to_adt(exe, t))[0].numpy() for i, t in enumerate(trees())}
            else:
                path = folder / f"{name}_in.npz"
                if not path.exists():
                    rng = np.random.default_rng(SEED)
                    lengths = rng.integers(0, 40, COUNT)
                    np.savez(path, allow_pickle=False, **{f"x{i}": rng.standard_normal((n, 300)).astype(np.float32)
                                      for i, n in enumerate(lengths)})  # fmt: skip
                with np.load(path) as given:
                    out = {key: vm.run(given[key]).numpy() for key in given.files}
            np.savez(folder / f"{name}_out.npz", **out)
    loaded = [m for m in sys.modules if m.split(".")[0] == "llvmlite" or m.startswith(
        tuple(f"nimblevm.{n}" for n in COMPILE_TIME))]  # fmt: skip
    if loaded:
        print(f"modules of compile time were loaded: {loaded}", file=sys.stderr)
    return 1 if loaded else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2:]))
