"""Vectors from any server with the OpenAI form of the API: `POST {address}/embeddings`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from hermes.http_client import HttpClient, TransportError
from hermes.ports.backends import EmbeddingInput
from hermes.ports.memories import Embedding, EmbeddingsUnavailable

MAX_BATCH_TEXTS = 128


class ApiEmbeddings:
    """The port Embeddings."""

    def __init__(
        self,
        client: HttpClient,
        *,
        address: str,
        name: str,
        dimension: int,
        key: str = "",
        timeout_s: float = 5.0,
        weight: float = 0.4,
    ) -> None:
        """`address` ends with the version, as in `…/v1`.

        `weight` should be measured for the model (`benchmarks/recall.py`); the default is the weight of MiniLM."""
        self._client, self._url, self._timeout_s = client, f"{address.rstrip('/')}/embeddings", timeout_s
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._name = name
        self.model, self.dimension, self.weight = f"{name}/{dimension}", dimension, weight

    async def embed(self, texts: Sequence[EmbeddingInput]) -> Sequence[Embedding]:
        vectors: list[Embedding] = []
        for start in range(0, len(texts), MAX_BATCH_TEXTS):
            vectors += await self._ask(texts[start : start + MAX_BATCH_TEXTS])
        return vectors

    async def _ask(self, texts: Sequence[EmbeddingInput]) -> list[Embedding]:
        if len({isinstance(text, str) for text in texts}) > 1:  # the API takes texts, or ids, and not both
            return [vector for text in texts for vector in await self._ask([text])]
        body = json.dumps({"model": self._name, "input": list(texts), "encoding_format": "float"}).encode()
        try:
            async with self._client.send("POST", self._url, headers=self._headers, timeout_s=self._timeout_s, body=body) as reply:
                status, answer = reply.status, await reply.read()
        except TransportError as error:
            raise EmbeddingsUnavailable(f"the embeddings API did not answer: {error}") from error
        if status != 200:
            raise EmbeddingsUnavailable(f"the embeddings API answered with status {status}")
        vectors, tokens = vectors_of(answer, len(texts)), tokens_of(answer)
        counts = [tokens, *(None if tokens is None else 0 for _ in vectors[1:])]
        return [Embedding(self.model, self._check_vector(vector), count) for vector, count in zip(vectors, counts, strict=True)]

    def _check_vector(self, vector: Any) -> tuple[float, ...]:
        """A vector of the right size, scaled to length one."""
        if not isinstance(vector, list) or len(vector) != self.dimension or not all(isinstance(number, int | float) for number in vector):
            raise EmbeddingsUnavailable(f"the embeddings API gave no vector of {self.dimension} numbers")
        norm = math.sqrt(math.fsum(number * number for number in vector))
        if not math.isfinite(norm) or norm == 0.0:
            raise EmbeddingsUnavailable("the embeddings API gave a vector without a direction")
        return tuple(number / norm for number in vector)


def tokens_of(answer: bytes) -> int | None:
    """The tokens that an answer says it read; None if it does not say."""
    usage = json.loads(answer).get("usage")
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) and tokens >= 0 else None


def vectors_of(answer: bytes, count: int) -> list[Any]:
    """The vectors of an answer in the order of the request, by their index."""
    try:
        rows = json.loads(answer)["data"]
        by_index = {row["index"]: row["embedding"] for row in rows}
        return [by_index[index] for index in range(count)]
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddingsUnavailable("the answer of the embeddings API is not a list of vectors") from error
