"""Step 6: build the request for the model. Pure.

The soul's base is the system message and stays the same. What changes with every message is a block in that turn's user message, and stays
there: so one prompt extends the one before, and the vendor's prompt cache holds it. The message's metadata says which part of it is that
note, because a saved trajectory leaves it out. In a room that several people share, a label before the
user's words names their speaker (`router/speakers.py`); before the label stands only what is true for all of them.

The request is rendered by the overlay that is recorded with the answer, so that the two cannot differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hermes.graph.context import KeepReasoning, Overlay, without_tool_blocks
from hermes.graph.message import METADATA, NOTE
from hermes.graph.tool_schemas import once
from hermes.ports.inbox import Claim
from hermes.ports.memories import Soul
from hermes.ports.tools import ImagePrompt
from hermes.router.speakers import label_message, speaker_id
from hermes.router.steps.load_history import LoadedHistory

SECOND_CALL_REASONING: KeepReasoning = "current_turn"
MAX_REQUEST_CHARS, CUT_TO_CHARS = 8_000_000, 4_000_000
"""Characters of a request, images as base64 included. A longer request is cut to about half, so that not every message cuts it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A request before it is sent. The journal keeps it word for word, so that a paid answer is recorded under exactly what was asked."""

    system: str
    history: Sequence[Mapping[str, Any]]
    question: Mapping[str, Any]
    head: str
    """The head of the list that the history leads to."""
    offset: int
    """How many messages of that list are not shown to the model."""
    session_id: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    gate: str = ""
    tool_choice: str | Mapping[str, Any] | None = None
    """The tool that the model must call; None lets the model choose."""
    intent: str = ""
    """What the image is for, as far as its caption says; empty without an image."""
    picture_tools: Sequence[str] = ()
    """The tools that the image may need, by name; they are sent even if the gate finds no need for them in the words."""
    may_leave_out_tools: bool = False
    """The tools go along in doubt: a model that takes none may be asked without them, and without the tool calls of the history."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages to send: the soul before the list, without any earlier reasoning."""
        return Overlay(system=self.system).render([*self.history, self.question])

    def then(self, added: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The messages to send with `added` after them: with the reasoning of this turn, which some vendors require between a call and its
        result."""
        return Overlay(system=self.system, keep_reasoning=SECOND_CALL_REASONING).render([*self.history, self.question, *added])

    def without_tools(self) -> Prompt:
        """The request as a model without tools got it."""
        return replace(self, history=without_tool_blocks(self.history), tools=(), tool_choice=None)

    @property
    def characters(self) -> int:
        """How long it is, without its tools and its images."""
        return len(self.system) + sum(len(text_of(message)) for message in (*self.history, self.question))

    @classmethod
    def from_bytes(cls, body: bytes) -> Prompt:
        return cls(**json.loads(body))

    def to_bytes(self) -> bytes:
        rest = json.dumps({name: getattr(self, name) for name in self.__slots__ if name != "tools"}, separators=(",", ":"))
        return f'{rest[:-1]},"tools":{once(self.tools, schemas_json)}}}'.encode()


def schemas_json(tools: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(tools, separators=(",", ":"))


def build_messages(claim: Claim, soul: Soul, past: LoadedHistory, image: ImagePrompt | None) -> Prompt:
    """Put history, the note of this turn, the message and its image together."""
    words = text_for_model(claim)
    messages = past.history.messages
    note = soul.note if messages or image else soul.opening_note or soul.note
    text = "\n\n".join(part for part in (note, image.question if image else "", words) if part)
    content: Any = [*image.parts, {"type": "text", "text": text}] if image and image.parts else text
    must_call = image.must_call if image else None
    left_out = count_unfit(messages, content_length(content))
    return Prompt(
        system=soul.system,
        history=[dict(message) for message in messages[left_out:]],
        question={"role": "user", "content": content, **({METADATA: {NOTE: note}} if note else {})},
        session_id=str(past.session.id),
        head=past.history.head,
        offset=past.history.offset + left_out,
        tool_choice={"type": "function", "function": {"name": must_call}} if must_call else None,
        intent=str(image.intent) if image else "",
        picture_tools=tuple(image.tools) if image else (),
    )


def text_for_model(claim: Claim) -> str:
    """The user's words as they are shown to a model: in a shared room with a label that names the speaker."""
    envelope = claim.envelope
    if not envelope.is_shared:
        return envelope.event.text
    return label_message(envelope.event.text, speaker=speaker_id(claim.conversation_id, claim.user_id), name=envelope.sender_name)


def count_unfit(messages: Sequence[Mapping[str, Any]], question_chars: int) -> int:
    """How many of the oldest messages to leave out, so that the rest fits into a request with a question of this length (images are long)
    and begins with a user's message: every vendor refuses a tool result without its call."""
    lengths = [content_length(message.get("content")) for message in messages]
    first, total = 0, question_chars
    if total + sum(lengths) > MAX_REQUEST_CHARS:
        first = len(messages)
        while first and total + lengths[first - 1] <= CUT_TO_CHARS:
            first -= 1
            total += lengths[first]
    return next((place for place in range(first, len(messages)) if messages[place].get("role") == "user"), len(messages))


def content_length(content: Any) -> int:
    """How long a content is, with its images as they are sent."""
    if isinstance(content, str) or content is None:
        return len(content or "")
    return sum(len(str(part.get("text") or "")) + len(str((part.get("image_url") or {}).get("url") or "")) for part in content)


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, without its images."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(str(part.get("text", "")) for part in content)
