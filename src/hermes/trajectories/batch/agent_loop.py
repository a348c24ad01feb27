"""The agent loop: ask the model, run the tools that it calls, ask again, until it answers or the loop must end.

    prepare → ask the model → commit, with how it was sampled → run its tool calls, all at once, their results in order → …

When a chat ends or is cancelled, its graph holds everything so far, and every tool call has a result. A subagent is a tool that is an agent
itself: it gets a task, works on it in its own chat, and its last message is the result. Its chat is attached to the result
(`metadata["chat"]`), to any depth: its samples are training data too, in the same rollout."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hermes.graph import GraphError, MessageGraph, Turn
from hermes.graph.message import FrozenDict, freeze_items
from hermes.trajectories.batch.recipe import BatchPace, BatchRecipe, seed_of
from hermes.trajectories.batch.rollout import RolloutOutcome, RolloutUsage
from hermes.trajectories.batch.tools import BatchToolResult, RolloutToolbox, ToolOutcome, is_cancelled, parse_arguments
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest, SamplingModel

REASONING_SENT = "reasoning_sent"
"""The key in a call's `extra` which says that the server took the earlier reasoning in the messages. Most servers leave it out."""
NOT_RUN = "Error: this was not done, because the conversation ended first."
REFUSALS = frozenset({"content_filter", "refusal"})

DELEGATE = "delegate"
DELEGATE_DESCRIPTION = (
    "Hand a task on to another agent with the same tools, and get its final answer. It sees nothing of this conversation, so the task must "
    "say everything that it needs to know."
)
DELEGATE_PARAMETERS = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "What to do, and what to report."}},
    "required": ["task"],
}
DELEGATE_FUNCTION = {"name": DELEGATE, "description": DELEGATE_DESCRIPTION, "parameters": DELEGATE_PARAMETERS}
DELEGATE_SCHEMA: Mapping[str, Any] = FrozenDict(freeze_items({"type": "function", "function": DELEGATE_FUNCTION}, DELEGATE))

Delegate = Callable[["RolloutChat", int, Mapping[str, Any]], Awaitable[BatchToolResult]]
"""Give a task to a subagent: takes the chat, the call's place and the call. The subagent's chat goes to `subagent_chats`."""


@dataclass(frozen=True, slots=True)
class ChatEnding:
    """How a chat ended."""

    outcome: RolloutOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutAgent:
    """A model with tools, configured by a recipe."""

    model: SamplingModel
    recipe: BatchRecipe
    pace: BatchPace
    tools: RolloutToolbox
    usage: RolloutUsage
    delegate: Delegate | None = None
    delegate_schema: Mapping[str, Any] | None = None
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    @property
    def schemas(self) -> list[Mapping[str, Any]]:
        return [*self.tools.schemas, *([self.delegate_schema] if self.delegate_schema is not None else [])]


@dataclass(slots=True)
class RolloutChat:
    """A conversation of an agent."""

    graph: MessageGraph
    sample_id: str
    """How the sample ids of its answers begin."""
    seed: int | None = None
    depth: int = 0
    """How many agents are above this one."""
    subagent_chats: dict[int, MessageGraph] = field(default_factory=dict)
    """The chats of subagents, finished or not, by the place of the delegating call in its message."""
    asked: int = 0
    """How often the model answered in this chat."""
    cwd: str | None = None
    """The folder of the rollout's row, for models that work in a folder."""


async def converse(chat: RolloutChat, agent: RolloutAgent) -> ChatEnding:
    """Run an agent until it has an answer. Raises ModelFailed only if no further request would be answered (`is_spent`)."""
    try:
        for _ in range(agent.recipe.max_turns):
            if is_cancelled():
                raise asyncio.CancelledError  # a tool, or the model's client, has swallowed the CancelledError
            try:
                sampled = await ask_model(chat, agent)
            except ModelFailed as failed:
                if failed.is_spent:
                    raise
                return ChatEnding(RolloutOutcome.ERROR, str(failed))
            except GraphError as error:
                return ChatEnding(RolloutOutcome.ERROR, f"the model's answer cannot be recorded: {error}")
            finish, calls = sampled.call.finish_reason, calls_of(sampled.message)
            if finish == "length":
                return ChatEnding(RolloutOutcome.LENGTH)
            if finish in REFUSALS:
                return ChatEnding(RolloutOutcome.REFUSED, finish or "")
            if not calls:
                return ChatEnding(RolloutOutcome.COMPLETED)
            results = await run_calls(chat, agent, calls)
            chat.graph.extend([tool_message(chat, at, call, results[at].text) for at, call in enumerate(calls)])
        return ChatEnding(RolloutOutcome.MAX_TURNS)
    finally:
        answer_open_calls(chat)


