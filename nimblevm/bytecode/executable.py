"""Executables: a file's bytes, checked and verified in C. There is one way in, whoever made the
bytes.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Literal, NoReturn

from nimblevm._ffi import check, ffi, lib
from nimblevm.arguments import explained
from nimblevm.bytecode.adt import Constructor
from nimblevm.bytecode.disassembler import disassemble
from nimblevm.bytecode.records import program_record
from nimblevm.bytecode.serialize import (
    ALIGNMENT,
    EXTERNAL,
    FIXED_HEADER_SIZE,
    SIGNATURE_SIZE,
    ProgramRecord,
    external_kernels,
    seal,
)
from nimblevm.bytecode.types import FunctionInfo, Type, read_function, read_types, text
from nimblevm.bytecode.weights import WeightInfo, Weights, bind, bind_below, wanted
from nimblevm.errors import (
    Closed,
    FunctionNotFound,
    InvalidInput,
    InvalidInputType,
    MachineCodeWarning,
    warn,
)
from nimblevm.files import new_file, path_text

Native = bool | Literal["require"]
"""Whether machine code of a file is used."""

SECTION_KINDS = ("bytecode", "constants", "kernel IR", "native code", "device code", "external")
KERNEL_KINDS = ("loop IR", "C", "external")


@dataclass(frozen=True, slots=True)
class SectionInfo:
    """kind is one of SECTION_KINDS; size in bytes.

    target: what machine code needs, "x86_64:+avx2,+fma". level: the target by name, "x86-64-v3", if it is one of the
    levels. used: its machine code runs; why_not: why it does not.
    """

    kind: str
    size: int
    target: str
    level: str = ""
    used: bool = False
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """kind is one of KERNEL_KINDS; native: machine code of this CPU was mapped for it; external: the runtimes and
    devices for which the file has external code of it.
    """

    name: str
    kind: str
    native: bool
    external: tuple[str, ...] = ()


class Functions(Mapping[str, FunctionInfo]):
    """The functions of an executable by name, in the order of the file; records are made when
    asked for.
    """

    def __init__(self, program: Any, types: list[Type]) -> None:
        self._program = program
        self._types = types
        self._known: dict[str, FunctionInfo] = {}

    def __getitem__(self, name: str) -> FunctionInfo:
        found = self._known.get(name) if isinstance(name, str) else None
        if found is None:
            index = ffi.new("uint32_t *")
            # A name with a lone surrogate, as a terminal's bytes that are no text, is in no file.
            known = isinstance(name, str) and "\0" not in name
            key = name.encode("utf-8", "surrogatepass") if known else b""
            if not known or lib.nvm_program_find(self._program, key, index):
                raise FunctionNotFound(f"no function {name!r}; list(exe.functions) has all")
            found = self._known[name] = read_function(self._program, index[0], self._types)
        return found

    def __iter__(self) -> Iterator[str]:
        info = ffi.new("nvm_function_info *")
        for i in range(len(self)):
            check(lib.nvm_program_function(self._program, i, info))
            yield text(info.name)

    def __len__(self) -> int:
        return int(lib.nvm_program_function_count(self._program))

    def __repr__(self) -> str:
        shown = [str(self[name]) for name, _ in zip(self, range(20), strict=False)]
        return "\n".join([*shown, "..."] if len(self) > 20 else shown)


class Executable:
    """A loaded program: immutable, may be shared by threads and VMs. A context manager; use after
    close raises Closed.

    handle         the nvm_program * (for _ffi users)
    functions      name -> FunctionInfo
    constructors   Constructor records, callable; entry 0 is the tuple
    producer       who made the file: versions and target
    warning        why machine code in the file is not used; "" if it is, or there is none
    weights        the tensors that the file leaves out and bind() adds
    """

    def __init__(self, handle: Any) -> None:
        """Takes over one reference to an nvm_program. Use load() or from_bytes()."""
        if not isinstance(handle, ffi.CData):
            raise InvalidInputType(
                "an Executable is made by nvm.compile(module), nvm.load(path) or from_bytes(data), not by itself"
            )
        self._program: Any = ffi.gc(handle, lib.nvm_program_release)

    @classmethod
    def from_bytes(
        cls,
        data: Any,
        native: Native = True,
        verify: Literal["full"] | None = None,
        public_key: Any = None,
    ) -> Executable:
        """From the bytes of a file (any C-contiguous buffer; copied). Errors and arguments as in
        load().
        """
        out = ffi.new("nvm_program **")
        flags, checker = _flags(native, verify, copy=False), _checker(public_key)
        with _bytes_view(data) as view:
            buffer = ffi.from_buffer(view.cast("B") if view.nbytes else b"")
            check(
                lib.nvm_program_load_signed(
                    buffer, view.nbytes, flags, checker.pointer if checker else ffi.NULL, out
                )
            )
            ffi.release(buffer)
        return _made(cls(out[0]))

    @property
    def handle(self) -> Any:
        """The nvm_program *, for users of _ffi. Raises Closed."""
        if self._program is None:
            raise Closed("the Executable is closed")
        return self._program

    # --- what is in it ---

    @cached_property
    def _adts(self) -> list[str]:
        number = ffi.new("uint32_t *")
        count = lib.nvm_program_adt_count(self.handle)
        return [
            text(lib.nvm_program_adt(self.handle, i, number, number, number)) for i in range(count)
        ]

    @cached_property
    def types(self) -> list[Type]:
        """The type table."""
        return read_types(self.handle, self._adts)

    @cached_property
    def functions(self) -> Mapping[str, FunctionInfo]:
        return Functions(self.handle, self.types)

    def function(self, name: str) -> FunctionInfo:
        """A function that may be invoked by name. Raises FunctionNotFound, which lists what there
        is.
        """
        found = self.functions.get(name)
        if found is not None and found.public:
            return found
        public = [n for n in self.functions if self.functions[n].public]
        shown = ", ".join(f"@{n}" for n in public[:20]) + (", ..." if len(public) > 20 else "")
        what = "is not public" if found else "is not there"
        raise FunctionNotFound(f"function @{name} {what}; the executable has {shown or 'none'}")

    @cached_property
    def constructors(self) -> tuple[Constructor, ...]:
        adt, tag, n_fields = ffi.new("int32_t *"), ffi.new("uint32_t *"), ffi.new("uint32_t *")
        fields = ffi.new("const uint32_t **")
        out: list[Constructor] = []
        home = object()
        for i in range(lib.nvm_program_constructor_count(self.handle)):
            name = text(lib.nvm_program_constructor(self.handle, i, adt, tag, n_fields, fields))
            numbers = ffi.unpack(fields[0], n_fields[0]) if n_fields[0] else ()
            types = tuple(self.types[t] for t in numbers)
            owner = self._adts[adt[0]] if adt[0] >= 0 else ""
            out.append(Constructor(i, name, owner, tag[0], tuple(map(str, types)), types, home))
        return tuple(out)

    def constructor(self, name: str) -> Constructor:
        """By name, "Cons"; if two types have it, "List.Cons". Raises InvalidInput that lists what
        there is.
        """
        own = self.constructors[1:]
        matching = [c for c in own if name in (c.name, f"{c.adt}.{c.name}")]
        if len(matching) == 1:
            return matching[0]
        names = ", ".join(f"{c.adt}.{c.name}" for c in (matching or own)[:50])
        what = "several constructors are" if matching else "no constructor is"
        raise InvalidInput(f"{what} named {name}; the executable has {names or 'none'}")

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """The kernel table; says which have machine code here, and external code."""
        kind, native = ffi.new("int32_t *"), ffi.new("int32_t *")
        out: list[KernelInfo] = []
        external: dict[int, tuple[str, ...]] = {}
        for i in range(lib.nvm_program_section_count(self.handle)):
            number, target, data = self._section(i)
            if number == EXTERNAL and self.format_version > 1:
                for kernel in external_kernels(data):
                    external[kernel] = (*external.get(kernel, ()), target)
        for i in range(lib.nvm_program_kernel_count(self.handle)):
            name = text(lib.nvm_program_kernel(self.handle, i, kind, native))
            info = KernelInfo(name, KERNEL_KINDS[kind[0]], bool(native[0]), external.get(i, ()))
            out.append(info)
        return tuple(out)

    def _section(self, index: int) -> tuple[int, str, memoryview]:
        """Kind, target and bytes, which keep the program alive."""
        kind, target, size = ffi.new("int32_t *"), ffi.new("const char **"), ffi.new("size_t *")
        data = lib.nvm_program_section(self.handle, index, kind, target, size)
        if not size[0]:
            return kind[0], text(target[0]), memoryview(b"")
        lib.nvm_program_retain(self.handle)
        program = self.handle
        owner = ffi.gc(ffi.cast("char *", data), lambda _: lib.nvm_program_release(program))
        view = memoryview(ffi.buffer(owner, size[0]))
        return kind[0], text(target[0]), view

    @property
    def sections(self) -> tuple[SectionInfo, ...]:
        """The sections of the file, sizes in bytes."""
        out: list[SectionInfo] = []
        level, why = ffi.new("const char **"), ffi.new("const char **")
        for i in range(lib.nvm_program_section_count(self.handle)):
            kind, target, data = self._section(i)
            used = bool(lib.nvm_program_section_used(self.handle, i, level, why))
            out.append(
                SectionInfo(
                    SECTION_KINDS[kind], len(data), target, text(level[0]), used, text(why[0])
                )
            )
        return tuple(out)

    @property
    def native_target(self) -> str:
        """What the machine code in use was made for: a level, "x86-64-v3", or features, "x86_64:+avx2"; "" if none is
        in use.
        """
        return next((s.level for s in self.sections if s.used), "")

    @property
    def producer(self) -> dict[str, str]:
        """Who made the file: versions of nimblevm, llvmlite and linker, and the target."""
        return dict(program_record(self._header(), []).producer)

    @property
    def format_version(self) -> int:
        """The version of the file's format (docs/format.md)."""
        return int(lib.nvm_program_format_version(self.handle))

    @cached_property
    def devices(self) -> tuple[tuple[str, ...], ...]:
        """What the program runs on, by device index: backends in order of preference. (("cpu",),): the host alone."""
        found: list[tuple[str, ...]] = []
        while name := lib.nvm_program_device(self.handle, len(found)):
            found.append(tuple(text(name).split(",")))
        return tuple(found)

    @property
    def warning(self) -> str:
        """Why machine code of the file is not used; "" if it is, or there is none."""
        return text(lib.nvm_program_warning(self.handle))

    # --- weights that are bound late ---

    @cached_property
    def weights(self) -> tuple[WeightInfo, ...]:
        """The tensors that are not in the file, by name; () if it has all."""
        return wanted(self.handle)

    @property
    def weights_file(self) -> str:
        """Where the weights lie, seen from the file's folder; "" if the file does not say."""
        return text(lib.nvm_program_weights_file(self.handle))

    @property
    def is_bound(self) -> bool:
        """Whether a VirtualMachine can be made: no weights are left out, or they are bound."""
        return bool(lib.nvm_program_is_bound(self.handle))

    @explained
    def bind(
        self,
        weights: Weights,
        strict: bool = True,
        verify: Literal["full"] | None = None,
        max_bytes: int | None = None,
    ) -> Executable:
        """This program with weights: another Executable, which shares all the rest; this one stays as it was, so that
        it may be bound to several sets.

        weights  path of a .safetensors file (mapped: it must not be changed or truncated while it is in use) or an
                 .npz archive, or a mapping of names to arrays, which are copied
        strict   False: weights that the program does not want are left aside
        verify   "full": check digests where the file names them, of a private copy. So it is always for what load()
                 verified in full or by a signature.
        max_bytes  the most memory that may be taken, at least 1. None: 16 times what the weights take, and 16 MiB

        Raises WeightsMismatch, which lists all that is missing, extra or different; InvalidWeights, FileError,
        MemoryLimit.
        """
        if max_bytes is not None and not 1 <= max_bytes < 2**64:
            raise ValueError(f"max_bytes is {max_bytes}, expected 1 to 2**64 - 1")
        return Executable(bind(self.handle, weights, _bind_flags(strict, verify), max_bytes or 0))

    # --- out again ---

    def _header(self) -> bytes:
        size = ffi.new("size_t *")
        data = lib.nvm_program_header(self.handle, size)
        return bytes(ffi.buffer(data, size[0]))

    @property
    def signature(self) -> bytes:
        """The signature block of the file, b"" if it is not signed. That it is there says nothing: load() checks it if
        it is given a public key.
        """
        size = ffi.new("size_t *")
        data = lib.nvm_program_signature_block(self.handle, size)
        return bytes(ffi.buffer(data, size[0])) if data else b""

    def _pieces(self, private_key: Any = None) -> list[Any]:
        """The file; with a key signed by it, else with the signature that it has."""
        header = self._header()
        pieces: list[Any] = [header]
        size = FIXED_HEADER_SIZE + len(header)
        for i in range(lib.nvm_program_section_count(self.handle)):
            data = self._section(i)[2]
            pieces += [bytes(-size % ALIGNMENT), data]
            size += -size % ALIGNMENT + len(data)
        signature = self.signature
        if private_key is None and not signature:
            return [seal(header, size, self.format_version), *pieces]
        pieces.append(bytes(-size % ALIGNMENT))
        size += -size % ALIGNMENT + SIGNATURE_SIZE
        fixed = seal(header, size, self.format_version, signed=True)
        if private_key is not None:
            signing = _signing()
            signature = signing.block(signing.private_key(private_key), fixed)
        return [fixed, *pieces, signature]

    def to_bytes(self) -> bytes:
        """The file, byte for byte: its layout follows from header and sections."""
        return b"".join(self._pieces())

    @explained
    def save(self, path: str | os.PathLike[str], private_key: Any = None) -> None:
        """Write the file; it appears under its name only when it is complete. Weights that are bound late stay outside.
        A symbolic link stays one, and what is no file, as a pipe or /dev/stdout, is written to.

        private_key  sign the file: an ed25519 key as a path of a PEM file, its bytes, or a key object. The signature
                     covers the constants, and those late-bound weights of which the file names a digest

        Raises FileError, ImportError without the extra `sign`.
        """
        pieces = self._pieces(private_key)
        with new_file(path) as file:
            file.writelines(pieces)

    @explained
    def disassemble(self, data: bool = False) -> str:
        """Assembler text (the language of assembler.py). data: with constants, kernel IR and other
        sections as hex, so that assembling the text gives this file again."""
        return disassemble(self.program_record(), data)

    def program_record(self) -> ProgramRecord:
        """The tables and the code of the file as the records of serialize.py, for tools."""
        sections = [self._section(i) for i in range(lib.nvm_program_section_count(self.handle))]
        return program_record(self._header(), [s[2] for s in sections])

    # --- lifetime ---

    def share(self) -> Executable:
        """Another Executable on the same program, closed on its own. The records are shared."""
        other = Executable.__new__(Executable)
        other._program = self.handle
        other.__dict__["functions"] = self.functions
        other.__dict__["constructors"] = self.constructors
        return other

    def close(self) -> None:
        """Give up the program; it is freed when nothing else uses it: VMs made from it work on, and so do records
        taken from it. Idempotent.
        """
        self._program = None
        for name in ("functions", "constructors", "types", "weights", "devices", "_adts"):
            self.__dict__.pop(name, None)

    def __enter__(self) -> Executable:
        self.handle  # noqa: B018 - raises Closed
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._program is None:
            return "<Executable closed>"
        names = [name for name, _ in zip(self.functions, range(10), strict=False)]
        public = ", ".join(f"@{name}" for name in names if self.functions[name].public)
        counts = (
            f"{len(self.functions)} functions, {lib.nvm_program_kernel_count(self.handle)} kernels"
        )
        return f"<Executable {public}: {counts}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an Executable can't be pickled or copied; send exe.to_bytes() and nvm.load() it there"
        )


