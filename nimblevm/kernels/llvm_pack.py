"""Copies rows into panels of 16 columns, as LLVM text: the right operand of a product that is no constant.

    void @pack.<dtype>(ptr from, i64 row, ptr to, i64 panel, i64 count, i64 depth)

    to[p * panel + 16 * k + t] = from[(16 * p + t) * row + k]    for 16 * p + t < count and k < depth

Strides count elements. Lanes of the last panel that have no row get copies of the last one. Squares of 16 x 16 elements
are transposed in registers; LLVM makes scatters of the plain loops, which took four times as long on Zen 4.
"""

from __future__ import annotations

from nimblevm.kernels.panel_tile import LANES

_TYPES = {"float32": "float", "float64": "double"}


def symbol(dtype: str) -> str:
    return f"pack.{dtype}"


def _swap_masks(size: int) -> tuple[str, str]:
    """Of two rows: the one with the second's first blocks of `size` at its own second blocks' places, and the other."""
    first = [t if not t & size else LANES + t - size for t in range(LANES)]
    second = [t + size if not t & size else LANES + t for t in range(LANES)]
    return _mask(first), _mask(second)


def _mask(lanes: list[int]) -> str:
    return f"<{LANES} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"


def _square(type_: str) -> list[str]:
    """A square at %from.k of rows %r0 .. %r15, to %to.k; blocks change places at sizes 8, 4, 2, 1."""
    vector = f"<{LANES} x {type_}>"
    lines: list[str] = []
    rows: list[str] = []
    align = 8 if type_ == "double" else 4
    for t in range(LANES):
        lines.append(f"  %p{t} = getelementptr {type_}, ptr %r{t}, i64 %k")
        lines.append(f"  %v0.{t} = load {vector}, ptr %p{t}, align {align}")
        rows.append(f"%v0.{t}")
    for stage, size in enumerate((8, 4, 2, 1), 1):
        masks = _swap_masks(size)
        new = list(rows)
        for t in range(LANES):
            if t & size:
                continue
            for place, mask in zip((t, t + size), masks, strict=True):
                name = f"%v{stage}.{place}"
                lines.append(
                    f"  {name} = shufflevector {vector} {rows[t]}, {vector} {rows[t + size]}, {mask}"
                )
                new[place] = name
        rows = new
    for t in range(LANES):
        lines.append(f"  %q{t} = getelementptr {type_}, ptr %to.k, i64 {t * LANES}")
        lines.append(f"  store {vector} {rows[t]}, ptr %q{t}, align {align}")
    return lines


def _column(type_: str) -> list[str]:
    """One element of each row, where no square is left."""
    lines: list[str] = []
    for t in range(LANES):
        lines.append(f"  %s{t} = getelementptr {type_}, ptr %r{t}, i64 %c")
        lines.append(f"  %e{t} = load {type_}, ptr %s{t}")
        lines.append(f"  %d{t} = getelementptr {type_}, ptr %to.c, i64 {t}")
        lines.append(f"  store {type_} %e{t}, ptr %d{t}")
    return lines


def module_text(dtype: str) -> str:
    """The function for elements of float32 or float64."""
    type_ = _TYPES[dtype]
    rows: list[str] = []
    for t in range(LANES):
        rows += [
            f"  %i{t} = add nsw i64 %first, {t}",
            f"  %in{t} = icmp slt i64 %i{t}, %last",
            f"  %j{t} = select i1 %in{t}, i64 %i{t}, i64 %last",
            f"  %o{t} = mul nsw i64 %j{t}, %row",
            f"  %r{t} = getelementptr {type_}, ptr %from, i64 %o{t}",
        ]
    lines = [
        f"define internal void @{symbol(dtype)}(ptr noalias %from, i64 %row, ptr noalias %to, i64 %panel, "
        "i64 %count, i64 %depth) #2 {",
        "entry:",
        "  %last = sub nsw i64 %count, 1",
        f"  %squares = and i64 %depth, -{LANES}",
        "  br label %panels",
        "panels:",
        "  %first = phi i64 [ 0, %entry ], [ %first.next, %panels.end ]",
        "  %to.p = phi ptr [ %to, %entry ], [ %to.next, %panels.end ]",
        "  %more = icmp slt i64 %first, %count",
        "  br i1 %more, label %rows, label %done",
        "rows:",
        *rows,
        "  br label %square",
        "square:",
        "  %k = phi i64 [ 0, %rows ], [ %k.next, %square.body ]",
        "  %square.go = icmp slt i64 %k, %squares",
        "  br i1 %square.go, label %square.body, label %column",
        "square.body:",
        f"  %ko = mul nsw i64 %k, {LANES}",
        f"  %to.k = getelementptr {type_}, ptr %to.p, i64 %ko",
        *_square(type_),
        f"  %k.next = add nsw i64 %k, {LANES}",
        "  br label %square",
        "column:",
        "  %c = phi i64 [ %squares, %square ], [ %c.next, %column.body ]",
        "  %column.go = icmp slt i64 %c, %depth",
        "  br i1 %column.go, label %column.body, label %panels.end",
        "column.body:",
        f"  %co = mul nsw i64 %c, {LANES}",
        f"  %to.c = getelementptr {type_}, ptr %to.p, i64 %co",
        *_column(type_),
        "  %c.next = add nsw i64 %c, 1",
        "  br label %column",
        "panels.end:",
        f"  %first.next = add nsw i64 %first, {LANES}",
        f"  %to.next = getelementptr {type_}, ptr %to.p, i64 %panel",
        "  br label %panels",
        "done:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines) + "\n"


__all__ = ["module_text", "symbol"]
