"""Streams and spectra: against numpy's transforms and numbers of TVM's documentation; errors of signals that are too short."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import RelayTypeError, ShapeMismatch, TimeLimit
from nimblevm.relay.interpreter import evaluate
from tests.kernels.native import flat
from tests.relay.op.checks import f32, fails, i32, program, run

RNG = np.random.default_rng(5)


def machine(made: Any, *values: np.ndarray) -> nvm.VirtualMachine:
    return nvm.VirtualMachine(nvm.compile(program(made, values), native=False))


# --- nn.fifo_buffer ---------------------------------------------------------------------------------


def test_a_stream_in_pieces_of_any_size_is_its_newest_elements() -> None:
    stream = RNG.normal(size=(2, 20, 3)).astype("float32")
    kept = np.zeros((2, 6, 3), "float32")
    place = 0
    with machine(lambda d, b: relay.nn.fifo_buffer(d, b, 1), stream, kept) as vm:
        for size in (0, 1, 3, 6, 2, 5, 3):
            kept = np.array(vm.run(stream[:, place : place + size], kept))
            place += size
            seen = np.concatenate((np.zeros((2, 6, 3), "float32"), stream[:, :place]), 1)
            np.testing.assert_array_equal(kept, seen[:, -6:])


def test_data_that_the_buffer_does_not_hold() -> None:
    short, long = np.ones((2, 3), "float32"), np.ones((2, 4), "float32")
    fails(ShapeMismatch, lambda d, b: relay.nn.fifo_buffer(d, b, 1), long, short)
    fails(ShapeMismatch, lambda d, b: relay.nn.fifo_buffer(d, b, 0), long, short)
    refused = (
        ((4,), (3,), 0),
        ((2, 4), (3, 4), -1),
        ((), (), 0),
        ((3,), (1, 3), 0),
        ((3,), (3,), 1),
    )
    for data, buffer, axis in refused:
        x, y = relay.var("x", shape=data), relay.var("y", shape=buffer)
        with pytest.raises(RelayTypeError):
            relay.infer_type(
                relay.IRModule.from_expr(relay.Function([x, y], relay.nn.fifo_buffer(x, y, axis)))
            )


# --- stft, dft --------------------------------------------------------------------------------------


def test_stft_of_tvm_s_documentation() -> None:
    data, window = f32([[1, 2, 3, 4, 5, 6]]), i32([4, 3, 2])
    found = run(lambda d, w: relay.stft(d, 3, 3, 3, w, False, True), data, window)
    wanted = f32([[[[16, 0], [43, 0]], [[-2, 0], [2.5, -2.5981]]]])
    np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize(("n_fft", "hop"), [(8, 2), (25, 7), (400, 160), (6, 9)])
def test_stft_is_numpy_s_transform_of_the_frames(n_fft: int, hop: int, onesided: bool) -> None:
    data = RNG.normal(size=(2, 3 * hop + n_fft + hop - 1)).astype("float32")
    window = np.hanning(n_fft).astype("float32")
    found = run(lambda d, w: relay.stft(d, n_fft, hop, None, w, True, onesided), data, window)
    frames = np.lib.stride_tricks.sliding_window_view(data.astype("float64"), n_fft, 1)[:, ::hop]
    wanted = (np.fft.rfft if onesided else np.fft.fft)(frames * window) / np.sqrt(n_fft)
    assert found.shape == (2, n_fft // 2 + 1 if onesided else n_fft, 4, 2)
    np.testing.assert_allclose(found[..., 0], wanted.real.swapaxes(1, 2), atol=1e-5)
    np.testing.assert_allclose(found[..., 1], wanted.imag.swapaxes(1, 2), atol=1e-5)


def test_stft_turns_by_the_length_of_the_window() -> None:
    """TVM divides by win_length where it is shorter; frames are still n_fft long, frequencies n_fft div 2 + 1."""
    data = RNG.normal(size=10).astype("float64")
    found = run(lambda d: relay.stft(d, 8, 2, 3), data)
    assert found.shape == (5, 2, 2)
    for f, t in np.ndindex(5, 2):
        wanted = sum(data[2 * t + w] * np.exp(-2j * np.pi * f * w / 3) for w in range(3))
        assert complex(*found[f, t]) == pytest.approx(wanted)


def test_what_is_no_number_stays_in_its_frames() -> None:
    data = RNG.normal(size=40).astype("float32")
    data[[9, 22]] = np.inf, np.nan
    with machine(lambda d: relay.stft(d, 5, 5), data) as vm:
        found = np.array(vm.run(data))
    bad = np.isnan(found).any((0, 2))
    assert bad.tolist() == [False, True, False, False, True, False, False, False]
    assert np.isnan(found[:, bad]).all()


def test_signals_and_windows_that_are_too_short() -> None:
    short = np.ones((1, 7), "float32")
    fails(ShapeMismatch, lambda d: relay.stft(d, 8), short)
    fails(ShapeMismatch, lambda d, w: relay.stft(d, 7, 1, 7, w), short, np.ones(6, "float32"))
    x = relay.var("x", shape=(1, 7))
    for arguments in ((8,), (0, 1), (4, 0), (4, 1, 0), (4, 1, 5), (2,)):
        with pytest.raises(RelayTypeError):
            relay.infer_type(
                relay.IRModule.from_expr(relay.Function([x], relay.stft(x, *arguments)))
            )


def test_stft_s_frames_are_an_expression_of_the_length() -> None:
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(?b, ?n), float32], %w: Tensor[(16), float32]) {
      stft(%x, %w, n_fft=16, hop_length=4, win_length=16)
    }"""
    result = relay.infer_type(relay.parse(text)).function("main").ret_type
    assert str(result) == "Tensor[(?b, 9, floordiv(?n, 4) - 3, 2), float32]"


