"""tvm.parser: Relay text."""

from nimblevm.relay import fromtext, parse, parse_expr

__all__ = ["fromtext", "parse", "parse_expr"]
