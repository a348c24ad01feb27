"""`/v1/messages`: a program sends a user's message, and gets the answer at once, later, or as events.

Also `/v1/news` and `/web/news`: proactive messages, for clients that fetch their answers: reminders, and prices that came down. A client
sends the id of the last one that it saw, and gets the later ones. The same id again gets the same answer, and what came meanwhile."""

import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hermes.ports.errors import RequestStillRunning
from hermes.ports.inbox import AcceptedMessage, Inbox
from hermes.ports.key_use import person_forbidden
from hermes.ports.outbox import Outbox, ProactiveMessage
from hermes.ports.runtime import Transactions
from hermes.ports.users import ApiKey, UserChannel, Users, UserState
from hermes.router.decisions import choice_of
from hermes.router.intake import IdempotencyKey, Intake
from hermes.turn import AgentResponse, Envelope, MessageEvent, Platform
from hermes.web.answers import TurnAnswers, is_json, json_only, resume_events, turn_response
from hermes.web.api_auth import ApiAuth, is_room, key_errors, may_see, refuse_other_channels, refuse_other_users
from hermes.web.chat_page import WEB_ACCOUNT
from hermes.web.direct_routes import DirectRoute, read_by
from hermes.web.errors import ApiError, ErrorBody
from hermes.web.key_errors import key_api_error
from hermes.web.limits import RateLimit, address_of
from hermes.web.request_json import parse_json
from hermes.web.visitors import Visitors, visitor_id

Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A name that can be stored, shown and logged: no control characters."""


OfferCode = Annotated[str, Field(pattern=r"^[2-9A-HJKMNP-TV-Z]{6}$")]


class NewMessage(BaseModel):
    """A message from one of your users."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str = Field("", max_length=100_000, description="The user's text; may be left out if there is an image.")
    user: Name = Field("default", description="Your name for the user who writes. Each user has credits and a memory of their own.")
    channel: Name | None = Field(None, description="The conversation that the message belongs to; without it, the user's own.")
    shared: bool = Field(
        default=False,
        description="Whether other people read this channel too: then the answer uses nothing private of the user, and no tool works "
        "for them. A channel stays shared from the first message with this, and as soon as a second user writes in it.",
    )
    stream: bool = Field(default=False, description="Answer with server-sent events: accepted, message, done.")
    approve: OfferCode | None = Field(
        None, description="The `code` of an offer that this user approves, in place of a text. It is carried out exactly as offered, once."
    )
    refuse: OfferCode | None = Field(None, description="The `code` of an offer that this user refuses, in place of a text.")
    media_url: str | None = Field(None, max_length=2_048, pattern=r"^https?://[^\s\x00-\x1f]+$")
    media_type: str | None = Field(None, max_length=127, pattern=r"^[\w.+-]+/[\w.+-]+$")


class OfferButton(BaseModel):
    """A button of an offer."""

    id: str
    label: str


class OfferReply(BaseModel):
    """What waits for the user's approval: show it to them, and to no other person. `approve` or `refuse` of a message answers it."""

    code: str
    tool: str
    text: str
    expires_at: str
    buttons: list[OfferButton]


class MessageReply(BaseModel):
    """The answer, with its price."""

    turn_id: UUID
    text: str
    tokens_in: int
    tokens_out: int
    cost_usd: float
    tool_calls_made: int
    backend: str
    cache_hit: bool
    saved_usd: float
    offers: list[OfferReply] = Field(default=[], description="Left out if there is none.")


class RunningTurn(BaseModel):
    """The message is stored, and Hermes works on its answer."""

    turn_id: UUID
    status: str = "running"


STREAM_CONTENT: dict[str, Any] = {"application/json": {}, "text/event-stream": {"schema": {"type": "string"}}}
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": MessageReply, "description": "The answer."},
    202: {"model": RunningTurn, "description": "The turn runs; `Location` is the address of its answer."},
    **{status: {"model": ErrorBody} for status in (400, 401, 403, 404, 409, 410, 413, 415, 422, 429, 503)},
}

