"""Every exception of nimblevm, and the one table that ties run-time status codes to them.

Leaf module: imports nothing of the package. Every class derives from `NimbleError` and from the builtin
exception that fits, so callers may catch either. `STATUSES` is the source of the C enum
`nvm_status` (native/gen_tables.py writes native/include/generated/nvm_status.h); a number is never reused.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass


class NimbleError(Exception):
    """Base of everything that nimblevm raises on purpose."""


class NimbleWarning(RuntimeWarning):
    """Category of the warnings that nimblevm gives: what was asked is done, but not as well as it could be."""


class MachineCodeWarning(NimbleWarning):
    """Kernels run in the interpreter, because machine code can't be made or none in a file fits this CPU."""


def warn(message: str, category: type[NimbleWarning] = NimbleWarning) -> None:
    """Warn at the place of the innermost caller outside nimblevm."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("nimblevm."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


# --- compile time -------------------------------------------------------------------------------


class RelaySyntaxError(NimbleError, SyntaxError):
    """Relay text that does not follow the grammar; the message shows file:line:column, the line and a caret."""

    def __str__(self) -> str:
        return str(self.msg)  # SyntaxError would add file and line once more


class RelayTypeError(NimbleError, TypeError):
    """A program that does not type-check; the message shows every span involved."""


class WellFormedError(NimbleError, ValueError):
    """An IRModule with a scope, arity or ADT fault (unbound variable, variable bound twice...)."""


class CompileError(NimbleError, RuntimeError):
    """A well-typed program that can't be compiled (limits of the format, unsupported construct)."""


class AssemblerError(NimbleError, SyntaxError):
    """Assembler text (.nvmasm) that can't be read; the message names the line."""


class UnknownOperator(NimbleError, KeyError):
    """A name that is no registered operator."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class TypeNotFound(NimbleError, KeyError):
    """A module has no data type or constructor of that name; the message lists what it has."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NotProvided(NimbleError, LookupError):
    """A name of TVM that has no counterpart here; the message says what to use."""


class NameNotProvided(NotProvided, AttributeError):
    """`module.name`, so that hasattr() is False."""


class ModuleNotProvided(NotProvided, ModuleNotFoundError):
    """`import module.name` and `from module import name`."""


class UnknownAttribute(NimbleError, KeyError):
    """An operator has no attribute of that name; the message lists those that it has."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


# --- run time: one class per status row below ---------------------------------------------------


class OutOfMemory(NimbleError, MemoryError):
    """The system or a device gave no memory."""


class InvalidExecutable(NimbleError, ValueError):
    """A file that is damaged, hostile or no nimblevm executable."""


class UnsupportedVersion(InvalidExecutable):
    """A file of another format version; the message names both."""


class SignatureError(InvalidExecutable):
    """Base of what may be wrong with a file's signature when load() is given a public key."""


class SignatureMissing(SignatureError):
    """The file is not signed."""


class SignatureMalformed(SignatureError):
    """The signature block is cut off, or no signature that this runtime knows."""


class SignatureMismatch(SignatureError):
    """The signature is another key's, or the file is not what was signed."""


class InvalidWeights(NimbleError, ValueError):
    """A file of weights that is damaged or hostile, or of no kind that can be read."""


class WeightsMismatch(NimbleError, ValueError):
    """Weights that are not those that the executable wants; the message lists what is missing, extra or different.

    Names as attributes: missing, extra, different (tuples of str).
    """

    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    different: tuple[str, ...] = ()


class WeightsNotBound(NimbleError, RuntimeError):
    """A VM was asked for of an executable whose weights are bound late and are not there yet."""


class InvalidInput(NimbleError, ValueError):
    """An argument that does not fit the parameter: rank, dim, missing, extra, constructor."""


class InvalidInputType(InvalidInput, TypeError):
    """An argument of the wrong dtype or kind of value."""


class ShapeMismatch(NimbleError, ValueError):
    """A dim that the compiler could not prove turned out different at run time."""


class OperandMismatch(NimbleError, ValueError):
    """A kernel operand that does not fit the kernel's signature (hostile or miscompiled file)."""


class NullValue(NimbleError, RuntimeError):
    """An instruction read an object register that holds nothing (hostile or miscompiled file)."""


class ValueKindError(NimbleError, TypeError):
    """An instruction met a value of another kind than it needs (hostile or miscompiled file)."""


class IndexOutOfRange(NimbleError, IndexError):
    """An index outside its axis."""


class DivisionByZero(NimbleError, ZeroDivisionError):
    """Integer division or modulus by zero."""


class DimOverflow(NimbleError, OverflowError):
    """Shape arithmetic left the range of int64, or a dim became negative."""


class MatchFailure(NimbleError, RuntimeError):
    """No clause of a partial `match?` applied."""


class LimitExceeded(NimbleError, RuntimeError):
    """Base of the limits of a run; the VM works on afterwards."""


class InstructionLimit(LimitExceeded):
    """The run used up its instruction budget."""


class MemoryLimit(LimitExceeded, MemoryError):
    """The run used up its byte budget."""


class ObjectLimit(LimitExceeded, MemoryError):
    """The run used up its object budget."""


class FrameLimit(LimitExceeded, RecursionError):
    """The run's calls nest deeper than allowed."""


class TimeLimit(LimitExceeded, TimeoutError):
    """The run took longer than allowed."""


