"""A running Hermes whose web shows people what is known of them, and something to know."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import uvicorn

from hermes.cli.users import parts_of
from hermes.ports.memories import Change, Depth, Dream, DreamKind, Fact, NewFact, Origin, Review
from hermes.ports.people import Channel, User
from hermes.web import create_web
from hermes.web.serving import Server, services_of
from tests.flows.service import Service

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
MONDAY = date(2026, 11, 9)
TURN = UUID("11111111-1111-4111-8111-111111111111")


@asynccontextmanager
async def with_my_data(service: Service) -> AsyncIterator[Service]:
    """The same Hermes behind a second door, with the routes of `my_data`."""
    web = create_web(replace(services_of(service.hermes), my_data=parts_of(service.hermes)))
    server = Server(uvicorn.Config(web, log_config=None, access_log=False, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not serving.done():  # noqa: ASYNC110  # uvicorn has a flag for it, and no event
            await asyncio.sleep(0.01)
        yield replace(service, url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        server.should_exit = True
        await serving


async def learn(service: Service, channel: Channel, *texts: str, **about: Any) -> list[Fact]:
    """Know free facts about whoever writes from a channel."""
    user = await user_on(service, channel)
    changes = [Change(fact=NewFact(text=text, origin=Origin.SAID, source_turn=TURN, **about)) for text in texts]
    async with service.database.begin() as tx:
        return list(await service.hermes.parts.memories.change(tx, user.id, changes, now=NOW))


async def change_diet(service: Service, channel: Channel) -> tuple[Fact, Fact]:
    """Know two diets, the second in place of the first."""
    user = await user_on(service, channel)
    async with service.database.begin() as tx:
        memories = service.hermes.parts.memories
        first = NewFact(text="vegetarian", key="diet", origin=Origin.RULE, source_turn=TURN, confidence=0.9)
        [old] = await memories.change(tx, user.id, [Change(fact=first)], now=NOW)
        second = NewFact(text="vegan", key="diet", origin=Origin.TOOL)
        [new] = await memories.change(tx, user.id, [Change(fact=second, supersedes=(old.id,))], now=NOW)
    return old, new


async def dream(service: Service, channel: Channel) -> tuple[Dream, Dream]:
    """Dream of somebody: something that follows, and something that was rejected."""
    user = await user_on(service, channel)
    lines = (
        Dream(kind=DreamKind.INSIGHT, text="goes out on Fridays"),
        Dream(kind=DreamKind.INSIGHT, text="owns a boat", review=Review.REJECTED, reason="no evidence"),
    )
    async with service.database.begin() as tx:
        await service.hermes.parts.dreams.add(tx, user.id, Depth.DEEP, MONDAY, lines, now=NOW)
    return lines


async def user_on(service: Service, channel: Channel) -> User:
    async with service.database.begin() as tx:
        user = await service.hermes.parts.people.find(tx, channel)
    assert user is not None
    return user
