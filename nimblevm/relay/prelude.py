"""The prelude as users of Relay know it: List, Option, Tree and the functions of prelude.rly, and tensor arrays.

TVM's prelude defines tensor arrays for every dtype at once; here those of a dtype are loaded when they are asked for:
`prelude.get_global_var("tensor_array", "float32")`, or TensorArrayOps(prelude, "float32").register().
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import resources

from nimblevm import dtypes
from nimblevm.arguments import explained_methods
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Constructor, Expr, Function, GlobalVar, free_vars
from nimblevm.relay.libraries import register_library
from nimblevm.relay.module import IRModule
from nimblevm.relay.parser import parse_module
from nimblevm.relay.tensor_array_text import (
    HEADER,
    StaticText,
    dynamic_name,
    dynamic_text,
    static_name,
)
from nimblevm.relay.types import GlobalTypeVar, TypeCall

_SOURCE = "<prelude: tensor arrays>"


@functools.cache
def _standard() -> IRModule:
    """The parsed text. Its nodes are immutable and shared by all modules that load it."""
    text = resources.files("nimblevm.relay").joinpath("prelude.rly").read_text(encoding="utf-8")
    return parse_module(text, "prelude.rly")


def from_prelude(mod: IRModule, var: GlobalVar) -> bool:
    """Whether a function of a module is the prelude's, also after passes (which keep spans)."""
    standard = _standard()
    span = mod.function(var).span
    if span is None:
        return False
    return span.source == _SOURCE or (var in standard and standard.function(var).span == span)


@functools.cache
def _tensor_arrays(dtype: str) -> IRModule:
    """The standard prelude with tensor arrays of a dtype."""
    return parse_module(dynamic_text(dtype), _SOURCE, _standard())


