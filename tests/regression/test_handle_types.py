"""A handle given to a parameter of another type: its content or signature was taken on trust."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import InvalidInputType, ShapeMismatch

TEXT = """#[version = "0.0.5"]
type Box { Box(int32) }
def @ref_f(%x: Tensor[(?n), float32]) -> ref(Tensor[(?), float32]) { ref(%x) }
def @ref_i(%x: Tensor[(?n), int32]) -> ref(Tensor[(?), int32]) { ref(%x) }
def @ref_2(%x: Tensor[(?n, ?m), float32]) -> ref(Tensor[(?, ?), float32]) { ref(%x) }
def @ref_t(%x: Tensor[(?n), float32]) -> ref((int32, Tensor[(?), float32])) { ref((1, %x)) }
def @ref_b() -> ref(Box) { ref(Box(1)) }
def @ref_r(%x: Tensor[(?n), float32]) -> ref(ref(Tensor[(?), float32])) { ref(ref(%x)) }
def @read(%r: ref(Tensor[(3), float32])) -> Tensor[(3), float32] { ref_read(%r) }
def @read_any(%r: ref(Tensor[(?), float32])) -> Tensor[(?), float32] { ref_read(%r) }
def @read_t(%r: ref((int32, Tensor[(?), float32]))) -> Tensor[(?), float32] { let %t = ref_read(%r); %t.1 }
def @read_b(%r: ref(Box)) -> int32 { match (ref_read(%r)) { Box(%x) => %x } }
def @read_r(%r: ref(ref(Tensor[(?), float32]))) -> Tensor[(?), float32] { ref_read(ref_read(%r)) }
def @adder(%x: Tensor[(?n), float32]) -> fn (Tensor[(?), float32]) -> Tensor[(?), float32] {
  fn (%y: Tensor[(?), float32]) -> Tensor[(?), float32] { %x + %y }
}
def @inc() -> fn (int32) -> int32 { fn (%i: int32) -> int32 { %i + 1 } }
def @two() -> fn (int32, int32) -> int32 { fn (%i: int32, %j: int32) -> int32 { %i + %j } }
def @truth() -> fn (int32) -> bool { fn (%i: int32) -> bool { %i < 1 } }
def @call(%f: fn (Tensor[(3), float32]) -> Tensor[(3), float32], %x: Tensor[(3), float32]) -> Tensor[(3), float32] {
  %f(%x)
}
def @call_i(%f: fn (int32) -> int32, %x: int32) -> int32 { %f(%x) }
def @main() -> int32 { 1 }
"""

X = np.arange(3, dtype="float32")
MAKERS: dict[str, tuple[np.ndarray, ...]] = {
    "ref_f": (X,), "ref_i": (X.astype("int32"),), "ref_2": (X.reshape(1, 3),), "ref_t": (X,), "ref_b": (), "ref_r": (X,),
    "adder": (X,), "inc": (), "two": (), "truth": (),
}  # fmt: skip
TAKERS: dict[str, tuple[str, tuple[object, ...]]] = {
    "read": ("ref_f", ()), "read_any": ("ref_f", ()), "read_t": ("ref_t", ()), "read_b": ("ref_b", ()),
    "read_r": ("ref_r", ()), "call": ("adder", (X,)), "call_i": ("inc", (1,)),
}  # fmt: skip


@pytest.mark.parametrize("native", [True, False])
def test_handle_goes_only_where_its_type_fits(native: bool) -> None:
    with nvm.compile(nvm.relay.parse(TEXT), native=native) as exe, nvm.VirtualMachine(exe) as vm:
        for maker, args in MAKERS.items():
            handle = vm.invoke(maker, *args)
            for taker, (fitting, rest) in TAKERS.items():
                if maker == fitting:
                    vm.invoke(taker, handle, *rest)
                else:
                    with pytest.raises(InvalidInputType, match=f"of @{taker}: expected a handle"):
                        vm.invoke(taker, handle, *rest)


def test_dims_are_claims_that_the_program_checks() -> None:
    with nvm.compile(nvm.relay.parse(TEXT)) as exe, nvm.VirtualMachine(exe) as vm:
        four = vm.invoke("ref_f", np.arange(4, dtype="float32"))
        assert vm.invoke("read_any", four).shape == (4,)
        with pytest.raises(ShapeMismatch, match=r"content of the reference.*expected 3, got 4"):
            vm.invoke("read", four)
        with pytest.raises(ShapeMismatch, match="expected 4, got 3"):
            vm.invoke("call", vm.invoke("adder", np.arange(4, dtype="float32")), X)
