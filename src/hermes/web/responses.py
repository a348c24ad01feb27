"""`/v1/responses`: OpenAI's Responses API over the same chats, models and limits as `/v1/chat/completions`.

This module knows HTTP. gateway/responses_request reads requests, web/responses_answer writes answers, and gateway/stored_responses finds
those that a client asks for again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from hermes.gateway.chat_request import ChatRequest, InvalidChatRequest, read_request, text_field
from hermes.gateway.completions import ChatCompletions, EndUser
from hermes.gateway.prices import prompt_tokens
from hermes.gateway.quoted_calls import restore_quoted_calls
from hermes.gateway.response_items import ItemReader
from hermes.gateway.responses_request import ResponsesRequest, read_responses_request
from hermes.gateway.stored_responses import StoredResponse, UnknownStoredResponse, delete_response, find_response
from hermes.gateway.thinking_seal import ThinkingSeal
from hermes.ports.backends import ChatMessage
from hermes.ports.users import ApiKey
from hermes.web.api_auth import ApiAuth
from hermes.web.completion_errors import raise_openai_errors
from hermes.web.completions import bearer_secret, parse_body, send_answers
from hermes.web.errors import ApiError, ErrorBody
from hermes.web.limits import address_of
from hermes.web.response_object import input_items, kept_fields, stored_body
from hermes.web.responses_answer import ResponsesWriter

RESPONSES_PATH = "/v1/responses"
COUNT_PATH = "/v1/responses/input_tokens"
ONE_PATH = "/v1/responses/{response_id}"
ITEMS_PATH = "/v1/responses/{response_id}/input_items"
CANCEL_PATH = "/v1/responses/{response_id}/cancel"
DEFAULT_ITEMS = 20
MAX_ITEMS = 100
PARAMS = {"messages": "input", "max_tokens": "max_output_tokens", "response_format": "text.format", "stream_options": "stream"}
"""Fields of a chat request by the names that they have here."""
NO_WEBSOCKET = {"Upgrade": "HTTP/1.1", "Connection": "Upgrade"}

ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (400, 401, 404, 413, 429, 500, 502, 503, 504)}
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The response, in the format of OpenAI's API; server-sent events with `stream`.",
        "content": {"application/json": {}},
    },
    **ERRORS,
}
REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A request in the format of OpenAI's responses.",
        "content": {"application/json": {"schema": {"type": "object", "required": ["model", "input"]}}},
    },
    "security": [{"HTTPBearer": []}],
}


@dataclass(frozen=True, slots=True)
class ResponsesEndpoint:
    """Answers `/v1/responses`."""

    completions: ChatCompletions
    api_auth: ApiAuth

    async def create(self, request: Request) -> Response:
        """The request's items become a chat, which is answered and recorded as any other."""
        with raise_response_errors():
            secret, key = await self.admit(request)
            asked = read_responses_request(parse_body(await request.body()))
            seal = ThinkingSeal(secret)
            chat_request, end_user = await self._chat_request(asked, key, seal)
            writer = ResponsesWriter(asked, seal)
            chat_request = replace(chat_request, kept=kept_fields(asked, writer.created_at))
            return await send_answers(request, self.completions, chat_request, end_user, writer)

    async def count(self, request: Request) -> Response:
        """The tokens of a request, counted rather too high than too low."""
        with raise_response_errors():
            secret, key = await self.admit(request, is_counted=False)
            body = parse_body(await request.body())
            asked = read_responses_request({"model": "hermes", **body} if isinstance(body, dict) else body)
            chat_request, end_user = await self._chat_request(asked, key, ThinkingSeal(secret))
            tokens = prompt_tokens(chat_request.ask(str(end_user.user.id)))
            return JSONResponse({"object": "response.input_tokens", "input_tokens": tokens})

    async def admit(self, request: Request, *, is_counted: bool = True) -> tuple[str, ApiKey]:
        """The key and its secret. A request that asks no model does not count towards the key's requests a minute."""
        secret = bearer_secret(request)
        return secret or "", await self.api_auth.admit(secret, "completions", address_of(request), is_counted=is_counted)

    async def _chat_request(self, asked: ResponsesRequest, key: ApiKey, seal: ThinkingSeal) -> tuple[ChatRequest, EndUser]:
        """The chat that the request means: its instructions, what it continues, and its items."""
        end_user = await self.completions.end_user(key, text_field(asked.chat, "user", default=""))
        before = await self._previous(asked, end_user)
        items = await self._resolve(asked, end_user)
        reader = ItemReader(seal)
        for at, item in enumerate(items):
            reader.read(item, f"input[{at}]")
        instructions = [{"role": "system", "content": asked.instructions}] if asked.instructions else []
        earlier: Sequence[ChatMessage] = [] if before is None else before.messages
        messages = [*instructions, *earlier, *reader.messages]
        chat_request = read_request({**asked.chat, "messages": messages}, max_choices=1)
        own = await restore_quoted_calls(chat_request.messages, end_user.user.id, self.completions.stores)
        thinking: dict[int, Mapping[str, Any]] = (
            {} if before is None else {at + len(instructions): it for at, it in before.thinking.items()}
        )
        thinking |= {at + len(instructions) + len(earlier): found for at, found in reader.thinking.items()}
        return replace(chat_request, messages=own, thinking=thinking), end_user

    async def _previous(self, asked: ResponsesRequest, end_user: EndUser) -> StoredResponse | None:
        if asked.previous is None:
            return None
        try:
            return await self._find(asked.previous, end_user)
        except UnknownStoredResponse:
            message = f"Previous response with id '{asked.previous}' not found."
            raise ApiError(
                400, "previous_response_not_found", message, param="previous_response_id", kind="invalid_request_error"
            ) from None

    async def stored(self, key: ApiKey, name: str) -> StoredResponse:
        """A stored response of a key, which may still name its user."""
        stored = await find_response(self.completions.stores, name, key.id)
        if not await self.completions.may_name(key, stored.user_id):
            raise UnknownStoredResponse(name)
        return stored

    async def _find(self, name: str, end_user: EndUser) -> StoredResponse:
        """A stored response that was an answer to this user: what other users of the key were told is not theirs to continue or to name."""
        assert end_user.api_key_id is not None  # noqa: S101  # requests of this API come with a key
        return await find_response(self.completions.stores, name, end_user.api_key_id, end_user.user.id)

    async def _resolve(self, asked: ResponsesRequest, end_user: EndUser) -> list[Mapping[str, Any]]:
        """The request's items, with each reference replaced by the item of an earlier answer that it names."""
        known: dict[str, Mapping[str, Any]] = {}
        for reference in asked.references:
            if reference in known:
                continue
            owner = reference.split("_")[1] if reference.count("_") == 2 else ""
            try:
                stored = await self._find(f"resp_{owner}", end_user)
            except UnknownStoredResponse:
                continue
            known |= {item["id"]: item for item in [*stored_body(stored)["output"], *input_items(stored)]}
        missing = next((reference for reference in asked.references if reference not in known), None)
        if missing is not None:
            raise ApiError(400, "item_not_found", f"Item with id '{missing}' not found.", param="input", kind="invalid_request_error")
        return [known[item["id"]] if item.get("type") == "item_reference" else item for item in asked.items]


