"""stft and dft: Fourier transforms of frames of a signal, and of rows.

    stft(data, window, n_fft, hop_length, win_length, normalized=False, onesided=True)
        out[b, f, t, 0] = sum over w < win_length of x[w] * cos(2 pi f w / win_length)
        out[b, f, t, 1] = - sum of x[w] * sin(2 pi f w / win_length)      x[w] = window[w] * data[b, t * hop_length + w]
        both divided by sqrt(n_fft) if normalized; f <= n_fft div 2 if onesided, else f < n_fft
        t: every frame of n_fft elements that lies in data
    dft(re_data, im_data, inverse=False)
        a tuple: out re[.., f] + i im[.., f] = sum over k < n of (re_data + i im_data)[.., k] * exp(-2 pi i f k / n)
        inverse: exp(2 pi i f k / n), and divided by n

data: float, (length,) or (batch, length), no shorter than n_fft; window: of data's dtype or int32, (size,), size >=
win_length, of which the rest is not used; 1 <= win_length <= n_fft. Result: ([batch,] frequencies, frames, 2), data's
dtype. re_data, im_data: float, one type, rank >= 1; the transform is along the last axis. Result: two of that type.
Computed in float64. An infinite element counts as NaN, which spreads through its frame or row. Attrs: n_fft,
hop_length, win_length (>= 1), normalized, onesided; inverse. Source: Relay's stft and dft (TOPI, CPU), which turn by
win_length where others turn by n_fft.
Differs from numpy: frequencies come before frames; parts instead of complex numbers; 1 / n by the inverse alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import ShapeMismatch
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ACCUMULATED,
    FLOATS,
    Array,
    Attrs,
    as_wide,
    dtype_name,
    require_same,
    rounded,
    same_dtype,
    tensor_of,
)
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.op.windows import Window, require_at_least, require_fits
from nimblevm.relay.types import TensorType, TupleType, Type


@dataclass(frozen=True, slots=True)
class StftAttrs(Attrs):
    """n_fft: elements of a frame. hop_length: between frames. win_length: elements that are transformed. normalized:
    divided by the root of n_fft. onesided: without the frequencies that mirror others.
    """

    n_fft: int = -1
    hop_length: int = -1
    win_length: int = -1
    normalized: bool = False
    onesided: bool = True

    @property
    def frequencies(self) -> int:
        return self.n_fft // 2 + 1 if self.onesided else self.n_fft

    def frames(self, length: Dim) -> Window:
        """The frames in a signal of `length` elements."""
        return Window(length, self.n_fft, self.hop_length, 1, 0, 0)


@dataclass(frozen=True, slots=True)
class DFTAttrs(Attrs):
    """inverse: from frequencies to elements."""

    inverse: bool = False


def _stft(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: StftAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0, FLOATS)
    window = tensor_of(ctx, arg_types, 1, (data.dtype, "int32"))
    rank = len(data.shape)
    if rank not in (1, 2):
        raise ctx.fail(f"data must be (length,) or (batch, length), not of rank {rank}", 0)
    if len(window.shape) != 1:
        raise ctx.fail(f"window must have rank 1, not {len(window.shape)}", 1)
    for name in ("n_fft", "hop_length", "win_length"):
        value = getattr(attrs, name)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
            raise ctx.fail(f"{name} must be an integer >= 1, not {value!r}")
    if attrs.win_length > attrs.n_fft:
        raise ctx.fail(f"win_length must be <= n_fft, not {attrs.win_length} > {attrs.n_fft}")
    require_at_least(
        ctx, 1, 0, window.shape[0], attrs.win_length, "window is shorter than win_length"
    )
    frames = attrs.frames(data.shape[-1])
    require_fits(ctx, 0, rank - 1, frames)
    return TensorType((*data.shape[:-1], attrs.frequencies, frames.out, 2), data.dtype)


def _dft(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DFTAttrs) -> Type:
    re, im = (tensor_of(ctx, arg_types, index, FLOATS) for index in (0, 1))
    same_dtype(ctx, re, im, 1)
    rank = len(re.shape)
    if rank == 0:
        raise ctx.fail("re_data must have an axis", 0)
    if len(im.shape) != rank:
        raise ctx.fail(f"im_data must have rank {rank} as re_data has, not {len(im.shape)}", 1)
    pairs = enumerate(zip(re.shape, im.shape, strict=True))
    shape = tuple(require_same(ctx, (0, at, a), (1, at, b)) for at, (a, b) in pairs)
    return TupleType((TensorType(shape, re.dtype),) * 2)


def _turns(count: int, frequencies: int) -> Array:
    """exp(-2 pi i f k / count) as (k, f)."""
    places = np.arange(count)[:, None] * np.arange(frequencies) % max(count, 1)
    return np.asarray(np.exp(-2j * np.pi * places / max(count, 1)))


def _finite(value: Array) -> Array:
    """Infinite elements as NaN."""
    return np.asarray(np.where(np.isfinite(value), value, np.nan))


def _stft_reference(inputs: tuple[Array, ...], attrs: StftAttrs, result: Type) -> Array:
    data, window = inputs
    win, length = attrs.win_length, data.shape[-1]
    if length < attrs.n_fft or len(window) < win:
        raise ShapeMismatch(
            f"stft: data of {length} elements and a window of {len(window)}, for n_fft={attrs.n_fft} and "
            f"win_length={win}"
        )
    frames = np.lib.stride_tricks.sliding_window_view(as_wide(data), attrs.n_fft, -1)
    with np.errstate(all="ignore"):
        taken = _finite(frames[..., :: attrs.hop_length, :win] * as_wide(window[:win]))
        found = np.swapaxes(taken @ _turns(win, attrs.frequencies), -1, -2)
        if attrs.normalized:
            found = found / np.sqrt(attrs.n_fft)
    parts = np.stack((found.real, found.imag), -1)
    return rounded(parts, dtype_name(data))


def _dft_reference(inputs: tuple[Array, ...], attrs: DFTAttrs, result: Type) -> tuple[Array, Array]:
    re, im = (_finite(as_wide(value)) for value in inputs)
    if re.shape != im.shape:
        raise ShapeMismatch(f"dft: parts of shapes {re.shape} and {im.shape}")
    count, dtype = re.shape[-1], dtype_name(inputs[0])
    turns = _turns(count, count)
    with np.errstate(all="ignore"):
        found = (re + 1j * im) @ (turns.conj() / max(count, 1) if attrs.inverse else turns)
    return rounded(found.real, dtype), rounded(found.imag, dtype)


def _register(name: str, args: tuple[str, ...], attrs: type, dtypes: Any, functions: Any) -> None:
    register(
        Op(
            name=name,
            args=args,
            attrs=attrs,
            relation=functions[0],
            reference=functions[1],
            pattern=OpPattern.OPAQUE,
            effect=Effect.TOTAL,
            dtypes=dtypes,
            doc=__doc__ or "",
            tolerance=ACCUMULATED,
        )
    )


_WINDOWS = (*FLOATS, "int32")
_register("stft", ("data", "window"), StftAttrs, (FLOATS, _WINDOWS), (_stft, _stft_reference))
_register("dft", ("re_data", "im_data"), DFTAttrs, (FLOATS, FLOATS), (_dft, _dft_reference))
