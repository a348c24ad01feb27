"""A Markdown parser for the way models write. It loses nothing of what they wrote.

CommonMark with tables and strikethrough, except:

- `**Note:**this` is bold: some models write no space after it, and Chinese, Japanese and Thai have no spaces there.
- `2*3*4` and `2**3` are formulas, `__init__` is a name.
- A line of dashes is a horizontal rule, also right under a paragraph, where CommonMark makes the paragraph a heading.
- `[1]: https://…` stays in the text: CommonMark drops a link definition that no text refers to.
- Indented text is text: models mark code with fences, and indent what belongs to a list item.
- `~~~gone~~~` opens no block of code, which would swallow everything after it.
- HTML is text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_block.fence import make_fence_rule
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token

from hermes.channels.text.rich_text import RichText, Style
from hermes.channels.text.writer import RichTextWriter

_NAME = re.compile(r"(?<![\w_])__[a-z][a-z0-9_]{0,60}__(?![\w_])", re.ASCII)

MAX_NESTING = 32
"""How deep quotes and lists may be nested. The parser leaves out what is deeper."""


def parse_markdown(markdown: str) -> Sequence[Token] | None:
    """The parser's tokens; None if the text is nested so deep that the parser would leave something out."""
    tokens: list[Token] = _PARSER.parse(markdown)
    return None if any(token.level >= MAX_NESTING - 1 for token in tokens) else tokens


def _emphasis(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the parser's signature
    """Push each `*` and `_` as a token that may become a mark; the parser then finds the pairs."""
    marker = state.src[state.pos]
    if silent or marker not in "*_":
        return False
    name = _NAME.match(state.src, state.pos)
    if name is not None:
        state.append_pending(name[0])
        state.pos = name.end()
        return True
    found = state.scanDelims(state.pos, marker == "*")
    before = state.src[state.pos - 1] if state.pos > 0 else " "
    behind = state.pos + found.length
    after = state.src[behind] if behind < state.posMax else " "
    can_open, can_close = found.can_open, found.can_close
    if marker == "*":
        if _is_formula(before, after, found.length):
            can_open = can_close = False
        elif found.length > 1 or _is_written_without_spaces(before) or _is_written_without_spaces(after):
            can_open, can_close = not after.isspace(), not before.isspace()
    for _ in range(found.length):
        state.push("text", "", 0).content = marker
        state.delimiters.append(
            Delimiter(marker=ord(marker), length=found.length, token=len(state.tokens) - 1, end=-1, open=can_open, close=can_close)
        )
    state.pos = behind
    return True


def _is_formula(before: str, after: str, length: int) -> bool:
    if not (before.isascii() and after.isascii()):
        return False
    return before.isalnum() and after.isalnum() if length == 1 else before.isdigit() and after.isdigit()


def _is_written_without_spaces(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF" or "\u0e00" <= character <= "\u0eff"


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    parser.enable(["table", "strikethrough"]).disable(["code", "lheading", "reference", "html_block", "html_inline"])
    parser.inline.ruler.at("emphasis", _emphasis)
    fence = make_fence_rule(disallow_marker_in_info=("~", "`"))
    parser.block.ruler.at("fence", fence, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    return parser


_PARSER = _make_parser()


DEFAULT_STYLE = Style()

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_markdown(markdown: str, style: Style = DEFAULT_STYLE) -> RichText:
    """A model's Markdown as rich text. Never raises, whatever the text is; markers without a meaning stay in the text as they are.

    Linear in the length of the text. A link has a span if its URL can be opened from anywhere (`https://…`). Other addresses are written
    after the link's text if a person can use them (`mailto:`), and left out if not (`#chapter`)."""
    text = _remove_unprintable(markdown)
    tokens = parse_markdown(text)
    if tokens is None:
        return RichText(text.strip())
    writer = RichTextWriter(style)
    writer.blocks(tokens)
    return writer.rich_text()


def _remove_unprintable(text: str) -> str:
    """Text that can be sent: without control characters and without half surrogate pairs."""
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _UNPRINTABLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