bearer = HTTPBearer(auto_error=False, description="An API key, `hk_…`.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
FindKey = Callable[[Request, HTTPAuthorizationCredentials | None], Awaitable[ApiKey]]
MAX_IDEMPOTENCY_KEY_CHARS = 255


def make_key_dependency(api_auth: ApiAuth, scope: str) -> FindKey:
    """Return the dependency of a route that needs an API key with this scope."""

    async def find_key(request: Request, credentials: Credentials) -> ApiKey:
        secret, is_counted = credentials.credentials if credentials else None, request.method != "GET"
        return await api_auth.admit(secret, scope, address_of(request), is_counted=is_counted)

    return find_key


def message_routes(intake: Intake, answers: TurnAnswers, api_auth: ApiAuth, limit: RateLimit, *, answer_timeout_s: float) -> APIRouter:
    """The routes of `/v1/messages`."""
    routes = APIRouter(tags=["messages"], route_class=DirectRoute)
    find_key = make_key_dependency(api_auth, "messages")

    @routes.post("/v1/messages", responses=RESPONSES, dependencies=[Depends(json_only)], summary="Send a message")
    @read_by(partial(read_send_arguments, find_key))
    async def send(
        body: NewMessage,
        credentials: Credentials,
        key: Annotated[ApiKey, Depends(find_key)],
        idempotency_key: Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=MAX_IDEMPOTENCY_KEY_CHARS)] = None,
        prefer: Annotated[str, Header(description="`respond-async` answers 202 at once.")] = "",
    ) -> Response:
        """With an `Idempotency-Key`, a repeated request gets the answer of the first one, for a day. Without one, every request is a new
        message."""
        if body.approve and body.refuse:
            raise ApiError(422, "invalid_request", "An offer is either approved or refused.", param="refuse")
        if not body.text and body.media_url is None and not body.approve and not body.refuse:
            raise ApiError(422, "missing", "The message has neither a text nor a media_url.", param="text")
        refuse_other_users(key, body.user)
        refuse_other_channels(key, body.channel or body.user)
        limit.admit(str(key.id))
        await api_auth.check_quota(key)
        sent_key = None
        if idempotency_key is not None and credentials is not None:
            sent_key = IdempotencyKey(key.id, idempotency_key, body_digest(body, credentials.credentials))
        receipt = await accept_message(intake, message_envelope(body, key), key, sent_key)
        headers: dict[str, str] = {}
        response: AgentResponse | None = None
        if not receipt.is_new:
            response = await answers.now(receipt.turn_id)
            if response is None:
                raise RequestStillRunning
            headers["Idempotent-Replayed"] = "true"
        if body.stream:
            return answers.stream(receipt.turn_id, headers, str(key.id), is_new=receipt.is_new)
        if "respond-async" in {preference.strip().lower() for preference in prefer.split(",")}:
            headers["Preference-Applied"] = "respond-async"
        elif response is None:
            response = await answers.wait(receipt.turn_id, answer_timeout_s, str(key.id))
        return turn_response(receipt.turn_id, response, headers, "/v1")

    @routes.get("/v1/messages/{turn_id}", responses=RESPONSES, summary="The answer to a message")
    async def look(turn_id: str, key: Annotated[ApiKey, Depends(find_key)]) -> Response:
        found = await answers.owned_turn(turn_id, key.account, Platform.REST, partial(may_see, key))
        return turn_response(found, await answers.now(found), {}, "/v1")

    @routes.get("/v1/messages/{turn_id}/events", responses={200: {"content": STREAM_CONTENT}}, summary="The answer to a message, as events")
    async def follow(turn_id: str, request: Request, key: Annotated[ApiKey, Depends(find_key)]) -> Response:
        found = await answers.owned_turn(turn_id, key.account, Platform.REST, partial(may_see, key))
        return resume_events(answers, found, request, str(key.id))

    return routes


