"""stft and dft: C kernels."""

from __future__ import annotations

from nimblevm.kernels.c_rules import CCall, register_c_call
from nimblevm.kernels.compute.sort import operand, results
from nimblevm.relay.dims import Dim
from nimblevm.relay.ir import Call
from nimblevm.relay.op.common import product


def _stft(call: Call) -> CCall:
    data, window, attrs = operand(call, 0), operand(call, 1), call.attrs
    (out,) = results(call)
    name = "stft_whole" if window.dtype == "int32" else "stft"
    batch: Dim = data.shape[0] if len(data.shape) == 2 else 1
    length, size, (frequencies, frames, _) = data.shape[-1], window.shape[0], out.shape[-3:]
    constants = (attrs.n_fft, attrs.hop_length, attrs.win_length, int(attrs.normalized))
    shapes = ((batch, length), (size,), (batch, frequencies, frames, 2))
    sizes = (batch, length, size, frequencies, frames)
    return CCall(f"{name}_{data.dtype}", sizes, constants, shapes)


def _dft(call: Call) -> CCall:
    data = operand(call, 0)
    rows = (product(data.shape[:-1]), data.shape[-1])
    return CCall(f"dft_{data.dtype}", rows, (int(call.attrs.inverse),), (rows,) * 4)


register_c_call("stft", _stft, only=True)
register_c_call("dft", _dft, only=True)
