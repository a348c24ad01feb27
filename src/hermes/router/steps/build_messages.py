"""Step 6: what the model will be sent, put together. Pure.

The soul's base is the system message and stays the same; what changes with every message is a block in that turn's user message, and stays
there: so one prompt extends the one before, and the vendor's cache stays warm. In a room that several people share, the user's words stand
behind a label that names their speaker (`router/speakers.py`); before it stands only what is true for all of them.

What is sent is rendered by the overlay that is recorded with the answer, so that they cannot differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.graph.context import KeepReasoning, Overlay
from hermes.ports.images import ImagePrompt
from hermes.ports.inbox import Claim
from hermes.ports.souls import Soul
from hermes.router.speakers import label_message, speaker_id
from hermes.router.steps.load_history import LoadedHistory

SECOND_CALL_REASONING: KeepReasoning = "current_turn"
MAX_REQUEST_CHARS, CUT_TO_CHARS = 8_000_000, 4_000_000
"""Of a request, pictures as base64 among them; one that is heavier is cut to about half, so that it is not cut again with every message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A request before it is sent: kept in the journal word for word, so that what was paid for stands under what was asked."""

    system: str
    history: Sequence[Mapping[str, Any]]
    question: Mapping[str, Any]
    head: str
    """Of the list that the history leads to."""
    offset: int
    """How many messages of that list the model is not shown."""
    session_id: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    gate: str = ""
    tool_choice: str | Mapping[str, Any] | None = None
    """The tool that must be called; None leaves it to the model."""
    intent: str = ""
    """What the picture is for, as far as its caption says; empty without a picture."""
    picture_tools: Sequence[str] = ()
    """The tools that the picture may need, by name; they go along whatever the gate thinks of the words."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What is sent: the soul over the list, without anybody's earlier reasoning."""
        return Overlay(ephemeral=self.system).render([*self.history, self.question])

    def then(self, said: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What is sent after that was said: with the reasoning of this turn, which some vendors insist on between a call and its result."""
        return Overlay(ephemeral=self.system, keep_reasoning=SECOND_CALL_REASONING).render([*self.history, self.question, *said])

    @property
    def characters(self) -> int:
        """How long it is without its tools, pictures not counted."""
        return len(self.system) + sum(len(text_of(message)) for message in (*self.history, self.question))

    @classmethod
    def from_bytes(cls, body: bytes) -> Prompt:
        return cls(**json.loads(body))

    def to_bytes(self) -> bytes:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, separators=(",", ":")).encode()


def build_messages(claim: Claim, soul: Soul, past: LoadedHistory, picture: ImagePrompt | None) -> Prompt:
    """Put history, the note of this turn, the message and its picture together."""
    words = text_for_model(claim)
    text = "\n\n".join(part for part in (soul.note, picture.question if picture else "", words) if part)
    content: Any = [*picture.parts, {"type": "text", "text": text}] if picture and picture.parts else text
    must_call = picture.must_call if picture else None
    messages = past.history.messages
    left_out = count_unfit(messages, content_length(content))
    return Prompt(
        system=soul.system,
        history=[dict(message) for message in messages[left_out:]],
        question={"role": "user", "content": content},
        session_id=str(past.session.id),
        head=past.history.head,
        offset=past.history.offset + left_out,
        tool_choice={"type": "function", "function": {"name": must_call}} if must_call else None,
        intent=str(picture.intent) if picture else "",
        picture_tools=tuple(picture.tools) if picture else (),
    )


def text_for_model(claim: Claim) -> str:
    """What the user said, as a model is shown it: in a shared room with a label that says who they are."""
    envelope = claim.envelope
    if not envelope.is_shared:
        return envelope.event.text
    return label_message(envelope.event.text, speaker=speaker_id(claim.conversation_id, claim.user_id), name=envelope.sender_name)


def count_unfit(messages: Sequence[Mapping[str, Any]], heavy: int) -> int:
    """How many of the oldest messages are left out: so that the others fit into a request with one that weighs so much (pictures do), and
    begin with a user's message: a result without its call is refused by every vendor."""
    weights = [content_length(message.get("content")) for message in messages]
    first = 0
    if heavy + sum(weights) > MAX_REQUEST_CHARS:
        first = len(messages)
        while first and heavy + weights[first - 1] <= CUT_TO_CHARS:
            first -= 1
            heavy += weights[first]
    return next((place for place in range(first, len(messages)) if messages[place].get("role") == "user"), len(messages))


def content_length(content: Any) -> int:
    """How long a content is, its pictures as they are sent."""
    if isinstance(content, str) or content is None:
        return len(content or "")
    return sum(len(str(part.get("text") or "")) + len(str((part.get("image_url") or {}).get("url") or "")) for part in content)


def text_of(message: Mapping[str, Any]) -> str:
    """What a message says, without its pictures."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(str(part.get("text", "")) for part in content)
