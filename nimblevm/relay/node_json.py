"""Modules, expressions and types as JSON: save_json and load_json under TVM's names.

    {"nimblevm": 1, "kind": "module", "text": "#[version = \\"0.0.5\\"]\\ndef @main..."}

The text is Relay's, so files are readable and as stable as the language; TVM's own JSON, which changes with every
release of TVM, is neither written nor read. Lists, dicts and plain values may hold such nodes. Types are inferred
again by loading a module; spans then point into the text. pickle takes this form of a module.
"""

from __future__ import annotations

import copyreg
import json
from typing import Any

import numpy as np

from nimblevm.arguments import explain_arguments
from nimblevm.errors import InvalidInput
from nimblevm.relay.checked_parse import parse
from nimblevm.relay.ir import Expr
from nimblevm.relay.metadata import MetadataError, decode_tensor, encode_tensor
from nimblevm.relay.module import IRModule
from nimblevm.relay.parser import parse_expr, parse_module, parse_type
from nimblevm.relay.types import Type

_MARK, _VERSION = "nimblevm", 1


def save_json(node: Any) -> str:
    """The JSON of a module, an expression, a type, an array, or lists and dicts (keys: strings) of these and of plain
    values. TypeError for anything else.
    """
    return json.dumps(_encode(node), indent=1)


def _encode(node: Any) -> Any:
    """Lists and dicts nest as deep as Python data does; programs are text."""
    match node:
        case IRModule():
            typed = all(f.checked_type is not None for f in node.functions.values())
            return _tagged("module", text=node.astext(), typed=typed)
        case Expr():
            return _tagged("expr", text=node.astext())
        case Type():
            return _tagged("type", text=str(node))
        case np.ndarray():
            return _tagged("tensor", data=encode_tensor(node))
        case dict() if all(isinstance(key, str) for key in node) and _MARK not in node:
            return {key: _encode(value) for key, value in node.items()}
        case list() | tuple():
            return [_encode(item) for item in node]
        case None | bool() | int() | float() | str():
            return node
    raise TypeError(
        f"save_json takes modules, expressions, types and arrays, not {type(node).__name__}"
    )


def _tagged(kind: str, **fields: Any) -> dict[str, Any]:
    return {_MARK: _VERSION, "kind": kind, **fields}


def load_json(json_str: str) -> Any:
    """What `save_json` wrote. InvalidInput for other JSON; errors of the Relay text name its place."""
    try:
        document = json.loads(json_str)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"no JSON of save_json: {error}") from None
    if isinstance(document, dict) and {"root", "nodes"} <= set(document):
        raise InvalidInput(
            "this is TVM's own JSON, which only TVM reads: write the module there with mod.astext() and parse it here"
        )
    try:
        return _decode(document)
    except RecursionError:
        raise InvalidInput("no JSON of save_json: lists and dicts nest too deep") from None


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {key: _decode(item) for key, item in value.items()}
    if value[_MARK] != _VERSION:
        raise InvalidInput(f"version {value[_MARK]!r} of save_json; this reads {_VERSION}")
    try:
        return _node(value)
    except KeyError as error:
        raise InvalidInput(f"a node of kind {value.get('kind')!r} lacks {error}") from None


def _node(value: dict[str, Any]) -> Any:
    match value["kind"]:
        case "module":
            return (parse if value["typed"] else parse_module)(_text(value, "text"), "load_json")
        case "expr":
            return parse_expr(_text(value, "text"), "load_json")
        case "type":
            return parse_type(_text(value, "text"), "load_json")
        case "tensor":
            try:
                return decode_tensor(_text(value, "data"))
            except MetadataError as error:
                raise InvalidInput(str(error)) from None
    raise InvalidInput(f"no node kind {value['kind']!r}")


def _text(value: dict[str, Any], key: str) -> str:
    found = value[key]
    if not isinstance(found, str):
        kind = type(found).__name__
        raise InvalidInput(
            f"a node of kind {value['kind']!r}: {key!r} must be a string, not {kind}"
        )
    return found


copyreg.pickle(IRModule, lambda module: (load_json, (save_json(module),)))


__all__ = ["load_json", "save_json"]

explain_arguments(globals(), __all__)
