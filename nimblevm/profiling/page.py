"""A profile as one HTML page that needs nothing else: no network, no scripts of others.

The page is a template with a style and a script (page/ beside this file) and the data as JSON. Names come from files
that may be a stranger's: they enter the page as JSON alone, in which "<", ">" and "&" are escaped, and the script makes
text nodes of them, never markup. The page's own policy allows no request and no other script.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from nimblevm.files import write_text
from nimblevm.profiling.machine import LEVELS, Machine
from nimblevm.profiling.timeline import Memory, Node, Span, timeline
from nimblevm.vm.profiler import Events, KernelTime, Profile

MOST_SPANS = 200_000
"""Of the timeline; the longest are kept."""
MOST_POINTS = 20_000
"""Of the plot of memory; peaks are kept."""
MOST_ROWS = 2_000
"""Of a table."""
_SIZES = 12
_SCRIPTS = ("page.js", "figures.js")

KIND_NUMBERS = {"root": 0, "run": 0, "function": 1, "kernel": 2, "piece": 3}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _kernel(row: KernelTime, machine: Machine | None, threads: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": row.name,
        "calls": row.calls,
        "ns": _nanoseconds(row.seconds),
        "operations": row.work.operations,
        "read": row.work.read,
        "written": row.work.written,
        "sizes": [
            [list(s.shapes), s.calls, _nanoseconds(s.seconds), s.work.operations, s.work.bytes]
            for s in row.sizes[:_SIZES]
        ],
        "moreSizes": max(0, len(row.sizes) - _SIZES),
    }
    if machine is not None:
        made["level"] = machine.level(row.work.bytes / row.calls, threads)
        made["floorNs"] = _nanoseconds(machine.floor(row.work, row.calls, threads))
    return made


def _machine(machine: Machine | None, threads: int) -> dict[str, Any] | None:
    if machine is None:
        return None
    return {
        "peak": machine.peak_of(threads),
        "read": {level: machine.read_of(level, threads) for level in LEVELS},
        "l2": machine.l2_bytes,
        "l3": machine.l3_bytes,
    }


class _Names:
    """Equal names once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))


def _flame(root: Node, names: _Names) -> dict[str, list[int]]:
    """The tree as columns, parents before children; the root is row 0."""
    order = list(root.walk())
    rows = {id(node): number for number, node in enumerate(order)}
    return {
        "name": [names.number(node.name) for node in order],
        "kind": [KIND_NUMBERS[node.kind] for node in order],
        "parent": [-1 if node.parent is None else rows[id(node.parent)] for node in order],
        "self": [_nanoseconds(node.seconds) for node in order],
        "calls": [node.calls for node in order],
        "recursive": [int(node.recursive) for node in order],
    }


def _spans(spans: Sequence[Span], names: _Names) -> dict[str, Any]:
    kept = list(spans)
    if len(kept) > MOST_SPANS:
        kept = sorted(kept, key=lambda s: -s.seconds)[:MOST_SPANS]
    kept.sort(key=lambda s: (s.track, s.depth, s.start_ns))
    return {
        "name": [names.number(s.name) for s in kept],
        "kind": [KIND_NUMBERS[s.kind] for s in kept],
        "start": [s.start_ns for s in kept],
        "ns": [s.ns for s in kept],
        "depth": [s.depth for s in kept],
        "track": [s.track for s in kept],
        "shape": [s.shape for s in kept],
        "left": len(spans) - len(kept),
    }


