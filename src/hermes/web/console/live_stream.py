"""`/console/events`: tells an open page that something changed, so that it reads itself again.

The stream carries ids and no content. An event has the cursor of the stored stream, so that a page that connects again hears what it
missed; news of Redis come earlier, and without a cursor, because the store's stream will have the same. Without Redis the store is asked
every second, once for all pages of this process."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Annotated
from uuid import UUID

import anyio
from fastapi import APIRouter, Depends, Header
from fastapi.responses import Response, StreamingResponse

from hermes.console.turn_watch import TurnWatch
from hermes.ports.errors import StoreUnavailable
from hermes.ports.events import EventCursor, EventPage
from hermes.ports.operators import Operator
from hermes.web.answers import sse_event
from hermes.web.console.console_web import ConsoleWeb
from hermes.web.console.visits import Visit
from hermes.web.errors import ApiError
from hermes.web.event_feed import EventFeed
from hermes.web.open_streams import UNBUFFERED
from hermes.web.operations import parse_cursor

MAX_CONSOLE_STREAMS = 100
"""Open streams of one process. Each holds a connection; more would take those of users."""
MAX_STREAM_S = 300.0
"""Then the page connects again, and the operator's session is checked again."""
MAX_IDS = 20


def live_stream_routes(web: ConsoleWeb, feed: EventFeed, *, ping_s: float, closing: asyncio.Event) -> APIRouter:
    """`/console/events`."""
    routes = APIRouter(include_in_schema=False)
    watch = web.console.live.watch
    watch.listeners.append(feed.wake)

    @routes.get("/console/events")
    async def events(
        visit: Annotated[Visit, Depends(web.visits.find)], last_event_id: Annotated[str | None, Header(max_length=50)] = None
    ) -> Response:
        if watch.readers >= MAX_CONSOLE_STREAMS:
            raise ApiError(503, "too_many_streams", "Too many pages are open; try again later.", headers={"Retry-After": "5"})
        cursor = parse_cursor(last_event_id) or await feed.end()
        changes = stream_changes(feed, watch, visit.operator, cursor, ping_s=ping_s, closing=closing)
        return StreamingResponse(changes, headers=UNBUFFERED, media_type="text/event-stream")

    return routes


async def stream_changes(
    feed: EventFeed, watch: TurnWatch, operator: Operator, cursor: EventCursor, *, ping_s: float, closing: asyncio.Event
) -> AsyncIterator[bytes]:
    """Yield `changed` when turns or processes that the operator sees have changed, and pings."""
    began = pinged = time.monotonic()
    with feed.reading(), watch.reading():
        number = watch.number
        yield b"retry: 1000\n: connected\n\n"
        while not closing.is_set() and time.monotonic() - began < MAX_STREAM_S:
            changed = feed.changed
            if watch.number > number and operator.accounts is None:  # news do not say whose turns they are
                turns, number = watch.since(number), watch.number
                yield sse_event("changed", {"turns": text_ids(turns)})
            page = await read_quietly(feed, cursor)
            if page is not None:
                cursor = page.next
                if any(operator.sees(event.account) for event in page.events):
                    turns = [event.turn_id for event in page.events if event.turn_id is not None and operator.sees(event.account)]
                    yield sse_event("changed", {"turns": text_ids(turns)}, identity=str(cursor))
                if not page.is_last:
                    continue
            if time.monotonic() - pinged >= ping_s:
                pinged = time.monotonic()
                yield f": ping\nid: {cursor}\n\n".encode()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await changed.wait()


async def read_quietly(feed: EventFeed, cursor: EventCursor) -> EventPage | None:
    """The next page of the store's stream; None while the store is away."""
    page = None
    # When a page is closed, Starlette cancels its stream. A query that is cancelled costs its database connection.
    with anyio.CancelScope(shield=True), suppress(StoreUnavailable):
        page = await feed.page(cursor)
    return page


def text_ids(turn_ids: Iterable[UUID]) -> list[str]:
    return [str(turn_id) for turn_id in dict.fromkeys(turn_ids)][-MAX_IDS:]
