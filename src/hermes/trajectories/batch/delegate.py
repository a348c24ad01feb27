"""A tool that is an agent itself: it gets a task, works on it in its own chat, and its last message is the result.

Its chat is attached to the result (`metadata["chat"]`), to any depth: its samples are training data too, in the same rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hermes.graph import MessageGraph
from hermes.graph.message import FrozenDict, freeze_items
from hermes.trajectories.batch.agent_loop import ChatEnding, RolloutAgent, RolloutChat, converse
from hermes.trajectories.batch.rollout import RolloutOutcome
from hermes.trajectories.batch.seeds import seed_of
from hermes.trajectories.batch.tools import BatchToolResult, ToolOutcome, parse_arguments

NAME = "delegate"
DESCRIPTION = (
    "Hand a task on to another agent with the same tools, and get its final answer. It sees nothing of this conversation, so the task must "
    "say everything that it needs to know."
)
PARAMETERS = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "What to do, and what to report."}},
    "required": ["task"],
}
SCHEMA: Mapping[str, Any] = FrozenDict(
    freeze_items({"type": "function", "function": {"name": NAME, "description": DESCRIPTION, "parameters": PARAMETERS}}, NAME)
)


def with_subagents(agent: RolloutAgent, system: str | None, depth: int = 0) -> RolloutAgent:
    """Return the agent with the tool `delegate`, if the recipe allows subagents at this depth. Every subagent gets the message `system`."""
    if depth >= agent.recipe.subagent_depth:
        return replace(agent, delegate=None, delegate_schema=None)

    async def delegate(chat: RolloutChat, at: int, call: Mapping[str, Any]) -> BatchToolResult:
        arguments = parse_arguments(str((call.get("function") or {}).get("arguments") or ""))
        if isinstance(arguments, str):
            return BatchToolResult(ToolOutcome.BAD_ARGUMENTS, f"Error: {arguments}")
        task = arguments.get("task")
        if not isinstance(task, str) or not task.strip():
            return BatchToolResult(ToolOutcome.BAD_ARGUMENTS, "Error: task is missing; say what to do")
        number, agent.usage.subagents = agent.usage.subagents, agent.usage.subagents + 1
        head = [{"role": "system", "content": system}] if system else []
        below = RolloutChat(
            MessageGraph([*head, {"role": "user", "content": task}], seed=f"{chat.sample_id}/sub{number}"),
            f"{chat.sample_id}/sub{number}",
            None if chat.seed is None else seed_of(chat.seed, NAME, number),
            depth + 1,
        )
        try:
            ended = await converse(below, with_subagents(agent, system, depth + 1))
        finally:
            chat.subagent_chats[at] = below.graph  # also when it is cancelled: its samples are kept
        return subagent_result(below.graph, ended)

    return replace(agent, delegate=delegate, delegate_schema=SCHEMA)


def subagent_result(graph: MessageGraph, ended: ChatEnding) -> BatchToolResult:
    """Return the tool result for the agent that delegated."""
    content = next((message.get("content") for message in reversed(graph[:]) if message["role"] == "assistant"), None)
    last_text = content if isinstance(content, str) else ""
    if ended.outcome is RolloutOutcome.COMPLETED:
        return BatchToolResult(ToolOutcome.DONE, last_text or "(The agent said nothing.)")
    why = f"{ended.outcome}: {ended.reason}" if ended.reason else ended.outcome.value
    ending = f" It said last: {last_text}" if last_text else ""
    return BatchToolResult(ToolOutcome.FAILED, f"Error: the agent did not finish ({why}).{ending}")