def _bytes_view(data: Any) -> memoryview:
    try:
        return memoryview(data)
    except TypeError:
        hint = "; pass file.read()" if hasattr(data, "read") else ""
        raise TypeError(
            f"expected a path or the bytes of an executable, not {type(data).__name__}{hint}"
        ) from None


def _flags(native: Native, verify: str | None, copy: bool) -> int:
    if not isinstance(verify, str | None) or verify not in (None, "full"):
        raise ValueError(f'verify must be None or "full", not {verify!r}')
    if isinstance(native, str) and native != "require":
        raise ValueError(f'native must be True, False or "require", not {native!r}')
    flags = 0 if native else lib.NVM_LOAD_NO_NATIVE
    flags |= lib.NVM_LOAD_REQUIRE_NATIVE if native == "require" else 0
    flags |= lib.NVM_LOAD_VERIFY_FULL if verify == "full" else 0
    return int(flags | (lib.NVM_LOAD_COPY if copy else 0))


def _bind_flags(strict: bool, verify: str | None) -> int:
    return _flags(native=True, verify=verify, copy=False) | (
        0 if strict else int(lib.NVM_BIND_ALLOW_EXTRA)
    )


def _signing() -> Any:
    return importlib.import_module("nimblevm.bytecode.signature")  # loads cryptography