@explained_methods
class Prelude:
    """Adds the prelude to `mod` (a new module if None) and finds its parts by name.

    Loading twice changes nothing. A type or function of the same name that is not the prelude's is a ValueError.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.mod = IRModule() if mod is None else mod
        standard = _standard()
        loaded = all(
            self.mod.type_definitions.get(t) is d for t, d in standard.type_definitions.items()
        )
        if not loaded:
            self._check_free(standard)
        self._add(standard)

    def _check_free(self, standard: IRModule) -> None:
        taken = [t.name_hint for t in standard.type_definitions if t in self.mod.type_definitions]
        taken += [f"@{var.name_hint}" for var in standard if var in self.mod]
        if taken:
            raise ValueError(
                f"the module already defines {', '.join(taken)}: load the prelude before, or rename them"
            )

    def __getattr__(self, name: str) -> GlobalVar:
        """`prelude.map` is the function @map, as in TVM."""
        mod = self.__dict__.get("mod")
        if mod is None or name not in mod:
            raise AttributeError(f"the prelude has no function {name!r}")
        return self.mod.get_global_var(name)

    def load_tensor_arrays(self, dtype: str) -> None:
        """Add the tensor arrays of a dtype. ValueError for no dtype."""
        if dtype not in dtypes.BY_NAME:
            raise ValueError(f"no dtype {dtype!r}; there are {', '.join(dtypes.BY_NAME)}")
        if GlobalTypeVar(dynamic_name("tensor_t", dtype)) not in self.mod.type_definitions:
            self._add(_tensor_arrays(dtype))

    def _add(self, loaded: IRModule) -> None:
        for header, definition in loaded.type_definitions.items():
            if header not in self.mod.type_definitions:
                self.mod.add_type(definition)
        for var in loaded:
            if var not in self.mod:
                self.mod[var] = loaded.function(var)

    def define(self, text: str) -> None:
        """Add definitions that are written in Relay text over what the module has (without the version line)."""
        self._add(parse_module(HEADER + text, _SOURCE, self.mod))

    # --- names ------------------------------------------------------------------------------------

    def get_name(self, canonical: str, dtype: str | None = None) -> str:
        """TVM's name of a part for a dtype, tensor_float32_t for tensor_t; without dtype the name itself."""
        return canonical if dtype is None else dynamic_name(canonical, dtype)

    def _name(self, canonical: str, dtype: str | None) -> str:
        if dtype is not None:
            self.load_tensor_arrays(dtype)
        return self.get_name(canonical, dtype)

    def get_type(self, canonical: str, dtype: str | None = None) -> GlobalTypeVar:
        """The name of an ADT: `prelude.get_type("List")`; call it with type arguments."""
        return self.mod.get_global_type_var(self._name(canonical, dtype))

    def get_ctor(self, ty_name: str, canonical: str, dtype: str | None = None) -> Constructor:
        """A constructor: `prelude.get_ctor("List", "Cons")`, `get_ctor("tensor_int32_t", "tensor1", "int32")`."""
        return self.mod.get_constructor(ty_name, self._name(canonical, dtype))

    def get_tensor_ctor(self, canonical: str, dtype: str) -> Constructor:
        """A constructor of dynamic tensors: tensor_nil, tensor0 to tensor6."""
        return self.get_ctor(self._name("tensor_t", dtype), canonical, dtype)

    def get_global_var(self, canonical: str, dtype: str | None = None) -> GlobalVar:
        """A function: `prelude.get_global_var("map")`, `get_global_var("tensor_array_read", "float32")`."""
        return self.mod.get_global_var(self._name(canonical, dtype))

    def get_name_static(
        self, canonical: str, dtype: str, shape: Sequence[Dim], batch_dim: int | None = None
    ) -> str:
        """TVM's name of a part for tensors of one shape: static_tensor_float32_3_any_t for tensor_t."""
        return static_name(canonical, dtype, shape, batch_dim)

    def get_global_var_static(
        self, canonical: str, dtype: str, shape: Sequence[Dim], batch_dim: int | None = None
    ) -> GlobalVar:
        """A function that StaticTensorArrayOps has registered."""
        return self.mod.get_global_var(static_name(canonical, dtype, shape, batch_dim))

    def get_type_static(self, canonical: str, dtype: str, shape: Sequence[Dim]) -> GlobalTypeVar:
        """A type that StaticTensorArrayOps has registered."""
        return self.mod.get_global_type_var(static_name(canonical, dtype, shape))

    def get_ctor_static(
        self, ty_name: str, name: str, dtype: str, shape: Sequence[Dim]
    ) -> Constructor:
        """A constructor of such a type: `get_ctor_static("tensor_t", "tensor_constructor", dtype, shape)`."""
        owner = static_name(ty_name, dtype, shape)
        return self.mod.get_constructor(owner, static_name(name, dtype, shape))

    def get_tensor_ctor_static(self, name: str, dtype: str, shape: Sequence[Dim]) -> Constructor:
        """tensor_nil or tensor_constructor."""
        return self.get_ctor_static("tensor_t", name, dtype, shape)


@explained_methods
class TensorArrayOps:
    """The tensor arrays of a dtype, whose elements may have any shape of rank 0 to 6."""

    def __init__(self, prelude: Prelude, dtype: str) -> None:
        self.prelude = prelude
        self.dtype = dtype

    def register(self) -> None:
        """Add all of them to the prelude's module. ValueError for no dtype."""
        self.prelude.load_tensor_arrays(self.dtype)

    def get_name(self, canonical: str) -> str:
        return self.prelude.get_name(canonical, self.dtype)

    def get_global_var(self, canonical: str) -> GlobalVar:
        return self.prelude.get_global_var(canonical, self.dtype)

    def get_type(self, canonical: str) -> GlobalTypeVar:
        return self.prelude.get_type(canonical, self.dtype)

    def get_ctor(self, canonical: str) -> Constructor:
        return self.prelude.get_tensor_ctor(canonical, self.dtype)


