"""Loop IR -> machine code. The only importer of llvmlite; without it, or without a linker,
programs are IR only.

    code = build(kernels, "native")      # NativeCode or None
    code.elf                             # a freestanding shared object that exports nvm_kernel_table
    code.functions[i]                    # index of kernels[i] in the table, or -1: it has no generated code
    build_all(kernels, parse_targets("x86-64-v3,aarch64"))     # one NativeCode a target, the best first

Targets: "native" or "llvm" (this machine), the levels of targets.py ("x86-64-v3", "aarch64", ...: for any machine,
always the same bytes), "none". `NativeCode.target` names what the code needs: "x86_64:+avx2,+fma,...".
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nimblevm.abi import KERNEL_ABI
from nimblevm.errors import CompileError, MachineCodeWarning, Unsupported, warn
from nimblevm.kernels import link, llvm_half, llvm_processes, targets
from nimblevm.kernels.llvm_ops import SCHEDULED, Helpers
from nimblevm.kernels.llvm_panel_calls import ANY, PanelCalls
from nimblevm.kernels.llvm_processes import compile_all
from nimblevm.kernels.llvm_threads import ThreadedText
from nimblevm.kernels.loop_ir import Kernel, PanelProduct
from nimblevm.kernels.rewrite import all_statements
from nimblevm.kernels.schedule import schedule
from nimblevm.kernels.schedule.byte_products import has_byte_product, has_byte_tile
from nimblevm.kernels.variants import Choices

if importlib.util.find_spec("llvmlite") is not None:
    import llvmlite
    import llvmlite.binding as binding

    HAVE_LLVM = True
else:
    HAVE_LLVM = False

PART_CHARACTERS = 250_000
"""Text of kernels after which a module is full: a second of LLVM's time; what two modules need is compiled twice. Twice
as much of all modules, micro-kernels too, is worth the 0.3 s that another process takes to start.
"""

_NONE = ("none", "ir")
_TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
PTX_TRIPLE = "nvptx64-nvidia-cuda"


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What code is made for.

    arch: "x86_64" or "aarch64". features: LLVM names, sorted. tune: CPU to schedule for, or "". name: as the file's
    producer is to name it.
    """

    arch: str
    features: tuple[str, ...]
    tune: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        """As the file's section table names it."""
        return targets.section_text(self.arch, self.features)


@dataclass(frozen=True, slots=True)
class NativeCode:
    """One native section.

    functions: per kernel its index in the table, or -1. producer: versions, for the file's header.
    """

    target: str
    elf: bytes
    count: int
    functions: tuple[int, ...]
    producer: dict[str, str]


def parse_target(name: str) -> TargetInfo | None:
    """The target of a name; None for "none". CompileError for an unknown one. Needs llvmlite for "native".

    TVM's "llvm -mcpu=LEVEL" is read too.
    """
    if not isinstance(name, str):
        raise TypeError(f'target must be a name such as "native", not {type(name).__name__}')
    name = name.strip().removeprefix("llvm -mcpu=")
    if name in _NONE:
        return None
    if name in ("native", "llvm"):
        return _host()
    level = targets.BY_NAME.get("x86-64" if name == "generic" else name)
    if level is None:
        known = ", ".join(("native", "llvm", "generic", *targets.BY_NAME, "none"))
        raise CompileError(f"unknown target {name!r}; known: {known}")
    return TargetInfo(level.arch, tuple(sorted(level.features)), name=level.name)


def parse_targets(names: str | Sequence[str]) -> tuple[TargetInfo | None, ...]:
    """The targets of a list, or of a text with commas: those with most features first, since a loader takes the first
    that fits. None stands for "native" where this machine can't be compiled for; "none" alone gives ().

    Raises CompileError for an unknown target, and for "none" among others.
    """
    if not isinstance(names, str | Sequence):
        kind = type(names).__name__
        raise TypeError(f'target must be a name such as "native", or a list of names, not {kind}')
    split = names.split(",") if isinstance(names, str) else list(names)
    found = {info.text if info else "": info for info in reversed(list(map(parse_target, split)))}
    none = [name for name in split if name.strip() in _NONE]
    if not split:
        raise CompileError('target: an empty list; say "none" for no machine code')
    if none and len(split) > 1:
        raise CompileError(f"target: {none[0].strip()!r} can't be combined with other targets")
    if none:
        return ()
    order = {arch: number for number, arch in enumerate(targets.ARCHS)}
    return tuple(
        sorted(
            found.values(), key=lambda i: (order[i.arch], -len(i.features), i.text) if i else (-1,)
        )
    )


def _host() -> TargetInfo | None:
    if not HAVE_LLVM:
        return None
    arch = binding.get_process_triple().split("-")[0]
    if arch not in _TRIPLES:
        return None
    has = {name for name, on in binding.get_host_cpu_features().items() if on}
    most = next(level for level in reversed(targets.LEVELS) if level.arch == arch)
    features = tuple(sorted(f for f in most.features if f in has))
    cpu = binding.get_host_cpu_name()
    return TargetInfo(arch, features, cpu, f"native ({cpu})")


