"""ONNX Runtime, CPU execution provider: all graph optimizations, spinning threads, IO binding where it is faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from nimblevm.bench.cases import Array
from nimblevm.bench.peers import Prepared
from nimblevm.bench.peers.choose import Run
from nimblevm.bench.peers.onnx_decoder import cache_names
from nimblevm.bench.peers.onnx_peer import Runtime, Step, no_caches
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


def _decoding(session: Any, row: Row) -> tuple[str, Step, Any]:
    """Caches stay in the runtime: what a step binds as output, the next one binds as input, without a copy."""
    names = cache_names(row.sizes["config"].layers)
    first = session.get_outputs()[0].name

    def step(ids: Array, caches: Any) -> tuple[Array, Any]:
        binding = session.io_binding()
        binding.bind_cpu_input("ids", ids)
        binding.bind_output(first, "cpu")
        for (past, present), cache in zip(names, caches, strict=True):
            binding.bind_ortvalue_input(past, cache)
            binding.bind_output(present, "cpu")
        session.run_with_iobinding(binding)
        found = binding.get_outputs()
        return found[0].numpy(), found[1:]

    return "IO binding", step, [ort.OrtValue.ortvalue_from_numpy(no_caches(row))] * len(names)


def prepare(row: Row, threads: int, variant: str = "") -> Prepared:
    """Standard operators and those of com.microsoft."""
    runtime = Runtime(
        options=f"ORT_ENABLE_ALL, {threads} spinning thread(s)",
        contrib=True,
        session=lambda model: _session(model, threads),
        runs=lambda session: {"": _plain(session), "IO binding": _bound(session)},
        decoder=_decoding,
    )
    return runtime.prepare(row)


__all__ = ["prepare", "version"]
