"""The decode study: what a token of a decoder costs behind a long cache, apart from attention, which reads all of it.

GPT-2 small's layers with 2,000 words: their weights come from memory at every step. Those of a model that fits the last
level of cache are pushed out of it by a cache that grows, which is no work of the VM.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import nimblevm as nvm
from nimblevm.bench.statistics import Interval, ratio_interval
from nimblevm.bench.workloads import gpt2

CONFIG = gpt2.Config(vocabulary=2000, context=1100)
LENGTHS = (16, 256, 512, 1024)  # tokens that were seen before the first step
ROUNDS = 60  # a step behind each length in every one
MOST_THREADS = 2
GROWTH = 1.10  # target: the longest over the shortest, less attention
QUICK_CONFIG = gpt2.Config(
    vocabulary=60, context=128, hidden=32, layers=2, heads=4, inner=64
)  # fmt: skip
QUICK_LENGTHS = (4, 64)
QUICK_ROUNDS = 10
_COLUMNS = (
    "threads", "tokens before", "a step, ms", "less attention, ms", "attention, ms", "over the shortest, 95 %",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DecodeLine:
    """A step behind so many tokens, medians, seconds. growth: `rest` over that behind the fewest tokens, of steps that
    were neighbours in time; None for that one.
    """

    threads: int
    tokens: int
    step: float
    rest: float
    growth: Interval | None

    @property
    def attention(self) -> float:
        return self.step - self.rest


def measure(quick: bool, log: Callable[[str], None]) -> list[DecodeLine]:
    """With one thread and with two, if there are cores for them; quick: a small model."""
    config, lengths = (QUICK_CONFIG, QUICK_LENGTHS) if quick else (CONFIG, LENGTHS)
    log("decode: compiling")
    lines: list[DecodeLine] = []
    with nvm.compile(gpt2.module(gpt2.params(config), config)) as exe:
        for threads in range(1, min(MOST_THREADS, len(os.sched_getaffinity(0))) + 1):
            log(f"decode with {threads} thread(s)")
            with nvm.VirtualMachine(exe, threads=threads, profile=True) as vm:
                taken = _steps(vm, config, lengths, QUICK_ROUNDS if quick else ROUNDS)
            lines += lines_of(threads, taken)
    return lines


def _steps(
    vm: nvm.VirtualMachine, config: gpt2.Config, lengths: Sequence[int], rounds: int
) -> dict[int, list[tuple[float, float]]]:
    """(seconds, seconds less attention) of steps behind each length, in turns. Each has a cache of its own, which
    grows by a token a round; the first step, which grows the caches' blocks, does not count.
    """
    going: dict[int, tuple[Any, Any]] = {}
    for tokens in lengths:
        prompt = np.arange(tokens, dtype=np.int32) % config.vocabulary
        token, _, state = vm.run(prompt, gpt2.empty_state(config))
        going[tokens] = (token, state)
    taken: dict[int, list[tuple[float, float]]] = {tokens: [] for tokens in lengths}
    for k in range(rounds + 1):
        for tokens in _rotated(lengths, k):
            token, state = going[tokens]
            vm.reset_profile()
            token, _, state = vm.run(token, nvm.move(state))
            going[tokens] = (token, state)
            found = vm.profile()
            attention = sum(row.seconds for row in found.kernels if "einsum" in row.name)
            taken[tokens].append((found.seconds, found.seconds - attention))
    return {tokens: steps[1:] for tokens, steps in taken.items()}


def _rotated(lengths: Sequence[int], by: int) -> list[int]:
    at = by % len(lengths)
    return [*lengths[at:], *lengths[:at]]


def lines_of(threads: int, taken: Mapping[int, Sequence[tuple[float, float]]]) -> list[DecodeLine]:
    """From (seconds, seconds less attention) of the steps behind each number of tokens, the fewest first."""
    rests = {tokens: [rest for _, rest in steps] for tokens, steps in taken.items()}
    first = next(iter(taken))
    return [
        DecodeLine(
            threads,
            tokens,
            median(step for step, _ in taken[tokens]),
            median(rests[tokens]),
            None if tokens == first else ratio_interval(rests[tokens], rests[first]),
        )
        for tokens in taken
    ]


def to_json(lines: Sequence[DecodeLine]) -> list[dict[str, Any]]:
    return [{**asdict(line), "attention": line.attention} for line in lines]


def show(console: Console, lines: Sequence[DecodeLine]) -> None:
    """The table; growth is green where its whole interval lies under the target."""
    table = Table(title="a decoder's step behind a growing cache")
    for name in _COLUMNS:
        table.add_column(name, justify="right")
    for line in lines:
        times = (line.step, line.rest, line.attention)
        growth = "-"
        if line.growth is not None:
            colour = "green" if line.growth.high < GROWTH else "red"
            text = f"{line.growth.value:.3f} ({line.growth.low:.3f} to {line.growth.high:.3f})"
            growth = f"[{colour}]{text}[/]"
        table.add_row(
            str(line.threads), str(line.tokens), *(f"{t * 1e3:.2f}" for t in times), growth
        )
    console.print(table)
    console.print(f"Target: less attention a step grows by less than {GROWTH - 1:.0%}.")


__all__ = ["DecodeLine", "lines_of", "measure", "show", "to_json"]