SIZES = (*range(33), 49, 60, 64, 77, 97, 101, 120, 121, 128, 210, 243, 256, 343, 360, 509, 1000)


def test_dft_of_every_size_is_numpy_s_and_its_inverse_undoes_it() -> None:
    one = np.zeros((2, 1))
    with (
        machine(lambda r, i: relay.dft(r, i), one, one) as forward,
        machine(lambda r, i: relay.dft(r, i, True), one, one) as backward,
    ):
        for size in SIZES:
            re, im = RNG.normal(size=(2, 2, size))
            parts = [np.array(part) for part in flat(forward.run(re, im))]
            wanted = np.fft.fft(re + 1j * im) if size else np.zeros((2, 0), complex)
            np.testing.assert_allclose(parts[0], wanted.real, atol=1e-11)
            np.testing.assert_allclose(parts[1], wanted.imag, atol=1e-11)
            again = [np.array(part) for part in flat(backward.run(*parts))]
            np.testing.assert_allclose(again[0], re, atol=1e-12)
            np.testing.assert_allclose(again[1], im, atol=1e-12)


def test_the_oracle_transforms_by_its_definition() -> None:
    re, im = RNG.normal(size=(2, 6)).astype("float32")
    found = evaluate(program(lambda r, i: relay.dft(r, i), (re, im)), (re, im))
    for f in range(6):
        turns = np.exp(-2j * np.pi * f * np.arange(6) / 6)
        assert complex(found[0][f], found[1][f]) == pytest.approx(
            ((re + 1j * im) * turns).sum(), rel=1e-5
        )


def test_a_transform_by_a_large_prime_can_be_stopped() -> None:
    size = 200_003
    row = np.ones(size, "float32")
    exe = nvm.compile(program(lambda r, i: relay.dft(r, i), (row, row)), native=False)
    with exe, nvm.VirtualMachine(exe, limits=nvm.Limits(seconds=0.05)) as vm:
        with pytest.raises(TimeLimit):
            vm.run(row, row)
