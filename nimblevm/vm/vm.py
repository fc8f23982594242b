"""The virtual machine's Python face: load, invoke, results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from operator import index
from types import TracebackType
from typing import Any, NoReturn
from weakref import ref

from nimblevm._ffi import check, ffi, lib
from nimblevm.arguments import explained
from nimblevm.bytecode.executable import Executable
from nimblevm.bytecode.types import FunctionInfo
from nimblevm.devices.device import Device
from nimblevm.errors import Closed, InvalidInput, InvalidInputType
from nimblevm.vm.arguments import ArgumentList, Handle, results
from nimblevm.vm.external import prepare_runtimes
from nimblevm.vm.kept_call import KeptCall
from nimblevm.vm.profiler import LEVELS, MOST_EVENTS, Profile, Profiler
from nimblevm.vm.wants import Wants

_RESULT = ffi.typeof("nvm_result **")
_invoke_kept = lib.nvm_kept_invoke  # a look-up in `lib` costs more than one here


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a call of one function needs to know, looked up at its first."""

    function: FunctionInfo
    index: int
    places: tuple[str, ...]  # of the parameters, for messages
    kept: list[KeptCall]  # of a function on tensors, while no call uses it
    takes_out: bool  # it has a parameter %out

    @classmethod
    def of(cls, function: FunctionInfo) -> _Entry:
        places = tuple(f"parameter %{p.name} of @{function.name}" for p in function.params)
        takes_out = any(p.name == "out" for p in function.params)
        kept = KeptCall.of(function)
        return cls(function, function.index, places, [kept] if kept else [], takes_out)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use; None: no limit, except `frames`, which then is the VM's own bound on recursion.

    instructions   instructions executed (kernels charge their loop turns in the IR interpreter)
    bytes          tensor memory alive at once, bytes
    objects        values alive at once
    frames         depth of calls
    seconds        wall time
    """

    instructions: int | None = None
    bytes: int | None = None
    objects: int | None = None
    frames: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None:
                continue
            if not _is_number(value):
                kind = type(value).__name__
                raise TypeError(f"limit {name} must be a number or None (no limit), not {kind}")
            if not 0 < value < 2**63:
                raise ValueError(
                    f"limit {name} must be positive and finite, not {value!r}; None is no limit"
                )
            if name != "seconds" and value != int(value):
                raise ValueError(f"limit {name} must be a whole number, not {value!r}")

    def fill(self, target: Any) -> None:
        """Write into an nvm_limits struct (0 = none there)."""
        target.instructions = int(self.instructions or 0)
        target.bytes = int(self.bytes or 0)
        target.objects = int(self.objects or 0)
        target.frames = int(self.frames or 0)
        # A time beyond 2^63 ns is the same as three centuries.
        target.nanoseconds = min(max(1, int(self.seconds * 1e9)), 2**63 - 1) if self.seconds else 0


class VirtualMachine:
    """Runs the functions of an executable. One caller's state and cheap; make one a thread.

    device    None: as the executable says (`exe.devices`), of each list of backends the first that this machine has. A
              name or Device of those lists: that one and no other. "cpu": everything runs on the host. "null" runs any
              executable and computes nothing
    fallback  True: the host stands in for a device that this machine lacks, instead of a DeviceError
    threads   the most threads that kernels may use
    limits    see Limits
    profile   True to time kernels, "instructions" for instructions too, "events" to keep what happened in its order
              (all slow runs down a little): see `profile()`

    A second run while one is under way raises VMBusy. Close it, or use it in a `with`, to free its memory at once;
    results stay good. The executable may be closed first.
    """

    def __init__(
        self,
        exe: Executable,
        device: str | Device | None = None,
        threads: int = 1,
        limits: Limits | None = None,
        profile: bool | str = False,
        fallback: bool = False,
    ) -> None:
        if not isinstance(exe, Executable):
            raise TypeError(
                f"VirtualMachine takes an Executable, not {type(exe).__name__}; nvm.load(path) and "
                "nvm.compile(module) make one"
            )
        if isinstance(threads, bool) or not hasattr(threads, "__index__"):
            raise TypeError(f"threads must be a whole number, not {type(threads).__name__}")
        threads = index(threads)
        if not 1 <= threads < 2**31:
            raise ValueError(f"threads must be >= 1 and < 2**31, not {threads}")
        if not isinstance(limits, Limits | None):
            raise TypeError(f"limits must be nvm.Limits(...), not {type(limits).__name__}")
        if not isinstance(profile, bool | str) or profile not in LEVELS:
            raise ValueError(
                f'profile must be False, True, "instructions" or "events", not {profile!r}'
            )
        wanted = None if device is None else Device.of(device)
        self.threads = threads
        self.executable = exe
        self._exe = exe.share()  # works on when the user closes theirs
        self._interrupt: BaseException | None = None
        self._entries: dict[str, _Entry] = {}
        # Ctrl-C: a Python callback lets the interpreter run its signal handlers, which may raise.
        self._poll = ffi.callback(
            "int32_t(void *)", _poll, error=1, onerror=_note_interrupt(ref(self))
        )
        options = ffi.new("nvm_vm_options *")
        name = ffi.new("char[]", wanted.backend.encode()) if wanted else ffi.NULL
        options.size = ffi.sizeof("nvm_vm_options")
        options.threads = threads
        options.device = name
        options.ordinal = wanted.ordinal if wanted else 0
        options.fallback = bool(fallback)
        options.poll = self._poll
        options.profile = LEVELS[profile]
        (limits or Limits()).fill(options.limits)
        out = ffi.new("nvm_vm **")
        prepare_runtimes(exe.handle)
        check(lib.nvm_vm_create(exe.handle, options, out))
        self._vm = ffi.gc(out[0], lib.nvm_vm_destroy)
        used: list[str] = []
        while backend := lib.nvm_vm_device(self._vm, len(used)):
            used.append(ffi.string(backend).decode())
        self.devices = tuple(used)  # backends in use, by device index of the executable
        self.device = wanted or Device(used[1] if len(used) > 1 else used[0])
        self._profiler = Profiler(self._exe, threads)

    @property
    def _handle(self) -> Any:
        if self._vm is None:
            raise Closed("the VirtualMachine is closed")
        return self._vm

    def run(self, /, *args: Any, out: Any = None, **named: Any) -> Any:
        """Call `main`. Any parameter name may be used as a keyword. See `invoke`."""
        return self._call("main", args, named, out)

    def invoke(self, name: str, /, *args: Any, out: Any = None, **named: Any) -> Any:
        """Call function `name` of the executable.

        Arguments: anything with __dlpack__, the buffer protocol or __array__; Python numbers; tuples; ADT values;
        handles from earlier results; nvm.move(value), which gives such a result away. Dtype, rank and every known dim
        are checked. Returns a Tensor, a tuple, an ADTValue or a Handle. Raises InvalidInput (names parameter, expected,
        got), ShapeMismatch, LimitExceeded, Cancelled, VMBusy and whatever the program raises; the VM works on
        afterwards, and what was given away to the call that raised is as it was.

        out says what becomes of the result, or, in a tuple, of each field of a tuple: None, the value is returned; an
        array (C-contiguous, writable, of the result's dtype and shape), it is filled and returned; nvm.KEEP, the value
        stays in the VM and a Handle for it is returned: for state that goes into the next call.

            logits = np.empty((1, 50257), np.float32)
            for token in tokens:
                logits, state = vm.run(token, state, out=(logits, nvm.KEEP))

        InvalidInput or ShapeMismatch for a buffer that the result does not fit. A function that has a parameter %out
        takes the keyword as its argument; `invoke_into` tells the two apart.
        """
        return self._call(name, args, named, out)

    def invoke_into(self, out: Any, name: str, /, *args: Any, **named: Any) -> Any:
        """`invoke` of a function whose parameters may have any name, with `out` first."""
        entry = self._entry(name)
        return self._call(name, args, named, None, Wants(out, entry.function))

    @explained
    def read(self, handle: Handle) -> Any:
        """What a handle of this VM holds: see Handle.read. Copies tensors.

        Raises InvalidInput for a handle of another VM, ValueMoved for one that was given away, VMBusy, OutOfMemory;
        TimeLimit (counted from here) and Cancelled while large tensors are copied.
        """
        if handle.vm is not self:
            raise InvalidInput("the handle belongs to another VirtualMachine")
        result = ffi.new(_RESULT)
        status = lib.nvm_vm_read(self._handle, handle.pointer, result)
        if status:
            self._raise(status, ())
        try:
            return results(result[0], self._exe, self)
        finally:
            lib.nvm_result_free(result[0])

    def _entry(self, name: str) -> _Entry:
        """What a call of a function needs to know. Raises FunctionNotFound."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a function must be a str, not {type(name).__name__}")
        entry = self._entries[name] = _Entry.of(self._exe.function(name))
        return entry

    def _call(
        self,
        name: str,
        args: tuple[Any, ...],
        named: dict[str, Any],
        out: Any = None,
        wants: Wants | None = None,
    ) -> Any:
        handle = self._vm
        if handle is None:
            raise Closed("the VirtualMachine is closed")
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entry(name)
        if out is not None:
            if entry.takes_out:
                named["out"] = out
            else:
                wants = Wants(out, entry.function)
        places = entry.places
        if named or len(args) != len(places):
            args = _bind(entry.function, args, named)
        if wants is None and entry.kept:
            try:
                kept = entry.kept.pop()
            except IndexError:  # another thread was faster
                pass
            else:
                try:
                    alive = kept.fill(args)
                    if alive is not None:
                        status = _invoke_kept(handle, kept.struct)
                        if status == 0:
                            return kept.values()
                        if status < 0:
                            return kept.read(self._exe, self)
                        self._raise(status, args)
                finally:
                    entry.kept.append(kept)
        arguments = ArgumentList(self._exe, self, args, places)
        array, count = arguments.build()
        gives = arguments if arguments.gifts or arguments.given_handles else None
        return self._invoke(handle, entry, array, count, args, gives, wants)

    def _invoke(
        self,
        handle: Any,
        entry: _Entry,
        array: Any,
        count: int,
        args: tuple[Any, ...],
        gives: ArgumentList | None,
        wants: Wants | None,
    ) -> Any:
        """The call in C and its results; `gives`: what the call is given for good."""
        out = ffi.new(_RESULT)
        if gives is None and wants is None:
            status = lib.nvm_vm_invoke(handle, entry.index, array, count, out)
        else:
            items, number = (wants.array, wants.count) if wants else (ffi.NULL, 0)

            def call() -> int:
                return int(
                    lib.nvm_vm_invoke_into(handle, entry.index, array, count, items, number, out)
                )

            status = gives.invoke(call) if gives else call()
        if status:
            self._raise(status, args)
        result = out[0]
        try:
            return results(result, self._exe, self, wants.buffers if wants else ())
        finally:
            lib.nvm_result_free(result)

    def _raise(self, status: int, args: tuple[Any, ...]) -> None:
        interrupt, self._interrupt = self._interrupt, None
        if interrupt is not None:
            raise interrupt
        try:
            check(status)
        except InvalidInputType as error:
            if any(isinstance(value, list) for value in args):
                error.add_note(
                    "A list is a tuple of values here; numpy.asarray(value, dtype) makes a tensor."
                )
            raise

    def cancel(self) -> None:
        """Stop the run that is under way in another thread; it raises Cancelled there."""
        lib.nvm_vm_cancel(self._handle)

    def set_limits(self, limits: Limits) -> None:
        """Replace the limits of later runs."""
        if not isinstance(limits, Limits):
            raise TypeError(f"limits must be nvm.Limits(...), not {type(limits).__name__}")
        target = ffi.new("nvm_limits *")
        limits.fill(target)
        check(lib.nvm_vm_set_limits(self._handle, target))

    def trim(self) -> None:
        """Give pooled memory back to the system."""
        check(lib.nvm_vm_trim(self._handle))

    def stats(self) -> dict[str, int]:
        """Counters of all runs so far and memory in bytes: see nvm_vm_stats in nvm_api.h."""
        out = ffi.new("nvm_vm_stats *")
        check(lib.nvm_vm_stats_get(self._handle, out))
        return {name: int(getattr(out, name)) for name, _ in ffi.typeof("nvm_vm_stats").fields}

    def profile(self) -> Profile:
        """Where the time of all runs went, by kernel. InvalidInput for a VM made without `profile`."""
        return self._profiler.read(self._handle)

    @explained
    def start_profile(self, level: bool | str = "events", max_events: int = MOST_EVENTS) -> None:
        """Profile later runs at a level as in VirtualMachine(profile=...), from zero; False: profile no more.

        max_events   room for events (40 bytes each): later ones are only counted. All other figures stay exact
        """
        if not isinstance(level, bool | str) or level not in LEVELS:
            raise ValueError(
                f'level must be False, True, "instructions" or "events", not {level!r}'
            )
        if not 0 <= index(max_events) < 2**64:
            raise ValueError(f"max_events must be >= 0 and < 2**64, not {max_events}")
        check(lib.nvm_vm_profile_start(self._handle, LEVELS[level], index(max_events)))

    def reset_profile(self) -> None:
        """Start counting anew."""
        check(lib.nvm_vm_profile_reset(self._handle))

    def close(self) -> None:
        """Free the VM now. Results stay good. Idempotent. Raises VMBusy while another thread runs it."""
        if self._vm is not None:
            check(lib.nvm_vm_trim(self._vm))  # refused during a run
            ffi.release(self._vm)
            self._vm = None
            self._exe.close()

    def __enter__(self) -> VirtualMachine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._vm is None else f"of {self._exe!r}"
        return f"<VirtualMachine on {self.device}, threads={self.threads}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a VirtualMachine can't be pickled or copied; make one from the Executable")


