"""Which Hermes connects to the MCP servers of the settings: one that answers messages, and no other."""

import sys
from pathlib import Path

import pytest
from typer.main import get_command

from hermes.app.mcp_tools import open_mcp_servers, open_mcp_tools
from hermes.app.root import open_hermes
from hermes.app.router import open_no_tools, refuse_mcp_servers
from hermes.cli import build_app
from hermes.cli.runtime import tools_opener
from hermes.config import McpSettings, Secret, Settings
from hermes.config.values import NamedTables
from hermes.ports.errors import StartRefused

SERVER = (sys.executable, str(Path(__file__).parents[1] / "tools" / "mcp_server.py"))
WITH_SERVER = Settings(mcp=NamedTables({"small": McpSettings(command=SERVER), "away": McpSettings(command=("false",))}))


async def test_the_named_servers_are_opened_with_their_tools() -> None:
    async with open_mcp_servers(WITH_SERVER, ["small"]) as connected:
        await connected.ready(within_s=30)
        assert [each.server.name for each in connected.connections] == ["small"]
        assert "small_add" in {tool.name for tool in connected.tools()}


async def test_without_servers_there_are_no_tools() -> None:
    for opening in (open_mcp_tools(Settings()), refuse_mcp_servers(Settings()), open_no_tools(WITH_SERVER)):
        async with opening as tools:
            assert list(tools()) == []


async def test_a_hermes_that_would_answer_without_its_servers_is_refused(database_url: str, redis_url: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=Secret(database_url), redis_url=Secret(redis_url), mcp=WITH_SERVER.mcp)
    with pytest.raises(StartRefused, match="the settings name MCP servers; open Hermes with open_tools=open_mcp_tools"):
        async with open_hermes(settings):
            pass


def test_a_command_that_answers_messages_opens_the_servers_of_the_settings() -> None:
    context = get_command(build_app(["worker"])).make_context("hermes", ["worker"], resilient_parsing=True)
    assert tools_opener(context, Settings()) is open_no_tools
    assert tools_opener(context, WITH_SERVER) is open_mcp_tools
