"""The MCP servers of the settings. Only commands that answer messages import this module: the SDK takes most of a second to load."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from hermes.app.doctor_basics import Health, HealthFinding
from hermes.app.tool_pins import PinKeeper
from hermes.config import Settings
from hermes.soul.sanitize import scan
from hermes.tools.executor import ToolSource
from hermes.tools.mcp import McpServer, McpServers, McpTimeouts, ServerAway, list_server_tools, open_servers


@asynccontextmanager
async def open_mcp_tools(settings: Settings, pins: PinKeeper) -> AsyncIterator[ToolSource]:
    """Connect to all MCP servers of the settings for as long as the block lasts; yield their tools. For `open_hermes`."""
    async with open_mcp_servers(settings, settings.mcp, pins) as connected:
        yield connected.tools


@asynccontextmanager
async def open_mcp_servers(settings: Settings, names: Iterable[str], pins: PinKeeper) -> AsyncIterator[McpServers]:
    """Connect to these MCP servers of the settings for as long as the block lasts."""
    servers = [mcp_server(settings, name) for name in names]
    timeouts = McpTimeouts(call_s=settings.tools.timeout_s)
    async with open_servers(servers, timeouts=timeouts, check_pin=pins.check, scan=scan) as connected:
        yield connected


def mcp_server(settings: Settings, name: str) -> McpServer:
    server = settings.mcp[name]
    return McpServer(
        name=name,
        command=tuple(server.command or ()),
        url=server.url,
        env={variable: os.environ[variable] for variable in server.environment if variable in os.environ},
        headers={"Authorization": f"Bearer {server.api_key.reveal()}"} if server.api_key else {},
        confirm=server.confirm,
        reads=server.reads,
        shared=server.shared,
    )


# --- hermes doctor


async def check_mcp_servers(settings: Settings) -> AsyncIterator[HealthFinding]:
    """Connect to every MCP server of the settings at once; yield a finding for each, in their order."""
    for finding in await asyncio.gather(*(check_mcp_server(settings, name) for name in settings.mcp)):
        yield finding


async def check_mcp_server(settings: Settings, name: str) -> HealthFinding:
    """Connect to one server as Hermes does, with the same limits, and count its tools."""
    try:
        tools = await list_server_tools(mcp_server(settings, name), McpTimeouts(call_s=settings.tools.timeout_s))
    except ServerAway as away:
        where = f"check mcp.{name}.{'command' if settings.mcp[name].url is None else 'url'}, and that the server runs"
        return HealthFinding("mcp", Health.WARNING, f"{name}: {away}", where)
    return HealthFinding("mcp", Health.GOOD, f"{name}: {len(tools)} tool{'' if len(tools) == 1 else 's'}")
