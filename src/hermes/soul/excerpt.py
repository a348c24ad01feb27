"""A long message by its two ends. What is pasted stands in the middle; what is wanted of it stands before or behind.

Whatever reads a message for words, names or statements reads this much of it: reading all of a hundred thousand characters takes a tenth of
a second, in which nobody else is answered."""

from __future__ import annotations

FIRST_CHARS, LAST_CHARS = 1_500, 500
"""Characters of the beginning and of the end."""


def excerpt(text: str) -> str:
    """A text of up to 2,000 characters as it is; of a longer one the beginning and the end, on lines of their own."""
    return text if len(text) <= FIRST_CHARS + LAST_CHARS else f"{text[:FIRST_CHARS]}\n{text[-LAST_CHARS:]}"
