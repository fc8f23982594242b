"""Runtimes of external code: what runs the bytes that an external backend put into a file.

    def factory(blob: bytes):                     # once for each kernel of a VM
        graph = json.loads(blob)
        def run(inputs, outputs, dims): ...       # each call: numpy views of the operands, and the call's dims
        return run
    register_runtime("myaccel", factory)

A runtime in C is a shared library with the function nvm_external_entry (native/include/nvm_api.h): `load_runtime`.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np

from nimblevm import dtypes
from nimblevm._ffi import check, ffi, lib, note_cause
from nimblevm.arguments import explained
from nimblevm.devices import blas
from nimblevm.errors import (
    INTERRUPTED,
    NUMBER_OF,
    DeviceError,
    InvalidInput,
    KernelError,
    NimbleError,
)

Array = np.ndarray[Any, Any]
Run = Callable[[Sequence[Array], Sequence[Array], Sequence[int]], object]
"""(inputs, outputs, dims): inputs are read-only; what it returns is ignored. The arrays are the operands themselves,
good until the call returns: keeping one is an error.
"""
Factory = Callable[[bytes], Run]

_EXTERNAL = 5  # kind of section
_DEVICE_ERROR, _KERNEL_ERROR = NUMBER_OF[DeviceError], NUMBER_OF[KernelError]
_TYPES = {row.number: np.dtype(row.numpy).str for row in dtypes.DTYPES}


@dataclass(eq=False, slots=True)
class _Instance:
    """One kernel of one VM. operands: room for what they are in a call."""

    kernel: str
    run: Run
    signature: Any
    operands: Any


class _Runtime:
    """A registered factory, with the callbacks that C calls. Lives for ever: VMs may outlast its registration."""

    def __init__(self, name: str, factory: Factory) -> None:
        self.name = name
        self.factory = factory
        self.instances: dict[int, tuple[_Instance, Any]] = {}
        self.lock = threading.Lock()
        self.create = ffi.callback(
            "nvm_status(void *, const void *, size_t, const char *, const nvm_signature *, void **)",
            self._create,
            error=_DEVICE_ERROR,
        )
        self.run = ffi.callback(
            "nvm_status(void *, const nvm_kernel_ctx *, void *const *, int64_t *)",
            self._run,
            error=_KERNEL_ERROR,
        )
        self.destroy = ffi.callback("void(void *)", self._destroy)

    def register(self) -> None:
        name = ffi.new("char[]", self.name.encode())
        record = ffi.new("nvm_external_runtime *")
        record.size = ffi.sizeof("nvm_external_runtime")
        record.name, record.create, record.run, record.destroy = (
            name,
            self.create,
            self.run,
            self.destroy,
        )
        check(lib.nvm_external_register(record))

    def _create(
        self, context: Any, blob: Any, size: int, kernel: Any, signature: Any, out: Any
    ) -> int:
        name = ffi.string(kernel).decode("utf-8", "replace")
        try:
            run = self.factory(bytes(ffi.buffer(blob, size)))
            if not callable(run):
                raise TypeError(f"the factory gave a {type(run).__name__}, which can't be called")
        except BaseException as error:
            return _failed(error, f"runtime {self.name} refuses kernel {name}", _DEVICE_ERROR)
        room = ffi.new("nvm_external_operand[]", lib.nvm_external_operand_count(signature))
        instance = _Instance(name, run, signature, room)
        handle = ffi.new_handle(instance)
        with self.lock:
            self.instances[int(ffi.cast("intptr_t", handle))] = (instance, handle)
        out[0] = handle
        return 0

    def _run(self, pointer: Any, ctx: Any, bufs: Any, dims: Any) -> int:
        instance: _Instance = ffi.from_handle(pointer)
        status = lib.nvm_external_operands(instance.signature, dims, instance.operands)
        if status:
            return int(status)
        memories: list[_Memory] = []
        try:
            inputs, outputs = _arrays(instance, bufs, memories)
            count = lib.nvm_external_dim_count(instance.signature)
            instance.run(inputs, outputs, tuple(ffi.unpack(dims, count)) if count else ())
        except BaseException as error:
            return _failed(error, f"kernel {instance.kernel}, runtime {self.name}", _KERNEL_ERROR)
        del inputs, outputs
        if _are_let_go(memories):
            return 0
        kept = ValueError("it kept an operand beyond the call; copy what is to stay")
        return _failed(kept, f"kernel {instance.kernel}, runtime {self.name}", _KERNEL_ERROR)

    def _destroy(self, pointer: Any) -> None:
        with self.lock:
            self.instances.pop(int(ffi.cast("intptr_t", pointer)), None)


class _Memory:
    """The memory of an operand, as numpy asks for it. Every array that lies there holds this object."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, address: int, shape: tuple[int, ...], dtype: str, readonly: bool) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype,
            "data": (address, readonly),
        }