@explained_methods
class StaticTensorArrayOps:
    """Tensor arrays whose elements have one dtype and shape (ints and Any()). `batch_dim` 1: arrays of one element.

    `register` defines everything; the define_* methods define one thing, once, as TVM's do.
    """

    def __init__(
        self, prelude: Prelude, dtype: str, shape: Sequence[Dim], batch_dim: int | None = None
    ) -> None:
        self.prelude = prelude
        self.dtype = dtype
        self.shape = tuple(shape)
        self.batch_dim = batch_dim
        self._text = StaticText(dtype, self.shape, batch_dim)

    def get_name(self, canonical: str, extra_shapes: dict[str, Sequence[Dim]] | None = None) -> str:
        return static_name(canonical, self.dtype, self.shape, self.batch_dim, extra_shapes)

    def get_global_var(self, canonical: str) -> GlobalVar:
        return self.prelude.get_global_var_static(canonical, self.dtype, self.shape, self.batch_dim)

    def get_type(self, canonical: str) -> GlobalTypeVar:
        return self.prelude.get_type_static(canonical, self.dtype, self.shape)

    def get_ctor(self, canonical: str) -> Constructor:
        return self.prelude.get_ctor_static("tensor_t", canonical, self.dtype, self.shape)

    def is_cached(self, name: str) -> bool:
        """Whether the module has the function."""
        return name in self.prelude.mod

    def _define(self, canonical: str, text: str) -> None:
        if not self.is_cached(self.get_name(canonical)):
            self.prelude.define(text)

    def _other(self, shape: Sequence[Dim]) -> StaticTensorArrayOps:
        """The same for another shape, whose type is defined."""
        other = StaticTensorArrayOps(self.prelude, self.dtype, shape, self.batch_dim)
        other.define_tensor_adt()
        return other

    def _rows(self) -> StaticTensorArrayOps:
        """Any number of rows of this shape."""
        return self._other((DimVar(), *self.shape[1:]))

    def _stacked(self) -> StaticTensorArrayOps:
        return self._other((1 if self.batch_dim == 1 else DimVar(), *self.shape))

    def define_tensor_adt(self) -> None:
        """The type: tensor_nil, or tensor_constructor of a tensor."""
        if GlobalTypeVar(self.get_name("tensor_t")) not in self.prelude.mod.type_definitions:
            self.prelude.define(self._text.adt())

    def define_tensor_take(self) -> None:
        """tensor_take(t, lower, upper): rows. None for rank 0."""
        if self.shape:
            self._define("tensor_take", self._text.take(self._rows()._text))

    def define_tensor_concatenate(self) -> None:
        """tensor_concatenate(x, y) along the first axis. None for rank 0."""
        if self.shape:
            self._define("tensor_concatenate", self._text.concatenate(self._rows()._text))

    def define_tensor_expand_dims(self) -> None:
        """tensor_expand_dims(t): a new first axis."""
        self._define("tensor_expand_dims", self._text.expand_dims(self._stacked()._text))

    def define_tensor_array(self) -> None:
        """tensor_array(n): n elements that hold nothing; with it read and write."""
        self._define("tensor_array", self._text.arrays())

    def define_tensor_array_read(self) -> None:
        """tensor_array_read(ta, n)."""
        self.define_tensor_array()

    def define_tensor_array_write(self) -> None:
        """tensor_array_write(ta, n, v)."""
        self.define_tensor_array()

    def define_tensor_array_unstack(self) -> None:
        """tensor_array_unstack(tensor): its rows. None for rank 0."""
        if self.shape:
            self._define(
                "tensor_array_unstack", self._text.unstack(self._other(self.shape[1:])._text)
            )

    def define_tensor_array_scatter(
        self, indices_shape: Sequence[Dim] | None = None, force_update: bool = False
    ) -> None:
        """tensor_array_scatter(ta, indices, values); with `indices_shape` for indices of that shape, under a name of
        its own.
        """
        extra = {"indices": indices_shape} if indices_shape is not None else None
        name = self.get_name("tensor_array_scatter", extra)
        if force_update or not self.is_cached(name):
            self._forget(name, self.get_name("tensor_array_scatter_helper", extra))
            self.define_tensor_array()
            self.prelude.define(self._text.scatter(indices_shape))

    def define_tensor_array_split(
        self,
        value_shape: Sequence[Dim] | None = None,
        lengths_shape: Sequence[Dim] | None = None,
        force_update: bool = False,
    ) -> None:
        """tensor_array_split(ta, value, lengths); None for rank 0. With shapes, for a value and lengths of these:
        `force_update` replaces what is there.
        """
        name = self.get_name("tensor_array_split")
        if not self.shape or (self.is_cached(name) and not force_update):
            return
        self._forget(name, self.get_name("ta_split_helper"))
        out = self._rows()
        out.define_tensor_array()
        value = self if value_shape is None else self._other(value_shape)
        value.define_tensor_take()
        self.prelude.define(self._text.split(out._text, value._text, lengths_shape))

    def _forget(self, *names: str) -> None:
        for name in names:
            if self.is_cached(name):
                del self.prelude.mod[name]

    def define_tensor_array_concat(self) -> None:
        """tensor_array_concat(ta): all rows of all elements. None for rank 0."""
        if self.shape:
            out = self._rows()
            out.define_tensor_concatenate()
            self._define("tensor_array_concat", self._text.concat(out._text))

    def define_tensor_array_stack(self) -> None:
        """tensor_array_stack(ta): the elements along a new first axis; with it gather."""
        out = self._stacked()
        out.define_tensor_concatenate()
        self.define_tensor_expand_dims()
        self.define_tensor_array()
        self._define("tensor_array_stack", self._text.stack(out._text))

    def define_tensor_array_gather(self) -> None:
        """tensor_array_gather(ta, indices): the stack of some elements."""
        self.define_tensor_array_stack()

    def define_tensor_get_data(self) -> None:
        """tensor_get_data(t): the tensor inside."""
        self._define("tensor_get_data", self._text.get_data())

    def register(self) -> None:
        """Define all of them."""
        self.define_tensor_adt()
        self.define_tensor_take()
        self.define_tensor_concatenate()
        self.define_tensor_expand_dims()
        self.define_tensor_array()
        self.define_tensor_array_unstack()
        self.define_tensor_array_scatter()
        self.define_tensor_array_split()
        self.define_tensor_array_concat()
        self.define_tensor_array_stack()
        self.define_tensor_get_data()


