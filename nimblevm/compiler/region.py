"""From a region, a function with the attribute Compiler, to a kernel: what its backend's codegen makes of it.

The kernel keeps loop IR beside the backend's code where ordinary fusion would make one kernel of the region too: that
is what runs where the backend's runtime is missing. Else it has the backend's code alone.
"""

from __future__ import annotations

import dataclasses

from nimblevm.abi import MAX_OPERANDS
from nimblevm.compiler.external import Blob, External, Region
from nimblevm.compiler.kernel_key import plain_function, region_key
from nimblevm.compiler.kernel_table import Entry, ExternalCode, KernelCache
from nimblevm.compiler.passes.fuse_ops import fuse_function
from nimblevm.compiler.passes.to_anf import anf_function
from nimblevm.compiler.rewrite import Rewriter, attr_dims, is_primitive, let_chain, postorder
from nimblevm.errors import CompileError, NimbleError
from nimblevm.kernels.loop_ir import Axis, Buffer, Const, DimRef, Kernel, operand_roles
from nimblevm.kernels.lower import LoweredKernel, flat_types, lower_primitive
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimExpr
from nimblevm.relay.ir import Call, Expr, Function, Tuple, TupleGetItem, Var
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType

MAX_DIMS = 400
"""Of one kernel: below abi.MAX_DIMS, where pitches and attributes count as dims too."""


def compile_region(cache: KernelCache, function: Function, external: External) -> Function | None:
    """The region with its name, its kernel in the cache; None if the backend declines it.

    Raises CompileError if the backend fails or gives what can't be a kernel.
    """
    key, variables = region_key(function)
    if key not in cache.regions:
        plain = plain_function(function)
        name = cache.new_name(plain, f"{external.name.replace('.', '_')}_")
        cache.regions[key] = _entry(_named(function, name), plain, external, variables)
    entry = cache.regions[key]
    return None if entry is None else _named(function, entry.name)


def _named(function: Function, name: str) -> Function:
    return dataclasses.replace(function, attrs={**function.attrs, "global_symbol": name})


def _entry(
    function: Function, plain: Function, external: External, variables: tuple[dims.DimVar, ...]
) -> Entry | None:
    name = str(function.attrs["global_symbol"])
    inputs = tuple(t for p in function.params for t in flat_types(p.checked_type))
    outputs = flat_types(function.body.checked_type)
    lowered = _loop_ir(plain, name)
    own = lowered or _without_ir(name, plain, inputs, outputs)
    in_dims = tuple(d for d in own.in_dims if isinstance(d, DimExpr))
    if len(inputs) + len(outputs) > MAX_OPERANDS or len(in_dims) > MAX_DIMS:
        return None
    blob = _generated(external, Region(function, inputs, outputs, in_dims))
    if blob is None:
        return None
    if blob.scratch:
        place = _place(external, name)
        _check_scratch(blob.scratch, variables, place)
        lowered, own = None, _without_ir(name, plain, inputs, outputs, blob.scratch, in_dims)
        if len(own.in_dims) > MAX_DIMS:
            raise CompileError(
                f"{place}: {len(own.in_dims)} dims with scratch, a kernel has at most {MAX_DIMS}"
            )
    own = dataclasses.replace(
        own,
        kernel=dataclasses.replace(own.kernel, alias=()),
        c_kernels=(),
        may_fail=own.may_fail or blob.may_fail,
    )
    code = ExternalCode(external.runtime, blob.data, lowered is not None)
    return Entry(name, own, variables, code)


def _generated(external: External, region: Region) -> Blob | None:
    """What the backend's codegen gives, looked at."""
    place = _place(external, region.name)
    try:
        blob = external.codegen(region)
    except NimbleError:
        raise
    except Exception as error:
        raise CompileError(f"{place}: {type(error).__name__}: {error}") from error
    if blob is None:
        return None
    if not isinstance(blob, Blob) or not isinstance(blob.data, bytes):
        got = type(blob.data if isinstance(blob, Blob) else blob).__name__
        raise CompileError(f"{place}: expected a Blob of bytes or None, got {got}")
    count = len(region.inputs) + len(region.outputs) + len(blob.scratch)
    if count > MAX_OPERANDS:
        raise CompileError(
            f"{place}: {count} operands with scratch, a kernel has at most {MAX_OPERANDS}"
        )
    return blob


def _place(external: External, region: str) -> str:
    return f"codegen of external backend {external.name}, region {region}"


