"""The compile time of leaky_runtime.c: nn.leaky_relu, of which the blob is the slope.

python examples/external/leaky_backend.py leaky_runtime.so
"""

from __future__ import annotations

import struct
import sys

import numpy as np

import nimblevm as nvm
from nimblevm import relay
from nimblevm.external import Blob, External, Region, register
from nimblevm.relay.dataflow_pattern import is_op, wildcard


def codegen(region: Region) -> Blob | None:
    if any(t.dtype != "float32" for t in region.inputs):
        return None
    (match,) = region.matches
    return Blob(struct.pack("<f", match.op.body.attrs.alpha))


register(External("leaky", [("leaky.leaky_relu", is_op("nn.leaky_relu")(wildcard()))], codegen))

PROGRAM = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 4), float32]) { nn.leaky_relu(%x, alpha=0.25f64) }"""


def main(library: str) -> None:
    nvm.external.load_runtime(library)
    vm = nvm.VirtualMachine(nvm.compile(relay.parse(PROGRAM), external="leaky"), threads=2)
    x = np.linspace(-2, 2, 400000, dtype=np.float32).reshape(-1, 4)
    assert np.array_equal(vm.run(x).numpy(), np.where(x < 0, x * np.float32(0.25), x))
    print("the C runtime gives what numpy does")


if __name__ == "__main__":
    main(sys.argv[1])
