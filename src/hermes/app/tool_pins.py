"""The pins of the MCP servers' tools: checked when a server lists its tools, and shown to and accepted by the operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hermes.ports.runtime import Alerts, Transactions
from hermes.ports.tools import ToolDefinition, ToolPin, ToolPins
from hermes.stores.postgres.tool_pins import PostgresToolPins


@dataclass(frozen=True, slots=True)
class PinKeeper:
    """Compares the tools of servers with their pins, and alerts the operator to a change."""

    transactions: Transactions
    alerts: Alerts
    pins: ToolPins

    async def check(self, server: str, tool: ToolDefinition) -> bool:
        """Whether a tool is as it is pinned. Raises StoreUnavailable: without the store no new tool is offered."""
        async with self.transactions.begin() as tx:
            is_pinned = await self.pins.check(tx, server, tool)
        if not is_pinned:
            self.alerts.alert("mcp_tool_changed", server=server, tool=tool.name, digest=tool.digest[:16])
        return is_pinned


async def read_pins(transactions: Transactions) -> Sequence[ToolPin]:
    """Return all pins, by server and tool."""
    async with transactions.begin() as tx:
        return await PostgresToolPins().list(tx)


async def accept_change(transactions: Transactions, pin: ToolPin, *, by: str) -> bool:
    """Pin the change that waits; False if another change came meanwhile, which the operator has not seen."""
    async with transactions.begin() as tx:
        return pin.waiting is not None and await PostgresToolPins().accept(tx, pin.server, pin.tool, digest=pin.waiting, by=by)


def pin_keeper_from(transactions: Transactions, alerts: Alerts) -> PinKeeper:
    return PinKeeper(transactions, alerts, PostgresToolPins())