@contextmanager
def raise_response_errors() -> Iterator[None]:
    """Turn the errors of the block into those of OpenAI's API, with the names that the fields have in this one."""
    with raise_openai_errors():
        try:
            yield
        except UnknownStoredResponse as error:
            raise ApiError(404, "not_found", f"Response with id '{error}' not found.", kind="invalid_request_error") from None
        except InvalidChatRequest as error:
            first, _, rest = error.param.partition("[")
            name = PARAMS.get(first, first)
            param = name if name == "input" and first == "messages" else f"{name}[{rest}" if rest else name
            raise InvalidChatRequest(param, str(error).removeprefix(f"{error.param}: ")) from None


def responses_routes(endpoint: ResponsesEndpoint) -> APIRouter:
    """The routes for clients of OpenAI's Responses API."""
    routes = APIRouter(tags=["responses"])

    @routes.post(RESPONSES_PATH, responses=RESPONSES, openapi_extra=REQUEST_BODY, summary="Answer a request of OpenAI's Responses API")
    async def create(request: Request) -> Response:
        return await endpoint.create(request)

    @routes.get(RESPONSES_PATH, responses={426: {"model": ErrorBody}}, summary="Refuse a WebSocket: responses are streamed over HTTP")
    async def websocket() -> Response:
        message = "Responses are not served over a WebSocket; use POST."
        raise ApiError(426, "upgrade_required", message, headers=NO_WEBSOCKET, kind="invalid_request_error")

    @routes.post(COUNT_PATH, responses=ERRORS, openapi_extra=REQUEST_BODY, summary="Count a request's tokens")
    async def count(request: Request) -> Response:
        return await endpoint.count(request)

    @routes.get(ONE_PATH, responses=ERRORS, summary="A stored response")
    async def retrieve(response_id: str, request: Request, *, stream: bool = False) -> Response:
        with raise_response_errors():
            _, key = await endpoint.admit(request, is_counted=False)
            stored = await endpoint.stored(key, response_id)
            if stream:
                raise InvalidChatRequest("stream", "only responses in the background can be streamed again")
            return JSONResponse(stored_body(stored))

    @routes.delete(ONE_PATH, responses=ERRORS, summary="Delete a stored response")
    async def delete(response_id: str, request: Request) -> Response:
        with raise_response_errors():
            _, key = await endpoint.admit(request, is_counted=False)
            await endpoint.stored(key, response_id)
            await delete_response(endpoint.completions.stores, response_id, key.id)
            return JSONResponse({"id": response_id, "object": "response", "deleted": True})

    @routes.get(ITEMS_PATH, responses=ERRORS, summary="What a stored response answered")
    async def items(
        response_id: str, request: Request, after: str | None = None, limit: int = DEFAULT_ITEMS, order: str = "desc"
    ) -> Response:
        with raise_response_errors():
            _, key = await endpoint.admit(request, is_counted=False)
            stored = await endpoint.stored(key, response_id)
            if not 1 <= limit <= MAX_ITEMS:
                raise InvalidChatRequest("limit", f"expected a whole number from 1 to {MAX_ITEMS}", limit)
            if order not in ("asc", "desc"):
                raise InvalidChatRequest("order", "expected asc or desc", order)
            found = input_items(stored)
            return JSONResponse(page_of(found if order == "asc" else found[::-1], after, limit))

    @routes.post(CANCEL_PATH, responses=ERRORS, summary="Refused: no response runs in the background")
    async def cancel(response_id: str, request: Request) -> Response:
        with raise_response_errors():
            _, key = await endpoint.admit(request, is_counted=False)
            await endpoint.stored(key, response_id)
            raise ApiError(400, "not_in_background", "Cannot cancel a synchronous response.", kind="invalid_request_error")

    return routes


def page_of(items: Sequence[Mapping[str, Any]], after: str | None, limit: int) -> dict[str, Any]:
    """A page of a list, which begins behind the item `after`."""
    at = next((place + 1 for place, item in enumerate(items) if item["id"] == after), None) if after else 0
    if at is None:
        raise InvalidChatRequest("after", "there is no such item", after)
    page = items[at : at + limit]
    return {
        "object": "list",
        "data": list(page),
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": at + limit < len(items),
    }
