"""`/anthropic/v1/messages`: Anthropic's Messages API over the same chats, models and limits as `/v1/chat/completions`.

This module knows HTTP. gateway/messages_request reads requests, web/anthropic_answer writes answers and errors. Our own messages are
elsewhere: `/v1/messages` is in messages.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from hermes.gateway.chat_request import ChatRequest, read_request
from hermes.gateway.completions import ChatCompletions, EndUser
from hermes.gateway.messages_request import MessagesRequest, read_messages_request
from hermes.gateway.prices import prompt_tokens
from hermes.gateway.quoted_calls import restore_quoted_calls
from hermes.gateway.thinking_seal import ThinkingSeal
from hermes.ports.users import ApiKey
from hermes.web.anthropic_answer import MessagesWriter, error_response_of, model_fields, new_request_id
from hermes.web.api_auth import ApiAuth
from hermes.web.completion_errors import raise_openai_errors
from hermes.web.completions import bearer_secret, parse_body, send_answers
from hermes.web.errors import ApiError
from hermes.web.limits import address_of

ANTHROPIC_PATH = "/anthropic"
MESSAGES_PATH = "/anthropic/v1/messages"
COUNT_PATH = "/anthropic/v1/messages/count_tokens"
MODELS_PATH = "/anthropic/v1/models"
MODEL_PATH = "/anthropic/v1/models/{name:path}"

RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The message, in the format of Anthropic's API; server-sent events with `stream`.",
        "content": {"application/json": {}},
    },
    **{
        status: {"description": "The error, in the format of Anthropic's API."}
        for status in (400, 401, 403, 404, 413, 429, 500, 502, 503, 504, 529)
    },
}
REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A request in the format of Anthropic's messages.",
        "content": {"application/json": {"schema": {"type": "object", "required": ["model", "max_tokens", "messages"]}}},
    },
    "security": [{"HTTPBearer": []}],
}


@dataclass(frozen=True, slots=True)
class AnthropicEndpoint:
    """Answers `/anthropic/v1/…`. Every error has Anthropic's shape."""

    completions: ChatCompletions
    api_auth: ApiAuth

    async def create(self, request: Request) -> Response:
        """The request's blocks become a chat, which is answered and recorded as any other."""
        return await answer_or_error(lambda request_id: self._create(request, request_id))

    async def count(self, request: Request) -> Response:
        """The tokens of a request, counted rather too high than too low."""
        return await answer_or_error(lambda _: self._count(request))

    async def models(self, request: Request) -> Response:
        return await answer_or_error(lambda _: self._models(request))

    async def model(self, request: Request, name: str) -> Response:
        return await answer_or_error(lambda _: self._model(request, name))

    async def _create(self, request: Request, request_id: str) -> Response:
        secret, key = await self._admit(request)
        seal = ThinkingSeal(secret)
        asked = read_messages_request(parse_body(await request.body()), seal)
        chat_request, end_user = await self._chat_request(asked, key)
        writer = MessagesWriter(asked, seal, request_id)
        return await send_answers(request, self.completions, chat_request, end_user, writer)

    async def _count(self, request: Request) -> Response:
        secret, key = await self._admit(request, is_counted=False)
        asked = read_messages_request(parse_body(await request.body()), ThinkingSeal(secret), needs_limit=False)
        chat_request = read_request(asked.chat, max_choices=1)
        self.completions.chain(chat_request.model, key.tier or self.completions.tier, key.limits)
        return JSONResponse({"input_tokens": prompt_tokens(chat_request.ask(""))})

    async def _models(self, request: Request) -> Response:
        _, key = await self._admit(request, is_counted=False)
        names = self.completions.models(key.tier or self.completions.tier, key.limits)
        ends = {"first_id": names[0], "last_id": names[-1]}
        return JSONResponse({"data": [model_fields(name) for name in names], "has_more": False, **ends})

    async def _model(self, request: Request, name: str) -> Response:
        _, key = await self._admit(request, is_counted=False)
        self.completions.chain(name, key.tier or self.completions.tier, key.limits)
        return JSONResponse(model_fields(name))

    async def _admit(self, request: Request, *, is_counted: bool = True) -> tuple[str, ApiKey]:
        """Anthropic's clients send a key as `x-api-key` or as a bearer token. A request that asks no model does not count towards the key's
        requests a minute."""
        secret = bearer_secret(request) or request.headers.get("x-api-key")
        return secret or "", await self.api_auth.admit(secret, "completions", address_of(request), is_counted=is_counted)

    async def _chat_request(self, asked: MessagesRequest, key: ApiKey) -> tuple[ChatRequest, EndUser]:
        chat_request = read_request(asked.chat, max_choices=1)
        end_user = await self.completions.end_user(key, chat_request.user)
        messages = await restore_quoted_calls(chat_request.messages, end_user.user.id, self.completions.stores)
        return replace(chat_request, messages=messages, thinking=asked.thinking), end_user


async def answer_or_error(answer: Callable[[str], Awaitable[Response]]) -> Response:
    """Return the answer, or the error in Anthropic's shape. Both name the request."""
    request_id = new_request_id()
    try:
        with raise_openai_errors():
            response = await answer(request_id)
    except ApiError as error:
        return error_response_of(error, request_id)
    except HTTPException as error:  # the body is too large
        return error_response_of(ApiError(error.status_code, "too_large", str(error.detail)), request_id)
    response.headers["request-id"] = request_id
    return response


def anthropic_routes(endpoint: AnthropicEndpoint) -> APIRouter:
    """The routes for Anthropic's clients."""
    routes = APIRouter(tags=["anthropic messages"])

    @routes.post(MESSAGES_PATH, responses=RESPONSES, openapi_extra=REQUEST_BODY, summary="Answer a request of Anthropic's Messages API")
    async def create(request: Request) -> Response:
        return await endpoint.create(request)

    @routes.post(COUNT_PATH, responses=RESPONSES, openapi_extra=REQUEST_BODY, summary="Count a request's tokens")
    async def count(request: Request) -> Response:
        return await endpoint.count(request)

    @routes.get(MODELS_PATH, responses=RESPONSES, summary="The models that this key may ask for")
    async def models(request: Request) -> Response:
        return await endpoint.models(request)

    @routes.get(MODEL_PATH, responses=RESPONSES, summary="One model")
    async def model(name: str, request: Request) -> Response:
        return await endpoint.model(request, name)

    @routes.get(ANTHROPIC_PATH, summary="That this address answers; some clients ask before their first request")
    async def here() -> dict[str, str]:
        return {"status": "ok"}

    routes.add_api_route(ANTHROPIC_PATH, here, methods=["HEAD"], include_in_schema=False)
    return routes
