"""The chat page and its routes: a channel like any other, whose senders are browsers.

The page asks for the cookie before it sends its first message: if the response to that message is lost, the same visitor sends it again.
The cookie does not come with the page itself. It is `SameSite=Strict`, so a browser that follows a link from another site asks for the page
without it, and would get a second cookie."""

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Annotated
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from hermes.ports.errors import NotFound
from hermes.ports.users import UserState
from hermes.router.intake import Intake
from hermes.turn import Envelope, MessageEvent, Platform
from hermes.web.answers import TurnAnswers, json_only, resume_events, turn_response
from hermes.web.errors import ApiError
from hermes.web.limits import RateLimit, address_of, source_of
from hermes.web.visitors import VISITOR_COOKIE, Visitors, visitor_id

WEB_ACCOUNT = "web"

PAGE_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # the browser asks each time, and gets a 304
}


class PageMessage(BaseModel):
    """A message that the page sends."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=100_000)
    choice: str = Field("", max_length=64)
    """The id of the button that the visitor pressed; `text` is its label."""
    id: UUID
    """Made by the page, the same for each try: a message whose response was lost can be sent again, and is answered once."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file of the page, as the server sends it."""

    body: bytes
    content_type: str
    etag: str


def chat_routes(intake: Intake, answers: TurnAnswers, limit: RateLimit, visitors: Visitors) -> APIRouter:
    """The routes of the page, its files and its messages."""
    files = page_files()
    routes = APIRouter(include_in_schema=False)
    Visitor = Annotated[str | None, Depends(visitors.find)]  # noqa: N806  # a type

    @routes.get("/")
    async def page(request: Request) -> Response:
        return page_response(files["chat.html"], request)

    @routes.get("/page/{name}")
    async def part(name: str, request: Request) -> Response:
        if name not in files:
            raise ApiError(404, "not_found", "There is no such file.")
        return page_response(files[name], request)

    @routes.post("/web/visitor", dependencies=[Depends(json_only), Depends(own_page_only)])
    async def enter(request: Request, visitor: Visitor) -> Response:
        response = Response(status_code=204)
        if visitor is None:
            VISITOR_COOKIE.put(request, response, visitors.new_cookie())
        return response

    @routes.post("/web/messages", dependencies=[Depends(json_only), Depends(own_page_only)])
    async def send(body: PageMessage, request: Request, visitor: Visitor) -> Response:
        limit.admit(address_of(request))
        cookie = visitor or visitors.new_cookie()
        receipt = await intake.accept(page_envelope(body, visitor_id(cookie)), newcomer=UserState.ACTIVE)
        response = turn_response(receipt.turn_id, None, {}, "/web")
        if visitor is None:
            VISITOR_COOKIE.put(request, response, cookie)
        return response

    @routes.get("/web/messages/{turn_id}")
    async def look(turn_id: str, visitor: Visitor) -> Response:
        found = await visitor_turn(answers, turn_id, visitor)
        return turn_response(found, await answers.now(found), {}, "/web")

    @routes.get("/web/messages/{turn_id}/events")
    async def follow(turn_id: str, request: Request, visitor: Visitor) -> Response:
        # By address: a new visitor costs nothing.
        return resume_events(answers, await visitor_turn(answers, turn_id, visitor), request, source_of(address_of(request)))

    return routes


async def own_page_only(request: Request) -> None:
    """Refuse a request from a page of another site. A program sends no Origin, and has no visitor's cookie either."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise ApiError(403, "foreign_origin", "This server accepts messages from its own page only.")


def page_envelope(body: PageMessage, sender: str) -> Envelope:
    event = MessageEvent(platform=Platform.WEB, sender_id=sender, text=body.text)
    # The visitor is part of the key, so that no visitor can use the message ids of another one.
    return Envelope(event=event, account=WEB_ACCOUNT, channel_id=sender, event_key=f"{sender}:{body.id}", choice=body.choice)


async def visitor_turn(answers: TurnAnswers, turn_id: str, cookie: str | None) -> UUID:
    if cookie is None:
        raise NotFound
    visitor = visitor_id(cookie)
    return await answers.owned_turn(turn_id, WEB_ACCOUNT, Platform.WEB, lambda origin: origin.channel_id == visitor)


def page_files() -> dict[str, PageFile]:
    """Return the files of the page, by name. They are read once: they are a few kilobytes and belong to this version."""
    files = {}
    for file in (resources.files(__package__) / "page").iterdir():
        kind = PAGE_TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            files[file.name] = PageFile(body, f"{kind}; charset=utf-8", f'"{hashlib.sha256(body).hexdigest()[:32]}"')
    return files


def page_response(file: PageFile, request: Request) -> Response:
    headers = {**PAGE_HEADERS, "ETag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers={**headers, "Content-Type": file.content_type})