def _are_let_go(memories: list[_Memory]) -> bool:
    """Whether no array of these is left: after the call other things come to lie there."""
    watched = [ref(memory) for memory in memories]
    memories.clear()
    if all(memory() is None for memory in watched):
        return True
    gc.collect()  # perhaps only a circle keeps it
    return all(memory() is None for memory in watched)


def _arrays(
    instance: _Instance, bufs: Any, memories: list[_Memory]
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """The operands of a call as arrays, inputs and others."""
    inputs: list[Array] = []
    outputs: list[Array] = []
    for position, operand in enumerate(instance.operands):
        shape = tuple(operand.shape[0 : operand.rank])
        dtype = _TYPES[operand.dtype]
        if operand.bytes:
            address = int(ffi.cast("intptr_t", bufs[position]))
            memories.append(_Memory(address, shape, dtype, operand.role == 0))
            array: Array = np.asarray(memories[-1])
        else:
            array = np.empty(shape, dtype)
        (outputs if operand.role else inputs).append(array)
    return tuple(inputs), tuple(outputs)


def _failed(error: BaseException, place: str, code: int) -> int:
    """Record an exception as what went wrong, and keep it as the cause of what will be raised."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, NimbleError):
        code = NUMBER_OF.get(type(error), code)
    text = f"{place}: {type(error).__name__}: {error}"
    note_cause(error)
    return int(lib.nvm_external_fail(code, ffi.new("char[]", text.encode("utf-8", "replace"))))


_RUNTIMES: list[_Runtime] = []


@explained
def register_runtime(name: str, factory: Factory) -> None:
    """Make `factory` run the code that files have for the runtime `name`; in place of an earlier one of that name.

    factory  called when a VM is made, with the bytes of each kernel; gives what runs it (`Run`). Files are code: a
             factory that may meet a stranger's must refuse what is malformed

    Its exceptions come back as DeviceError (making a VM) or KernelError (a run), a NimbleError as itself, with the
    exception as `__cause__`. Calls hold the interpreter's lock. Raises InvalidInput for a name that can't be one.
    """
    if not callable(factory):
        raise TypeError(f"a factory is called with bytes; a {type(factory).__name__} can't be")
    if "\0" in name:
        raise InvalidInput(f"the name of a runtime can't hold a NUL: {name!r}")
    runtime = _Runtime(name, factory)
    runtime.register()
    _RUNTIMES.append(runtime)


@explained
def unregister_runtime(name: str) -> bool:
    """Forget a runtime; VMs that exist keep it. Whether there was one."""
    return bool(lib.nvm_external_unregister(name.encode()))


@explained
def load_runtime(path: str | os.PathLike[str]) -> str:
    """Load a shared library with a runtime in C; gives its name. Raises FileError, InvalidInput."""
    out = ffi.new("const char **")
    check(lib.nvm_external_load(os.fsencode(path), out))
    return str(ffi.string(out[0]).decode())


def runtimes() -> tuple[str, ...]:
    """The names of the runtimes that there are."""
    size = lib.nvm_external_names(ffi.NULL, 0) + 1
    text = ffi.new("char[]", size)
    lib.nvm_external_names(text, size)
    return tuple(ffi.string(text).decode().split(", "))


_PREPARE: dict[str, Callable[[], None]] = {"blas": blas.prepare}
"""What to do before a runtime of this package is used."""


def prepare_runtimes(program: Any) -> None:
    """Before a VM of a program is made: what its runtimes need."""
    kind, target, size = ffi.new("int32_t *"), ffi.new("const char **"), ffi.new("size_t *")
    for index in range(lib.nvm_program_section_count(program)):
        lib.nvm_program_section(program, index, kind, target, size)
        if kind[0] == _EXTERNAL:
            _PREPARE.get(ffi.string(target[0]).decode("utf-8", "replace"), _nothing)()


def _nothing() -> None:
    pass


__all__ = [
    "Factory",
    "Run",
    "load_runtime",
    "prepare_runtimes",
    "register_runtime",
    "runtimes",
    "unregister_runtime",
]
