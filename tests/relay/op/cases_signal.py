"""Cases of streams and their spectra."""

from __future__ import annotations

from collections.abc import Callable

from nimblevm.relay.op import fifo_buffer, fourier
from tests.relay.op.draw import Case, Source, array, flag, pick, shape


def _fifo_buffer(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    axis = source.integer(-len(dims), len(dims) - 1)
    data = list(dims)
    data[axis] = source.integer(0, dims[axis])
    attrs = fifo_buffer.FIFOBufferAttrs(axis)
    return Case((array(source, tuple(data), dtype), array(source, dims, dtype)), attrs)


def _stft(source: Source, dtype: str) -> Case:
    n_fft = pick(source, (1, 2, 3, 5, 8, 12))
    win = n_fft if flag(source) else source.integer(1, n_fft)
    hop, frames = source.integer(1, 4), source.integer(1, 4)
    length = n_fft + (frames - 1) * hop + source.integer(0, hop - 1)
    lead = pick(source, ((), (0,), (1,), (2,)))
    kind = pick(source, (dtype, "int32"))
    window = array(source, (win + source.integer(0, 2),), kind, special=False)
    attrs = fourier.StftAttrs(n_fft, hop, win, flag(source), flag(source))
    return Case((array(source, (*lead, length), dtype), window), attrs)


def _dft(source: Source, dtype: str) -> Case:
    dims = (*shape(source, 0, 2), pick(source, (0, 1, 2, 3, 4, 5, 6, 8, 15, 16, 22, 49)))
    parts = tuple(array(source, dims, dtype) for _ in range(2))
    return Case(parts, fourier.DFTAttrs(flag(source)))


CASES: dict[str, Callable[[Source, str], Case]] = {
    "nn.fifo_buffer": _fifo_buffer, "stft": _stft, "dft": _dft,
}  # fmt: skip
