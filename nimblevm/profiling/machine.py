"""What the machine can do at most, and how near a kernel came to it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nimblevm.files import write_text
from nimblevm.vm.kernel_work import Work

LEVELS = ("l2", "l3", "dram")


@dataclass(frozen=True, slots=True)
class Machine:
    """By thread count: float32 multiply-adds (operations a second) and reading (bytes a second) from l2, l3, dram.

    Cache sizes in bytes.
    """

    peak: Mapping[int, float]
    read: Mapping[str, Mapping[int, float]]
    l2_bytes: int
    l3_bytes: int

    def _threads(self, threads: int) -> int:
        """The largest measured thread count that is not above `threads`."""
        return max((n for n in self.peak if n <= threads), default=min(self.peak))

    def peak_of(self, threads: int) -> float:
        return self.peak[self._threads(threads)]

    def read_of(self, level: str, threads: int) -> float:
        return self.read[level][self._threads(threads)]

    def level(self, resident: float, threads: int) -> str:
        """The level that holds so many bytes, shared out between the threads."""
        if resident / self._threads(threads) <= self.l2_bytes:
            return "l2"
        return "l3" if resident <= self.l3_bytes else "dram"

    def floor(self, work: Work, calls: int, threads: int) -> float:
        """Seconds that so many calls, which did `work` together, take at least: the roofline.

        What a call reads and writes is taken to lie in the smallest level that holds it, which is what a repeated
        call finds; a first one may have to fetch it from further away.
        """
        if not calls:
            return 0.0
        level = self.level(work.bytes / calls, threads)
        memory = work.bytes / self.read_of(level, threads)
        return max((work.operations or 0.0) / self.peak_of(threads), memory)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Machine:
        """The inverse of to_json. Raises ValueError for anything else."""
        try:
            peak = {int(n): float(rate) for n, rate in found["peak"].items()}
            read = {
                level: {int(n): float(rate) for n, rate in found["read"][level].items()}
                for level in LEVELS
            }
            made = cls(peak, read, int(found["l2_bytes"]), int(found["l3_bytes"]))
        except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
            raise ValueError(f"no limits of a machine: {error}") from None
        rates = [*peak.values(), *(rate for level in read.values() for rate in level.values())]
        if not peak or any(set(level) != set(peak) for level in read.values()):
            raise ValueError("no limits of a machine: thread counts differ")
        if not all(0 < rate < float("inf") for rate in rates):
            raise ValueError("no limits of a machine: a rate is not positive")
        return made


def cache_file() -> Path:
    """Where measured limits are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "nimblevm" / "machine.json"


def load_machine(path: Path) -> Machine:
    """Raises OSError, ValueError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"no JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except UnicodeDecodeError:
        raise ValueError("it is no text; expected the JSON of a machine's limits") from None
    except RecursionError:
        raise ValueError("no limits of a machine: it nests too deep") from None
    return Machine.from_json(found)


def save_machine(machine: Machine, path: Path) -> None:
    """Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(machine.to_json(), indent=1) + "\n")


__all__ = ["LEVELS", "Machine", "cache_file", "load_machine", "save_machine"]
