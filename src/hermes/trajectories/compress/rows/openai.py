"""OpenAI fine-tuning rows: a list of messages. All keep their form, except summaries, which are new, and tool results that were cut.

OpenAI's service refuses keys that it does not know, so nothing is added to the row: the metrics file says what is off-policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes.graph import GraphError, MessageGraph
from hermes.trajectories.compress.result import CompactionResult
from hermes.trajectories.compress.rows.change import RewrittenRow, change_of, replace_members
from hermes.trajectories.foreign_sharegpt import BadRow


class OpenAiRow:
    """A row with `messages`."""

    def __init__(self, raw: bytes, value: Mapping[str, Any]) -> None:
        messages = value["messages"]
        if not isinstance(messages, list) or not messages:
            raise BadRow("no messages in it")
        for index, message in enumerate(messages):
            if not isinstance(message, Mapping):
                raise BadRow(f"message {index} is not an object")
        tools = value.get("tools")
        self._raw, self._messages = raw, messages
        self.tools: Sequence[Any] = tools if isinstance(tools, list) else ()

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        return self._messages

    def chat(self) -> MessageGraph:
        try:
            return MessageGraph([_without_weight(message) for message in self._messages], seed="row")
        except GraphError as error:
            raise BadRow(str(error)) from None

    def rewrite(self, chat: MessageGraph, result: CompactionResult, metrics: Mapping[str, Any] | None) -> RewrittenRow:  # noqa: ARG002  # there is no room
        change = change_of([_without_weight(message) for message in self._messages], list(chat.versions[-1]))
        messages: list[Any] = []
        for place, origin in enumerate(change.origins):
            now = change.messages[place]
            if origin is None:
                messages.append({"role": now["role"], "content": now["content"]})
            elif place in change.changed:
                messages.append({**self._messages[origin], "content": now["content"]})
            else:
                messages.append(self._messages[origin])
        return RewrittenRow(replace_members(self._raw, {"messages": messages}), change.off_policy)


def _without_weight(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without its weight, which is not part of the conversation."""
    return {key: value for key, value in message.items() if key != "weight"}
