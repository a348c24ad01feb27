"""The content of a turn, for an operator who has opened its conversation: the user's words, every context exactly as it was sent, every
answer, what the tools were asked and brought, and the texts that went out.

Contexts are rendered by the code that made the requests, from the requests that the journal keeps word for word."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from hermes.console.access import AccessRefused, Opened
from hermes.graph import Response
from hermes.ports.errors import DataDamaged, NotFound, UserErased
from hermes.ports.outbox import readable_text
from hermes.ports.runtime import Transactions
from hermes.ports.tools import ToolCall, ToolResult
from hermes.ports.turn_record import (
    LooseCall,
    StoredEffect,
    StoredMessage,
    StoredPart,
    StoredText,
    StoredWords,
    TurnRecord,
    TurnWords,
    WhyHidden,
)
from hermes.router.effects import JournaledAnswer
from hermes.router.steps.build_messages import Prompt
from hermes.router.steps.run_tools import messages_after_tools, refuse_calls

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """One message of a context, and whether the turn before had it already."""

    message: Message
    is_new: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SentContext:
    """What one call was sent, and what came back."""

    title: str
    call_id: str | None = None
    messages: Sequence[ContextMessage] = ()
    tools: Sequence[Message] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    answer: Message | None = None
    hidden: WhyHidden | None = None
    """Why there is no context to show."""
    answer_hidden: WhyHidden | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    """A tool call, with what it was asked and what it brought."""

    name: str
    arguments: str | None
    result: str | None
    is_error: bool = False
    ms: int | None = None
    hidden: WhyHidden | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredText:
    """One text that went out, as its reader saw it."""

    part: int
    news: str
    text: str | None
    hidden: WhyHidden | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContent:
    """Everything of a turn that a user or a model wrote."""

    messages: Sequence[StoredMessage] = ()
    contexts: Sequence[SentContext] = ()
    tools: Sequence[ToolRun] = ()
    texts: Sequence[DeliveredText] = ()


class ContentReader:
    """Reads content. Every method demands the right to it."""

    def __init__(self, transactions: Transactions, words: TurnWords) -> None:
        self._transactions, self._words = transactions, words

    async def read(self, opened: Opened, turn: TurnRecord) -> TurnContent:
        """Return the content of a turn. Raises AccessRefused if another conversation was opened. A text that cannot be opened says why."""
        check_opened(opened, turn.conversation_id)
        async with self._transactions.once() as tx:
            words = await self._words.read(tx, turn.turn_id)
            before = StoredText(None) if turn.previous_id is None else await self._words.read_prompt(tx, turn.previous_id)
        return build_content(words, before)

    async def read_call(self, opened: Opened, loose: LooseCall) -> SentContext:
        """Return the context and the answer of a call that its session's graph has. Raises AccessRefused as `read` does."""
        check_opened(opened, loose.conversation_id)
        call = loose.recorded.call
        if call.session_id is None:
            return SentContext(title="call", hidden=WhyHidden.EXPIRED)
        if loose.is_erased:
            return SentContext(title="call", hidden=WhyHidden.ERASED)
        try:
            async with self._transactions.begin() as tx:
                graph = await self._words.load_graph(tx, call.session_id)
        except UserErased:
            return SentContext(title="call", hidden=WhyHidden.ERASED)
        except NotFound:
            return SentContext(title="call", hidden=WhyHidden.EXPIRED)
        except DataDamaged:
            return SentContext(title="call", hidden=WhyHidden.UNREADABLE)
        found = [response for response in graph.responses() if response.sample_id == str(call.id)]
        return read_response(found[0]) if found else SentContext(title="call", call_id=str(call.id), hidden=WhyHidden.EXPIRED)


def check_opened(opened: Opened, conversation_id: UUID | None) -> None:
    """Raises AccessRefused unless it is this conversation that was opened."""
    if (opened.subject.kind, opened.subject.id) != ("conversation", str(conversation_id)):
        raise AccessRefused("another conversation was opened")


def read_response(response: Response) -> SentContext:
    """A sample of a graph: exactly what was sent, and the answer."""
    if response.redacted:
        return SentContext(title="call", call_id=response.sample_id, hidden=WhyHidden.ERASED)
    return SentContext(
        title="call",
        call_id=response.sample_id,
        messages=[ContextMessage(message) for message in response.context],
        tools=list(response.overlay.tools or ()),
        answer=dict(response.message),
    )


# --- from the journal


def build_content(words: StoredWords, before: StoredText) -> TurnContent:
    """Put the content of a turn together. `before` is the request of the turn before, to tell what is new."""
    contexts = [read_summary(effect) for effect in words.effects if effect.step == "compact"]
    answers = {effect.index: effect for effect in words.effects if effect.step == "call_model"}
    tools = sorted((effect for effect in words.effects if effect.step == "run_tools"), key=lambda effect: effect.index)
    if 0 in answers:
        first = read_first_call(answers[0], before)
        contexts.append(first)
        if 1 in answers:
            contexts.append(read_second_call(answers[0], tools, answers[1], first))
    return TurnContent(
        messages=words.messages,
        contexts=contexts,
        tools=[read_tool(effect) for effect in tools],
        texts=[read_part(part) for part in words.parts],
    )


