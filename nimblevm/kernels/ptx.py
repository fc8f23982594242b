"""Launches of grids -> PTX, for every NVIDIA GPU since Volta: LLVM IR by the code that writes it for CPUs, then LLVM's
NVPTX target.

    bytes = generate([(index, kernel), ...])        # payload of a section "cuda" (device_code.py)

An entry's parameters are those of device_code.py: a global pointer an operand, the fault record if it can fail, sizes.
Ids come from special registers, arrays of a group lie in shared memory (static, at most 48 KiB), those of a thread in
registers, since loops whose variables index them are unrolled. A thread that meets a fault writes it down if it is the
first, and ends; barriers wait for threads that have not ended.

PTX is made for the oldest GPU (sm_70) and as an old PTX (6.0, of CUDA 9), so that drivers since 2017 read it; they
compile it for the GPU at hand. No operation is contracted or flushed to zero where the loop IR forbids it: LLVM writes
`mul.rn` and `add.rn`, which assemblers leave alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from nimblevm.errors import NUMBER_OF, NimbleError
from nimblevm.kernels import llvm
from nimblevm.kernels.device_code import launch_record, payload
from nimblevm.kernels.facts import stored, touched
from nimblevm.kernels.llvm_kernel import KernelText
from nimblevm.kernels.llvm_ops import MEMORY, Helpers
from nimblevm.kernels.loop_ir import Barrier, Const, DimRef, For, Kernel, Statement
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule.grid import schedule_grid
from nimblevm.kernels.schedule.launch import Launch, elements

ARCH, PTX_VERSION = "sm_70", "ptx60"
FEATURES = ("ptx",)
"""What Helpers are told of the target: halves are converted by instructions."""

GROUPS = 2
"""Groups that multiply tiles at a time on a multiprocessor: while one waits for memory, others compute. Without a limit
an assembler takes 150 registers a thread to load all of a step at once, for one group.
"""
MOST_TURNS = 64
"""Longer loops are never unrolled whole."""

_SREG = "llvm.nvvm.read.ptx.sreg"
_FAULT = """define internal void @nvm_fault(ptr addrspace(1) %record, i32 %code, i32 %operand, i64 %index, i64 %bound,
                                 i32 %kernel) #2 {
  %pair = cmpxchg ptr addrspace(1) %record, i32 0, i32 %code monotonic monotonic
  %first = extractvalue { i32, i1 } %pair, 1
  br i1 %first, label %write, label %done
write:
  %p1 = getelementptr inbounds i8, ptr addrspace(1) %record, i64 4
  store i32 %operand, ptr addrspace(1) %p1, align 4
  %p2 = getelementptr inbounds i8, ptr addrspace(1) %record, i64 8
  store i64 %index, ptr addrspace(1) %p2, align 8
  %p3 = getelementptr inbounds i8, ptr addrspace(1) %record, i64 16
  store i64 %bound, ptr addrspace(1) %p3, align 8
  %p4 = getelementptr inbounds i8, ptr addrspace(1) %record, i64 24
  store i32 %kernel, ptr addrspace(1) %p4, align 8
  br label %done
