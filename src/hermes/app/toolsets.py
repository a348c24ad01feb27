"""The toolsets that a batch can use: the tools of packs, the MCP servers of the settings, and Python modules.

    concierge         the tools of a pack that is on, as users get them, on the tables of the store
    mcp, mcp:NAME     the tools of all MCP servers of the settings, or of one
    module, module:x  the operator's own Python tools

The tools of Hermes work for a user. Each rollout gets a user of its own, who is erased when the rollout ends. So no rollout sees the
bookings of another one, and none of them stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import uuid4

from hermes.app.batch_model import BatchServices
from hermes.app.mcp_tools import open_mcp_servers
from hermes.app.packs import OpenPacks, packs_from, role_from, wants_samples
from hermes.app.router import toolbox_from, user_memory_from
from hermes.app.tool_pins import pin_keeper_from
from hermes.config import Settings, nearest
from hermes.packs import SHIPPED_PACKS, Pack, PackServices
from hermes.ports.errors import StartRefused
from hermes.ports.tools import ToolCall, ToolUser
from hermes.ports.users import UserState
from hermes.soul.fact_keys import use_pack_keys
from hermes.tools.executor import Toolbox, no_more_tools
from hermes.tools.registry import Tool
from hermes.trajectories.batch.object_import import import_object
from hermes.trajectories.batch.python_tools import toolset_from
from hermes.trajectories.batch.tools import BatchToolCall, RolloutContext, RolloutTools, ToolFailed, Toolset
from hermes.trajectories.errors import TrajectorySettingsError
from hermes.turn import Platform

MCP_TOOLSET = "mcp"
READY_TIMEOUT_S = 15.0
"""How long MCP servers may take to start. Without all of its tools, a rollout would not be the one that was ordered."""


def python_toolsets(settings: Settings, names: Sequence[str]) -> dict[str, Toolset]:
    """Return those of the toolsets that are Python modules, by name. Raises StartRefused and TrajectorySettingsError."""
    packs, found = {pack.name for pack in packs_from(settings)}, dict[str, Toolset]()
    for name in names:
        if name not in packs and name != MCP_TOOLSET and not name.startswith(f"{MCP_TOOLSET}:"):
            if name in SHIPPED_PACKS:
                raise StartRefused(f"--tools {name}: this pack is not on; add it to packs.enabled")
            try:
                found[name] = toolset_from(name, import_object(name, "--tools"))
            except (TypeError, ValueError, NameError) as error:
                raise TrajectorySettingsError(f"--tools {name!r}: {error}") from None
    return found


def refuse_unknown_servers(settings: Settings, names: Sequence[str]) -> None:
    """Raise StartRefused for an MCP server that the settings do not have."""
    for name in names:
        if name == MCP_TOOLSET and not settings.mcp:
            raise StartRefused("--tools mcp: the settings name no MCP server; add one as [mcp.NAME]")
        server = name.removeprefix(f"{MCP_TOOLSET}:")
        if name.startswith(f"{MCP_TOOLSET}:") and server not in settings.mcp:
            hint = f"did you mean {nearest(server, settings.mcp)}?" if settings.mcp else "add it as [mcp.NAME]"
            raise StartRefused(f"--tools {name}: the settings name no such MCP server; {hint}")


@asynccontextmanager
async def open_toolsets(services: BatchServices, names: Sequence[str], *, account: str = "batch") -> AsyncIterator[dict[str, Toolset]]:
    """Keep all toolsets ready for as long as the block lasts, by name. Raises StartRefused and TrajectorySettingsError."""
    refuse_unknown_servers(services.settings, names)
    found = python_toolsets(services.settings, names)
    async with AsyncExitStack() as stack:
        for pack in packs_from(services.settings):
            if pack.name in names:
                found[pack.name] = await pack_toolset(services, pack, account)
        mcp_names = [name for name in names if name == MCP_TOOLSET or name.startswith(f"{MCP_TOOLSET}:")]
        if mcp_names:
            found |= await stack.enter_async_context(open_mcp_toolsets(services, mcp_names, account))
        yield {name: found[name] for name in names}


async def pack_toolset(services: BatchServices, pack: Pack, account: str) -> Toolset:
    """Return the tools of a pack and of the memory; in development with the sample data, as in a running Hermes."""
    packs = open_packs(services, (pack,))
    if wants_samples(services.settings):
        await packs.load_samples()
    return UserToolset(pack.name, services, account, toolbox_without_servers(services, packs))


def open_packs(services: BatchServices, packs: tuple[Pack, ...]) -> OpenPacks:
    use_pack_keys(key for pack in packs_from(services.settings) for key in pack.fact_keys)
    memory = user_memory_from(services.adapters, services.database, services.metrics, role=role_from(packs))
    return OpenPacks(packs, PackServices(transactions=services.database, keyring=services.keyring, notebook=memory.notebook))


@asynccontextmanager
async def open_mcp_toolsets(services: BatchServices, names: Sequence[str], account: str) -> AsyncIterator[dict[str, Toolset]]:
    """Connect to MCP servers and yield their tools. Raises StartRefused for a server that offers no tools in time."""
    settings = services.settings
    server_names = list(settings.mcp) if MCP_TOOLSET in names else [name.removeprefix(f"{MCP_TOOLSET}:") for name in names]
    async with open_mcp_servers(settings, server_names, pin_keeper_from(services.database, services.adapters.alerts)) as connected:
        await connected.ready(within_s=READY_TIMEOUT_S)
        empty = [connection.server.name for connection in connected.connections if not connection.tools]
        if empty:
            raise StartRefused(
                f"the MCP server {empty[0]} offers no tools, or did not start within {READY_TIMEOUT_S:g} s; see [mcp.{empty[0]}]"
            )

        def tools_of(name: str) -> Callable[[], Sequence[Tool]]:
            only = name.removeprefix(f"{MCP_TOOLSET}:")
            return lambda: [tool for each in connected.connections if only in (MCP_TOOLSET, each.server.name) for tool in each.tools]

        box = replace(toolbox_without_servers(services, open_packs(services, ())), own=())
        yield {name: UserToolset(name, services, account, replace(box, more_tools=tools_of(name))) for name in names}


def toolbox_without_servers(services: BatchServices, packs: OpenPacks) -> Toolbox:
    """Return the toolbox that messages of users are answered with, without the tools of MCP servers."""
    return toolbox_from(services.settings, services.adapters, services.database, packs, no_more_tools)


@dataclass(frozen=True, slots=True)
class UserToolset:
    """Tools that work for a user: each rollout gets a new one."""

    name: str
    services: BatchServices
    account: str
    box: Toolbox

    @asynccontextmanager
    async def open(self, context: RolloutContext) -> AsyncIterator[RolloutTools]:
        people, database, turn = self.services.adapters.people, self.services.database, uuid4()
        async with database.begin() as tx:
            user, _ = await people.find_or_create(tx, self.account, Platform.COMPLETIONS, f"rollout/{turn}", state=UserState.ACTIVE)
        try:
            language, zone = (_text_field(context.row, name, usual) for name, usual in (("language", "en"), ("timezone", "UTC")))
            yield UserTools(self.box, ToolUser(user.id, self.account, language, zone, turn, datetime.now(UTC)))
        finally:
            await asyncio.shield(self._forget(user.id))

    async def _forget(self, user_id: Any) -> None:
        async with self.services.database.begin() as tx:
            await self.services.adapters.people.forget(tx, user_id)


class UserTools:
    """The tools of one rollout."""

    def __init__(self, box: Toolbox, user: ToolUser) -> None:
        self._box, self._user, self._indexes = box, user, count()
        self.schemas = [tool.schema for tool in (*box.own, *box.more_tools())]

    async def run(self, call: BatchToolCall) -> str:
        done = await self._box.run(ToolCall(call.id, call.name, call.text), next(self._indexes), self._user)
        if done.is_error:
            raise ToolFailed(done.text.removeprefix("Error: "))
        return done.text


def _text_field(row: Mapping[str, Any], name: str, default: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) and value else default