def _check_scratch(
    scratch: tuple[TensorType, ...], variables: tuple[dims.DimVar, ...], place: str
) -> None:
    """CompileError for what is no tensor, and for a size that a call of the region can't know."""
    for type_ in scratch:
        if not isinstance(type_, TensorType):
            raise CompileError(f"{place}: expected TensorTypes as scratch, got {type_!r}")
        for var in (v for dim in type_.shape for v in dims.free_vars(dim)):
            if var not in variables:
                raise CompileError(
                    f"{place}: scratch {type_!r} has a dim {var!r}, which is no dim variable of the region"
                )


def _without_ir(
    name: str,
    plain: Function,
    inputs: tuple[TensorType, ...],
    outputs: tuple[TensorType, ...],
    scratch: tuple[TensorType, ...] = (),
    first: tuple[DimExpr, ...] = (),
) -> LoweredKernel:
    """The signature alone. What is passed: `first`, which codegen was told of, then every other distinct dim that is
    not static, then what attributes mention.
    """
    types = (*inputs, *outputs, *scratch)
    sizes = [d for t in types for d in t.shape if isinstance(d, DimExpr)]
    in_dims = tuple(dict.fromkeys((*first, *sizes, *_attr_dims(plain))))
    number: dict[Dim, int] = {dim: i for i, dim in enumerate(in_dims)}

    def axis(dim: Dim) -> Axis:
        return Axis(Const("int64", dim) if isinstance(dim, int) else DimRef("int64", number[dim]))

    names = (
        *(f"in{i}" for i in range(len(inputs))),
        *(f"out{i}" for i in range(len(outputs))),
        *(f"scratch{i}" for i in range(len(scratch))),
    )
    roles = operand_roles(len(inputs), len(outputs), len(scratch))
    buffers = tuple(
        Buffer(n, t.dtype, r, tuple(map(axis, t.shape)))
        for n, t, r in zip(names, types, roles, strict=True)
    )
    kernel = Kernel(name, buffers, tuple(map(repr, in_dims)), ())
    return LoweredKernel(kernel, in_dims, inputs, outputs, scratch, (), may_fail=False)


def _loop_ir(plain: Function, name: str) -> LoweredKernel | None:
    """The region as one kernel of ours, with the same operands; None if it is none."""
    open_ = dataclasses.replace(plain, attrs={})  # passes leave primitive functions alone
    group = _one_group(fuse_function(anf_function(open_, IRModule()), unbox=False), plain)
    if group is None:
        return None
    try:
        lowered = lower_primitive(group, name)
    except CompileError:
        return None
    return _with_dims(lowered, _attr_dims(plain)) if lowered.kernel.buffers else None


def _attr_dims(plain: Function) -> list[dims.DimVar]:
    """What attributes mention: a backend gets their values, whether our loops need them or not."""
    return [var for node in postorder(plain.body) for var in attr_dims(node)]


def _with_dims(lowered: LoweredKernel, more: list[dims.DimVar]) -> LoweredKernel:
    added = tuple(d for d in dict.fromkeys(more) if d not in lowered.in_dims)
    names = (*lowered.kernel.dims, *map(repr, added))
    return dataclasses.replace(
        lowered,
        kernel=dataclasses.replace(lowered.kernel, dims=names),
        in_dims=(*lowered.in_dims, *added),
    )


def _one_group(fused: Function, plain: Function) -> Function | None:
    """The fused function as a primitive one with the parameters of `plain`, if it is one call and its fields."""
    lets, tail = let_chain(fused.body)
    call = lets[0].value if lets else tail
    if not isinstance(call, Call) or not is_primitive(call.op) or not isinstance(call.op, Function):
        return None
    if lets and not _is_whole(lets[0].var, [(let.var, let.value) for let in lets[1:]], tail):
        return None
    args = [a for a in call.args if isinstance(a, Var) and a in fused.params]
    if len(args) != len(call.args) or len(set(args)) != len(args):
        return None
    memo: dict[Expr, Expr] = dict(zip(call.op.params, args, strict=True))
    body = Rewriter(memo).rewrite(call.op.body)
    return dataclasses.replace(plain, params=fused.params, body=body)


def _is_whole(result: Var, lets: list[tuple[Var, Expr]], tail: Expr) -> bool:
    """Whether a block only takes a kernel's results apart and puts them together in order."""
    fields: dict[Expr, int] = {}
    for var, value in lets:
        if not isinstance(value, TupleGetItem) or value.tuple_value is not result:
            return False
        fields[var] = value.index
    if tail is result:
        return not lets
    return isinstance(tail, Tuple) and [fields.get(f) for f in tail.fields] == list(
        range(len(tail.fields))
    )


__all__ = ["compile_region"]
