"""A profile as a file that ui.perfetto.dev and chrome://tracing open: the Trace Event Format, JSON.

Runs, functions and kernels are complete events ("X") on one track a thread, pieces of parallel loops stand on their
workers' tracks, memory is a counter ("C"). Times are microseconds with nanosecond digits. Source: "Trace Event
Format", Google, 2016.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from nimblevm.files import write_text
from nimblevm.profiling.timeline import Span, Timeline, timeline
from nimblevm.vm.profiler import Events, Profile

_PROCESS = 1


def _micro(nanoseconds: int) -> float:
    return nanoseconds / 1000


def _metadata(name: str, track: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": _PROCESS, "tid": track, "args": args}


def _arguments(span: Span, events: Events) -> dict[str, Any]:
    """What a click on a kernel shows: dims, operands, rates, place."""
    found: dict[str, Any] = {}
    if 0 <= span.shape < len(events.sizes):
        _, sizes = events.sizes[span.shape]
        found |= {"dims": dict(sizes.dims), "operands": list(sizes.shapes)}
        calls = sizes.calls or 1
        if sizes.work.operations:
            found["operations"] = sizes.work.operations / calls
        found["bytes"] = sizes.work.bytes / calls
    if span.word >= 0:
        number, source, line = events.places.line_of(span.word)
        if number is not None:
            found["function"] = f"@{events.places.functions[number]}"
        if source:
            found["source"] = f"{source}:{line}"
    return found


def _rows(profile: Profile, line: Timeline, title: str) -> Iterator[dict[str, Any]]:
    events = profile.events
    assert events is not None  # timeline() saw it
    yield _metadata("process_name", 0, {"name": title})
    for track, name in enumerate(line.tracks):
        yield _metadata("thread_name", track + 1, {"name": name})
        yield _metadata("thread_sort_index", track + 1, {"sort_index": track})
    # Outer ones first: viewers nest complete events of one time in the order of the file.
    for span in sorted(line.spans, key=lambda s: (s.start_ns, s.depth)):
        name = span.name if span.kind in ("kernel", "run") else f"@{span.name}"
        row = {
            "name": name if span.kind != "piece" else span.name,
            "cat": span.kind,
            "ph": "X",
            "ts": _micro(span.start_ns),
            "dur": _micro(span.ns),
            "pid": _PROCESS,
            "tid": span.track + 1,
        }
        if span.kind == "kernel":
            row["args"] = _arguments(span, events)
        yield row
    for memory in line.memory:
        args = {"alive": memory.live, "pooled": memory.pooled}
        yield {
            "name": "memory, bytes",
            "ph": "C",
            "ts": _micro(round(memory.at * 1e9)),
            "pid": _PROCESS,
            "args": args,
        }


def trace(profile: Profile, title: str = "nimblevm") -> dict[str, Any]:
    """The trace as a value for json.dump. Raises ValueError for a profile without events."""
    line = timeline(profile)
    return {
        "traceEvents": list(_rows(profile, line, title)),
        "displayTimeUnit": "ns",
        "otherData": {"runs": profile.runs, "dropped events": line.dropped},
    }


def write_trace(profile: Profile, path: str | os.PathLike[str], title: str = "nimblevm") -> None:
    """Write the trace. Raises ValueError for a profile without events, OSError."""
    text = json.dumps(trace(profile, title), separators=(",", ":"))
    write_text(path, text)


__all__ = ["trace", "write_trace"]
