"""Step 6: what the model will be sent, put together. Pure.

The soul's base is the system message and stays the same; what changes with every message is a block in that turn's user message, and stays
there: so one prompt extends the one before, and the vendor's cache stays warm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hermes.ports.images import Picture
from hermes.ports.souls import Soul
from hermes.router.steps.load_history import Past
from hermes.turn import MessageEvent

MOST_CHARACTERS = 20_000_000
"""Of a request, pictures as base64 among them. Vendors take 32 MB, and a soul and tools come along."""


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
    tools: Sequence[Mapping[str, Any]] = ()
    gate: str = ""
    tool_choice: str | Mapping[str, Any] | None = None
    """The tool that must be called; None leaves it to the model."""
    intent: str = ""
    """What the picture is for, as far as its caption says; empty without a picture."""
    picture_tools: Sequence[str] = ()
    """The tools that the picture may need, by name; they go along whatever the gate thinks of the words."""

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        return [{"role": "system", "content": self.system}, *self.history, self.question]

    @property
    def characters(self) -> int:
        """How long it is without its tools, pictures not counted."""
        return len(self.system) + sum(len(text_of(message)) for message in (*self.history, self.question))

    @classmethod
    def from_bytes(cls, body: bytes) -> Prompt:
        return cls(**json.loads(body))

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def build_messages(soul: Soul, past: Past, event: MessageEvent, picture: Picture | None) -> Prompt:
    """Put history, the note of this turn, the message and its picture together."""
    text = "\n\n".join(part for part in (soul.note, picture.question if picture else "", event.text) if part)
    content: Any = [*picture.parts, {"type": "text", "text": text}] if picture and picture.parts else text
    must_call = picture.must_call if picture else None
    messages = past.history.messages
    left_out = too_heavy(messages, len(str(content)))
    return Prompt(
        system=soul.system,
        history=[dict(message) for message in messages[left_out:]],
        question={"role": "user", "content": content},
        head=past.history.head,
        offset=past.history.offset + left_out,
        tool_choice={"type": "function", "function": {"name": must_call}} if must_call else None,
        intent=str(picture.intent) if picture else "",
        picture_tools=tuple(picture.tools) if picture else (),
    )


def too_heavy(messages: Sequence[Mapping[str, Any]], heavy: int) -> int:
    """How many of the oldest messages are left out, so that all others fit into a request with one that is so heavy: pictures are.

    What is left begins with a user's message, and no call is parted from its result."""
    for at in range(len(messages) - 1, -1, -1):
        heavy += len(str(messages[at].get("content") or ""))
        if heavy > MOST_CHARACTERS:
            return next((place for place in range(at + 1, len(messages)) if messages[place].get("role") == "user"), len(messages))
    return 0


def text_of(message: Mapping[str, Any]) -> str:
    """What a message says, without its pictures."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(str(part.get("text", "")) for part in content)
