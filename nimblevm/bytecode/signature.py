"""ed25519 signatures of executable files (docs/format.md, "Signature"). Needs the extra `sign`.

A signature covers the fixed header's first 64 bytes, hence by digests everything in the file, and late-bound weights
that the file names a digest of. It is checked in C's reader before anything else of the file is read
(nvm_program_open_signed); this module makes keys and signatures and says whether one is right.
"""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path
from typing import Any

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
except ModuleNotFoundError as error:
    raise ImportError(
        "signatures need the cryptography package: pip install 'nimblevm[sign]'"
    ) from error

from nimblevm._ffi import ffi
from nimblevm.arguments import shown
from nimblevm.bytecode.serialize import SIGNATURE_SIZE
from nimblevm.errors import FileError, InvalidInputType

CONTEXT = b"nimblevm executable signature 1\0"
MAGIC = b"NVM-SIGN"
ED25519 = 1
SEALED = 64
"""Bytes of the fixed header that are signed."""

Key = str | os.PathLike[str] | bytes | Any
"""A path of a PEM file, PEM text as bytes, 32 raw bytes, or a key object of `cryptography`."""


def _bytes_of(key: Key) -> bytes:
    if isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    if not isinstance(key, str | os.PathLike):
        raise InvalidInputType(
            f"a key is a path of a PEM file, PEM text as bytes, 32 raw bytes or cryptography's key, not {shown(key)}"
        )
    try:
        return Path(key).read_bytes()
    except OSError as error:
        raise FileError(error.errno, error.strerror, os.fspath(key)) from error


def public_key(key: Key) -> Ed25519PublicKey:
    """An ed25519 public key. Raises ValueError for what is none, FileError."""
    if isinstance(key, Ed25519PublicKey):
        return key
    data = _bytes_of(key)
    if len(data) == 32:
        return Ed25519PublicKey.from_public_bytes(data)
    try:
        found = serialization.load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"no public key in PEM form: {error}") from None
    if not isinstance(found, Ed25519PublicKey):
        raise ValueError("the public key is not one of ed25519")
    return found


def private_key(key: Key) -> Ed25519PrivateKey:
    """An ed25519 private key without a password. Raises ValueError for what is none, FileError."""
    if isinstance(key, Ed25519PrivateKey):
        return key
    data = _bytes_of(key)
    if len(data) == 32:
        return Ed25519PrivateKey.from_private_bytes(data)
    try:
        found = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"no private key in PEM form: {error}") from None
    if not isinstance(found, Ed25519PrivateKey):
        raise ValueError("the private key is not one of ed25519")
    return found


def new_key() -> tuple[bytes, bytes]:
    """A new pair as PEM text: private, public."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private, public


def key_id(key: Ed25519PublicKey) -> bytes:
    """SHA-256 of the raw public key: what a file names its signer by."""
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return hashlib.sha256(raw).digest()


def block(key: Ed25519PrivateKey, fixed_header: bytes) -> bytes:
    """The signature block of a file whose fixed header is this (flags and file_size count the block already)."""
    signature = key.sign(CONTEXT + fixed_header[:SEALED])
    start = MAGIC + struct.pack("<II", ED25519, len(signature)) + key_id(key.public_key())
    return (start + signature).ljust(SIGNATURE_SIZE, b"\0")


class Checker:
    """An nvm_signature_check (`pointer`) that takes signatures of one key alone. Keep it alive while a file loads."""

    def __init__(self, key: Key) -> None:
        trusted = public_key(key)
        own_id = key_id(trusted)

        def verify(
            context: Any, named: Any, message: Any, size: int, signature: Any, signature_size: int
        ) -> int:
            if bytes(ffi.buffer(named, 32)) != own_id:
                return 0
            try:
                trusted.verify(
                    bytes(ffi.buffer(signature, signature_size)), bytes(ffi.buffer(message, size))
                )
            except InvalidSignature:
                return 0
            return 1

        self._callback = ffi.callback(
            "int32_t(void *, const uint8_t *, const uint8_t *, size_t, const uint8_t *, size_t)",
            verify,
            error=0,
        )
        self.pointer = ffi.new("nvm_signature_check *", {"verify": self._callback})


__all__ = ["Checker", "block", "key_id", "new_key", "private_key", "public_key"]