def build(
    kernels: Sequence[Kernel], target: str = "native", choices: Choices | None = None
) -> NativeCode | None:
    """Compile kernels into one native section; `choices`: of a tuning record.

    None if the target is "none", if no kernel has generated code, or, with a MachineCodeWarning, if
    llvmlite or a linker is missing. Equal kernels, target, llvmlite and linker give equal bytes.
    """
    found = build_all(kernels, parse_targets(target), choices)
    return found[0] if found else None


def build_all(
    kernels: Sequence[Kernel], infos: Sequence[TargetInfo | None], choices: Choices | None = None
) -> tuple[NativeCode, ...]:
    """A native section for each target that this machine can compile and link for; warns of the others. All have equal
    `functions`.
    """
    if not infos or not kernels:
        return ()
    if not HAVE_LLVM:
        _ir_only("llvmlite is not installed (pip install 'nimblevm[compiler]')", "")
        return ()
    # Two that ask for the same are one.
    asked = [info and _asked(info, kernels, choices) for info in infos]
    found = {info.text if info else "": info for info in asked}
    sections = (_section(kernels, info, choices) for info in found.values())
    return tuple(code for code in sections if code is not None)


def _section(
    kernels: Sequence[Kernel], info: TargetInfo | None, choices: Choices | None
) -> NativeCode | None:
    if info is None:
        _ir_only("this machine's architecture has no code generator", "")
        return None
    texts, functions = module_texts(kernels, info, choices)
    count = sum(index >= 0 for index in functions)
    if count == 0:
        return None
    objects = compile_all(texts, info, compile_text, 2 * PART_CHARACTERS)
    if set().union(*map(link.undefined_symbols, objects)) & link.SUPPORTED:
        objects.append(compile_text(support_text(info), info))
    try:
        elf, linker = link.link(objects, info.arch)
    except link.LinkError as error:
        _ir_only(str(error), f" for {info.name}")
        return None
    version = ".".join(map(str, binding.llvm_version_info))
    producer = {
        "llvmlite": f"{llvmlite.__version__} (LLVM {version})",
        "linker": linker,
        "target": info.name or info.text,
    }
    return NativeCode(info.text, elf, count, functions, producer)


def _asked(info: TargetInfo, kernels: Sequence[Kernel], choices: Choices | None) -> TargetInfo:
    """The target without what no kernel has a use for: the section then fits more machines."""
    beyond = set(info.features).intersection(targets.BEYOND)
    of_bytes = (schedule(k, info.features, choices) for k in kernels if has_byte_product(k))
    if not beyond or any(map(has_byte_tile, of_bytes)):
        return info
    return replace(info, features=tuple(f for f in info.features if f not in beyond))


def _ir_only(why: str, what: str) -> None:
    warn(
        f"{why}: the executable gets no machine code{what} and its kernels are interpreted"
        f"{' there' if what else ''}",
        MachineCodeWarning,
    )


class _Part:
    """A module with some of the kernels, and the helpers that they need."""

    def __init__(self, info: TargetInfo, products: Sequence[PanelCalls]) -> None:
        rounds = "sse4.1" in info.features or info.arch != "x86_64"
        self.helpers = Helpers(rounds, info.features, products)
        self.metadata = [
            '!{!"branch_weights", i32 2000, i32 1}',
            '!{!"branch_weights", i32 1, i32 64}',
        ]
        self.texts: list[str] = []

    def full(self) -> bool:
        return sum(map(len, self.texts)) >= PART_CHARACTERS

    def add(self, kernel: Kernel, symbol: str) -> None:
        """A scheduled kernel. Unsupported: it has no generated code."""
        self.texts.append(ThreadedText(kernel, symbol, self.helpers, self.metadata).text())

    def text(self, info: TargetInfo, table: str = "") -> str:
        nodes = "".join(f"!{i} = {text}\n" for i, text in enumerate(self.metadata))
        return _module([*self.helpers.texts.values(), *self.texts, table], info, nodes)


def _module(pieces: Sequence[str], info: TargetInfo, metadata: str = "") -> str:
    """LLVM IR of a module with these functions."""
    common = _attributes(info)
    attributes = (
        f"attributes #0 = {{ {common} }}\n"
        f"attributes #1 = {{ alwaysinline {common} }}\n"
        f"attributes #2 = {{ noinline {common} }}\n"
    )
    head = f'target triple = "{_TRIPLES[info.arch]}"\n'
    return "\n".join([head, *pieces, attributes, metadata])


