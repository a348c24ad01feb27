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

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        return [{"role": "system", "content": self.system}, *self.history, self.question]

    @classmethod
    def from_bytes(cls, body: bytes) -> Prompt:
        return cls(**json.loads(body))

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def build_messages(soul: Soul, past: Past, event: MessageEvent, picture: Picture | None) -> Prompt:
    """Put history, the note of this turn, the message and its picture together."""
    text = "\n\n".join(part for part in (soul.note, picture.question if picture else "", event.text) if part)
    content: Any = text if picture is None else [*picture.parts, {"type": "text", "text": text}]
    return Prompt(
        system=soul.system,
        history=[dict(message) for message in past.history.messages],
        question={"role": "user", "content": content},
        head=past.history.head,
        offset=past.history.offset,
    )