def _note_interrupt(vm: ref[VirtualMachine]) -> Callable[..., None]:
    """Keeps what a signal handler raised for the run that is under way. Weak: the callback belongs to the VM, and a
    cycle would delay the release of its memory.
    """

    def note(kind: Any, value: BaseException, trace: TracebackType | None) -> None:
        found = vm()
        if found is not None:
            found._interrupt = value

    return note


def _poll(_context: Any) -> int:
    return 0


def _bind(function: FunctionInfo, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Positional and named arguments in the order of the parameters; InvalidInput says which is missing or extra."""
    params = function.params
    place = f"@{function.name}({', '.join(f'%{p.name}' for p in params)})"
    if len(args) > len(params):
        raise InvalidInput(f"{place} takes {len(params)} arguments, got {len(args)}")
    bound = dict(enumerate(args))
    for name, value in named.items():
        found = [i for i, p in enumerate(params) if p.name == name]
        if not found:
            raise InvalidInput(f"{place} has no parameter %{name}")
        if len(found) > 1:  # a file may name them as it likes
            raise InvalidInput(f"{place}: %{name} names several parameters; give them in order")
        if found[0] in bound:
            raise InvalidInput(f"{place}: parameter %{name} was given twice")
        bound[found[0]] = value
    missing = [p.name for i, p in enumerate(params) if i not in bound]
    if missing:
        raise InvalidInput(f"{place}: missing argument for %{', %'.join(missing)}")
    return tuple(bound[i] for i in range(len(params)))


__all__ = ["Limits", "VirtualMachine"]
