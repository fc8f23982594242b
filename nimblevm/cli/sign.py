"""nimblevm keygen and nimblevm sign"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Annotated, Any

import typer

import nimblevm as nvm
from nimblevm.cli.console import Mistake, say
from nimblevm.cli.options import ExecutableFile
from nimblevm.files import new_file


def _signing() -> Any:
    try:
        return importlib.import_module("nimblevm.bytecode.signature")
    except ImportError as error:
        raise Mistake(str(error)) from None


def keygen(
    key: Annotated[
        Path,
        typer.Argument(metavar="KEY", help="File for the private key; KEY.pub is the public one."),
    ],
) -> None:
    """Make an ed25519 key pair for `nimblevm sign`.

    The private key is written without a password, readable by you alone: keep it so. Hand out the public one.

    \b
    Example:
      nimblevm keygen release.pem      writes release.pem and release.pem.pub
    """
    private, public = _signing().new_key()
    public_path = Path(f"{key}.pub")
    if public_path.exists():
        raise Mistake(f"{public_path} exists; a key is not overwritten")
    try:
        descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Mistake(f"{key} exists; a key is not overwritten") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(private)
        with new_file(public_path) as file:
            file.write(public)
    except BaseException as error:  # half of a pair is of no use, and in the way the next time
        key.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(key)
        raise
    say(f"wrote {key} and {public_path}")


def sign(
    file: ExecutableFile,
    key: Annotated[
        Path, typer.Option(help="Private key, as `nimblevm keygen` or openssl wrote it.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; default: FILE itself.")
    ] = None,
    any_weights: Annotated[
        bool,
        typer.Option(
            "--any-weights",
            help="Sign although FILE takes weights that it names no digest of: these are not covered.",
        ),
    ] = False,
) -> None:
    """Sign an executable, so that `nimblevm run --public-key` and nvm.load(public_key=) can tell who made it.

    The signature covers all of the file, and weights that it leaves outside by their digests. A signature that the file
    has is replaced.

    \b
    Example:
      nimblevm sign model.nvm --key release.pem
      nimblevm run model.nvm x=x.npy --public-key release.pem.pub
    """
    signing = _signing()
    try:
        private = signing.private_key(key)
    except ValueError as error:
        raise Mistake(f"{key}: {error}") from None
    with nvm.load(file, native=False, verify="full", weights=False) as exe:
        unnamed = [w.name for w in exe.weights if not w.digest]
        if unnamed and not any_weights:
            raise Mistake(
                f"{file} takes any values for {', '.join(unnamed[:5])}: compile it with these weights, or sign it with "
                "--any-weights"
            )
        exe.save(output or file, private_key=private)
    name = signing.key_id(private.public_key()).hex()
    say(f"wrote {output or file}, signed by key {name[:16]}")


__all__ = ["keygen", "sign"]