class Cancelled(NimbleError, RuntimeError):
    """The run was cancelled by another thread."""


class VMBusy(NimbleError, RuntimeError):
    """A second run on a VM that is already running."""


class FunctionNotFound(NimbleError, KeyError):
    """The executable or module has no function of that name; the message lists what it has."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class DeviceError(NimbleError, RuntimeError):
    """A device is missing or reported a fault."""


class FileError(NimbleError, OSError):
    """A file could not be opened, read, mapped or written."""


class Closed(NimbleError, ValueError):
    """A handle was used after close."""


class ValueMoved(NimbleError, ValueError):
    """A value was used after nvm.move gave it away to a call."""


class KernelError(NimbleError, RuntimeError):
    """A kernel reported a fault that has no class of its own."""


class Unsupported(NimbleError, NotImplementedError):
    """This build, CPU or device can't do what was asked."""


class InternalError(NimbleError, RuntimeError):
    """A fault of nimblevm itself; please report it."""


@dataclass(frozen=True, slots=True)
class Status:
    """One row: the C name is `NVM_` + name."""

    number: int
    name: str
    exception: type[NimbleError] | None
    meaning: str


STATUSES: tuple[Status, ...] = (
    Status(0, "OK", None, "success"),
    Status(1, "OUT_OF_MEMORY", OutOfMemory, "the system or a device gave no memory"),
    Status(2, "INVALID_EXECUTABLE", InvalidExecutable, "damaged or hostile file"),
    Status(3, "UNSUPPORTED_VERSION", UnsupportedVersion, "file of another format version"),
    Status(4, "INVALID_INPUT", InvalidInput, "argument does not fit the parameter"),
    Status(5, "INVALID_INPUT_TYPE", InvalidInputType, "argument of the wrong dtype or kind"),
    Status(6, "SHAPE_MISMATCH", ShapeMismatch, "a checked dim differs"),
    Status(7, "OPERAND_MISMATCH", OperandMismatch, "kernel operand does not fit the signature"),
    Status(8, "NULL_VALUE", NullValue, "object register holds nothing"),
    Status(9, "VALUE_KIND", ValueKindError, "value of another kind than the instruction needs"),
    Status(10, "INDEX_OUT_OF_RANGE", IndexOutOfRange, "index outside its axis"),
    Status(11, "DIVISION_BY_ZERO", DivisionByZero, "integer division or modulus by zero"),
    Status(12, "DIM_OVERFLOW", DimOverflow, "shape arithmetic overflow or negative dim"),
    Status(13, "MATCH_FAILURE", MatchFailure, "no clause of a partial match applied"),
    Status(14, "INSTRUCTION_LIMIT", InstructionLimit, "instruction budget used up"),
    Status(15, "MEMORY_LIMIT", MemoryLimit, "byte budget used up"),
    Status(16, "OBJECT_LIMIT", ObjectLimit, "object budget used up"),
    Status(17, "FRAME_LIMIT", FrameLimit, "calls nest too deep"),
    Status(18, "TIME_LIMIT", TimeLimit, "time budget used up"),
    Status(19, "CANCELLED", Cancelled, "cancelled by another thread"),
    Status(20, "VM_BUSY", VMBusy, "second concurrent run of one VM"),
    Status(21, "FUNCTION_NOT_FOUND", FunctionNotFound, "no function of that name"),
    Status(22, "DEVICE_ERROR", DeviceError, "device missing or faulty"),
    Status(23, "FILE_ERROR", FileError, "file could not be read or mapped"),
    Status(24, "CLOSED", Closed, "handle used after close"),
    Status(25, "KERNEL_ERROR", KernelError, "kernel fault without a code of its own"),
    Status(26, "UNSUPPORTED", Unsupported, "not possible with this build, CPU or device"),
    Status(27, "INTERNAL", InternalError, "fault of nimblevm itself"),
    Status(28, "INTERRUPTED", None, "the poll callback asked to stop (Ctrl-C)"),
    Status(29, "SIGNATURE_MISSING", SignatureMissing, "file without a signature"),
    Status(30, "SIGNATURE_MALFORMED", SignatureMalformed, "signature block cut or unknown"),
    Status(31, "SIGNATURE_MISMATCH", SignatureMismatch, "signature of another key or file"),
    Status(32, "INVALID_WEIGHTS", InvalidWeights, "damaged or hostile file of weights"),
    Status(33, "WEIGHTS_MISMATCH", WeightsMismatch, "weights that the program does not want"),
    Status(34, "WEIGHTS_NOT_BOUND", WeightsNotBound, "program without its weights"),
)

_BY_NUMBER = {row.number: row for row in STATUSES}
if len(_BY_NUMBER) != len(STATUSES) or len({row.name for row in STATUSES}) != len(STATUSES):
    raise ValueError("errors.STATUSES: a number or name occurs twice")

NUMBER_OF: dict[type[NimbleError], int] = {
    row.exception: row.number for row in STATUSES if row.exception
}
"""Exception -> number of the status that reports it."""
INTERRUPTED = next(row.number for row in STATUSES if row.name == "INTERRUPTED")
"""The status of a run that KeyboardInterrupt ends."""


def status_row(number: int) -> Status:
    """The table row of a status number that C returned; an unknown one reads as INTERNAL."""
    return _BY_NUMBER.get(number, _BY_NUMBER[NUMBER_OF[InternalError]])
