"""What each row costs at least: the one table of operations and bytes.

A case is a sequence of phases that wait for one another. A phase takes at least

    max(operations / peak, bytes / bandwidth of the memory level that holds what is read),

and the floor of a case is their sum. Operations are float32 multiplications and additions of the products (2 a
multiply-add); bytes are weights, read once for every time that nothing else may be done meanwhile. Elementwise
work, activations and results are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from nimblevm.bench.cases import Case
from nimblevm.bench.limits import Limits
from nimblevm.bench.rows import Row
from nimblevm.bench.workloads import resnet

FLOAT = 4  # bytes


@dataclass(frozen=True, slots=True)
class Phase:
    """operations; bytes read; resident: bytes that are read again and again, which decide the level."""

    name: str
    operations: float
    bytes: float
    resident: float

    def seconds(self, limits: Limits, threads: int) -> float:
        read = limits.read[limits.level(self.resident, threads)][threads]
        return max(self.operations / limits.peak[threads], self.bytes / read)


def _product(name: str, rows: int, inputs: int, outputs: int) -> Phase:
    """rows x inputs times inputs x outputs, all rows at once: weights are read once."""
    size = inputs * outputs
    return Phase(name, 2.0 * rows * size, FLOAT * size, FLOAT * size)


def _steps(name: str, steps: int, inputs: int, outputs: int) -> Phase:
    """The same for one row at a time, each waiting for the one before: weights are read for every row."""
    size = inputs * outputs
    return Phase(name, 2.0 * steps * size, FLOAT * size * steps, FLOAT * size)


def _lstm(row: Row, case: Case) -> list[Phase]:
    inputs, hidden = row.sizes["inputs"], row.sizes["hidden"]
    phases = []
    for _ in range(row.sizes["layers"]):
        phases += [
            _product("input product", case.units, inputs, 4 * hidden),
            _steps("recurrence", case.units, hidden, 4 * hidden),
        ]
        inputs = hidden
    return phases


def _gru(row: Row, case: Case) -> list[Phase]:
    inputs, hidden = row.sizes["inputs"], row.sizes["hidden"]
    return [
        _product("input product", case.units, inputs, 3 * hidden),
        _steps("recurrence", case.units, hidden, 3 * hidden),
    ]


def _treelstm(row: Row, case: Case) -> list[Phase]:
    """A product for each inner node, as the targets were set: who computes a level at once may fall below it."""
    inputs, hidden = row.sizes["inputs"], row.sizes["hidden"]
    return [
        _product("leaves", case.units, inputs, 3 * hidden),
        _steps("inner nodes", case.units - 1, 2 * hidden, 5 * hidden),
    ]


def _bert(row: Row, case: Case) -> list[Phase]:
    config = row.sizes["config"]
    n, hidden = case.units, config.hidden
    weights = config.layers * (4 * hidden * hidden + 2 * hidden * config.inner)
    return [
        Phase("dense", 2.0 * n * weights, FLOAT * weights, FLOAT * weights),
        Phase("attention", 4.0 * config.layers * n * n * hidden, 0, 0),
    ]


def _decoder(row: Row, case: Case) -> list[Phase]:
    """The prompt at once, then a token at a time; the words are read once more for the logits."""
    config = row.sizes["config"]
    blocks = config.layers * (4 * config.hidden**2 + 2 * config.hidden * config.inner)
    words = config.vocabulary * config.hidden
    prompt = len(case.inputs[0])
    read = FLOAT * (blocks + words)
    return [
        Phase("prompt", 2.0 * (prompt * blocks + words), read, read),
        Phase("steps", 2.0 * (case.units - 1) * (blocks + words), (case.units - 1) * read, read),
    ]


def _seq2seq(row: Row, case: Case) -> list[Phase]:
    hidden, symbols = row.sizes["hidden"], row.sizes["symbols"]
    source = len(case.inputs[0])
    target = case.units - source
    decoder = hidden * (6 * hidden + symbols)
    return [
        _product("input product", source, hidden, 3 * hidden),
        _steps("encoder", source, hidden, 3 * hidden),
        Phase("decoder", 2.0 * target * decoder, FLOAT * target * decoder, FLOAT * decoder),
    ]


def _resnet(row: Row, case: Case) -> list[Phase]:
    """Convolutions, each at the size of its result."""
    phases = []
    total = 0
    side = -(-case.size // 4)  # after the stem and the pooling
    for name, shape in resnet.weight_shapes(row.sizes["width"], row.sizes["classes"]).items():
        if not name.endswith("_w"):
            continue
        count = 1
        for extent in shape:
            count *= extent
        total += count
        if name == "stem_w":
            at = -(-case.size // 2)
        elif name == "fc_w":
            at = 1
        else:
            at = -(-side // 2 ** int(name[1]))
        phases.append(Phase(name, 2.0 * count * at * at, FLOAT * count, 0))
    return [Phase(p.name, p.operations, p.bytes, FLOAT * total) for p in phases]


PHASES: Mapping[str, Callable[[Row, Case], list[Phase]]] = MappingProxyType(
    {
        "lstm": _lstm,
        "gru": _gru,
        "treelstm": _treelstm,
        "bert": _bert,
        "gpt2": _decoder,
        "seq2seq": _seq2seq,
        "resnet": _resnet,
    }
)


def floors(row: Row, cases: Sequence[Case], limits: Limits, threads: int) -> list[float] | None:
    """Seconds that each case takes at least; None for a kind without formula or a thread count without limits."""
    phases = PHASES.get(row.kind)
    if phases is None or threads not in limits.peak or threads in limits.void:
        return None
    return [sum(p.seconds(limits, threads) for p in phases(row, case)) for case in cases]


__all__ = ["PHASES", "Phase", "floors"]
