"""Which ONNX models a row has: shared by the peers that read ONNX."""

from __future__ import annotations

from typing import Any

from nimblevm.bench.cases import Case, flatten
from nimblevm.bench.peers import Unsupported, onnx_decoder, onnx_encoder, onnx_recurrent
from nimblevm.bench.rows import Row

_RECURRENT = {
    "lstm": onnx_recurrent.lstm,
    "gru": onnx_recurrent.gru,
    "treelstm": onnx_recurrent.treelstm,
    "seq2seq": onnx_recurrent.seq2seq_model,
}


def models(row: Row, contrib: bool) -> dict[str, dict[str, bytes]]:
    """By program the ways to write it, by name: serialized ModelProtos.

    contrib: operators of com.microsoft may be used.
    """
    weights = row.params()
    made: dict[str, dict[str, Any]]
    if row.kind in _RECURRENT:
        made = {"main": {"standard operators": _RECURRENT[row.kind](weights)}}
    elif row.kind == "bert":
        config, pooled = row.sizes["config"], row.sizes["pooled"]
        build = onnx_encoder.encoder
        made = {"main": {"standard operators": build(weights, config, pooled, fused=False)}}
        if contrib:
            made["main"]["com.microsoft.Attention"] = build(weights, config, pooled, fused=True)
    elif row.kind == "gpt2":
        config = row.sizes["config"]
        made = {"main": {"standard operators": onnx_decoder.decoder(weights, config, fused=False)}}
        if contrib:
            fused = onnx_decoder.decoder(weights, config, fused=True)
            made["main"]["com.microsoft.MultiHeadAttention"] = fused
    elif row.kind == "resnet":
        made = {"main": {"standard operators": onnx_encoder.resnet18(weights)}}
    elif row.kind == "chain":
        made = {}
        for case in row.cases():
            taken = {f"w{k}": weights[f"w{k}"] for k in range(case.units)}
            made[case.program] = {"standard operators": onnx_recurrent.chain(taken)}
    else:
        raise Unsupported(f"no ONNX model of {row.kind}")
    return {
        name: {way: model.SerializeToString() for way, model in ways.items()}
        for name, ways in made.items()
    }


def arrays(row: Row, case: Case) -> tuple[Any, ...]:
    """A case's inputs in the order of the model's inputs."""
    if row.kind == "treelstm":
        flat = flatten(*case.inputs)
        return flat.words, flat.children
    return case.inputs


__all__ = ["arrays", "models"]
