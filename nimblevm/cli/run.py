"""nimblevm run"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import nimblevm as nvm
from nimblevm.cli.arrays import Array
from nimblevm.cli.console import Mistake, is_stdin, progress_of, say
from nimblevm.cli.inputs import Inputs
from nimblevm.cli.json_text import dumps
from nimblevm.cli.options import (
    Device,
    ExecutableFile,
    Fallback,
    FunctionName,
    Native,
    PublicKey,
    Seed,
    Threads,
)
from nimblevm.cli.values import to_json
from nimblevm.files import check_new_file, new_file

_SHOWN = 2000
"""Characters of a data type's value that are shown."""
_SHOWN_ELEMENTS = 16

_Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="INPUT",
        help="NAME=VALUE for a parameter, or VALUE in order, or a file with several: see above.",
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", help="Write the result: .npz or .npy for tensors, .json for any value."
    ),
]
_Weights = Annotated[
    Path | None,
    typer.Option(
        help="Weights that FILE leaves out: .safetensors or .npz. Default: where FILE says that they lie."
    ),
]
_Profile = Annotated[bool, typer.Option("--profile", help="Print which kernels the time went to.")]


def run(
    file: ExecutableFile,
    inputs: _Inputs = None,
    function: FunctionName = "main",
    output: _Output = None,
    native: Native = True,
    weights: _Weights = None,
    public_key: PublicKey = None,
    threads: Threads = 1,
    device: Device = "",
    fallback: Fallback = False,
    seed: Seed = 0,
    profile: _Profile = False,
) -> None:
    """Run a function of an executable; print what it returns and the time that it took.

    `nimblevm inspect FILE` says which parameters there are; FILE - is stdin. Each gets a value, by name or in order:

    \b
      x=x.npy              an array; x=all.npz:x  one of an archive
      steps=3  flag=true   a scalar of the parameter's dtype
      x=random:5x300       random numbers of that shape (seed: --seed)
      x=[[1, 2], [3, 4]]   JSON, or x=FILE.json
      all.npz, all.json    several parameters by name

    JSON: numbers and nested arrays are tensors of the parameter's dtype, an array is a tuple or a List, and
    {"constructor": "Node", "fields": [...]} is a value of a data type ("Leaf" alone has no fields). Inside of these,
    {"file": "x.npy"} reads a tensor from a file and {"dtype": "float32", "shape": [0, 4], "data": []} says all of it.
    A result that -o writes as .json can be an input again.

    \b
    Examples:
      nimblevm run lstm.nvm x=x.npy
      nimblevm run lstm.nvm x=random:7x300 h0=random:512 c0=random:512 -o out.npz
      nimblevm run tree.nvm 'tree={"constructor": "Node", "fields": ["Leaf", {"file": "x.npy"}, "Leaf"]}' -o out.json
      nimblevm run model.nvm inputs.npz steps=3 --function decode
      nimblevm run model.nvm x=x.npy --weights weights.safetensors
    """
    if output is not None and output.suffix not in (".npz", ".npy", ".json"):
        raise Mistake(f"-o {output}: the name must end in .npz, .npy or .json")
    if output is not None:
        check_new_file(output)
    with loaded(file, native, weights, public_key) as exe, _no_cycle_search():
        named = Inputs(exe, exe.function(function), seed).read(inputs or [])
        with nvm.VirtualMachine(
            exe, device or None, threads=threads, profile=profile, fallback=fallback
        ) as vm:
            start = time.perf_counter()
            with progress_of(f"running @{function}"):
                result = vm.invoke(function, **named)
            took = time.perf_counter() - start
            times = str(vm.profile()) if profile else ""
    for i, value in enumerate(_items(result)):
        say(f"result {i}: {_shown(value)}")
    say(f"{took * 1e6:.0f} us")
    if times:
        say(times)
    if output is not None:
        _write(output, result)
        say(f"wrote {output}")


def loaded(
    file: Path, native: bool, weights: Path | None, public_key: Path | None
) -> nvm.Executable:
    """nvm.load; Mistake for what is no key, or where keys can't be read."""
    try:
        source = sys.stdin.buffer.read() if is_stdin(file) else file
        return nvm.load(source, native=native, weights=weights, public_key=public_key)
    except ImportError as error:
        raise Mistake(str(error)) from None
    except ValueError as error:
        if isinstance(error, nvm.NimbleError):
            raise
        raise Mistake(f"{public_key}: {error}") from None


@contextmanager
def _no_cycle_search() -> Iterator[None]:
    """Python's search for garbage cycles takes half of the time that values of a million parts take."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _items(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _shown(value: Any) -> str:
    """A value for people, cut where it is long."""
    if not isinstance(value, nvm.ADTValue | tuple):
        return repr(value)
    try:
        pieces = dumps(to_json(value, _abbreviated))
    except Mistake:  # it holds a function or a reference
        return repr(value)
    out: list[str] = []
    size = 0
    for piece in pieces:
        out.append(piece)
        size += len(piece)
        if size > _SHOWN:
            return "".join([*out, " ..."])
    return "".join(out)


def _abbreviated(array: Array) -> Any:
    if array.size <= _SHOWN_ELEMENTS:
        return array.tolist()
    return f"Tensor[({', '.join(map(str, array.shape))}), {array.dtype.name}]"


def _write(path: Path, result: Any) -> None:
    if path.suffix == ".json":
        with new_file(path) as file:
            file.writelines(piece.encode() for piece in dumps(to_json(result)))
            file.write(b"\n")
        return
    flat = _items(result)
    arrays = {f"result{i}": v.numpy() for i, v in enumerate(flat) if isinstance(v, nvm.Tensor)}
    if len(arrays) < len(flat):
        raise Mistake(
            f"{path} holds tensors only, but the result has other values: use -o FILE.json"
        )
    if path.suffix == ".npy" and len(arrays) != 1:
        raise Mistake(f"{path} holds one tensor, but the result has {len(arrays)}: use -o FILE.npz")
    with new_file(path) as file:
        if path.suffix == ".npz":
            np.savez(file, **arrays)  # type: ignore[arg-type]
        else:
            np.save(file, arrays["result0"])


__all__ = ["loaded", "run"]
