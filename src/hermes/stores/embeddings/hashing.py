"""Vectors without a model: the letters of a text, three to five at a time, hashed into a fixed number of places.

Knows spelling and nothing of meaning, in every language alike. Good enough to find a word in another inflection or with a typing error;
measured by `benchmarks/recall.py`, and weighted by that."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from zlib import crc32

from hermes.ports.embeddings import Embedding

DIMENSION = 512
NGRAM_LENGTHS = (3, 4, 5)
MAX_CHARS = 2_000
"""Characters of a text that count; what comes after them makes no difference."""


class HashedEmbeddings:
    """The port Embeddings. Always there."""

    model = f"hashed-letters-{DIMENSION}"
    dimension = DIMENSION
    weight = 0.2

    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        return [Embedding(self.model, hash_text(text)) for text in texts]


def hash_text(text: str) -> tuple[float, ...]:
    """A vector of length one; all zero but for one place where a text has no letter at all, since pgvector compares no zero vector."""
    places = [0.0] * DIMENSION
    for word in unicodedata.normalize("NFKC", text[:MAX_CHARS]).casefold().split():
        framed = f"<{word}>".encode()
        for length in NGRAM_LENGTHS:
            for start in range(len(framed) - length + 1):
                number = crc32(framed[start : start + length])
                places[number % DIMENSION] += 1.0 if number & 0x8000_0000 else -1.0
    # The root: what is repeated counts more, but not so much more that it drowns the rest.
    damped = [math.copysign(math.sqrt(abs(place)), place) for place in places]
    norm = math.sqrt(math.fsum(place * place for place in damped))
    if norm == 0.0:
        return (1.0, *[0.0] * (DIMENSION - 1))
    return tuple(place / norm for place in damped)
