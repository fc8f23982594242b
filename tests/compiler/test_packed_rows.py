"""Tied embeddings: the table is packed for its product, and rows come out of the panels bit for bit."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import nimblevm as nvm

UNITS, WIDTH = 2001, 136
TABLE = np.random.default_rng(0).standard_normal((UNITS, WIDTH)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((2, WIDTH)).astype(np.float32)


IDS = {
    "Tensor[(?n), int32]": np.array([0, 15, 16, UNITS - 1, 5], np.int32),
    "Tensor[(?a, ?b), int64]": np.array([[1, 2], [3, UNITS - 2]]),
    "int32": np.array(17, np.int32),
    "Tensor[(0), int32]": np.zeros(0, np.int32),
}


def tied(
    mode: str, units: int = UNITS, weights: str = "float32", native: bool = False
) -> nvm.Executable:
    """Rows of the table by each of IDS, then its product."""
    ids = "".join(f"%i{n}: {type_}, " for n, type_ in enumerate(IDS))
    rows = "".join(f'take(%w, %i{n}, axis=0, mode="{mode}"), ' for n in range(len(IDS)))
    text = f"""#[version = "0.0.5"]
def @main({ids}%x: Tensor[(2, {WIDTH}), float32], %w: Tensor[({units}, {WIDTH}), float32]) {{
  ({rows}nn.dense(%x, %w))
}}"""
    mod = nvm.relay.parse(text)
    return nvm.compile(mod, {"w": TABLE[:units]}, verify=True, weights=weights, native=native)


@pytest.mark.parametrize(
    ("mode", "native"),
    [
        ("fast", True),
        ("clip", False),
        ("wrap", False),
        pytest.param("clip", True, marks=pytest.mark.slow),
        pytest.param("wrap", True, marks=pytest.mark.slow),
    ],
)
def test_rows_of_a_packed_table(mode: str, native: bool) -> None:
    """native: by machine code too."""
    exe = tied(mode, native=native)
    assert "dense_pack" in exe.disassemble()
    good = list(IDS.values())
    for way in {native, False}:
        with nvm.VirtualMachine(nvm.load(exe.to_bytes(), native=way)) as vm:
            *found, products = vm.run(*good, X)
            np.testing.assert_allclose(products, X @ TABLE.T, rtol=1e-4, atol=1e-4)
            for rows, ids in zip(found, good, strict=True):
                np.testing.assert_array_equal(rows, TABLE[ids])
            for wrong, place in product((-1, UNITS, UNITS + 14), range(len(IDS) - 1)):
                bad = np.full_like(good[place], wrong)
                args = [*good[:place], bad, *good[place + 1 :], X]
                if mode == "fast":
                    with pytest.raises(nvm.errors.IndexOutOfRange, match=f"{wrong}.*{UNITS}"):
                        vm.run(*args)
                    continue
                want = wrong % UNITS if mode == "wrap" else min(max(wrong, 0), UNITS - 1)
                np.testing.assert_array_equal(vm.run(*args)[place], TABLE[np.full_like(bad, want)])


def test_small_tables_and_other_dtypes_of_weights_stay() -> None:
    assert "dense_pack" not in tied("clip", units=100).disassemble()
    assert "dense_pack" not in tied("clip", weights="float16").disassemble()
