"""ONNX Runtime, CPU execution provider: all graph optimizations, spinning threads, IO binding where it is faster."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from nimblevm.bench.cases import Case
from nimblevm.bench.peers import Parts, Prepared, whole
from nimblevm.bench.peers.choose import Run, fastest
from nimblevm.bench.peers.onnx_decoder import cache_names
from nimblevm.bench.peers.onnx_models import arrays, models
from nimblevm.bench.rows import Row


def version() -> str:
    return str(ort.__version__)


def _session(model: bytes, threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _plain(session: Any) -> Run:
    names = [entry.name for entry in session.get_inputs()]

    def run(inputs: Any) -> Sequence[Any]:
        found: Sequence[Any] = session.run(None, dict(zip(names, inputs, strict=True)))
        return found

    return run


def _bound(session: Any) -> Run:
    names = [entry.name for entry in session.get_inputs()]
    outputs = [entry.name for entry in session.get_outputs()]

    def run(inputs: Any) -> Sequence[Any]:
        binding = session.io_binding()
        for name, value in zip(names, inputs, strict=True):
            binding.bind_cpu_input(name, np.ascontiguousarray(value))
        for name in outputs:
            binding.bind_output(name, "cpu")
        session.run_with_iobinding(binding)
        found: Sequence[Any] = binding.copy_outputs_to_cpu()
        return found

    return run


def _decoding(session: Any, row: Row) -> Parts:
    """A greedy loop in Python around a step, a part. Caches stay in the runtime: what a step binds as output, the next
    one binds as input, without a copy.
    """
    config = row.sizes["config"]
    names = cache_names(config.layers)
    empty = np.zeros((1, config.heads, 0, config.hidden // config.heads), np.float32)
    first = session.get_outputs()[0].name

    def run(inputs: Any) -> Generator[None, None, Sequence[Any]]:
        prompt, steps = inputs
        ids, out = prompt[None].astype(np.int64), []
        caches = [ort.OrtValue.ortvalue_from_numpy(empty)] * len(names)
        for _ in range(int(steps)):
            binding = session.io_binding()
            binding.bind_cpu_input("ids", ids)
            binding.bind_output(first, "cpu")
            for (past, present), cache in zip(names, caches, strict=True):
                binding.bind_ortvalue_input(past, cache)
                binding.bind_output(present, "cpu")
            session.run_with_iobinding(binding)
            found = binding.get_outputs()
            caches = found[1:]
            ids = found[0].numpy()[None]
            out.append(int(ids[0, 0]))
            yield
        return [np.array(out, np.int32)]

    return run


def prepare(row: Row, threads: int, variant: str = "") -> Prepared:
    """The fastest of the ways to write the model and to pass tensors, for each program."""
    start = time.perf_counter()
    cases = row.cases()
    chosen: dict[str, tuple[str, Run]] = {}
    decoders: dict[str, Parts] = {}
    for program, ways in models(row, contrib=True).items():
        candidates: dict[str, Run] = {}
        for way, model in ways.items():
            session = _session(model, threads)
            if row.kind == "gpt2":
                decoders[f"{way}, IO binding"] = _decoding(session, row)
                candidates[f"{way}, IO binding"] = whole(decoders[f"{way}, IO binding"])
                continue
            candidates[way] = _plain(session)
            candidates[f"{way}, IO binding"] = _bound(session)
        values = [arrays(row, case) for case in cases if case.program == program]
        if row.kind == "gpt2":
            values = [(values[0][0], 4)]
        chosen[program] = fastest(candidates, values[:4])
    seconds = time.perf_counter() - start

    def load(case: Case) -> Any:
        return chosen[case.program][1], arrays(row, case)

    options = ", ".join(dict.fromkeys(way for way, _ in chosen.values()))
    told = f"ORT_ENABLE_ALL, {threads} spinning thread(s), {options}"
    if not decoders:
        return Prepared(_run, told, seconds, load)
    decoder = decoders[chosen["main"][0]]
    return Prepared(_run, told, seconds, load, parts=lambda loaded: decoder(loaded[1]))


def _run(loaded: Any) -> Sequence[Any]:
    run, inputs = loaded
    found: Sequence[Any] = run(inputs)
    return found


__all__ = ["prepare", "version"]
