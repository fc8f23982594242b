"""OpenVINO, CPU plugin: LATENCY hint, float32 forced, one stream, threads pinned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino as ov
from openvino import properties as props

from nimblevm.bench.cases import Array
from nimblevm.bench.peers import Prepared
from nimblevm.bench.peers.choose import Run
from nimblevm.bench.peers.onnx_decoder import cache_names
from nimblevm.bench.peers.onnx_peer import Runtime, Step, no_caches
from nimblevm.bench.rows import Row


def version() -> str:
    return str(ov.__version__).split("-", maxsplit=1)[0]


def _shared(request: Any) -> Run:
    """Inputs and outputs without a copy; what is returned is copied out, since the next call overwrites it."""
    count = len(request.model_outputs)

    def run(inputs: Any) -> Sequence[Any]:
        found = request.infer(list(inputs), share_inputs=True, share_outputs=True)
        return [np.array(found[i]) for i in range(count)]

    return run


def _copied(request: Any) -> Run:
    count = len(request.model_outputs)

    def run(inputs: Any) -> Sequence[Any]:
        found = request.infer(list(inputs))
        return [found[i] for i in range(count)]

    return run


def _decoding(request: Any, row: Row) -> tuple[str, Step, Any]:
    """Caches are shared tensors."""
    names = [past for past, _ in cache_names(row.sizes["config"].layers)]

    def step(ids: Array, caches: Any) -> tuple[Array, Any]:
        found = request.infer({"ids": ids, **caches}, share_inputs=True, share_outputs=False)
        return found[0], {past: found[i] for i, past in enumerate(names, 1)}

    return "", step, dict.fromkeys(names, no_caches(row))


def prepare(row: Row, threads: int, variant: str = "") -> Prepared:
    """The same ONNX models as ONNX Runtime's, standard operators alone."""
    core = ov.Core()
    config = {
        props.hint.performance_mode: props.hint.PerformanceMode.LATENCY,
        props.hint.inference_precision: ov.Type.f32,
        props.hint.execution_mode: props.hint.ExecutionMode.ACCURACY,
        props.inference_num_threads: threads,
        props.num_streams: 1,
    }

    def session(model: bytes) -> Any:
        return core.compile_model(core.read_model(model), "CPU", config).create_infer_request()

    runtime = Runtime(
        options=f"LATENCY, f32, {threads} thread(s)",
        contrib=False,
        session=session,
        runs=lambda request: {"shared memory": _shared(request), "": _copied(request)},
        decoder=_decoding,
    )
    return runtime.prepare(row)


__all__ = ["prepare", "version"]