def _thinned(points: Sequence[Memory]) -> list[Memory]:
    """First, last, lowest and highest of each bucket."""
    if len(points) <= MOST_POINTS:
        return list(points)
    size = -(-4 * len(points) // MOST_POINTS)
    kept: list[Memory] = []
    for first in range(0, len(points), size):
        bucket = points[first : first + size]
        chosen = {0, len(bucket) - 1}
        for pick in (min, max):
            chosen.add(pick(range(len(bucket)), key=lambda k: bucket[k].live))
        kept += [bucket[k] for k in sorted(chosen)]
    return kept


def _memory(points: Sequence[Memory], profile: Profile) -> dict[str, Any]:
    kept = _thinned(points)
    made: dict[str, Any] = {
        "at": [_nanoseconds(m.at) for m in kept],
        "live": [m.live for m in kept],
        "pooled": [m.pooled for m in kept],
    }
    if points and profile.events is not None:
        peak = max(points, key=lambda m: m.live)
        number, source, line = profile.events.places.line_of(peak.word)
        where = f"@{profile.events.places.functions[number]}" if number is not None else ""
        made["peak"] = {
            "at": _nanoseconds(peak.at),
            "live": peak.live,
            "where": " ".join(filter(None, (where, f"{source}:{line}" if source else ""))),
        }
    return made


def _shapes(events: Events) -> list[str]:
    """By the shape numbers of spans: what a tooltip says of a kernel's call."""
    texts: list[str] = []
    for _, sizes in events.sizes:
        dims = ", ".join(f"{name} = {value}" for name, value in sizes.dims)
        texts.append("; ".join(filter(None, (dims, " · ".join(sizes.shapes)))))
    return texts


def page_data(
    profile: Profile,
    machine: Machine | None = None,
    title: str = "",
    facts: Sequence[tuple[str, str]] = (),
    lines_of: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """What the script of the page reads."""
    threads = profile.threads
    data: dict[str, Any] = {
        "title": title or "profile",
        "facts": [list(fact) for fact in facts],
        "runs": profile.runs,
        "ns": _nanoseconds(profile.seconds),
        "kernelNs": _nanoseconds(profile.kernel_seconds),
        "threads": threads,
        "machine": _machine(machine, threads),
        "kernels": [_kernel(k, machine, threads) for k in profile.kernels[:MOST_ROWS]],
        "moreKernels": max(0, len(profile.kernels) - MOST_ROWS),
        "instructions": [[t.name, t.calls, _nanoseconds(t.seconds)] for t in profile.instructions],
        "lines": [
            [r.function, r.source, r.line, r.calls, _nanoseconds(r.seconds), _text(r, lines_of)]
            for r in profile.lines[:MOST_ROWS]
        ],
        "events": None,
    }
    if profile.events is not None:
        line = timeline(profile)
        names = _Names()
        data["events"] = {
            "ns": _nanoseconds(line.seconds),
            "dropped": line.dropped,
            "tracks": list(line.tracks),
            "flame": _flame(line.root, names),
            "spans": _spans(line.spans, names),
            "memory": _memory(line.memory, profile),
            "shapes": _shapes(profile.events),
            "names": list(names.numbers),
        }
    return data


def _text(row: Any, lines_of: Mapping[str, Sequence[str]] | None) -> str:
    lines = (lines_of or {}).get(row.source, ())
    return lines[row.line - 1].strip() if 0 < row.line <= len(lines) else ""


def json_for_html(value: Any) -> str:
    """JSON that can stand in a script element: no character of it can end the element or open a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 is escaped too
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _digest(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def page(
    profile: Profile,
    machine: Machine | None = None,
    title: str = "",
    facts: Sequence[tuple[str, str]] = (),
    lines_of: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The page's text.

    machine     adds how near kernels came to what the machine can do
    title       what was profiled
    facts       further lines of the head, (name, value)
    lines_of    source name -> its lines, to show beside their times
    """
    files = resources.files("nimblevm.profiling") / "page"
    style = (files / "page.css").read_text(encoding="utf-8")
    script = "".join((files / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    parts = {
        "title": escape(title or "profile"),
        "style": style,
        "style-hash": _digest(style),
        "script": script,
        "script-hash": _digest(script),
        "data": json_for_html(page_data(profile, machine, title, facts, lines_of)),
    }
    pieces = (files / "page.html").read_text(encoding="utf-8").split("{{")
    made = [pieces[0]]
    for piece in pieces[1:]:
        name, rest = piece.split("}}", 1)
        made += [parts[name], rest]
    return "".join(made)


def write_page(
    profile: Profile,
    path: str | os.PathLike[str],
    machine: Machine | None = None,
    title: str = "",
    facts: Sequence[tuple[str, str]] = (),
    lines_of: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write the page; arguments as of page(). Raises OSError."""
    write_text(path, page(profile, machine, title, facts, lines_of))


__all__ = ["MOST_SPANS", "json_for_html", "page", "page_data", "write_page"]
