"""Tensor arrays as Relay text: lists of tensors whose shapes may differ, which TVM's importers use for loops.

A dynamic tensor of a dtype is one of a data type that has a constructor for each rank up to 6; a static one has a
fixed shape. `dynamic_text` and the functions of `StaticText` write the definitions, prelude.py loads them. Names and
meanings are TVM 0.18's; what can be a loop is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nimblevm.relay.dims import Dim

HEADER = '#[version = "0.0.5"]\n'
MAX_RANK = 6

# $d: the dtype, $t: the type of a dynamic tensor. Cases by rank are filled in by `_cases`.
_DYNAMIC = """
type $t {
  tensor_nil_$d,
$constructors
}

// Rows lower to upper - 1 of a tensor; bounds outside clip.
def @tensor_take_$d(%tensor: $t, %lower: int32, %upper: int32) -> $t {
  match? (%tensor) {
$take
  }
}

// A new first axis of size 1.
def @tensor_expand_dims_$d(%x: $t) -> $t {
  match? (%x) {
$expand
  }
}

// Two tensors of one rank, joined along the first axis.
def @tensor_concatenate_$d(%x: $t, %y: $t) -> $t {
  match? ((%x, %y)) {
$concatenate
  }
}
$arrays
def @tensor_array_gather_$d(%tensor_array: List[$t], %indices: Tensor[(?), int32]) -> $t {
  @tensor_array_stack_$d(@tensor_array_gather_helper_$d(%tensor_array, Nil, $length - 1, %indices))
}
"""

# What both kinds have. $n: the suffix of names.
_ARRAYS = """
// n elements that hold nothing.
def @tensor_array_$n(%x: int32) -> List[$t] { @tensor_array_helper_$n(%x, Nil) }

def @tensor_array_helper_$n(%x: int32, %done: List[$t]) -> List[$t] {
  if (%x < 1) { %done } else { @tensor_array_helper_$n(%x - 1, Cons(tensor_nil_$n, %done)) }
}

def @tensor_array_read_$n(%tensor_array: List[$t], %x: int32) -> $t { @nth(%tensor_array, %x) }

def @tensor_array_write_$n(%tensor_array: List[$t], %x: int32, %v: $t) -> List[$t] {
  @update(%tensor_array, %x, %v)
}
"""

_SCATTER = """
// Element indices[i] becomes values[i].
def @tensor_array_scatter_$s(%tensor_array: List[$t], %indices: $indices, %values: List[$t]) -> List[$t] {
  @tensor_array_scatter_helper_$s(%tensor_array, 0, $length, %indices, %values)
}

def @tensor_array_scatter_helper_$s(
  %ta: List[$t], %current: int32, %limit: int32, %indices: $indices, %values: List[$t]
) -> List[$t] {
  if (%current == %limit) {
    %ta
  } else {
    match? (%values) {
      Cons(%value, %rest) => {
        let %written = @tensor_array_write_$n(%ta, take(%indices, %current), %value);
        @tensor_array_scatter_helper_$s(%written, %current + 1, %limit, %indices, %rest)
      },
    }
  }
}
"""

# $out: the type of the pieces, $w: the suffix of its functions; $value and $v: those of the tensor that is split.
_SPLIT = """
// Element i becomes the next lengths[i] rows of a tensor.
def @tensor_array_split_$n(%tensor_array: List[$out], %value: $value, %lengths: $lengths) -> List[$out] {
  @ta_split_helper_$n(%tensor_array, %value, 0, 0, $count, %lengths)
}

def @ta_split_helper_$n(
  %ta: List[$out], %value: $value, %offset: int32, %current: int32, %limit: int32, %lengths: $lengths
) -> List[$out] {
  if (%current == %limit) {
    %ta
  } else {
    let %end = %offset + take(%lengths, %current);
    let %written = @tensor_array_write_$w(%ta, %current, @tensor_take_$v(%value, %offset, %end));
    @ta_split_helper_$n(%written, %value, %end, %current + 1, %limit, %lengths)
  }
}
"""

# $joined: the type of what is joined, $j: the suffix of its functions.
_CONCAT = """
// All elements, joined along the first axis.
def @tensor_array_concat_$n(%tensor_array: List[$joined]) -> $joined {
  match (%tensor_array) {
    Nil => { tensor_nil_$j },
    Cons(%first, %rest) => { @foldl(@tensor_concatenate_$j, %first, %rest) },
  }
}
"""

_STACK = """
// All elements, joined along a new first axis.
def @tensor_array_stack_$n(%tensor_array: List[$t]) -> $stacked {
  let %rows = @map(@tensor_expand_dims_$n, %tensor_array);
  $body
}

