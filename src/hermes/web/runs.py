"""`/v1/runs`: a program gives Hermes a task, follows it, and may stop it, as Paperclip's adapter `hermes_gateway` does.

The id of a run is the id of its turn. A session key names the conversation; without one a run has a conversation of its own."""

import hashlib
import hmac
import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from hermes.ports.errors import NotFound
from hermes.ports.users import ApiKey
from hermes.router.intake import IdempotencyKey, Intake
from hermes.router.stop import TurnStopper
from hermes.turn import Envelope, Platform
from hermes.web.answers import TurnAnswers, json_only
from hermes.web.api_auth import ApiAuth, is_room, may_see, refuse_other_channels, refuse_other_users
from hermes.web.errors import ApiError, ErrorBody
from hermes.web.limits import RateLimit
from hermes.web.messages import Credentials, Name, NewMessage, accept_message, make_key_dependency, message_envelope
from hermes.web.run_states import END_ID, RunReader, RunState

MAX_TASK_CHARS = 100_000
SESSION_KEY = r"^[^\x00-\x1f\x7f]+$"
MAX_SESSION_KEY_CHARS = 256
"""Paperclip's keys name a company, an agent and an issue: 140 characters."""


class NewRun(BaseModel):
    """A task. Fields that Hermes does not know are ignored: such clients send what the operator's template adds."""

    model_config = ConfigDict(extra="ignore", strict=True)

    input: str = Field(min_length=1, max_length=MAX_TASK_CHARS, description="What to do.")
    instructions: str | None = Field(None, max_length=MAX_TASK_CHARS, description="How to do it; put before the input.")
    session_id: str | None = Field(
        None, min_length=1, max_length=MAX_SESSION_KEY_CHARS, pattern=SESSION_KEY, description="Used without X-Hermes-Session-Key."
    )
    user: Name = Field("default", description="Your name for the user who pays and whose memory is used.")

    @property
    def text(self) -> str:
        return f"{self.instructions}\n\n{self.input}" if self.instructions else self.input


