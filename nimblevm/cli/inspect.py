"""nimblevm inspect"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

import nimblevm as nvm
from nimblevm.bytecode.describe import (
    ConstantDescription,
    Description,
    KernelDescription,
    SectionDescription,
    describe,
)
from nimblevm.bytecode.types import FunctionInfo
from nimblevm.bytecode.weights import WeightInfo
from nimblevm.cli.console import say, table
from nimblevm.cli.options import AsJson, ExecutableFile

_CONSTANTS = 10


def inspect(
    file: ExecutableFile,
    every: Annotated[
        bool,
        typer.Option("--all", help="Also functions that the compiler made, and all constants."),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Check every digest, the constants' too, and say what was checked."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what is in an executable: signatures, dims, kernels, constants, sections, who made it.

    The first table says what `nimblevm run` wants: `%x: Tensor[(?n, 4), float32]` is a parameter x, a tensor whose
    first axis may have any size. The second lists the constructors that JSON inputs may use.

    \b
    Examples:
      nimblevm inspect model.nvm
      nimblevm inspect model.nvm --verify
      nimblevm inspect model.nvm --json > model.json
    """
    started = time.perf_counter()
    with nvm.load(file, verify="full" if verify else None, weights=False) as exe:
        took = time.perf_counter() - started
        found = describe(exe)
        functions = list(exe.functions.values())
        checks = _checks(found, functions, took) if verify else []
        if as_json:
            say(json.dumps(_as_json(file, exe, found, functions, checks), indent=1))
            return
        _show_functions(functions, every)
        rows_of_types = [
            (f"{c.adt}.{c.name}", f"({', '.join(c.fields)})") for c in exe.constructors[1:]
        ]  # the first is the tuple
        table(("constructor", "fields"), rows_of_types)
    _show_contents(found, every)
    for check in checks:
        say(f"checked: {check}")


def _show_functions(functions: list[FunctionInfo], every: bool) -> None:
    shown = [f for f in functions if every or f.public]
    rows = [
        (
            f"@{f.name}" + ("" if f.public else "\n(internal)"),
            "\n".join(f"%{p.name}: {p.text}" for p in f.params),
            f.result_text,
            "\n".join(f"?{d.name}" + (f" from %{d.param}" if d.param else "") for d in f.dims),
            "\n".join(f.checked),
        )
        for f in shown
    ]
    table(("function", "parameters", "result", "dims", "checked at entry"), rows)
    hidden = len(functions) - len(shown)
    if hidden:
        say(f"{hidden} internal functions not shown (--all)")


def _kind(kernel: KernelDescription) -> str:
    """As in "loop IR, blas": the runtimes of its external code first to last."""
    kinds = () if kernel.kind == "external" else (kernel.kind,)
    return ", ".join((*kinds, *kernel.external))


def _show_contents(found: Description, every: bool) -> None:
    kernels = [
        (k.name, _kind(k), k.signature, _machine_code(k.native, k.targets)) for k in found.kernels
    ]
    table(("kernel", "kind", "signature", "machine code"), kernels)
    largest = sorted(found.constants, key=lambda c: -c.size)
    shown = largest if every else largest[:_CONSTANTS]
    constants = [(f"c{c.index}", c.text, f"{c.size:,}", c.weight) for c in shown]
    width = 4 if found.weights else 3
    columns = ("constant", "type", "bytes", "made of")[:width]
    table(columns, [row[:width] for row in constants], right=(2,))
    if len(largest) > len(shown):
        rest = sum(c.size for c in largest[len(shown) :])
        say(f"{len(largest) - len(shown)} smaller constants of {rest:,} bytes not shown (--all)")
    weights = [(w.name, str(w), f"{w.nbytes:,}") for w in found.weights]
    table(("weight left out", "type", "bytes"), weights, right=(2,))
    if found.weights_file:
        say(f"weights lie in {found.weights_file}")
    sections = [
        (s.kind, f"{s.size:,}", s.digest[:16], s.level or s.target, _use(s)) for s in found.sections
    ]
    table(("section", "bytes", "SHA-256", "target", "used here"), sections, right=(1,))
    facts = [*found.producer.items(), ("devices", _devices(found.devices))]
    facts += [("format", str(found.format_version)), ("bytes", f"{found.size:,}")]
    facts.append(("signed", "yes (run --public-key checks it)" if found.signed else "no"))
    table(("producer", ""), facts)


