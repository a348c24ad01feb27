"""The port `Tools` for a Hermes without tools."""

from __future__ import annotations

from hermes.ports.tools import GatedTools, ToolCall, ToolResult, ToolUser


class NoTools:
    """The port Tools, with nothing behind it."""

    def gate(self, text: str, *, language: str, warm: str | None, has_tool_history: bool) -> GatedTools:  # noqa: ARG002  # the port's signature
        return GatedTools("none", ())

    def for_room(self) -> NoTools:
        return self

    async def run(self, call: ToolCall, index: int, user: ToolUser) -> ToolResult:  # noqa: ARG002  # the port's signature
        return ToolResult(call.id, call.name, f"Error: there is no tool {call.name[:60]!r}", is_error=True, ms=0)
