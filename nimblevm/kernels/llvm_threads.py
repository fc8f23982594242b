"""Kernels whose long loops run on several threads: each region (schedule/regions.py) is a function of its own.

    i32 @k.p0.body(ctx, operands, dims, .., first, last)     units first .. last - 1 of the region
    i32 @k.p0(ctx, closure, first, last)                     the same as ctx->parallel_for calls it

Where there is one unit, or the sizes make little work, the kernel calls the first one directly with all units: one call
more than a kernel without regions. Else ctx->parallel_for, which knows how many threads there are, gets the second one,
and the operands in an array on the stack. Operands' addresses so leave the kernel, which its other code must know (no
`nocapture`).

Turns of a loop around a region read the same weights, so parallel_for takes the units of every other region from the
last one on (native/src/call.c). The parts of a unit (loop_ir.py) come in the opposite order then too: a unit is several
products, and the last one's weights are what is surely still in the cache.
"""

from __future__ import annotations

from nimblevm.abi import CTX_PARALLEL_FOR
from nimblevm.kernels.llvm_kernel import KernelText
from nimblevm.kernels.llvm_ops import REGISTER, Helpers, Lines, literal
from nimblevm.kernels.loop_ir import For, Kernel, Local, LoopVar, Part, SetLocal, Value
from nimblevm.kernels.schedule import regions
from nimblevm.kernels.schedule.regions import Region
from nimblevm.kernels.schedule.work import Work

_MOST = literal(1e15, "double")


