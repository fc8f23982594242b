"""Tokens of Relay text, as TVM 0.18 has them.

Differs from TVM: an identifier may hold "/" only between two other characters, so that `%a/%b` divides; a dot
followed by a letter continues a name with a sigil (`%conv.weight`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nimblevm.relay.source import SourceText

NESTING_LIMIT = 1_000_000
LONGEST_NUMBER = 640
"""Characters of a number; Python's int() may be set to take no more."""
VERSION = "0.0.5"

KEYWORDS = frozenset(
    "let fn def if else type match match? extern free_var ref ref_read ref_write True False _".split()
)

_NAME = r"[A-Za-z_](?:\w|/(?=\w))*(?:\.[A-Za-z_](?:\w|/(?=\w))*)*"
_GLOBAL = r"\w(?:\w|/(?=\w)|\.(?=[A-Za-z_]))*"
_TOKEN = re.compile(
    rf"""
    (?> (?: [ \t\r\n] | //[^\n]* )* )  # atomic: a comment must not be given back
    (?: (?P<comment> /\* )
  | (?P<number> \d\w*(?:\.\d\w*)?(?:(?<=[eE])[+-]\d\w*)? | (?:inf|nan)f(?:16|32|64)?(?!\w) )
  | (?P<name> match\? | {_NAME} )
  | (?P<graph> %\d+ )
  | (?P<local> %{_NAME} )
  | (?P<global> @{_GLOBAL} )
  | (?P<dim> \?(?:[A-Za-z_]\w*)? )
  | (?P<projection> \.[ ]*\d+ )
  | (?P<string> "[^"\n]*" )
  | (?P<punct> -> | => | == | != | <= | >= | [-+*/<>=(){{}}\[\],;:.] )
  | (?P<hash> \#\[ )
  | (?P<end> \Z )
  | (?P<bad> [\s\S] ) )  # every search ends where it starts: no text is scanned twice
    """,
    re.VERBOSE | re.ASCII,
)
_LOCAL_NAME = re.compile(_NAME, re.ASCII)
_GLOBAL_NAME = re.compile(_GLOBAL, re.ASCII)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_VERSION = re.compile(r'#\[\s*version\s*=\s*"([^"\n]*)"\s*\]')
_METADATA = re.compile(r"#\[\s*metadata\s*\]")
_NUMBER = re.compile(r"(\d+)(\.\d+)?([eE][+-]?\d+)?(?:([if])(\d*))?", re.ASCII)


def is_local_name(name: str) -> bool:
    """Whether `%name` is one token."""
    return _LOCAL_NAME.fullmatch(name) is not None


def is_global_name(name: str) -> bool:
    """Whether `@name` is one token."""
    return _GLOBAL_NAME.fullmatch(name) is not None