def read_first_call(effect: StoredEffect, before: StoredText) -> SentContext:
    if effect.request.body is None:
        return SentContext(title=TITLES["answer"], hidden=effect.request.hidden, answer_hidden=effect.result.hidden)
    prompt = Prompt.from_bytes(effect.request.body)
    if effect.result.body is not None and JournaledAnswer.from_bytes(effect.result.body).without_tools:
        prompt = prompt.without_tools()
    earlier = [] if before.body is None else Prompt.from_bytes(before.body).messages
    return with_answer(
        SentContext(
            title=TITLES["answer"],
            messages=mark_new(prompt.messages, earlier),
            tools=prompt.tools,
            tool_choice=prompt.tool_choice,
        ),
        effect.result,
    )


def read_second_call(first: StoredEffect, tools: Sequence[StoredEffect], second: StoredEffect, before: SentContext) -> SentContext:
    """The call after the tools: the journal has its parts, and the router's own code puts them together."""
    bodies = [first.request.body, first.result.body, *(tool.result.body for tool in tools)]
    whole = [body for body in bodies if body is not None]
    if len(whole) < len(bodies):
        return with_answer(SentContext(title=TITLES["conclude"], hidden=first.result.hidden or WhyHidden.EXPIRED), second.result)
    prompt, answer = Prompt.from_bytes(whole[0]), JournaledAnswer.from_bytes(whole[1])
    results = [ToolResult.from_bytes(body) for body in whole[2:]]
    messages = messages_after_tools(prompt, answer, [*results, *refuse_calls(answer.tool_calls, prompt.tools)])
    shown = SentContext(
        title=TITLES["conclude"],
        messages=mark_new(messages, [each.message for each in before.messages]),
        tools=prompt.tools,
        tool_choice="none",
    )
    return with_answer(shown, second.result)


def read_summary(effect: StoredEffect) -> SentContext:
    """A call that summarised the history before the answer."""
    if effect.request.body is None:
        return SentContext(title=TITLES["compact"], hidden=effect.request.hidden)
    messages = [ContextMessage(message) for message in json.loads(effect.request.body)]
    return with_answer(SentContext(title=TITLES["compact"], messages=messages), effect.result)


TITLES = MappingProxyType({"answer": "answer", "conclude": "after the tools", "compact": "summary of the history"})


def with_answer(context: SentContext, result: StoredText) -> SentContext:
    if result.body is None:
        return replace(context, answer_hidden=result.hidden)
    answer = JournaledAnswer.from_bytes(result.body)
    return replace(context, answer=answer.message, call_id=answer.call_id)


def mark_new(messages: Sequence[Message], earlier: Sequence[Message]) -> list[ContextMessage]:
    """Mark the messages that an earlier context did not have at the same place, from the first difference on. The system message is
    compared alone: it may change while the list goes on."""
    marked, is_same = [], True
    for place, message in enumerate(messages):
        is_equal = place < len(earlier) and earlier[place] == message
        if message.get("role") != "system":
            is_same = is_same and is_equal
        marked.append(ContextMessage(message, is_new=not is_equal if message.get("role") == "system" else not is_same))
    return marked


def read_tool(effect: StoredEffect) -> ToolRun:
    asked = None if effect.request.body is None else ToolCall(**json.loads(effect.request.body))
    done = None if effect.result.body is None else ToolResult.from_bytes(effect.result.body)
    return ToolRun(
        name=asked.name if asked else done.name if done else "tool",
        arguments=asked.arguments if asked else None,
        result=done.text if done else None,
        is_error=bool(done and done.is_error),
        ms=done.ms if done else None,
        hidden=effect.result.hidden or effect.request.hidden,
    )


def read_part(part: StoredPart) -> DeliveredText:
    if part.body.body is None:
        return DeliveredText(part=part.part, news=part.news, text=None, hidden=part.body.hidden)
    text = part.body.body.decode("utf-8", "replace")
    return DeliveredText(part=part.part, news=part.news, text=readable_text([json.loads(text)]) if part.is_message else text)


# --- as JSON


def content_json(content: TurnContent) -> dict[str, Any]:
    """The content for the API and for programs. `messages` of a context are exactly those that were sent."""
    return {
        "messages": [
            {"turn_id": str(each.turn_id), "text": each.text, "media": list(each.media), "hidden": each.hidden} for each in content.messages
        ],
        "contexts": [context_json(context) for context in content.contexts],
        "tools": [
            {
                "name": run.name,
                "arguments": run.arguments,
                "result": run.result,
                "is_error": run.is_error,
                "ms": run.ms,
                "hidden": run.hidden,
            }
            for run in content.tools
        ],
        "texts": [{"part": each.part, "news": each.news, "text": each.text, "hidden": each.hidden} for each in content.texts],
    }


def context_json(context: SentContext) -> dict[str, Any]:
    return {
        "title": context.title,
        "call_id": context.call_id,
        "messages": [each.message for each in context.messages],
        "new_from": next(
            (place for place, each in enumerate(context.messages) if each.is_new and each.message.get("role") != "system"), None
        ),
        "tools": list(context.tools),
        "tool_choice": context.tool_choice,
        "answer": context.answer,
        "hidden": context.hidden or context.answer_hidden,
    }
