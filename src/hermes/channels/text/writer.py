"""Write the tokens of the Markdown parser as rich text: marks become spans; lists and horizontal rules, which have no mark, become text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from urllib.parse import unquote

from markdown_it.token import Token

from hermes.channels.text.rich_text import BLOCK_KINDS, RichText, Span, SpanKind, Style

_MARKS = {"strong": SpanKind.BOLD, "em": SpanKind.ITALIC, "s": SpanKind.STRIKE}
_LINE_BREAK = re.compile(r" ?<br\s{0,9}/?> ?", re.IGNORECASE)
_BLANK_LINES = re.compile(r"^(?:[ \t]*\n)+")
_TASK = re.compile(r"\[([ xX])\] ")
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")
_LINK_SCHEMES = ("http://", "https://", "tg://")
_SPELLED_SCHEMES = ("mailto:", "tel:")


@dataclass(slots=True)
class _LinePrefix:
    """The text that an open quote or list item puts before its lines."""

    first: str
    """Before its first line."""
    later: str
    """Before its other lines."""
    is_begun: bool = False
    start: int = 0


@dataclass(slots=True)
class _OpenList:
    """A list that has not ended yet."""

    number: int
    """Of the next item; -1 in a list without numbers."""
    mark: str
    """What follows the number."""
    level: int
    gap: int = 1
    """Line ends before the next item: 2 in a list with empty lines between its items."""


@dataclass(slots=True)
class _OpenMark:
    """A mark that has not ended yet. It starts where its first text starts."""

    kind: SpanKind
    info: str
    first_piece: int
    start: int | None = None


@dataclass(slots=True)
class RichTextWriter:
    """Writes blocks one below the other with the right space between them, and counts the characters."""

    style: Style
    pieces: list[str] = field(default_factory=list)
    length: int = 0
    spans: list[Span] = field(default_factory=list)
    marks: list[_OpenMark] = field(default_factory=list)
    """Marks that are open."""
    waiting: list[_OpenMark] = field(default_factory=list)
    """Open marks that have no text yet."""
    depths: Counter[SpanKind] = field(default_factory=Counter)
    """How many marks of a kind are nested; only the outermost becomes a span."""
    prefixes: list[_LinePrefix] = field(default_factory=list)
    """Of the quotes and items that are open, the outermost first."""
    lists: list[_OpenList] = field(default_factory=list)
    gap: int = 0
    """Line ends to write before the next text."""
    is_at_start: bool = True
    """The next text begins a line, and the prefixes of the line are not written yet."""

    def rich_text(self) -> RichText:
        text = "".join(self.pieces)
        spans = [trimmed for span in self.spans if (trimmed := _trim_span(span, text)) is not None]
        spans.reverse()  # of two equal spans the outer one was closed last, and must come first
        spans.sort(key=lambda span: (span.start, -span.end))
        return RichText(text, spans)

    # --- blocks

    def blocks(self, tokens: Sequence[Token]) -> None:
        at = 0
        while at < len(tokens):
            token = tokens[at]
            if token.type == "inline":
                self.inline(token.children or ())
            elif token.type == "table_open":
                end = next(index for index in range(at, len(tokens)) if tokens[index].type == "table_close")
                self.table(tokens[at:end])
                at = end
            elif token.nesting > 0:
                self.begin(token)
            elif token.nesting < 0:
                self.end(token)
            elif token.type == "fence":
                language = _LANGUAGE.search(token.info)
                self.verbatim(token.content, SpanKind.BLOCK, language[0] if language else "")
            elif token.type == "hr" and self.style.rule:
                self.write(self.style.rule)
                self.end_block()
            at += 1

    def begin(self, token: Token) -> None:
        if token.type == "heading_open":
            self.mark(SpanKind.HEADING, token.tag.removeprefix("h"))
        elif token.type == "blockquote_open":
            self.depths[SpanKind.QUOTE] += 1
            self.prefixes.append(_LinePrefix(self.style.quote, self.style.quote))
        elif token.type == "bullet_list_open":
            self.lists.append(_OpenList(-1, "", token.level))
        elif token.type == "ordered_list_open":
            self.lists.append(_OpenList(int(token.attrs.get("start", 1)), token.markup, token.level))
        elif token.type == "list_item_open":
            parent = self.lists[-1]
            before = f"{parent.number}{parent.mark} " if parent.number >= 0 else self.style.bullet
            parent.number += parent.number >= 0
            self.prefixes.append(_LinePrefix(before, " " * len(before)))

    def end(self, token: Token) -> None:
        if token.type == "heading_close":
            self.end_mark()
        elif token.type == "paragraph_close":
            if self.lists and token.level == self.lists[-1].level + 2:  # the item's own paragraph, not that of a quote in it
                self.lists[-1].gap = 1 if token.hidden else 2
        elif token.type == "blockquote_close":
            quote = self.prefixes.pop()
            self.depths[SpanKind.QUOTE] -= 1
            if quote.is_begun and not self.depths[SpanKind.QUOTE]:
                self.spans.append(Span(SpanKind.QUOTE, quote.start, self.length))
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            self.lists.pop()
        elif token.type == "list_item_close":
            if not self.prefixes[-1].is_begun:
                self.write_mark()  # an empty item is still numbered
            self.prefixes.pop()
        self.end_block()

    def end_block(self) -> None:
        """End a block: the next one begins on a new line."""
        if self.pieces:
            self.gap = self.lists[-1].gap if self.lists else 2
            self.is_at_start = True

    def verbatim(self, text: str, kind: SpanKind, info: str = "") -> None:
        """Write lines exactly as they are, with their white space. They get no prefixes: a reader would copy those with the lines."""
        lines = _BLANK_LINES.sub("", text.rstrip())
        if not lines:
            return
        if any(prefix.first.strip() for prefix in self.prefixes if not prefix.is_begun):
            self.write_mark()
            self.gap = 1
        self.put("\n" * self.gap)
        for prefix in self.prefixes:
            if not prefix.is_begun:
                prefix.start, prefix.is_begun = self.length, True
        self.spans.append(Span(kind, self.length, self.length + len(lines), info))
        self.put(lines)
        self.end_block()

    def write_mark(self) -> None:
        """Write an item's mark on a line of its own."""
        self.write("")
        mark = self.pieces.pop() if self.pieces else ""
        self.length -= len(mark)
        self.put(mark.rstrip(" "))

    def table(self, tokens: Sequence[Token]) -> None:
        """Write a table: with aligned columns if it fits a phone, else each cell as a line with its column's heading."""
        rows: list[list[RichText]] = []
        sides: list[str] = []
        for before, token in pairwise(tokens):
            if before.type == "tr_open":
                rows.append([])
            if token.type == "inline":
                cell = RichTextWriter(self.style)
                cell.inline(token.children or ())
                rows[-1].append(cell.rich_text())
                if len(rows) == 1:
                    sides.append(str(before.attrs.get("style", "")).removeprefix("text-align:"))
        lines = align_columns([[cell.text for cell in row] for row in rows], sides)
        if display_width(lines[1]) <= self.style.table_width:
            self.verbatim("\n".join(lines), SpanKind.TABLE)
            return
        for line, starts_row in rows_as_lines(rows):
            if not starts_row:
                self.gap = min(self.gap, 1)
            self.insert(line)
            self.end_block()

    def insert(self, rich_text: RichText) -> None:
        """Write a line that is rich text already."""
        self.write("")
        self.spans += [replace(span, start=span.start + self.length, end=span.end + self.length) for span in reversed(rich_text.spans)]
        self.put(rich_text.text)

    # --- within a line

    def inline(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            if token.type == "text":
                self.text(token.content)
            elif token.type in ("softbreak", "hardbreak"):
                self.write("\n")
            elif token.type == "code_inline":
                self.mark(SpanKind.CODE)
                self.write(token.content)
                self.end_mark()
            elif token.type == "image":
                self.mark(SpanKind.LINK, str(token.attrs.get("src", "")))
                self.inline(token.children or ())
                self.end_link()
            elif token.type == "link_open":
                self.mark(SpanKind.LINK, str(token.attrs.get("href", "")))
            elif token.type == "link_close":
                self.end_link()
            elif token.nesting > 0:
                self.mark(_MARKS[token.tag])
            elif token.nesting < 0:
                self.end_mark()

    def text(self, text: str) -> None:
        task = _TASK.match(text) if self.lists and not self.prefixes[-1].is_begun else None
        if task is not None:
            self.prefixes[-1].first = "☐ " if task[1] == " " else "☑ "
            text = text[task.end() :]
        self.write(_LINE_BREAK.sub("\n", text))

    def mark(self, kind: SpanKind, info: str = "") -> None:
        self.marks.append(_OpenMark(kind, info, len(self.pieces)))
        self.waiting.append(self.marks[-1])
        self.depths[kind] += 1

    def unmark(self) -> _OpenMark:
        mark = self.marks.pop()
        if mark.start is None:
            self.waiting.pop()  # nothing was written since, so it is the last of them
        self.depths[mark.kind] -= 1
        return mark

    def end_mark(self) -> None:
        mark = self.unmark()
        if mark.start is not None and not self.depths[mark.kind]:
            self.spans.append(Span(mark.kind, mark.start, self.length, mark.info))

    def end_link(self) -> None:
        """End a link: with a span, or by writing its address."""
        link = self.unmark()
        is_reachable, is_spelled = link.info.startswith(_LINK_SCHEMES), link.info.startswith(_SPELLED_SCHEMES)
        if self.depths[SpanKind.LINK] or not (is_reachable or is_spelled):
            return  # an image inside a link leads where the link leads
        address = unquote(link.info.partition(":")[2]) if is_spelled else link.info
        start, end = link.start, self.length
        if start is None:
            self.write(address)
            start, end = self.length - len(address), self.length
        elif self.style.spell_links or is_spelled:
            shown = "".join(self.pieces[link.first_piece :])
            if not _is_same_address(shown, address):
                self.write(f" ({address})")
                start, end = self.length - len(address) - 1, self.length - 1
        if is_reachable:
            self.spans.append(Span(SpanKind.LINK, start, end, address))

    # --- characters

    def write(self, text: str) -> None:
        """Write text, with the prefixes of each of its lines."""
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if number:
                self.put("\n")
                self.is_at_start = True
            if self.is_at_start and (line or len(lines) == 1):
                self.begin_line()
            if line:
                for mark in self.waiting:
                    mark.start = self.length
                self.waiting.clear()
                self.put(line)

    def begin_line(self) -> None:
        self.put("\n" * self.gap)
        self.gap, self.is_at_start = 0, False
        for prefix in self.prefixes:
            if not prefix.is_begun:
                prefix.start = self.length
            self.put(prefix.later if prefix.is_begun else prefix.first)
            prefix.is_begun = True

    def put(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            self.length += len(text)


def _trim_span(span: Span, text: str) -> Span | None:
    """A span without white space at its ends; None if nothing is left of it."""
    if span.kind in BLOCK_KINDS:
        return span
    start, end = span.start, span.end
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return replace(span, start=start, end=end) if start < end else None


def _is_same_address(shown: str, address: str) -> bool:
    """Whether a link's text already is its address: `example.org` is."""

    def bare(text: str) -> str:
        return unquote(text.strip()).removeprefix("https://").removeprefix("http://").removeprefix("www.").rstrip("/")

    return bare(shown) == bare(address)


def align_columns(rows: Sequence[Sequence[str]], sides: Sequence[str]) -> Sequence[str]:
    """Lines with aligned columns. The first row is the heading; a side is `right`, `center`, or anything else for left."""
    cells = [[" ".join(cell.split()) for cell in row] for row in rows]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    head, *body = (" | ".join(map(_pad, row, widths, sides)).rstrip() for row in cells)
    return [head, "-+-".join("-" * width for width in widths), *body]


def rows_as_lines(rows: Sequence[Sequence[RichText]]) -> Iterator[tuple[RichText, bool]]:
    """Yield one line for each cell, `heading: cell`, the first of a row in bold; and whether the line starts a row."""
    heads, *body = rows
    for row in body or [heads]:
        starts_row = True
        for head, cell in zip(heads, row, strict=True):
            if not cell.text.strip():
                continue
            lead = f"{head.text}: " if head.text.strip() and row is not heads else ""
            spans = [replace(span, start=span.start + len(lead), end=span.end + len(lead)) for span in cell.spans]
            text = lead + cell.text
            if starts_row:
                spans = [Span(SpanKind.BOLD, 0, len(text)), *(span for span in spans if span.kind is not SpanKind.BOLD)]
            yield RichText(text, spans), starts_row
            starts_row = False


def display_width(text: str) -> int:
    """How many columns of a monospaced font a text takes: East Asian characters and emoji two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(sign) in "WF" else 0 if unicodedata.category(sign) in ("Mn", "Me", "Cf") else 1 for sign in text
    )


def _pad(text: str, width: int, side: str) -> str:
    missing = width - display_width(text)
    before = missing if side == "right" else missing // 2 if side == "center" else 0
    return " " * before + text + " " * (missing - before)