def @tensor_array_gather_helper_$n(
  %ta: List[$t], %done: List[$t], %current: int32, %indices: Tensor[(?), int32]
) -> List[$t] {
  if (%current < 0) {
    %done
  } else {
    let %element = @tensor_array_read_$n(%ta, take(%indices, %current));
    @tensor_array_gather_helper_$n(%ta, Cons(%element, %done), %current - 1, %indices)
  }
}
"""

_UNSTACK = """
// The rows of a tensor.
def @tensor_array_unstack$k_$n(%tensor: $tensor) -> List[$row] {
  @tensor_array_unstack$k_helper_$n(take(shape_of(%tensor), 0) - 1, %tensor, Nil)
}

def @tensor_array_unstack$k_helper_$n(%i: int32, %t: $tensor, %done: List[$row]) -> List[$row] {
  if (%i < 0) {
    %done
  } else {
    @tensor_array_unstack$k_helper_$n(%i - 1, %t, Cons($constructor(take(%t, %i, axis=0)), %done))
  }
}
"""

_INDICES = "Tensor[(?), int32]"
_LENGTH = "take(shape_of(%indices), 0)"
_LENGTHS = "take(shape_of(%lengths), 0)"
_JOIN = "@foldl(@tensor_concatenate_$j, @hd(%rows), @tl(%rows))"


def _fill(template: str, **values: str) -> str:
    """`$name` becomes its value; longer names first, so that $t leaves $take alone."""
    for name in sorted(values, key=len, reverse=True):
        template = template.replace(f"${name}", values[name])
    return template


def tensor_text(shape: Sequence[Dim], dtype: str) -> str:
    """A tensor type; unknown dims are `?`."""
    dims = ", ".join(str(d) if isinstance(d, int) else "?" for d in shape)
    return f"Tensor[({dims}), {dtype}]" if shape else dtype


def _unknown(rank: int, dtype: str) -> str:
    marks = ", ".join("?" * rank)
    return f"Tensor[({marks}), {dtype}]" if rank else dtype


def dynamic_name(canonical: str, dtype: str) -> str:
    """The name of a part for dynamic tensors: tensor_float32_t, tensor_array_read_float32."""
    return f"tensor_{dtype}_t" if canonical == "tensor_t" else f"{canonical}_{dtype}"


def dynamic_text(dtype: str) -> str:
    """All definitions for dynamic tensors of a dtype; they need the prelude's lists."""
    t = dynamic_name("tensor_t", dtype)
    ranks = range(MAX_RANK + 1)
    cons = [f"tensor{k}_{dtype}" for k in ranks]
    rows = 'arange(%lower, %upper, 1, dtype="int32")'
    cases = {
        "constructors": [f"  {cons[k]}({_unknown(k, dtype)})," for k in ranks],
        "take": [f"    {cons[k]}(%t) => {{ {cons[k]}(take(%t, {rows}, axis=0)) }}," for k in ranks[1:]],
        "expand": [f"    {cons[k]}(%t) => {{ {cons[k + 1]}(expand_dims(%t, axis=0)) }}," for k in ranks[:-1]],
        "concatenate": [
            f"    ({cons[k]}(%a), {cons[k]}(%b)) => {{ {cons[k]}(concatenate((%a, %b))) }}," for k in ranks[1:]
        ],
    }  # fmt: skip
    arrays = [_ARRAYS, _SCATTER, _SPLIT, _CONCAT, _STACK.replace("$body", _JOIN)]
    text = _fill(
        _DYNAMIC,
        arrays="".join(arrays),
        **{name: "\n".join(lines) for name, lines in cases.items()},
    )
    for k in ranks[1:]:
        text += _fill(
            _UNSTACK, k=f"_tensor{k}", tensor=_unknown(k, dtype), constructor=cons[k - 1], row="$t", n="$d"
        )  # fmt: skip
    same = dict.fromkeys(("d", "n", "s", "w", "v", "j"), dtype)
    types = dict.fromkeys(("t", "out", "value", "joined", "stacked"), t)
    sizes = {"indices": _INDICES, "lengths": _INDICES, "length": _LENGTH, "count": _LENGTHS}
    return HEADER + _fill(text, **sizes, **same, **types)


def static_name(
    canonical: str,
    dtype: str,
    shape: Sequence[Dim],
    batch_dim: int | None = None,
    extra_shapes: dict[str, Sequence[Dim]] | None = None,
) -> str:
    """The name of a part for tensors of one shape: static_tensor_float32_3_any_t, tensor_array_read_float32_3_any."""
    text = _dims_name(shape)
    for name, extra in (extra_shapes or {}).items():
        text += f"_{name}_{_dims_name(extra)}"
    text = text or "scalar"
    if canonical == "tensor_t":
        return f"static_tensor_{dtype}_{text}_t"
    if batch_dim != 1 or canonical in ("tensor_constructor", "tensor_nil"):
        return f"{canonical}_{dtype}_{text}"
    return f"{canonical}_{dtype}_batch{batch_dim}_{text}"


def _dims_name(shape: Sequence[Dim]) -> str:
    return "_".join(str(d) if isinstance(d, int) else "any" for d in shape)


