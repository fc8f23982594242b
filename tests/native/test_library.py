"""libnimblevm.so and its header: what is exported, what it needs, how it is named."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.native.build import NATIVE, built

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
HEADER = NATIVE / "include" / "nvm_api.h"


def declared() -> set[str]:
    """The functions that nvm_api.h declares (its inline helpers define themselves)."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    region = text[: text.index("static inline")]
    return set(re.findall(r"\b(nvm_\w+)\(", region))


def symbols(library: Path, *flags: str) -> dict[str, str]:
    """name -> type of what nm lists."""
    done = subprocess.run(["nm", *flags, str(library)], capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {row[-1].split("@")[0]: row[-2] for row in rows if len(row) >= 2}


def test_shared_library_exports_the_header_and_nothing_else() -> None:
    exported = symbols(built() / "libnimblevm.so", "-D", "--defined-only")
    assert set(exported) == declared()
    assert set(exported.values()) == {"T"}


def test_shared_library_needs_the_c_library_alone() -> None:
    wanted = symbols(built() / "libnimblevm.so", "-D", "--undefined-only")
    assert not [n for n in wanted if re.match(r"_?Py|_Z|__cxa_(?!finalize)|__gxx|_Unwind", n)]
    done = subprocess.run(
        ["readelf", "-d", str(built() / "libnimblevm.so")],
        capture_output=True,
        text=True,
        check=True,
    )
    needed = set(re.findall(r"NEEDED.*\[(\w+)", done.stdout))
    assert needed <= {"libc", "libm", "libdl", "libpthread", "ld"}
    version = re.search(
        r'^version = "(\d+\.\d+)', (NATIVE.parent / "pyproject.toml").read_text(), re.M
    )
    assert version is not None
    assert f"[libnimblevm.so.{version[1]}]" in done.stdout


def test_static_library_defines_no_foreign_names() -> None:
    defined = symbols(built() / "libnimblevm.a", "-g", "--defined-only")
    assert not [name for name in defined if not name.startswith("nvm_")]


CORE_BYTES = 103_200
"""What native/src may take, .text and .rodata linked, 1 % above what it is (docs/c-api.md, "Size"): reader, verifier, VM,
values in and out, profiling. Without kernels (the interpreter of kernel IR is among those), devices (what opens them and
maps machine code is among those), and native/weights.
"""
OUTSIDE = (
    *("nvm_kernel_ir_", "nvm_c_kernel_", "nvm_device_find", "nvm_native_", "nvm_cpu_"),
    *("nvm_vm_open_devices", "nvm_vm_close_devices", "nvm_vm_sync", "nvm_device_check_code"),
)
"""What the core asks of kernels and devices, and it asks nothing of native/weights."""


def test_size_of_the_core(tmp_path: Path) -> None:
    objects = [built() / "src" / f"{source.stem}.o" for source in (NATIVE / "src").glob("*.c")]
    core = tmp_path / "core.so"
    command = ["cc", "-shared", "-Wl,--unresolved-symbols=ignore-all", "-o", str(core)]
    subprocess.run([*command, *map(str, objects)], check=True)
    asked = {n for n in symbols(core, "-D", "--undefined-only") if n.startswith("nvm_")}
    assert not [name for name in asked if not name.startswith(OUTSIDE)]
    done = subprocess.run(["size", "-A", str(core)], capture_output=True, text=True, check=True)
    sizes = dict(re.findall(r"^(\.text|\.rodata)\s+(\d+)", done.stdout, re.M))
    assert sum(map(int, sizes.values())) <= CORE_BYTES, sizes


TOPS = {"vm.c", "program.c"}
"""Where the parts come together: the calls of the API on a VM, and the reader of files."""


def test_includes_form_no_circle() -> None:
    """A part of the library is a header with the source beside it; parts know each other in one direction."""
    folders = [NATIVE / name for name in ("include", "src", "kernels", "devices", "weights")]
    needs: dict[str, set[str]] = {}
    for folder in folders:
        for path in folder.rglob("*.[ch]"):
            included = re.findall(r'^#include "(?:.*/)?(\w+)\.h"', path.read_text(), re.M)
            part = path.name if path.name in TOPS else path.stem
            needs.setdefault(part, set()).update(n for n in included if n != part)
    done: set[str] = set()
    while ready := {part for part, needed in needs.items() if needed & needs.keys() <= done} - done:
        done |= ready
    assert not needs.keys() - done, "these parts include each other"


def test_documentation_is_current() -> None:
    tool = NATIVE.parent / "tools" / "c_api_doc.py"
    done = subprocess.run(
        [sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"run tools/c_api_doc.py\n{done.stdout[-2000:]}{done.stderr}"


def test_program_of_the_guide_compiles(tmp_path: Path) -> None:
    found = re.search(
        r"```c\n(.*?)```", (NATIVE.parent / "docs" / "c-api.md").read_text(), re.DOTALL
    )
    assert found is not None
    (tmp_path / "guide.c").write_text(found[1])
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{HEADER.parent}"]
    subprocess.run(["cc", *flags, str(tmp_path / "guide.c")], check=True)


def test_header_stands_alone_in_c_and_cxx(tmp_path: Path) -> None:
    source = tmp_path / "user.c"
    source.write_text(
        '#include "nvm_api.h"\nint main(void) { return nvm_arg_int(0).int_value != 0; }\n'
    )
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsyntax-only"]
    compilers = [["cc", "-std=c11"]]
    if shutil.which("c++"):
        compilers.append(["c++", "-x", "c++", "-std=c++11"])
    for compiler in compilers:
        command = [*compiler, *flags, f"-I{HEADER.parent}", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_no_two_files_call_each_other() -> None:
    """Files of the library stand on each other in one order: CycleError names those that don't."""
    done = subprocess.run(
        ["nm", "-A", str(built() / "libnimblevm.a")], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    names = [(row[0].split(":")[1], row[-2], row[-1]) for row in rows]  # 'lib.a:vm.o:0001 T name'
    home = {name: file for file, kind, name in names if kind in "BDRTV"}
    calls: dict[str, set[str]] = {}
    for file, kind, name in names:
        if kind == "U" and name in home:
            calls.setdefault(file, set()).add(home[name])
    assert list(TopologicalSorter(calls).static_order())