def module_texts(
    kernels: Sequence[Kernel], info: TargetInfo, choices: Choices | None = None
) -> tuple[list[str], tuple[int, ...]]:
    """LLVM IR of the modules of a section, of about PART_CHARACTERS each, and per kernel its index in the table, -1
    where an operation has no generated code. The last one holds the table, the first ones micro-kernels.
    """
    scheduled = [schedule(kernel, info.features, choices) for kernel in kernels]
    products = _products(scheduled)
    parts = [_Part(info, products)]
    functions: list[int] = []
    count = 0
    for kernel in scheduled:
        if parts[-1].full():
            parts.append(_Part(info, products))
        try:
            parts[-1].add(kernel, f"k{count}")
        except Unsupported:
            functions.append(-1)
            continue
        functions.append(count)
        count += 1
    own = len(parts[-1].texts)
    outside = "".join(f"declare hidden i32 @k{i}(ptr, ptr, ptr)\n" for i in range(count - own))
    names = ", ".join(f"ptr @k{i}" for i in range(count))
    table = (
        f"{outside}@nvm_kernel_table = constant {{ i32, i32, [{count} x ptr] }} "
        f"{{ i32 {KERNEL_ABI}, i32 {count}, [{count} x ptr] [{names}] }}, align 8\n"
    )
    shared: dict[str, str] = {}
    for part in parts:
        shared |= part.helpers.modules
    texts = [_module([text], info) for text in shared.values()]
    texts += [part.text(info) for part in parts[:-1]]
    return [*texts, parts[-1].text(info, table)], tuple(functions)


def _products(kernels: Sequence[Kernel]) -> tuple[PanelCalls, ...]:
    """Of kernels' products, those that have most in common with others first."""
    found = {
        PanelCalls.of(statement)
        for kernel in kernels
        for statement in all_statements(kernel.body)
        if isinstance(statement, PanelProduct) and statement.beside is None
    }
    return tuple(sorted(found, key=lambda c: (c.most_rows != ANY, c.panels_known != ANY, c.symbol)))


def support_text(info: TargetInfo) -> str:
    """Functions of link.SUPPORTED. Where halves are converted inline, nothing calls for their conversion."""
    half = link.SUPPORT_HALF if llvm_half.has_instructions(info.features) else ""
    return f'target triple = "{_TRIPLES[info.arch]}"\n{link.SUPPORT}{half}\nattributes #0 = {{ {_attributes(info)} }}\n'


def _attributes(info: TargetInfo) -> str:
    features = ",".join(f"+{f}" for f in info.features)
    cpu = "x86-64" if info.arch == "x86_64" else "generic"
    tune = f' "tune-cpu"="{info.tune}"' if info.tune else ""
    return f'nounwind "no-builtins" "target-cpu"="{cpu}" "target-features"="{features}"{tune}'


def compile_text(text: str, info: TargetInfo) -> bytes:
    """Object code of LLVM IR, optimised."""
    machine, module = prepared(text, info)
    found: bytes = machine.emit_object(module)
    return found


def prepared(text: str, info: TargetInfo) -> tuple[Any, Any]:
    """LLVM's machine of a target, and the module of LLVM IR after its passes.

    Speed level 2: 3 gives no faster kernels (measured: dense, batch_matmul, broadcasts, tanh), but
    unrolls the loops over tiles before they become vectors, at three times the compile time.
    """
    machine = _machine(
        _TRIPLES[info.arch],
        "x86-64" if info.arch == "x86_64" else "generic",
        ",".join(f"+{f}" for f in info.features),
    )
    if SCHEDULED in text:
        return machine, _tidied(text, machine)
    return machine, _optimised(text, machine, vectorise=True)


def ptx(text: str, arch: str, version: str) -> str:
    """PTX of LLVM IR for a GPU such as "sm_70", as a version of PTX such as "ptx60". CompileError without llvmlite."""
    if not HAVE_LLVM:
        raise CompileError("code for CUDA devices needs llvmlite: pip install 'nimblevm[compiler]'")
    machine = _machine(PTX_TRIPLE, arch, f"+{version}")
    found: str = machine.emit_assembly(_optimised(text, machine, vectorise=False))
    return found


def _machine(triple: str, cpu: str, features: str) -> Any:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default"
    )


def _optimised(text: str, machine: Any, vectorise: bool) -> Any:
    """The module of LLVM IR, optimised; what stands side by side in lanes is for a CPU to find."""
    module = binding.parse_assembly(text)
    module.data_layout = str(machine.target_data)
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = vectorise
    options.slp_vectorization = vectorise
    options.loop_interleaving = vectorise
    options.loop_unrolling = True
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def _tidied(text: str, machine: Any) -> Any:
    """The module of LLVM IR whose loops are unrolled and scheduled: literals passed on, tests of loops at their ends.

    All passes give the same loops, but for an instruction of 20 here or there, in eight times the time
    (tests/kernels/test_llvm_panels.py compares those of panels and of windows).
    """
    module = binding.parse_assembly(text)
    module.data_layout = str(machine.target_data)
    passes = binding.create_new_module_pass_manager()
    passes.add_ipsccp_pass()
    passes.add_dead_arg_elimination_pass()
    for rotated in (False, True):
        if rotated:
            passes.add_loop_rotate_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
    passes.run(
        module, binding.create_pass_builder(machine, binding.create_pipeline_tuning_options())
    )
    return module


def serve() -> None:
    """A process of llvm_processes: compile what stdin asks for."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    llvm_processes.serve(sys.stdin.buffer, answers, compile_text)


__all__ = [
    "HAVE_LLVM", "PTX_TRIPLE", "NativeCode", "TargetInfo", "build", "build_all", "compile_text", "module_texts",
    "parse_target", "parse_targets", "prepared", "ptx", "serve", "support_text",
]  # fmt: skip
