"""Names of TVM that have no counterpart here, and what to use instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from typing import Any

from nimblevm.arguments import explain_missing
from nimblevm.errors import ModuleNotProvided, NameNotProvided

MODULES: Mapping[str, str] = {
    "context": "tvm.device(name, number) and tvm.cpu() make devices",
    "ndarray": "its name is tvm.nd",
    "_ffi": "tvm.error has TVMError and its kin; there is no registry of packed functions",
    "DataType": "a dtype is its name, a string",
    "topi": "the operators are relay's: nimblevm.tvm.relay",
    "autotvm": "nvm.tune(mod, params) measures products on this machine; nvm.compile(tuning=) uses the record",
    "auto_scheduler": "nvm.tune(mod, params) measures products on this machine; nvm.compile(tuning=) uses the record",
    "meta_schedule": "nvm.tune(mod, params) measures products on this machine; nvm.compile(tuning=) uses the record",
    "rpc": "copy the .nvm file to the other machine; nvm-run or nvm.load runs it there (docs/targets.md)",
    "relax": "only Relay is read here; export the model as Relay text with TVM 0.18",
    "micro": "libnimblevm is a small library in C (docs/c-api.md)",
    "script": "mod.astext() writes Relay text and relay.parse reads it",
    "driver": "nimblevm compile is the command line",
    "build": "nvm.compile(mod) or relay.vm.compile(mod) compile a whole module; there is no te or tir to build",
    "lower": "nvm.compile(mod) does all steps; nimblevm disasm --kernels shows the loops",
    "register_func": "nvm.external.register(External(...)) registers a codegen (docs/external-codegen.md)",
    "get_global_func": "there is no registry of packed functions; nvm.external has backends",
    "vulkan": "devices are tvm.cpu(), tvm.opencl(), tvm.cuda(); nvm.devices.available() lists them",
    "metal": "devices are tvm.cpu(), tvm.opencl(), tvm.cuda(); nvm.devices.available() lists them",
    "rocm": "devices are tvm.cpu(), tvm.opencl(), tvm.cuda(); nvm.devices.available() lists them",
}
RELAY: Mapping[str, str] = {
    "frontend": "export the model with TVM 0.18 (mod.astext()), or write it with relay's functions",
    "quantize": "nvm.compile(weights='float16') halves weights; there is no quantizer",
    "collage": "nvm.compile(external=...) lists backends in order of preference",
    "gradient": "there are no gradients",
    "debug": "relay.create_executor('debug') evaluates step by step; mod.astext() prints",
    "TypeRelation": "an operator's relation is a function of its record (nimblevm.relay.op); types carry none",
    "optimize": "apply relay.transform passes in a Sequential; relay.build and relay.vm.compile optimize themselves",
    "Executor": "relay.build and relay.vm.compile need no executor: one virtual machine runs all programs",
    "Runtime": "relay.build and relay.vm.compile need no runtime: the .nvm file runs in C and in Python",
    "memory_plan": "nvm.compile(plan_memory=True) is the default",
}
_LAYOUTS = (
    "leave it out: nvm.compile packs weights and convolutions as the target's kernels read them, "
    "and relay.layout_transform writes a layout by hand"
)
_CODEGEN = "nvm.compile(external=[...]) gives regions to codegens (docs/external-codegen.md)"
_ORDER = "ToANormalForm makes the order of evaluation explicit; deep recursion needs no other form"
_SPANS = "relay.parse gives every node its span, and passes keep it"
_GRADIENTS = "there are no gradients"
TRANSFORM: Mapping[str, str] = {
    **dict.fromkeys(("AlterOpLayout", "ConvertLayout", "LayoutConfig"), _LAYOUTS),
    **dict.fromkeys(
        (
            "InlineCompilerFunctionsBoundTo",
            "MarkCompilerFunctionsAsExtern",
            "OutlineCompilerFunctionsWithExistingGlobalSymbols",
            "CollagePartition",
        ),
        _CODEGEN,
    ),
    **dict.fromkeys(("to_cps", "un_cps"), _ORDER),
    **dict.fromkeys(("AnnotateSpans", "CapturePostDfsIndexInSpans"), _SPANS),
    **dict.fromkeys(("gradient", "LazyGradientInit", "FirstOrderGradient"), _GRADIENTS),
    "Legalize": "leave it out: every operator has kernels for all of its dtypes",
    "ManifestLifetimes": "leave it out: registers hold values to their last use, and plan_memory shares storage",
    "PlanDevices": "nvm.compile(device='opencl,cuda') places what runs where (docs/device.md)",
    "ChangeBatch": "relay.Any() or relay.DimVar('n') makes the batch a size that the run decides",
    "FlexibleShapeDispatch": "relay.Any() or relay.DimVar('n') makes a size that the run decides",
    "recast": "a relay.ExprMutator with relay.cast changes the dtypes of calls",
    "BatchingOps": "CombineParallelDense and CombineParallelBatchMatmul are its parts",
    **dict.fromkeys(
        ("DenseToSparse", "Conv2dToSparse", "Conv2dToSparse2", "SimplifyFCTranspose"),
        "weights are packed at compile time, dense; relay.nn.sparse_dense takes sparse ones",
    ),
}
OP: Mapping[str, str] = dict.fromkeys(
    (
        "OpPattern",
        "OpStrategy",
        "register",
        "register_alter_op_layout",
        "register_broadcast_schedule",
        "register_compute",
        "register_convert_op_layout",
        "register_external_compiler",
        "register_fake_quantization_to_integer",
        "register_gradient",
        "register_injective_schedule",
        "register_legalize",
        "register_mixed_precision_conversion",
        "register_pattern",
        "register_reduce_schedule",
        "register_schedule",
        "register_shape_func",
        "register_strategy",
        "strategy",
    ),
    "operators are records of the package; a program's functions, or external codegen with kernels of one's own "
    "(docs/external-codegen.md), stand for new ones",
)
BACKEND: Mapping[str, str] = {
    "te_compiler": "kernels are made by relay.vm.compile and relay.build; nothing of them is kept to be cleared",
    "Executor": RELAY["Executor"],
    "Runtime": RELAY["Runtime"],
    "aot": "relay.create_executor('aot') and relay.build run programs by the virtual machine",
}
TARGET: Mapping[str, str] = {
    "VirtualDevice": "relay.annotation.on_device takes a device or its name; nvm.compile(device='opencl,cuda') places "
    "the rest (docs/device.md)",
    "codegen": "nvm.build_info() says what this build is made of",
    "datatype": "dtypes are those of nimblevm.dtypes; there are no custom ones",
    "make_compilation_config": "relay.build and relay.vm.compile take a target's text",
}
TE: Mapping[str, str] = dict.fromkeys(
    (
        "placeholder",
        "compute",
        "create_schedule",
        "create_prim_func",
        "extern",
        "reduce_axis",
        "sum",
        "thread_axis",
    ),
    "kernels are generated from the program; external codegen brings one's own (docs/external-codegen.md)",
)
TIR: Mapping[str, str] = dict.fromkeys(
    (
        "Buffer",
        "BufferLoad",
        "Call",
        "For",
        "PrimFunc",
        "Schedule",
        "Stmt",
        "analysis",
        "bijective_layout",
        "const",
        "decl_buffer",
        "ir_builder",
        "layout",
        "stmt_functor",
        "transform",
    ),
    "here are sizes alone, ints or relay.DimExpr; kernels are generated, and nimblevm disasm --kernels shows their "
    "loops",
)
IR: Mapping[str, str] = {
    "EnvFunc": "there is no registry of packed functions; a pass is any function (tvm.transform.module_pass)",
    "make_node": "call the node's class, relay.Tuple(...), or the operator, relay.nn.conv2d(...), for its attributes",
}
VM: Mapping[str, str] = {
    "invoke": "runtime.vm.VirtualMachine(exe, tvm.cpu()).invoke(name, *args) runs a function",
}
ANALYSIS: Mapping[str, str] = {
    "AnnotatedRegionSet": "MergeCompilerRegions and PartitionGraph find the regions; mod.functions has what they made",
    "get_calibration_data": "relay.create_executor('debug') evaluates a program of the values to look at, "
    "such as extract_intermdeiate_expr makes",
    "search_fc_transpose": "weights are packed at compile time in the form that their kernels read",
}
TESTING: Mapping[str, str] = dict.fromkeys(
    (
        "densenet",
        "dqn",
        "inception_v3",
        "resnet_3d",
        "squeezenet",
        "synthetic",
        "vgg",
        "py_converter",
    ),
    "there are mlp, lstm, resnet, mobilenet, dcgan, and layers to write others with",
)
EXTERNAL: Mapping[str, str] = dict.fromkeys(
    (
        "arm_compute_lib",
        "bnns",
        "cublas",
        "cudnn",
        "cutlass",
        "dnnl",
        "tensorrt",
        "vitis_ai",
        "clml",
        "ethosn",
    ),
    "backends of this package are blas and vta; docs/external-codegen.md shows how to write one",
)


_PACKAGES: dict[str, Mapping[str, str]] = {}  # what explain_absent was told


def explain_absent(
    module: str, names: Mapping[str, str], there: Sequence[str] = ()
) -> Callable[[str], Any]:
    """A __getattr__ for a package whose error for these names says what to use. Importing them says so too.

    there   what the package has: other names may come close to one of them
    """
    _PACKAGES[module] = names
    unknown = explain_missing(module, there)

    def missing(name: str) -> Any:
        if name in names:
            raise NameNotProvided(_advice(module, name))
        return unknown(name)

    return missing


def _advice(module: str, name: str) -> str:
    text = _PACKAGES[module][name]
    return f"{module.removeprefix('nimblevm.')}.{name} is not here: {text} (docs/from-tvm.md)"


class _Absent(MetaPathFinder):
    """Asked last for a module. `from package import name` asks, too, where the package has no such attribute."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        package, _, name = fullname.rpartition(".")
        if name in _PACKAGES.get(package, ()):
            raise ModuleNotProvided(_advice(package, name))


sys.meta_path.append(_Absent())

__all__ = [
    "ANALYSIS",
    "BACKEND",
    "EXTERNAL",
    "IR",
    "MODULES",
    "OP",
    "RELAY",
    "TARGET",
    "TESTING",
    "TIR",
    "TRANSFORM",
    "VM",
    "explain_absent",
]
