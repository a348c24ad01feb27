"""What goes to a summariser and what comes back. A summariser is pluggable: whoever has this one method is one."""

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
    """A stretch of a conversation to be summarised."""

    messages: Sequence[Mapping[str, Any]]
    """Whole: no call without its result, nothing cut."""
    target_tokens: int
    """The longest summary that will do."""
    sample_id: str
    """Names the summary: asked for again after a crash it is the same sample."""
    counter: TokenCounter
    head: Sequence[Mapping[str, Any]] = ()
    """The protected messages before it, for context; they stay, and need no summary."""
    user_words_share: float = 0.0
    """How much of a model's summary is kept for the user's own words."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What stands for a piece."""

    text: str
    """Never longer than the piece's target."""
    how: str = EXTRACTIVE
    """`model`, `extractive`, or `extractive (model failed: …)`."""
    chat: MessageGraph | None = None
    """The summariser's own chat with all that was sampled in it, also what was not taken."""
    micro_usd: int = 0
    api_calls: int = 0
    errors: int = 0
    """How many of the calls gave nothing that could be used."""


class Summariser(Protocol):
    """Somebody who can say it shorter."""

    async def summarise(self, piece: SummaryRequest) -> Summary:
        """Return a summary. Never raises for a model's failure: there is always an extractive one."""
        ...


def content_text(message: Mapping[str, Any]) -> str:
    """Return what a message says, parts joined; empty if it says nothing."""
    content = message.get("content")
    return "\n".join(map(part_text, content)) if isinstance(content, list) else content or ""


def call_texts(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the calls of a message as one writes them: `name(arguments)`."""
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call
        arguments = function.get("arguments", "")
        yield f"{function.get('name', 'tool')}({arguments if isinstance(arguments, str) else json.dumps(arguments)})"
