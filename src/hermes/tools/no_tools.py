"""The port `Tools` for a Hermes without tools."""

from __future__ import annotations

from hermes.ports.tools import UNKNOWN_TOOL, GatedTools, ToolCall, ToolResult, ToolUser


class NoTools:
    """The port Tools, with nothing behind it."""

    def gate(self, text: str, *, language: str, warm: str | None, has_tool_history: bool) -> GatedTools:  # noqa: ARG002  # the port's signature
        return GatedTools("none", ())

    def for_room(self) -> NoTools:
        return self

    async def run(self, call: ToolCall, index: int, user: ToolUser) -> ToolResult:  # noqa: ARG002  # the port's signature
        return unknown_tool(call)

    async def carry_out(self, code: str, call: ToolCall, user: ToolUser) -> ToolResult:  # noqa: ARG002  # the port's signature
        return unknown_tool(call)


def unknown_tool(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, UNKNOWN_TOOL, f"Error: there is no tool {call.name[:60]!r}", is_error=True, ms=0)