done:
  ret void
}
"""


class GridText(KernelText):
    """Writes one launch. `index`: the kernel's number in the file, for its faults."""

    def __init__(
        self, launch: Launch, entry: str, index: int, helpers: Helpers, metadata: list[str]
    ) -> None:
        whole = replace(launch.kernel, buffers=launch.buffers, body=launch.body)
        super().__init__(whole, entry, helpers, metadata)
        self.launch, self.index = launch, index
        self.operands = list(launch.operands())
        self.stack = set(launch.own("private"))
        self.shared = {n: f"{entry}.shared{n}" for n in launch.own("shared")}
        self.written = stored(launch.body)

    def text(self) -> str:
        """The entry and the arrays that its groups share. Raises Unsupported for an operation without code."""
        self.lines.label("entry")
        self._pitches()
        self._ids()
        self._allocate_locals(self.stack)
        self._strides()
        self._sizes_are_natural()
        self._block(self.launch.body)
        self.lines.void("ret void")
        body = "\n".join(self.lines.text)
        head = f"define ptx_kernel void @{self.symbol}({', '.join(self._parameters())}) #0"
        return "".join(self._shared_arrays()) + f"{head} {{\n{body}\n}}\n"

    def annotations(self) -> Iterator[str]:
        """Metadata: the exact size of its groups, and how many of those with tiles a multiprocessor is to hold: from
        these an assembler knows how many registers there are.
        """
        for axis, size in zip("xyz", self.launch.block, strict=True):
            yield f'!{{ptr @{self.symbol}, !"reqntid{axis}", i32 {size}}}'
        if self.stack and self.shared:
            yield f'!{{ptr @{self.symbol}, !"minctasm", i32 {GROUPS}}}'

    def _parameters(self) -> Iterator[str]:
        for n in self.operands:
            notes = "noalias " if self.noalias[n] else ""
            if n not in self.written:
                notes += "readonly "
            yield f"ptr addrspace(1) {notes}{self.capture}%b{n}"
        if self.launch.can_fail():
            yield "ptr addrspace(1) %fault"
        for n in self.launch.dims():
            yield f"i64 %d{n}"

    def _shared_arrays(self) -> Iterator[str]:
        for n, name in self.shared.items():
            buffer = self.kernel.buffers[n]
            array = f"[{elements(buffer)} x {MEMORY[buffer.dtype]}]"
            yield f"@{name} = internal addrspace(3) global {array} undef, align 16\n"

    def _pointer(self, buffer: int) -> str:
        if buffer in self.shared:
            return "ptr addrspace(3)"
        return "ptr" if buffer in self.stack else "ptr addrspace(1)"

    def _base(self, buffer: int) -> str:
        return f"@{self.shared[buffer]}" if buffer in self.shared else f"%b{buffer}"

    def _pitches(self) -> None:
        needed = set(self.launch.dims())
        for n in self.pitch_of.values():
            if n in needed:
                many = self.lines.do(f"icmp ne i64 %d{n}, 1")
                self.lines.void(f"%s{n} = zext i1 {many} to i64")

    def _ids(self) -> None:
        used = set(self.launch.values())
        for kind, variables in (("ctaid", self.launch.group), ("tid", self.launch.thread)):
            for axis, variable in zip("xyz", variables, strict=True):
                if variable in used:
                    number = self.lines.call("i32", f"{_SREG}.{kind}.{axis}")
                    self.scopes[0][variable] = self.lines.do(f"zext i32 {number} to i64")

    def _allocate_locals(self, tiles: Iterable[int]) -> None:
        super()._allocate_locals(())
        for n in sorted(tiles):
            buffer = self.kernel.buffers[n]
            array = f"[{elements(buffer)} x {MEMORY[buffer.dtype]}]"
            self.lines.void(f"%b{n} = alloca {array}, align 16")

    def _strides(self) -> None:
        """Only of what the launch touches: it gets no other sizes."""
        used = {*self.operands, *self.stack, *self.shared}
        for number, buffer in enumerate(self.kernel.buffers):
            row: list[tuple[str, str]] = []
            for axis, size in enumerate(buffer.axes if number in used else ()):
                position = self.pitch_of.get((number, axis))
                if position is None:
                    row.append(("", self._value(size.size)))
                else:
                    row.append((f"%s{position}", f"%d{position}"))
            self.strides.append(row)

    def _sizes_are_natural(self) -> None:
        """Sizes of axes are not negative, with which LLVM divides ids by them without a look at signs."""
        sizes = [a.size for n in self.operands for a in self.kernel.buffers[n].axes]
        for size in dict.fromkeys(s.index for s in sizes if isinstance(s, DimRef)):
            known = self.lines.do(f"icmp sge i64 %d{size}, 0")
            self.lines.helpers.declare("void", "llvm.assume", ["i1"])
            self.lines.void(f"call void @llvm.assume(i1 {known})")

    # --- statements -----------------------------------------------------------------------------

    def _block(self, body: Sequence[Statement]) -> None:
        for statement in body:
            if isinstance(statement, Barrier):
                self.lines.helpers.declare("void", "llvm.nvvm.barrier0", [])
                self.lines.void("call void @llvm.nvvm.barrier0()")
            else:
                super()._block((statement,))

    def _for(
        self,
        loop: For,
        first: str = "0",
        last: str | None = None,
        inside: Callable[[str], None] | None = None,
    ) -> None:
        """A loop of one thread; nobody asks it to stop."""
        b = self.lines
        extent = self._value(loop.extent)
        if isinstance(loop.extent, Const) and _has_barrier(loop):
            # A loop of one turn would be none, and its sums would sink into the branches that store them, where all
            # factors have to be kept for them: 1.4 KB of spills a thread.
            extent = b.do(f'call i64 asm "mov.u64 $0, {extent};", "=l"()')
        name = b.name("loop")
        mark = self._node(
            f'distinct !{{!SELF, !{{!"llvm.loop.mustprogress"}}{_unrolling(loop, self.stack)}}}'
        )
        b.void(f"br label %{name}.pre")
        b.label(f"{name}.pre")
        b.void(f"br label %{name}.head")
        b.label(f"{name}.head")
        b.void(f"%{name}.i = phi i64 [ 0, %{name}.pre ], [ %{name}.next, %{name}.latch ]")
        b.void(f"%{name}.go = icmp slt i64 %{name}.i, {extent}")
        b.void(f"br i1 %{name}.go, label %{name}.body, label %{name}.exit")
        b.label(f"{name}.body")
        self._scoped(loop.body, {loop.var: f"%{name}.i"})
        b.void(f"br label %{name}.latch")
        b.label(f"{name}.latch")
        b.void(f"%{name}.next = add nuw nsw i64 %{name}.i, 1")
        b.void(f"br label %{name}.head, !llvm.loop {mark}")
        b.label(f"{name}.exit")

    def _poll(self) -> None:
        """Nobody stops a grid."""

    def _fail_unless(
        self, ok: str, error: type[NimbleError], operand: int, index: str, bound: str
    ) -> None:
        b = self.lines
        b.helpers.texts.setdefault("nvm_fault", _FAULT)
        name = b.name("check")
        b.void(f"br i1 {ok}, label %{name}.ok, label %{name}.bad, !prof !0")
        b.label(f"{name}.bad")
        fault = f"i32 {NUMBER_OF[error]}, i32 {operand}, i64 {index}, i64 {bound}"
        b.void(f"call void @nvm_fault(ptr addrspace(1) %fault, {fault}, i32 {self.index})")
        b.void("ret void")
        b.label(f"{name}.ok")


