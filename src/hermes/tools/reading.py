"""The tools of a toolbox that only read, for replays. A tool that writes or spends is never run from here, whatever the caller says."""

from __future__ import annotations

from dataclasses import dataclass

from hermes.ports.replays import ToolRefused
from hermes.ports.tools import ToolCall, ToolResult, ToolUser
from hermes.tools.executor import Toolbox
from hermes.tools.registry import ToolEffect


@dataclass(frozen=True, slots=True)
class ToolboxReader:
    """The port ReadingTools."""

    toolbox: Toolbox

    def effect_of(self, name: str) -> str | None:
        tools = {tool.name: tool.effect.value for tool in (*self.toolbox.more_tools(), *self.toolbox.own)}  # our own tool wins
        return tools.get(name)

    async def run(self, call: ToolCall, user: ToolUser) -> ToolResult:
        if self.effect_of(call.name) != ToolEffect.READS:
            raise ToolRefused(call.name)
        return await self.toolbox.run(call, 0, user)
