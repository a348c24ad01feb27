"""Texts as vectors: two texts with nearly the same meaning have nearly the same direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hermes.ports.errors import PortError


class EmbeddingsUnavailable(PortError):
    """No vector can be computed now; recall uses the words alone."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """A text's vector, of length one, and the model that made it. Vectors of two models are never compared."""

    model: str
    vector: Sequence[float]


class Embeddings(Protocol):
    """An embedding model. Fails open: recall works without it, and rows that have no vector get one later."""

    @property
    def model(self) -> str:
        """The name that every row keeps beside its vector. Another model, or another version of it, has another name."""
        ...

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        ...

    @property
    def weight(self) -> float:
        """How much its cosine counts beside the words of a text, from 0 to 1; measured by `benchmarks/recall.py`."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        """Return the vector of each text, in order. Never blocks the event loop. Raises EmbeddingsUnavailable."""
        ...
