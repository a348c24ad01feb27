"""MCP servers as a further source of tools: programs on this machine, over standard input and output, and servers over streamable HTTP.

async with open_servers([McpServer(name="maps", command=("maps-mcp",)), McpServer(name="crm", url="https://…/mcp")]) as servers:
    Toolbox(…, more_tools=servers.tools)

Each server has a task of its own that connects, lists its tools, keeps the connection, and connects again when it is lost. While a server
is away, only its own tools are missing. Hermes does not trust a server:

- What a tool may do without the user's approval is the operator's word alone (`confirm`, `reads`). A server's hints only add caution.
- Each tool is pinned as it was at its first use. A changed one is left out until the operator accepts the change.
- A tool whose description or schema holds instructions for a model is left out. Its results are labelled as data, scanned and cut.
- The names of its tools begin with its name."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TextIO

import httpx2
import structlog
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp import Tool as ServedTool
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from hermes.ports.tools import ToolDefinition
from hermes.tasks import end_tasks, stop_if_cancelled
from hermes.tools.parameters import BadArguments, clean_text, missing_text, parse_arguments
from hermes.tools.registry import Offer, Tool, ToolContext, ToolEffect, ToolProblem, ToolReach, schema_of

log = structlog.get_logger()

NOT_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]+")
MAX_NAME_CHARS, MAX_DESCRIPTION_CHARS, MAX_SCHEMA_CHARS = 64, 600, 6_000
MAX_PAGES = 20
CLEANUP_S = 7.0
"""How long a server that is a program may take to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server in the settings: either a command or an address."""

    name: str
    command: tuple[str, ...] = ()
    """The program and its arguments."""
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables for the program, beyond the few that every program gets. It gets no other variables of this process."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """HTTP headers for the address, for instance authorisation."""
    confirm: tuple[str, ...] = ()
    """Tools, by the server's own names, that the user must approve; `*` for all but those in `reads`."""
    reads: tuple[str, ...] = ()
    """Tools, by the server's own names, that change nothing, as the operator knows; `*` for all of which the server does not say otherwise.
    What is named in `confirm` too is approved all the same."""
    shared: tuple[str, ...] = ()
    """Tools, by the server's own names, that do nothing for one person, so that rooms get them too; `*` for all that only read. Only the
    operator can know that, so by default all tools are for one person."""

    def effect_of(self, tool: ServedTool) -> ToolEffect:
        """What a tool may do. The operator's word wins, and a name before `*`; without one, a hint can only make it more careful."""
        hints = tool.annotations
        if tool.name in self.confirm:
            return ToolEffect.SPENDS
        if tool.name in self.reads:
            return ToolEffect.READS
        if "*" in self.confirm or (hints is not None and hints.destructive_hint is True):
            return ToolEffect.SPENDS
        is_said_to_change = hints is not None and hints.read_only_hint is False
        return ToolEffect.READS if "*" in self.reads and not is_said_to_change else ToolEffect.WRITES

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError(f"the MCP server {self.name!r} needs either a command or a url")


@dataclass(frozen=True, slots=True)
class McpTimeouts:
    """How long Hermes waits for a server."""

    connect_s: float = 10.0
    call_s: float = 5.0
    ping_s: float = 30.0
    """How often an idle connection is checked."""
    retry_s: float = 1.0
    max_retry_s: float = 60.0


CheckPin = Callable[[str, ToolDefinition], Awaitable[bool]]
"""Says whether a server's tool is as it was at its first use. Raises StoreUnavailable."""


async def trust_every_tool(_: str, __: ToolDefinition) -> bool:
    """Pin nothing: for `hermes doctor`, which calls no tool."""
    return True


