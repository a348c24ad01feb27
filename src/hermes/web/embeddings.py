"""`/v1/embeddings`: vectors from the embedding model of the memory, admitted, charged and recorded as any model call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from hermes.gateway.completions import ChatCompletions
from hermes.gateway.embeddings_request import encode_vector, read_embeddings_request
from hermes.ports.backends import EMBEDDING_VECTORS
from hermes.web.api_auth import ApiAuth
from hermes.web.completion_errors import raise_openai_errors
from hermes.web.completions import bearer_secret, cancel_if_client_leaves, parse_body
from hermes.web.errors import ErrorBody
from hermes.web.limits import address_of

EMBEDDINGS_PATH = "/v1/embeddings"
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The vectors, in the format of OpenAI's API.", "content": {"application/json": {}}},
    **{status: {"model": ErrorBody} for status in (400, 401, 404, 413, 429, 500, 503, 504)},
}
REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A request in the format of OpenAI's embeddings.",
        "content": {"application/json": {"schema": {"type": "object", "required": ["model", "input"]}}},
    },
    "security": [{"HTTPBearer": []}],
}


@dataclass(frozen=True, slots=True)
class EmbeddingsEndpoint:
    """Answers `/v1/embeddings`."""

    completions: ChatCompletions
    api_auth: ApiAuth

    async def create(self, request: Request) -> Response:
        with raise_openai_errors():
            key = await self.api_auth.admit(bearer_secret(request), "completions", address_of(request))
            asked = read_embeddings_request(parse_body(await request.body()))
            end_user = await self.completions.end_user(key, asked.user)
            answer = await cancel_if_client_leaves(request, self.completions.embed(asked, end_user))
            vectors, tokens = answer.completion.extra[EMBEDDING_VECTORS], answer.completion.usage.tokens_in
            rows = [
                {"object": "embedding", "index": at, "embedding": encode_vector(vector, asked.encoding)}
                for at, vector in enumerate(vectors)
            ]
            return JSONResponse(
                {
                    "object": "list",
                    "data": rows,
                    "model": answer.model,
                    "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
                    "hermes": {"backend": answer.backend, "cost_usd": answer.micro_usd / 1_000_000},
                },
                headers={"Cache-Control": "no-store"},
            )


def embeddings_routes(endpoint: EmbeddingsEndpoint) -> APIRouter:
    """The route for OpenAI clients."""
    routes = APIRouter(tags=["embeddings"])

    @routes.post(EMBEDDINGS_PATH, responses=RESPONSES, openapi_extra=REQUEST_BODY, summary="Turn texts into vectors, as OpenAI's API does")
    async def create(request: Request) -> Response:
        return await endpoint.create(request)

    return routes
