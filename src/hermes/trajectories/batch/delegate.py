"""A tool that is an agent itself: it gets a task, works on it in a chat of its own, and its last word is the result.

Its chat is attached to the result (`metadata["chat"]`), to any depth: what was sampled there is training data too, in the same rollout."""

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
    """The same agent, able to delegate as deep as its recipe allows. `system` is what every agent of the rollout is told."""
    if depth >= agent.recipe.subagent_depth:
        return replace(agent, delegate=None, delegate_schema=None)

    async def delegate(chat: RolloutChat, at: int, call: Mapping[str, Any]) -> BatchToolResult:
        arguments = parse_arguments(str((call.get("function") or {}).get("arguments") or ""))
        if isinstance(arguments, str):
            return BatchToolResult(ToolOutcome.BAD_ARGUMENTS, f"Error: {arguments}")
        task = arguments.get("task")
        if not isinstance(task, str) or not task.strip():
            return BatchToolResult(ToolOutcome.BAD_ARGUMENTS, "Error: task is missing; say what to do")
        number, agent.tally.subagents = agent.tally.subagents, agent.tally.subagents + 1
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
            chat.subagent_chats[at] = below.graph  # also when it is cancelled: what was sampled there is kept
        return subagent_result(below.graph, ended)

    return replace(agent, delegate=delegate, delegate_schema=SCHEMA)


def subagent_result(graph: MessageGraph, ended: ChatEnding) -> BatchToolResult:
    """What the agent above is told."""
    content = next((message.get("content") for message in reversed(graph[:]) if message["role"] == "assistant"), None)
    said = content if isinstance(content, str) else ""
    if ended.outcome is RolloutOutcome.COMPLETED:
        return BatchToolResult(ToolOutcome.DONE, said or "(The agent said nothing.)")
    why = f"{ended.outcome}: {ended.reason}" if ended.reason else ended.outcome.value
    return BatchToolResult(ToolOutcome.FAILED, f"Error: the agent did not finish ({why})." + (f" It said last: {said}" if said else ""))
