"""Tied embeddings: the table is packed for its product, and rows come out of the panels bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm

UNITS, WIDTH = 2001, 136
TABLE = np.random.default_rng(0).standard_normal((UNITS, WIDTH)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((2, WIDTH)).astype(np.float32)


def tied(ids: str, mode: str, units: int = UNITS, weights: str = "float32") -> nvm.Executable:
    text = f"""#[version = "0.0.5"]
def @main(%i: {ids}, %x: Tensor[(2, {WIDTH}), float32], %w: Tensor[({units}, {WIDTH}), float32]) {{
  (take(%w, %i, axis=0, mode="{mode}"), nn.dense(%x, %w))
}}"""
    return nvm.compile(
        nvm.relay.parse(text), params={"w": TABLE[:units]}, verify=True, weights=weights
    )


@pytest.mark.parametrize("mode", ["clip", "wrap", "fast"])
@pytest.mark.parametrize(
    ("type_", "ids"),
    [
        ("Tensor[(?n), int32]", np.array([0, 15, 16, UNITS - 1, 5], np.int32)),
        ("Tensor[(?a, ?b), int64]", np.array([[1, 2], [3, UNITS - 2]])),
        ("int32", np.array(17, np.int32)),
        ("Tensor[(0), int32]", np.zeros(0, np.int32)),
    ],
)
def test_rows_of_a_packed_table(mode: str, type_: str, ids: np.ndarray) -> None:
    exe = tied(type_, mode)
    assert "dense_pack" in exe.disassemble()
    for native in (True, False):
        with nvm.VirtualMachine(nvm.load(exe.to_bytes(), native=native)) as vm:
            rows, product = vm.run(ids, X)
            np.testing.assert_array_equal(rows, TABLE[ids])
            np.testing.assert_allclose(product, X @ TABLE.T, rtol=1e-4, atol=1e-4)
            if not ids.size:
                continue
            for wrong in (-1, UNITS, UNITS + 14):
                bad = np.full_like(ids, wrong)
                if mode == "fast":
                    with pytest.raises(nvm.errors.IndexOutOfRange, match=f"{wrong}.*{UNITS}"):
                        vm.run(bad, X)
                    continue
                want = wrong % UNITS if mode == "wrap" else min(max(wrong, 0), UNITS - 1)
                np.testing.assert_array_equal(vm.run(bad, X)[0], TABLE[np.full_like(ids, want)])


def test_small_tables_and_other_dtypes_of_weights_stay() -> None:
    assert "dense_pack" not in tied("int32", "clip", units=100).disassemble()
    assert "dense_pack" not in tied("int32", "clip", weights="float16").disassemble()
