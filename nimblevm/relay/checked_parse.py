"""relay.parse: text to a module that is well-formed and has all types."""

from __future__ import annotations

from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.module import IRModule
from nimblevm.relay.parser import MetaInput, parse_module
from nimblevm.relay.well_formed import check_well_formed


def parse(
    text: str,
    source_name: str = "from_string",
    init_module: IRModule | None = None,
    init_meta_table: MetaInput | None = None,
) -> IRModule:
    """The module of a Relay text, checked and typed.

    `source_name` stands in spans and messages. The result has the definitions of `init_module` too; `init_meta_table`
    appends objects to the metadata of the text (type key -> objects). Raises RelaySyntaxError, WellFormedError or
    RelayTypeError, each with the place.
    """
    if not isinstance(text, str):
        raise TypeError(f"parse takes Relay text as a str, not {type(text).__name__}")
    module = parse_module(text, source_name, init_module, init_meta_table)
    check_well_formed(module)
    return infer_type(module)


def fromtext(data: str, source_name: str = "from_string") -> IRModule:
    """`parse` under TVM's other name."""
    return parse(data, source_name)
