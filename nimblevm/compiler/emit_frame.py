"""Where the values of one function are while its code is written, and how instructions get at them.

A value lives in an int register if its type is a rank-0 integer or bool and the program is compiled
with unboxing, else in an object register; Box and Unbox appear wherever the two meet, decided by
types alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from nimblevm import dtypes
from nimblevm.bytecode.serialize import ProgramBuilder
from nimblevm.compiler.code_buffer import CodeBuffer, Registers
from nimblevm.compiler.emit_dims import INT_BIT, DimEmitter
from nimblevm.compiler.kernel_table import KernelTable
from nimblevm.compiler.liveness import analyse, linearize, worth_killing
from nimblevm.compiler.op_class import is_int
from nimblevm.compiler.rewrite import type_of
from nimblevm.errors import CompileError
from nimblevm.relay.dims import DimVar
from nimblevm.relay.ir import (
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    Span,
    Var,
    late_array,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType, TupleType, Type

Place = tuple[bool, int]
"""(True: int register, its number)."""


class Program(Protocol):
    """What the code of a function asks of the program around it (emit.py)."""

    builder: ProgramBuilder
    kernels: KernelTable
    unbox: bool
    mod: IRModule

    def function(self, var: GlobalVar, *, closure: bool = False, boxed_result: bool = False) -> int:
        """Index of a variant of a global function."""
        ...

    def definition(self, var: GlobalVar) -> Function:
        """The global function."""
        ...

    def constructor(self, constructor: Constructor) -> int:
        """Index of a constructor in the file."""
        ...

    def first_constructor(self, type_: Type) -> int:
        """Index of the first constructor of a data type."""
        ...

    def constructor_count(self, constructor: Constructor) -> int:
        """How many constructors its type has."""
        ...

    def note(self, text: str, span: Span | None) -> int:
        """Index of a note."""
        ...


class Frame:
    """The registers of one variant of a function, and its code."""

    def __init__(
        self, program: Program, function: Function, name: str, closure: bool, boxed_result: bool
    ) -> None:
        self.program = program
        self.fn = function
        self.name = name
        self.code = CodeBuffer(program.builder)
        self.param_is_int = tuple(
            not closure and self.is_unboxed(type_of(p)) for p in function.params
        )
        self.result_type = function.ret_type or type_of(function.body)
        self.result_is_int = not boxed_result and self.is_unboxed(self.result_type)
        self.ints = Registers(sum(self.param_is_int))
        self.objs = Registers(len(function.params) - self.ints.count)
        self.dims = DimEmitter(self.code, self.ints)
        self.where: dict[Var, Place] = {}
        self.pinned: set[Var] = set()
        # Storages that a tensor allocates together with itself, and their devices.
        self.own_storage: dict[Expr, int] = {}
        self.temps: list[Place] = []
        self.blocks = linearize(function.body)
        self.live = analyse(function, self.blocks, program.kernels)
        self.dims.defined = self.live.defined

    # --- registers ------------------------------------------------------------------------------

    def is_unboxed(self, type_: Type) -> bool:
        """Whether values of a type live in int registers."""
        return self.program.unbox and is_int(type_)

    def take(self, in_int: bool) -> Place:
        return (in_int, (self.ints if in_int else self.objs).take())

    def give(self, place: Place) -> None:
        (self.ints if place[0] else self.objs).give(place[1])

    def temp(self, in_int: bool) -> int:
        """A register until the end of the item."""
        place = self.take(in_int)
        self.temps.append(place)
        return place[1]

    def int_temp(self) -> int:
        return self.temp(in_int=True)

    def obj_temp(self) -> int:
        return self.temp(in_int=False)

    def free_temps(self) -> None:
        for place in reversed(self.temps):
            self.give(place)
        self.temps.clear()

    def root(self, var: Var) -> Var:
        return self.live.root.get(var, var)

    def place_of(self, var: Var) -> Place:
        found = self.where.get(self.root(var))
        if found is None:
            raise CompileError(
                f"variable %{var.name_hint} of @{self.name} has no value where it is used"
            )
        return found

    def define(self, var: Var, in_object: bool = False) -> Place:
        """Give a variable its register. in_object: even if its type could be unboxed (a kernel's
        output).
        """
        place = self.where[var] = self.take(not in_object and self.is_unboxed(type_of(var)))
        return place

    def expire(self, position: int, kill: bool = True) -> None:
        """Free the registers of the variables whose last use was at `position`."""
        for var in self.live.expire.get(position, ()):
            place = self.where.get(var)
            if place is None or var in self.pinned:
                continue
            if kill and not place[0] and worth_killing(type_of(var)):
                self.code.emit("KillRegister", place[1])
            self.give(place)

    # --- dims -----------------------------------------------------------------------------------

    def bind_dims(self, var: Var) -> None:
        """DimOf for the needed dims that are axes of a variable's tensors and have no number yet."""
        needed, known = self.live.needed, self.dims.known
        stack: list[tuple[Type, tuple[int, ...]]] = [(type_of(var), ())]
        while stack:
            type_, path = stack.pop()
            if isinstance(type_, TensorType):
                for axis, dim in enumerate(type_.shape):
                    if isinstance(dim, DimVar) and dim in needed and dim not in known:
                        register = self.ints.take()
                        self.code.emit("DimOf", register, self.field_at(var, path), axis)
                        self.dims.bind(dim, register)
            elif isinstance(type_, TupleType):
                stack.extend((f, (*path, i)) for i, f in reversed(list(enumerate(type_.fields))))

    def field_at(self, var: Var, path: Sequence[int]) -> int:
        """An object register with a field of nested tuples."""
        register = self.obj(var)
        for index in path:
            inner = self.obj_temp()
            self.code.emit("GetField", inner, register, index)
            register = inner
        return register

    # --- atoms in registers ---------------------------------------------------------------------

    def obj(self, atom: Expr) -> int:
        """An object register that holds an atom."""
        if isinstance(atom, Var):
            in_int, register = self.place_of(atom)
            if not in_int:
                return register
            boxed = self.obj_temp()
            self.box(boxed, register, type_of(atom))
            return boxed
        made = self.obj_temp()
        self.load(atom, (False, made))
        return made

    def integer(self, atom: Expr) -> int:
        """An int register that holds an atom."""
        if isinstance(atom, Var):
            in_int, register = self.place_of(atom)
            if in_int:
                return register
            unboxed = self.int_temp()
            self.unbox(unboxed, register, type_of(atom))
            return unboxed
        made = self.int_temp()
        self.load(atom, (True, made))
        return made

    def any(self, atom: Expr, in_int: bool) -> int:
        """An ANY_IN word for an atom of the wanted kind."""
        return self.integer(atom) | INT_BIT if in_int else self.obj(atom)

    def constant(self, atom: Constant, device: int = 0) -> int:
        """Index of a constant of the file, or of one that is bound late, on a device."""
        late, builder = late_array(atom), self.program.builder
        if late is None:
            return builder.constant(atom.data.dtype.name, atom.data.shape, atom.data, device)
        builder.weight(late.name, late.weight_dtype.name, late.weight_shape, late.digest)
        return builder.late_constant(late.dtype.name, late.shape, late.name, late.layout, device)

    def load(self, atom: Expr, place: Place) -> None:
        """A constant or global function into a register."""
        match atom:
            case Constant() if place[0]:
                self.code.emit_imm64(place[1], int(atom.data))
            case Constant():
                index = self.constant(atom)
                self.code.emit("LoadConst", place[1], index)
            case GlobalVar():
                index = self.program.function(atom, closure=True, boxed_result=True)
                self.code.emit("AllocClosure", place[1], index, [])
            case _:
                raise CompileError(f"{type(atom).__name__} is no value: {atom!r}")

    # --- from one kind of register to the other -------------------------------------------------

    def _dtype(self, type_: Type) -> int:
        if not isinstance(type_, TensorType):
            raise CompileError(f"{type_!r} is no scalar")
        return dtypes.dtype(type_.dtype).number

    def box(self, dst: int, src: int, type_: Type) -> None:
        self.code.emit("Box", dst, src, self._dtype(type_))

    def unbox(self, dst: int, src: int, type_: Type) -> None:
        self.code.emit("Unbox", dst, src, self._dtype(type_))

    def unbox_into(self, dst: int, var: Var) -> None:
        """Unbox a variable that lives in an object register."""
        self.unbox(dst, self.place_of(var)[1], type_of(var))

    def int_into(self, dst: Place, type_: Type, write: Callable[[int], None]) -> None:
        """Run `write(register)` for an int register so that what it writes ends in `dst`."""
        if dst[0]:
            write(dst[1])
            return
        middle = self.int_temp()
        write(middle)
        self.box(dst[1], middle, type_)

    def obj_into(self, dst: Place, type_: Type, write: Callable[[int], None]) -> None:
        """Run `write(register)` for an object register so that what it writes ends in `dst`."""
        if not dst[0]:
            write(dst[1])
            return
        middle = self.obj_temp()
        write(middle)
        self.unbox(dst[1], middle, type_)


__all__ = ["Frame", "Place", "Program"]
