"""`hermes events`: what Hermes did, oldest first, and with --follow what it does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

import typer

from hermes.app.event_stream import stored_events
from hermes.app.tables import Tables
from hermes.cli.commands import app
from hermes.cli.options import Config, Json, Limit, complete_from
from hermes.cli.output import complain, fail, print_json
from hermes.cli.runtime import run, with_tables
from hermes.ports.errors import StoreUnavailable
from hermes.ports.events import (
    EVENT_NAMES,
    STREAM_START,
    EventCursor,
    EventFilter,
    EventPage,
    OperationsEvent,
    OperationsEvents,
    stream_event_json,
)
from hermes.ports.runtime import Transactions
from hermes.terminal import one_line

PAGE_EVENTS = 500
POLL_S = 1.0


@app.command("events")
def events(
    *,
    is_followed: Annotated[bool, typer.Option("--follow", help="Go on with new events, until Ctrl-C.")] = False,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="CURSOR", help="Begin behind this event: the `id` of one that you saw.", show_default="the oldest; with --follow, now"
        ),
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Only events of this agent.", show_default=False)] = None,
    turn: Annotated[str | None, typer.Option(help="Only events of this turn.", show_default=False)] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help="Only events of this name, such as model.called; repeatable.",
            show_default=False,
            autocompletion=complete_from(EVENT_NAMES.values),
        ),
    ] = None,
    limit: Limit = 100,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Show what Hermes did: classified intents, model calls, tools, deliveries, swaps of adapters, restarts. No words of users or models.

    Every event has a cursor. To read on later, or elsewhere, pass the last one:

        hermes events --follow --json
        hermes events --after 742-1803

    With --json one object with `data` and `next`; with --follow too, one line for each event."""
    wanted, cursor = read_filter(agent, turn, name), read_cursor(after)

    async def show(tables: Tables) -> None:
        if is_followed:
            async for event in follow(tables.database, stored_events(), cursor):
                if wanted.matches(event):
                    print_event(event, is_json=is_json)
        else:
            found, following = await collect(tables.database, stored_events(), cursor or STREAM_START, wanted, limit)
            if is_json:
                print_json({"data": [stream_event_json(event) for event in found], "next": str(following)})
                return
            for event in found:
                print_event(event, is_json=False)
            typer.secho(f"Read on: hermes events --after {following}", fg="bright_black", err=True)

    try:
        run(with_tables(config, show))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def read_filter(agent: str | None, turn: str | None, names: list[str] | None) -> EventFilter:
    try:
        turn_id = None if turn is None else UUID(turn)
    except ValueError:
        fail(f"{turn!r} is not the id of a turn; expected a UUID")
    return EventFilter(agent=agent, turn_id=turn_id, names=frozenset(names or ()))


def read_cursor(after: str | None) -> EventCursor | None:
    try:
        return None if after is None else EventCursor.parse(after)
    except ValueError as error:
        fail(str(error))


async def collect(
    transactions: Transactions, stream: OperationsEvents, cursor: EventCursor, wanted: EventFilter, limit: int
) -> tuple[list[OperationsEvent], EventCursor]:
    """Return up to `limit` events that the filter wants, and the cursor behind the last of them."""
    found: list[OperationsEvent] = []
    while True:
        page = await read_page(transactions, stream, cursor)
        found += (event for event in page.events if wanted.matches(event))
        if len(found) >= limit:
            return found[:limit], found[limit - 1].cursor
        if page.is_last:
            return found, page.next
        cursor = page.next


async def follow(transactions: Transactions, stream: OperationsEvents, cursor: EventCursor | None) -> AsyncIterator[OperationsEvent]:
    """Yield events as they come. While the database is away it waits, and says so once."""
    is_away = False
    while True:
        try:
            if cursor is None:
                async with transactions.once() as tx:
                    cursor = await stream.end(tx)
            page = await read_page(transactions, stream, cursor)
        except StoreUnavailable as error:
            if not is_away:
                complain(f"{error}; waiting")
            is_away = True
            await asyncio.sleep(POLL_S)
            continue
        is_away, cursor = False, page.next
        for event in page.events:
            yield event
        if page.is_last:
            await asyncio.sleep(POLL_S)


async def read_page(transactions: Transactions, stream: OperationsEvents, cursor: EventCursor) -> EventPage:
    async with transactions.once() as tx:
        return await stream.read(tx, cursor, limit=PAGE_EVENTS)


def print_event(event: OperationsEvent, *, is_json: bool) -> None:
    if is_json:
        print_json(stream_event_json(event))
        return
    about = event.turn_id or event.process or ""
    typer.echo(
        one_line(f"{event.cursor} {event.at:%Y-%m-%d %H:%M:%S} {event.name} {event.agent or '-'} {about} {facts_text(event.public_facts)}")
    )


def facts_text(facts: dict[str, Any]) -> str:
    """`model=echo tokens_in=7`: the facts that have a value, in one line."""
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in facts.items() if value not in (None, "", [])
    )
