"""What a summariser is asked, and what it returns. Any object with the one method of `Summariser` can be used."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hermes.graph import MessageGraph
from hermes.trajectories.compress.token_counter import TokenCounter
from hermes.trajectories.sharegpt_turns import part_text

MODEL = "model"
EXTRACTIVE = "extractive"


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Consecutive messages of a conversation that are to be summarised."""

    messages: Sequence[Mapping[str, Any]]
    """Complete: each call with its result, no text cut."""
    target_tokens: int
    """The longest summary that is allowed."""
    sample_id: str
    """Names the summary: a request that is repeated after a crash asks for the same sample."""
    counter: TokenCounter
    head: Sequence[Mapping[str, Any]] = ()
    """The protected messages before these, for context; they stay, and need no summary."""
    user_words_share: float = 0.0
    """The share of a model's summary that is kept for the user's own words."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The text that replaces the messages."""

    text: str
    """Never longer than the request allows."""
    how: str = EXTRACTIVE
    """`model`, `extractive`, or `extractive (model failed: …)`."""
    chat: MessageGraph | None = None
    """The summariser's own chat with every answer that was sampled, used or not."""
    micro_usd: int = 0
    api_calls: int = 0
    errors: int = 0
    """How many of the calls gave no usable answer."""


class Summariser(Protocol):
    """Writes summaries."""

    async def summarise(self, request: SummaryRequest) -> Summary:
        """Return a summary. Never raises for a failure of the model: it returns an extractive summary instead."""
        ...


def content_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, its parts joined; empty if it has none."""
    content = message.get("content")
    return "\n".join(map(part_text, content)) if isinstance(content, list) else content or ""


def call_texts(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tool calls of a message, each as `name(arguments)`."""
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call
        arguments = function.get("arguments", "")
        yield f"{function.get('name', 'tool')}({arguments if isinstance(arguments, str) else json.dumps(arguments)})"