def get_tensor_array_shape(expr: Expr, dtype: str, prelude: Prelude) -> tuple[Dim, ...] | None:
    """The shape of the elements of a static tensor array of `dtype`; None for any other tensor array.

    Unknown dims are fresh. TypeError if `expr` is no list of a data type.
    """
    mod = prelude.mod.shallow_copy()
    mod["main"] = Function(free_vars(expr), expr)
    found = infer_type(mod).function("main").body.checked_type
    element = found.args[0] if isinstance(found, TypeCall) and found.args else None
    if not isinstance(element, TypeCall):
        raise TypeError(f"expected a tensor array, got a value of type {found!r}")
    name, start = element.func.name_hint, f"static_tensor_{dtype}_"
    if not name.startswith(start):
        return None
    text = name.removeprefix(start).removesuffix("_t")
    dims = [] if text == "scalar" else text.split("_")
    return tuple([DimVar() if d == "any" else int(d) for d in dims])


def _add_nat(mod: IRModule) -> None:
    """nat.rly, and the prelude, which it needs."""
    text = resources.files("nimblevm.relay").joinpath("nat.rly").read_text(encoding="utf-8")
    prelude = Prelude(mod)
    if GlobalTypeVar("nat") not in mod.type_definitions:
        prelude.define(text)


register_library("prelude.rly", Prelude)
register_library("nat.rly", _add_nat)

__all__ = [
    "Prelude", "StaticTensorArrayOps", "TensorArrayOps", "from_prelude", "get_tensor_array_shape",
]  # fmt: skip
