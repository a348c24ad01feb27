"""The two ends of a long message. Users paste long text in the middle, and write what they want before or after it.

All code that reads a message for words, names or statements reads only this excerpt: reading a hundred thousand characters takes a tenth of
a second, in which the process answers no other user."""

from __future__ import annotations

FIRST_CHARS, LAST_CHARS = 1_500, 500
"""Characters of the beginning and of the end."""


def excerpt(text: str) -> str:
    """A text of up to 2,000 characters unchanged; of a longer one the beginning and the end, on lines of their own."""
    return text if len(text) <= FIRST_CHARS + LAST_CHARS else f"{text[:FIRST_CHARS]}\n{text[-LAST_CHARS:]}"