async def ask_model(chat: RolloutChat, agent: RolloutAgent) -> SampledMessage:
    """Get one answer of the model, with retries, and commit it to the graph. Raises ModelFailed."""
    recipe = agent.recipe
    turn = chat.graph.prepare(agent.schemas or None, recipe.ephemeral, recipe.keep_reasoning)
    seed = {"seed": chat.seed} if recipe.is_seeded and chat.seed is not None else {}
    request = SampleRequest(
        messages=turn.messages,
        tools=turn.tools or (),
        sampling={**seed, **recipe.sampling},
        max_tokens=recipe.max_tokens,
        sample_id=f"{chat.sample_id}/{chat.asked}",
        timeout_s=agent.pace.call_timeout_s,
        cwd=chat.cwd,
    )
    sampled = await sample_with_retries(request, agent)
    chat.asked += 1
    agent.usage.count(sampled)
    if recipe.keep_reasoning != "none" and not (sampled.call.extra or {}).get(REASONING_SENT):
        turn = Turn(turn.nodes, replace(turn.overlay, keep_reasoning="none"), turn.seed)
    chat.graph.commit(turn, sampled.message, sampled.call)
    return sampled


async def sample_with_retries(request: SampleRequest, agent: RolloutAgent) -> SampledMessage:
    """Ask the model, and ask again after a failure that is not final, with growing delays. Raises ModelFailed."""
    pace = agent.pace
    for tried in range(pace.retries + 1):
        try:
            return await agent.model.sample(request)
        except ModelFailed as failed:
            if failed.is_final or tried == pace.retries:
                raise
        agent.usage.retries += 1
        # Full jitter: after an outage every rollout wakes at once, and equal delays make them collide again.
        await agent.sleep(random.uniform(0, min(pace.max_backoff_s, pace.backoff_s * 2**tried)))  # noqa: S311  # no secret
    raise AssertionError("unreachable")


async def run_calls(chat: RolloutChat, agent: RolloutAgent, calls: Sequence[Mapping[str, Any]]) -> list[BatchToolResult]:
    """Run tool calls, all at once. If one raises, the others are cancelled, and have ended when this raises."""
    running = [asyncio.create_task(run_call(chat, agent, at, call)) for at, call in enumerate(calls)]
    try:
        return await asyncio.gather(*running)
    except BaseException:
        for task in running:
            task.cancel()
        # The samples of subagents are in the chat only after their calls have ended.
        await asyncio.gather(*running, return_exceptions=True)
        raise


async def run_call(chat: RolloutChat, agent: RolloutAgent, at: int, call: Mapping[str, Any]) -> BatchToolResult:
    """Run one tool call and count its outcome. An error becomes a text for the model."""
    function = call.get("function") or {}
    name, text = str(function.get("name") or ""), function.get("arguments")
    text = text if isinstance(text, str) else ""
    if agent.delegate is not None and agent.delegate_schema is not None and name == agent.delegate_schema["function"]["name"]:
        result = await agent.delegate(chat, at, call)
    else:
        result = await agent.tools.run(call_id_of(call), name, text, timeout_s=agent.pace.tool_timeout_s)
    known = result.outcome is not ToolOutcome.UNKNOWN
    agent.usage.count_tool(name if known else "(unknown)", result.outcome)
    return result


def tool_message(chat: RolloutChat, at: int, call: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the message with a call's result, and with the chat of its subagent, if it had one."""
    message: dict[str, Any] = {"role": "tool", "tool_call_id": call_id_of(call), "content": text}
    subagent_chat = chat.subagent_chats.pop(at, None)
    return message if subagent_chat is None else {**message, "metadata": {"chat": subagent_chat}}


def answer_open_calls(chat: RolloutChat) -> None:
    """Add a result for calls that have none: the conversation ended before they ran, or while they ran."""
    if not len(chat.graph):
        return
    last = chat.graph[-1]
    if last["role"] == "assistant" and (calls := calls_of(last)):
        chat.graph.extend([tool_message(chat, at, call, NOT_RUN) for at, call in enumerate(calls)])


def calls_of(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the tool calls of an assistant's message."""
    return [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]


def call_id_of(call: Mapping[str, Any]) -> str:
    return str(call.get("id") or "")


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
            None if chat.seed is None else seed_of(chat.seed, DELEGATE, number),
            depth + 1,
            cwd=chat.cwd,
        )
        try:
            ended = await converse(below, with_subagents(agent, system, depth + 1))
        finally:
            chat.subagent_chats[at] = below.graph  # also when it is cancelled: its samples are kept
        return subagent_result(below.graph, ended)

    return replace(agent, delegate=delegate, delegate_schema=DELEGATE_SCHEMA)


def subagent_result(graph: MessageGraph, ended: ChatEnding) -> BatchToolResult:
    """Return the tool result for the agent that delegated."""
    content = next((message.get("content") for message in reversed(graph[:]) if message["role"] == "assistant"), None)
    last_text = content if isinstance(content, str) else ""
    if ended.outcome is RolloutOutcome.COMPLETED:
        return BatchToolResult(ToolOutcome.DONE, last_text or "(The agent said nothing.)")
    why = f"{ended.outcome}: {ended.reason}" if ended.reason else ended.outcome.value
    ending = f" It said last: {last_text}" if last_text else ""
    return BatchToolResult(ToolOutcome.FAILED, f"Error: the agent did not finish ({why}).{ending}")
