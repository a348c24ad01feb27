"""The tools of MCP servers as they were first used, on PostgreSQL. Their descriptions are not about users, so nothing here is sealed."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.types.json import Jsonb

from hermes.ports.runtime import Transaction
from hermes.ports.tools import ToolDefinition, ToolPin
from hermes.stores.postgres.database import execute, fetch_rows, fetch_value
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("tool_pins")


class PostgresToolPins:
    """The port ToolPins."""

    async def check(self, tx: Transaction, server: str, tool: ToolDefinition) -> bool:
        row = {"server": server, "tool": tool.name, "digest": tool.digest, "definition": Jsonb(dict(tool.definition))}
        return bool(await fetch_value(tx, SQL["check"], row))

    async def list(self, tx: Transaction) -> Sequence[ToolPin]:
        return await fetch_rows(tx, ToolPin, SQL["list"])

    async def accept(self, tx: Transaction, server: str, tool: str, *, digest: str, by: str) -> bool:
        return await execute(tx, SQL["accept"], {"server": server, "tool": tool, "digest": digest, "by": by}) > 0