@dataclass(frozen=True, slots=True)
class StaticText:
    """Definitions for tensors of one dtype and shape. `batch_dim` 1: arrays of one element."""

    dtype: str
    shape: tuple[Dim, ...]
    batch_dim: int | None = None

    def name(self, canonical: str) -> str:
        return static_name(canonical, self.dtype, self.shape, self.batch_dim)

    def other(self, shape: Sequence[Dim]) -> StaticText:
        return StaticText(self.dtype, tuple(shape), self.batch_dim)

    @property
    def suffix(self) -> str:
        """What stands behind `tensor_array_` and the like in names."""
        return self.name("")[1:]

    @property
    def tensor(self) -> str:
        return tensor_text(self.shape, self.dtype)

    def _text(self, template: str, **values: str) -> str:
        common = {"n": self.suffix, "s": self.suffix, "t": self.name("tensor_t")}
        # tensor_nil has no batch in its name
        template = template.replace("tensor_nil_$n", self.name("tensor_nil"))
        return _fill(template, **{**common, **values})

    def adt(self) -> str:
        nil, made = self.name("tensor_nil"), self.name("tensor_constructor")
        return f"type {self.name('tensor_t')} {{ {nil}, {made}({self.tensor}) }}\n"

    def take(self, out: StaticText) -> str:
        """Rows, of type `out`."""
        rows = 'take(%t, arange(%lower, %upper, 1, dtype="int32"), axis=0)'
        return self._text(
            "def @tensor_take_$n(%tensor: $t, %lower: int32, %upper: int32) -> $out {\n"
            f"  match? (%tensor) {{ $made(%t) => {{ $new({rows}) }} }}\n}}\n",
            **self._from_to(out),
        )

    def _from_to(self, out: StaticText) -> dict[str, str]:
        return {
            "out": out.name("tensor_t"),
            "made": self.name("tensor_constructor"),
            "new": out.name("tensor_constructor"),
        }

    def concatenate(self, out: StaticText) -> str:
        return self._text(
            "def @tensor_concatenate_$n(%x: $t, %y: $t) -> $out {\n"
            "  match? ((%x, %y)) { ($made(%a), $made(%b)) => { $new(concatenate((%a, %b))) } }\n}\n",
            **self._from_to(out),
        )

    def expand_dims(self, out: StaticText) -> str:
        return self._text(
            "def @tensor_expand_dims_$n(%x: $t) -> $out {\n"
            "  match? (%x) { $made(%t) => { $new(expand_dims(%t, axis=0)) } }\n}\n",
            **self._from_to(out),
        )

    def arrays(self) -> str:
        """tensor_array, read and write."""
        return self._text(_ARRAYS)

    def unstack(self, row: StaticText) -> str:
        return self._text(
            _UNSTACK,
            k="",
            tensor=self.tensor,
            row=row.name("tensor_t"),
            constructor=row.name("tensor_constructor"),
        )

    def scatter(self, indices_shape: Sequence[Dim] | None) -> str:
        extra = {"indices": indices_shape} if indices_shape is not None else None
        name = static_name("", self.dtype, self.shape, self.batch_dim, extra)[1:]
        indices = _INDICES if indices_shape is None else tensor_text(indices_shape, "int32")
        return self._text(_SCATTER, s=name, indices=indices, length=_LENGTH)

    def split(self, out: StaticText, value: StaticText, lengths: Sequence[Dim] | None) -> str:
        return self._text(
            _SPLIT,
            out=out.name("tensor_t"),
            w=out.suffix,
            value=value.name("tensor_t"),
            v=value.suffix,
            lengths=_INDICES if lengths is None else tensor_text(lengths, "int32"),
            count=_LENGTHS,
        )

    def concat(self, out: StaticText) -> str:
        template = _CONCAT.replace("tensor_nil_$j", out.name("tensor_nil"))
        return self._text(template, joined=out.name("tensor_t"), j=out.suffix)

    def stack(self, out: StaticText) -> str:
        """tensor_array_stack and tensor_array_gather."""
        body = "@hd(%rows)" if self.batch_dim == 1 else _JOIN
        gather = (
            "def @tensor_array_gather_$n(%tensor_array: List[$t], %indices: Tensor[(?), int32]) -> $stacked {\n"
            "  @tensor_array_stack_$n(@tensor_array_gather_helper_$n(%tensor_array, Nil, $length - 1, %indices))\n}\n"
        )
        text = _STACK.replace("$body", body) + gather
        return self._text(text, stacked=out.name("tensor_t"), j=out.suffix, length=_LENGTH)

    def get_data(self) -> str:
        return self._text(
            "def @tensor_get_data_$n(%tensor: $t) -> $tensor {\n  match? (%tensor) { $made(%t) => { %t } }\n}\n",
            made=self.name("tensor_constructor"),
            tensor=self.tensor,
        )


__all__ = ["HEADER", "MAX_RANK", "StaticText", "dynamic_name", "dynamic_text", "static_name"]