class Token(NamedTuple):
    """One token. `kind` is the text itself for keywords and punctuation, else the name of the group."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def _skip_comment(source: SourceText, start: int) -> int:
    """The offset behind the (nested) comment that starts at `start`."""
    depth, at = 0, start
    while True:
        edge = _COMMENT_EDGE.search(source.text, at)
        if edge is None:
            raise source.error("this comment is not closed; expected '*/'", start, start + 2)
        depth += 1 if edge.group() == "/*" else -1
        at = edge.end()
        if depth == 0:
            return at


def _directive(source: SourceText, at: int) -> Token:
    """The token of `#[version = "..."]`, or of `#[metadata]` with all text behind it."""
    found = _VERSION.match(source.text, at)
    if found:
        if found[1] != VERSION:
            raise source.error(
                f'Relay text of version "{found[1]}"; expected #[version = "{VERSION}"]',
                at,
                found.end(),
            )
        return Token("version", found[0], at)
    found = _METADATA.match(source.text, at)
    if found:
        return Token("metadata", source.text[at:], at)
    raise source.error(f'expected #[version = "{VERSION}"] or #[metadata]', at, at + 2)


_INSTEAD = {
    "|": "logical_or(a, b)",
    "&": "logical_and(a, b)",
    "!": "logical_not(a)",
    "^": "bitwise_xor(a, b)",
}
"""What stands in Relay for an operator of other languages."""


def _bad_character(source: SourceText, at: int) -> Exception:
    char = source.text[at]
    if char == '"':
        return source.error("this string is not closed; expected '\"' on the same line", at)
    if char in "%@":
        more = "; the remainder is floor_mod(a, b)" if char == "%" else ""
        return source.error(f"expected a name behind {char!r}{more}", at)
    instead = _INSTEAD.get(char)
    more = f": write {instead}" if instead is not None else ""
    if char.isalnum():  # of another script: with the ASCII ones a token starts
        more = "; names and numbers are of ASCII letters, digits and _"
    return source.error(f"no token of Relay starts with {char!r}{more}", at)


def tokenize(source: SourceText) -> list[Token]:
    """All tokens, the last of kind "end". Checks the nesting limit, so that no later step need to."""
    text = source.text
    bare = re.search(r"\r(?!\n)", text)
    if bare:
        raise source.error(
            "a carriage return without a line feed; expected '\\n' or '\\r\\n'", bare.start()
        )
    tokens: list[Token] = []
    append, make = tokens.append, tuple.__new__  # Token(...) would cost a third of this loop
    at = 1 if text.startswith("\ufeff") else 0  # the mark that some editors put first
    depth, more = 0, True
    while more:
        more = False
        for found in _TOKEN.finditer(text, at):
            kind = found.lastgroup or ""
            word, at = found[kind], found.end()
            if kind == "punct":
                kind = word
                if word in "([{":
                    depth += 1
                    if depth > NESTING_LIMIT:
                        raise source.error(f"brackets nest deeper than {NESTING_LIMIT:,}", at - 1)
                elif word in ")]}":
                    depth -= 1
            elif kind == "name" and word in KEYWORDS:
                kind = word
            elif kind == "comment":
                at, more = _skip_comment(source, at - 2), True
                break
            elif kind == "hash":
                append(_directive(source, at - 2))
                at, more = tokens[-1].end, True
                break
            elif kind == "bad":
                raise _bad_character(source, at - 1)
            elif len(word) > LONGEST_NUMBER and kind in ("number", "graph", "projection"):
                start = at - len(word)
                raise source.error(
                    f"a number of {len(word):,} characters; the longest have {LONGEST_NUMBER}", start, start + 20
                )  # fmt: skip
            append(make(Token, (kind, word, at - len(word))))
            if kind == "end":
                break
    return tokens


class Number(NamedTuple):
    """A number token's meaning: `digits` is the decimal text, `dtype` "" for an integer without suffix."""

    digits: str
    is_float: bool
    dtype: str


def number(source: SourceText, token: Token) -> Number:
    """Take a number token apart; located errors for `1.0` (no f) and unknown suffixes."""
    text = token.text
    if text.startswith(("inff", "nanf")):
        return Number(text[:3], is_float=True, dtype=f"float{text[4:] or 32}")
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise source.error(
            f"malformed number {text!r}; expected digits with a suffix like i64, f or f16",
            token.start, token.end,
        )  # fmt: skip
    whole, fraction, exponent, letter, bits = found.groups()
    digits = whole + (fraction or "") + (exponent or "")
    if letter == "f":
        if bits not in ("", "16", "32", "64"):
            raise source.error(
                f"no float has {bits} bits; expected f16, f32 or f64", token.start, token.end
            )
        return Number(digits, is_float=True, dtype=f"float{bits or 32}")
    if fraction or exponent:
        short = whole + (fraction or "").rstrip("0").rstrip(".") + (exponent or "")
        raise source.error(f"a float literal ends in f: write {short}f", token.start, token.end)
    if letter == "i" and bits not in ("8", "16", "32", "64"):
        raise source.error(
            f"no integer has the suffix i{bits}; expected i8, i16, i32 or i64",
            token.start,
            token.end,
        )
    return Number(digits, is_float=False, dtype=f"int{bits}" if letter else "")
