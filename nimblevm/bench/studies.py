"""`nimblevm bench --study NAME`: questions about our own side alone, each answered by a module study_<name>.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rich.console import Console

from nimblevm.bench import (
    study_compile,
    study_decode,
    study_dispatch,
    study_forms,
    study_load,
    study_memory,
)


@dataclass(frozen=True, slots=True)
class Study:
    """measure(quick, log) gives lines; show prints them; to_json makes them data."""

    question: str
    measure: Callable[[bool, Callable[[str], None]], Sequence[Any]]
    show: Callable[[Console, Any], None]
    to_json: Callable[[Any], Any]


STUDIES: Mapping[str, Study] = MappingProxyType(
    {
        "dispatch": Study(
            "how much slower products with symbolic rows are than static ones, by loops for residues",
            study_dispatch.measure, study_dispatch.show, study_dispatch.to_json,
        ),
        "memory": Study(
            "allocations and peak memory with and without a plan and with static shapes",
            study_memory.measure, study_memory.show, study_memory.to_json,
        ),
        "load": Study(
            "how long loading takes, and what a second process of the same file adds",
            study_load.measure, study_load.show, study_load.to_json,
        ),
        "compile": Study(
            "what compiling the models takes, by stage",
            study_compile.measure, study_compile.show, study_compile.to_json,
        ),
        "decode": Study(
            "whether a decoder's step, attention apart, takes longer behind a long cache",
            study_decode.measure, study_decode.show, study_decode.to_json,
        ),
        "forms": Study(
            "how long models take with code for less than this CPU, and with weights in 16 bits",
            study_forms.measure, study_forms.show, study_forms.to_json,
        ),
    }
)  # fmt: skip


def check(names: Sequence[str]) -> None:
    """ValueError for a study that there is not."""
    unknown = [name for name in names if name not in STUDIES]
    if unknown:
        raise ValueError(f"no study {', '.join(unknown)}; there are {', '.join(STUDIES)}")


def run(
    names: Sequence[str], quick: bool, console: Console, log: Callable[[str], None]
) -> dict[str, Any]:
    """Measure and show; gives what goes into the JSON file, by study."""
    check(names)
    found: dict[str, Any] = {}
    for name in names:
        study = STUDIES[name]
        lines = study.measure(quick, log)
        study.show(console, lines)
        found[name] = study.to_json(lines)
    return found


__all__ = ["STUDIES", "Study", "check", "run"]
