"""What Hermes said by itself, for those who fetch their answers from us: reminders, and prices that came down.

Whoever asks says which news they saw last, and gets those that came after; asked again with the same number, it is the same answer."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Cookie, Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from hermes.ports.api_keys import ApiKey
from hermes.ports.outbox import Outbox, ProactiveMessage
from hermes.ports.transactions import Transactions
from hermes.turn import Platform
from hermes.web.chat import ACCOUNT, is_cookie, visitor
from hermes.web.doorkeeper import Doorkeeper, within
from hermes.web.errors import ErrorBody
from hermes.web.limits import address_of
from hermes.web.messages import Credentials, Name

After = Annotated[int, Query(ge=0, description="The `id` of the news that you saw last; 0 for all.")]
RESPONSES: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (401, 403, 422, 429, 503)}


class OneNews(BaseModel):
    """Something that Hermes said by itself."""

    id: int = Field(description="Grows: what has a larger one was said later.")
    turn_id: str = Field(description="The turn in which the user asked for it.")
    name: str = Field(description="What it is of: `reminder/…`, `price/…`.")
    text: str
    at: str


class AllNews(BaseModel):
    """What was said, oldest first."""

    news: list[OneNews]


def news_routes(transactions: Transactions, outbox: Outbox, doorkeeper: Doorkeeper) -> APIRouter:
    """`GET /v1/news`."""
    routes = APIRouter(tags=["messages"])

    async def who(request: Request, credentials: Credentials) -> ApiKey:
        return await doorkeeper.admit(credentials.credentials if credentials else None, "messages", address_of(request))

    @routes.get("/v1/news", response_model=AllNews, responses=RESPONSES, summary="What Hermes said by itself")
    async def news(
        key: Annotated[ApiKey, Depends(who)], user: Name = "default", channel: Name | None = None, after: After = 0
    ) -> JSONResponse:
        """Reminders and prices that came down, in one conversation: the `channel` of `POST /v1/messages`, or else the user's own."""
        async with transactions.begin() as tx:
            return told(await outbox.news(tx, key.account, Platform.REST, within(key, channel or user), after=after))

    return routes


def visitor_news_routes(transactions: Transactions, outbox: Outbox) -> APIRouter:
    """`GET /web/news`, for the chat page."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/web/news")
    async def news(after: After = 0, hermes_visitor: Annotated[str | None, Cookie()] = None) -> JSONResponse:
        if hermes_visitor is None or not is_cookie(hermes_visitor):
            return told(())
        async with transactions.begin() as tx:
            return told(await outbox.news(tx, ACCOUNT, Platform.WEB, visitor(hermes_visitor), after=after))

    return routes


def told(news: Sequence[ProactiveMessage]) -> JSONResponse:
    return JSONResponse({"news": [as_json(each) for each in news]}, headers={"Cache-Control": "no-store"})


def as_json(news: ProactiveMessage) -> dict[str, Any]:
    return {"id": news.id, "turn_id": str(news.turn_id), "name": news.name, "text": news.text, "at": news.at.isoformat()}
