"""Random numbers: Threefry by its definition, keys that go on, moments of what is drawn, kinds of counters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import RelayTypeError
from nimblevm.relay import random
from tests.kernels.native import flat
from tests.relay.op.checks import f32, program, run

MASK = 2**64 - 1
KEY = np.array(random.threefry_key(2**70 + 17).data)


def threefry(key: list[int], block: list[int]) -> list[int]:
    """Threefry-4x64 as the Skein paper has it, of Python integers, without the key behind the last round."""
    turns = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
    keys = [*key, 0x1BD11BDAA9FC1A22 ^ key[0] ^ key[1] ^ key[2] ^ key[3]]
    x = list(block)
    for d in range(20):
        if d % 4 == 0:
            s = d // 4
            x = [(x[i] + keys[(s + i) % 5] + (s if i == 3 else 0)) & MASK for i in range(4)]
        mixed = []
        for (a, b), r in zip((x[:2], x[2:]), turns[d % 8], strict=True):
            first = (a + b) & MASK
            mixed += [first, first ^ ((b << r | b >> 64 - r) & MASK)]
        x = [mixed[0], mixed[3], mixed[2], mixed[1]]
    return x


def generate(key: np.ndarray, *shape: int) -> list[np.ndarray]:
    return [
        np.asarray(part) for part in flat(run(lambda k: random.threefry_generate(k, shape), key))
    ]


def test_numbers_are_threefry_of_the_counter() -> None:
    words = KEY.tolist()
    assert words == [17, 64, 0, 0, 0, 0, 0, 0, 2**63, 0]
    after, numbers = generate(KEY, 2, 5)
    wanted = []
    for i in range(2):
        wanted += threefry(words[:4], [(w + i) & MASK for w in words[4:8]])
    wanted += threefry(words[:4], [*words[4:7], words[7] + 8])[:2]
    assert numbers.reshape(-1).tolist() == wanted
    assert after.tolist() == [*words[:7], 12, *words[8:]]


def test_a_key_goes_on_where_it_ended() -> None:
    """A multiple of four: the next key's numbers are those behind."""
    after, first = generate(KEY, 8)
    assert after[7] == 8
    _, again = generate(KEY, 8)
    _, behind = generate(after, 8)
    np.testing.assert_array_equal(first, again)
    assert not set(first.tolist()) & set(behind.tolist())


@pytest.mark.parametrize("place", [(2**63, 0), (1, 0), (0, 1), (0, 0)])
def test_a_counter_at_its_end_takes_a_step_of_the_path(place: tuple[int, int]) -> None:
    key = KEY.copy()
    key[7:] = MASK - 2, *place
    after, _ = generate(key, 4)
    if place == (0, 0):
        wanted = [*threefry(key.tolist()[:4], [MASK] * 4), 0, 0, 0, 4, 2**63, 0]
    else:
        high, low = {(2**63, 0): (2**62, 0), (1, 0): (0, 2**63), (0, 1): (0, 0)}[place]
        wanted = [*key.tolist()[:4], *place, 0, 4, high, low]
    assert after.tolist() == wanted


def test_splits_are_paths() -> None:
    left, right = (np.asarray(side) for side in flat(run(random.threefry_split, KEY)))
    assert left.tolist() == [17, 64, 0, 0, 0, 0, 0, 0, 2**62, 0]
    assert right.tolist() == [17, 64, 0, 0, 2**63, 0, 0, 0, 2**62, 0]
    end = KEY.copy()
    end[8] = 0
    left, right = (np.asarray(side).tolist() for side in flat(run(random.threefry_split, end)))
    fresh = threefry(end.tolist()[:4], end.tolist()[4:8])
    assert left == [*fresh, 0, 0, 0, 0, 2**62, 0]
    assert right == [*fresh, 2**63, 0, 0, 0, 2**62, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_and_normal_numbers(dtype: str) -> None:
    _, numbers = generate(KEY, 4000)
    _, found = run(lambda k: random.uniform(k, (4000,), dtype, -1.0, 3.0), KEY)
    width = 23 if dtype == "float32" else 52
    low = numbers & np.uint64(2**32 - 1) if dtype == "float32" else numbers
    unit = (low >> np.uint64(9 if dtype == "float32" else 12)).astype("float64") / 2**width
    np.testing.assert_allclose(found, unit * 4 - 1, rtol=1e-5, atol=1e-6)
    assert found.dtype == dtype
    assert (found >= -1).all()
    assert (found < 3).all()
    assert found.mean() == pytest.approx(1, abs=0.1)
    _, found = run(lambda k: random.normal(k, (2, 2000), dtype, 5.0, 2.0), KEY)
    assert found.mean() == pytest.approx(5, abs=0.15)
    assert found.std() == pytest.approx(2, abs=0.1)
    assert np.isfinite(found).all()


def test_indices_come_as_often_as_they_are_probable() -> None:
    probs = f32([[1, 0, 3, -5, 4], [0, 2, 0, 0, 0], [0, 0, 0, 0, 0]])
    _, found = run(lambda k, p: random.multinomial(k, p, 1000), KEY, probs)
    assert found.dtype == "int32"
    counts = np.bincount(found[0], minlength=5)
    np.testing.assert_allclose(counts / 1000, [1 / 8, 0, 3 / 8, 0, 1 / 2], atol=0.05)
    assert set(found[1].tolist()) == {1}
    assert set(found[2].tolist()) == {0}


def test_a_loop_draws_as_many_as_its_data_say() -> None:
    """A shape of a dim: a decoder's samples, each with the key that the one before left."""
    text = """#[version = "0.0.5"]
    def @main(%key: Tensor[(10), uint64], %x: Tensor[(?n, 3), float32]) {
      let %a = random.uniform(%key, 0f, 1f, out_shape=[?n, 2], out_dtype="float32");
      let %b = random.uniform(%a.0, 0f, 1f, out_shape=[?n, 2], out_dtype="float32");
      (%a.1, %b.1)
    }"""
    with nvm.compile(relay.parse(text), native=False) as exe, nvm.VirtualMachine(exe) as vm:
        for rows in (0, 1, 6):
            first, second = (np.asarray(p) for p in vm.run(KEY, np.zeros((rows, 3), "float32")))
            assert first.shape == second.shape == (rows, 2)
            _, numbers = generate(KEY, rows * 2)
            unit = (numbers.astype("uint32") >> np.uint32(9)) / np.float32(2**23)
            np.testing.assert_allclose(first.reshape(-1), unit, rtol=1e-6)
            assert not set(first.flat) & set(second.flat)


def test_keys_and_dtypes_that_do_not_fit() -> None:
    wrong: tuple[tuple[Any, np.ndarray], ...] = (
        (lambda k: random.uniform(k, (2,), "float16"), KEY),
        (lambda k: random.threefry_generate(k, (-1,)), KEY),
        (lambda k: random.threefry_split(k), KEY.astype("int64")),
        (lambda k: random.threefry_split(k), KEY[None]),
    )
    for made, key in wrong:
        with pytest.raises(RelayTypeError):
            program(made, (key,))
    for seed in (-1, 2**256):
        with pytest.raises(ValueError, match="seed must lie in"):
            random.threefry_key(seed)
