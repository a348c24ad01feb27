"""Toolsets for batches out of what Hermes has: the concierge's tools, the MCP servers of the settings, and Python modules.

    concierge         the tools that people get, on the tables of the store
    mcp, mcp:NAME     the tools of all MCP servers of the settings, or of one
    module, module:x  tools of one's own

The tools of Hermes work for a user. Each rollout has one of its own, who is forgotten when it ends: so no rollout sees another one's
bookings, and none of them stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from itertools import count
from typing import Any
from uuid import uuid4

from hermes.app.answering import MCP, about, mind_from, toolbox_from
from hermes.app.home import StartRefused
from hermes.app.sampling import Ground
from hermes.config import Environment, Settings, nearest
from hermes.ports.tools import ToolCall as Wish
from hermes.ports.tools import ToolUser
from hermes.ports.users import UserState
from hermes.tools.concierge.tables import stock
from hermes.tools.executor import Toolbox, nothing_more
from hermes.tools.registry import Tool
from hermes.trajectories.batch.object_import import import_object
from hermes.trajectories.batch.python_tools import toolset_from
from hermes.trajectories.batch.tools import BatchToolCall, RolloutContext, RolloutTools, ToolFailed, Toolset
from hermes.trajectories.errors import TrajectorySettingsError
from hermes.turn import Platform

CONCIERGE, SERVERS = "concierge", "mcp"
READY_S = 15.0
"""How long MCP servers have to come up; a rollout without the tools that it was promised would be another one."""


def python_toolsets(names: Sequence[str]) -> dict[str, Toolset]:
    """Those of the toolsets that are Python modules, by name. Raises SettingsError."""
    found: dict[str, Toolset] = {}
    for name in names:
        if not is_ours(name):
            try:
                found[name] = toolset_from(name, import_object(name, "--tools"))
            except (TypeError, ValueError, NameError) as error:
                raise TrajectorySettingsError(f"--tools {name!r}: {error}") from None
    return found


def is_ours(name: str) -> bool:
    return name in (CONCIERGE, SERVERS) or name.startswith(f"{SERVERS}:")


def refuse_unknown_servers(settings: Settings, names: Sequence[str]) -> None:
    """Raise StartRefused for an MCP server that the settings do not have."""
    for name in names:
        if name == SERVERS and not settings.mcp:
            raise StartRefused("--tools mcp: the settings name no MCP server; write one down as [mcp.NAME]")
        server = name.removeprefix(f"{SERVERS}:")
        if name.startswith(f"{SERVERS}:") and server not in settings.mcp:
            hint = f"did you mean {nearest(server, settings.mcp)}?" if settings.mcp else "write it down as [mcp.NAME]"
            raise StartRefused(f"--tools {name}: the settings name no such MCP server; {hint}")


@asynccontextmanager
async def open_toolsets(ground: Ground, names: Sequence[str], *, account: str = "batch") -> AsyncIterator[dict[str, Toolset]]:
    """Have all toolsets ready for as long as the block lasts, by name. Raises StartRefused and SettingsError."""
    refuse_unknown_servers(ground.settings, names)
    found = python_toolsets(names)
    async with AsyncExitStack() as stack:
        if CONCIERGE in names:
            found[CONCIERGE] = await concierge(ground, account)
        asked = [name for name in names if name == SERVERS or name.startswith(f"{SERVERS}:")]
        if asked:
            found |= await stack.enter_async_context(servers(ground, asked, account))
        yield {name: found[name] for name in names}


async def concierge(ground: Ground, account: str) -> Toolset:
    """The concierge's tools; in development with something on their tables, as in a running Hermes."""
    settings, parts = ground.settings, ground.parts
    if settings.tools.sample or (settings.tools.sample is None and settings.environment is Environment.DEVELOPMENT):
        await stock(ground.database, parts.venues, parts.products, parts.nutrition, only_if_empty=True)
    return UserToolset(CONCIERGE, ground, account, empty_toolbox(ground))


@asynccontextmanager
async def servers(ground: Ground, names: Sequence[str], account: str) -> AsyncIterator[dict[str, Toolset]]:
    """The tools of MCP servers. Raises StartRefused for one that has none to offer in time."""
    settings, mcp = ground.settings, import_module(MCP)
    wanted = list(settings.mcp) if SERVERS in names else [name.removeprefix(f"{SERVERS}:") for name in names]
    known = [mcp.McpServer(name=name, **about(settings.mcp[name])) for name in wanted]
    async with mcp.open_servers(known, patience=mcp.Patience(call_s=settings.tools.timeout_s)) as opened:
        await opened.ready(within_s=READY_S)
        away = [connection.server.name for connection in opened.connections if not connection.tools]
        if away:
            raise StartRefused(f"the MCP server {away[0]} offers no tools, or did not come up within {READY_S:g} s; see [mcp.{away[0]}]")

        def of(name: str) -> Callable[[], Sequence[Tool]]:
            only = name.removeprefix(f"{SERVERS}:")
            return lambda: [tool for each in opened.connections if only in (SERVERS, each.server.name) for tool in each.tools]

        box = replace(empty_toolbox(ground), own=())
        yield {name: UserToolset(name, ground, account, replace(box, further=of(name))) for name in names}


def empty_toolbox(ground: Ground) -> Toolbox:
    """The toolbox that people's messages are answered with, without servers."""
    mind = mind_from(ground.parts, ground.database, ground.metrics)
    return toolbox_from(ground.settings, ground.parts, ground.database, mind, nothing_more)


@dataclass(frozen=True, slots=True)
class UserToolset:
    """Tools that work for a user."""

    name: str
    ground: Ground
    account: str
    box: Toolbox

    @asynccontextmanager
    async def open(self, errand: RolloutContext) -> AsyncIterator[RolloutTools]:
        people, database, turn = self.ground.parts.people, self.ground.database, uuid4()
        async with database.begin() as tx:
            user, _ = await people.find_or_create(tx, self.account, Platform.COMPLETIONS, f"rollout/{turn}", state=UserState.ACTIVE)
        try:
            language, zone = (_text(errand.row, name, usual) for name, usual in (("language", "en"), ("timezone", "UTC")))
            yield UserTools(self.box, ToolUser(user.id, self.account, language, zone, turn, datetime.now(UTC)))
        finally:
            await asyncio.shield(self._forget(user.id))

    async def _forget(self, user_id: Any) -> None:
        async with self.ground.database.begin() as tx:
            await self.ground.parts.people.forget(tx, user_id)


class UserTools:
    """The tools of one rollout."""

    def __init__(self, box: Toolbox, user: ToolUser) -> None:
        self._box, self._user, self._places = box, user, count()
        self.schemas = [tool.schema for tool in (*box.own, *box.further())]

    async def run(self, call: BatchToolCall) -> str:
        done = await self._box.run(Wish(call.id, call.name, call.text), next(self._places), self._user)
        if done.is_error:
            raise ToolFailed(done.text.removeprefix("Error: "))
        return done.text


def _text(row: Mapping[str, Any], name: str, usual: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) and value else usual
