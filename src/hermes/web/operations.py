"""`/v1/ops/events`: what Hermes did, for the operator's programs: pages of JSON, or a stream of server-sent events that can be resumed.

Needs an operator's token, or an API key with the scope `ops`. An event has ids, names and numbers, and nothing that a user or a model
wrote."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any
from uuid import UUID

import anyio
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from hermes.ports.errors import StoreUnavailable
from hermes.ports.events import STREAM_START, EventCursor, EventFilter, OperationsEvent, event_name, stored_type, stream_event_json
from hermes.ports.operators import Actor
from hermes.web.answers import sse_event
from hermes.web.errors import ApiError, ErrorBody
from hermes.web.event_feed import EventFeed
from hermes.web.open_streams import OpenStreams
from hermes.web.program_auth import ProgramAuth, make_program_dependency

MAX_PAGES_READ = 25
"""How many pages of stored events one request for JSON looks through for those that its filter wants."""


class OperationsEventView(BaseModel):
    """One event."""

    id: str = Field(description="Its cursor: pass it as `after` to go on behind it.")
    event: str = Field(description="Its name: `model.called`, `adapter.swapped` … (docs/reference/events.md)")
    at: str
    source: str = Field(description="`turn`, `fleet` or `process`.")
    agent: str | None
    account: str | None
    turn_id: UUID | None
    process: UUID | None
    facts: dict[str, Any] = Field(description="Names and numbers; no text of a message.")


class EventList(BaseModel):
    """Events, oldest first."""

    data: list[OperationsEventView]
    next: str = Field(description="Pass it as `after` for the following page; the same again once there are new events.")
    has_more: bool = Field(description="Whether there are more events already.")


RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": EventList, "content": {"text/event-stream": {"schema": {"type": "string"}}}},
    **{status: {"model": ErrorBody} for status in (401, 403, 422, 429, 503)},
}
Cursor = Annotated[str | None, Query(max_length=50, description="The `id` of the last event that you saw; `0-0` for all.")]


def event_routes(feed: EventFeed, programs: ProgramAuth, streams: OpenStreams, *, ping_s: float, closing: asyncio.Event) -> APIRouter:
    """The route `GET /v1/ops/events`."""
    routes = APIRouter(tags=["operations"])
    find_actor = make_program_dependency(programs)

    @routes.get("/v1/ops/events", responses=RESPONSES, summary="What Hermes did, as pages or as a stream")
    async def events(
        request: Request,
        actor: Annotated[Actor, Depends(find_actor)],
        *,
        after: Cursor = None,
        agent: Annotated[str | None, Query(max_length=64)] = None,
        turn: UUID | None = None,
        type: Annotated[list[str] | None, Query(max_length=20, description="Names of events; repeatable.")] = None,  # noqa: A002
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
        last_event_id: Annotated[str | None, Header(max_length=50)] = None,
    ) -> Response:
        """With `Accept: text/event-stream` a stream, without a cursor from now on; otherwise one page, without a cursor from the oldest
        event on."""
        names = frozenset(event_name(stored_type(name)) for name in type or ())
        wanted = EventFilter(agent=agent, turn_id=turn, names=names, accounts=actor.operator.accounts)
        cursor = parse_cursor(last_event_id if last_event_id is not None else after)
        if "text/event-stream" not in request.headers.get("accept", ""):
            return await page_response(feed, cursor or STREAM_START, wanted, limit)
        stream = stream_events(
            feed, cursor or await feed.end(), wanted, ping_s=ping_s, closing=closing, still_may=lambda: still_may(programs, request, actor)
        )
        return streams.respond(str(actor.operator.id), stream)

    return routes


def parse_cursor(text: str | None) -> EventCursor | None:
    try:
        return EventCursor.parse(text) if text else None
    except ValueError as error:
        raise ApiError(422, "invalid_cursor", f"after: {error}", param="after") from None


async def page_response(feed: EventFeed, cursor: EventCursor, wanted: EventFilter, limit: int) -> JSONResponse:
    """Return up to `limit` events that the filter wants. A page may be short although there are more: `has_more` says so."""
    found: list[OperationsEvent] = []
    is_last = False
    for _ in range(MAX_PAGES_READ):
        page = await (feed.page(cursor) if wanted.turn_id is None else feed.turn(wanted.turn_id, cursor))
        found += (event for event in page.events if wanted.matches(event))
        cursor, is_last = page.next, page.is_last
        if len(found) > limit:
            found, is_last = found[:limit], False
            cursor = found[-1].cursor
        if is_last or len(found) == limit:
            break
    body = {"data": [stream_event_json(event) for event in found], "next": str(cursor), "has_more": not is_last}
    return JSONResponse(body, headers={"Cache-Control": "no-store"})


async def still_may(programs: ProgramAuth, request: Request, actor: Actor) -> bool:
    """Whether the token or key of a stream is still good, for the same accounts. While the store is away it counts as good: no event comes
    from there either."""
    try:
        now = await programs.find(request.headers["authorization"].partition(" ")[2].strip(), request)
    except ApiError:
        return False
    except StoreUnavailable:
        return True
    return now.operator.accounts == actor.operator.accounts


async def stream_events(
    feed: EventFeed,
    cursor: EventCursor,
    wanted: EventFilter,
    *,
    ping_s: float,
    closing: asyncio.Event,
    still_may: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Yield the events after a cursor as they come, and pings, until the client leaves, loses the right to them, or the server is about to
    stop. The right is looked at with each ping.

    While the store is away the stream pauses, and says so; then it goes on where it was. A ping also carries the cursor, so that a client
    whose filter lets little through does not begin far back when it connects again."""
    is_paused, pinged = False, time.monotonic()
    with feed.reading():
        yield b": connected\n\n"  # some clients wait for the first bytes before they count as connected
        while not closing.is_set():
            changed = feed.changed
            try:
                # When a client disconnects, Starlette cancels its stream. A query that is cancelled costs its database connection.
                with anyio.CancelScope(shield=True):
                    page = await feed.page(cursor)
            except StoreUnavailable:
                page = None
            if is_paused != (page is None or feed.is_store_away):
                is_paused = not is_paused
                yield sse_event("stream.paused" if is_paused else "stream.resumed", {"reason": "store_unavailable"} if is_paused else {})
            if page is not None:
                for event in page.events:
                    if wanted.matches(event):
                        yield sse_event(event.name, stream_event_json(event), identity=str(event.cursor))
                cursor = page.next
                if not page.is_last:
                    continue
            now = time.monotonic()
            if now - pinged >= ping_s:
                with anyio.CancelScope(shield=True):
                    if not await still_may():
                        return
                yield f": ping\nid: {cursor}\n\n".encode()
                pinged = now
            with suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, pinged + ping_s - now)):
                    await changed.wait()
