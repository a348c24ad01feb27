"""The best embedder that this machine has: MiniLM if the extra `recall` is installed, hashed letters otherwise.

Hashed letters need no model: the bytes of each word, three to five at a time, are hashed into a fixed number of places. They compare
spelling and not meaning, in every language alike. Good enough to find a word in another inflection or with a typing error;
`benchmarks/recall.py` measures it, and its weight comes from there."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from functools import cache
from zlib import crc32

import structlog

from hermes.ports.backends import EmbeddingInput
from hermes.ports.memories import Embedding, Embeddings, UnknownTokens

try:
    from hermes.stores.embeddings.minilm import MiniLmEmbeddings
except ImportError as error:  # a package of the extra `recall` is not installed
    MISSING_PACKAGE = error.name
else:
    MISSING_PACKAGE = None

log = structlog.get_logger()

DIMENSION = 512
NGRAM_LENGTHS = (3, 4, 5)
MAX_CHARS = 2_000
"""Only so many characters of a text count."""


@cache
def local_embeddings() -> Embeddings:
    """The embedder of this machine. Does not load the model yet. One object for each process: the model takes 200 MB and is safe to
    share."""
    if MISSING_PACKAGE is not None:
        log.info("embeddings_by_letters", missing=MISSING_PACKAGE)
        return HashedEmbeddings()
    return MiniLmEmbeddings()


class HashedEmbeddings:
    """The port Embeddings. Needs no model and no server."""

    model = f"hashed-letters-{DIMENSION}"
    dimension = DIMENSION
    weight = 0.2

    async def embed(self, texts: Sequence[EmbeddingInput]) -> Sequence[Embedding]:
        return [Embedding(self.model, hash_text(only_text(text))) for text in texts]


def only_text(text: EmbeddingInput) -> str:
    """The text itself. Raises UnknownTokens: letters have no tokenizer."""
    if isinstance(text, str):
        return text
    raise UnknownTokens(f"hashed-letters-{DIMENSION} takes text and no token ids")


def hash_text(text: str) -> tuple[float, ...]:
    """A vector of length one. A text without words gets a vector with a single 1, because pgvector cannot compare a zero vector."""
    places = [0.0] * DIMENSION
    for word in unicodedata.normalize("NFKC", text[:MAX_CHARS]).casefold().split():
        framed = f"<{word}>".encode()
        for length in NGRAM_LENGTHS:
            for start in range(len(framed) - length + 1):
                number = crc32(framed[start : start + length])
                places[number % DIMENSION] += 1.0 if number & 0x8000_0000 else -1.0
    # The square root: a repeated piece counts more, but not so much that the others no longer count.
    damped = [math.copysign(math.sqrt(abs(place)), place) for place in places]
    norm = math.sqrt(math.fsum(place * place for place in damped))
    if norm == 0.0:
        return (1.0, *[0.0] * (DIMENSION - 1))
    return tuple(place / norm for place in damped)