class RunUsage(BaseModel):
    """Tokens of all model calls of a run."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class RunView(BaseModel):
    """A run. The fields after `session_id` come with its end."""

    object: str = "hermes.run"
    run_id: UUID
    status: str = Field(description="`queued`, `running`, `completed`, `failed` or `cancelled`.")
    session_id: str = Field(description="The session key of the conversation.")
    output: str | None = None
    error: str | None = Field(None, description="Why there is no output, in words for a person.")
    error_code: str | None = Field(None, description="The same for a program: `upgrade`, `paused`, `retry_later`, `stopped` …")
    model: str | None = None
    usage: RunUsage | None = None
    cost_usd: float | None = None
    last_event: str | None = None


ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (401, 403, 404, 429, 503)}
ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": RunView, "description": "The run is stored, and will be worked on."},
    **{status: {"model": ErrorBody} for status in (400, 401, 403, 413, 415, 422, 429, 503)},
}
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, **ERRORS}
SessionKey = Annotated[
    str | None, Header(alias="X-Hermes-Session-Key", min_length=1, max_length=MAX_SESSION_KEY_CHARS, pattern=SESSION_KEY)
]


@dataclass(frozen=True, slots=True)
class RunServices:
    """What the routes of runs need."""

    intake: Intake
    answers: TurnAnswers
    reader: RunReader
    stopper: TurnStopper

    async def find(self, run_id: str, key: ApiKey) -> UUID:
        """Return the id of a run that the key may see. Raises ApiError with 404 for any other."""
        try:
            return await self.answers.owned_turn(run_id, key.account, Platform.REST, partial(may_see, key))
        except NotFound:
            raise ApiError(404, "not_found", "There is no such run.") from None


def run_routes(runs: RunServices, api_auth: ApiAuth, limit: RateLimit) -> APIRouter:
    """The routes of `/v1/runs`."""
    routes = APIRouter(tags=["runs"])
    find_key = make_key_dependency(api_auth, "runs")

    @routes.post("/v1/runs", status_code=202, responses=ACCEPTED, dependencies=[Depends(json_only)], summary="Begin a run")
    async def begin(
        body: NewRun,
        credentials: Credentials,
        key: Annotated[ApiKey, Depends(find_key)],
        idempotency_key: Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)] = None,
        session_key: SessionKey = None,
    ) -> Response:
        """With an `Idempotency-Key`, a repeated request gets the run of the first one, for a day."""
        if len(body.text) > MAX_TASK_CHARS:
            raise ApiError(422, "string_too_long", f"input: with the instructions at most {MAX_TASK_CHARS} characters", param="input")
        session = session_key or body.session_id
        envelope = run_envelope(body, session, key)
        refuse_other_channels(key, envelope.channel_id)
        refuse_other_users(key, body.user)
        limit.admit(str(key.id))
        await api_auth.check_quota(key)
        sent_key = None
        if idempotency_key is not None and credentials is not None:
            sent_key = IdempotencyKey(key.id, idempotency_key, run_digest(body, session, credentials.credentials))
        receipt = await accept_message(runs.intake, envelope, key, sent_key)
        headers = {"Location": f"/v1/runs/{receipt.turn_id}"}
        if not receipt.is_new:
            headers["Idempotent-Replayed"] = "true"
        return run_response(await runs.reader.state(receipt.turn_id), 202, headers)

    @routes.get("/v1/runs/{run_id}", response_model=RunView, responses=ERRORS, summary="How far a run is")
    async def look(run_id: str, key: Annotated[ApiKey, Depends(find_key)]) -> Response:
        return run_response(await runs.reader.state(await runs.find(run_id, key)))

    @routes.get("/v1/runs/{run_id}/events", responses=STREAM, summary="A run as server-sent events")
    async def follow(run_id: str, request: Request, key: Annotated[ApiKey, Depends(find_key)]) -> Response:
        """What the run did so far, then what it does, then `message.delta` with the answer and `run.completed`, `run.failed` or
        `run.cancelled`. With `Last-Event-ID` it goes on behind that event; 204 if that was the last one."""
        found, last_event_id = await runs.find(run_id, key), request.headers.get("last-event-id", "")
        if last_event_id == END_ID:
            return Response(status_code=204)
        return runs.answers.streams.respond(str(key.id), runs.reader.frames(found, last_event_id))

    @routes.post("/v1/runs/{run_id}/stop", response_model=RunView, responses=ERRORS, summary="Stop a run")
    async def stop(run_id: str, key: Annotated[ApiKey, Depends(find_key)]) -> Response:
        """A run that waits is withdrawn. One under way begins nothing more; what was paid until then is charged. A run that has ended stays
        as it is."""
        found = await runs.find(run_id, key)
        await runs.stopper.stop(found)
        return run_response(await runs.reader.state(found))

    return routes


def run_envelope(body: NewRun, session: str | None, key: ApiKey) -> Envelope:
    message = NewMessage(text=body.text, user=body.user, channel=None, approve=None, refuse=None, media_url=None, media_type=None)
    channel = session or f"run:{uuid4()}"
    return replace(message_envelope(message, key), channel_id=channel, is_own=False, is_shared=is_room(key, body.user, channel))


def run_digest(body: NewRun, session: str | None, secret: str) -> bytes:
    """Return a digest by which a repeated request is recognised, keyed with the caller's secret."""
    canonical = json.dumps([body.model_dump(exclude={"session_id"}), session], sort_keys=True, separators=(",", ":"))
    return hmac.new(secret.encode("utf-8", "surrogatepass"), canonical.encode(), hashlib.sha256).digest()


def run_response(state: RunState, status: int = 200, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(state.to_json(), status, {**(headers or {}), "Cache-Control": "no-store"})
