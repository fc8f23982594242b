"""Writes the reference part of docs/c-api.md from native/include/nvm_api.h; the guide above it is written by hand.

python tools/c_api_doc.py            write the file
python tools/c_api_doc.py --check    print a diff and exit with 1 if the committed file is not current

Fails if a function of the header has no comment.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "native" / "include" / "nvm_api.h"
STATUSES = HEADER.parent / "generated" / "nvm_status.h"
TARGET = ROOT / "docs" / "c-api.md"
MARK = "<!-- generated from native/include/nvm_api.h by tools/c_api_doc.py from here on, do not edit -->\n"


@dataclass
class Item:
    """Declarations that share a comment."""

    text: str
    code: list[str] = field(default_factory=list)


@dataclass
class Section:
    title: str
    text: str
    items: list[Item] = field(default_factory=list)


def plain(comment: str) -> str:
    """The words of a comment, paragraphs and indented blocks kept."""
    body = re.sub(r"^/\*|\*/$", "", comment.strip())
    lines = [re.sub(r"^\s*\* ?", "", line).rstrip() for line in body.splitlines()]
    paragraphs: list[str] = []
    for line in lines:
        if line.startswith("  ") and paragraphs:
            paragraphs.append(line)
        elif line and paragraphs and paragraphs[-1] and not paragraphs[-1].startswith("  "):
            paragraphs[-1] += " " + line.strip()
        elif line or paragraphs:
            paragraphs.append(line.strip())
    return re.sub(r"(?m)^(  .*)$", r"  \1", "\n".join(paragraphs)).strip()


def tokens(text: str) -> list[tuple[str, str]]:
    """("comment" | "code" | "gap", text) of a region at brace depth 0; a trailing comment stays with its code."""
    out: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        if text.startswith("/*", at):
            end = text.index("*/", at) + 2
            out.append(("comment", text[at:end]))
        elif text[at].isspace():
            end = at + 1
            while end < len(text) and text[end].isspace():
                end += 1
            if text.count("\n", at, end) > 1:
                out.append(("gap", ""))
        else:
            end = declaration_end(text, at)
            out.append(("code", text[at:end].rstrip()))
        at = end
    return out


def declaration_end(text: str, at: int) -> int:
    """Behind the `;` or the body that closes a declaration, and a comment behind it on the same line."""
    depth, end = 0, at
    while True:
        if text.startswith("/*", end):
            end = text.index("*/", end) + 2
            continue
        if text[end] in "{}":
            depth += 1 if text[end] == "{" else -1
        inline = text.startswith("static inline", at)
        end += 1
        if depth == 0 and (text[end - 1] == ";" or (inline and text[end - 1] == "}")):
            break
    trailing = re.match(r"[ \t]*/\*.*?\*/", text[end:], re.DOTALL)
    return end + trailing.end() if trailing else end


def shown(code: str) -> str:
    """A declaration as the reference shows it: an inline function without its body."""
    if code.startswith("static inline"):
        return code[: code.index("{")].removeprefix("static inline ").rstrip() + ";"
    return code


def sections(text: str) -> list[Section]:
    found: list[Section] = []
    item: Item | None = None
    for kind, piece in tokens(text):
        title = re.match(r"/\* --- (.*?) ---(.*)", piece, re.DOTALL) if kind == "comment" else None
        if title:
            found.append(Section(title[1], plain("/*" + title[2])))
            item = None
        elif kind == "comment":
            item = Item(plain(piece))
            found[-1].items.append(item)
        elif kind == "gap":
            item = None
        elif item is None:
            item = Item("", [shown(piece)])
            found[-1].items.append(item)
        else:
            item.code.append(shown(piece))
    return found


def uncommented(found: list[Section]) -> list[str]:
    """Functions without a comment of their own, of their group, or behind them."""
    out: list[str] = []
    for section in found:
        for item in section.items:
            for code in item.code:
                name = re.match(r"[\w\s*]*?\b(nvm_\w+)\(", code)
                if name and not item.text and "/*" not in code:
                    out.append(name[1])
    return out


def wrapped(text: str) -> list[str]:
    """Paragraphs in lines of at most 118 characters; indented blocks as they are."""
    out: list[str] = []
    for line in text.split("\n"):
        indented = not line or line.startswith(" ")
        out += [line] if indented else textwrap.wrap(line, 118, break_on_hyphens=False)
    return out


def reference() -> str:
    text = HEADER.read_text()
    region = re.search(r"/\* --- cdef begin.*?\*/\n(.*?)#ifdef __cplusplus", text, re.DOTALL)
    if region is None:
        raise SystemExit(f"{HEADER}: no region between cdef begin and the end")
    found = sections(region[1].replace("/* --- cdef end --- */", ""))
    missing = uncommented(found)
    if missing:
        raise SystemExit(f"{HEADER.name}: no comment for {', '.join(missing)}")
    lines = ["", "# Reference", ""]
    for section in found:
        lines += [f"## {section.title}", ""]
        lines += [*wrapped(section.text), ""] if section.text else []
        for item in section.items:
            if item.code:
                lines += ["```c", *item.code, "```", ""]
            if item.text:
                lines += [*wrapped(item.text), ""]
    lines += ["## Status codes", "", "| code | number | meaning |", "|---|---|---|"]
    for name, number, meaning in re.findall(
        r"  (NVM_\w+) = (\d+), /\* (.*) \*/", STATUSES.read_text()
    ):
        lines.append(f"| `{name}` | {number} | {meaning} |")
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    current = TARGET.read_text()
    guide, mark, _ = current.partition(MARK)
    if not mark:
        raise SystemExit(f"{TARGET}: the line that divides guide and reference is missing")
    wanted = guide + mark + reference()
    if not check:
        TARGET.write_text(wanted)
        return 0
    diff = difflib.unified_diff(
        current.splitlines(keepends=True),
        wanted.splitlines(keepends=True),
        "committed",
        "from the header",
    )
    sys.stdout.writelines(diff)
    return int(current != wanted)


if __name__ == "__main__":
    sys.exit(main())
