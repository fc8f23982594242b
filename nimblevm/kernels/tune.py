"""Tuning of products with packed weights: which variants to try, and the record of what was found.

A record is JSON, for the user to keep beside the program; the same record gives the same file:

    {"format": "nimblevm tuning record", "version": 1, "target": "x86_64:+avx2,...",
     "products": [{"x": "float32", "w": "float32", "depth": 300, "units": 512,
                   "variant": {"rows": [1, 2, 3, 4, 5, 6], "panels": 4, "ahead": 0, "height": 12}}]}

A product is measured with panels of 16 columns. One with panels of 64, which only single rows meet, has the same sizes,
and so takes the same variant.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nimblevm.errors import CompileError
from nimblevm.kernels.loop_ir import Kernel
from nimblevm.kernels.schedule import schedule
from nimblevm.kernels.variants import PLAIN, ROWS, Choices, Shape, Variant

FORMAT, VERSION = "nimblevm tuning record", 1
ROUNDS = 7

Runner = Callable[[], float]
"""Runs a product once or a few times; gives the seconds of one."""


class _Recorder(Choices):
    """Notes what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: dict[Shape, None] = {}

    def of(self, shape: Shape, features: tuple[str, ...]) -> Variant:
        self.shapes.setdefault(shape)
        return super().of(shape, features)


def products_of(kernels: Sequence[Kernel], features: tuple[str, ...]) -> tuple[Shape, ...]:
    """The products that these kernels compute, each once, in order of use; not those without a depth."""
    recorder = _Recorder()
    for kernel in kernels:
        schedule(kernel, features, recorder)
    return tuple(shape for shape in recorder.shapes if shape.depth)


def candidates() -> Iterator[Variant]:
    """What tuning tries."""
    for rows in (ROWS, (1, 2, 4, 6), (1, 2, 4)):
        yield Variant(rows)
    for panels in (1, 2):
        yield Variant(panels=panels)
    for ahead in (512, 2048, 4096):
        yield Variant(ahead=ahead)
    for height in (6, 24, 48):
        yield Variant(height=height)


def fastest(runners: Mapping[Variant, Sequence[Runner]]) -> tuple[Variant, float]:
    """The variant with the least time, and the time of the plain one divided by its own.

    A variant's time is the geometric mean over its runners (one a count of rows) of the least of ROUNDS rounds, taken
    in turns, so that a disturbance meets all variants. The plain variant wins what is within 2 %.
    """
    least = {variant: [math.inf] * len(runs) for variant, runs in runners.items()}
    for _ in range(ROUNDS):
        for variant, runs in runners.items():
            least[variant] = [
                min(old, run()) for old, run in zip(least[variant], runs, strict=True)
            ]
    score = {v: math.exp(sum(map(math.log, times)) / len(times)) for v, times in least.items()}
    best = min(score, key=lambda v: score[v] * (0.98 if v == PLAIN else 1.0))
    return best, score[PLAIN] / score[best]


def to_json(target: str, chosen: Mapping[Shape, Variant]) -> str:
    """The text of a record."""
    products = [
        {**dataclasses.asdict(shape), "variant": dataclasses.asdict(variant)}
        for shape, variant in sorted(chosen.items(), key=lambda item: dataclasses.astuple(item[0]))
    ]
    record = {"format": FORMAT, "version": VERSION, "target": target, "products": products}
    return json.dumps(record, indent=1) + "\n"


def from_json(text: str) -> Choices:
    """The choices of a record. CompileError for what is no record or holds impossible choices."""
    try:
        record = json.loads(text)
    except ValueError as error:
        raise CompileError(f"the tuning record is no JSON: {error}") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise CompileError(f'the tuning record lacks "format": "{FORMAT}"')
    if record.get("version") != VERSION:
        raise CompileError(
            f"the tuning record has version {record.get('version')}, this release reads {VERSION}"
        )
    products = record.get("products")
    if not isinstance(products, list):
        raise CompileError('the tuning record lacks a list of "products"')
    return Choices(dict(_entry(number, item) for number, item in enumerate(products)))


def _entry(number: int, item: Any) -> tuple[Shape, Variant]:
    try:
        shape = Shape(str(item["x"]), str(item["w"]), int(item["depth"]), int(item["units"]))
        fields = item["variant"]
        rows = tuple(int(r) for r in fields["rows"])
        variant = Variant(rows, int(fields["panels"]), int(fields["ahead"]), int(fields["height"]))
    except (KeyError, TypeError, ValueError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise CompileError(f"product {number} of the tuning record: {what}") from None
    return shape, variant


__all__ = ["candidates", "fastest", "from_json", "products_of", "to_json"]
