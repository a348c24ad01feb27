"""`/v1/messages`: a program sends a user's message, and gets the answer at once, later, or as events."""

import hashlib
import hmac
import json
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from hermes.ports.errors import RequestStillRunning
from hermes.ports.users import ApiKey, UserState
from hermes.router.intake import IdempotencyKey
from hermes.turn import AgentResponse, Envelope, MessageEvent, Platform
from hermes.web.answers import TurnAnswers
from hermes.web.api_auth import ApiAuth, allowed_channel
from hermes.web.errors import ApiError, ErrorBody
from hermes.web.rate_limit import RateLimit, address_of
from hermes.web.services import WebServices
from hermes.web.turn_responses import json_only, resume_events, turn_response

Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A name that can be stored, shown and logged: no control characters."""


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
    media_url: str | None = Field(None, max_length=2_048, pattern=r"^https?://[^\s\x00-\x1f]+$")
    media_type: str | None = Field(None, max_length=127, pattern=r"^[\w.+-]+/[\w.+-]+$")


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


def message_routes(services: WebServices, answers: TurnAnswers, api_auth: ApiAuth) -> APIRouter:
    """The routes of `/v1/messages`."""
    routes = APIRouter(tags=["messages"])

    limit = RateLimit(services.api_settings.per_minute)

    async def find_key(request: Request, credentials: Credentials) -> ApiKey:
        return await api_auth.admit(credentials.credentials if credentials else None, "messages", address_of(request))

    @routes.post("/v1/messages", responses=RESPONSES, dependencies=[Depends(json_only)], summary="Send a message")
    async def send(
        body: NewMessage,
        credentials: Credentials,
        key: Annotated[ApiKey, Depends(find_key)],
        idempotency_key: Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)] = None,
        prefer: Annotated[str, Header(description="`respond-async` answers 202 at once.")] = "",
    ) -> Response:
        """With an `Idempotency-Key`, a repeated request gets the answer of the first one, for a day. Without one, every request is a new
        message."""
        if not body.text and body.media_url is None:
            raise ApiError(422, "missing", "The message has neither a text nor a media_url.", param="text")
        allowed_channel(key, body.channel or body.user)
        limit.admit(str(key.id))
        sent_key = None
        if idempotency_key is not None and credentials is not None:
            sent_key = IdempotencyKey(key.id, idempotency_key, body_digest(body, credentials.credentials))
        receipt = await services.intake.accept(
            message_envelope(body, key), newcomer=UserState.ACTIVE, trains=key.trains, idempotency_key=sent_key
        )
        headers: dict[str, str] = {}
        response: AgentResponse | None = None
        if not receipt.is_new:
            response = await answers.now(receipt.turn_id)
            if response is None:
                raise RequestStillRunning
            headers["Idempotent-Replayed"] = "true"
        if body.stream:
            return answers.stream(receipt.turn_id, headers)
        if "respond-async" in {preference.strip().lower() for preference in prefer.split(",")}:
            headers["Preference-Applied"] = "respond-async"
        elif response is None:
            response = await answers.wait(receipt.turn_id, services.settings.answer_timeout_s)
        return turn_response(receipt.turn_id, response, headers, "/v1")

    @routes.get("/v1/messages/{turn_id}", responses=RESPONSES, summary="The answer to a message")
    async def look(turn_id: str, key: Annotated[ApiKey, Depends(find_key)]) -> Response:
        found = await answers.owned_turn(turn_id, key.account, Platform.REST, key.channels)
        return turn_response(found, await answers.now(found), {}, "/v1")

    @routes.get("/v1/messages/{turn_id}/events", responses={200: {"content": STREAM_CONTENT}}, summary="The answer to a message, as events")
    async def follow(turn_id: str, request: Request, key: Annotated[ApiKey, Depends(find_key)]) -> Response:
        found = await answers.owned_turn(turn_id, key.account, Platform.REST, key.channels)
        return resume_events(answers, found, request)

    return routes


def message_envelope(body: NewMessage, key: ApiKey) -> Envelope:
    return Envelope(
        event=MessageEvent(
            platform=Platform.REST, sender_id=body.user, text=body.text, media_url=body.media_url, media_type=body.media_type
        ),
        account=key.account,
        channel_id=body.channel or body.user,
        event_key=str(uuid4()),
        is_shared=body.shared,
        sender_name=body.user,
    )


def body_digest(body: NewMessage, secret: str) -> bytes:
    """Return a digest by which a repeated request is recognised. It is keyed with the caller's secret, so a person who reads the database
    cannot test guesses of the text."""
    canonical = json.dumps(body.model_dump(), sort_keys=True, separators=(",", ":"))
    return hmac.new(secret.encode("utf-8", "surrogatepass"), canonical.encode(), hashlib.sha256).digest()
