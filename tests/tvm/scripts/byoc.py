"""Bring your own codegen: a pattern table, then annotate, merge and partition, looked at in between."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay
from nimblevm.tvm.relay.build_module import bind_params_by_name
from nimblevm.tvm.relay.dataflow_pattern import is_constant, is_op, wildcard
from nimblevm.tvm.relay.op.contrib.register import get_pattern_table, register_pattern_table


@register_pattern_table("ccompiler")
def pattern_table():
    dense = is_op("nn.dense")(wildcard(), is_constant())
    return [("ccompiler.dense_relu", is_op("nn.relu")(dense), lambda extract: True)]


@tvm.ir.register_op_attr("tanh", "target.ccompiler")
def _tanh(expr):
    return expr.checked_type.dtype == "float32"


x = relay.var("x", shape=(relay.Any(), 4), dtype="float32")
w = relay.var("w", shape=(8, 4), dtype="float32")
y = relay.tanh(relay.nn.relu(relay.nn.dense(x, w)))
mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.softmax(y)))
mod["main"] = bind_params_by_name(mod["main"], {"w": np.ones((8, 4), "float32")})

texts = []


@tvm.transform.module_pass(opt_level=0, name="Look")
def look(mod, ctx):
    texts.append(mod.astext())
    return mod


seq = tvm.transform.Sequential(
    [
        relay.transform.InferType(),
        relay.transform.MergeComposite(get_pattern_table("ccompiler")),
        look,
        relay.transform.AnnotateTarget("ccompiler"),
        look,
        relay.transform.MergeCompilerRegions(),
        look,
        relay.transform.PartitionGraph(mod_name="mlp"),
    ]
)
mod = seq(mod)
assert 'Composite="ccompiler.dense_relu"' in texts[0]
assert texts[1].count("annotation.compiler_end") == 2
assert texts[2].count("annotation.compiler_end") == 1
assert [v.name_hint for v in mod.get_global_vars()] == ["main", "tvmgen_mlp_ccompiler_main_0"]
func = mod["tvmgen_mlp_ccompiler_main_0"]
assert func.attrs["Compiler"] == "ccompiler"
assert func.attrs["global_symbol"] == "tvmgen_mlp_ccompiler_main_0"
assert [p.name_hint for p in func.params] == ["ccompiler_0_i0"]

begin = relay.annotation.compiler_begin(x, "other")
hand = tvm.IRModule.from_expr(
    relay.Function([x], relay.annotation.compiler_end(relay.exp(begin), "other"))
)
hand = tvm.transform.Sequential(
    [relay.transform.InferType(), relay.transform.PartitionGraph("tvmgen_net")]
)(hand)
assert [v.name_hint for v in hand.get_global_vars()] == ["main", "tvmgen_net_other_main_0"]
