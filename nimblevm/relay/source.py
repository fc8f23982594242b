"""A source text with its name: offsets to spans, and errors that show the place."""

from __future__ import annotations

from bisect import bisect_right

from nimblevm.errors import RelaySyntaxError
from nimblevm.relay.ir import Span

# Longer lines are cut around the caret: a generated program may be one line of megabytes.
_SHOWN_COLUMNS = 100


class SourceText:
    """`text` under the name that spans and messages carry."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._line_starts = [0]
        find = text.find
        at = find("\n")
        while at >= 0:
            self._line_starts.append(at + 1)
            at = find("\n", at + 1)

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column (1-based) of an offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        """The span of text[start:end]."""
        line, column = self.place(start)
        end_line, end_column = self.place(end)
        return Span(self.name, line, column, end_line, end_column)

    def excerpt(self, start: int, end: int) -> str:
        """The line of `start` and below it carets under [start, end) as far as it lies in that line."""
        line, column = self.place(start)
        line_start = self._line_starts[line - 1]
        line_end = self.text.find("\n", line_start)
        shown = self.text[line_start : line_end if line_end >= 0 else len(self.text)].rstrip("\r")
        first = column - 1
        width = max(1, min(end, line_start + len(shown)) - start)
        if len(shown) > _SHOWN_COLUMNS:
            cut = max(0, min(first - _SHOWN_COLUMNS // 2, len(shown) - _SHOWN_COLUMNS))
            shown, first = shown[cut : cut + _SHOWN_COLUMNS], first - cut
            width = min(width, max(1, len(shown) - first))
        indent = "".join("\t" if c == "\t" else " " for c in shown[:first])
        return f"    {shown}\n    {indent}{'^' * width}"

    def error(self, message: str, start: int, end: int | None = None) -> RelaySyntaxError:
        """The error `message` at text[start:end]; to be raised by the caller."""
        stop = start + 1 if end is None else end
        line, column = self.place(start)
        error = RelaySyntaxError(
            f"{self.name}:{line}:{column}: {message}\n{self.excerpt(start, stop)}"
        )
        error.filename, error.lineno, error.offset = self.name, line, column
        return error
