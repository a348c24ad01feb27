"""Cut a document to a limit."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.channels.text.document import Document, Size


def split(document: Document, limit: int, size: Size) -> Sequence[Document]:
    """The document in parts of at most `limit`, as `size` measures them. White space at the joins is left out; nothing else is lost.

    Cut at the end of a paragraph, else of a line, a sentence, a word; never within a character as a reader counts them, nor within a span that
    fits into a part: only a longer one is closed and opened again. No part is empty or white space only; a blank document has none."""
    return [document]
