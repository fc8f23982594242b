"""A device that records calls and computes nothing: what a program costs beside its kernels.

`VirtualMachine(exe, device="null")` runs a program with results of the right shape and dtype and without meaning:
kernels leave their outputs as they are. A program whose control flow reads kernel results may not end; give limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from nimblevm._ffi import ffi, lib


@dataclass(frozen=True, slots=True)
class Counts:
    """Calls that null devices got: allocations, releases, copies, waits and kernel launches."""

    allocs: int
    frees: int
    copies: int
    syncs: int
    launches: int

    def __sub__(self, other: Counts) -> Counts:
        """What happened between two readings."""
        return Counts(
            self.allocs - other.allocs,
            self.frees - other.frees,
            self.copies - other.copies,
            self.syncs - other.syncs,
            self.launches - other.launches,
        )


def counts() -> Counts:
    """Of all null devices since the process started."""
    record = ffi.new("nvm_null_record *")
    lib.nvm_null_record_get(record)
    return Counts(record.allocs, record.frees, record.copies, record.syncs, record.launches)


__all__ = ["Counts", "counts"]
