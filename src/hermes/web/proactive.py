"""Proactive messages, for clients that fetch their answers: reminders, and prices that came down.

A client sends the id of the last proactive message that it saw, and gets the later ones. The same id again gets the same answer, and what
came meanwhile."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Cookie, Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from hermes.ports.outbox import Outbox, ProactiveMessage
from hermes.ports.runtime import Transactions
from hermes.ports.users import ApiKey
from hermes.turn import Platform
from hermes.web.api_auth import ApiAuth, allowed_channel
from hermes.web.chat_page import WEB_ACCOUNT, is_cookie, visitor_id
from hermes.web.errors import ErrorBody
from hermes.web.messages import Credentials, Name
from hermes.web.rate_limit import address_of

AfterId = Annotated[int, Query(ge=0, description="The `id` of the last proactive message that you saw; 0 for all.")]
RESPONSES: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (401, 403, 422, 429, 503)}


class ProactiveMessageView(BaseModel):
    """A message that Hermes sent by itself."""

    id: int = Field(description="Grows: a later message has a larger one.")
    turn_id: str = Field(description="The turn in which the user asked for it.")
    name: str = Field(description="What the message is about: `reminder/…`, `price/…`.")
    text: str
    at: str


class ProactiveMessageList(BaseModel):
    """Proactive messages, oldest first."""

    news: list[ProactiveMessageView]


def proactive_routes(transactions: Transactions, outbox: Outbox, api_auth: ApiAuth) -> APIRouter:
    """`GET /v1/news`."""
    routes = APIRouter(tags=["messages"])

    async def find_key(request: Request, credentials: Credentials) -> ApiKey:
        return await api_auth.admit(credentials.credentials if credentials else None, "messages", address_of(request))

    @routes.get("/v1/news", response_model=ProactiveMessageList, responses=RESPONSES, summary="Messages that Hermes sent by itself")
    async def news(
        key: Annotated[ApiKey, Depends(find_key)], user: Name = "default", channel: Name | None = None, after: AfterId = 0
    ) -> JSONResponse:
        """Reminders and prices that came down, in one conversation: the `channel` of `POST /v1/messages`, or else the user's own."""
        async with transactions.begin() as tx:
            return messages_response(
                await outbox.proactive_messages(tx, key.account, Platform.REST, allowed_channel(key, channel or user), after=after)
            )

    return routes


def visitor_proactive_routes(transactions: Transactions, outbox: Outbox) -> APIRouter:
    """`GET /web/news`, for the chat page."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/web/news")
    async def news(after: AfterId = 0, hermes_visitor: Annotated[str | None, Cookie()] = None) -> JSONResponse:
        if hermes_visitor is None or not is_cookie(hermes_visitor):
            return messages_response(())
        async with transactions.begin() as tx:
            return messages_response(
                await outbox.proactive_messages(tx, WEB_ACCOUNT, Platform.WEB, visitor_id(hermes_visitor), after=after)
            )

    return routes


def messages_response(messages: Sequence[ProactiveMessage]) -> JSONResponse:
    return JSONResponse({"news": [message_json(message) for message in messages]}, headers={"Cache-Control": "no-store"})


def message_json(message: ProactiveMessage) -> dict[str, Any]:
    return {
        "id": message.id,
        "turn_id": str(message.turn_id),
        "name": message.name,
        "text": message.text,
        "at": message.at.isoformat(),
    }
