"""The deployment side of the demo: load .nvm files and run them. Imports the runtime alone.

python examples/run_saved.py FOLDER
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import nimblevm as nvm

COMPILE_TIME = ("relay", "compiler", "kernels", "driver", "cli", "bench")


def median_us(run: Callable[[], Any], repeat: int = 15) -> float:
    """Median time of a call in microseconds, after one warm-up call."""
    run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times) * 1e6)


def run_g2p(folder: Path) -> None:
    with nvm.load(folder / "g2p.nvm") as exe, nvm.VirtualMachine(exe) as vm:
        phonemes = np.load(folder / "phonemes.npy")
        with np.load(folder / "words.npz") as words:
            for word in words.files:
                numbers = words[word]
                took = median_us(lambda numbers=numbers: vm.run(numbers))
                spoken = " ".join(phonemes[vm.run(numbers).numpy()])
                print(f"  {word:10} {spoken:34} {took:7.0f} us")


def run_lstm(folder: Path) -> None:
    with nvm.load(folder / "lstm.nvm") as exe, nvm.VirtualMachine(exe) as vm:
        outputs = {}
        with np.load(folder / "lstm.npz") as inputs:
            for key in inputs.files:
                x = inputs[key]
                outputs[key] = vm.run(x).numpy()
                took = median_us(lambda x=x: vm.run(x))
                print(
                    f"  LSTM 300 -> 512 over {len(x):4} steps {took:9.0f} us, {took / len(x):6.1f} us a step"
                )
        np.savez(folder / "lstm_out.npz", **outputs)


def run_trees(folder: Path) -> None:
    with nvm.load(folder / "treelstm.nvm") as exe, nvm.VirtualMachine(exe) as vm:
        leaf, node = exe.constructor("Leaf"), exe.constructor("Node")
        outputs = {}
        with np.load(folder / "trees.npz") as trees:
            for i in range(len(trees.files) // 2):
                leaves = iter(trees[f"leaves{i}"])
                stack: list[Any] = []
                for step in str(trees[f"order{i}"]):
                    if step == "L":
                        stack.append(leaf(next(leaves)))
                    else:
                        right = stack.pop()
                        stack.append(node(stack.pop(), right))
                tree = stack[0]
                outputs[f"h{i}"] = vm.run(tree)[0].numpy()
                took, words = median_us(lambda tree=tree: vm.run(tree)), len(trees[f"leaves{i}"])
                print(
                    f"  TreeLSTM 300 -> 150 over {words:3} words {took:8.0f} us, {took / words:6.1f} us a word"
                )
        np.savez(folder / "trees_out.npz", **outputs)


def run_minilm(folder: Path) -> None:
    with nvm.load(folder / "minilm.nvm") as exe, nvm.VirtualMachine(exe) as vm:
        with np.load(folder / "sentences.npz") as sentences:
            vectors = {s: vm.run(sentences[s]).numpy() for s in sentences.files}
            names = list(vectors)
            took = median_us(lambda: vm.run(sentences[names[0]]), 5)
    print(f"  MiniLM, {took / 1000:.1f} ms a sentence; similarities:")
    for i, name in enumerate(names):
        row = " ".join(f"{float(vectors[name] @ vectors[other]):5.2f}" for other in names[: i + 1])
        print(f"    {name:28} {row}")


def main() -> int:
    folder = Path(sys.argv[1])
    if (folder / "g2p.nvm").exists():
        run_g2p(folder)
    if (folder / "minilm.nvm").exists():
        run_minilm(folder)
    run_lstm(folder)
    run_trees(folder)
    loaded = [m for m in sys.modules if m.startswith(tuple(f"nimblevm.{n}" for n in COMPILE_TIME))]
    loaded += [m for m in sys.modules if m.startswith("llvmlite")]
    print(f"  modules of compile time in this process: {loaded or 'none'}")
    return 1 if loaded else 0


if __name__ == "__main__":
    raise SystemExit(main())
