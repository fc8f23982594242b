"""OpenVINO, CPU plugin: LATENCY hint, float32 forced, one stream, threads pinned."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import openvino as ov
from openvino import properties as props

from nimblevm.bench.cases import Case
from nimblevm.bench.peers import Parts, Prepared, whole
from nimblevm.bench.peers.choose import Run, fastest
from nimblevm.bench.peers.onnx_decoder import cache_names
from nimblevm.bench.peers.onnx_models import arrays, models
from nimblevm.bench.rows import Row


def version() -> str:
    return str(ov.__version__).split("-", maxsplit=1)[0]


def _shared(request: Any, count: int) -> Run:
    """Inputs and outputs without a copy; what is returned is copied out, since the next call overwrites it."""

    def run(inputs: Any) -> Sequence[Any]:
        found = request.infer(list(inputs), share_inputs=True, share_outputs=True)
        return [np.array(found[i]) for i in range(count)]

    return run


def _copied(request: Any, count: int) -> Run:
    def run(inputs: Any) -> Sequence[Any]:
        found = request.infer(list(inputs))
        return [found[i] for i in range(count)]

    return run


def _decoding(request: Any, row: Row) -> Parts:
    """A greedy loop in Python around a step, a part, whose caches are shared tensors."""
    config = row.sizes["config"]
    names = cache_names(config.layers)
    empty = np.zeros((1, config.heads, 0, config.hidden // config.heads), np.float32)

    def run(inputs: Any) -> Generator[None, None, Sequence[Any]]:
        prompt, steps = inputs
        ids, out = prompt[None].astype(np.int64), []
        values: dict[str, Any] = {past: empty for past, _ in names}
        for _ in range(int(steps)):
            found = request.infer({"ids": ids, **values}, share_inputs=True, share_outputs=False)
            ids = found[0][None]
            out.append(int(ids[0, 0]))
            values = {past: found[i] for i, (past, _) in enumerate(names, 1)}
            yield
        return [np.array(out, np.int32)]

    return run


def prepare(row: Row, threads: int, variant: str = "") -> Prepared:
    """The same ONNX models as ONNX Runtime's, standard operators alone."""
    start = time.perf_counter()
    core = ov.Core()
    config = {
        props.hint.performance_mode: props.hint.PerformanceMode.LATENCY,
        props.hint.inference_precision: ov.Type.f32,
        props.hint.execution_mode: props.hint.ExecutionMode.ACCURACY,
        props.inference_num_threads: threads,
        props.num_streams: 1,
    }
    chosen: dict[str, tuple[str, Run]] = {}
    decoders: dict[str, Parts] = {}
    for program, ways in models(row, contrib=False).items():
        candidates: dict[str, Run] = {}
        for way, model in ways.items():
            compiled = core.compile_model(core.read_model(model), "CPU", config)
            request, count = compiled.create_infer_request(), len(compiled.outputs)
            if row.kind == "gpt2":
                decoders[way] = _decoding(request, row)
                candidates[way] = whole(decoders[way])
                continue
            candidates[f"{way}, shared memory"] = _shared(request, count)
            candidates[way] = _copied(request, count)
        values = [arrays(row, case) for case in row.cases() if case.program == program]
        chosen[program] = fastest(candidates, values[:4])
    seconds = time.perf_counter() - start

    def load(case: Case) -> Any:
        return chosen[case.program][1], arrays(row, case)

    told = f"LATENCY, f32, {threads} thread(s)"
    if not decoders:
        return Prepared(_run, told, seconds, load)
    decoder = decoders[chosen["main"][0]]
    return Prepared(_run, told, seconds, load, parts=lambda loaded: decoder(loaded[1]))


def _run(loaded: Any) -> Sequence[Any]:
    run, inputs = loaded
    found: Sequence[Any] = run(inputs)
    return found


__all__ = ["prepare", "version"]
