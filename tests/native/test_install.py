"""`make install`: a C program built against the installed tree alone, by plain cc with pkg-config and by CMake, static
and shared."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import nimblevm as nvm
from tests.native.build import make

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

INSTALLED = {
    "bin/nvm-run",
    "include/nimblevm/generated/nvm_abi.h",
    "include/nimblevm/generated/nvm_dtype.h",
    "include/nimblevm/generated/nvm_status.h",
    "include/nimblevm/nvm_api.h",
    "include/nimblevm/nvm_kernel.h",
    "lib/cmake/NimbleVM/NimbleVMConfig.cmake",
    "lib/cmake/NimbleVM/NimbleVMConfigVersion.cmake",
    "lib/libnimblevm.a",
    "lib/libnimblevm.so",
    "lib/pkgconfig/nimblevm.pc",
}

SOURCE = """#include <nvm_api.h>
#include <stdio.h>

int main(int argc, char **argv) {
  nvm_program *program;
  nvm_vm *vm;
  nvm_result *result;
  const float data[] = {1, 2, 3};
  const int64_t shape[] = {3};
  const nvm_arg x = nvm_arg_tensor(NVM_DTYPE_FLOAT32, 1, shape, data);
  if (argc < 2 || nvm_program_open(argv[1], 0, &program) || nvm_vm_create(program, NULL, &vm) ||
      nvm_vm_call(vm, "main", &x, 1, &result)) {
    fprintf(stderr, "%s: %s\\n", nvm_status_name(nvm_last_error()->code), nvm_last_error()->message);
    return 1;
  }
  const float *y = nvm_result_root(result)->data;
  printf("%g %g %g\\n", (double)y[0], (double)y[1], (double)y[2]);
  nvm_result_free(result);
  nvm_vm_destroy(vm);
  nvm_program_release(program);
  return 0;
}
"""

CMAKE = """cmake_minimum_required(VERSION 3.13)
project(user C)
find_package(NimbleVM 0.2 REQUIRED)
add_executable(shared user.c)
target_link_libraries(shared PRIVATE NimbleVM::nimblevm)
add_executable(static user.c)
target_link_libraries(static PRIVATE NimbleVM::nimblevm_static)
"""


def files(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir()}


def output(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prefix")
    make("install", f"PREFIX={path}")
    return path


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A folder with a C program and the executable that it runs."""
    (tmp_path / "user.c").write_text(SOURCE)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(?), float32]) { %x + %x }'
    with nvm.compile(nvm.relay.parse(text), native=False) as exe:
        exe.save(tmp_path / "model.nvm")
    return tmp_path


def test_tree(prefix: Path) -> None:
    links = {f"lib/libnimblevm.so.{'.'.join(nvm.__version__.split('.')[:n])}" for n in (2, 3)}
    assert files(prefix) == INSTALLED | links
    assert (prefix / "lib/libnimblevm.so").resolve().name == f"libnimblevm.so.{nvm.__version__}"


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="needs pkg-config")
@pytest.mark.parametrize("kind", ["shared", "static"])
def test_plain_cc(kind: str, prefix: Path, user: Path) -> None:
    config = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    flags = output("pkg-config", "--cflags", "--libs", "nimblevm", cwd=user, **config).split()
    if kind == "static":
        words = output(
            "pkg-config", "--cflags", "--libs", "--static", "nimblevm", cwd=user, **config
        )
        flags = [w.replace("-lnimblevm", "-l:libnimblevm.a") for w in words.split()]
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    output("cc", *warnings, "user.c", *flags, "-o", kind, cwd=user)
    found = {"LD_LIBRARY_PATH": str(prefix / "lib")} if kind == "shared" else {}
    assert output(user / kind, "model.nvm", cwd=user, **found) == "2 4 6\n"


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_cmake(prefix: Path, user: Path) -> None:
    output("cmake", "-S", ".", "-B", "out", f"-DCMAKE_PREFIX_PATH={prefix}", cwd=user)
    output("cmake", "--build", "out", cwd=user)
    for kind in ("shared", "static"):
        assert output(user / "out" / kind, "model.nvm", cwd=user) == "2 4 6\n"
    (user / "CMakeLists.txt").write_text(CMAKE.replace("NimbleVM 0.2", "NimbleVM 0.3"))
    done = subprocess.run(
        ["cmake", "-S", ".", "-B", "other", f"-DCMAKE_PREFIX_PATH={prefix}"],
        cwd=user,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "0.3" in done.stderr


def test_installed_nvm_run(prefix: Path, user: Path) -> None:
    np.save(user / "x.npy", np.array([1, 2], np.float32))
    output(prefix / "bin/nvm-run", "model.nvm", "x=x.npy", "-o", "y.npy", cwd=user)
    assert np.load(user / "y.npy").tolist() == [2, 4]


def test_destdir_and_uninstall(tmp_path: Path) -> None:
    """Files land under DESTDIR and name PREFIX; uninstall leaves what others put there."""
    words = [f"DESTDIR={tmp_path}", "PREFIX=/opt/vm", "LIBDIR=/opt/vm/lib64"]
    make("install", *words)
    text = (tmp_path / "opt/vm/lib64/pkgconfig/nimblevm.pc").read_text()
    assert "prefix=/opt/vm\n" in text
    assert str(tmp_path) not in text
    other = tmp_path / "opt/vm/lib64/other.so"
    other.touch()
    make("uninstall", *words)
    assert files(tmp_path) == {"opt/vm/lib64/other.so"}