def _has_barrier(loop: For) -> bool:
    return any(isinstance(s, Barrier) for s in all_statements(loop.body))


def _unrolling(loop: For, own: set[int]) -> str:
    """The wish to unroll a loop of a fixed number of turns whole: where its variable indexes a thread's `own` arrays
    (else they are no registers), and around such a loop (so that what turns share is found). Not around barriers, which
    stand between steps that are long.
    """
    if _has_barrier(loop):
        return ', !{!"llvm.loop.unroll.disable"}'
    if not isinstance(loop.extent, Const) or loop.extent.value > MOST_TURNS:
        return ""
    return ', !{!"llvm.loop.unroll.full"}' if touched(loop.body) & own else ""


def entry_name(launch: Launch, index: int) -> str:
    """A name that PTX takes, of a launch of the file's kernel `index`."""
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', launch.name)}_{index}"


def module_text(launches: Sequence[tuple[int, Launch]]) -> str:
    """LLVM IR of launches, each with the number of its kernel in the file."""
    helpers = Helpers(features=FEATURES)
    metadata = ['!{!"branch_weights", i32 2000, i32 1}']
    texts: list[str] = []
    notes: list[str] = []
    for index, launch in launches:
        writer = GridText(launch, entry_name(launch, index), index, helpers, metadata)
        texts.append(writer.text())
        notes.extend(writer.annotations())
    first = len(metadata)
    named = ", ".join(f"!{first + n}" for n in range(len(notes)))
    nodes = "".join(f"!{n} = {text}\n" for n, text in enumerate([*metadata, *notes]))
    attributes = (
        'attributes #0 = { nounwind "no-builtins" }\n'
        'attributes #1 = { alwaysinline nounwind "no-builtins" }\n'
        'attributes #2 = { noinline nounwind "no-builtins" }\n'
    )
    head = f'target triple = "{llvm.PTX_TRIPLE}"\n'
    annotations = f"!nvvm.annotations = !{{{named}}}\n"
    return "\n".join([head, *helpers.texts.values(), *texts, attributes, annotations, nodes])


def generate(kernels: Sequence[tuple[int, Kernel]]) -> bytes:
    """The payload of a section for these kernels, each with its number in the file.

    CompileError without llvmlite; Unsupported for a kernel that no grid computes.
    """
    launches = [(index, launch) for index, kernel in kernels for launch in schedule_grid(kernel)]
    source = llvm.ptx(module_text(launches), ARCH, PTX_VERSION)
    records: dict[int, list[list[object]]] = {index: [] for index, _ in kernels}
    for index, launch in launches:
        records[index].append(launch_record(launch, entry_name(launch, index)))
    return payload(source.encode(), records)


__all__ = ["ARCH", "PTX_VERSION", "GridText", "entry_name", "generate", "module_text", "payload"]