@dataclass(slots=True)
class McpConnection:
    """The connection to one server, and its tools while it is connected."""

    server: McpServer
    timeouts: McpTimeouts
    errors: TextIO
    check_pin: CheckPin
    scan: Callable[[str], object | None]
    _client: Client | None = field(default=None, init=False)
    _served: tuple[Tool, ...] = field(default=(), init=False)
    _trusted: set[str] = field(default_factory=set, init=False)
    """The digests that the store has confirmed: it is asked once for each, and again only for a tool that waits."""
    _doubt: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _was_there: bool = field(default=False, init=False)
    _ready: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The server's tools; none while it is away."""
        return self._served

    async def ready(self) -> None:
        """Wait until the first list of its tools has come."""
        await self._ready.wait()

    async def keep(self) -> None:
        """Stay connected until the task is cancelled; connect again after every loss."""
        wait_s = self.timeouts.retry_s
        while True:
            self._was_there = False
            try:
                await self._stay_connected()
            except Exception as error:  # noqa: BLE001  # a server may fail in any way; the error is logged, and the next try follows
                wait_s = self.timeouts.retry_s if self._was_there else wait_s
                stop_if_cancelled()
                log.warning("mcp_server_lost", server=self.server.name, error=first_cause(error), retries_in_s=wait_s)
            # Jitter: when a machine comes back, its servers are not all called at the same moment.
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311  # no secret
            wait_s = min(wait_s * 2, self.timeouts.max_retry_s)

    async def list_once(self) -> tuple[Tool, ...]:
        """Connect, list the tools, and disconnect. Raises whatever the server and the SDK do."""
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self.timeouts.connect_s):
                client = Client(await self._transport(stack), read_timeout_seconds=self.timeouts.call_s)
                await stack.enter_async_context(client)
                await self._list(client)
            return self._served

    async def _stay_connected(self) -> None:
        """Connect, list the tools, and check the connection until it fails."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self.timeouts.connect_s):
                    client = Client(await self._transport(stack), read_timeout_seconds=self.timeouts.call_s)
                    # Entered in this task and left in this task: the SDK's cancel scopes require it.
                    await stack.enter_async_context(client)
                    await self._list(client)
                self._client, self._was_there = client, True
                self._ready.set()
                log.info("mcp_server_connected", server=self.server.name, tools=len(self._served))
                while True:
                    self._doubt.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self.timeouts.ping_s):
                            await self._doubt.wait()
                    async with asyncio.timeout(self.timeouts.call_s):
                        await self._list(client)  # shows that the server lives, and brings new tools
                    stop_if_cancelled()
            finally:
                self._client, self._served = None, ()

    async def _list(self, client: Client) -> None:
        listed = await list_all_tools(client)
        self._served = tuple(
            [self._tool(tool) for tool in listed if fits_in_prompt(tool, self.server.name) and await self._is_trusted(tool)]
        )

    async def _is_trusted(self, tool: ServedTool) -> bool:
        """Whether a tool is as it is pinned, and holds no instructions. Logs a tool that is left out."""
        definition = definition_of(tool)
        if definition.digest in self._trusted:
            return True
        if (finding := self.scan(json.dumps(definition.definition, ensure_ascii=False))) is not None:
            log.warning("mcp_tool_tripped", server=self.server.name, tool=tool.name, finding=str(finding)[:80])
            return False
        if not await self.check_pin(self.server.name, definition):
            log.warning("mcp_tool_changed", server=self.server.name, tool=tool.name, digest=definition.digest)
            return False
        self._trusted.add(definition.digest)
        return True

    async def _transport(self, stack: AsyncExitStack) -> Any:
        if self.server.url is None:
            program, *arguments = self.server.command
            parameters = StdioServerParameters(command=program, args=arguments, env=dict(self.server.env))
            return stdio_client(parameters, errlog=self.errors)
        timeout = httpx2.Timeout(self.timeouts.call_s, read=None)
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=dict(self.server.headers), timeout=timeout))
        return streamable_http_client(self.server.url, http_client=http)

    def _tool(self, served: ServedTool) -> Tool:
        name = NOT_NAME_CHARS.sub("_", f"{self.server.name}_{served.name}")[:MAX_NAME_CHARS]
        effect = self.server.effect_of(served)
        asks = effect is ToolEffect.SPENDS
        is_for_rooms = served.name in self.server.shared or (effect is ToolEffect.READS and "*" in self.server.shared)
        parameters = dict(served.input_schema)
        known = frozenset(parameters.get("properties") or {})
        required = tuple(parameters.get("required") or ())

        def read(arguments: str) -> Mapping[str, Any]:
            given = parse_arguments(arguments)
            missing = [each for each in required if given.get(each) is None]
            if missing:
                raise BadArguments(missing_text(missing))
            return {key: value for key, value in given.items() if key in known}

        async def run(_: ToolContext, arguments: Mapping[str, Any]) -> str:
            return await self._call(served.name, arguments)

        async def prepare(_: ToolContext, arguments: Mapping[str, Any]) -> Offer:
            return Offer("; ".join([f"Offer: {served.name} of {self.server.name}", *map(argument_text, arguments.items())]), arguments)

        description = clean_text(served.description or served.title or served.name)[:MAX_DESCRIPTION_CHARS]
        return Tool(
            name=name,
            effect=effect,
            schema=schema_of(name, description, parameters),
            read=read,
            run=run,
            prepare=prepare if asks else None,
            is_foreign=True,
            reach=ToolReach.ROOM if is_for_rooms else ToolReach.PERSON,
            source=f"the server {self.server.name}",
        )

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        client = self._client
        if client is None:
            raise ToolProblem(f"the server {self.server.name} is away at the moment; tell the user to try again later")
        try:
            result = await client.call_tool(name, dict(arguments), read_timeout_seconds=self.timeouts.call_s)
        except MCPError as error:
            self._doubt.set()  # the server may have refused this one call, or be gone; the next check will show
            raise ToolProblem(f"{self.server.name} did not answer as it should: {clean_text(str(error))[:200]}") from None
        except (OSError, RuntimeError):
            self._doubt.set()
            raise ToolProblem(f"the server {self.server.name} is away at the moment; tell the user to try again later") from None
        text = result_text(result)
        if result.is_error:
            raise ToolProblem(text[:500] or f"{name} failed without a word")
        return text or "Done; the server said nothing."


@dataclass(frozen=True, slots=True)
class McpServers:
    """The tools of all connected servers."""

    connections: Sequence[McpConnection]

    def tools(self) -> list[Tool]:
        """All tools, in the order of the servers and of their lists; of two with the same name, the first."""
        return list({tool.name: tool for connection in reversed(self.connections) for tool in reversed(connection.tools)}.values())[::-1]

    async def ready(self, *, within_s: float) -> None:
        """Wait for the first tool lists, but no longer than `within_s`; the tools of a late server are added when it connects."""
        waiting = [asyncio.ensure_future(connection.ready()) for connection in self.connections]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=within_s)
            for task in late:
                task.cancel()


@asynccontextmanager
async def open_servers(
    servers: Sequence[McpServer],
    *,
    timeouts: McpTimeouts | None = None,
    check_pin: CheckPin = trust_every_tool,
    scan: Callable[[str], object | None] = lambda _: None,
) -> AsyncIterator[McpServers]:
    """Keep connections to servers as long as the block lasts. A server that fails does not end the block: it is tried again.

    `check_pin` and `scan` decide which of their tools are left out. Without them all tools are there, as a test may want it."""
    names = [server.name for server in servers]
    if len(set(names)) != len(names):
        raise ValueError(f"two MCP servers have the same name: {', '.join(sorted(names))}")
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123, ASYNC230  # opening the null device does not wait
        connections = [McpConnection(server, timeouts or McpTimeouts(), nowhere, check_pin, scan) for server in servers]
        tasks = [asyncio.create_task(each.keep(), name=f"mcp {each.server.name}") for each in connections]
        try:
            yield McpServers(connections)
        finally:
            # The SDK closes a program's input, then terminates it, then kills it, and waits after each step.
            await end_tasks(*tasks, cleanup_s=CLEANUP_S, max_s=2 * CLEANUP_S)


class ServerAway(Exception):
    """An MCP server cannot be reached, or does not list its tools. Says why, in one line."""


async def list_server_tools(server: McpServer, timeouts: McpTimeouts) -> Sequence[Tool]:
    """Connect to a server once, and return its tools as a model gets them. Raises ServerAway."""
    if server.command and shutil.which(server.command[0]) is None:
        raise ServerAway(f"there is no program {server.command[0]}")
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123, ASYNC230  # opening the null device does not wait
        connection = McpConnection(server, timeouts, nowhere, trust_every_tool, lambda _: None)
        try:
            return await connection.list_once()
        except TimeoutError:
            raise ServerAway(f"no list of tools within {timeouts.connect_s:g} s") from None
        except Exception as error:  # noqa: BLE001  # a server may fail in any way, and the SDK raises groups
            stop_if_cancelled()
            raise ServerAway(first_cause(error)) from None


async def list_all_tools(client: Client) -> list[ServedTool]:
    """Return the tools of all pages of a server's list, MAX_PAGES at most."""
    tools: list[ServedTool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def fits_in_prompt(tool: ServedTool, server: str) -> bool:
    """Whether a tool's schema is short enough for a prompt. Logs a tool that is left out."""
    size = len(json.dumps(tool.input_schema))
    if size > MAX_SCHEMA_CHARS:
        log.warning("mcp_tool_left_out", server=server, tool=tool.name, schema_characters=size)
    return size <= MAX_SCHEMA_CHARS


def definition_of(tool: ServedTool) -> ToolDefinition:
    """Everything of a tool that a model or Hermes reads: if any of it changes, it is another tool."""
    hints = tool.annotations
    definition = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "schema": tool.input_schema,
        "hints": None if hints is None else hints.model_dump(mode="json", exclude_none=True),
    }
    return ToolDefinition(tool.name, definition)


def argument_text(argument: tuple[str, Any]) -> str:
    """An argument as its user reads it before they approve it."""
    name, value = argument
    return f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"


def result_text(result: CallToolResult) -> str:
    """Return the text of a result. A part that is not text is replaced by its type."""
    parts = [block.text if block.type == "text" else f"({block.type})" for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return "\n".join(parts)


def first_cause(error: BaseException) -> str:
    """Return the first error of an exception group, on one line: the SDK raises groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return clean_text(f"{type(error).__name__}: {error}")[:200]