def _devices(table: tuple[str, ...]) -> str:
    """The host, then for each other device the backends that may serve it."""
    return "; ".join(" or ".join(names.split(",")) for names in table)


def _machine_code(native: bool, targets: tuple[str, ...]) -> str:
    if not targets:
        return "yes" if native else "no"
    return f"{'yes' if native else 'not here'}: {', '.join(targets)}"


def _use(section: SectionDescription) -> str:
    if section.used:
        return "yes"
    return f"no: {section.why_not}" if section.why_not else ""


def _checks(found: Description, functions: list[FunctionInfo], took: float) -> list[str]:
    """What loading with verify="full" did; it raised otherwise."""
    sections = len(found.sections)
    size = sum(s.size for s in found.sections)
    words = sum(f.words for f in functions)
    bodies = sum(k.ir_size > 0 for k in found.kernels)
    in_c = sum(k.kind == "C" for k in found.kernels)
    machine_code = [s for s in found.sections if s.kind == "native code"]
    made = [
        f"fixed header and msgpack header ({found.header_size:,} bytes): layout, limits, SHA-256",
        f"{sections} sections ({size:,} bytes, constants too): places, padding, SHA-256",
        f"code of {len(functions)} functions ({words:,} words): operands, registers, jumps, calls (code verifier)",
        f"kernels: {bodies} bodies in kernel IR parsed and typed, {in_c} in C with the runtime's own signature",
    ]
    if machine_code:
        made.append(
            f"machine code: the SHA-256 of {len(machine_code)} sections and nothing more; it is trusted, open a "
            "stranger's file with --no-native"
        )
    if found.weights:
        made.append(
            f"nothing of the {len(found.weights)} weights outside of the file: binding checks names, dtypes, shapes"
        )
    if found.signed:
        made.append("not the signature: that takes its public key (run --public-key)")
    return [*made, f"all in {took * 1e3:.1f} ms"]


def _as_json(
    file: Path,
    exe: nvm.Executable,
    found: Description,
    functions: list[FunctionInfo],
    checks: list[str],
) -> dict[str, Any]:
    return {
        "file": str(file),
        "bytes": found.size,
        "header_bytes": found.header_size,
        "format_version": found.format_version,
        "producer": found.producer,
        "devices": found.devices,
        "sources": found.sources,
        "warning": exe.warning,
        "functions": [_function_json(f) for f in functions],
        "constructors": [
            {"type": c.adt, "name": c.name, "fields": c.fields} for c in exe.constructors[1:]
        ],
        "kernels": [_kernel_json(k) for k in found.kernels],
        "constants": [_constant_json(c) for c in found.constants],
        "weights": [_weight_json(w) for w in found.weights],
        "weights_file": found.weights_file or None,
        "signed": found.signed,
        "sections": [_section_json(s) for s in found.sections],
        "checked": checks,
    }


def _function_json(f: FunctionInfo) -> dict[str, Any]:
    return {
        "name": f.name,
        "public": f.public,
        "parameters": [{"name": p.name, "type": p.text} for p in f.params],
        "result": f.result_text,
        "dims": [{"name": d.name, "bound_by": d.param} for d in f.dims],
        "checked": f.checked,
        "int_registers": f.ints,
        "object_registers": f.objs,
        "words": f.words,
    }


def _kernel_json(k: KernelDescription) -> dict[str, Any]:
    return {
        "name": k.name,
        "kind": k.kind,
        "signature": k.signature,
        "machine_code": k.native,
        "targets": k.targets,
        "may_fail": k.may_fail,
        "ir_bytes": k.ir_size,
        "external": k.external,
    }


def _constant_json(c: ConstantDescription) -> dict[str, Any]:
    return {
        "dtype": c.dtype,
        "shape": c.shape,
        "bytes": c.size,
        "device": c.device,
        "weight": c.weight or None,
    }


def _weight_json(w: WeightInfo) -> dict[str, Any]:
    return {
        "name": w.name,
        "dtype": w.dtype,
        "shape": w.shape,
        "bytes": w.nbytes,
        "sha256": w.digest.hex() or None,
    }


def _section_json(s: SectionDescription) -> dict[str, Any]:
    return {
        "kind": s.kind,
        "offset": s.offset,
        "bytes": s.size,
        "sha256": s.digest,
        "target": s.target,
        "level": s.level,
        "used": s.used,
        "why_not": s.why_not,
    }


__all__ = ["inspect"]
