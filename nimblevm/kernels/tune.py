"""Tuning of products with packed weights: which variants to try, and the record of what was found.

A record is JSON, for the user to keep beside the program; the same record gives the same file:

    {"format": "nimblevm tuning record", "version": 1, "target": "x86_64:+avx2,...",
     "products": [{"x": "float32", "w": "float32", "depth": 300, "units": 512,
                   "variant": {"rows": [1, 2, 4, 6], "panels": 4, "ahead": 0, "height": 12},
                   "external": "blas"}]}

"external" stands where a backend of that name (compiler/external.py) was faster than the best variant.

A product is measured with panels of 16 columns. One with panels of 64, which only single rows meet, has the same sizes,
and so takes the same variant.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from nimblevm.errors import CompileError
from nimblevm.kernels.loop_ir import Kernel
from nimblevm.kernels.schedule import schedule
from nimblevm.kernels.variants import PLAIN, ROWS, Choices, Shape, Variant

FORMAT, VERSION = "nimblevm tuning record", 1
ROUNDS = 7

Key = TypeVar("Key")
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


def scores(runners: Mapping[Key, Sequence[Runner]]) -> dict[Key, float]:
    """Seconds of each candidate: the geometric mean over its runners (one a count of rows) of the least of ROUNDS
    rounds, taken in turns, so that a disturbance meets all candidates.
    """
    least = {key: [math.inf] * len(runs) for key, runs in runners.items()}
    for _ in range(ROUNDS):
        for key, runs in runners.items():
            least[key] = [min(old, run()) for old, run in zip(least[key], runs, strict=True)]
    return {k: math.exp(sum(map(math.log, times)) / len(times)) for k, times in least.items()}


def fastest(found: Mapping[Variant | str, float]) -> tuple[Variant, str]:
    """Of the scores of variants and of external backends by name: the best variant, and the backend if one is better
    yet, else "". The plain variant wins what is within 2 %, and the variants do over backends.
    """
    variants = {v: time for v, time in found.items() if isinstance(v, Variant)}
    names = {n: time for n, time in found.items() if isinstance(n, str)}
    best = min(variants, key=lambda v: variants[v] * (0.98 if v == PLAIN else 1.0))
    name = min(names, key=lambda n: names[n], default="")
    return best, name if name and names[name] < 0.98 * variants[best] else ""


def to_json(target: str, choices: Choices) -> str:
    """The text of a record."""
    chosen, external = choices.record, choices.external
    products = [
        {
            **dataclasses.asdict(shape),
            "variant": dataclasses.asdict(variant),
            **({"external": external[shape]} if shape in external else {}),
        }
        for shape, variant in sorted(chosen.items(), key=lambda item: dataclasses.astuple(item[0]))
    ]
    record = {"format": FORMAT, "version": VERSION, "target": target, "products": products}
    return json.dumps(record, indent=1) + "\n"


def from_json(text: str) -> Choices:
    """The choices of a record. CompileError for what is no record or holds impossible choices."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
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
    rows = [_entry(number, item) for number, item in enumerate(products)]
    record = {shape: variant for shape, variant, _ in rows}
    return Choices(record, {shape: name for shape, _, name in rows if name})


def _entry(number: int, item: Any) -> tuple[Shape, Variant, str]:
    try:
        shape = Shape(str(item["x"]), str(item["w"]), int(item["depth"]), int(item["units"]))
        fields = item["variant"]
        rows = tuple(int(r) for r in fields["rows"])
        variant = Variant(rows, int(fields["panels"]), int(fields["ahead"]), int(fields["height"]))
        name = item.get("external", "")
        if not isinstance(name, str):
            raise ValueError(f'"external" is the name of a backend, not {name!r}')
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise CompileError(f"product {number} of the tuning record: {what}") from None
    return shape, variant, name


__all__ = ["candidates", "fastest", "from_json", "products_of", "scores", "to_json"]