async def read_send_arguments(find_key: FindKey, request: Request) -> dict[str, Any] | None:
    """Return the arguments of `send`; None if the request has a fault beside its key."""
    idempotency_key = request.headers.get("idempotency-key")
    if not is_json(request) or (idempotency_key is not None and not 1 <= len(idempotency_key) <= MAX_IDEMPOTENCY_KEY_CHARS):
        return None
    try:
        body = NewMessage.model_validate(parse_json(await request.body()))
    except (ApiError, ValidationError):
        return None
    credentials = await bearer(request)
    key = await find_key(request, credentials)
    prefer = request.headers.get("prefer", "")
    return {"body": body, "credentials": credentials, "key": key, "idempotency_key": idempotency_key, "prefer": prefer}


async def accept_message(intake: Intake, envelope: Envelope, key: ApiKey, idempotency_key: IdempotencyKey | None) -> AcceptedMessage:
    """Store what a program sends in a user's name, if its key may name that user."""
    with key_errors():
        return await intake.accept(
            envelope,
            newcomer=UserState.ACTIVE,
            trains=key.trains,
            idempotency_key=idempotency_key,
            refuses_people=key.limits.users is None,
        )


def message_envelope(body: NewMessage, key: ApiKey) -> Envelope:
    return Envelope(
        event=MessageEvent(
            platform=Platform.REST,
            sender_id=body.user,
            text=body.text or body.approve or body.refuse or "",
            media_url=body.media_url,
            media_type=body.media_type,
        ),
        account=key.account,
        channel_id=body.channel or body.user,
        event_key=str(uuid4()),
        is_shared=body.shared or is_room(key, body.user, body.channel or body.user),
        is_own=body.channel is None,
        sender_name=body.user,
        api_key_id=key.id,
        choice=choice_of(body.approve or body.refuse or "", is_approved=bool(body.approve)) if body.approve or body.refuse else "",
    )


def body_digest(body: NewMessage, secret: str) -> bytes:
    """Return a digest by which a repeated request is recognised. It is keyed with the caller's secret, so a person who reads the database
    cannot test guesses of the text."""
    without = {name for name in ("approve", "refuse") if getattr(body, name) is None}  # the digest of a body of the version before
    canonical = json.dumps(body.model_dump(exclude=without), sort_keys=True, separators=(",", ":"))
    return hmac.new(secret.encode("utf-8", "surrogatepass"), canonical.encode(), hashlib.sha256).digest()


# --- proactive messages

AfterId = Annotated[int, Query(ge=0, description="The `id` of the last proactive message that you saw; 0 for all.")]
NEWS_RESPONSES: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (401, 403, 422, 429, 503)}


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


def proactive_routes(transactions: Transactions, outbox: Outbox, inbox: Inbox, people: Users, api_auth: ApiAuth) -> APIRouter:
    """`GET /v1/news`."""
    routes = APIRouter(tags=["messages"])
    find_key = make_key_dependency(api_auth, "messages")

    @routes.get("/v1/news", response_model=ProactiveMessageList, responses=NEWS_RESPONSES, summary="Messages that Hermes sent by itself")
    async def news(
        key: Annotated[ApiKey, Depends(find_key)], user: Name = "default", channel: Name | None = None, after: AfterId = 0
    ) -> JSONResponse:
        """Reminders and prices that came down, in one conversation: the `channel` of `POST /v1/messages`, or else the user's own."""
        refuse_other_users(key, user)
        refuse_other_channels(key, channel or user)
        async with transactions.begin() as tx:
            if key.limits.users is None and await people.is_person(tx, UserChannel(key.account, Platform.REST, user)):
                raise key_api_error(person_forbidden(user))
            found = await inbox.find_channel(tx, key.account, Platform.REST, user, channel)
            if found is None:
                return messages_response(())
            return messages_response(await outbox.proactive_messages(tx, key.account, Platform.REST, found, after=after))

    return routes


def visitor_proactive_routes(transactions: Transactions, outbox: Outbox, visitors: Visitors) -> APIRouter:
    """`GET /web/news`, for the chat page."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/web/news")
    async def news(visitor: Annotated[str | None, Depends(visitors.find)], after: AfterId = 0) -> JSONResponse:
        if visitor is None:
            return messages_response(())
        async with transactions.begin() as tx:
            return messages_response(await outbox.proactive_messages(tx, WEB_ACCOUNT, Platform.WEB, visitor_id(visitor), after=after))

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
