"""What an executable says about types and functions: plain records, read through the nvm_* getters.

Types of hostile files may be deep or share parts so that their text would be huge: nothing here
recurses, and text is cut at TEXT_LIMIT characters. Records compare by identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nimblevm import dtypes
from nimblevm._ffi import check, ffi, lib

TEXT_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class DimSlot:
    """A dim that the signature names: slot `index` of the function's dims."""

    index: int


class Type:
    """Base of the type records."""

    __slots__ = ()

    def __str__(self) -> str:
        return type_text(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {type_text(self)}>"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class TensorType(Type):
    """dtype is a name of nimblevm.dtypes; a dim is a size, None (unknown) or a DimSlot."""

    dtype: str
    dims: tuple[int | DimSlot | None, ...]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class TupleType(Type):
    fields: tuple[Type, ...]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class AdtType(Type):
    """An algebraic data type applied to types; `index` is its position in the executable's
    table.
    """

    index: int
    name: str
    args: tuple[Type, ...]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class FuncType(Type):
    result: Type
    params: tuple[Type, ...]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class RefType(Type):
    content: Type


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class TypeVar(Type):
    """Type variable `index` of the definition that the type stands in."""

    index: int


def _tensor_text(tensor: TensorType, names: Sequence[str]) -> str:
    dims = []
    for dim in tensor.dims:
        if isinstance(dim, DimSlot):
            dims.append("?" + (names[dim.index] if dim.index < len(names) else str(dim.index)))
        else:
            dims.append("?" if dim is None else str(dim))
    if not dims:
        return tensor.dtype
    return f"Tensor[({', '.join(dims)}), {tensor.dtype}]"


def _pieces(item: Type, names: Sequence[str]) -> list[str | Type]:
    """A type's text as literal pieces and inner types, in order."""

    def joined(types: Sequence[Type]) -> list[str | Type]:
        out: list[str | Type] = []
        for part in types:
            out += [", ", part] if out else [part]
        return out

    match item:
        case TensorType():
            return [_tensor_text(item, names)]
        case TupleType(fields=fields):
            return ["(", *joined(fields), ",)" if len(fields) == 1 else ")"]
        case AdtType(name=name, args=args):
            return [name, "[", *joined(args), "]"] if args else [name]
        case FuncType(result=result, params=params):
            return ["fn (", *joined(params), ") -> ", result]
        case RefType(content=content):
            return ["ref(", content, ")"]
        case TypeVar(index=index):
            return [f"T{index}"]
        case _:
            raise TypeError(f"no type record: {type(item).__name__}")


def type_text(item: Type, names: Sequence[str] = ()) -> str:
    """Relay's text of a type; dim slots read as `?name`. Cut at TEXT_LIMIT characters."""
    out: list[str] = []
    size = 0
    stack: list[str | Type] = [item]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            out.append(top)
            size += len(top)
            if size > TEXT_LIMIT:
                out.append("...")
                break
        else:
            stack.extend(reversed(_pieces(top, names)))
    return "".join(out)


@dataclass(frozen=True, slots=True)
class ParamInfo:
    """A parameter; `text` is its type with the function's dim names."""

    name: str
    type: Type
    text: str
    is_int: bool


@dataclass(frozen=True, slots=True)
class DimInfo:
    """A named dim; `param`: the parameter that binds it, None if it is computed or unknown at
    entry.
    """

    name: str
    param: str | None


@dataclass(frozen=True, slots=True)
class FunctionInfo:
    """One function of an executable.

    public           may be invoked by name
    params, result   names and types (result_text: with dim names)
    dims             the named dims of the signature and the parameters that bind them
    checked          which dims are checked at entry, as text
    ints, objs       registers of a frame
    words            size of the code in 32-bit words
    """

    index: int
    name: str
    public: bool
    params: tuple[ParamInfo, ...]
    result: Type
    result_text: str
    dims: tuple[DimInfo, ...]
    checked: tuple[str, ...]
    ints: int
    objs: int
    words: int

    def __str__(self) -> str:
        params = ", ".join(f"%{p.name}: {p.text}" for p in self.params)
        return f"@{self.name}({params}) -> {self.result_text}"


def text(pointer: Any) -> str:
    """A C string of the program (UTF-8, checked at load)."""
    return str(ffi.string(pointer).decode("utf-8"))


def _type(words: Sequence[int], earlier: Sequence[Type], adts: Sequence[str]) -> Type:
    kind, rest = words[0], words[1:]
    if kind == 0:
        dims = (None if d == -1 else int(d) if d >= 0 else DimSlot(-2 - int(d)) for d in rest[1:])
        return TensorType(dtypes.BY_NUMBER[rest[0]].name, tuple(dims))
    if kind == 2:
        return AdtType(int(rest[0]), adts[rest[0]], tuple(earlier[i] for i in rest[1:]))
    if kind == 5:
        return TypeVar(int(rest[0]))
    inner = [earlier[i] for i in rest]
    if kind == 1:
        return TupleType(tuple(inner))
    return FuncType(inner[0], tuple(inner[1:])) if kind == 3 else RefType(inner[0])


def read_types(program: Any, adts: Sequence[str]) -> list[Type]:
    """The type table of a program handle; a type refers only to earlier ones."""
    size = ffi.new("size_t *")
    types: list[Type] = []
    for i in range(lib.nvm_program_type_count(program)):
        pointer = lib.nvm_program_type(program, i, size)
        types.append(_type(ffi.unpack(pointer, size[0]), types, adts))
    return types


def read_function(program: Any, index: int, types: Sequence[Type]) -> FunctionInfo:
    """The record of function `index` of a program handle."""
    info = ffi.new("nvm_function_info *")
    check(lib.nvm_program_function(program, index, info))
    param = ffi.new("nvm_param_info *")
    slot = ffi.new("int32_t *")
    names: list[str] = []
    binders: list[int] = []
    for i in range(info.n_dims):
        names.append(text(lib.nvm_program_dim(program, index, i, slot)))
        binders.append(slot[0])
    params: list[ParamInfo] = []
    for i in range(info.n_params):
        check(lib.nvm_program_param(program, index, i, param))
        kind = types[param.type]
        params.append(
            ParamInfo(text(param.name), kind, type_text(kind, names), bool(info.kinds[i]))
        )
    result = types[info.result_type]
    return FunctionInfo(
        index=index,
        name=text(info.name),
        public=bool(info.is_public),
        params=tuple(params),
        result=result,
        result_text=type_text(result, names),
        dims=tuple(
            DimInfo(name, params[p].name if p >= 0 else None)
            for name, p in zip(names, binders, strict=True)
        ),
        checked=tuple(
            text(lib.nvm_program_checked(program, index, i)) for i in range(info.n_checked)
        ),
        ints=info.n_ints,
        objs=info.n_objs,
        words=info.n_words,
    )


__all__ = [
    "AdtType", "DimInfo", "DimSlot", "FuncType", "FunctionInfo", "ParamInfo", "RefType",
    "TensorType", "TupleType", "Type", "TypeVar", "read_function", "read_types", "text",
    "type_text",
]  # fmt: skip