def _checker(public_key: Any) -> Any:
    return _signing().Checker(public_key) if public_key is not None else None


def _made(exe: Executable) -> Executable:
    if exe.warning:
        warn(exe.warning, MachineCodeWarning)
    return exe


def load(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    native: Native = True,
    verify: Literal["full"] | None = None,
    copy: bool = False,
    *,
    weights: Weights | Literal[False] | None = None,
    strict: bool = True,
    public_key: Any = None,
) -> Executable:
    """Load an executable from a path or from a file's bytes.

    native      False: machine code in the file is not mapped, nor code for devices and runtimes used; kernels run in
                the IR interpreter. Do so with a stranger's file, because such code is trusted. "require": that no
                machine code in the file fits this CPU is an error
    verify      "full": check the constants' digest too. They are read into memory for that, so that what was
                verified can't change
    copy        False: a file's constants are mapped and it must not be changed or truncated while it is loaded
    weights     of a file that leaves weights out: see Executable.bind. None: the file that it names beside itself, if
                it does; False: load without them
    strict      False: `weights` may have more than the executable wants
    public_key  take only a file that this ed25519 key signed: path of a PEM file, its bytes, 32 raw bytes or a key
                object (needs the extra `sign`). Everything is verified then, as with verify="full"

    Raises InvalidExecutable (UnsupportedVersion for another format version; SignatureMissing, SignatureMalformed or
    SignatureMismatch), FileError, OutOfMemory; WeightsMismatch and InvalidWeights; with native="require" Unsupported.
    Warns with MachineCodeWarning if the file has machine code but none that this CPU can use; `sections` says what each
    one lacks.
    """
    if not isinstance(source, (str, os.PathLike)):
        exe = Executable.from_bytes(source, native, verify, public_key)
        return exe if weights is None or weights is False else exe.bind(weights, strict)
    path = os.fsencode(path_text(source))
    out, flags, checker = (
        ffi.new("nvm_program **"),
        _flags(native, verify, copy),
        _checker(public_key),
    )
    check(lib.nvm_program_open_signed(path, flags, checker.pointer if checker else ffi.NULL, out))
    exe = _made(Executable(out[0]))
    if weights is None and exe.weights_file and not exe.is_bound:
        folder = os.path.dirname(os.fspath(source)) or "."
        return Executable(
            bind_below(exe.handle, folder, exe.weights_file, _bind_flags(strict, verify) | flags)
        )
    if weights is None or weights is False:
        return exe
    return Executable(bind(exe.handle, weights, _bind_flags(strict, verify) | flags))


__all__ = ["Executable", "KernelInfo", "SectionInfo", "load"]
