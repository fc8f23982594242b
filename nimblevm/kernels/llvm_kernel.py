"""One kernel of loop IR as LLVM text: an outer function of the kernel ABI, and an inner one that
gets buffers as arguments.

The inner function's buffers are `noalias`, but for pairs that the kernel allows to share storage;
the loops over such buffers carry access groups that say that their turns are independent, so that
both cases vectorise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from nimblevm import dtypes
from nimblevm.abi import CTX_FAIL, CTX_POLL
from nimblevm.errors import NUMBER_OF, DivisionByZero, IndexOutOfRange, NimbleError
from nimblevm.kernels import llvm_beside, llvm_panels
from nimblevm.kernels import llvm_ops as ops
from nimblevm.kernels.facts import (
    divides,
    is_of_dims,
    is_of_vectors,
    lanes_of,
    nonzero,
    pitches,
    touched,
)
from nimblevm.kernels.llvm_ops import MEMORY, REGISTER, Helpers, Lines
from nimblevm.kernels.llvm_panel_calls import PanelCalls
from nimblevm.kernels.loop_ir import (
    Accumulate,
    Beside,
    Binary,
    ByteProduct,
    ByteWindows,
    Cast,
    CheckIndex,
    Compare,
    Const,
    DimRef,
    For,
    If,
    Kernel,
    Load,
    Local,
    LoopVar,
    PackPanels,
    PanelProduct,
    Part,
    Product,
    Select,
    SetDim,
    SetLocal,
    Statement,
    Store,
    Unary,
    Value,
    WindowProduct,
)
from nimblevm.kernels.rewrite import all_statements, all_values, parts, tiles, values_of
from nimblevm.kernels.schedule import STACK
from nimblevm.kernels.value_scopes import ScopedValues

POLL_TURNS, POLL_TURNS_DEEP, POLL_ELEMENTS = 64, 8, 1 << 16
"""How many turns of an outermost loop pass between two polls: rows of elements, rows of sums, elements."""
POLL_ROW = 1 << 22
"""Elements of a row inside other loops between two polls: some ms, so that shorter rows stay one loop."""


def _may_be_long(extent: Value) -> bool:
    return not (isinstance(extent, Const) and extent.value <= POLL_ELEMENTS)


class KernelText(ScopedValues):
    """Writes one kernel. `loops` numbers metadata nodes across the module."""

    def __init__(self, kernel: Kernel, symbol: str, helpers: Helpers, metadata: list[str]) -> None:
        super().__init__(kernel.buffers, kernel.alias)
        self.kernel = kernel
        self.symbol = symbol
        self.lines = Lines(helpers)
        self.metadata = metadata
        self.locals: dict[Local, str] = {}
        self.strides: list[list[tuple[str, str]]] = []
        self.group: str | None = None
        self.pitch_of = pitches(kernel)
        self.noalias = [i not in self.shared_storage for i in range(len(kernel.buffers))]
        products = all_statements(kernel.body)
        self.panels = {tile for s in products if isinstance(s, Product) for tile in tiles(s)}
        self.stack = {i for i, b in enumerate(kernel.buffers) if b.name == STACK}
        self.operands = [i for i in range(len(kernel.buffers)) if i not in self.stack]
        self.n_dims = len(kernel.dims) + len(self.pitch_of)
        self.capture, self.body_attributes = "nocapture ", "#2"

    def text(self) -> str:
        """Both functions. Raises Unsupported for an operation without generated code."""
        self._begin(self.stack)
        self._block(self.kernel.body)
        self.lines.void("ret i32 0")
        params = ", ".join(f"{type_} {name}" for type_, name in self._params(self.operands))
        body = "\n".join(self.lines.text)
        return (
            f"define internal i32 @{self.symbol}.body({params}) {self.body_attributes} "
            f"{{\n{body}\n}}\n{self._entry()}"
        )

    def _begin(self, tiles: Iterable[int]) -> None:
        """The start of a function's body: arrays and locals on the stack, sizes."""
        self.lines.label("entry")
        self._allocate_locals(tiles)
        self._strides()

    def _params(self, buffers: Sequence[int]) -> list[tuple[str, str]]:
        """Type with attributes, and name, of what a function with these operands gets."""
        found = [("ptr", "%ctx"), ("ptr", "%out_dims")]
        for i in buffers:
            found.append((f"ptr {'noalias ' if self.noalias[i] else ''}{self.capture}", f"%b{i}"))
        found += [("i64", f"%d{i}") for i in range(self.n_dims)]
        return found + [("i64", f"%s{i}") for i in self.pitch_of.values()]

    def _entry(self) -> str:
        lines = Lines(self.lines.helpers)
        args = ["ptr %ctx"]
        dims: list[str] = []
        out = lines.do(f"getelementptr inbounds i64, ptr %dims, i64 {self.n_dims}")
        args.append(f"ptr {out}")
        for i in self.operands:
            place = lines.do(f"getelementptr inbounds ptr, ptr %bufs, i64 {i}")
            args.append("ptr " + lines.do(f"load ptr, ptr {place}, align 8"))
        for i in range(self.n_dims):
            place = lines.do(f"getelementptr inbounds i64, ptr %dims, i64 {i}")
            dims.append(lines.do(f"load i64, ptr {place}, align 8"))
        args += [f"i64 {dim}" for dim in dims]
        for i in self.pitch_of.values():
            # An argument, so that LLVM takes it for an unknown stride and makes a version for stride 1.
            many = lines.do(f"icmp ne i64 {dims[i]}, 1")
            args.append("i64 " + lines.do(f"zext i1 {many} to i64"))
        found = lines.do(f"call i32 @{self.symbol}.body({', '.join(args)})")
        body = "\n".join(lines.text)
        head = f"define hidden i32 @{self.symbol}(ptr %ctx, ptr %bufs, ptr %dims) #0"
        return f"{head} {{\nentry:\n{body}\n  ret i32 {found}\n}}\n"

    # --- set-up ---------------------------------------------------------------------------------

    def _allocate_locals(self, tiles: Iterable[int]) -> None:
        for number in tiles:
            buffer = self.kernel.buffers[number]
            size = buffer.axes[0].size
            assert isinstance(size, Const)
            self.lines.void(
                f"%b{number} = alloca [{size.value} x {MEMORY[buffer.dtype]}], align 64"
            )
        for statement in all_statements(self.kernel.body):
            if isinstance(statement, SetLocal | Accumulate) and statement.local not in self.locals:
                local = statement.local
                self.locals[local] = self.lines.do(f"alloca {REGISTER[local.dtype]}")

    def _strides(self) -> None:
        """Per axis: (stride factor of a stretched axis or "", actual size)."""
        for number, buffer in enumerate(self.kernel.buffers):
            row: list[tuple[str, str]] = []
            for axis, size in enumerate(buffer.axes):
                position = self.pitch_of.get((number, axis))
                known = (f"%s{position}", f"%d{position}")
                row.append(known if position is not None else ("", self._value(size.size)))
            self.strides.append(row)

    # --- statements -----------------------------------------------------------------------------

    def _block(self, body: Sequence[Statement]) -> None:
        """Statements nest as deep as loops do (at most 32), so this recurses."""
        for statement in body:
            self.temporary = {}
            match statement:
                case For():
                    self._for(statement)
                case If():
                    self._if(statement)
                case Part(body=inside):
                    self._scoped(inside)
                case Store(buffer=buffer, indices=indices, value=value):
                    self._store(buffer, indices, value)
                case SetLocal(local=local, value=value):
                    found = self._value(value)
                    self.lines.void(
                        f"store {REGISTER[local.dtype]} {found}, ptr {self.locals[local]}"
                    )
                case Accumulate():
                    self._accumulate(statement)
                case SetDim(index=index, value=value):
                    found = self._value(value)
                    place = self.lines.do(f"getelementptr inbounds i64, ptr %out_dims, i64 {index}")
                    self.lines.void(f"store i64 {found}, ptr {place}, align 8")
                case PanelProduct():
                    self._panel_product(statement)
                case PackPanels():
                    self._pack_panels(statement)
                case ByteProduct():
                    self._byte_product(statement)
                case ByteWindows():
                    self._byte_windows(statement)
                case WindowProduct():
                    self._window_product(statement)
                case _:
                    raise TypeError(f"unknown statement {type(statement).__name__}")

    def _for(
        self,
        loop: For,
        first: str = "0",
        last: str | None = None,
        inside: Callable[[str], None] | None = None,
    ) -> None:
        """Turns first .. last - 1 (default: all) of a loop; `inside` writes the body for the register of a turn.

        Loops that are divided, those with `last`, ask now and then whether to go on, as outermost ones do.
        """
        extent = self._value(loop.extent) if last is None else last
        inner = any(isinstance(s, For) for s in all_statements(loop.body))
        outer_group = self.group
        mark = self._mark(loop, inner)
        asks = len(self.scopes) == 1 or last is not None
        most = self._most_turns(loop, asks) if not inner else None
        mask: str | None = None
        if inner and asks:
            mask = self._poll_mask(loop.body)
        elif inner and self._is_of_blocks(loop):
            mask = str(POLL_TURNS_DEEP - 1)
        if most is None:
            self._turns(loop, first, extent, mark, mask, inside)
        else:
            start, end = self._open_chunk(first, extent, most)
            self._turns(loop, start, end, mark, mask, inside)
            self._close_chunk(start, end, extent)
        self.group = outer_group

    def _turns(
        self,
        loop: For,
        first: str,
        end: str,
        mark: str,
        mask: str | None,
        inside: Callable[[str], None] | None,
    ) -> None:
        """The loop's blocks. mask: of turns between two polls, if there are any."""
        b = self.lines
        name = b.name("loop")
        b.void(f"br label %{name}.pre")
        b.label(f"{name}.pre")
        b.void(f"br label %{name}.head")
        b.label(f"{name}.head")
        b.void(f"%{name}.i = phi i64 [ {first}, %{name}.pre ], [ %{name}.next, %{name}.latch ]")
        b.void(f"%{name}.go = icmp slt i64 %{name}.i, {end}")
        b.void(f"br i1 %{name}.go, label %{name}.body, label %{name}.exit")
        b.label(f"{name}.body")
        if mask is not None:
            self._poll_now_and_then(f"%{name}.i", mask)
        if inside is None:
            self._scoped(loop.body, {loop.var: f"%{name}.i"})
        else:
            inside(f"%{name}.i")
        b.void(f"br label %{name}.latch")
        b.label(f"{name}.latch")
        b.void(f"%{name}.next = add nuw nsw i64 %{name}.i, 1")
        b.void(f"br label %{name}.head, !llvm.loop {mark}")
        b.label(f"{name}.exit")

    def _mark(self, loop: For, inner: bool) -> str:
        """What LLVM is told of a loop; accesses of its body are in the group that is current then. inner: it holds
        loops.
        """
        extra = ""
        if loop.parallel and not inner:
            self.group = self._node("distinct !{}")
            extra = ", " + self._node(f'!{{!"llvm.loop.parallel_accesses", {self.group}}}')
        if loop.masked:
            extra += self._masked(loop)
        elif not inner and is_of_vectors(loop):
            # Several vectors at a time would leave a rest, which is computed in halves and single elements.
            extra += self._one_vector(lanes_of(loop.body))
        if loop.parallel and not inner and self._reads_panels(loop):
            # Unrolled first, the turns are lost to the vectoriser, which then takes the loop around. Other tiles on
            # the stack are kept in registers, for which the loops over them have to be unrolled.
            extra += ", " + self._node('!{!"llvm.loop.unroll.disable"}')
        return self._node(f'distinct !{{!SELF, !{{!"llvm.loop.mustprogress"}}{extra}}}')

    def _most_turns(self, loop: For, asks: bool) -> int | None:
        """Turns of a loop without inner loops between two polls; None: it has none. asks: whether it is outermost or
        divided.
        """
        if asks and _may_be_long(loop.extent):
            return POLL_ELEMENTS
        return POLL_ROW if self._is_of_rows(loop) else None

    def _is_of_blocks(self, loop: For) -> bool:
        """Blocks of rows inside another loop may take long too: 8 blocks of attention over 4,000 keys are some ms.

        Not the loops of sums, which write to tiles only: these would leave their registers.
        """
        if loop.parallel or isinstance(loop.extent, Const):
            return False
        stores = [s for s in all_statements(loop.body) if isinstance(s, Store)]
        return any(s.buffer not in self.stack for s in stores)

    def _is_of_rows(self, loop: For) -> bool:
        """Whether an innermost loop may be a row of very many elements. Loops that work on tiles are short."""
        if (isinstance(loop.extent, Const) and loop.extent.value <= POLL_ROW) or loop.masked:
            return False
        return not touched(loop.body) & {*self.stack, *self.panels}

    def _reads_panels(self, loop: For) -> bool:
        """Whether a loop of a fixed number of turns reads the tile of a PanelProduct."""
        values = all_values([v for s in loop.body for v in values_of(s)])
        return isinstance(loop.extent, Const) and any(
            isinstance(v, Load) and v.buffer in self.panels for v in values
        )

    def _masked(self, loop: For) -> str:
        """Wishes: all turns as lanes of one vector, those beyond the last turn masked."""
        width = lanes_of(loop.body)
        if isinstance(loop.extent, Const):
            width = min(width, 1 << (int(loop.extent.value) - 1).bit_length())
        if width <= 2:  # LLVM makes no loop of one or two turns, and says so on stderr
            return ""
        beyond = self._node('!{!"llvm.loop.vectorize.predicate.enable", i1 true}')
        return f", {beyond}{self._one_vector(width)}"

    def _one_vector(self, width: int) -> str:
        """Wishes: so many turns as one vector, not several vectors at a time."""
        lanes = self._node(f'!{{!"llvm.loop.vectorize.width", i32 {width}}}')
        one = self._node('!{!"llvm.loop.interleave.count", i32 1}')
        return f", {lanes}, {one}"

    def _open_chunk(self, start: str, extent: str, most: int) -> tuple[str, str]:
        """The turns of a loop without inner loops in pieces, a poll between them: first and last turn of a piece."""
        b = self.lines
        name = b.name("chunk")
        b.void(f"br label %{name}.pre")
        b.label(f"{name}.pre")
        b.void(f"br label %{name}")
        b.label(name)
        first = f"%{name}.first"
        b.void(f"{first} = phi i64 [ {start}, %{name}.pre ], [ %{name}.last, %{name}.next ]")
        # extent - first can't overflow, first + most could.
        left = b.do(f"sub nsw i64 {extent}, {first}")
        short = b.do(f"icmp slt i64 {left}, {most}")
        turns = b.do(f"select i1 {short}, i64 {left}, i64 {most}")
        b.void(f"%{name}.last = add nsw i64 {first}, {turns}")
        return first, f"%{name}.last"

    def _close_chunk(self, first: str, last: str, extent: str) -> None:
        b = self.lines
        name = first[1 : -len(".first")]
        more = b.do(f"icmp slt i64 {last}, {extent}")
        b.void(f"br i1 {more}, label %{name}.ask, label %{name}.done, !prof !1")
        b.label(f"{name}.ask")
        self._poll()
        b.void(f"br label %{name}.next")
        b.label(f"{name}.next")
        b.void(f"br label %{name}")
        b.label(f"{name}.done")

    def _panel_product(self, statement: PanelProduct) -> None:
        x, w = statement.x, statement.w
        if statement.beside is not None:
            self._beside(statement, statement.beside)
            return
        calls = self.lines.helpers.panels(PanelCalls.of(statement))
        blocks = statement.blocks or Const("int64", llvm_panels.FEW + 1)
        args = {
            "x": self._address(x.buffer, x.indices), "x_row": self._value(statement.x_row),
            "w": self._address(w.buffer, w.indices), "w_step": self._value(statement.w_step),
            "w_panel": self._value(statement.w_panel), "depth": self._value(statement.depth),
            "tile": f"%b{statement.tile}", "tile_row": str(statement.tile_row), "blocks": self._value(blocks),
            "rows": self._value(statement.rows), "panels": self._value(statement.panels),
        }  # fmt: skip
        following = statement.following or w
        args["next"] = self._address(following.buffer, following.indices)
        self.lines.void(calls.call(args))

    def _beside(self, statement: PanelProduct, other: Beside) -> None:
        """A product of one row, and what is computed beside it."""
        literals = (statement.w_step, statement.w_panel, other.x_row, other.w_step, other.w_panel)
        strides = (int(v.value) for v in literals if isinstance(v, Const))
        form = llvm_beside.Form(other.turns, *strides)
        function = self.lines.helpers.beside(form, statement.variant)
        args = [
            self._place(statement.x), self._place(statement.w), self._i64(statement.depth), f"ptr %b{statement.tile}",
            self._i64(statement.panels),
            self._place(other.x), self._place(other.w), self._i64(other.depth), f"ptr %b{other.tile}",
            f"i1 {str(other.begins).lower()}", self._i64(other.rows), self._i64(other.panels),
        ]  # fmt: skip
        self.lines.void(f"call void @{function}({', '.join(args)})")

    def _place(self, load: Load) -> str:
        return f"ptr {self._address(load.buffer, load.indices)}"

    def _i64(self, value: Value) -> str:
        return f"i64 {self._value(value)}"

    def _window_product(self, statement: WindowProduct) -> None:
        x, w = statement.x, statement.w
        function = self.lines.helpers.windows(x.dtype)
        args = [self._place(x), f"ptr %b{statement.offsets}", self._place(w)]
        args += map(
            self._i64,
            (statement.w_panel, *(v for s in statement.steps for v in s), statement.depth),
        )
        args += [f"ptr %b{statement.tile}", self._i64(statement.rows), self._i64(statement.panels)]
        self.lines.void(f"call void @{function}({', '.join(args)})")

    def _byte_product(self, statement: ByteProduct) -> None:
        x, w = statement.x, statement.w
        function = self.lines.helpers.bytes(x.dtype, w.dtype)
        args = [self._place(x), self._i64(statement.x_row), self._place(w)]
        args += [*map(self._i64, (statement.w_row, statement.depth)), f"ptr %b{statement.tile}"]
        args += map(self._i64, (statement.rows, statement.columns))
        self.lines.void(f"call void @{function}({', '.join(args)})")

    def _byte_windows(self, statement: ByteWindows) -> None:
        x, w = statement.x, statement.w
        function = self.lines.helpers.byte_windows(x.dtype, w.dtype)
        args = [self._place(x), f"ptr %b{statement.offsets}", self._place(w)]
        args += [*map(self._i64, (statement.w_row, statement.depth)), f"ptr %b{statement.tile}"]
        args += map(self._i64, (statement.rows, statement.panels))
        args.append(f"i1 {self._value(statement.more)}")
        self.lines.void(f"call void @{function}({', '.join(args)})")

    def _pack_panels(self, statement: PackPanels) -> None:
        source, target = statement.source, statement.target
        function = self.lines.helpers.pack(source.dtype)
        args = [f"ptr {self._address(source.buffer, source.indices)}"]
        args.append(f"i64 {self._value(statement.row)}")
        args.append(f"ptr {self._address(target.buffer, target.indices)}")
        numbers = (statement.panel, statement.count, statement.depth)
        args += [f"i64 {self._value(n)}" for n in numbers]
        self.lines.void(f"call void @{function}({', '.join(args)})")

    def _poll_mask(self, body: Sequence[Statement]) -> str:
        """Turns of a loop with this body between two polls, minus 1; none where a loop inside is long."""
        loops = [s for s in all_statements(body) if isinstance(s, For)]
        deep = any(isinstance(t, For) for s in loops for t in all_statements(s.body))
        mask = str(POLL_TURNS_DEEP - 1 if deep else POLL_TURNS - 1)
        sizes = [s.extent for s in loops if _may_be_long(s.extent) and is_of_dims(s.extent)]
        b = self.lines
        for extent in dict.fromkeys(sizes):
            long = b.do(f"icmp sgt i64 {self._value(extent)}, {POLL_ELEMENTS}")
            mask = b.do(f"select i1 {long}, i64 0, i64 {mask}")
        return mask

    def _poll_now_and_then(self, turn: str, mask: str) -> None:
        """Ask whether to go on: the turns of an outermost loop that holds loops may take long."""
        b = self.lines
        name = b.name("turn")
        low = b.do(f"and i64 {turn}, {mask}")
        due = b.do(f"icmp eq i64 {low}, {mask}")
        b.void(f"br i1 {due}, label %{name}.ask, label %{name}.ok, !prof !1")
        b.label(f"{name}.ask")
        self._poll()
        b.void(f"br label %{name}.ok")
        b.label(f"{name}.ok")

    def _poll(self) -> None:
        """Leave the kernel with the status if the VM wants it to stop."""
        b = self.lines
        name = b.name("poll")
        function = self._context(CTX_POLL)
        none = b.do(f"icmp eq ptr {function}, null")
        b.void(f"br i1 {none}, label %{name}.ok, label %{name}.call")
        b.label(f"{name}.call")
        self._leave_unless_ok(b.do(f"call i32 {function}(ptr %ctx)"), name)

    def _leave_unless_ok(self, status: str, name: str) -> None:
        """End the kernel with a status that is not 0; else go on at the label `name`.ok."""
        b = self.lines
        go = b.do(f"icmp eq i32 {status}, 0")
        b.void(f"br i1 {go}, label %{name}.ok, label %{name}.stop, !prof !0")
        b.label(f"{name}.stop")
        b.void(f"ret i32 {status}")
        b.label(f"{name}.ok")

    def _context(self, offset: int) -> str:
        """A function that the runtime gives."""
        place = self.lines.do(f"getelementptr inbounds i8, ptr %ctx, i64 {offset}")
        return self.lines.do(f"load ptr, ptr {place}, align 8")

    def _node(self, text: str) -> str:
        """A numbered metadata node."""
        number = f"!{len(self.metadata)}"
        self.metadata.append(text.replace("!SELF", number))
        return number

    def _if(self, statement: If) -> None:
        b = self.lines
        cond = self._value(statement.cond)
        name = b.name("if")
        b.void(f"br i1 {cond}, label %{name}.then, label %{name}.else")
        b.label(f"{name}.then")
        self._scoped(statement.then)
        b.void(f"br label %{name}.end")
        b.label(f"{name}.else")
        self._scoped(statement.otherwise)
        b.void(f"br label %{name}.end")
        b.label(f"{name}.end")

    def _store(self, buffer: int, indices: tuple[Value, ...], value: Value) -> None:
        b = self.lines
        dtype = self.kernel.buffers[buffer].dtype
        found = self._total(value) if buffer in self.stack else self._value(value)
        if dtype == "bool":
            found = b.do(f"zext i1 {found} to i8")
        elif dtype == "float16":
            found = ops.float_to_half(b, found)
        b.void(
            f"store {MEMORY[dtype]} {found}, {self._pointer(buffer)} {self._address(buffer, indices)}"
            f"{self._access(dtype)}"
        )

    def _total(self, value: Value) -> str:
        """A new element of a tile: an Accumulate in another form, so a product may be fused into the sum."""
        if isinstance(value, Binary) and value.op in ("min", "max"):
            if dtypes.dtype(value.dtype).is_float:
                x, y = self._value(value.lhs), self._value(value.rhs)
                return ops.extreme(self.lines, value.op, x, y, REGISTER[value.dtype])
            return self._value(value)
        if not (
            isinstance(value, Binary)
            and value.op == "add"
            and value.dtype in ("float32", "float64")
        ):
            return self._value(value)
        old, term = self._value(value.lhs), value.rhs
        if isinstance(term, Binary) and term.op == "mul":
            new = self._fused_product(term)
        else:
            new = self._value(term)
        return self.lines.do(f"fadd contract {REGISTER[value.dtype]} {old}, {new}")

    def _access(self, dtype: str) -> str:
        group = f", !llvm.access.group {self.group}" if self.group else ""
        return f", align {dtypes.dtype(dtype).itemsize}{group}"

    def _address(self, buffer: int, indices: tuple[Value, ...]) -> str:
        b = self.lines
        position = "0"
        for (factor, size), index in zip(self.strides[buffer], indices, strict=True):
            at = self._value(index)
            if factor:
                at = b.do(f"mul nsw i64 {at}, {factor}")
            if position != "0":
                scaled = b.do(f"mul nsw i64 {position}, {size}")
                at = scaled if at == "0" else b.do(f"add nsw i64 {scaled}, {at}")
            position = at
        type_ = MEMORY[self.kernel.buffers[buffer].dtype]
        base = f"{self._pointer(buffer)} {self._base(buffer)}"
        return b.do(f"getelementptr inbounds {type_}, {base}, i64 {position}")

    def _pointer(self, buffer: int) -> str:
        """The type of a buffer's addresses."""
        return "ptr"

    def _base(self, buffer: int) -> str:
        """Where a buffer begins."""
        return f"%b{buffer}"

    def _accumulate(self, statement: Accumulate) -> None:
        b = self.lines
        local = statement.local
        type_, dtype = REGISTER[local.dtype], local.dtype
        fused = dtypes.dtype(dtype).is_float and statement.op in ("add", "mul")
        if fused and isinstance(statement.value, Binary) and statement.value.op == "mul":
            value = self._fused_product(statement.value)
        else:
            value = self._value(statement.value)
        old = b.do(f"load {type_}, ptr {self.locals[local]}")
        if fused:
            new = ops.rounded(
                b, b.do(f"f{statement.op} reassoc contract {type_} {old}, {value}"), dtype
            )
        else:
            new = ops.binary(b, statement.op, old, value, dtype)
        b.void(f"store {type_} {new}, ptr {self.locals[local]}")

    def _fused_product(self, value: Binary) -> str:
        x, y = self._value(value.lhs), self._value(value.rhs)
        return ops.binary(self.lines, "mul", x, y, value.dtype, contract=True)

    # --- values ---------------------------------------------------------------------------------

    def _fixed(self, value: Value) -> str | None:
        if isinstance(value, Const):
            return ops.literal(value.value, REGISTER[value.dtype])
        return f"%d{value.index}" if isinstance(value, DimRef) else None

    def _write(self, value: Value) -> str:
        b = self.lines
        operands = [self._known(p) or "" for p in parts(value)]
        match value:
            case Local(dtype=dtype):
                return b.do(f"load {REGISTER[dtype]}, ptr {self.locals[value]}")
            case Load(dtype=dtype, buffer=buffer, indices=indices):
                place = self._address(buffer, indices)
                raw = b.do(
                    f"load {MEMORY[dtype]}, {self._pointer(buffer)} {place}{self._access(dtype)}"
                )
                if dtype == "bool":
                    return b.do(f"icmp ne i8 {raw}, 0")
                return ops.half_to_float(b, raw) if dtype == "float16" else raw
            case Unary(op=op, operand=operand):
                return ops.unary(b, op, operands[0], operand.dtype)
            case Binary(op=op, dtype=dtype, rhs=rhs):
                if divides(value) and not nonzero(rhs):
                    self._check_divisor(operands[1], dtype)
                return ops.binary(b, op, operands[0], operands[1], dtype)
            case Compare(op=op, lhs=lhs):
                return ops.compare(b, op, operands[0], operands[1], lhs.dtype)
            case Select(dtype=dtype):
                type_ = REGISTER[dtype]
                return b.do(
                    f"select i1 {operands[0]}, {type_} {operands[1]}, {type_} {operands[2]}"
                )
            case Cast(dtype=dtype, operand=operand):
                return ops.cast(b, operands[0], operand.dtype, dtype)
            case CheckIndex(operand=number):
                ok = b.do(f"icmp ult i64 {operands[0]}, {operands[1]}")
                self._fail_unless(ok, IndexOutOfRange, number, operands[0], operands[1])
                return operands[0]
            case LoopVar(name=name):
                raise ValueError(
                    f"kernel {self.kernel.name}: loop variable {name} is used outside its loop"
                )
        raise TypeError(f"unknown value {type(value).__name__}")

    def _check_divisor(self, divisor: str, dtype: str) -> None:
        ok = self.lines.do(f"icmp ne {REGISTER[dtype]} {divisor}, 0")
        self._fail_unless(ok, DivisionByZero, -1, "0", "0")

    def _fail_unless(
        self, ok: str, error: type[NimbleError], operand: int, index: str, bound: str
    ) -> None:
        b = self.lines
        name = b.name("check")
        b.void(f"br i1 {ok}, label %{name}.ok, label %{name}.bad, !prof !0")
        b.label(f"{name}.bad")
        function = self._context(CTX_FAIL)
        args = f"ptr %ctx, i32 {NUMBER_OF[error]}, i32 {operand}, i64 {index}, i64 {bound}"
        status = b.do(f"call i32 {function}({args})")
        b.void(f"ret i32 {status}")
        b.label(f"{name}.ok")


__all__ = ["KernelText"]
