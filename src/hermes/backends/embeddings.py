"""The embedding model of the memory as a backend, so that a client's embeddings pass the gateway: limits, slots, prices, the call's row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from hermes.gateway.prices import prompt_tokens
from hermes.ports.backends import (
    EMBEDDING_VECTORS,
    BackendFinding,
    BadRequest,
    Capabilities,
    Completion,
    Delta,
    EmbeddingRequest,
    FindingLevel,
    ModelRequest,
    Overloaded,
    Unreachable,
    Unsupported,
    Usage,
)
from hermes.ports.memories import Embeddings, EmbeddingsUnavailable, UnknownTokens


class EmbeddingsBackend:
    """The port Backend for vectors: an answer has no text, and its vectors are in `extra`."""

    def __init__(self, embeddings: Embeddings, *, name: str) -> None:
        self.name, self._embeddings = name, embeddings

    def capabilities(self, _: str) -> Capabilities:
        return Capabilities(tools=False, sampling=False)

    def supports_tools(self, _: str) -> bool:
        return False

    def answers_as(self, model: str) -> str:
        return model

    async def complete(self, request: ModelRequest, model: str, *, timeout_s: float) -> Completion:
        if not isinstance(request, EmbeddingRequest):
            raise Unsupported(f"{model} gives vectors and no text", backend=self.name, model=model)
        try:
            async with asyncio.timeout(timeout_s):
                vectors = await self._embeddings.embed(request.inputs)
        except UnknownTokens as error:
            raise BadRequest(str(error), backend=self.name, model=model, status=400) from error
        except EmbeddingsUnavailable as error:
            raise Overloaded(str(error), backend=self.name, model=model) from error
        except TimeoutError as error:
            raise Unreachable(f"{self.name} gave no answer within {timeout_s:.1f} s", backend=self.name, model=model) from error
        counts = [vector.tokens for vector in vectors]
        known = [count for count in counts if count is not None]
        is_counted = len(known) == len(counts)
        return Completion(
            message={"role": "assistant", "content": ""},
            finish_reason="stop",
            usage=Usage(tokens_in=sum(known) if is_counted else prompt_tokens(request), is_estimated=not is_counted),
            model=model,
            request_digest="",
            derived=("model",),
            extra={EMBEDDING_VECTORS: [vector.vector for vector in vectors]},
        )

    async def stream(self, request: ModelRequest, model: str, *, timeout_s: float) -> AsyncGenerator[Delta | Completion]:
        yield await self.complete(request, model, timeout_s=timeout_s)

    async def health_check(self, *, timeout_s: float = 5.0) -> Sequence[BackendFinding]:
        try:
            async with asyncio.timeout(timeout_s):
                await self._embeddings.embed(["hello"])
        except (EmbeddingsUnavailable, TimeoutError) as error:
            return [BackendFinding("embeddings_unavailable", FindingLevel.ERROR, f"{self.name} gives no vectors: {error}")]
        return []

    async def aclose(self) -> None:
        pass  # the memory holds the model