class ThreadedText(KernelText):
    """Writes one kernel and its regions."""

    def __init__(self, kernel: Kernel, symbol: str, helpers: Helpers, metadata: list[str]) -> None:
        super().__init__(kernel, symbol, helpers, metadata)
        self.regions = regions.regions_of(kernel)
        self.functions: list[str] = []
        if self.regions:
            self.capture = ""
            if all(s in self.regions or isinstance(s, SetLocal) for s in kernel.body):
                self.body_attributes = "#0"  # calls only: part of the outer function

    def text(self) -> str:
        found = super().text()
        return "\n".join([*self.functions, found])

    def _for(self, loop: For, *args: object, **named: object) -> None:
        region = self.regions.get(loop)
        if region is None or args or named:
            super()._for(loop, *args, **named)  # type: ignore[arg-type]
        else:
            self._dispatch(region)

    # --- the call -------------------------------------------------------------------------------

    def _arguments(self, region: Region) -> list[tuple[str, str]]:
        """(type, register) of what a region gets beside ctx and units; those of `_outside` have other names there."""
        found = [("ptr", f"%b{i}") for i in self.operands]
        found += [("i64", f"%d{i}") for i in range(self.n_dims)]
        found += [("i64", f"%s{i}") for i in self.pitch_of.values()]
        return found + [(REGISTER[v.dtype], f"%c{n}") for n, v in enumerate(_outside(region))]

    def _dispatch(self, region: Region) -> None:
        b = self.lines
        name = f"{self.symbol}.p{len(self.functions)}"
        self.functions.append("")
        self.functions[-1] = self._region(region, name)
        arguments = self._arguments(region)
        outside = _outside(region)
        values = [register for _, register in arguments[: len(arguments) - len(outside)]]
        values += [self._value(value) for value in outside]
        passed = [(type_, value) for (type_, _), value in zip(arguments, values, strict=True)]
        units = self._units(region)[0]
        label = b.name("region")
        closure = f"%{label}.closure"
        b.text.insert(1, f"  {closure} = alloca [{max(len(passed), 1)} x i64], align 8")
        # First whether there is anything to share: the estimate takes as long as a small product.
        several = b.do(f"icmp sgt i64 {units}, 1")
        b.void(f"br i1 {several}, label %{label}.several, label %{label}.one")
        b.label(f"{label}.several")
        self.scopes.append({})
        work = self._work(region.work)
        self.scopes.pop()
        self.temporary = {}
        big = b.do(f"icmp sge i64 {work}, {int(regions.MIN_WORK)}")
        b.void(f"br i1 {big}, label %{label}.many, label %{label}.one")
        b.label(f"{label}.many")
        for number, (type_, value) in enumerate(passed):
            place = b.do(f"getelementptr inbounds i64, ptr {closure}, i64 {number}")
            b.void(f"store {type_} {value}, ptr {place}, align 8")
        function = self._context(CTX_PARALLEL_FOR)
        call = f"ptr %ctx, i64 {units}, i64 {work}, ptr @{name}, ptr {closure}"
        many = b.do(f"call i32 {function}({call})")
        b.void(f"br label %{label}.end")
        b.label(f"{label}.one")
        call = ", ".join(f"{type_} {value}" for type_, value in passed)
        one = b.do(f"call i32 @{name}.body(ptr %ctx, {call}, i64 0, i64 {units})")
        b.void(f"br label %{label}.end")
        b.label(f"{label}.end")
        status = b.do(f"phi i32 [ {many}, %{label}.many ], [ {one}, %{label}.one ]")
        self._leave_unless_ok(status, label)

    def _work(self, work: Work) -> str:
        """An estimate of ns: a literal, or a register of i64."""
        if not any(work):
            return str(int(sum(work.values())))
        b = self.lines
        total = literal(work.get((), 0.0), "double")
        for sizes, ns in work.items():
            if not sizes:
                continue
            term = literal(ns, "double")
            for size in sizes:
                number = b.do(f"sitofp i64 {self._value(size)} to double")
                term = b.do(f"fmul double {term}, {number}")
            total = b.do(f"fadd double {total}, {term}")
        few = b.do(f"fcmp olt double {total}, {_MOST}")
        total = b.do(f"select i1 {few}, double {total}, double {_MOST}")
        return b.do(f"fptosi double {total} to i64")

    def _units(self, region: Region) -> list[str]:
        """Units of the whole nest, of one turn of its first loop, of one of its second, ...; the last is 1."""
        b = self.lines
        last = self._value(region.loops[-1].extent)
        if region.block > 1:
            rounded = b.do(f"add nsw i64 {last}, {region.block - 1}")
            last = b.do(f"sdiv i64 {rounded}, {region.block}")
        found = ["1", last]
        for loop in reversed(region.loops[:-1]):
            found.append(b.do(f"mul nsw i64 {self._value(loop.extent)}, {found[-1]}"))
        return found[::-1]

    # --- the function ---------------------------------------------------------------------------

    def _region(self, region: Region, name: str) -> str:
        """Both functions of a region."""
        outer = (self.lines, self.scopes, self.temporary, self.locals, self.strides, self.group)
        self.lines = Lines(outer[0].helpers)
        self.scopes, self.temporary, self.locals, self.strides, self.group = [{}], {}, {}, [], None
        self._begin(self.stack & set(region.buffers))
        for number, value in enumerate(_outside(region)):
            if isinstance(value, Local):
                type_ = REGISTER[value.dtype]
                self.lines.void(f"store {type_} %c{number}, ptr {self.locals[value]}")
            else:
                self.scopes[0][value] = f"%c{number}"
        self._level(region, 0, self._units(region)[1:], "%first", "%last")
        self.lines.void("ret i32 0")
        body = "\n".join(self.lines.text)
        self.lines, self.scopes, self.temporary, self.locals, self.strides, self.group = outer
        operands = {f"%b{i}" for i in self.operands if self.noalias[i]}
        arguments = self._arguments(region)
        params = [
            f"{t}{' nocapture' if t == 'ptr' else ''}{' noalias' if r in operands else ''} {r}"
            for t, r in arguments
        ]
        units = "i64 %first, i64 %last"
        head = f"define internal i32 @{name}.body(ptr %ctx, {', '.join(params)}, {units}) #2"
        return f"{head} {{\n{body}\n}}\n{self._wrapper(arguments, name)}"

    def _wrapper(self, arguments: list[tuple[str, str]], name: str) -> str:
        lines = Lines(self.lines.helpers)
        passed = []
        for number, (type_, _) in enumerate(arguments):
            place = lines.do(f"getelementptr inbounds i64, ptr %closure, i64 {number}")
            passed.append(f"{type_} " + lines.do(f"load {type_}, ptr {place}, align 8"))
        call = f"ptr %ctx, {', '.join(passed)}, i64 %first, i64 %last"
        status = lines.do(f"call i32 @{name}.body({call})")
        text = "\n".join(lines.text)
        head = f"define internal i32 @{name}(ptr %ctx, ptr %closure, i64 %first, i64 %last) #0"
        return f"{head} {{\nentry:\n{text}\n  ret i32 {status}\n}}\n"

    def _level(self, region: Region, depth: int, units: list[str], first: str, last: str) -> None:
        """The units first .. last - 1 of the loops from `depth` inward. units: of one turn, by depth."""
        b = self.lines
        loop = region.loops[depth]
        if depth == len(region.loops) - 1:
            if region.block > 1:
                extent = self._value(loop.extent)
                first = b.do(f"mul nsw i64 {first}, {region.block}")
                end = b.do(f"mul nsw i64 {last}, {region.block}")
                beyond = b.do(f"icmp slt i64 {end}, {extent}")
                last = b.do(f"select i1 {beyond}, i64 {end}, i64 {extent}")
            parts = [s for s in loop.body if isinstance(s, Part)]
            if len(parts) < 2 or not region.around:
                super()._for(loop, first, last)
                return

            def unit(turn: str) -> None:
                self.scopes.append({loop.var: turn})
                self._in_turns(parts, region.around[-1])
                self._block(loop.body[len(parts) :])
                self.scopes.pop()
                self.temporary = {}

            super()._for(loop, first, last, unit)
            return
        # No units at all where an inner size is 0: then the divisor is 1.
        some = b.do(f"icmp sgt i64 {units[depth]}, 1")
        each = b.do(f"select i1 {some}, i64 {units[depth]}, i64 1")
        begin = b.do(f"sdiv i64 {first}, {each}")
        rounded = b.do(f"add nsw i64 {last}, {each}")
        rounded = b.do(f"sub nsw i64 {rounded}, 1")
        end = b.do(f"sdiv i64 {rounded}, {each}")

        def inside(turn: str) -> None:
            start = b.do(f"mul nsw i64 {turn}, {each}")
            left = b.do(f"sub nsw i64 {first}, {start}")
            begun = b.do(f"icmp sgt i64 {left}, 0")
            from_ = b.do(f"select i1 {begun}, i64 {left}, i64 0")
            left = b.do(f"sub nsw i64 {last}, {start}")
            whole = b.do(f"icmp sgt i64 {left}, {each}")
            to = b.do(f"select i1 {whole}, i64 {each}, i64 {left}")
            scope: dict[Value, str] = {loop.var: turn}
            self.scopes.append(scope)
            self._level(region, depth + 1, units, from_, to)
            self.scopes.pop()
            self.temporary = {}

        super()._for(loop, begin, end, inside)

    def _in_turns(self, parts: list[Part], around: LoopVar) -> None:
        """Parts in order, or from the last one on in every other turn of the loop around."""
        b = self.lines
        name = b.name("parts")
        odd = b.do(f"and i64 {self._value(around)}, 1")
        odd = b.do(f"icmp ne i64 {odd}, 0")
        b.void(f"br label %{name}.pre")
        b.label(f"{name}.pre")
        b.void(f"br label %{name}.head")
        b.label(f"{name}.head")
        b.void(f"%{name}.i = phi i64 [ 0, %{name}.pre ], [ %{name}.next, %{name}.latch ]")
        other = b.do(f"sub nsw i64 {len(parts) - 1}, %{name}.i")
        part = b.do(f"select i1 {odd}, i64 {other}, i64 %{name}.i")
        cases = " ".join(f"i64 {k}, label %{name}.{k}" for k in range(len(parts)))
        b.void(f"switch i64 {part}, label %{name}.latch [ {cases} ]")
        for number, one in enumerate(parts):
            b.label(f"{name}.{number}")
            self._scoped(one.body)
            b.void(f"br label %{name}.latch")
        b.label(f"{name}.latch")
        b.void(f"%{name}.next = add nuw nsw i64 %{name}.i, 1")
        go = b.do(f"icmp slt i64 %{name}.next, {len(parts)}")
        b.void(f"br i1 {go}, label %{name}.head, label %{name}.exit")
        b.label(f"{name}.exit")


def _outside(region: Region) -> tuple[Value, ...]:
    """What a region reads that is set around it: locals, and the turns of the loops around."""
    return (*region.carried, *region.around)


__all__ = ["ThreadedText"]
