"""Read a model's Markdown as rich text."""

from __future__ import annotations

import re

from hermes.channels.text.markdown import parse_markdown
from hermes.channels.text.rich_text import RichText
from hermes.channels.text.style import Style
from hermes.channels.text.writer import RichTextWriter

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
