"""Vectors from any server that speaks the OpenAI form: `POST {address}/embeddings`.

Knows no HTTP client, only what it needs of one; which one that is, and what it raises when a connection is lost, comes from outside."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from hermes.ports.embeddings import Embedding, EmbeddingsUnavailable

MAX_BATCH_TEXTS = 128


class EmbeddingsReply(Protocol):
    """What is needed of an answer."""

    status: int

    async def read(self) -> bytes:
        """The whole body."""
        ...


class EmbeddingsClient(Protocol):
    """What is needed of an HTTP client."""

    def send(
        self, method: str, url: str, *, headers: Mapping[str, str], timeout_s: float, body: bytes | None = None
    ) -> AbstractAsyncContextManager[EmbeddingsReply]:
        """Send a request once and give its answer, whatever the status."""
        ...


class ApiEmbeddings:
    """The port Embeddings."""

    def __init__(
        self,
        client: EmbeddingsClient,
        *,
        loses_with: type[Exception],
        address: str,
        name: str,
        dimension: int,
        key: str = "",
        timeout_s: float = 5.0,
        weight: float = 0.4,
    ) -> None:
        """`loses_with` is what the client raises for a connection that was lost; `address` ends with the version, as in `…/v1`.

        `weight` should be measured for the model (`benchmarks/recall.py`); the default is that of MiniLM."""
        self._client, self._loses_with = client, loses_with
        self._url, self._timeout_s = f"{address.rstrip('/')}/embeddings", timeout_s
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._name = name
        self.model, self.dimension, self.weight = f"{name}/{dimension}", dimension, weight

    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        vectors: list[Embedding] = []
        for start in range(0, len(texts), MAX_BATCH_TEXTS):
            vectors += await self._ask(texts[start : start + MAX_BATCH_TEXTS])
        return vectors

    async def _ask(self, texts: Sequence[str]) -> list[Embedding]:
        body = json.dumps({"model": self._name, "input": list(texts), "encoding_format": "float"}).encode()
        try:
            async with self._client.send("POST", self._url, headers=self._headers, timeout_s=self._timeout_s, body=body) as reply:
                status, said = reply.status, await reply.read()
        except self._loses_with as error:
            raise EmbeddingsUnavailable(f"the embeddings API did not answer: {error}") from error
        if status != 200:
            raise EmbeddingsUnavailable(f"the embeddings API answered with status {status}")
        return [Embedding(self.model, self._checked(vector)) for vector in vectors_of(said, len(texts))]

    def _checked(self, vector: Any) -> tuple[float, ...]:
        """A vector of the right size, scaled to length one."""
        if not isinstance(vector, list) or len(vector) != self.dimension or not all(isinstance(number, int | float) for number in vector):
            raise EmbeddingsUnavailable(f"the embeddings API gave no vector of {self.dimension} numbers")
        norm = math.sqrt(math.fsum(number * number for number in vector))
        if not math.isfinite(norm) or norm == 0.0:
            raise EmbeddingsUnavailable("the embeddings API gave a vector without a direction")
        return tuple(number / norm for number in vector)


def vectors_of(said: bytes, count: int) -> list[Any]:
    """The vectors of an answer in the order of the question, by their index."""
    try:
        rows = json.loads(said)["data"]
        by_index = {row["index"]: row["embedding"] for row in rows}
        return [by_index[index] for index in range(count)]
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddingsUnavailable("the embeddings API answered with something else than vectors") from error
